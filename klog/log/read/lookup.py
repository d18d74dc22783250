"""Lookups by indexes and headers: the offset of a time or of a name such as "latest", and the count of a range.

A lookup takes no lock and uses one Readable: what can be read at one moment. The newest segments may hold more, of an
unfinished append, which may be undone.

Kafka: UnifiedLog.fetchOffsetByTimestamp and legacyFetchOffsetsBefore, ListOffsetsRequest for the numbers, Partition for
the effect of an isolation on "latest". Results for tiers are those of a log without tiers.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Callable, Sequence

from klog.arguments import LONG_MAX, LONG_MIN, shown, whole
from klog.errors import CorruptBatch
from klog.log.read.isolation import Isolation, bound
from klog.log.read.newest_before import NONE
from klog.log.read.positions import Position, checked_position, timestamp_ms, whole_number
from klog.log.read.steady import steadily
from klog.log.state._log_core import LogCore
from klog.log.state.segments import number_of
from klog.record import iter_records
from klog.segment import FoundByTime, Segment, count_records, find_by_time, youngest_in
from klog.values import NamedTuple

_NUMBERS = {
    -1: "latest",
    -2: "earliest",
    -3: "max_timestamp",
    -4: "earliest_local",
    -5: "latest_tiered",
    -6: "earliest_pending_upload",
}


class ListedOffset(NamedTuple):
    """An offset, the timestamp of its record, and its leader epoch. -1: none or unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp: int
    offset: int


class Readable(NamedTuple):
    """What can be read of a log at one moment: offsets [start, end) in these segments, visible below `bound`."""

    segments: Sequence[Segment]
    start: int
    end: int
    bound: int


def _readable(log: LogCore, isolation: Isolation = "log_end") -> Readable:
    while True:
        start, end = log.log_start_offset, log.log_end_offset
        found = Readable(log.segments, start, end, bound(log, isolation))
        if (start, end) == (log.log_start_offset, log.log_end_offset):
            return found


def _with_epochs(log: LogCore, offset: Callable[[], int]) -> tuple[int, list[tuple[int, int]]]:
    """An offset, and the leader epochs of the same moment."""
    while True:
        epochs, found = log.epochs.entries, offset()
        if epochs == log.epochs.entries:
            return found, epochs


def _first_reaching(log: LogCore, readable: Readable, ms: int) -> FoundByTime | None:
    """The first record with a timestamp of at least ms."""
    segments, start, end, _ = readable
    first = number_of(segments, start)
    if ms > 0:
        first = log.newest_before.reaching(segments, first, ms)
    for segment in segments[first:]:
        if segment.size:
            if segment.max_timestamp < ms and ms > 0:  # a lone record of 1970 looks like an empty time index
                continue
            found = find_by_time(segment, ms, start)
            if found is not None:
                return found if found.offset < end else None
    return None


def offset_for_timestamp(log: LogCore, ms: int) -> TimestampOffset | None:
    """The first record with a timestamp of at least ms, None if there is none."""
    found = _first_reaching(log, _readable(log), ms)
    return None if found is None else TimestampOffset(found.timestamp, found.offset)


def resolve(log: LogCore, value: Position | None, default: int, now_ms: int, name: str = "start") -> int:
    """The offset of a position in a log. A time after the last record gives the log end."""
    if value is None:
        return default
    if type(value) is int and LONG_MIN <= value <= LONG_MAX:
        return value
    value = checked_position(name, value)
    offset = _named(log, value, name)
    if offset is not None:
        return offset
    assert not isinstance(value, int)
    end = log.log_end_offset  # read first: a record appended meanwhile comes after it
    at = timestamp_ms(value, now_ms, name)
    log.check_open()
    found = steadily(log, lambda: offset_for_timestamp(log, at))
    return end if found is None else found.offset


def moment(log: LogCore, value: Position) -> tuple[int, int]:
    """The exclusive offset bound and the greatest timestamp of a log's records up to a position."""
    value = checked_position("moment", value)
    offset = _named(log, value, "moment")
    if offset is None:
        assert not isinstance(value, int)
        return LONG_MAX, timestamp_ms(value, log.clock.wall_ms(), "moment")
    log.check_held(offset)
    return offset, LONG_MAX


def _named(log: LogCore, value: Position, name: str) -> int | None:
    """The offset that a position states; None for a time."""
    if isinstance(value, int):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word == "earliest":
        return log.log_start_offset
    if word == "latest":
        return log.log_end_offset
    if not (word.isascii() and word.isdigit()):
        return None
    try:
        return whole(name, int(word))
    except ValueError:  # also that of an int of thousands of digits
        raise ValueError(f"{name}={shown(value)}: an offset is an int of 64 bits") from None


