"""Reading ranges of a log as records, batches, Arrow columns or raw bytes.

A reader copies chunks of about 1 MiB of whole batches into its own memory. So a file that changes does not affect it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from klog import record as record_package
from klog.arguments import LONG_MAX, whole
from klog.errors import CorruptBatch
from klog.log.read.chunks import CHUNK_BYTES, FetchedChunk, Pair, chunks
from klog.log.read.headers import BatchHeaders
from klog.log.read.isolation import Isolation
from klog.log.read.steady import note_next_offset
from klog.log.state._log_core import LogCore
from klog.record import Record, RecordBatch
from klog.segment import HeaderFields

if TYPE_CHECKING:
    import polars
    import pyarrow


class LogReader:
    """A range of one or several logs, read lazily, any number of times. Any thread; one thread per iteration.

    Iterating returns Record, .pairs() (key, value), .batches() RecordBatch, .to_arrow() a pyarrow.Table,
    .to_polars() a polars.DataFrame. Any library that takes Arrow streams (duckdb, pandas) takes the reader itself.
    """

    def __init__(
        self,
        parts: Sequence[tuple[LogCore, int, int]],
        isolation: Isolation,
        include_control: bool,
        scan: bool = False,
    ) -> None:
        self._parts = tuple(parts)
        self._isolation = isolation
        self._include_control = include_control
        self._scan = scan

    def __repr__(self) -> str:
        parts = ", ".join(f"{log.name}[{start}:{stop}]" for log, start, stop in self._parts)
        return f"<LogReader {parts} {self._isolation}>"

    def __iter__(self) -> Iterator[Record]:
        # No Python frame for each record: chain goes from the iterator of one chunk to that of the next in C.
        return chain.from_iterable(
            chunk.records(include_control=self._include_control, on_damage=partial(note_next_offset, log))
            for log, chunk in self._chunks(CHUNK_BYTES)
        )

    def pairs(self) -> Iterator[Pair]:
        """Iterate (key, value) of the records, bytes or None each: the fastest way through them in Python.

        Raises what iterating records raises.
        """
        return chain.from_iterable(
            chunk.pairs(include_control=self._include_control, on_damage=partial(note_next_offset, log))
            for log, chunk in self._chunks(CHUNK_BYTES)
        )

    def between(self, low: int, high: int) -> LogReader:
        """A reader of the part of each range that has offsets in [low, high)."""
        low, high = whole("low", low), whole("high", high)
        parts = [(log, max(start, low), max(start, low, min(stop, high))) for log, start, stop in self._parts]
        return LogReader(parts, self._isolation, self._include_control, self._scan)

    def chunks(self, max_bytes: int = CHUNK_BYTES) -> Iterator[FetchedChunk]:
        """The raw bytes of the range, for columnar readers."""
        if type(max_bytes) is not int or not 0 < max_bytes <= LONG_MAX:
            max_bytes = whole("max_bytes", max_bytes, 1)
        for _, chunk in self._chunks(max_bytes):
            yield chunk

    def _chunks(self, max_bytes: int) -> Iterator[tuple[LogCore, FetchedChunk]]:
        for log, start, stop in self._parts:
            for chunk in chunks(log, start, stop, self._isolation, max_bytes, self._scan):
                yield log, chunk

    def batches(self) -> Iterator[RecordBatch]:
        """Record batches that overlap the range; the first and last may reach beyond it."""
        for log, chunk in self._chunks(CHUNK_BYTES):
            offset = chunk.start
            try:
                for batch in record_package.decode(
                    chunk.buffer,
                    path=chunk.path,
                    file_position=chunk.file_position,
                    payloads=chunk.payloads,
                ):
                    if batch.last_offset >= chunk.start and batch.base_offset < chunk.stop:
                        offset = batch.next_offset
                        yield batch
            except CorruptBatch as error:
                note_next_offset(log, error, offset)
                raise

    def batch_headers(self, fields: Sequence[str] | None = None) -> BatchHeaders:
        """The batches that overlap the range as Arrow columns, from their headers alone: exact counts, bytes, codecs
        and times of a log without reading its records. Control batches are included, is_control marks them.

        fields: names of columns in order, by default all: position, size, base_offset, last_offset, count,
        base_timestamp, max_timestamp, timestamp_type, compression, leader_epoch, producer_id, producer_epoch,
        base_sequence, is_transactional, is_control, delete_horizon, magic, segment_base_offset.

        count: the batch's records in the range. Only a batch that crosses a bound of the range, and a wrapper of magic
        0 or 1, is read and opened for that. Checksums of other batches are not verified. Raises CorruptBatch while it
        is read, ValueError.
        """
        return BatchHeaders(self._parts, HeaderFields(fields))

    def columns(self, fields: Sequence[str] | None = None, *, views: bool = False) -> Iterator[record_package.Columns]:
        """The range as Arrow arrays, one non-empty set per chunk.

        views: keys and values point into the chunk instead of being copied. The chunk lives as long as they do.
        """
        for _, columns in self.columns_of_chunks(fields, views=views):
            yield columns

    def columns_of_chunks(
        self, fields: Sequence[str] | None = None, *, views: bool = False
    ) -> Iterator[tuple[FetchedChunk, record_package.Columns]]:
        """The range as pairs (chunk, its Arrow arrays). views: as in columns()."""
        for log, chunk in self._chunks(CHUNK_BYTES):
            damage, whole = None, memoryview(chunk.buffer)
            try:
                columns = self._columns_of(chunk, whole, fields, views)
            except CorruptBatch as error:
                damage = error
                note_next_offset(log, error, chunk.start)
                if error.position is None or error.next_offset is None:
                    raise
                columns = self._columns_of(chunk, whole[: error.position - chunk.file_position], fields, views)
            if columns.num_rows:
                yield chunk, columns
            if damage is not None:
                raise damage

    def _columns_of(
        self, chunk: FetchedChunk, buffer: memoryview, fields: Sequence[str] | None, views: bool
    ) -> record_package.Columns:
        return record_package.columns(
            buffer,
            include_control=self._include_control,
            fields=fields,
            views=views,
            **chunk.request,
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return record_package.ArrowStream(self.columns()).__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pyarrow.Table:
        """The range as one pyarrow.Table. Needs pyarrow: pip install 'klog[arrow]'."""
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError("to_arrow() needs pyarrow: pip install 'klog[arrow]'") from error
        return pyarrow.table(self)

    def to_polars(self) -> polars.DataFrame:
        """The range as one polars.DataFrame. Needs polars: pip install 'klog[polars]'.

        klog.polars.scan reads a topic lazily, in bounded memory, and only what a query needs.
        """
        try:
            import polars
        except ImportError as error:
            raise ImportError("to_polars() needs polars: pip install 'klog[polars]'", name="polars") from error
        stream = record_package.ArrowStream(self.columns())
        try:
            return polars.DataFrame(stream)
        except Exception:
            if stream.error is not None:
                raise stream.error from None  # polars raises its own error, with the text alone
            raise


def in_turn(readers: Iterable[LogReader], isolation: Isolation, include_control: bool) -> LogReader:
    """A reader of the ranges of several readers, one after the other."""
    return LogReader([part for reader in readers for part in reader._parts], isolation, include_control)
