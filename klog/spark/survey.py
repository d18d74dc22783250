"""Examines the directories, on the driver, once: paths → partitions, their ends and segments → bins of numbered ranges.

  S1  Opens read-only: takes no lock, changes nothing; a writer may run meanwhile.
  S2  All results are passed on in the ranges, as numbers (B1). A stream keeps the partitions open for its next batch.
  S3  The end of a partition is by default its high watermark as in klog's read-only open: the checkpoint if there is
      one, else the log end. A directory left by a broker may have records above it that were never acknowledged.
  S4  Committed records end where the first transaction is open: below the high watermark that is the last stable
      offset.
  S5  A plan has all records of a commit of staged files, or none: the ends are those of one moment, at which partitions
      that a commit in progress changes end at its base offset.
  S6  A partition that is deleted, or leaves the paths, during the examination counts as one that was not there.

Kafka's own topics (`INTERNAL`) belong to "every topic", and can be named, but no pattern matches them: `.*` means the
same as in Spark's Kafka source, which lists no internal topics. As there (SubscribePatternStrategy, findFirstIn), a
pattern may match any part of a name; use ^ and $ to match the whole name.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

import klog
from klog import record
from klog.clock import SystemClock
from klog.disk import exists, is_directory, settled_change
from klog.errors import (
    CorruptBatch,
    CorruptData,
    InconsistentTopicId,
    KlogError,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from klog.internal_topics.names import CLUSTER_METADATA, INTERNAL_TOPICS
from klog.log.directory.checkpoint import Partition
from klog.log.options import ReaderBounds
from klog.log.staged.pending import PendingCommits
from klog.logger import logger_of
from klog.segment import may_reach
from klog.spark.bounds import Bounds, FirstAtOrAfter, Span, TopicPartition, resolve
from klog.spark.opening import Logs, open_since
from klog.spark.options import Options, Subscription
from klog.spark.places import local, scheme_of
from klog.spark.plan import Bin, Extent, Range, Sizes, Sizing, plan
from klog.spark.pushdown import Pushed
from klog.spark.resume import Present
from klog.values import NamedTuple, replace

if TYPE_CHECKING:
    from klog import Log
    from klog.segment import Segment
    from klog.spark.reading import Reading

logger = logger_of("spark")
T = TypeVar("T")

INTERNAL = INTERNAL_TOPICS | {CLUSTER_METADATA}
_LOOKS_MAX, _PAUSE_S = 1000, 0.005  # until a plan is of one moment


def plan_partitions(options: Options, pushed: Pushed | None = None) -> list[Bin]:
    """Return the bins of ranges that a query reads, one per Spark task; empty if there is nothing to read."""
    now_ms = SystemClock().wall_ms()
    options = replace(options, start=options.start.at(now_ms), end=options.end.at(now_ms))

    def planned(logs: Logs) -> list[Bin]:
        chosen = select(options.subscription, logs)
        for bounds in (options.start, options.end):
            check_named(bounds, chosen)
        wanted = {pair: _resolved(logs[pair], pair, seen, options) for pair, seen in see(logs, chosen, options).items()}
        return plan_ranges(logs, wanted, options, pushed)

    return examined(options, planned)


def examined(options: Options, examine: Callable[[Logs], T]) -> T:
    """Return what `examine` returns for the partitions below the paths; see Survey.examined."""
    with Survey(options) as survey:
        return survey.examined(examine)


class Survey:
    """Examines the partitions below the paths of a query, once or again and again. They are read-only, and stay open
    in between: to open one takes four times as long as to follow its writer. One thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logs: Logs | None = None
        self._open = ExitStack()

    def examined(self, examine: Callable[[Logs], T]) -> T:
        """Return what `examine` returns for the partitions.

        Where one of them goes meanwhile (S6), it is called again with those that are there then. Raises its
        UnknownTopicOrPartition or InconsistentTopicId if they are the same ones, opened anew.
        """
        before = None
        while True:
            kept, logs = self._logs is not None, self._current()
            try:
                return examine(logs)
            except (UnknownTopicOrPartition, InconsistentTopicId):
                listed = {pair: logs.path(pair) for pair in logs}
                self.close()
                if listed == before:
                    raise
                before = None if kept else listed

    def _current(self) -> Logs:
        """Return the partitions that there are now."""
        logs, self._logs = self._logs, None  # after an error all are opened anew
        if logs is None or not logs.follow():
            self.close()
            logs = self._open.enter_context(opened(self._options))
        self._logs = logs
        return logs

    def close(self) -> None:
        """Close the partitions; the next call opens them anew."""
        self._logs = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def opened(options: Options) -> Iterator[Logs]:
    """The partitions below the paths, read-only, for a while."""
    with ExitStack() as stack:
        yield Logs(options.paths, options.reading.on_corrupt, stack)


