"""Writes the Parquet files of a materialized table, in tasks. Knows pyarrow, neither Spark nor the manifest.

  write_piece    offsets [start, end) of one partition → files in offset order, the first with the rows of the file
                 that it replaces
  Keyed          rows → the same rows with their bucket, without those that have no key
  merge_bucket   the rows of one bucket + its file → its new file, or several with half of it each

W1  A file has a name that is used once, and is on disk when its name is returned. A task that fails removes its own.
W2  Rows are in offset order in every file. Row groups of about GROUP_BYTES, and their pages, have statistics.
W3  A task needs memory for a row group of each file that it writes, and, to merge, for the latest record of each key
    that is new in the bucket.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from klog.disk import Files, FileSink, RealFiles
from klog.manager.partitioner import targets
from klog.spark.plan import Range
from klog.spark.rows import BAD_VALUE
from klog.spark.table_manifest import BITS_MAX, DataFile
from klog.values import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

GROUP_BYTES = 32 << 20
_SPLIT_MAX = 4  # bits: 16 files, each with a row group in memory
GATHER_BYTES = 64 << 20
BUCKET = "__klog_bucket"
_MIX, _WORD = 0x9E3779B97F4A7C15, (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how files are written. columns: those of the table, in order. files: None: the disk of the machine that
    runs the task."""

    directory: str
    columns: tuple[str, ...]
    compression: str
    target_bytes: int
    files: Files | None = None

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets of one partition for one task. tail: the file before them, to be merged. is_last: of the partition."""

    range: Range
    tail: DataFile | None = None
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class Bucket:
    """The keys of a partition with these low bits in their hash. file: None if there is none yet."""

    partition: int
    bits: int
    bucket: int
    file: DataFile | None = None


def write_piece(piece: Piece, batches: Iterable[pa.RecordBatch], place: Place) -> list[DataFile]:
    """Write the rows of a piece. Returns the files, none if there is no row; the first one replaces the tail."""
    files: list[DataFile] = []
    made, done_bytes, partition = None, 0, piece.range.partition
    start = piece.range.start_offset if piece.tail is None else piece.tail.start
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            first = batch.column("offset")[0].as_py()
            if made is not None and made.size >= place.target_bytes and _may_end(piece, first, done_bytes, made, place):
                done_bytes += made.size
                files.append(replace(made.close(), partition=partition, start=start, end=first))
                made, start = None, first
            if made is None:
                made = _Output(place, batch.schema)
                if piece.tail is not None and not files:
                    made.copy(piece.tail)
            made.write(batch)
        if made is not None:
            files.append(replace(made.close(), partition=partition, start=start, end=piece.range.end_offset))
    except BaseException:
        _remove(place, files, [made])
        raise
    if piece.tail is not None and files:
        files[0] = replace(files[0], slot=piece.tail.slot)
    return files


def _may_end(piece: Piece, offset: int, done_bytes: int, made: _Output, place: Place) -> bool:
    """May the file end before this offset? Only the last file of a partition may be small."""
    if piece.is_last:
        return True
    past, left = offset - piece.range.start_offset, piece.range.end_offset - offset
    return (done_bytes + made.size) * left // max(past, 1) >= place.target_bytes


# ---- the latest record of each key -----------------------------------------------------------------------------------


class Keyed:
    """Adds to the rows of one partition the number of their bucket. buckets: of all partitions."""

    def __init__(self, partition: int, buckets: Sequence[Bucket]) -> None:
        import numpy as np

        mine = [(number, each) for number, each in enumerate(buckets) if each.partition == partition]
        self._numbers = np.zeros(1 << max(each.bits for _, each in mine), np.int32)
        for number, each in mine:
            self._numbers[each.bucket :: 1 << each.bits] = number

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have a key, with the column BUCKET."""
        import pyarrow as pa
        import pyarrow.compute as pc

        batch = batch.filter(pc.is_valid(batch.column("key")))
        low = hashes(batch.column("key")) & (len(self._numbers) - 1)
        return batch.append_column(BUCKET, pa.array(self._numbers[low]))


def hashes(keys: pa.Array) -> Any:
    """Return a hash of each key, as a numpy array of 32 bits, each bit of use.

    murmur2, mixed again: as the partitioner's hash it has some of its bits the same in all keys of a partition.
    """
    import numpy as np
    import pyarrow as pa

    if not len(keys):
        return np.zeros(0, np.uint32)
    rows = pa.RecordBatch.from_arrays(
        [keys.cast(pa.binary()), pa.nulls(len(keys), pa.binary())], names=["key", "value"]
    )
    found = np.frombuffer(targets(rows, (1 << 31) - 1, 0), np.int32).astype(np.uint64)
    return (found * np.uint64(_MIX) >> np.uint64(32)).astype(np.uint32)


