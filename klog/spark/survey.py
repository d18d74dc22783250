"""Examines the directories, on the driver, once: paths → partitions, their ends and segments → bins of numbered ranges.

  S1  Opens read-only: takes no lock, changes nothing; a writer may run meanwhile.
  S2  All results are passed on in the ranges, as numbers (B1); nothing stays open.
  S3  The end of a partition is its high watermark as in klog's read-only open: the checkpoint if there is one, else the
      log end. A directory left by a broker may have records above it that were never acknowledged.

Kafka's own topics (`INTERNAL`) belong to "every topic", and can be named, but no pattern matches them: `.*` means the
same as in Spark's Kafka source, which lists no internal topics. As there (SubscribePatternStrategy, findFirstIn), a
pattern may match any part of a name; use ^ and $ to match the whole name.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import klog
from klog.errors import UnknownTopicOrPartition
from klog.spark.bounds import Bounds, Span, TopicPartition, resolve
from klog.spark.options import Options, Subscription
from klog.spark.plan import TARGET_BYTES, Extent, Range, plan

if TYPE_CHECKING:
    from klog import Log

logger = logging.getLogger("klog.spark")

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})


def plan_partitions(options: Options, target: int = TARGET_BYTES) -> list[tuple[Range, ...]]:
    """Return the bins of ranges that a query reads, one per Spark task; empty if there is nothing to read."""
    with ExitStack() as stack:
        logs = _open(options.paths, stack)
        chosen = select(options.subscription, logs)
        for bounds in (options.start, options.end):
            _check_named(bounds, chosen)
        sized = [(_range(logs[pair], pair, options), _extents(logs[pair])) for pair in chosen]
        bins = plan(sized, lambda whole, offset: _batch_start(logs[whole.pair], whole, offset), target)
    logger.info(
        "planned tasks=%d ranges=%d partitions=%d offsets=%d bytes=%d",
        len(bins),
        sum(len(ranges) for ranges in bins),
        len(chosen),
        sum(member.end_offset - member.start_offset for ranges in bins for member in ranges),
        sum(member.size for ranges in bins for member in ranges),
    )
    return bins


def absolute_directory(path: str) -> str:
    """Return the directory for an option value. Raises ValueError if klog cannot read it.

    Relative paths are completed here, on the driver's host: tasks have another working directory.
    """
    scheme, separator, rest = path.partition("://")
    if not separator and path.startswith("file:/"):
        scheme, separator, rest = "file", ":", path.removeprefix("file:")
    if separator:
        if scheme.lower() != "file":
            raise ValueError(f"path {path!r}: this version of klog reads local directories, not {scheme}://")
        path = rest
    whole = os.path.abspath(path)
    if not os.path.isdir(whole):
        seen = "is not a directory" if os.path.exists(whole) else "does not exist"
        raise ValueError(f"path {path!r} {seen} on the driver's host (looked for {whole}); give a Kafka log directory")
    return whole


def select(subscription: Subscription, present: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the topic-partitions that a query reads, in order. Raises for a named one that does not exist."""
    pairs = sorted(present)
    topics = {pair.topic for pair in pairs}
    if subscription.assigned is not None:
        _refuse_missing([str(pair) for pair in subscription.assigned if pair not in set(pairs)], "partition", topics)
        return list(subscription.assigned)
    if subscription.topics is not None:
        _refuse_missing([topic for topic in subscription.topics if topic not in topics], "topic", topics)
        return [pair for pair in pairs if pair.topic in subscription.topics]
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        return [pair for pair in pairs if pair.topic not in INTERNAL and pattern.search(pair.topic)]
    return pairs


def _refuse_missing(missing: Sequence[str], what: str, topics: Iterable[str]) -> None:
    if missing:
        known = sorted(topics)
        there = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        raise UnknownTopicOrPartition(f"no {what} {', '.join(missing)} here; topics: {there or 'none'}")


def _open(paths: Sequence[str], stack: ExitStack) -> dict[TopicPartition, Log]:
    """Open every partition below the paths; each path is a log directory or one partition's directory."""
    logs: dict[TopicPartition, Log] = {}
    for path in paths:
        if _is_partition_directory(path):
            found = [stack.enter_context(klog.Log.open(path, read_only=True))]
        else:
            manager = stack.enter_context(klog.open(path, read_only=True))
            found = [manager.log(topic, number) for topic, numbers in manager.topics().items() for number in numbers]
        for log in found:
            pair = TopicPartition(log.topic, log.partition)
            if pair in logs:
                raise ValueError(f"{pair} is in two of the paths: {logs[pair].path} and {log.path}; give one of them")
            logs[pair] = log
    return logs


def _is_partition_directory(path: str) -> bool:
    # A log directory may be named data-1, too: its content decides.
    if not re.search(r".-\d+$", os.path.basename(path)):
        return False
    return any(re.fullmatch(r"\d{20}\.log|partition\.metadata", name) for name in os.listdir(path))


def _check_named(bounds: Bounds, chosen: Sequence[TopicPartition]) -> None:
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


def _range(log: Log, pair: TopicPartition, options: Options) -> Range:
    span = Span(pair, log.log_start_offset, log.high_watermark)

    def first_at_or_after(timestamp_ms: int) -> int | None:
        found = log.offset_for_timestamp(timestamp_ms)
        return None if found is None else int(found.offset)

    start, end = resolve(span, options.start, options.end, options.no_match, first_at_or_after)
    return Range(os.path.abspath(log.path), pair.topic, pair.partition, start, end)


def _extents(log: Log) -> list[Extent]:
    return [Extent(segment.base_offset, segment.next_offset, segment.size) for segment in log.segments]


def _batch_start(log: Log, whole: Range, offset: int) -> int:
    """Return where the batch of `offset` begins (P4): a read from `offset` begins with it, by the offset index."""
    for batch in log.read(offset, whole.end_offset, isolation="log_end").batches():
        return int(batch.base_offset)
    return whole.end_offset
