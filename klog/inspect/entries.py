"""The fixed-width files of a segment: offset index, time index, transaction index, producer snapshot.

    .index      (relative_offset:u32 position:u32)*  zero*           8 bytes
    .timeindex  (timestamp:i64 relative_offset:u32)* zero*          12 bytes
    .txnindex   (version:i16 producer_id first_offset last_offset last_stable_offset:i64)*   34 bytes
    .snapshot   version:i16=1 crc:u32 count:i32 (46 bytes)*          crc-32c of all bytes after it

An index of an active segment, or of one whose writer was killed, is preallocated: the first unused slot ends it, and
all bytes from there on are zero. The engine ignores what it can rebuild. Here every entry keeps its position in the
file, and half an entry or a version other than 0 is an error. Kafka: OffsetIndex, TimeIndex, TransactionIndex,
ProducerStateManager.
"""

from __future__ import annotations

import struct
from typing import Any

from klog.errors import CorruptIndex
from klog.log.state import snapshots
from klog.values import NamedTuple, dataclass

OFFSET_ENTRY = struct.Struct(">II")
TIME_ENTRY = struct.Struct(">qI")
TXN_ENTRY = struct.Struct(">hqqqq")
_ZEROS = bytes(1 << 16)


class OffsetEntry(NamedTuple):
    """slot: the entry's position in the .index. The batch at `position` (or an append that begins there) ends with
    `offset`."""

    slot: int
    offset: int
    position: int


class TimeEntry(NamedTuple):
    """slot: the entry's position in the .timeindex. No record at or below `offset` is newer than `timestamp`."""

    slot: int
    timestamp: int
    offset: int


class TxnEntry(NamedTuple):
    """An aborted transaction; last_offset is its marker. slot: the entry's position in the .txnindex."""

    slot: int
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """State of one producer in a snapshot; -1 for an unknown value."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """Entries up to the first unused slot. used: their bytes. tail: number of bytes after them. stray: position of the
    first byte there that is not zero; None if there is none."""

    entries: list[Any]
    used: int
    tail: int
    stray: int | None


def parse_offset_index(data: bytes, base_offset: int) -> IndexFile:
    """Return the entries of an .index. A slot of zeros is unused: the first batch of a segment has no entry."""
    entries: list[Any] = []
    for slot in range(0, len(data) - 7, 8):
        relative, position = OFFSET_ENTRY.unpack_from(data, slot)
        if position == 0 and relative == 0:
            return _ended(entries, slot, data)
        entries.append(OffsetEntry(slot, base_offset + relative, position))
    return _ended(entries, len(data) // 8 * 8, data)


def parse_time_index(data: bytes, base_offset: int) -> IndexFile:
    """Return the entries of a .timeindex. A first slot of zeros is an entry (1970, base offset), unless all bytes after
    it are zeros."""
    entries: list[Any] = []
    for slot in range(0, len(data) - 11, 12):
        timestamp, relative = TIME_ENTRY.unpack_from(data, slot)
        if timestamp == 0 and relative == 0:
            ended = _ended(entries, slot, data)
            if slot > 0 or (ended.tail > 12 and ended.stray is None):
                return ended
        entries.append(TimeEntry(slot, timestamp, base_offset + relative))
    return _ended(entries, len(data) // 12 * 12, data)


def _ended(entries: list[Any], used: int, data: bytes) -> IndexFile:
    return IndexFile(entries, used, len(data) - used, _stray(data, used))


def _stray(data: bytes, start: int) -> int | None:
    """The position of the first byte from there on that is not zero; None if there is none. Whole parts are compared:
    the index of an active segment has 10 MB of zeros."""
    for position in range(start, len(data), len(_ZEROS)):
        part = data[position : position + len(_ZEROS)]
        if part != _ZEROS[: len(part)]:
            return position + len(part) - len(part.lstrip(b"\0"))
    return None


def parse_txn_index(data: bytes, path: str | None = None) -> list[TxnEntry]:
    """Return the entries of a .txnindex. Raises CorruptIndex for an unknown version or half an entry at the end."""
    entries = [TxnEntry(slot, *TXN_ENTRY.unpack_from(data, slot)) for slot in range(0, len(data) - 33, 34)]
    for entry in entries:
        if entry.version != 0:
            raise CorruptIndex(f"version {entry.version}, expected 0", path=path, position=entry.slot, kind="txnindex")
    if len(data) % 34:
        raise CorruptIndex(
            f"{len(data) % 34} bytes after the last complete entry of 34 bytes",
            path=path,
            position=len(data) // 34 * 34,
            kind="txnindex",
        )
    return entries


def parse_snapshot(data: bytes, path: str = "") -> list[ProducerEntry]:
    """Return the entries of a .snapshot. Raises CorruptSnapshot for a wrong version, size or checksum."""
    return [
        ProducerEntry(
            producer_id,
            state.epoch,
            state.last_sequence,
            state.last_offset,
            state.offset_delta,
            state.timestamp,
            state.coordinator_epoch,
            -1 if state.current_txn_first_offset is None else state.current_txn_first_offset,
        )
        for producer_id, state in snapshots.parse_snapshot(data, path).items()
    ]
