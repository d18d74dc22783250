"""Reads a bin of ranges as Arrow batches, in a task. Keeps nothing between tasks, and holds only ranges (B1, S2).

A range was planned against the directory as it was; the task checks it again before it reads.

  T1  A retry reads the same offsets: the bounds are those of the plan, whatever the writer and its checkpoints did
      since. A cleaner may have removed records between them.
  T2  If planned offsets are gone (by retention, a truncation, a topic created again), it raises DataLoss and never
      returns fewer rows; with failOnDataLoss=false it reads what is left, with a warning that says what is missing. A
      partition that has moved to another log.dir of the query is read there.
  T3  A batch that cannot be read raises CorruptBatch; with onCorrupt=skipBatch it is left out, with a warning; with
      onCorrupt=emit a row in its place has crcValid=false. A disk that cannot be read is an error always.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from klog import record
from klog.disk import is_directory
from klog.errors import CorruptBatch, LogTruncated, OffsetOutOfRange, UnknownTopicOrPartition
from klog.logger import logger_of
from klog.spark.bounds import DataLoss
from klog.spark.decoded import RowDecoder
from klog.spark.metadata import Origin, has_valid_checksum
from klog.spark.opening import moved_to, open_partition, open_since
from klog.spark.plan import Range
from klog.spark.pushdown import Pushed
from klog.spark.reading import Reading
from klog.spark.rows import RowShaper, pieces
from klog.values import NamedTuple, dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa

    from klog import Log
    from klog.log import FetchedChunk

__all__ = ["DataLoss", "Present", "check_present", "present_part", "read_ranges"]
logger = logger_of("spark")


@dataclass(slots=True)
class _Counts:
    """What a task has read."""

    rows: int = 0
    stored_bytes: int = 0
    arrow_bytes: int = 0
    skipped_batches: int = 0
    corrupt_batches: int = 0
    lost_offsets: int = 0


def read_ranges(
    ranges: Sequence[Range], schema: pa.Schema, reading: Reading | None = None, pushed: Pushed | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of `schema` for the ranges, one after the other, in offset order inside each topic-partition."""
    reading, pushed = reading or Reading(), pushed or Pushed()
    counts, before = _Counts(), _cpu_seconds()
    try:
        for wanted in ranges:
            for batch in _RangeReader(wanted, schema, reading, pushed, counts).batches():
                left = None if pushed.limit is None else pushed.limit - counts.rows
                if left is not None and left < batch.num_rows:
                    batch = batch.slice(0, left)
                counts.rows += batch.num_rows
                yield batch
                if counts.rows == pushed.limit:
                    return
    finally:
        logger.log(
            logging.WARNING if reading.metrics else logging.INFO,
            "event=task_read ranges=%d rows=%d stored_bytes=%d arrow_bytes=%d skipped_batches=%d corrupt_batches=%d "
            "lost_offsets=%d cpu_ms=%d",
            len(ranges),
            counts.rows,
            counts.stored_bytes,
            counts.arrow_bytes,
            counts.skipped_batches,
            counts.corrupt_batches,
            counts.lost_offsets,
            (_cpu_seconds() - before) * 1000,
        )


def _cpu_seconds() -> float:
    return sum(os.times()[:2])


