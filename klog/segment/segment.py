"""One segment: the .log file of one base offset, kept consistent with its indexes.

  S1  bytes reach .log before the index entry that points at them
  S2  `size` is the end of the last whole batch; reads never go beyond it
  S3  an active segment keeps its descriptor from first write to fsync; closed ones are opened through the cache
  S4  beside another process's writer, and after the segment has left the log, all descriptors of a segment are of one
      file, that of its numbers: a cleaner may put another file under the name. That is FileNotFoundError, and the other
      file is never read
  S5  a closed segment's index is mapped at most once. It is unmapped when the segment takes appends again or the log is
      closed: from then on its files may become shorter. A reader that still holds that index finds no entries in it and
      walks the log; a reader that opens it after a close gets a copy, and writes nothing

The log's lock guards append, roll, truncate and close; any thread may read.
Kafka: LogSegment.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from klog.disk import AlignedBuffer, Handles, LogFile, Reusable, exists, is_final
from klog.disk.drop_behind import DropBehind
from klog.errors import CorruptBatch, CorruptIndex
from klog.logger import logger_of
from klog.record import BATCH_HEADER
from klog.segment import names
from klog.segment._index import OFFSET_ENTRY, TIME_ENTRY, IndexPair
from klog.segment._scan import (
    Header,
    Scan,
    find_offset,
    find_timestamp,
    frame,
    locate,
    plain_up_to,
    scan_checked,
    scan_headers,
    start_of,
)
from klog.segment._state import SegmentState
from klog.segment.active import POSITION_MAX, Active, WriteCounts, open_to_write
from klog.segment.batches import Batches, batch_of_entry, damage_before, reaches_too_far, sound_after, youngest_of
from klog.segment.lost_end import LostEnd, lost_end
from klog.segment.segment_dir import SegmentDir
from klog.segment.txn_index import TxnIndex

if TYPE_CHECKING:
    from klog.record import BatchTable

T = TypeVar("T", bound=Reusable)

_log = logger_of("segment")
_NO_BATCH = _SIZE_MAX = 2**63 - 1
_HEADERS_AHEAD = 64  # enough that random fetches soon need no more looks, too few to delay one
_INDEX_LAG_MAX = 1 << 20  # bytes that a reader's copy of a live index may lag: each lookup scans them
_INDEX_BYTES_MIN = 24  # two time entries: the closing one fits even if segment.index.bytes is too small


def index_bytes_needed(size: int, interval: int) -> int:
    """The maximal size of each index of a segment of this many bytes, with index.interval.bytes=interval."""
    return (size // max(interval, BATCH_HEADER) + 2) * TIME_ENTRY


class Segment(SegmentState):
    """A segment of a partition directory. Its files are opened and mapped only when needed.

    size, next_offset: of a file that has batches already, as far as they are known; a scan finds the rest.
    """

    __slots__ = (
        "_indexed_size", "_inode", "_mapped", "_max_timestamp", "_moving_from", "created_ms", "segment_dir",
    )  # fmt: skip
    _active: Active | None
    _txn_index: TxnIndex | None

    def __init__(
        self, segment_dir: SegmentDir, base_offset: int, created_ms: int, size: int = 0, next_offset: int | None = None
    ) -> None:
        self.segment_dir = segment_dir
        self.base_offset = base_offset
        self.size = size
        self.next_offset = base_offset if next_offset is None else next_offset
        self.created_ms = created_ms
        self.appended_ms = None
        self._active = None
        self._indexed_size = 0  # the segment's size when a reader's index was opened
        self._inode = 0  # S4: of the file that the numbers describe; negative if it was closed and grows no more
        self._mapped: weakref.ref[IndexPair] | None = None  # the index of a closed segment, with any holder (S5)
        self._max_timestamp: int | None = None
        self._moving_from: SegmentDir | None = None  # during move_to
        self._txn_index = None
        self.plain_from, self.plain_to = _SIZE_MAX, 0

    def __repr__(self) -> str:
        return f"<Segment {self.path} [{self.base_offset}, {self.next_offset}) {self.size} bytes>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} belongs to its process: send its path or its offsets")

    @property
    def directory(self) -> str:
        """The partition's directory."""
        return self.segment_dir.directory

    @property
    def path(self) -> str:
        """Its .log file."""
        return self.segment_dir.path(self.base_offset, names.LOG)

    @property
    def writable(self) -> bool:
        """Was the log opened for writing?"""
        return self.segment_dir.writable

    @property
    def active(self) -> bool:
        """Does it take appends: file open for writing, indexes at full size?"""
        return self._active is not None

    @property
    def _leaving(self) -> bool:
        """Has it been removed from the log, its files renamed and about to be unlinked? Its readers continue."""
        return self.segment_dir.suffix == names.DELETED

    @property
    def written(self) -> WriteCounts:
        """How the bytes of the log were written, including those of this active segment."""
        counts = copy.copy(self.segment_dir.written)
        active = self._active
        if active is not None:
            counts.include(active.file)
        return counts

    @property
    def txn_index(self) -> TxnIndex:
        """The index of its aborted transactions."""
        index = self._txn_index
        if index is None:
            # One object for all: after the segment has been removed, its file cannot be read again.
            with self.segment_dir.opening:
                index = self._txn_index
                if index is None:
                    path = self.segment_dir.path(self.base_offset, names.TXN_INDEX)
                    files, writable = self.segment_dir.files, self.segment_dir.writable
                    index = self._txn_index = TxnIndex(path, self.base_offset, files, writable=writable)
        return index

    # ---- handles -----------------------------------------------------------------------------------------------

    @property
    def file(self) -> LogFile:
        """The .log file, opened if necessary."""
        active = self._active  # read once: a roll may reset it between two reads
        if active is not None:
            return active.file
        cache = self.segment_dir.handles.files
        file: LogFile | None = cache.find(self)
        if file is not None:
            return file
        return self._keep(cache, self._open_file(), 1)

    def _keep(self, cache: Handles, handle: T, weight: int) -> T:
        """Keep a handle for reuse, unless the segment is leaving: then its bytes would stay on the disk."""
        if self._leaving:
            return handle
        kept: T = cache.keep(self, handle, weight)
        if self._leaving:  # it has left meanwhile
            cache.drop(self)
        return kept

    def _open_file(self) -> LogFile:
        segment_dir = self.segment_dir
        try:
            file = segment_dir.files.open(segment_dir.path(self.base_offset, names.LOG))
            return self._known(file) if self._inode or not segment_dir.writable else file
        except FileNotFoundError:
            with self.segment_dir.opening:  # another thread may be renaming it, or the directory: wait for that to end
                return self._known(self.segment_dir.files.open(self._path_during_move()))

    def open_direct(self) -> LogFile:
        """Open a descriptor for one reader, with large reads past the page cache if the file system supports it."""
        with self.segment_dir.opening:  # while this is held, the directory is not renamed
            return self._known(self.segment_dir.files.open_direct(self._path_during_move()))

    def take_for(self, found: os.stat_result, *, closed: bool) -> None:
        """S4, for a read-only log or a segment that leaves its log: bind it to the file of this stat result."""
        self.take_for_inode(found.st_ino, closed=closed)

    def take_for_inode(self, inode: int, *, closed: bool) -> None:
        """The same, by the file's inode number."""
        self._inode = -inode if closed else inode

    def is_file(self, found: os.stat_result) -> bool:
        """S4: is this the stat result of the segment's file? A freed inode is soon reused, so a closed segment's length
        is compared too."""
        return self._is(found.st_ino, found.st_size)

    def _is(self, inode: int, size: int) -> bool:
        known = self._inode
        return known == 0 or (inode == abs(known) and (known > 0 or size == self.size))

    def _known(self, file: LogFile) -> LogFile:
        if self._inode or not self.segment_dir.writable:
            inode, size = file.opened_as
            if self._inode == 0:
                self.take_for_inode(inode, closed=False)
            self._check(inode, size)
        return file

    def check_place(self) -> None:
        """S4: raise FileNotFoundError if another file has the name by now. A cleaner renames the .log first, so files
        beside it that were read before this call belong to this segment."""
        if self._inode or not self.segment_dir.writable:
            found = os.stat(self._path_during_move())
            self._check(found.st_ino, found.st_size)

    def _path_during_move(self) -> str:
        """Return where its .log is. A signal handler that reads during move_to cannot wait for it to end; the file has
        either the old or the new name."""
        moving_from = self._moving_from
        old = None if moving_from is None else moving_from.path(self.base_offset, names.LOG)
        return self.path if old is None or not exists(old) else old

    def _check(self, inode: int, size: int) -> None:
        if not self._is(inode, size):
            raise FileNotFoundError(errno.ENOENT, "another file has replaced it", self.path)

    @property
    def index(self) -> IndexPair:
        """Both indexes. A file with an invalid format is rebuilt from .log."""
        active = self._active
        if active is not None:
            return active.index
        cache = self.segment_dir.handles.indexes
        index: IndexPair | None = cache.find(self)
        return self._open_index() if index is None else index

    def _index_paths(self) -> tuple[str, str]:
        segment_dir, base = self.segment_dir, self.base_offset
        return segment_dir.path(base, names.INDEX), segment_dir.path(base, names.TIME_INDEX)

    def _index_bytes(self) -> int:
        """The maximal size of each index of a segment that takes appends."""
        configured: int = self.segment_dir.config.segment_index_bytes
        return max(configured, _INDEX_BYTES_MIN)

    def _open_index(self) -> IndexPair:
        with self.segment_dir.opening:  # one reader at a time: a rebuild may write files that another one has mapped
            active = self._active
            if active is not None:  # it has become active meanwhile
                return active.index
            index = None if self._mapped is None or not self.writable else self._mapped()
            if index is None:
                mapped, index = self.segment_dir.mappable, self._read_index()
                if mapped and not self.segment_dir.mappable:  # a signal handler has closed the log meanwhile
                    index.close()
                    index = self._read_index()
                self._mapped = weakref.ref(index)
            return self._keep(self.segment_dir.handles.indexes, index, index.held_bytes)

    def unmap(self) -> None:
        """S5, when the log is closed and the segment_dir is no longer mappable."""
        with self.segment_dir.opening:
            self._close_mapped()

    def _close_mapped(self) -> None:
        """S5. The caller holds segment_dir.opening."""
        mapped, self._mapped = self._mapped, None
        self.segment_dir.handles.indexes.drop(self)
        index = None if mapped is None else mapped()
        if index is not None:
            index.close()

    def _read_index(self) -> IndexPair:
        self._indexed_size = self.size
        try:
            loaded = self._load_index(-1)
            self.check_place()
            if loaded is not None:
                return loaded
        except (FileNotFoundError, CorruptIndex) as error:
            _log.warning("event=index_unusable path=%s reason=%s", self.path, error)
        index = self._index_in_memory()
        scan_checked(self.file, 0, self.size, self.base_offset, index)
        index.close_entries()
        # Also while leaving (LS10): it still has its names, or its .log would not have been found.
        if self.segment_dir.mappable:
            index.store(*self._index_paths(), self.segment_dir.files.table)
            _log.info("event=index_rebuilt path=%s entries=%d", self.path, index.entries)
        return index

    def _index_in_memory(self) -> IndexPair:
        """Return an index in memory, without files, large enough for a segment of this size."""
        interval = self.segment_dir.config.index_interval_bytes
        needed = index_bytes_needed(self.size, interval)
        capacity = min(needed, self._index_bytes()) if self.writable else needed
        return IndexPair("", "", self.base_offset, writable=True, capacity=capacity, interval=interval)

    def _load_index(self, capacity: int) -> IndexPair | None:
        """Map both files; at full size if a capacity is given. None: the writer has just created them."""
        offsets, times = self._index_paths()
        if capacity >= 0 and not (exists(offsets) and exists(times)):
            raise FileNotFoundError(offsets)  # opening for writing would create it
        index = IndexPair(
            offsets,
            times,
            self.base_offset,
            writable=self.writable and capacity >= 0,
            copy=not self.segment_dir.mappable,
            capacity=capacity,
            interval=self.segment_dir.config.index_interval_bytes,
            table=self.segment_dir.files.table,
        )
        if self.writable and capacity >= 0:
            index.check(self.size)
        else:  # the writer of a live log is ahead of a reader; a closed segment may have lost its end
            index.check(POSITION_MAX)
            index.limit(self.size)
            if self.writable and index.beyond is not None:
                lost = lost_end(self.file, index, self.size, self.next_offset)
                if lost is None:
                    raise CorruptIndex("an entry points beyond the log, and not at lost batches", path=offsets)
                _log.warning("event=records_lost path=%s end=%d reason=%s", self.path, *lost)
        timed = index.time_entries or find_timestamp(self.file, 0, self.size, 1, 0) is None
        if not timed:
            if index.entries == 0 and not self.writable:  # as in every segment that its writer has just created
                return None
            raise CorruptIndex("no entry, although records have timestamps", path=times, kind="timeindex")
        return index

    def _empty_index(self) -> IndexPair:
        capacity = self._index_bytes()
        index = IndexPair(
            *self._index_paths(),
            self.base_offset,
            writable=True,
            capacity=capacity,
            interval=self.segment_dir.config.index_interval_bytes,
            table=self.segment_dir.files.table,
        )
        index.reset(capacity)
        return index

    # ---- life cycle --------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Make this the segment that takes appends: file open for writing, indexes at full size.

        With `preallocate` a new file has blocks for the whole segment. Its length is still that of its batches, except
        with klog.io.preallocate=zeros.
        """
        self.segment_dir.check_place()
        file = open_to_write(self.segment_dir.files, self.path, self.segment_dir.config.io, create=self.size == 0)
        try:
            self._check_size(file)
            self._take_appends(file)
        except BaseException:
            if self._active is None:  # the traceback holds it, and an undo may need its descriptor
                file.close()
            raise

    def _check_size(self, file: LogFile) -> None:
        """The first append opens the file, perhaps long after the load."""
        _, size = file.opened_as
        if size < self.size:
            raise OSError(
                errno.ESTALE,
                f"{self.size - size} bytes were lost since the load: restore the file, then open the log again",
                self.path,
            )

    def _take_appends(self, file: LogFile) -> None:
        allocated = self.size
        if self.segment_dir.config.preallocate and self.size == 0:
            allocated = self.segment_dir.config.segment_size
            file.preallocate(0, allocated, self.segment_dir.config.io.preallocate == "zeros")
        with self.segment_dir.opening:  # no reader maps the indexes before the segment is known to take appends
            self._close_mapped()
            shared = self.segment_dir
            self._active = Active(file, self._grown_index(file), allocated, shared.config, shared.written)
            self._drop_handles()

    def _grown_index(self, file: LogFile) -> IndexPair:
        """Return both indexes at full size. One that is larger than segment.index.bytes now keeps its entries, and is
        full."""
        sizes = [os.path.getsize(path) for path in self._index_paths() if exists(path)]
        capacity = max(self._index_bytes(), *sizes, 0)
        index: IndexPair | None = None
        if self.size:
            try:
                index = self._load_index(capacity)
                if index is not None and not self._index_reaches(index):
                    index = None
            except (FileNotFoundError, CorruptIndex) as error:
                _log.warning("event=index_unusable path=%s reason=%s", self.path, error)
        if index is None:
            index = self._empty_index()
            if self.size:
                scan_checked(file, 0, self.size, self.base_offset, index)
        if self.size:
            first = find_offset(file, 0, self.size, -1)
            if first is not None:
                index.set_first_timestamp(first.max_timestamp)
            index.set_max_timestamp(*youngest_of(self.batches(index)))
        return index

    def _ready(self) -> Active:
        """Return the state for appends. In a log that was opened after a clean stop the first append creates it."""
        if self._active is None:
            self.activate()
        active = self._active
        assert active is not None
        return active

    def _drop_handles(self) -> None:
        self.segment_dir.handles.files.drop(self)
        self.segment_dir.handles.indexes.drop(self)

    def _index_reaches(self, index: IndexPair) -> bool:
        """Does the last entry point at a batch that ends at its offset, and the last time entry at its batch?"""
        if index.time_entries and not batch_of_entry(self.batches(index), *index.time_entry(index.time_entries - 1)):
            return False
        if index.entries == 0:
            return True
        offset, position = index.entry(index.entries - 1)
        header = find_offset(self.file, position, self.size, 0)
        return header is not None and header.position == position and header.last_offset == offset

    @property
    def indexes_settled(self) -> bool:
        """Do both index files end with their last entry, and does it match its batch? For an inactive segment."""
        index, paths = self.index, self._index_paths()
        if not all(exists(path) for path in paths):
            return False
        sizes = [os.path.getsize(path) for path in paths]
        return sizes == [index.entries * OFFSET_ENTRY, index.time_entries * TIME_ENTRY] and self._index_reaches(index)

    def settle_indexes(self) -> None:
        """Make both index files match .log, trimmed and on disk on return: Kafka's loader does not verify them. For an
        inactive segment."""
        with self.segment_dir.opening:
            self._close_mapped()
            self._drop_handles()
            index = self._grown_index(self.file)
            try:
                index.close_entries()
                index.trim()
                index.sync()
            finally:
                index.close()

    def deactivate(self, *, sync: bool) -> None:
        """Make the active segment inactive: add the closing time entry, trim the files. A reader of the file keeps its
        descriptor until it has finished."""
        active = self._active
        if active is None:
            return
        active.index.close_entries()
        active.index.trim()
        if active.allocated > self.size or active.file.length() != self.size:
            self.segment_dir.files.truncate(active.file, self.size)
        if sync:
            self.sync()
        self._max_timestamp = active.index.max_timestamp
        self._active = None
        self.segment_dir.written.include(active.file)
        active.index.close()

    def reopen(self) -> None:
        """Take appends again after deactivate(): for undoing a failed append."""
        self._ready()

    def sync(self) -> None:
        """Sync log, indexes and transaction index to disk. An OSError is final for the directory.

        Indexes whose directory was renamed or removed from outside may be lost: they are caches.
        """
        files, active = self.segment_dir.files, self._active
        if active is not None:
            files.fdatasync(active.file)
            with contextlib.suppress(FileNotFoundError):
                active.index.sync()
            self.txn_index.sync()
            return
        with files.open(self.path, write=True) as file:
            files.fsync(file)
        self._sync_indexes_by_name()

    def sync_beside(self, file: LogFile) -> None:
        """sync() of an active segment by a thread without the log's lock: other threads may append to it, roll it or
        close it meanwhile. file: its `file` when the lock was held. The files' content at that time is on disk on
        return.

        The indexes are synced by name, because their maps may be released at any moment; for the kernel it is the same
        file.
        """
        self.segment_dir.files.fdatasync(file)
        self._sync_indexes_by_name()

    def _sync_indexes_by_name(self) -> None:
        files = self.segment_dir.files
        for path in (*self._index_paths(), self.txn_index.path):
            with contextlib.suppress(FileNotFoundError), files.open(path, write=True) as file:
                files.fsync(file)

    def sync_data(self) -> None:
        """Sync the log's bytes alone."""
        self.segment_dir.files.fdatasync(self.file)

    def close(self) -> None:
        """Close every handle; nothing changes on disk."""
        active, self._active = self._active, None
        if active is not None:
            self.segment_dir.written.include(active.file)
            active.index.close()
        self._drop_handles()

    def delete_files(self) -> None:
        """Unlink all files of this base offset except the producer snapshot. Missing files are not an error."""
        self.close()
        for path in self.paths:
            self.segment_dir.files.unlink(path)
        self._drop_handles()  # again: a handle opened meanwhile would keep the bytes on the disk

    @property
    def paths(self) -> list[str]:
        """Paths of its files, `.log` first, whether they exist or not."""
        return [self.segment_dir.path(self.base_offset, kind) for kind in names.SEGMENT_SUFFIXES]

    def forget_paths(self) -> None:
        """Its SegmentDir has another directory: the same files, under other names. Its readers continue."""
        self._txn_index = None
        self._drop_handles()
        if self._active is not None:
            self._active.index.moved(*self._index_paths())

    def move_to(self, segment_dir: SegmentDir) -> None:
        """Rename its files to their names in another SegmentDir of the same directory, `.log` first: without it the
        others are orphans, which a load removes. No file is created. Readers of the segment continue: open handles stay
        open, new ones use the new names until these files are deleted, and the aborted transactions stay known.
        """
        with segment_dir.opening:
            self.close()
            self._stay_with_file()
            aborted = self.txn_index  # of the files with their current names
            before, self._moving_from = self.paths, self.segment_dir
            self.segment_dir = segment_dir
            try:
                self._drop_handles()  # again: drop a handle opened meanwhile; later openers keep none
                aborted.leave(segment_dir.path(self.base_offset, names.TXN_INDEX))
                for old, new in zip(before, self.paths, strict=True):
                    if exists(old):
                        # Of an earlier segment of this base: never the target of a rename.
                        segment_dir.files.unlink(new)
                        segment_dir.files.rename(old, new)
            except BaseException:  # also KeyboardInterrupt
                if exists(before[0]):
                    self.segment_dir = self._moving_from  # its .log is still there: its readers continue
                    self.forget_paths()
                raise
            finally:
                self._moving_from = None

    def _stay_with_file(self) -> None:
        """S4: another file, of the segment that replaces this one, may soon have the name."""
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(self.path)
            self.take_for(found, closed=found.st_size == self.size)

    # ---- append ------------------------------------------------------------------------------------------------

    def fit(self, group: BatchTable, first: int, now_ms: int) -> int:
        """Return how many of the group's batches from `first` on fit before this segment must roll."""
        active = self._ready()
        if active.config is not self.segment_dir.config:
            active.set_bounds(self.segment_dir.config)
        return active.index.fit(group, first, self.size, active.size_max, active.age_max_ms, now_ms - self.created_ms)

    def must_roll(self, batches: BatchTable, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Must this segment roll before batches that end at last_offset are appended, all or none, as in Kafka?"""
        active = self._ready()
        if active.config is not self.segment_dir.config:
            active.set_bounds(self.segment_dir.config)
        return active.index.must_roll(
            batches,
            last_offset,
            max_timestamp,
            self.size,
            active.size_max,
            active.age_max_ms,
            now_ms - self.created_ms,
        )

    def savepoint(self) -> tuple[int, int, bytes]:
        """Return the state that rewind() needs."""
        return self.size, self.next_offset, self._ready().index.state()

    def rewind(self, savepoint: tuple[int, int, bytes]) -> None:
        """Undo appends since savepoint(), durably. OSError: the directory must go offline."""
        active = self._ready()
        self.size, self.next_offset, state = savepoint
        active.index.restore(state)
        try:
            self.segment_dir.files.truncate(active.file, self.size)
        except OSError as error:
            if is_final(error) or active.file.length() != self.size:
                raise  # else there was nothing to remove: a full disk may refuse even that
        active.cut(self.size)
        self.segment_dir.files.fsync(active.file)

    @property
    def index_full(self) -> bool:
        """Is one of the active segment's indexes full?"""
        return self._ready().index.full

    def cut_position(self, offset: int) -> tuple[int, int]:
        """Return where truncate_to(offset) would end the segment: the byte, and the offset after the last batch kept.

        Raises CorruptBatch if damage hides it.
        """
        header = self._locate(offset, self.size)  # an uncertain position is never used for truncation
        end = self.size if header is None else header.position
        if end == 0:
            return 0, self.base_offset
        file, index = self.file, self.index
        return end, scan_headers(file, start_of(file, index, end, offset - 1), end, 0, self.base_offset).next_offset

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop every batch that ends at or above offset, durably. Returns their size in bytes. The segment takes
        appends from then on, with indexes of full size.

        A batch that contains offset is dropped whole; if offset is in a gap, so is the batch after the gap. Raises
        CorruptBatch if damage hides the position: nothing has changed then. An OSError is final.
        """
        active = self._ready()
        end, next_offset = self.cut_position(offset)
        removed = self.size - end
        self.next_offset, self.size = next_offset, end
        self.txn_index.truncate_to(offset)
        if end == 0:
            active.index.reset(self._index_bytes())
            self.created_ms, self.appended_ms = now_ms, None
        else:
            active.index.truncate_to(next_offset)  # also entries below offset, of records in the batch that is dropped
            active.index.resize(self._index_bytes())
            active.index.set_max_timestamp(*youngest_of(self.batches(active.index)))
        self.segment_dir.files.truncate(active.file, end)
        self.segment_dir.files.fsync(active.file)
        active.cut(end)
        return removed

    # ---- read --------------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """The segment's largest timestamp, -1 if there is none."""
        active = self._active
        if active is not None:
            return active.index.max_timestamp
        known = self._max_timestamp
        if known is None:
            known = youngest_of(self.batches(self.index))[0]
            if self._max_timestamp is None:  # check again: it may have taken appends meanwhile, and been closed
                self._max_timestamp = known
        return known

    @property
    def modified_ms(self) -> int:
        """Time of the last append: by the log's clock if this process made it, else the file's modification time."""
        if self.appended_ms is not None:
            return self.appended_ms
        return os.stat(self.path).st_mtime_ns // 1_000_000

    @property
    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch; 2^63-1 if there is none yet. Kafka: getFirstBatchTimestamp."""
        first = find_offset(self.file, 0, self.size, -1) if self.size else None
        return _NO_BATCH if first is None else first.max_timestamp

    def recover(self, *, following: int | None = None, drop_behind: bool = False) -> Scan:
        """Scan every byte of .log and rebuild both indexes from the valid batches; index files with other content are
        replaced. Truncates nothing: see cut().

        following: where the next segment begins: a last batch that reaches into it is invalid. drop_behind: drop the
        scanned pages from the page cache again.
        """
        index, scan = self.index_of_log(drop_behind=drop_behind)
        index.store(*self._index_paths(), self.segment_dir.files.table)
        self.segment_dir.handles.indexes.drop(self)
        self.learn(scan)
        if following is not None and scan.next_offset > following:
            scan.invalid.append(scan.last_at)
            self.next_offset = following
        return scan

    def index_of_log(self, *, drop_behind: bool = False) -> tuple[IndexPair, Scan]:
        """Scan every byte of .log. Returns the indexes that its valid batches have, in memory. Changes nothing on
        disk."""
        with self.segment_dir.files.open(self.path) as file:
            size = file.length()
            self.size = max(self.size, size)
            index = self._index_in_memory()
            with DropBehind(file, 0, size if drop_behind else 0) as dropper:
                scan = scan_checked(file, 0, size, self.base_offset, index, dropper.moved if drop_behind else None)
            index.close_entries()
        return index, scan

    def take_file(self, path: str) -> None:
        """Take a file of whole batches with offsets from base_offset on, in the same file system, as this new segment,
        and make it active. It must be on disk: only its headers are read. The caller syncs the directory."""
        files = self.segment_dir.files
        for old in self.paths[1:]:
            files.unlink(old)
        files.rename(path, self.path)
        file = files.open(self.path)
        self.size = file.length()
        index = self._index_in_memory()
        scan = scan_headers(file, 0, self.size, self.base_offset, index=index)
        file.close()
        if scan.reason or scan.end != self.size:
            raise CorruptBatch(f"not a segment: {scan.reason}", path=self.path, position=scan.end)
        index.store(*self._index_paths(), files.table)
        self.learn(scan)
        self.activate()

    def cut(self, end: int) -> None:
        """Truncate .log to `end` bytes, durably: old bytes must not reappear after the next append."""
        with self.segment_dir.files.open(self.path, write=True) as file:
            self.segment_dir.files.truncate(file, end)
            self.segment_dir.files.fsync(file)

    def empty(self) -> None:
        """Close it and drop every batch, durably. Its indexes keep their files."""
        self.close()
        self.size, self.next_offset = 0, self.base_offset
        self.cut(0)

    def filled(self, size: int) -> None:
        """The caller has written `size` bytes of whole batches to its .log, by a file of its own."""
        self.size = size

    def followed_by(self, base_offset: int) -> None:
        """The next segment begins there: also offsets up to it are of this one, without records."""
        self.next_offset = max(self.next_offset, base_offset)

    def learn(self, scan: Scan) -> None:
        """Use the result of a scan of the whole file."""
        self.size, self.next_offset = scan.end, scan.next_offset
        self._max_timestamp = scan.max_timestamp

    def learn_tail(self, scan: Scan) -> None:
        """Use the result of a scan from the last index entry to the end."""
        self.size, self.next_offset = scan.end, max(scan.next_offset, self.base_offset)
        self._max_timestamp = None  # computed when needed, or by activate()

    def reaches(self, timestamp: int) -> None:
        """Batches after damage have timestamps up to this one: no scan of headers comes to them from the start."""
        self._max_timestamp = max(self.max_timestamp, timestamp)

    def extend(self, end: int) -> Scan:
        """Add the whole batches that another process has appended up to byte `end`; for a reader.

        A header may arrive before its batch's bytes: in a preallocated file only a batch after it proves that they are
        there. So the checksum of the last batch is verified.
        """
        scan = scan_headers(self.file, self.size, end, self.next_offset)
        if scan.batches and scan_checked(self.file, scan.last_at, scan.end, 0).reason:
            scan = scan_headers(self.file, self.size, scan.last_at, self.next_offset)
        if scan.batches:
            self.next_offset, self.size = scan.next_offset, scan.end  # in this order, for readers without the lock
            if self.size - self._indexed_size > _INDEX_LAG_MAX and all(exists(path) for path in self._index_paths()):
                self.segment_dir.handles.indexes.drop(self)
            self._max_timestamp = max(self.max_timestamp, scan.max_timestamp)
        return scan

    def locate(self, offset: int, limit: int | None = None) -> Header | None:
        """Return the header of the first batch below byte `limit` whose last offset is at or above offset.

        Raises CorruptBatch if damage may hide it. A batch after damage is found if it contains offset; the first one
        above offset is not.
        """
        end = self.size if limit is None else min(limit, self.size)
        try:
            header = self._locate(offset, end)
            self._check_located(offset, header, end)
            return header
        except CorruptBatch as error:
            at = error.position or 0
            damaged = damage_before(self.batches(self.index), offset, at)
            found = sound_after(self.file, at if damaged is None else damaged, end, self.base_offset, offset)
            if found is None or found.base_offset > offset:
                raise
            return found

    def check_end(self) -> None:
        """For a reader that goes on to the next segment: raise CorruptBatch if an index of this closed segment shows
        that batches were lost from its end. Under recovery="kafka" readers go on."""
        if not self.segment_dir.strict:
            return
        lost = lost_end(self.file, self.index, self.size, self.next_offset)
        if lost is None:
            return
        error = CorruptBatch(
            f"the file ends before offset {lost.end}, but its {lost.entry}: records up to {self.next_offset - 1} were "
            f"lost. Restore it from a copy, or read on at offset {self.next_offset}",
            path=self.path,
            position=self.size,
            offset=lost.end,
            kind="gap",
        )
        error.next_offset = self.next_offset
        raise error

    def is_plain(self, position: int, size: int) -> bool:
        """Is it certain that no reader of these bytes needs to look for aborted transactions, unless this process has
        appended an abort? Reads headers, a few more of them for later calls. Any thread."""
        end, known = position + size, self.plain_to
        if position >= self.plain_from or end <= known:
            return True
        if plain_up_to(self.file, position, end) < end:
            return False
        self.plain_to = end if position <= known else plain_up_to(self.file, known, self.size, _HEADERS_AHEAD)
        return True

    def lost_below(self, offset: int) -> LostEnd | None:
        """Return what the end of the last segment has lost of the records below offset, if its index files show it. For
        a load, before it rebuilds them."""
        try:
            index = IndexPair(*self._index_paths(), self.base_offset, table=self.segment_dir.files.table)
        except (OSError, CorruptIndex):
            return None
        try:
            index.check(POSITION_MAX)
            index.limit(self.size)
            return lost_end(self.file, index, self.size, offset)
        except CorruptIndex:
            return None
        finally:
            index.close()

    def _check_located(self, offset: int, header: Header | None, end: int) -> None:
        """Raise CorruptBatch if the header found is that of a damaged batch, or such a header has led past offset."""
        if header is not None and header.base_offset <= offset:
            too_far = header.base_offset < offset and reaches_too_far(self.file, header, end)
            position = header.position if too_far else None
        elif self.base_offset <= offset < self.next_offset:
            position = damage_before(self.batches(self.index), offset, end if header is None else header.position)
        else:
            return
        if position is not None:
            raise CorruptBatch(
                "a damaged batch: run `klog verify` on the directory", path=self.path, position=position, offset=offset
            )

    def batches(self, index: IndexPair) -> Batches:
        """Return its batches as they are now, with an index of them."""
        return Batches(self.file, index, self.size, self.base_offset, self.next_offset)  # size before next_offset

    def _locate(self, offset: int, end: int) -> Header | None:
        active = self._active
        if active is not None:
            return locate(active.file, active.index, end, offset, self.base_offset, self.next_offset)
        held = self.segment_dir.handles  # avoids two properties: saves a third of the time
        file, index = held.files.find(self) or self.file, held.indexes.find(self) or self.index
        return locate(file, index, end, offset, self.base_offset, self.next_offset)

    def read_chunk(
        self, position: int, max_bytes: int, read: Callable[[int, int], AlignedBuffer] | None = None
    ) -> tuple[AlignedBuffer, int]:
        """Return whole batches from byte `position` on, about max_bytes of them but at least one, and the offset after
        them.

        read: reads (position, size) instead of the file's own read. Raises CorruptBatch if no whole batch begins at
        position.
        """
        read = partial(self.segment_dir.sampler.read, self.file) if read is None else read
        wanted = min(max(max_bytes, BATCH_HEADER), self.size - position)  # a batch's length needs at least this much
        while True:
            chunk = read(position, wanted)
            end, next_offset, needed = frame(chunk, self.path, position, self.next_offset, self.base_offset)
            if end:
                return chunk, next_offset
            if needed > self.size - position or needed <= wanted:
                raise CorruptBatch(
                    f"a batch of {needed} bytes begins {self.size - position} bytes before the end of its segment",
                    path=self.path,
                    position=position,
                    offset=next_offset,
                )
            wanted = needed

    def upper_bound(self, position: int) -> int | None:
        """Return an offset above all batches that begin before byte `position`, which is not 0: that of the first index
        entry at or after it. None if there is none, or if its batch contradicts it."""
        index = self.index
        upper = index.upper_bound(position)
        confirmed = upper is not None and start_of(self.file, index, self.size, upper + 1) >= position
        return upper if confirmed else None