def plan_ranges(
    logs: Mapping[TopicPartition, Log],
    wanted: Mapping[TopicPartition, tuple[int, int]],
    options: Options,
    pushed: Pushed | None = None,
) -> list[Bin]:
    """Return the bins for offsets [start, end) of each partition."""
    pushed = pushed or Pushed()
    sized: list[tuple[Range, Sizes]] = []
    homes = {} if pushed.keys is None else _homes(logs, pushed.keys)
    for pair, (start, end) in wanted.items():
        whole = _range(logs[pair], pair, start, end)
        if pushed.wants(*pair) and pair.partition in homes.get(pair.topic, (pair.partition,)):
            sizes = sizes_of(logs[pair])
            sized += [(part, sizes) for part in _needed(logs[pair], whole, pushed)]
    bins = plan(sized, lambda whole, offset: _batch_at(logs[whole.pair], whole, offset), _sizing(options))
    logger.info(
        "event=planned tasks=%d ranges=%d partitions=%d offsets=%d bytes=%d",
        len(bins),
        sum(len(ranges) for ranges in bins),
        len(wanted),
        sum(member.count for ranges in bins for member in ranges),
        sum(member.size for ranges in bins for member in ranges),
    )
    return bins


def sizes_of(log: Log) -> Sizes:
    """Return the estimated bytes of ranges of a log."""
    return Sizes(Extent(segment.base_offset, segment.next_offset, segment.size) for segment in log.segments)


def _sizing(options: Options) -> Sizing:
    cores = options.parallelism or len(os.sched_getaffinity(0))
    return Sizing(cores, options.target_split_bytes, options.min_partitions, options.max_records)


def absolute_directory(path: str) -> str:
    """Return the directory for an option value. Raises ValueError if klog cannot read it, OSError.

    Relative paths are completed here, on the driver's host: tasks have another working directory.
    """
    found = local(path)
    if found is None:
        raise ValueError(f"path {path!r}: this version of klog reads local directories, not {scheme_of(path)}://")
    whole = os.path.abspath(found)
    if not is_directory(whole):
        seen = "is not a directory" if exists(whole) else "does not exist"
        raise ValueError(f"path {path!r} {seen} on the driver's host (looked for {whole}); give a Kafka log directory")
    return whole


