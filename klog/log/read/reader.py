"""Reading ranges of a log as records, batches, Arrow columns or raw bytes.

A reader copies chunks of about 1 MiB of whole batches into its own memory. So a file that changes does not affect it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from klog import record as record_package
from klog.arguments import LONG_MAX, whole
from klog.errors import CorruptBatch
from klog.log.read import tables
from klog.log.read.chunks import CHUNK_BYTES, FetchedChunk, Pair, chunks
from klog.log.read.headers import BatchHeaders, ranges
from klog.log.read.isolation import Isolation
from klog.log.read.optional_decoding import stream_of
from klog.log.read.preview import reader_html
from klog.log.read.steady import note_next_offset
from klog.log.state._log_core import LogCore
from klog.record import Record, RecordBatch
from klog.segment import HeaderFields

if TYPE_CHECKING:
    from klog.log.read.decoding import Decoded, Decoding


class LogReader(tables.Tabular):
    """A range of one or several logs, read lazily, any number of times. Any thread; one thread per iteration. Of
    read-only logs it can be sent to another process (pickle), which opens them by their paths.

    Iterating returns Record, .pairs() (key, value), .batches() RecordBatch, .to_arrow() a pyarrow.Table,
    .to_pandas() and .to_polars() a DataFrame; .to_parquet() writes a file. Any library that takes Arrow streams, such
    as duckdb, takes the reader itself. With read(decode=...) the key and value columns of all these are decoded, and
    .decoded() iterates Python objects; records, pairs, batches and columns() stay as they are stored.

    Arrow has the columns that read(columns=...) has named; by default offset, timestamp, timestamp_type, key, value and
    headers, and of a range of several partitions also topic and partition.
    """

    def __init__(
        self,
        parts: Sequence[tuple[LogCore, int, int]],
        isolation: Isolation,
        include_control: bool,
        scan: bool = False,
        columns: tuple[str, ...] | None = None,
        decoding: Decoding | None = None,
    ) -> None:
        self._parts = tuple(parts)
        self._isolation = isolation
        self._include_control = include_control
        self._scan = scan
        self._fields = columns or fields_of(len(self._parts))
        self._decoding = decoding
        self._begun: Iterator[Record] | None = None

    def __repr__(self) -> str:
        return f"<LogReader {ranges(self._parts)} {self._isolation}>"

    def _repr_html_(self) -> str:
        return reader_html(repr(self), self._parts, self._isolation, self._include_control)

    @property
    def ranges(self) -> list[tuple[str, int, int]]:
        """[(topic-partition, first offset, offset after the last), ...] in the order of reading."""
        return [(log.name, start, stop) for log, start, stop in self._parts]

    def __iter__(self) -> Iterator[Record]:
        # No Python frame for each record: chain goes from the iterator of one chunk to that of the next in C.
        return chain.from_iterable(
            chunk.records(include_control=self._include_control, on_damage=partial(note_next_offset, log))
            for log, chunk in self._chunks(CHUNK_BYTES)
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_begun": None}

    def __next__(self) -> Record:
        """The next record of an iteration that the first call begins; `for` begins a new one."""
        if self._begun is None:
            self._begun = iter(self)
        return next(self._begun)

    def pairs(self) -> Iterator[Pair]:
        """Iterate (key, value) of the records, bytes or None each: the fastest way through them in Python.

        Raises what iterating records raises.
        """
        return chain.from_iterable(
            chunk.pairs(include_control=self._include_control, on_damage=partial(note_next_offset, log))
            for log, chunk in self._chunks(CHUNK_BYTES)
        )

    def decoded(self) -> Iterator[Decoded]:
        """Iterate tuples (record, key, value): the record as it is stored, and its key and value by the formats of
        read(decode=...), as str, dict and other Python objects; those without a format as in the record.

        Raises BadValue for a key or value of another format, unless on_bad or dead_letter was given; what iterating
        records raises; ValueError without decode.
        """
        if self._decoding is None:
            raise ValueError("decoded() needs formats: read(decode=...)")
        from klog.log.read.decoding import decoded_records  # klog.decode takes time to import

        return decoded_records(((part._parts[0][0].partition, part) for part in self._single_parts()), self._decoding)

    def _single_parts(self) -> Iterator[LogReader]:
        """A reader of each part."""
        for part in self._parts:
            yield LogReader([part], self._isolation, self._include_control, self._scan)

    def between(self, low: int, high: int) -> LogReader:
        """A reader of the part of each range that has offsets in [low, high)."""
        low, high = whole("low", low), whole("high", high)
        parts = [(log, max(start, low), max(start, low, min(stop, high))) for log, start, stop in self._parts]
        return LogReader(
            parts,
            self._isolation,
            self._include_control,
            self._scan,
            columns=self._fields,
            decoding=self._decoding,
        )

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
                    origin=chunk.origin,
                ):
                    if batch.last_offset >= chunk.start and batch.base_offset < chunk.stop:
                        offset = batch.next_offset
                        yield batch
                    if batch.next_offset >= chunk.stop:
                        break  # damage after the range is not reported
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
        """The range as Arrow arrays, one non-empty set per chunk; per batch where a chunk has 2 GiB of keys or values
        after decompression.

        fields: names of columns in order, also leader_epoch, topic and partition; by default those of the reader.
        views: keys and values point into the chunk instead of being copied. The chunk lives as long as they do.
        """
        for _, columns in self.columns_of_chunks(fields, views=views):
            yield columns

    def columns_of_chunks(
        self, fields: Sequence[str] | None = None, *, views: bool = False
    ) -> Iterator[tuple[FetchedChunk, record_package.Columns]]:
        """The range as pairs (chunk, its Arrow arrays). Arguments: as in columns()."""
        fields = self._fields if fields is None else fields
        for log, chunk in self._chunks(CHUNK_BYTES):
            damage, whole = None, memoryview(chunk.buffer)
            try:
                columns = self._columns_of(chunk, whole, fields, views)
            except OverflowError:
                yield from self._columns_of_batches(log, chunk, fields, views)
                continue
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

    def _columns_of_batches(
        self, log: LogCore, chunk: FetchedChunk, fields: Sequence[str], views: bool
    ) -> Iterator[tuple[FetchedChunk, record_package.Columns]]:
        """The batches of a chunk as pairs (part of the chunk, its Arrow arrays)."""
        try:
            for part in chunk.split():
                columns = self._columns_of(part, memoryview(part.buffer), fields, views)
                if columns.num_rows:
                    yield part, columns
        except CorruptBatch as error:
            note_next_offset(log, error, chunk.start)
            raise

    def _columns_of(
        self, chunk: FetchedChunk, buffer: memoryview, fields: Sequence[str], views: bool
    ) -> record_package.Columns:
        return record_package.columns(
            buffer,
            include_control=self._include_control,
            fields=fields,
            views=views,
            origin=chunk.origin,
            **chunk.request,
        )

    def arrow_stream(self, fields: Sequence[str] | None = None) -> tables.Stream:
        """The range as an Arrow stream of some columns, by default all, with keys and values decoded if there are
        formats. Its attribute `error` is the exception that it failed with, of which consumers get the text alone."""
        return stream_of(self._columns_of_partitions, self._decoding, self._fields if fields is None else fields)

    def _columns_of_partitions(self, fields: Sequence[str]) -> Iterator[tuple[int, record_package.Columns]]:
        for part in self._single_parts():
            for columns in part.columns(fields):
                yield part._parts[0][0].partition, columns

    def _stream(self) -> tables.Stream:
        return self.arrow_stream()


def fields_of(partitions: int) -> tuple[str, ...]:
    """The columns of a range of this many partitions, unless others are requested."""
    return record_package.FIELDS if partitions == 1 else record_package.FIELDS + record_package.ORIGIN_FIELDS


def in_turn(
    readers: Iterable[LogReader],
    isolation: Isolation,
    include_control: bool,
    columns: tuple[str, ...] | None,
    decoding: Decoding | None,
) -> LogReader:
    """A reader of the ranges of several readers, one after the other."""
    parts = [part for reader in readers for part in reader._parts]
    return LogReader(parts, isolation, include_control, columns=columns, decoding=decoding)
