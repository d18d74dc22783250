"""Offsets that a word or a time stands for, and how many records lie between two: what the indexes and headers answer.

Kafka: UnifiedLog.fetchOffsetByTimestamp and legacyFetchOffsetsBefore, ListOffsetsRequest for the numbers, Partition for
what an isolation does to "latest". Tiered answers are those of a log without tiers.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.errors import CorruptBatch
from klog.log.fetching import Isolation
from klog.log.segments import locate, number_of
from klog.log.times import Position, resolve, whole_number
from klog.record import iter_records
from klog.segment import Segment, count_records

if TYPE_CHECKING:
    from klog.log.view import LogView

NONE = -1
_NUMBERS = {
    -1: "latest",
    -2: "earliest",
    -3: "max_timestamp",
    -4: "earliest_local",
    -5: "latest_tiered",
    -6: "earliest_pending_upload",
}


class ListedOffset(NamedTuple):
    """An offset, the timestamp of its record, the leader epoch that it was written in; -1: has none, or unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp: int
    offset: int


class NewestBefore:
    """Which segment of a log is the first that reaches a time, by a binary search: the newest timestamp of each closed
    segment and those before it is remembered, for one tuple of segments, as far as somebody has asked. Any thread."""

    def __init__(self) -> None:
        self._known: tuple[Sequence[Segment], int, list[int]] = ((), 0, [])

    def reaching(self, segments: Sequence[Segment], first: int, ms: int) -> int:
        """Number of the first closed segment from `first` on with a timestamp of at least ms, else that of the newest.

        Where the log start has moved since, it may be an earlier one than the first that counts.
        """
        of, origin, newest = self._known
        if of is not segments or first < origin:
            origin, newest = first, []
        if not newest or newest[-1] < ms:
            newest = newest.copy()  # who looks at the other just now has its own
            for segment in segments[origin + len(newest) : -1]:
                newest.append(max(segment.max_timestamp if segment.size else NONE, newest[-1] if newest else NONE))
                if newest[-1] >= ms:
                    break
            self._known = segments, origin, newest
        return max(first, origin + bisect.bisect_left(newest, ms))


def offset_for_timestamp(log: LogView, ms: int) -> TimestampOffset | None:
    """What Log.offset_for_timestamp documents."""
    segments = log._segments
    first = number_of(segments, log.log_start_offset)
    if ms > 0:
        first = log._newest.reaching(segments, first, ms)
    for segment in segments[first:]:
        if segment.size:
            if segment.max_timestamp < ms and ms > 0:  # a lone record of 1970 looks like an empty time index
                continue
            found = segment.find_timestamp(ms, log.log_start_offset)
            if found is not None:
                # Beyond the log end: an append that is not through yet, and may be taken back.
                return TimestampOffset(*found) if found[1] < log.log_end_offset else None
    return None


def count(log: LogView, start: Position | None, stop: Position | None) -> int:
    """What Log.count documents."""
    now = log.clock.wall_ms()
    low = max(resolve(log, start, log.log_start_offset, now), log.log_start_offset)
    high = min(resolve(log, stop, log.log_end_offset, now), log.log_end_offset)
    total = 0
    for segment in log._segments:
        if segment.base_offset >= high or not segment.size or (segment.next_offset <= low):
            continue
        located = segment.locate(low) if low > segment.base_offset else None
        position = located.position if located is not None else 0
        records, crossing, end, reason = count_records(
            segment.file, position, segment.size, low, high, segment.next_offset
        )
        if reason:
            raise CorruptBatch(
                "no batch begins here: run `klog verify` on the directory", path=segment.path, position=end
            )
        total += records
        for header in crossing:
            data = segment.file.read(header.position, header.size)
            records_in = iter_records(
                data, start=low, stop=high, path=segment.path, file_position=header.position, lazy=True
            )
            total += sum(1 for _ in records_in)
    return total


def list_offset(log: LogView, target: str | int, isolation: Isolation) -> ListedOffset | None:
    """What Log.list_offset documents."""
    word = target
    if not isinstance(target, str):
        number = whole_number("target", target)
        if number >= 0:
            return _at_time(log, number, isolation)
        word = _NUMBERS.get(number, number)
    if word == "latest":
        return ListedOffset(NONE, log.bound(isolation), _latest_epoch(log))
    if word in ("earliest", "earliest_local"):
        epochs, start = log.leader_epochs, log.log_start_offset
        epoch = epochs[0][0] if epochs and epochs[0][1] <= start else NONE
        return ListedOffset(NONE, start, epoch)
    if word == "max_timestamp":
        return _youngest(log, isolation)
    if word in ("latest_tiered", "earliest_pending_upload"):
        return ListedOffset(NONE, NONE, NONE)
    raise ValueError(f"target={target!r}: a time in ms, or one of {', '.join(map(repr, _NUMBERS.values()))}")


def offsets_before(log: LogView, ms: int, count: int) -> list[int]:
    """What Log.legacy_fetch_offsets_before documents."""
    if count < 0:
        raise ValueError(f"count={count}: not negative")
    found: list[tuple[int, int]] = []
    for segment in log.segments:
        with contextlib.suppress(FileNotFoundError):  # retention, beside us
            modified = os.stat(segment.path).st_mtime_ns // 1_000_000
            found.append((max(segment.base_offset, log.log_start_offset), modified))
    if log.segments and log.segments[-1].size:
        found.append((log.log_end_offset, log.clock.wall_ms()))
    if ms == -1:
        last = len(found)
    elif ms == -2:
        last = min(len(found), 1)
    else:
        last = max((number for number, (_, modified) in enumerate(found, 1) if modified <= ms), default=0)
    return sorted((offset for offset, _ in found[max(last - count, 0) : last]), reverse=True)


def _latest_epoch(log: LogView) -> int:
    epochs = log.leader_epochs
    return epochs[-1][0] if epochs else NONE


def _epoch_of(log: LogView, offset: int) -> int:
    """The epoch of the batch that holds an offset, as the batch says it."""
    found = locate(log._segments, offset)
    if found is not None:
        return found[0].locate_at(found[1]).leader_epoch
    epochs = log.leader_epochs
    number = bisect.bisect_right(epochs, offset, key=lambda entry: entry[1])
    return epochs[number - 1][0] if number else NONE


def _listed(log: LogView, timestamp: int, offset: int, isolation: Isolation) -> ListedOffset | None:
    if isolation != "log_end" and offset >= log.bound(isolation):
        return None  # Kafka: Partition.fetchOffsetForTimestamp
    return ListedOffset(timestamp, offset, _epoch_of(log, offset))


def _at_time(log: LogView, ms: int, isolation: Isolation) -> ListedOffset | None:
    found = log.offset_for_timestamp(ms)
    return None if found is None else _listed(log, *found, isolation)


def _youngest(log: LogView, isolation: Isolation) -> ListedOffset | None:
    """The first record with the greatest timestamp of all."""
    segments = log._segments
    youngest = max((segment.max_timestamp for segment in segments if segment.size), default=NONE)
    found = log.offset_for_timestamp(youngest) if youngest >= 0 else None
    if found is None and youngest >= 0:  # it lies below the log start, or in an append that is not through yet
        start, end = log.log_start_offset, log.log_end_offset
        youngest = NONE
        for segment in segments[number_of(segments, start) :]:
            if segment.size and segment.base_offset < end:
                whole = segment.base_offset >= start and segment.next_offset <= end
                youngest = max(youngest, segment.max_timestamp if whole else segment.youngest_in(start, end))
        found = log.offset_for_timestamp(youngest) if youngest >= 0 else None
    return None if found is None else _listed(log, *found, isolation)
