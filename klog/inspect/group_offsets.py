"""GroupOffsets: the committed offsets of Kafka's groups, followed while a broker runs.

The first read() replays __consumer_offsets, each later one the records appended since. Records that cannot be decoded
are left out: `klog groups` reports them.
"""

from __future__ import annotations

from typing import TypeAlias

from klog.errors import CorruptBatch, KlogError
from klog.inspect.coordinator_log import Replayed, replay_batch
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.log import Log
from klog.manager import LogManager

Offsets: TypeAlias = dict[tuple[str, int], dict[str, int]]


class GroupOffsets:
    """The groups of one manager. One thread. problems: {partition of __consumer_offsets: damage} of the last read()."""

    def __init__(self, logs: LogManager) -> None:
        self.problems: dict[str, str] = {}
        self._logs = logs
        self._states: dict[int, tuple[Replayed, int]] = {}  # by partition, with the next offset

    def read(self) -> Offsets:
        """Return {(topic, partition): {group: committed offset}} now."""
        self.problems = {}
        found: Offsets = {}
        for number in self._logs.topics().get(CONSUMER_OFFSETS, ()):
            try:
                state = self._replayed(self._logs.log(CONSUMER_OFFSETS, number))
            except (KlogError, OSError) as error:
                self.problems[f"{CONSUMER_OFFSETS}-{number}"] = str(error)
                continue
            for latest in state.latest.values():
                key, value = latest.record.key, latest.record.value
                if latest.record.type.endswith("offset_commit") and key is not None and value is not None:
                    found.setdefault((key["topic"], key["partition"]), {})[key["group"]] = value["offset"]
        return found

    def _replayed(self, log: Log) -> Replayed:
        """Replay the new records of a partition, and return its state. After a truncation the log is replayed again
        from its start."""
        end = log.log_end_offset
        state, position = self._states.get(log.partition, (Replayed(), 0))
        if position > end:
            state, position = Replayed(), 0
        position = max(position, log.log_start_offset)
        while position < end:
            try:
                for batch in log.read(position, end, isolation="log_end", scan=True).batches():
                    replay_batch(state, log.path, batch, CONSUMER_OFFSETS)
                    position = batch.next_offset
                position = end
            except CorruptBatch as error:
                self.problems[log.name] = str(error)
                position = max(error.next_offset or end, position)
        state.problems.clear()
        self._states[log.partition] = state, position
        return state
