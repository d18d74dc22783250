"""The sparse offset and time indexes of one segment, kept consistent: offset -> position, timestamp -> offset.

  I1  keys rise from entry to entry; slots after the last entry are zeros, also after a truncation
  I2  an offset entry (o, p): the batch that begins at byte p ends at offset o
  I3  a time entry (t, o): no record at or before offset o has a timestamp above t
  I4  losing these files loses no data: they are rebuilt from .log, so they are never fsynced per append

The caller holds the log's lock for all changes; any thread may look up entries, under the GIL.
Kafka: OffsetIndex, TimeIndex, AbstractIndex.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy, memset

from klog._c.batch cimport kl_batch_last_offset, kl_batch_t
from klog._c.bytes cimport kl_load_u32, kl_load_u64
from klog._c.index cimport (
    KL_OFFSET_ENTRY,
    KL_TIME_ENTRY,
    kl_indexer_add,
    kl_indexer_close,
    kl_indexer_fit,
    kl_indexer_has_space,
    kl_indexer_init,
    kl_indexer_must_roll,
    kl_offset_index_floor,
    kl_offset_index_position,
    kl_offset_index_valid,
    kl_time_index_floor,
    kl_time_index_valid,
)
from klog._c.osio cimport kl_io_libc, kl_io_t
from klog.disk._mapping cimport Mapping, store
from klog.record._table cimport BatchTable

import contextlib

from klog.errors import CorruptIndex


cdef enum:
    PAGE = 4096
    OBJECTS = 1024    # bytes

OFFSET_ENTRY, TIME_ENTRY = KL_OFFSET_ENTRY, KL_TIME_ENTRY   # bytes


cdef inline int64_t load64(const uint8_t *at) noexcept:
    return <int64_t>kl_load_u64(at)


cdef inline int32_t load32(const uint8_t *at) noexcept:
    return <int32_t>kl_load_u32(at)


@cython.final
cdef class IndexPair(Reusable):
    """Both index files of the segment at base_offset.

    capacity: bytes that each file of a writable (active) segment grows to, rounded down to whole entries; -1 keeps the
    files' lengths. copy: read the files into memory instead of mapping them, because another process may shorten them.
    Empty paths: only memory, no files.
    """

    def __cinit__(self, str offsets_path, str times_path, int64_t base_offset, *, bint writable=False,
                  int64_t capacity=-1, int32_t interval=4096, bint copy=False, uintptr_t table=0):
        kl_indexer_init(&self.x, base_offset, interval)
        self.offsets_path = offsets_path
        self.times_path = times_path
        self.writable = writable
        if writable and capacity >= 0:
            self.offsets = Mapping(offsets_path, True, capacity // KL_OFFSET_ENTRY * KL_OFFSET_ENTRY, table)
            self.times = Mapping(times_path, True, capacity // KL_TIME_ENTRY * KL_TIME_ENTRY, table)
        else:
            self.offsets = Mapping(offsets_path, writable, -1, table, copy)
            self.times = Mapping(times_path, writable, -1, table, copy)
        self.attach(0 if self.offsets.found == 0 else -1, 0 if self.times.found == 0 else -1)

    def __dealloc__(self):
        PyMem_Free(self.newest)

    cdef int attach(self, int32_t offsets=-1, int32_t times=-1) except -1:
        """Count the valid entries of the mapped files; or take the given counts without reading the files. On tmpfs a
        read of a hole allocates a page; if there is no memory for it, that is a SIGBUS."""
        cdef int32_t slots = <int32_t>min(self.offsets.size // KL_OFFSET_ENTRY, INT32_MAX)
        cdef const uint8_t *last
        self.added = 0
        self.x.offset_entries = self.offsets.data
        self.x.offset_capacity = slots
        if offsets < 0:
            offsets = kl_offset_index_valid(self.offsets.data, slots) if slots else 0
        self.x.offset_count = min(offsets, slots)
        self.x.last_relative = -1
        if self.x.offset_count:
            self.x.last_relative = load32(self.offsets.data + (self.x.offset_count - 1) * KL_OFFSET_ENTRY)
        slots = <int32_t>min(self.times.size // KL_TIME_ENTRY, INT32_MAX)
        self.x.time_entries = self.times.data
        self.x.time_capacity = slots
        if times < 0:
            times = kl_time_index_valid(self.times.data, slots) if slots else 0
        self.x.time_count = min(times, slots)
        self.x.last_time = -1
        self.x.last_time_offset = self.x.base_offset
        if self.x.time_count:
            last = self.times.data + (self.x.time_count - 1) * KL_TIME_ENTRY
            self.x.last_time = load64(last)
            self.x.last_time_offset = self.x.base_offset + load32(last + 8)
        self.x.max_timestamp = self.x.last_time
        self.x.max_timestamp_offset = self.x.last_time_offset
        self.x.bytes_since_entry = 0
        return 0

    def check(self, int64_t log_size):
        """Raise CorruptIndex if bytes after the valid entries are not zeros, or an entry points past the log."""
        self.check_one(self.offsets, self.offsets_path, self.x.offset_count, KL_OFFSET_ENTRY, "index")
        self.check_one(self.times, self.times_path, self.x.time_count, KL_TIME_ENTRY, "timeindex")
        if self.x.offset_count:
            position = load32(self.offsets.data + self.x.offset_count * KL_OFFSET_ENTRY - 4)
            if position >= log_size:
                raise CorruptIndex(f"an entry points at byte {position} of a log of {log_size} bytes",
                                   path=self.offsets_path, position=(self.x.offset_count - 1) * KL_OFFSET_ENTRY)

    def limit(self, int64_t log_size):
        """Drop offset entries at or after byte log_size, in memory: those of a log that has grown since it was
        examined, or that has lost its end. `beyond` is the first of them."""
        cdef int32_t before = self.x.offset_count, kept
        if before == 0:
            return
        kept = kl_offset_index_position(self.offsets.data, before, <int32_t>min(log_size, INT32_MAX))
        if kept < before:
            self.beyond = self.entry(kept)
        self.x.offset_count = kept
        self.x.last_relative = -1
        if self.x.offset_count:
            self.x.last_relative = load32(self.offsets.data + (self.x.offset_count - 1) * KL_OFFSET_ENTRY)

    cdef int check_one(self, Mapping map, str path, int64_t entries, int width, str kind) except -1:
        cdef int64_t i
        if map.found % width:
            raise CorruptIndex(f"{map.found} bytes are not a whole number of {width}-byte entries",
                               path=path, position=map.found // width * width, kind=kind)
        for i in range(entries * width, min(map.size, map.found)):
            if map.data[i]:
                raise CorruptIndex("an entry does not rise above the previous one",
                                   path=path, position=i // width * width, kind=kind)

    @property
    def held_bytes(self):
        """About how many bytes it takes while it is held, in the kernel too: a map has a page table of its own."""
        return OBJECTS + (PAGE if self.offsets.is_map else self.offsets.size) + (
            PAGE if self.times.is_map else self.times.size)

    @property
    def base_offset(self):
        return self.x.base_offset

    @property
    def entries(self):
        """Number of offset entries."""
        return self.x.offset_count

    @property
    def time_entries(self):
        """Number of time entries."""
        return self.x.time_count

    @property
    def entries_max(self):
        """Number of offset entries that fit into the file."""
        return self.x.offset_capacity

    @property
    def full(self):
        """Is one of the files full? The last slot of the time index is reserved for the closing entry."""
        return self.x.offset_count >= self.x.offset_capacity or self.x.time_count >= self.x.time_capacity - 1

    @property
    def max_timestamp(self):
        """The largest timestamp known, -1 if there is none."""
        return self.x.max_timestamp

    @property
    def max_timestamp_offset(self):
        """The last offset of the first batch that has max_timestamp."""
        return self.x.max_timestamp_offset

    @property
    def first_timestamp(self):
        """The max timestamp of the segment's first batch, -1 if it is negative, None if there is none yet."""
        return None if self.x.first_timestamp == INT64_MIN else self.x.first_timestamp

    def set_first_timestamp(self, int64_t timestamp):
        """Set it after a reopened segment has read its first batch."""
        self.x.first_timestamp = max(timestamp, -1)

    def set_max_timestamp(self, int64_t timestamp, int64_t offset):
        """Set the result of a scan, which may be above the last time entry."""
        self.x.max_timestamp = timestamp
        self.x.max_timestamp_offset = offset

    def entry(self, int32_t i):
        """Return (offset, position) of one offset entry."""
        if not 0 <= i < self.x.offset_count:
            raise IndexError(i)
        at = self.offsets.data + <int64_t>i * KL_OFFSET_ENTRY
        return self.x.base_offset + load32(at), load32(at + 4)

    def time_entry(self, int32_t i):
        """Return (timestamp, offset) of one time entry."""
        if not 0 <= i < self.x.time_count:
            raise IndexError(i)
        at = self.times.data + <int64_t>i * KL_TIME_ENTRY
        return load64(at), self.x.base_offset + load32(at + 8)

    def floor(self, int64_t offset):
        """Return (offset, position) of the greatest entry at or below offset; (base offset, 0) below the first."""
        cdef int64_t relative = offset - self.x.base_offset
        cdef int32_t slot
        if relative < 0 or self.x.offset_count == 0:
            return self.x.base_offset, 0
        slot = kl_offset_index_floor(self.offsets.data, self.x.offset_count, <int32_t>min(relative, INT32_MAX))
        return (self.x.base_offset, 0) if slot < 0 else self.entry(slot)

    def time_floor(self, int64_t timestamp):
        """Return (timestamp, offset) of the greatest entry at or below timestamp; (-1, base offset) below the first."""
        cdef int32_t slot = -1
        if self.x.time_count:
            slot = kl_time_index_floor(self.times.data, self.x.time_count, timestamp)
        return (-1, self.x.base_offset) if slot < 0 else self.time_entry(slot)

    def time_floor_below(self, int64_t offset):
        """Return (timestamp, offset) of the last time entry below an offset; (-1, base offset) if there is none."""
        cdef int32_t low = 0, high = self.x.time_count, middle
        while low < high:
            middle = low + (high - low) // 2
            if self.x.base_offset + load32(self.times.data + <int64_t>middle * KL_TIME_ENTRY + 8) < offset:
                low = middle + 1
            else:
                high = middle
        return (-1, self.x.base_offset) if low == 0 else self.time_entry(low - 1)

    def upper_bound(self, int64_t position):
        """Return the offset of the first entry at or after a byte position, None if there is none."""
        cdef int32_t slot
        if self.x.offset_count == 0 or position > INT32_MAX:
            return None
        slot = kl_offset_index_position(self.offsets.data, self.x.offset_count, <int32_t>position)
        return None if slot >= self.x.offset_count else self.entry(slot)[0]

    def fit(self, BatchTable group, int32_t first, int64_t size, int64_t segment_bytes, int64_t segment_ms,
            int64_t waited_ms):
        """Return how many of the group's batches from `first` on fit before the segment of size bytes must roll."""
        return kl_indexer_fit(&self.x, group.batches + first, <int32_t>group.n - first, size, segment_bytes,
                              segment_ms, waited_ms)

    cpdef bint must_roll(self, BatchTable batches, int64_t last_offset, int64_t max_timestamp, int64_t size,
                         int64_t segment_bytes, int64_t segment_ms, int64_t waited_ms) except -1:
        """Must the segment of size bytes roll before these batches, which end at last_offset, are appended whole?"""
        cdef kl_batch_t b
        b.base_offset = last_offset
        b.last_offset_delta = 0
        b.max_timestamp = max_timestamp
        b.size = <int32_t>batches.nbytes
        if kl_indexer_must_roll(&self.x, &b, size, segment_bytes, segment_ms, waited_ms):
            return True
        return not kl_indexer_has_space(&self.x, batches.batches, <int32_t>batches.n, size)

    cpdef reserve(self, int32_t batches):
        """Allocate disk blocks for the entries of this many more batches. OSError: the disk is full."""
        cdef int64_t offsets = min(<int64_t>self.x.offset_count + batches, self.x.offset_capacity)
        cdef int64_t times = min(<int64_t>self.x.time_count + batches + 1, self.x.time_capacity)
        self.offsets.reserve(offsets * KL_OFFSET_ENTRY)
        self.times.reserve(times * KL_TIME_ENTRY)

    cpdef add(self, BatchTable group, int32_t first, int32_t stop, int64_t position):
        """Index batches [first, stop) of the group, written at byte `position`. reserve() must have been called."""
        cdef int32_t i
        cdef int64_t start = group.batches[first].position
        cdef const kl_batch_t *b
        cdef batch_position_t *added
        if self.newest == NULL:
            self.newest = <batch_position_t *>PyMem_Malloc(NEWEST * sizeof(batch_position_t))
        for i in range(first, stop):
            b = &group.batches[i]
            kl_indexer_add(&self.x, b, position + b.position - start)
            if self.newest == NULL:     # no memory: the positions are only a shortcut, and the bytes are written
                continue
            added = &self.newest[self.added % NEWEST]
            added.position, added.size = position + b.position - start, b.size
            added.base_offset, added.last_offset = b.base_offset, kl_batch_last_offset(b)
            self.added += 1

    cdef bint find_newest(self, int64_t offset, batch_position_t *found) noexcept:
        """Find the first batch that ends at or above offset, if it is among the newest ones."""
        cdef int64_t low = max(self.added - NEWEST, 0), high = self.added, middle
        if low == high or offset < self.newest[low % NEWEST].base_offset or \
                offset > self.newest[(high - 1) % NEWEST].last_offset:
            return False
        while low < high:
            middle = (low + high) // 2
            if self.newest[middle % NEWEST].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        found[0] = self.newest[low % NEWEST]
        return True

    def close_entries(self):
        """Add the closing time entry: from here on the index contains the segment's largest timestamp. OSError: the disk
        is full, and the entry is not there yet."""
        cdef kl_indexer_t dry = self.x
        dry.time_entries = NULL
        if kl_indexer_close(&dry):
            self.times.reserve(<int64_t>dry.time_count * KL_TIME_ENTRY)
            kl_indexer_close(&self.x)

    def state(self):
        """Return an opaque copy of the counters, for restore()."""
        return (<char *>&self.x)[:sizeof(kl_indexer_t)]

    def restore(self, bytes state):
        """Return to an earlier state(): later entries become zeros again."""
        cdef kl_indexer_t before
        if len(state) != sizeof(kl_indexer_t):
            raise ValueError("not a state of this class")
        memcpy(&before, <const char *>state, sizeof(kl_indexer_t))
        self.added = 0
        before.offset_entries, before.offset_capacity = self.x.offset_entries, self.x.offset_capacity
        before.time_entries, before.time_capacity = self.x.time_entries, self.x.time_capacity
        self.clear_tail(before.offset_count, before.time_count)
        self.x = before

    cdef int clear_tail(self, int32_t offsets, int32_t times) except -1:
        if self.x.offset_count > offsets:
            memset(self.offsets.data + <int64_t>offsets * KL_OFFSET_ENTRY, 0,
                   <int64_t>(self.x.offset_count - offsets) * KL_OFFSET_ENTRY)
        if self.x.time_count > times:
            memset(self.times.data + <int64_t>times * KL_TIME_ENTRY, 0,
                   <int64_t>(self.x.time_count - times) * KL_TIME_ENTRY)

    def truncate_to(self, int64_t offset):
        """Drop entries at or above offset in both files."""
        cdef int32_t offsets = 0, times = self.x.time_count
        cdef int64_t relative = offset - self.x.base_offset
        if relative > 0 and self.x.offset_count:
            offsets = kl_offset_index_floor(self.offsets.data, self.x.offset_count,
                                            <int32_t>min(relative - 1, INT32_MAX)) + 1
        while times > 0 and self.time_entry(times - 1)[1] >= offset:
            times -= 1
        self.clear_tail(offsets, times)
        self.attach()

    def reset(self, int64_t capacity):
        """Empty both files and give them capacity bytes: the start of a rebuild."""
        interval = self.x.interval
        base_offset = self.x.base_offset
        self.x.offset_count = self.x.time_count = 0  # before the maps are released
        try:
            self.offsets.resize(0)
            self.times.resize(0)
            self.grow(capacity)
        finally:
            kl_indexer_init(&self.x, base_offset, interval)
            self.attach(0, 0)

    def grow(self, int64_t capacity):
        """Grow both files to capacity bytes, rounded down to whole entries, and keep all, with space for the closing
        entry: a segment becomes active."""
        cdef kl_indexer_t before = self.x
        try:
            self.offsets.resize(max(capacity // KL_OFFSET_ENTRY, before.offset_count) * KL_OFFSET_ENTRY)
            self.times.resize(max(capacity // KL_TIME_ENTRY, before.time_count + 1) * KL_TIME_ENTRY)
        finally:
            self.keep(&before)

    def resize(self, int64_t capacity):
        """The same; returns whether a file's length changed. No entry is ever lost."""
        cdef int64_t offsets = self.offsets.size, times = self.times.size
        self.grow(capacity)
        return self.offsets.size != offsets or self.times.size != times

    def trim(self):
        """Truncate both files to their entries: a segment becomes inactive, or the log is closed cleanly. After an
        OSError, as of a full disk that copies on write, both have the length that they had, if the disk lets them."""
        cdef kl_indexer_t before = self.x
        cdef int64_t offsets = self.offsets.size, times = self.times.size
        try:
            self.offsets.resize(<int64_t>self.x.offset_count * KL_OFFSET_ENTRY)
            self.times.resize(<int64_t>self.x.time_count * KL_TIME_ENTRY)
        except OSError:
            with contextlib.suppress(OSError):
                self.offsets.resize(offsets)
                self.times.resize(times)
            raise
        finally:
            self.keep(&before)

    cdef int keep(self, kl_indexer_t *before) except -1:
        """attach() after a resize, keeping the values that are only in memory."""
        self.attach(before.offset_count, before.time_count)
        self.x.bytes_since_entry = before.bytes_since_entry
        self.x.max_timestamp = before.max_timestamp
        self.x.max_timestamp_offset = before.max_timestamp_offset
        self.x.first_timestamp = before.first_timestamp

    def store(self, str offsets_path, str times_path, uintptr_t table=0):
        """Write the entries to these files, trimmed. A file that already holds them is not touched: after a crash the
        indexes of nearly every closed segment are correct."""
        cdef const kl_io_t *io = <const kl_io_t *>table if table else &kl_io_libc
        store(offsets_path, self.offsets.data, <int64_t>self.x.offset_count * KL_OFFSET_ENTRY, io)
        store(times_path, self.times.data, <int64_t>self.x.time_count * KL_TIME_ENTRY, io)

    def moved(self, str offsets_path, str times_path):
        """Set the files' new paths after their directory was renamed."""
        self.offsets_path, self.times_path = offsets_path, times_path
        self.offsets.moved(offsets_path)
        self.times.moved(times_path)

    def sync(self):
        """Sync both files to disk. An OSError is final for the directory."""
        self.offsets.sync()
        self.times.sync()

    def close(self):
        """Unmap; lookups then return the same as without entries."""
        self.added = 0
        self.x.offset_count = self.x.time_count = 0
        self.x.offset_capacity = self.x.time_capacity = 0
        self.x.offset_entries = self.x.time_entries = NULL
        self.offsets.close()
        self.times.close()


def base_offset(BatchTable group, Py_ssize_t i):
    """Return the first offset of batch i of a group."""
    return group.batches[i].base_offset