def merge_bucket(bucket: Bucket, batches: Iterable[pa.RecordBatch], place: Place) -> tuple[list[DataFile], int]:
    """Write a bucket with these rows, which are in offset order. Returns its files, and how many keys were new."""
    import pyarrow.compute as pc

    newest = Newest()
    for batch in batches:
        newest.add(batch)
    table = newest.table()
    outputs: list[_Output] = []
    try:
        split = _Split(bucket, table.schema, place, outputs)
        if bucket.file is not None:
            keys = table.column("key").combine_chunks()
            for old in _stored(place.path(bucket.file.name)):
                split.write(old.filter(pc.invert(pc.is_in(old.column("key"), value_set=keys))))
        lives = pc.is_valid(table.column("value"))
        if BAD_VALUE in table.column_names:
            lives = pc.or_(lives, pc.is_valid(table.column(BAD_VALUE)))
        for live in table.filter(lives).to_batches():
            split.write(live)
        files = split.close()
    except BaseException:
        _remove(place, [], outputs)
        raise
    if bucket.file is not None:
        files[0] = replace(files[0], slot=bucket.file.slot)
    return files, len(table)


class Newest:
    """Gathers rows in offset order, and keeps the latest one of each key. size: bytes that are gathered."""

    def __init__(self) -> None:
        self.size = 0
        self._batches: list[pa.RecordBatch] = []
        self._limit = GATHER_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of higher offsets."""
        self._batches.append(batch)
        self.size += batch.nbytes
        if self.size > self._limit:
            self._batches = self.table().to_batches()
            self.size = sum(each.nbytes for each in self._batches)
            self._limit = max(GATHER_BYTES, 2 * self.size)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the latest rows, and begin again without any."""
        if self._batches:
            yield from self.table().to_batches()
        self.size, self._batches, self._limit = 0, [], GATHER_BYTES

    def table(self) -> pa.Table:
        """The latest rows, in offset order."""
        import numpy as np
        import pyarrow as pa

        whole = pa.Table.from_batches(self._batches)
        rows = pa.table({"key": whole.column("key"), "row": pa.array(np.arange(len(whole)))})
        kept = np.zeros(len(whole), bool)
        kept[rows.group_by("key").aggregate([("row", "max")]).column("row_max").to_numpy()] = True
        return whole.filter(pa.array(kept))


class _Split:
    """The files of a bucket: one, or 2, 4, … if its file has become too large."""

    def __init__(self, bucket: Bucket, schema: pa.Schema, place: Place, outputs: list[_Output]) -> None:
        self._bucket = bucket
        size = 0 if bucket.file is None else bucket.file.size
        # One large record would be split without end.
        self._more = min((size // place.target_bytes).bit_length(), _SPLIT_MAX, max(BITS_MAX - bucket.bits, 0))
        self._outputs = outputs
        outputs += [_Output(place, schema) for _ in range(1 << self._more)]

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._more:
            self._outputs[0].write(batch)
            return
        import pyarrow as pa

        part = (hashes(batch.column("key")) >> self._bucket.bits) & ((1 << self._more) - 1)
        for number, output in enumerate(self._outputs):
            output.write(batch.filter(pa.array(part == number)))

    def close(self) -> list[DataFile]:
        """Finish all files, empty ones too: buckets must not have gaps."""
        mine = self._bucket
        return [
            replace(
                output.close(),
                partition=mine.partition,
                bits=mine.bits + self._more,
                bucket=mine.bucket | number << mine.bits,
            )
            for number, output in enumerate(self._outputs)
        ]


# ---- one file --------------------------------------------------------------------------------------------------------


class _Sink(FileSink):
    """Drops what a writer of Parquet, which is given up, still has to write."""

    def write(self, data: Buffer, /) -> int:  # type: ignore[override]
        return memoryview(data).nbytes if self.closed else super().write(data)


class _Output:
    """A Parquet file that is being written (W1, W2)."""

    def __init__(self, place: Place, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.name = uuid.uuid4().hex
        self._place = place
        self._path = place.path(self.name)
        self._schema = pa.schema([schema.field(name) for name in place.columns])
        self._files = place.files or RealFiles()
        self._file = self._files.create(self._path)
        self._sink = _Sink(self._file)
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression=place.compression, write_page_index=True)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0

    @property
    def size(self) -> int:
        """Bytes so far, without the row group that is being gathered."""
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            batch = batch.select(self._place.columns)
            if not batch.schema.equals(self._schema):  # Parquet gives the fields of a map other names
                batch = batch.cast(self._schema)
            self._waiting.append(batch)
            self._waiting_bytes += batch.nbytes
            self._rows += batch.num_rows
        if self._waiting_bytes >= min(GROUP_BYTES, self._place.target_bytes):
            self._write_group()

    def copy(self, file: DataFile) -> None:
        """Write the rows of another file of the table."""
        for batch in _stored(self._place.path(file.name)):
            self.write(batch)

    def _write_group(self) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(table, row_group_size=len(table))
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> DataFile:
        """Finish the file. Returns it without its place in the table."""
        if self._waiting:
            self._write_group()
        self._writer.close()
        size = self.size
        self._files.fsync(self._file)
        self._file.close()
        return DataFile(self.name, 0, -1, 0, 0, self._rows, size)

    def abandon(self) -> None:
        self._sink.close()
        with suppress(Exception):  # the error that led here is the one to report
            self._writer.close()
        self._file.close()
        with suppress(OSError):
            self._files.unlink(self._path)


def _stored(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file of the table, in batches of a row group at most."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=1 << 20)


def _remove(place: Place, files: Iterable[DataFile], outputs: Iterable[_Output | None]) -> None:
    for file in files:
        with suppress(OSError):
            (place.files or RealFiles()).unlink(place.path(file.name))
    for output in outputs:
        if output is not None:
            output.abandon()
