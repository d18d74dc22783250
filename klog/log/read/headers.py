"""The batches of a range as Arrow columns, from their headers alone: payloads are neither read nor decompressed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from klog.errors import CorruptBatch
from klog.log.read.steady import resuming
from klog.log.read.tables import table
from klog.log.state._log_core import LogCore
from klog.log.state.segments import locate
from klog.logger import logger_of
from klog.record import ArrowStream
from klog.segment import Header, HeaderColumns, HeaderFields, Segment, read_headers
from klog.shown import first_few

if TYPE_CHECKING:
    import pyarrow

_log = logger_of("log")


def ranges(parts: Sequence[tuple[LogCore, int, int]]) -> str:
    """Return the first ranges as text, and how many there are."""
    return first_few(parts, lambda part: f"{part[0].name}[{part[1]}:{part[2]}]")


class BatchHeaders:
    """The headers of the batches of a range, read lazily, any number of times. Any thread; one thread per iteration.

    Iterating returns Arrow arrays, at most 65,536 batches of one segment each; to_arrow() a pyarrow.Table. Any library
    that takes Arrow streams (polars, duckdb, pandas) takes the object itself. fields: the names of the columns.
    """

    def __init__(self, parts: Sequence[tuple[LogCore, int, int]], fields: HeaderFields) -> None:
        self._parts = tuple(parts)
        self._fields = fields

    def __repr__(self) -> str:
        return f"<BatchHeaders {ranges(self._parts)} of {', '.join(self.fields)}>"

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self._fields.names

    def __iter__(self) -> Iterator[HeaderColumns]:
        for log, start, stop in self._parts:
            for columns in resuming(log, start, stop, _reader(log, self._fields), _batches):
                if columns.num_rows:
                    yield columns

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ArrowStream(self, self._fields).__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pyarrow.Table:
        """The headers as one pyarrow.Table. Needs pyarrow: pip install 'klog[arrow]'."""
        return table(ArrowStream(self, self._fields))


def _reader(log: LogCore, fields: HeaderFields) -> Callable[[int, int], Iterator[tuple[HeaderColumns, int]]]:
    return lambda offset, stop: _headers(log, offset, stop, fields)


def _batches(columns: HeaderColumns) -> list[Header]:
    return [] if columns.last is None else [columns.last]


def _headers(log: LogCore, offset: int, stop: int, fields: HeaderFields) -> Iterator[tuple[HeaderColumns, int]]:
    """The columns from an offset on, each with the offset after it."""
    while offset < stop:
        segments = log.segments
        found = locate(segments, offset)
        if found is None:
            return
        segment, position = found
        if offset < segment.base_offset and offset < log.log_start_offset:
            return  # the next batch was deleted
        for columns in _of_segment(segment, position, offset, stop, fields):
            yield columns, columns.next_offset
            offset = max(offset, columns.next_offset)
            if columns.reason:
                if columns.next_offset < stop:
                    _check_end(segment, columns, segment is segments[-1])
                break


def _of_segment(
    segment: Segment, position: int, offset: int, stop: int, fields: HeaderFields
) -> Iterator[HeaderColumns]:
    expected = segment.base_offset if position == 0 else -1
    while offset < stop and position < (size := segment.size):
        columns = read_headers(
            segment.file,
            position,
            size,
            offset,
            stop,
            fields,
            base_offset=expected,
            limit=segment.next_offset,
            segment_base_offset=segment.base_offset,
        )
        yield columns
        position, expected = columns.end, columns.next_offset
        offset = max(offset, columns.next_offset)


def _check_end(segment: Segment, columns: HeaderColumns, last: bool) -> None:
    """Raise CorruptBatch, unless only bytes after the last record of a closed segment are not a batch: nothing is
    missing, as for readers of records."""
    error = CorruptBatch(
        "no valid batch begins here: run `klog verify` on the directory",
        path=segment.path,
        position=columns.end,
        offset=columns.next_offset,
    )
    if last or columns.next_offset < segment.next_offset:
        raise error
    _log.warning("event=trailing_bytes reason=%s", error)
