"""A topic of a TestBroker: what is in it, and waiting for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.testing.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from klog.broker import Broker
    from klog.manager import LogManager
    from klog.record import Record

_SHOWN = 20


class TopicUnderTest:
    """Made by TestBroker.topic(name). Any thread."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self.name = arguments.text("topic", name)

    def __repr__(self) -> str:
        return f"<topic {self.name}>"

    def __iter__(self) -> Iterator[Record]:
        """Iterate records()."""
        return iter(self.records())

    def records(self, partition: int | None = None, *, isolation: str = "read_committed") -> list[Record]:
        """The records, of all partitions or of one, in the order of their offsets; of partitions by their number. Empty
        for a topic that does not exist. isolation: "read_uncommitted" has those of aborted and open transactions, too;
        others are those of Log.read. Raises UnknownTopicOrPartition for a partition that the topic does not have,
        ValueError, TypeError."""
        isolation = "high_watermark" if isolation == "read_uncommitted" else isolation
        logs = self._broker.logs
        return [
            record
            for number in partitions_of(logs, self.name, partition)
            for record in logs.log(self.name, number).read(isolation=isolation)  # type: ignore[arg-type]
        ]

    def values(self, partition: int | None = None, *, isolation: str = "read_committed") -> list[bytes | None]:
        """The values of records(), with the same arguments."""
        return [record.value for record in self.records(partition, isolation=isolation)]

    def append(self, records: Any, *, partition: int | None = None, **options: Any) -> None:
        """Append records as LogManager.append does, or Log.append for one partition, and let waiting consumers have
        them. A topic that does not exist is created."""
        logs = self._broker.logs
        if self.name not in logs.topics():
            logs.create_topic(self.name)
        if partition is None:
            logs.append(self.name, records, **options)
        else:
            logs.log(self.name, partition).append(records, **options)
        for number in logs.topics()[self.name]:
            self._broker.check(self.name, number)

    def wait(self, count: int, timeout: float = 10.0) -> list[Record]:
        """Wait until the topic has at least this many records, and return all that it has. Raises TimeoutError."""
        count = arguments.whole("count", count, 0)
        found: list[Record] = []

        def is_there() -> bool:
            found[:] = self.records()
            return len(found) >= count

        wait_for(is_there, timeout, lambda: f"{count} records of {self.name} expected; there are {len(found)}")
        return found

    def dump(self) -> str:
        """The newest records as text, for the report of a failed test."""
        logs = self._broker.logs
        found: list[Record] = []
        left_out = 0
        for number in logs.topics().get(self.name, ()):
            log = logs.log(self.name, number)
            newest = max(log.log_start_offset, log.log_end_offset - _SHOWN)
            left_out += newest - log.log_start_offset
            found += log.read(newest, isolation="log_end")
        before = f", after {left_out} offsets that are left out" if left_out else ""
        lines = [f"topic {self.name}: {len(found)} records{before}"]
        lines += [f"  {record.partition}/{record.offset} {record.key!r}: {record.value!r}"[:200] for record in found]
        return "\n".join(lines)


def partitions_of(logs: LogManager, topic: str, partition: int | None) -> Iterable[int]:
    """The partitions of a topic, or the given one of them, which need not exist; none for a topic that does not exist.
    Raises TypeError."""
    partitions = logs.topics().get(arguments.text("topic", topic), [])
    return partitions if partition is None or not partitions else [arguments.whole("partition", partition)]


def dump_topics(broker: Broker, names: Iterable[str]) -> str:
    """The newest records of topics as text."""
    return "\n".join(TopicUnderTest(broker, name).dump() for name in names)