class _RangeReader:
    """Reads one range. For one iteration."""

    def __init__(self, wanted: Range, schema: pa.Schema, reading: Reading, pushed: Pushed, counts: _Counts) -> None:
        self._wanted = wanted
        self._decoder = RowDecoder(schema, reading.decoders, reading.null_bad_values, wanted.topic, wanted.partition)
        self._shaper = RowShaper(self._decoder.stored, wanted.topic, wanted.partition)
        self._reading = reading
        self._pushed = pushed
        self._counts = counts
        self._at = wanted.start_offset  # what was read so far ends here
        self._stop = wanted.end_offset
        self._after_damage: int | None = None  # by the header of the batch that could not be read

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the range, in batches of limited size."""
        path = self._wanted.path
        try:
            with open_partition(path, self._reading.on_corrupt) as log:
                self._look(log)
                while self._at < self._stop:
                    try:
                        yield from self._read_on(log)
                        return
                    except CorruptBatch as error:
                        yield from self._pass(log, error)
        except (UnknownTopicOrPartition, FileNotFoundError) as error:
            if is_directory(path):
                raise
            moved = moved_to(path, self._reading.log_dirs)
            if moved is not None:
                self._wanted = replace(self._wanted, path=moved)
                yield from self.batches()
                return
            gone = (
                f"{path} is gone: the topic was deleted, or moved to a log.dir not in the paths, since the query was "
                f"planned; run it again"
            )
            self._lose(Present(self._stop, self._stop, gone), error)

    def _look(self, log: Log) -> None:
        """Check that the log still has what is left of the range (T2)."""
        wanted = replace(self._wanted, start_offset=self._at, end_offset=self._stop)
        present = present_part(wanted, log, committed=self._reading.committed)
        if present.problem:
            self._lose(present)

    def _lose(self, present: Present, cause: Exception | None = None) -> None:
        """Go on with what is present, unless data loss is an error."""
        wanted = self._wanted
        loss = _loss(wanted, present)
        if self._reading.fail_on_data_loss:
            raise loss from cause
        before = max(self._stop - self._at, 0)
        self._at, self._stop = max(self._at, present.start), min(self._stop, present.stop)
        lost = before - max(self._stop - self._at, 0)
        self._counts.lost_offsets += lost
        logger.warning(
            "event=data_loss lost_offsets=%d continues=[%d,%d) reason=%r", lost, self._at, self._stop, str(loss)
        )

    # ---- chunks ------------------------------------------------------------------------------------------------------

    def _read_on(self, log: Log) -> Iterator[pa.RecordBatch]:
        # Bounds were decided on the driver, and a checkpoint may have moved since: of the isolation only the choice of
        # the records is left to this call.
        isolation: Literal["read_committed", "log_end"] = "read_committed" if self._reading.committed else "log_end"
        try:
            for chunk in log.chunks(self._at, self._stop, isolation, scan=True):
                if _is_another_topic(self._wanted, log):  # since the last chunk, or while this one was read
                    self._look(log)
                    return
                self._counts.stored_bytes += len(chunk.buffer)
                yield from self._rows_of(chunk)
                self._at = max(self._at, chunk.stop)
            if log.log_end_offset < self._stop:  # truncated where this reader was
                self._look(log)
        except (OffsetOutOfRange, UnknownTopicOrPartition) as error:  # deleted, truncated or created again meanwhile
            before = self._at, self._stop
            self._look(log)
            if before == (self._at, self._stop):
                if not isinstance(error, LogTruncated):
                    raise
                self._lose(Present(self._at, self._stop, str(error)), error)
            yield from self._read_on(log)

    def _rows_of(self, chunk: FetchedChunk) -> Iterator[pa.RecordBatch]:
        whole = memoryview(chunk.buffer)
        for start, end in self._kept(chunk, whole) if self._pushed.by_time else [(0, len(whole))]:
            yield from self._decoded(chunk, whole, start, end)

    def _kept(self, chunk: FetchedChunk, whole: memoryview) -> list[tuple[int, int]]:
        """Return the parts of a chunk whose batches may match by their time."""
        kept: list[tuple[int, int]] = []
        passed = 0
        try:
            for batch in _headers(chunk, whole, 0):
                start, passed = passed, passed + batch.size
                # A time can be trusted only if the checksum that covers it is right, also with verifyCrc=false.
                if not self._pushed.may_match(batch) and has_valid_checksum(batch):
                    self._counts.skipped_batches += 1
                elif kept and kept[-1][1] == start:
                    kept[-1] = kept[-1][0], passed
                else:
                    kept.append((start, passed))
        except CorruptBatch:
            kept.append((passed, len(whole)))  # raised again when it is decoded, after the rows before it
        return kept

    def _decoded(self, chunk: FetchedChunk, whole: memoryview, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of the batches in chunk[start:end]."""
        request = {**chunk.request, "file_position": chunk.file_position + start, "start": max(chunk.start, self._at)}
        try:
            columns = record.columns(
                whole[start:end],
                include_control=self._reading.include_control,
                verify_crc=self._reading.verify_crc,
                **self._shaper.request,
                **request,
            )
        except CorruptBatch as error:
            if error.position is None:
                raise
            sound = error.position - chunk.file_position
            if sound > start:
                yield from self._decoded(chunk, whole, start, sound)
            with suppress(CorruptBatch):
                self._after_damage = next(_headers(chunk, whole[sound:end], sound)).next_offset
            raise
        except OverflowError:  # 2 GiB of keys or values after decompression: batch by batch
            batches = list(_headers(chunk, whole[start:end], start))
            if len(batches) < 2:
                raise
            for batch in batches:
                at = batch.position - chunk.file_position
                yield from self._decoded(chunk, whole, at, at + batch.size)
            return
        if columns.num_rows:
            self._counts.arrow_bytes += columns.nbytes
            headers: list[record.RecordBatch] = []
            origin = None
            if self._shaper.needs_batches:
                with suppress(CorruptBatch):  # after the last of these rows
                    for batch_header in _headers(chunk, whole[start:end], start):
                        headers.append(batch_header)
                origin = Origin(chunk.path, self._reading.verify_crc)
            batch = self._shaper.batch(columns, headers, origin)
            size = batch.nbytes if headers else columns.nbytes  # columns of METADATA are not among `columns`
            for piece in pieces(batch, size):
                yield from self._decoder.batches(piece)
        self._at = max(self._at, self._end_of(chunk, whole, start, end))

    def _end_of(self, chunk: FetchedChunk, whole: memoryview, start: int, end: int) -> int:
        """Return the offset after the batches in chunk[start:end], if they are a part of the chunk."""
        if end == len(whole):
            return chunk.stop
        return max((batch.next_offset for batch in _headers(chunk, whole[start:end], start)), default=0)

    # ---- corrupt batches ---------------------------------------------------------------------------------------------

    def _pass(self, log: Log, error: CorruptBatch) -> Iterator[pa.RecordBatch]:
        """Go on after a batch that cannot be read (T3)."""
        if self._reading.on_corrupt == "fail":
            error.add_note("onCorrupt=skipBatch leaves such batches out, onCorrupt=emit returns a row for each")
            raise error
        next_offset = error.next_offset or _next_sound_offset(log, self._at, error)
        if next_offset is None or next_offset <= self._at:
            raise error
        # The header may be wrong, too; but one batch at a time, each is counted, wherever a task begins.
        if self._after_damage is not None and self._at < self._after_damage < next_offset:
            next_offset = self._after_damage
        self._after_damage = None
        logger.warning(
            "event=corrupt_batch partition=%s offsets=[%d,%d) reason=%r",
            self._wanted.pair,
            self._at,
            next_offset,
            str(error),
        )
        self._counts.corrupt_batches += 1
        # A corrupt batch in which one batch of a stream ends and the next one begins has its row in the last of them.
        if self._reading.on_corrupt == "emit" and not (self._reading.in_stream and next_offset > self._stop):
            known = error.offset is not None and self._at <= error.offset < min(next_offset, self._stop)
            offset = error.offset if known and error.offset is not None else self._at
            row = self._shaper.corrupt_row(offset, error.position, os.path.basename(error.path or ""))
            yield from self._decoder.batches(row)
        self._at = next_offset


