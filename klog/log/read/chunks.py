"""Chunks: the whole batches of a range, copied, each with what a reader needs to decode its part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from klog import record as record_package
from klog.disk import AlignedBuffer
from klog.errors import CorruptBatch
from klog.log.read.aborted_transactions import aborted_in_part
from klog.log.read.isolation import Isolation, bound
from klog.log.read.read_policy import Payloads, SegmentReader
from klog.log.read.steady import resuming
from klog.log.state._log_core import LogCore
from klog.log.state.segments import locate, number_of
from klog.logger import logger_of
from klog.record import Record, RecordBatch
from klog.segment import AbortedTransaction
from klog.values import dataclass, replace

_log = logger_of("log")
CHUNK_BYTES = 1 << 20
Pair = tuple[bytes | None, bytes | None]
OnDamage = Callable[[CorruptBatch, int], object] | None


@dataclass(frozen=True, slots=True)
class FetchedChunk:
    """Whole batches as stored, and the requested part of them: records with start <= offset < stop.

    origin: topic and partition. path, file_position: where the bytes are stored. aborted: transactions whose records do
    not count.
    """

    buffer: AlignedBuffer | memoryview
    origin: tuple[str, int]
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
            origin=self.origin,
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

    def split(self) -> Iterator[FetchedChunk]:
        """The parts of the chunk that are one batch each. Raises CorruptBatch where a header is damaged."""
        whole = memoryview(self.buffer)
        for batch in record_package.decode(
            whole, path=self.path, file_position=self.file_position, verify_crc=False, lazy=True
        ):
            at = batch.position - self.file_position
            yield replace(
                self,
                buffer=whole[at : at + batch.size],
                file_position=batch.position,
                stop=min(self.stop, batch.next_offset),
            )
            if batch.next_offset >= self.stop:
                return


def _ranges(aborted: Sequence[AbortedTransaction]) -> tuple[tuple[int, int, int], ...]:
    """(producer id, first offset, last offset) of each, as klog.record takes them."""
    return tuple((entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted)


def chunks(
    log: LogCore, start: int, stop: int, isolation: Isolation, max_bytes: int, scan: bool, *, bounded: bool = True
) -> Iterator[FetchedChunk]:
    """Raw batches of [start, stop), chunk by chunk. See Log.chunks. bounded: and below the bound of the isolation."""
    limit = partial(bound, log, isolation) if bounded and isolation != "log_end" else None

    def read(offset: int, stop: int) -> Iterator[tuple[FetchedChunk, int]]:
        return _chunks(log, offset, stop, isolation, max_bytes, scan)

    return resuming(log, start, stop, read, _batches, limit)


def _batches(chunk: FetchedChunk) -> Iterator[RecordBatch]:
    return record_package.decode(chunk.buffer, verify_crc=False, lazy=True)


def _chunks(
    log: LogCore, offset: int, stop: int, isolation: Isolation, max_bytes: int, scan: bool
) -> Iterator[tuple[FetchedChunk, int]]:
    """Each chunk with the offset after it."""
    origin = log.topic, log.partition
    while offset < stop:
        drop_behind, segments = None, log.segments
        if scan and segments:
            guess = segments[number_of(segments, offset)]
            drop_behind = log.reading.drop_behind(log, guess)
        found = locate(segments, offset)
        if found is None:
            return
        segment, position = found
        if drop_behind is not None and segment is not guess:
            drop_behind.finish()
            drop_behind = log.reading.drop_behind(log, segment)
        if offset < segment.base_offset and offset < log.log_start_offset:
            return  # the next record was deleted; readers that are inside a deleted segment may continue
        located = position
        with SegmentReader(log, segment, scan, drop_behind) as reader:
            while offset < stop and position < segment.size:
                try:
                    chunk, next_offset = reader.chunk(position, max_bytes)
                except CorruptBatch as error:
                    if segment is segments[-1] or offset < segment.next_offset or error.offset is not None:
                        raise
                    # Bytes after the last record of a closed segment: nothing is missing, read the next segment.
                    _log.warning("event=trailing_bytes reason=%s", error)
                    break
                if position > located and (base := int.from_bytes(memoryview(chunk)[:8])) < offset:
                    raise CorruptBatch(
                        f"a batch begins at offset {base}, but the one before it reaches {offset - 1}: "
                        f"run `klog verify`",
                        path=segment.path,
                        position=position,
                        offset=base,
                        kind="offset_order",
                    )
                aborted: Sequence[AbortedTransaction] = ()
                if isolation == "read_committed":
                    part = segment, position, len(chunk)
                    aborted = aborted_in_part(log, segments, part, offset, next_offset)
                fetched = FetchedChunk(
                    chunk,
                    origin,
                    segment.path,
                    position,
                    offset,
                    min(stop, next_offset),
                    _ranges(aborted),
                    reader.payloads,
                )
                log.counters.read(len(chunk))
                yield fetched, next_offset
                position += len(chunk)
                offset = max(offset, next_offset)