def select(subscription: Subscription, present: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the topic-partitions that a query reads, in order. Raises for a named one that does not exist."""
    pairs = sorted(present)
    topics = {pair.topic for pair in pairs}
    if subscription.assigned is not None:
        _refuse_missing([str(pair) for pair in subscription.assigned if pair not in set(pairs)], "partition", topics)
    elif subscription.topics is not None:
        _refuse_missing([topic for topic in subscription.topics if topic not in topics], "topic", topics)
    return [pair for pair in pairs if matches(subscription, pair)]


def matches(subscription: Subscription, pair: TopicPartition) -> bool:
    """Does a subscription contain a topic-partition, whether it exists here or not?"""
    if subscription.assigned is not None:
        return pair in subscription.assigned
    if subscription.topics is not None:
        return pair.topic in subscription.topics
    if subscription.pattern is not None:
        return pair.topic not in INTERNAL and re.search(subscription.pattern, pair.topic) is not None
    return True


def _refuse_missing(missing: Sequence[str], what: str, topics: Iterable[str]) -> None:
    if missing:
        known = sorted(topics)
        there = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        raise UnknownTopicOrPartition(f"no {what} {', '.join(missing)} here; topics: {there or 'none'}")


def check_named(bounds: Bounds, chosen: Sequence[TopicPartition]) -> None:
    """Raise for a bound of a partition that is not read; log the partitions without one."""
    if not bounds.by_partition:
        return
    extra = [str(pair) for pair in bounds.by_partition if pair not in set(chosen)]
    if extra:
        raise UnknownTopicOrPartition(
            f"option '{bounds.option}' names {', '.join(sorted(extra))}, which this query does not read; "
            f"it reads {', '.join(map(str, chosen)) or 'nothing'}"
        )
    missing = [str(pair) for pair in chosen if pair not in bounds.by_partition]
    if missing:
        logger.warning("option=%s leaves out %s: %s", bounds.option, ",".join(missing), bounds.default.kind)


class Seen(NamedTuple):
    """The offsets of a partition at one moment. end_offset: what a query may read."""

    log_start_offset: int
    log_end_offset: int
    end_offset: int

    def held_back(self, bounds: ReaderBounds | None) -> Seen:
        """The same with the bounds that a commit in progress sets."""
        if bounds is None:
            return self
        end = self.log_end_offset if bounds.end_max is None else min(self.log_end_offset, bounds.end_max)
        return Seen(max(self.log_start_offset, bounds.log_start_offset), end, min(self.end_offset, end))


def see(
    logs: Mapping[TopicPartition, Log], chosen: Sequence[TopicPartition], options: Options
) -> dict[TopicPartition, Seen]:
    """Return the offsets of partitions, of one moment (S5).

    Manifests are listed after the ends. That is one moment if no file of the log.dirs came, went or was replaced since
    before, or if all ends are the same afterwards. Raises KlogError if neither is so for several seconds.
    """
    parents = {pair: os.path.dirname(logs[pair].path) for pair in chosen}
    pending = {parent: PendingCommits(parent) for parent in parents.values()}
    stamps, found = list(map(settled_change, pending)), _ends(logs, chosen, options)
    for _ in range(_LOOKS_MAX):
        bounds: dict[Partition, ReaderBounds] = {}
        for parent, commits in pending.items():
            bounds.update(commits.bounds_of({pair for pair in chosen if parents[pair] == parent}))
        before, stamps = stamps, list(map(settled_change, pending))
        again = found if None not in before and before == stamps else _ends(logs, chosen, options)
        if again == found:
            return {pair: seen.held_back(bounds.get(pair)) for pair, seen in found.items()}
        found = again
        time.sleep(_PAUSE_S)
    raise KlogError(
        f"{', '.join(pending)}: commits follow each other too fast to plan a read between them; try it again"
    )


def present_of(
    logs: Mapping[TopicPartition, Log], chosen: Sequence[TopicPartition], options: Options
) -> dict[TopicPartition, Present]:
    """Return partitions as they are at one moment (S5). A topic has one id, also in a partition whose directory states
    none. Raises InconsistentTopicId if two partitions have different ones."""
    seen = see(logs, chosen, options)
    ids: dict[str, str] = {}
    for pair in chosen:
        topic_id = logs[pair].topic_id
        if topic_id is not None and ids.setdefault(pair.topic, str(topic_id)) != str(topic_id):
            raise InconsistentTopicId(
                f"{logs[pair].path} has the topic id {topic_id}, but another partition of {pair.topic!r} has "
                f"{ids[pair.topic]}: one of them is left of a topic that was deleted; move it out of the log.dir"
            )
    return {
        pair: Present(os.fspath(logs[pair].path), *seen[pair], ids.get(pair.topic), tuple(logs[pair].leader_epochs))
        for pair in chosen
    }


def _ends(
    logs: Mapping[TopicPartition, Log], chosen: Sequence[TopicPartition], options: Options
) -> dict[TopicPartition, Seen]:
    found = {}
    for pair in chosen:
        log = logs[pair]
        log.refresh()  # else it may know the checkpoints, which have the high watermark, as of 100 ms ago
        found[pair] = Seen(log.log_start_offset, log.log_end_offset, end_offset(log, options))
    return found


def _resolved(log: Log, pair: TopicPartition, seen: Seen, options: Options) -> tuple[int, int]:
    return resolve(
        Span(pair, seen.log_start_offset, seen.end_offset),
        options.start,
        options.end,
        options.no_match,
        lookup_of(log, options.reading),
        options.reading.fail_on_data_loss,
    )


def lookup_of(log: Log, reading: Reading) -> FirstAtOrAfter:
    """Return the log's look-up by time. With onCorrupt other than fail, a batch that it cannot read counts as one with
    such a record."""

    def first_at_or_after(timestamp_ms: int) -> int | None:
        try:
            found = log.offset_for_timestamp(timestamp_ms)
        except CorruptBatch as error:
            if reading.on_corrupt == "fail":
                error.add_note("onCorrupt=skipBatch begins, or ends, at this batch")
            if reading.on_corrupt == "fail" or error.offset is None:
                raise
            logger.warning("event=corrupt_batch timestamp=%d reason=%r", timestamp_ms, str(error))
            return error.offset
        return None if found is None else int(found.offset)

    return first_at_or_after


def _range(log: Log, pair: TopicPartition, start: int, end: int) -> Range:
    epochs = [epoch for epoch, first in log.leader_epochs if first < end]
    return Range(
        os.path.abspath(log.path),
        pair.topic,
        pair.partition,
        start,
        end,
        topic_id=None if log.topic_id is None else str(log.topic_id),
        leader_epoch=max(epochs, default=None),
    )


def end_offset(log: Log, options: Options) -> int:
    """Return the exclusive bound of what a query may read (S3, S4)."""
    if options.up_to == "logEndOffset":
        end = log.log_end_offset
        if not options.reading.committed:
            return end
        first_open = open_since(log)
        return end if first_open is None else max(first_open, log.log_start_offset)
    if options.up_to == "lastStableOffset" or options.reading.committed:
        return log.last_stable_offset
    return log.high_watermark


def _homes(pairs: Iterable[TopicPartition], keys: Iterable[bytes]) -> dict[str, set[int]]:
    """Return the partitions where Kafka's default partitioner puts the keys, by topic; without topics of which some
    partitions are missing, as far as their numbers show."""
    present: dict[str, set[int]] = {}
    for pair in pairs:
        present.setdefault(pair.topic, set()).add(pair.partition)
    return {
        topic: {klog.partition_for(key, len(numbers)) for key in keys}
        for topic, numbers in present.items()
        if len(numbers) == max(numbers) + 1
    }


def _needed(log: Log, whole: Range, pushed: Pushed) -> list[Range]:
    """Return the parts of a range that may have rows for pushed filters: without the segments that are too old."""
    start, end = max(whole.start_offset, pushed.low), min(whole.end_offset, pushed.high)
    parts: list[Range] = []
    for segment in log.segments[:-1] if pushed.since_us is not None else ():
        if start < segment.next_offset and segment.base_offset < end and not _may_have(segment, pushed):
            if start < segment.base_offset:
                parts.append(replace(whole, start_offset=start, end_offset=segment.base_offset))
            start = segment.next_offset
    return [*parts, replace(whole, start_offset=start, end_offset=max(start, end))]


def _may_have(segment: Segment, pushed: Pushed) -> bool:
    try:
        return pushed.since_us is None or may_reach(segment, -(-pushed.since_us // 1000))
    except (OSError, CorruptData):  # deleted meanwhile, or an index that cannot be made again: the task sees
        return True


def _batch_at(log: Log, whole: Range, offset: int) -> tuple[int, int]:
    """Return the offsets of the batch of `offset`, or of the next one (P4), by the offset index."""
    try:
        found = log.fetch(offset, max_bytes=1)  # min_one_message: the whole of the first batch
        batch = next(record.decode(found.memory(), verify_crc=False, lazy=True), None)
    except (OffsetOutOfRange, CorruptData, OSError):  # deleted meanwhile, or damage: the task sees
        batch = None
    return (whole.end_offset, whole.end_offset) if batch is None else (batch.base_offset, batch.next_offset)
