"""The stream reader of format("klog"): micro-batches between offsets. Spark calls it so:

    one worker for the query   [prepareForTriggerAvailableNow] → initialOffset (twice, in the first run only) →
                               { latestOffset(start, limit) → partitions(start, end) → commit(end of the batch before) }
    every task                 read(partition): of a TaskReader (task.py), which the reader is pickled as

  S1  A batch is fixed by its two offsets, which Spark writes to the checkpoint before partitions() is called: repeated
      after a crash, it has the same rows, while a writer appends, rolls and deletes.
  S2  Partitions and topics that the offsets do not name begin at their first record (resume.py), or where the stream
      was when they left (stream_memory.py, M7). The next batch names it, and the one after that reads it: repeated
      after retention has moved on, a batch would begin elsewhere.
  S3  No batch without records: latestOffset returns `start` itself, unless partitions are new or a loss of data has to
      be passed.
  S4  The first batch of a query is empty, and its end is the start. Spark has only ends in its checkpoint: it repeats a
      first batch that crashed from initialOffset, which may then be another (records were appended or deleted, a topic
      was created again).
  S5  latestOffset(start) and commit(end): all batches up to this offset are done. Spark commits a batch when it plans
      the next one, and rarely calls stop(): it ends the worker. So commitGroup uses all three.

Spark before 4.2 gives latestOffset no start: there are no limits, and losses of data are found by partitions().
Offsets: offsets.py. Limits: limits.py. Ids of topics: stream_memory.py.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from klog.clock import Clock, SystemClock
from klog.errors import CorruptBatch, OffsetOutOfRange, UnknownTopicOrPartition
from klog.logger import logger_of
from klog.spark.bounds import LATEST, Bounds, Span, TopicPartition, resolve
from klog.spark.group_offsets import GroupOffsets, check_subscription
from klog.spark.limits import Limits, next_offsets, too_few
from klog.spark.offsets import Offsets, from_json, to_json
from klog.spark.options import Options, Subscription
from klog.spark.read import DataLoss
from klog.spark.resume import Loss, Present, resume
from klog.spark.stream_memory import StreamMemory
from klog.spark.survey import Survey, check_named, lookup_of, plan_ranges, present_of, select, sizes_of
from klog.spark.task import TaskReader
from klog.values import dataclass, replace

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # PySpark before 4.2
    SupportsTriggerAvailableNow = object
    HAS_LIMITS = False

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from klog.spark.opening import Logs

logger = logger_of("spark")
T = TypeVar("T")


class KlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One source of one streaming query."""

    def __init__(self, options: Options, schema: StructType, clock: Clock | None = None) -> None:
        if not HAS_LIMITS:
            _refuse_limits(options.limits)
        if options.commit_group is not None:
            check_subscription(options.subscription)
        self._options = options
        self._schema = schema
        self._clock = clock or SystemClock()
        self._survey = Survey(options)
        self._memory: StreamMemory | None = None
        self._group: GroupOffsets | None = None
        self._done: Offsets = {}  # S5
        self._initial: Offsets | None = None
        self._start_is_open = False  # S4: has this query begun, but not planned its first batch?
        self._target: Offsets | None = None  # of an availableNow run
        self._latest: Offsets | None = None
        self._triggered: float | None = None  # time of the last trigger that did not wait for more offsets

    # ---- offsets -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802  Spark's names, here and below
        self._open_group()
        if self._initial is None:
            self._initial = self._survey.examined(self._starting_offsets)
            self._start_is_open = True
        return to_json(self._initial)

    def _starting_offsets(self, logs: Logs) -> Offsets:
        present = present_of(logs, select(self._options.subscription, logs), self._options)
        wanted = self._options.start.at(self._clock.wall_ms())
        check_named(wanted, list(present))
        offsets: Offsets = {}
        for pair, found in present.items():
            span = Span(pair, found.log_start_offset, found.end_offset)
            offsets[pair], _ = resolve(
                span,
                wanted,
                Bounds(LATEST),
                self._options.no_match,
                lookup_of(logs[pair], self._options.reading),
                self._options.reading.fail_on_data_loss,
            )
        return offsets

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, dict[str, int]]:  # noqa: N802
        self._open_group()

        def latest(logs: Logs, present: Mapping[TopicPartition, Present]) -> Offsets:
            self._latest = _ends(present, self._latest or {})
            if start is None:  # before 4.2
                return self._latest
            begin = from_json(start)
            self._commit_group(begin)
            if self._start_is_open and begin == self._initial:
                self._start_is_open = False
                self._remembered().begin(_ids(present))
                self._note_epochs(present, begin)
                return begin
            reached = self._reached(begin, logs, present, limit)
            if reached is None:
                return begin
            self._log_lag(reached)
            return reached

        return to_json(self._examined(latest))

    def _reached(
        self, begin: Offsets, logs: Logs, present: Mapping[TopicPartition, Present], limit: Any
    ) -> Offsets | None:
        """Return the end of the batch from `begin`, None if there should be none now."""
        positions = self._positions(begin, present)
        ends = self._reachable(begin, positions, present)
        positions = {pair: positions[pair] for pair in ends}
        backlog = sum(ends.values()) - sum(positions.values())
        limits = self._limits(limit)
        now = self._clock.monotonic()
        waited_ms = None if self._triggered is None else (now - self._triggered) * 1000
        new = {pair for pair in ends if pair not in begin and positions[pair] < present[pair].end_offset}
        if self._target is None and not new and too_few(backlog, limits, waited_ms):
            return None
        self._triggered = now
        reached = next_offsets(positions, ends, limits, _StoredBytes(logs))
        gone = begin.keys() - reached.keys()
        if not (new or gone or any(reached[pair] != begin.get(pair, positions[pair]) for pair in reached)):
            behind = next((pair for pair in reached if positions[pair] < reached[pair]), None)
            if behind is None:
                return None
            # A new log in place of a lost one has reached the very same offset: Spark would see no change.
            reached[behind] -= 1
        self._note_epochs(present, reached)
        return reached

    def _reachable(self, begin: Offsets, positions: Offsets, present: Mapping[TopicPartition, Present]) -> Offsets:
        """Return the ends of the partitions without limits, never below the positions; of new ones their first offset
        (S2)."""
        ends = {}
        for pair, position in positions.items():
            end = present[pair].end_offset if pair in begin else position
            if self._target is not None:
                if pair not in self._target and pair not in begin:
                    continue
                end = min(end, self._target.get(pair, position))
            ends[pair] = max(end, position)
        return ends

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    def _log_lag(self, reached: Offsets) -> None:
        """Log what Spark's Kafka source has as metrics of its progress, which a Python source cannot add to."""
        behind = [max(end - reached.get(pair, 0), 0) for pair, end in (self._latest or {}).items()]
        logger.log(
            logging.WARNING if self._options.reading.metrics else logging.INFO,
            "event=offsets_behind partitions=%d min=%d max=%d avg=%.1f",
            len(behind),
            min(behind, default=0),
            max(behind, default=0),
            sum(behind) / max(len(behind), 1),
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._open_group()
        self._target = self._examined(lambda _, present: _ends(present))

    # ---- limits ------------------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """One of Spark's limits: whichever it is, latestOffset applies all the options'. Without one: all available."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def _limits(self, limit: Any) -> Limits:
        limits = self._options.limits
        if isinstance(limit, ReadAllAvailable):  # Trigger.Once: the options do not count
            return Limits()
        if isinstance(limit, ReadMaxRows):
            return replace(limits, max_offsets=min(limits.max_offsets or limit.max_rows, limit.max_rows))
        if isinstance(limit, ReadMaxBytes):
            return replace(limits, max_bytes=min(limits.max_bytes or limit.max_bytes, limit.max_bytes))
        return replace(limits, min_offsets=limit.min_rows) if isinstance(limit, ReadMinRows) else limits

    # ---- batches -----------------------------------------------------------------------------------------------------

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        begin, until = from_json(start), from_json(end)
        self._start_is_open = False  # also if Spark repeats the first batch, whose end it has
        if begin == until:  # the first batch, and when a query starts again
            return []

        def planned(logs: Logs, present: Mapping[TopicPartition, Present]) -> list[InputPartition]:
            positions = self._positions(begin, present)
            memory = self._remembered()
            held, losses = resume(until, present, memory.ids, memory.epochs)
            self._lost(losses)
            reached = {pair: min(last, held[pair]) for pair, last in sorted(until.items()) if pair in held}
            if any(last < until[pair] for pair, last in reached.items()):
                memory.note_next(until, reached)
            self._note_epochs(present, reached)
            wanted = {pair: (positions[pair], last) for pair, last in reached.items() if positions[pair] < last}
            return [InputPartition(ranges) for ranges in plan_ranges(logs, wanted, self._options)]

        return self._examined(planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task().read(partition)

    def _task(self) -> TaskReader:
        return TaskReader(self._schema, self._options.reading)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._task().__reduce__()

    def commit(self, end: Any) -> None:
        self._commit_group(from_json(end))

    def stop(self) -> None:
        self._survey.close()
        self._commit_group(self._done)

    def _open_group(self) -> None:
        # In the worker of the offsets alone, not in the planner's, and before the first batch.
        if self._options.commit_group is not None and self._group is None:
            self._group = GroupOffsets(self._options.paths, self._options.commit_group, self._clock)

    def _commit_group(self, done: Offsets) -> None:
        if done != self._initial:
            self._done = done
        if self._group is not None:
            self._group.write(self._done)

    # ---- losses ------------------------------------------------------------------------------------------------------

    def _positions(self, begin: Offsets, present: Mapping[TopicPartition, Present]) -> Offsets:
        """Return where the batch that begins at `begin` is read from. Raises DataLoss if that is no longer there."""
        memory = self._remembered()
        resumed = memory.positions_of(begin)
        left = memory.left(_ids(present))
        came_back = {pair: left[pair] for pair in left.keys() & present.keys() - begin.keys()}
        offsets = {**came_back, **(begin if resumed is None else resumed)}
        positions, losses = resume(offsets, present, memory.ids, memory.epochs)
        self._lost(losses)
        if losses:
            resumed = {pair: positions[pair] for pair in begin if pair in positions}
        memory.note_left({pair: at for pair, at in offsets.items() if pair not in present})
        memory.note(_ids(present), None if resumed is None else (begin, resumed))
        return positions

    def _note_epochs(self, present: Mapping[TopicPartition, Present], ends: Offsets) -> None:
        found = {pair: present[pair].epoch_before(end) for pair, end in ends.items() if pair in present}
        self._remembered().note_epochs({pair: epoch for pair, epoch in found.items() if epoch is not None})

    def _lost(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            if self._options.reading.fail_on_data_loss:
                raise DataLoss(
                    f"{loss}. To go on with what is there, set failOnDataLoss=false; "
                    f"to read everything again, start with a new checkpointLocation"
                )
            logger.warning("data loss: %s; goes on at %s", loss, loss.goes_on)

    # ---- what is there -----------------------------------------------------------------------------------------------

    def _examined(self, examine: Callable[[Logs, Mapping[TopicPartition, Present]], T]) -> T:
        """Return what `examine` returns for the subscribed partitions that exist, perhaps again (survey.py, S6)."""

        def existing(logs: Logs) -> T:
            chosen = select(_existing(self._options.subscription, logs), logs)
            return examine(logs, present_of(logs, chosen, self._options))

        return self._survey.examined(existing)

    def _remembered(self) -> StreamMemory:
        # Made on first use: the planner has a reader of its own, which must not use the file.
        if self._memory is None:
            source = self._options.paths, self._options.subscription
            self._memory = StreamMemory(self._options.checkpoint, source)
        return self._memory


@dataclass(frozen=True, slots=True)
class _StoredBytes:
    """limits.Stored of open logs, by their offset indexes; estimated where a batch cannot be read, or is gone."""

    logs: Logs

    def size(self, pair: TopicPartition, start: int, end: int) -> int:
        if start >= end:
            return 0
        try:
            return self.logs[pair].fetch_range(start, end).size
        except (CorruptBatch, OffsetOutOfRange, UnknownTopicOrPartition):  # partitions() or the task sees it
            return sizes_of(self.logs[pair]).between(start, end)

    def fit(self, pair: TopicPartition, start: int, end: int, size: int) -> int:
        ends = range(start + 1, end + 1)
        return start + bisect_right(ends, size, key=lambda last: self.size(pair, start, last))


def _existing(subscription: Subscription, logs: Iterable[TopicPartition]) -> Subscription:
    """Without what does not exist: a named topic may be created, or deleted, while the query runs."""
    pairs = set(logs)
    topics = {pair.topic for pair in pairs}
    if subscription.topics is not None:
        return replace(subscription, topics=tuple(topic for topic in subscription.topics if topic in topics))
    if subscription.assigned is not None:
        return replace(subscription, assigned=tuple(pair for pair in subscription.assigned if pair in pairs))
    return subscription


def _ids(present: Mapping[TopicPartition, Present]) -> dict[str, str]:
    return {pair.topic: found.topic_id for pair, found in present.items() if found.topic_id is not None}


def _ends(present: Mapping[TopicPartition, Present], before: Mapping[TopicPartition, int] | None = None) -> Offsets:
    """The ends of the partitions, none below that of before as long as the log reaches that far."""
    before = before or {}
    return {
        pair: max(found.end_offset, min(before.get(pair, 0), found.log_end_offset)) for pair, found in present.items()
    }


def _refuse_limits(limits: Limits) -> None:
    given = {
        "maxOffsetsPerTrigger": limits.max_offsets,
        "maxBytesPerTrigger": limits.max_bytes,
        "minOffsetsPerTrigger": limits.min_offsets,
    }
    for option, value in given.items():
        if value is not None:
            raise ValueError(
                f"option '{option}' needs PySpark 4.2 or later, which passes a source the beginning of a batch; "
                f"leave it out, or upgrade pyspark"
            )
