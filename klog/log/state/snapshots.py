"""Producer snapshots: `N.snapshot` is the state of each producer after all batches below offset N.

    file  := version:i16=1 crc:u32 count:i32 entry*             crc-32c over everything after it
    entry := producer_id:i64 epoch:i16 last_sequence:i32 last_offset:i64 offset_delta:i32 timestamp:i64
             coordinator_epoch:i32 current_txn_first_offset:i64                                      46 bytes

  N1  a snapshot is a cache: it is recomputed from the batches if it is missing or invalid
  N2  a snapshot has only the last batch of each producer
  N3  entries are in the order in which Kafka writes them, so that equal states are equal bytes

Kafka: ProducerStateManager (writeSnapshot, readSnapshot), SnapshotFile.
"""

from __future__ import annotations

import bisect
import contextlib
import struct
from collections.abc import Collection, Iterable, Mapping

from klog.codec import crc32c
from klog.disk import Files, read_whole
from klog.errors import CorruptSnapshot
from klog.log.directory._listing import Listing
from klog.log.state.producer_state import ProducerState
from klog.logger import logger_of
from klog.segment import names

_log = logger_of("log")
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")


def parse_snapshot(data: bytes, path: str) -> dict[int, ProducerState]:
    """The producers of a snapshot's bytes. Raises CorruptSnapshot."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a snapshot", path=path, position=0)
    version, crc, count = _HEAD.unpack_from(data)
    if version != 1:
        raise CorruptSnapshot(f"snapshot version {version}, 1 expected", path=path, position=0)
    if crc32c(data[6:]) != crc:
        raise CorruptSnapshot("checksum does not match", path=path, position=2)
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(data)} bytes are not the size of {count} entries", path=path, position=6)
    producers = {}
    for position in range(_HEAD.size, len(data), _ENTRY.size):
        pid, epoch, sequence, offset, delta, timestamp, coordinator, txn = _ENTRY.unpack_from(data, position)
        producers[pid] = ProducerState(epoch, sequence, offset, delta, timestamp, coordinator, None if txn < 0 else txn)
    return producers


def is_snapshot_size(size: int) -> bool:
    """Can a snapshot be that many bytes long?"""
    return size >= _HEAD.size and (size - _HEAD.size) % _ENTRY.size == 0


def format_snapshot(producers: Mapping[int, ProducerState]) -> bytes:
    """The bytes of a snapshot."""
    body = struct.pack(">i", len(producers)) + b"".join(
        _ENTRY.pack(
            pid,
            state.epoch,
            state.last_sequence,
            state.last_offset,
            state.offset_delta,
            state.timestamp,
            state.coordinator_epoch,
            -1 if state.current_txn_first_offset is None else state.current_txn_first_offset,
        )
        for pid, state in _in_kafkas_order(producers)
    )
    return struct.pack(">hI", 1, crc32c(body)) + body


def _in_kafkas_order(producers: Mapping[int, ProducerState]) -> list[tuple[int, ProducerState]]:
    """N3: the order of a java.util.HashMap<Long, ...> of this size: by bucket, then by insertion."""
    capacity = 16
    while len(producers) > capacity * 3 // 4:
        capacity *= 2

    def bucket(item: tuple[int, ProducerState]) -> int:
        hashed = (item[0] ^ item[0] >> 32) & 0xFFFFFFFF
        return (hashed ^ hashed >> 16) & capacity - 1

    return sorted(producers.items(), key=bucket)


def snapshot_offsets(directory: str) -> list[int]:
    """Offsets of the producer snapshots in a directory, ascending."""
    return Listing(directory).snapshots


def read_snapshot(directory: str, offset: int) -> dict[int, ProducerState]:
    """The producers of one snapshot. Raises CorruptSnapshot."""
    path = names.file_path(directory, offset, names.SNAPSHOT)
    return parse_snapshot(read_whole(path), path)


def _holds(path: str, data: bytes) -> bool:
    try:
        return read_whole(path) == data
    except FileNotFoundError:
        return False


class Snapshots:
    """The snapshot files of one log. Their only writer. Under the log's lock.

    offsets: of all of them, ascending. Each change makes a new list.
    """

    def __init__(self, directory: str, files: Files, offsets: Iterable[int] | None = None) -> None:
        """offsets: those of the snapshots in the directory, ascending; None: list it."""
        self._directory = directory
        self._files = files
        self.offsets = snapshot_offsets(directory) if offsets is None else list(offsets)

    @property
    def latest(self) -> int | None:
        """Offset of the last snapshot, None if there is none."""
        return self.offsets[-1] if self.offsets else None

    def move_to(self, directory: str) -> None:
        """Use the new path of the directory, which has been renamed."""
        self._directory = directory

    def relist(self) -> None:
        """List the directory again."""
        self.offsets = snapshot_offsets(self._directory)

    def write(self, offset: int, producers: Mapping[int, ProducerState]) -> None:
        """Write a snapshot atomically and sync it.

        A file with the same content is left as it is: recovery rewrites the snapshot of every segment that it checks,
        and reading is cheaper than syncing.
        """
        path, data = names.file_path(self._directory, offset, names.SNAPSHOT), format_snapshot(producers)
        if not (self._there(offset) and _holds(path, data)):
            self._files.replace(path, data)
        if not self._there(offset):
            self.offsets = sorted((*self.offsets, offset))

    def _there(self, offset: int) -> bool:
        at = bisect.bisect_left(self.offsets, offset)
        return at < len(self.offsets) and self.offsets[at] == offset

    def read(self, offset: int) -> dict[int, ProducerState]:
        """The producers of a snapshot. Raises CorruptSnapshot."""
        path = f"{self._directory}/{offset:020d}{names.SNAPSHOT}"  # each load reads one: without a call of file_path
        return parse_snapshot(read_whole(path), path)

    def delete(self, offset: int) -> None:
        """Unlink a snapshot. A missing file is not an error."""
        self._files.unlink(names.file_path(self._directory, offset, names.SNAPSHOT))
        self._forget(offset)

    def mark_for_deletion(self, offset: int) -> str | None:
        """Rename a snapshot to .deleted, to be deleted with its segment. Returns the new path, None if missing."""
        if not self._there(offset):
            return None
        path = names.file_path(self._directory, offset, names.SNAPSHOT)
        self._forget(offset)
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(path, path + names.DELETED)
            return path + names.DELETED
        _log.warning("event=snapshot_gone path=%s", path)
        return None

    def remove_strays(self, segment_bases: Collection[int]) -> None:
        """Delete snapshots at offsets where no segment begins.

        The last of them stays if it is above every base offset: a clean shutdown has written it.
        """
        strays = sorted(set(self.offsets).difference(segment_bases))
        if strays and strays[-1] > max(segment_bases, default=-1):
            strays.pop()
        for offset in strays:
            self.delete(offset)

    def _forget(self, offset: int) -> None:
        if self._there(offset):
            at = bisect.bisect_left(self.offsets, offset)
            self.offsets = self.offsets[:at] + self.offsets[at + 1 :]