def _headers(chunk: FetchedChunk, part: memoryview, start: int) -> Iterator[record.RecordBatch]:
    """The batches of a part of a chunk that begins at byte `start`, unchecked: only their headers are read."""
    return record.decode(part, path=chunk.path, file_position=chunk.file_position + start, verify_crc=False, lazy=True)


def _next_sound_offset(log: Log, offset: int, error: CorruptBatch) -> int | None:
    """Return the offset where a reader of the log can go on after the damage that begins at `offset`."""
    try:
        for _ in log.read(offset, isolation="log_end").columns(("offset",)):
            pass
    except CorruptBatch as found:
        return found.next_offset if found.position == error.position else None
    return None


# ---- is it still there? ----------------------------------------------------------------------------------------------


class Present(NamedTuple):
    """The part of a range that a log still has: offsets [start, stop), and why it is not all; "" if it is."""

    start: int
    stop: int
    problem: str


def check_present(wanted: Range, log: Log) -> None:
    """Raise DataLoss unless a log still has a whole planned range (T2)."""
    present = present_part(wanted, log)
    if present.problem:
        raise _loss(wanted, present)


def _loss(wanted: Range, present: Present) -> DataLoss:
    return DataLoss(
        f"{wanted.pair}: planned to read [{wanted.start_offset}, {wanted.end_offset}), but {present.problem}"
    )


def _is_another_topic(wanted: Range, log: Log) -> bool:
    """Was the topic deleted and created again since the plan?"""
    found = log.topic_id
    return wanted.topic_id is not None and found is not None and str(found) != wanted.topic_id


def present_part(wanted: Range, log: Log, *, committed: bool = False) -> Present:
    """Compare a planned range with the log as it is. committed: of a plan that ends where no transaction is open."""
    start, stop = wanted.start_offset, wanted.end_offset
    first, end = log.log_start_offset, log.log_end_offset
    present = f"{wanted.path} now holds [{first}, {end})"
    if _is_another_topic(wanted, log):
        return Present(stop, stop, (
            f"{wanted.path} now holds the topic with id {log.topic_id}, not {wanted.topic_id}: the topic was deleted "
            f"and created again since the query was planned; run it again"
        ))  # fmt: skip
    if start < first:
        return Present(first, min(stop, end), (
            f"{present}: retention or a delete has removed the beginning since the query was planned; run it again, or "
            f"keep more with retention.ms and retention.bytes"
        ))  # fmt: skip
    if wanted.leader_epoch is not None:
        epoch, epoch_end = log.end_offset_for(wanted.leader_epoch)
        if 0 <= epoch_end < min(stop, end):
            return Present(start, epoch_end, (
                f"{present}, and its leader epoch {epoch} ends at {epoch_end}, before the planned end: the log was "
                f"truncated since the query was planned, and a later leader has written other records; run it again"
            ))  # fmt: skip
    if stop > end:
        why = "the log was truncated, or the topic deleted and created again, since the query was planned"
        if log.recovery.details:
            why = f"damage was found in it ({log.recovery.reason})"
        return Present(start, end, f"{present}: {why}; check the directory with `klog verify`")
    first_open = open_since(log) if committed else None
    if first_open is not None and first_open < stop:
        return Present(start, max(start, first_open), (
            f"a transaction is open there from offset {first_open} on: the log was truncated since the query was "
            f"planned; run it again"
        ))  # fmt: skip
    return Present(start, stop, "")
