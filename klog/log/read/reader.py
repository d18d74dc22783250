"""Reading ranges of a log as records, batches, Arrow columns or raw bytes.

A reader copies chunks of about 1 MiB of whole batches into its own memory. So a file that changes does not affect it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from klog import record as record_package
from klog.arguments import LONG_MAX, whole
from klog.disk import AlignedBuffer
from klog.errors import CorruptBatch
from klog.log.read.fetch import Isolation
from klog.log.read.read_policy import Payloads
from klog.record import Record, RecordBatch
from klog.segment import AbortedTransaction

if TYPE_CHECKING:
    import pyarrow

    from klog.log.view import LogView

CHUNK_BYTES = 1 << 20
Pair = tuple[bytes | None, bytes | None]
OnDamage = Callable[[CorruptBatch, int], object] | None


@dataclass(frozen=True, slots=True)
class FetchedChunk:
    """Whole batches as stored, and the requested part of them: records with start <= offset < stop.

    path, file_position: where the bytes are stored. aborted: transactions whose records do not count.
    """

    buffer: AlignedBuffer
    path: str
    file_position: int
    start: int
    stop: int
    aborted: tuple[tuple[int, int, int], ...] = ()
    payloads: Payloads | None = None  # cache of decompressed records

    @property
    def request(self) -> dict[str, Any]:
        """The requested part, as the functions of klog.record take it."""
        return {
            "start": self.start,
            "stop": self.stop,
            "aborted": self.aborted,
            "path": self.path,
            "file_position": self.file_position,
            "payloads": self.payloads,
        }

    def records(self, *, include_control: bool = False, on_damage: OnDamage = None) -> Iterator[Record]:
        """The requested part as records."""
        return record_package.iter_records(
            self.buffer,
            include_control=include_control,
            on_damage=on_damage,
            **self.request,
        )

    def pairs(self, *, include_control: bool = False, on_damage: OnDamage = None) -> Iterator[Pair]:
        """The same records as (key, value)."""
        return record_package.pairs(
            self.buffer,
            include_control=include_control,
            on_damage=on_damage,
            **self.request,
        )


class LogReader:
    """A range of one or several logs, read lazily, any number of times. Any thread; one thread per iteration.

    Iterating returns Record, .pairs() (key, value), .batches() RecordBatch, .to_arrow() a pyarrow.Table. Any library
    that takes Arrow streams (polars, duckdb, pandas) takes the reader itself.
    """

    def __init__(
        self,
        parts: Sequence[tuple[LogView, int, int]],
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
            chunk.records(include_control=self._include_control, on_damage=log._note_next_offset)
            for log, chunk in self._chunks(CHUNK_BYTES)
        )

    def pairs(self) -> Iterator[Pair]:
        """Iterate (key, value) of the records, bytes or None each: the fastest way through them in Python.

        Raises what iterating records raises.
        """
        return chain.from_iterable(
            chunk.pairs(include_control=self._include_control, on_damage=log._note_next_offset)
            for log, chunk in self._chunks(CHUNK_BYTES)
        )

    @property
    def parts(self) -> tuple[tuple[LogView, int, int], ...]:
        """(log, start, stop) of each range, in reading order."""
        return self._parts

    def chunks(self, max_bytes: int = CHUNK_BYTES) -> Iterator[FetchedChunk]:
        """The raw bytes of the range, for columnar readers."""
        if type(max_bytes) is not int or not 0 < max_bytes <= LONG_MAX:
            max_bytes = whole("max_bytes", max_bytes, 1)
        for _, chunk in self._chunks(max_bytes):
            yield chunk

    def _chunks(self, max_bytes: int) -> Iterator[tuple[LogView, FetchedChunk]]:
        for log, start, stop in self._parts:
            for chunk in log.chunks(start, stop, self._isolation, max_bytes, scan=self._scan):
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
                log._note_next_offset(error, offset)
                raise

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
                log._note_next_offset(error, chunk.start)
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


def aborted_ranges(aborted: Sequence[AbortedTransaction]) -> tuple[tuple[int, int, int], ...]:
    """(producer id, first offset, last offset) of each, as klog.record takes them."""
    return tuple((entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted)
