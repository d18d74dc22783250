"""What a notebook shows of a log and of a reader: HTML, from a bounded number of reads.

An error, such as damage or a closed log, becomes a line of text: a notebook shows an object that is the last value of a
cell, so that the display must not fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from klog.errors import KlogError
from klog.log.read.chunks import chunks
from klog.log.read.isolation import Isolation
from klog.log.state._log_core import LogCore
from klog.record import Record
from klog.shown import first_few, heading, moment, note, plain, size, table

Part = tuple[LogCore, int, int]
RECORDS_MAX = 10
SEGMENTS_MAX = 10
PARTS_MAX = 16  # each costs a look into its index
READ_MAX = 1 << 20  # bytes; one batch more, if the first record is in a longer one
_CHUNK_BYTES = 64 << 10


def reader_html(title: str, parts: Sequence[Part], isolation: Isolation, include_control: bool) -> str:
    """Return the first records of a reader as a table, with the offset, time, key, value and headers of each."""
    found: list[tuple[str, Record]] = []
    notes = []
    try:
        for item in _first(parts, isolation, include_control):
            if len(found) == RECORDS_MAX:
                notes.append("... and more records")
                break
            found.append(item)
    except (KlogError, OSError) as error:
        notes.append(f"{type(error).__name__}: {error}")
    except _StoppedEarly as stopped:
        notes.append(str(stopped))
    if not found and not notes:
        notes.append("no records")
    heads = ("partition", "offset", "time", "key", "value", "headers")
    rows = [
        (
            name,
            record.offset,
            moment(record.timestamp),
            plain(record.key),
            f"[{record.control_type}]" if record.is_control else plain(record.value),
            _headers(record),
        )
        for name, record in found
    ]
    return heading(title) + (table(heads, rows) if rows else "") + "".join(map(note, notes))


def _headers(record: Record) -> str:
    pairs = [f"{plain(name.encode(errors='surrogateescape'))}: {plain(value)}" for name, value in record.headers]
    return first_few(pairs, str)


class _StoppedEarly(Exception):
    """The limit of what a preview reads was reached before the records were found."""


def _first(parts: Iterable[Part], isolation: Isolation, include_control: bool) -> Iterator[tuple[str, Record]]:
    """The records of several ranges, each with the name of its partition. Raises _StoppedEarly."""
    read = 0
    for number, (log, start, stop) in enumerate(part for part in parts if part[1] < part[2]):
        if number == PARTS_MAX:
            raise _StoppedEarly(f"... records of the first {PARTS_MAX} partitions; iterate the reader for more")
        for chunk in chunks(log, start, stop, isolation, _CHUNK_BYTES, False):
            for record in chunk.records(include_control=include_control):
                yield log.name, record
            read += len(chunk.buffer)
            if read >= READ_MAX:
                raise _StoppedEarly(f"... records of the first {size(read)}; iterate the reader for more")


def log_html(log: LogCore) -> str:
    """Return the offsets, size and time span of a partition, and its newest segments, as tables."""
    title = repr(log)
    try:
        log.check_open()
        return heading(title) + _summary(log.now) + _segments(log.now)
    except (KlogError, OSError) as error:
        return heading(title) + note(f"{type(error).__name__}: {error}")


def _summary(log: LogCore) -> str:
    newest = max((segment.max_timestamp for segment in log.segments[-SEGMENTS_MAX:]), default=-1)
    rows: list[tuple[str, object]] = [
        ("path", log.path),
        ("log start offset", log.log_start_offset),
        ("high watermark", log.high_watermark),
        ("log end offset", log.log_end_offset),
        ("size", size(log.size)),
        ("segments", len(log.segments)),
        ("first record", _first_time(log)),
        ("newest record", moment(newest)),
        ("cleanup.policy", ",".join(log.config.cleanup_policy)),
    ]
    if log.health.offline:
        rows.append(("offline", log.health.offline))
    if log.recovery.reason:
        rows.append(("recovery", log.recovery.reason))
    return table(("", ""), rows)


def _first_time(log: LogCore) -> str | None:
    """Return the time of the first record, or the error of reading it."""
    try:
        first = next(_first([(log, log.log_start_offset, log.log_end_offset)], "log_end", True), None)
    except (KlogError, OSError, _StoppedEarly) as error:
        return str(error)
    return None if first is None else moment(first[1].timestamp)


def _segments(log: LogCore) -> str:
    shown = log.segments[-SEGMENTS_MAX:]
    rows = [
        (segment.base_offset, segment.next_offset, size(segment.size), moment(segment.max_timestamp))
        for segment in reversed(shown)
    ]
    older = len(log.segments) - len(shown)
    return table(("base offset", "next offset", "size", "newest record"), rows) + (
        note(f"... and {older:,} older segments") if older else ""
    )
