"""The latest record of each key: what a compaction would leave, found by reading, without changing a file.

K1  Per partition one pass over the range notes key → offset: memory grows with the number of different keys, not with
    the log. Values are read when they are asked for, by offset.
K2  A tombstone removes its key. Records without a key are left out.
K3  In several partitions, each partition's latest records are found first. If a key is in more than one, the newest
    timestamp counts, of equal ones the higher partition. A tombstone counts only in its own partition.
K4  After a truncation another record may have the offset: then RecordRemoved is raised. A reader that has loaded the
    log again, perhaps only because of a compaction, compares keys.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from klog import record as record_package
from klog.arguments import LONG_MAX
from klog.errors import OffsetOutOfRange, RecordRemoved
from klog.log.read import tables
from klog.log.read.chunks import CHUNK_BYTES, FetchedChunk, chunks
from klog.log.read.isolation import Isolation, bound
from klog.log.read.optional_decoding import optional_decoding, stream_of
from klog.log.read.preview import RECORDS_MAX
from klog.log.read.reader import fields_of
from klog.log.read.steady import note_next_offset
from klog.log.state._log_core import LogCore
from klog.record import Record
from klog.shown import display, heading, moment, note, plain
from klog.shown import size as shown_size

if TYPE_CHECKING:
    from klog.decode import Decode
    from klog.log.read.decoding import Decoded, Decoding, OnBad


_SHOWN_BYTES_MAX = 64 << 20  # of logs that a notebook's display reads


class LatestOfLog:
    """The latest records of one log below an offset and up to a timestamp. The range is fixed now, and read once."""

    def __init__(self, log: LogCore, isolation: Isolation, stop: int = LONG_MAX, timestamp_max: int = LONG_MAX) -> None:
        self.log = log
        self._isolation = isolation
        self._start = log.log_start_offset
        self._stop = min(stop, bound(log, isolation))
        self._timestamp_max = timestamp_max
        self._rewritten = -1  # of the log, when the search began

    @cached_property
    def offsets(self) -> dict[bytes, int]:
        """{key: offset of its latest record}, in the order of offsets."""
        found: dict[bytes, int] = {}
        self._rewritten = self.log.rewritten
        try:
            for chunk in chunks(self.log, self._start, self._stop, self._isolation, CHUNK_BYTES, False):
                record_package.note_latest(
                    found,
                    chunk.buffer,
                    timestamp_max=self._timestamp_max,
                    on_damage=partial(note_next_offset, self.log),
                    **chunk.request,
                )
        except OffsetOutOfRange:
            raise self._removed(self._start) from None
        return found

    @cached_property
    def _keys(self) -> dict[int, bytes]:
        """{offset: key} of the latest records."""
        return {offset: key for key, offset in self.offsets.items()}

    def timestamps(self, keys: Set[bytes]) -> dict[bytes, int]:
        """{key: timestamp of its latest record} of some of the keys."""
        return {key: record.timestamp for record in self.records() if (key := record.key) is not None and key in keys}

    def drop(self, keys: Iterable[bytes]) -> None:
        """Forget keys of which another log has a later record."""
        for key in keys:
            del self.offsets[key]

    def record_at(self, offset: int) -> Record:
        """The record with this offset."""
        for record in self._chunk(offset, offset + 1, 1).records():
            return record
        raise self._removed(offset)

    def records(self) -> Iterator[Record]:
        """The latest records, in the order of offsets."""
        for chunk, offsets in self._chunks():
            awaited = iter(offsets)
            offset = next(awaited)
            for record in chunk.records(on_damage=partial(note_next_offset, self.log)):
                if record.offset == offset:
                    yield record
                    offset = next(awaited, LONG_MAX)
            if offset != LONG_MAX:
                raise self._removed(offset)

    def columns(self, fields: Sequence[str]) -> Iterator[record_package.Columns]:
        """The latest records as Arrow arrays, in the order of offsets, none of them empty."""
        for chunk, offsets in self._chunks():
            try:
                yield self._columns_of(chunk, offsets, fields)
            except OverflowError:  # 2 GiB of keys or values after decompression: batch by batch
                at = 0
                for part in chunk.split():
                    end = bisect_left(offsets, part.stop, at)
                    if at < end:
                        yield self._columns_of(part, offsets[at:end], fields)
                    at = end

    def _columns_of(self, chunk: FetchedChunk, offsets: array[int], fields: Sequence[str]) -> record_package.Columns:
        columns = record_package.columns(
            chunk.buffer, fields=fields, origin=chunk.origin, offsets=offsets, **chunk.request
        )
        if columns.num_rows != len(offsets):
            raise self._removed(offsets[0])
        return columns

    def _chunks(self) -> Iterator[tuple[FetchedChunk, array[int]]]:
        """The chunks that hold latest records, each with their offsets. What lies between two chunks is not read."""
        offsets = array("q", self.offsets.values())
        at = 0
        while at < len(offsets):
            chunk = self._chunk(offsets[at], self._stop, CHUNK_BYTES)
            end = bisect_left(offsets, chunk.stop, at)
            yield chunk, offsets[at:end]
            at = end

    def _chunk(self, offset: int, stop: int, max_bytes: int) -> FetchedChunk:
        """The batches from the offset of a latest record on."""
        try:
            chunk = next(chunks(self.log, offset, stop, self._isolation, max_bytes, False), None)
        except OffsetOutOfRange:
            chunk = None
        if chunk is None or not (self.log.rewritten == self._rewritten or self._has_kept(chunk)):
            raise self._removed(offset)
        return chunk

    def _has_kept(self, chunk: FetchedChunk) -> bool:
        """K4, after a truncation or a new load."""
        keys = self._keys
        return self.log.read_only and all(
            keys.get(record.offset, record.key) == record.key
            for record in chunk.records(on_damage=partial(note_next_offset, self.log))
        )

    def _removed(self, offset: int) -> RecordRemoved:
        return RecordRemoved(
            f"{self.log.name}: the record at offset {offset}, or one after it, was removed by retention, compaction or "
            "a truncation after latest_by_key(): call it again"
        )


class LatestByKey(tables.Tabular, Mapping[bytes, Record]):
    """The latest record of each key at one moment, as {key: Record}; by partition and offset, also as Arrow.

    The first use reads the range once; a key is then looked up without reading, and its record is read when it is asked
    for. values() and items() read in order, many records at a time. Keys whose latest record is a tombstone are absent.
    Any thread; one thread per iteration. Raises CorruptBatch, and RecordRemoved if a record was removed meanwhile.
    """

    def __init__(self, parts: Iterable[LatestOfLog], decoding: Decoding | None = None) -> None:
        self._unmerged = tuple(parts)
        self._decoding = decoding
        self._merging = threading.RLock()  # guards the next one; from Python 3.12 on a cached_property has no lock
        self._is_merged = False

    def __reduce__(self) -> Any:
        raise TypeError("what latest_by_key() returned belongs to its process: call it there, on a log or manager")

    @property
    def _parts(self) -> Sequence[LatestOfLog]:
        """The parts, each key in only one of them (K3)."""
        with self._merging:
            if not self._is_merged:
                for number, part in enumerate(self._unmerged):
                    for before in self._unmerged[:number]:
                        common = part.offsets.keys() & before.offsets.keys()
                        if common:
                            new, old = part.timestamps(common), before.timestamps(common)
                            part.drop(key for key in common if new[key] < old[key])
                            before.drop(key for key in common if new[key] >= old[key])
                self._is_merged = True
        return self._unmerged

    def __getitem__(self, key: bytes) -> Record:
        for part in self._parts:
            if (offset := part.offsets.get(key)) is not None:
                return part.record_at(offset)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return any(key in part.offsets for part in self._parts)

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            yield from part.offsets

    def __len__(self) -> int:
        return sum(len(part.offsets) for part in self._parts)

    def __repr__(self) -> str:
        return f"<LatestByKey of {', '.join(part.log.name for part in self._unmerged)}>"

    def _repr_html_(self) -> str:
        """Return the first records. A range that was not read yet, and is large, is not read for it."""
        size = sum(part.log.size for part in self._unmerged)
        if not self._is_merged and size > _SHOWN_BYTES_MAX:
            return heading(repr(self)) + note(f"not read yet: len() or to_arrow() reads {shown_size(size)}")
        return display(
            repr(self),
            ("key", "offset", "time", "value"),
            lambda: [
                (plain(record.key), record.offset, moment(record.timestamp), plain(record.value))
                for record in islice(self._records(), RECORDS_MAX)
            ],
        )

    def values(self) -> ValuesView[Record]:
        """The records, by partition and offset."""
        return _Values(self)

    def items(self) -> ItemsView[bytes, Record]:
        """(key, record) of each, by partition and offset."""
        return _Items(self)

    def _records(self) -> Iterator[Record]:
        for part in self._parts:
            yield from part.records()

    def decoded(self) -> Iterator[Decoded]:
        """Iterate tuples (record, key, value) by partition and offset, as LogReader.decoded does, with the formats of
        latest_by_key(decode=...): {key: value for _, key, value in latest.decoded()}. Raises BadValue; ValueError
        without decode."""
        if self._decoding is None:
            raise ValueError("decoded() needs formats: latest_by_key(decode=...)")
        from klog.log.read.decoding import decoded_records  # klog.decode takes time to import

        return decoded_records(((part.log.partition, part.records()) for part in self._parts), self._decoding)

    def _stream(self) -> tables.Stream:
        return stream_of(self._columns, self._decoding, fields_of(len(self._parts)))

    def _columns(self, fields: Sequence[str]) -> Iterator[tuple[int, record_package.Columns]]:
        for part in self._parts:
            for columns in part.columns(fields):
                yield part.log.partition, columns


class _Values(ValuesView[Record]):
    _mapping: LatestByKey

    def __iter__(self) -> Iterator[Record]:
        return self._mapping._records()


class _Items(ItemsView[bytes, Record]):
    _mapping: LatestByKey

    def __iter__(self) -> Iterator[tuple[bytes, Record]]:
        for record in self._mapping._records():
            assert record.key is not None
            yield record.key, record


class LogAsOf:
    """A log as it was at a moment, from Log.as_of(): its records below an offset, or with timestamps up to a time."""

    def __init__(self, log: LogCore, stop: int, timestamp_max: int) -> None:
        self._log = log
        self._stop = stop
        self._timestamp_max = timestamp_max

    def __repr__(self) -> str:
        bounds = f"below offset {self._stop}" if self._timestamp_max == LONG_MAX else f"up to {self._timestamp_max} ms"
        return f"<{self._log.name} {bounds}>"

    def latest_by_key(
        self, *, isolation: Isolation = "high_watermark", decode: Decode | None = None, on_bad: OnBad = "raise"
    ) -> LatestByKey:
        """The latest record of each key at that moment, as Log.latest_by_key() has it now.

        Records that retention or a compaction has removed since are not there: a compacted log has only some of its
        earlier states.
        """
        log = self._log.now
        log.check_open()
        latest = LatestOfLog(log, isolation, self._stop, self._timestamp_max)
        return LatestByKey([latest], optional_decoding(log.topic, decode, on_bad, None))