def count(log: LogCore, start: Position | None, stop: Position | None) -> int:
    """The number of records in [start, stop)."""
    now = log.clock.wall_ms()
    low, high = resolve(log, start, 0, now), resolve(log, stop, LONG_MAX, now, "stop")
    readable = _readable(log)
    low, high = max(low, readable.start), min(high, readable.end)
    total = 0
    for segment in readable.segments:
        if segment.base_offset >= high or segment.next_offset <= low:
            continue
        if segment is not readable.segments[-1]:
            segment.check_end()
        if not segment.size:
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


def list_offset(log: LogCore, target: str | int, isolation: Isolation) -> ListedOffset | None:
    """The offset of a time in ms, of a name, or of a number of ListOffsetsRequest. None if no record is found."""
    word = target
    if not isinstance(target, str):
        number = whole_number("target", target)
        if number >= 0:
            return _at_time(log, number, isolation)
        word = _NUMBERS.get(number, number)
    if word == "latest":
        end, epochs = _with_epochs(log, lambda: bound(log, isolation))
        return ListedOffset(NONE, end, epochs[-1][0] if epochs else NONE)
    if word in ("earliest", "earliest_local"):
        start, epochs = _with_epochs(log, lambda: log.log_start_offset)
        number = bisect.bisect_right(epochs, start, key=lambda entry: entry[1])
        return ListedOffset(NONE, start, epochs[number - 1][0] if number else NONE)
    if word == "max_timestamp":
        return _youngest(log, isolation)
    if word in ("latest_tiered", "earliest_pending_upload"):
        return ListedOffset(NONE, NONE, NONE)
    raise ValueError(f"target={target!r}: a time in ms, or one of {', '.join(map(repr, _NUMBERS.values()))}")


def offsets_before(log: LogCore, ms: int, count: int) -> list[int]:
    """Up to `count` base offsets of segments last modified at or before ms, newest first. -1: latest, -2: earliest."""
    found: list[tuple[int, int]] = []
    for segment in log.segments:
        with contextlib.suppress(FileNotFoundError):  # deleted by retention meanwhile
            modified = os.stat(segment.path).st_mtime_ns // 1_000_000
            found.append((max(segment.base_offset, log.log_start_offset), modified))
    if any(segment.size for segment in log.segments[-1:]):
        found.append((log.log_end_offset, log.clock.wall_ms()))
    if ms == -1:
        last = len(found)
    elif ms == -2:
        last = min(len(found), 1)
    else:
        last = max((number for number, (_, modified) in enumerate(found, 1) if modified <= ms), default=0)
    return sorted((offset for offset, _ in found[max(last - count, 0) : last]), reverse=True)


def _listed(found: FoundByTime | None, readable: Readable) -> ListedOffset | None:
    if found is None or found.offset >= readable.bound:
        return None  # Kafka: Partition.fetchOffsetForTimestamp
    return ListedOffset(*found)


def _at_time(log: LogCore, ms: int, isolation: Isolation) -> ListedOffset | None:
    readable = _readable(log, isolation)
    return _listed(_first_reaching(log, readable, ms), readable)


def _youngest(log: LogCore, isolation: Isolation) -> ListedOffset | None:
    """The first record with the greatest timestamp of all."""
    readable = _readable(log, isolation)
    segments, start, end, _ = readable
    first, youngest, whole = number_of(segments, start), NONE, []
    for segment, following in zip(segments[first:], [*segments[first + 1 :], None], strict=False):
        if segment.size and segment.base_offset < end:
            # If readable records follow in another segment, this one is closed.
            if segment.base_offset >= start and following is not None and following.base_offset < end:
                whole.append(segment)
            else:
                youngest = max(youngest, youngest_in(segment, start, end))
    newest = max((segment.max_timestamp for segment in whole), default=NONE)
    found = _first_reaching(log, readable, max(youngest, newest)) if max(youngest, newest) >= 0 else None
    if found is None and newest > youngest:  # it is that of a batch that the cleaner has emptied
        for segment in sorted(whole, key=lambda segment: segment.max_timestamp, reverse=True):
            if segment.max_timestamp > youngest:
                youngest = max(youngest, youngest_in(segment, start, end))
        found = _first_reaching(log, readable, youngest) if youngest >= 0 else None
    return _listed(found, readable)
