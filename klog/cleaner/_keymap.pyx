# cython: auto_pickle=False
"""Key -> latest offset, for one run of the cleaner: csrc/keymap.h in its own memory, in huge pages if there are any.

24 bytes a slot. Slots and limit are Kafka's: slots = memory / 24; keys = slots x load factor. Pages are allocated as
the table grows; at most 192 KiB more than memory_bytes are ever used for it. Besides there is one bit for each offset
of a round, as far as 1/32 of memory_bytes reaches: is there a later offset of its key? And one bit for each 64 of
these.
"""

cimport cython
from klog._c.keymap cimport (
    KL_KEYMAP_ENTRY, KL_KEYMAP_GROUP, kl_key_t, kl_keyhash_init, kl_keyhash_t, kl_keymap_bytes, kl_keymap_get,
    kl_keymap_init, kl_keymap_put, kl_keymap_track_stale,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

import os

cdef extern from "sys/mman.h" nogil:
    enum:
        PROT_READ
        PROT_WRITE
        MAP_PRIVATE
        MAP_ANONYMOUS
        MAP_NORESERVE
        MADV_HUGEPAGE
    void *MAP_FAILED
    void *mmap(void *at, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void *at, size_t size)
    int madvise(void *at, size_t size, int advice)

cdef enum:
    WORDS_SHARE = 32    # of the table's memory
    BLOCK = 65 * 8      # bytes: 64 words with a bit for each offset, and one word with a bit for each of these words

cdef tuple KERNELS = ("siphash-1-3-128", "aes-128-cmac")


cdef const char *begin_hash(kl_keyhash_t *hash, bytes secret, str kernel) except NULL:
    cdef const char *name
    if len(secret) != 16:
        raise ValueError(f"secret has {len(secret)} bytes, expected 16")
    if kernel is not None and kernel not in KERNELS:
        raise ValueError(f"kernel={kernel!r} is unknown: use one of {', '.join(KERNELS)}")
    name = kl_keyhash_init(hash, <const uint8_t *>secret, -1 if kernel is None else KERNELS.index(kernel))
    if name == NULL:
        raise ValueError(f"this processor cannot run {kernel}")
    return name


@cython.final
cdef class KeyMap:
    """At most slots x load_factor keys in memory_bytes. latest_offset: all keys up to it have been put; -1 at first.

    One user at a time. secret and kernel are for tests; by default 16 random bytes and the fastest kernel here.
    """

    def __cinit__(self, int64_t memory_bytes, double load_factor=0.9, *, bytes secret=None, str kernel=None):
        cdef int64_t slots = memory_bytes // KL_KEYMAP_ENTRY
        cdef void *memory
        self.memory = self.words = NULL
        if not 0 < load_factor <= 1 or slots < 1 or slots > (<int64_t>1 << 40):
            raise ValueError(f"{memory_bytes} bytes at load {load_factor}: use at least 24 bytes and a load in (0, 1]")
        self.kernel = begin_hash(&self.map.hash, os.urandom(16) if secret is None else secret, kernel).decode("ascii")
        self.mapped = kl_keymap_bytes(slots)
        memory = mmap(NULL, self.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if memory == MAP_FAILED:
            raise MemoryError(f"no {self.mapped} bytes for the offset map: lower log.cleaner.dedupe.buffer.size")
        self.memory = memory
        if self.mapped >= (<size_t>1 << 21):
            madvise(memory, self.mapped, MADV_HUGEPAGE)  # a tenth faster; it works without huge pages, too
        kl_keymap_init(&self.map, memory, slots, <int64_t>(slots * load_factor))
        self.latest_offset = -1

    def __dealloc__(self):
        if self.memory != NULL:
            munmap(self.memory, self.mapped)
        if self.words != NULL:
            munmap(self.words, self.words_mapped)

    cdef int track_stale(self, int64_t first) except -1:
        """Keep track of stale offsets from `first` on, as far as the memory for it reaches."""
        cdef size_t size = max(<size_t>(self.map.slots_max * KL_KEYMAP_ENTRY // WORDS_SHARE) & ~<size_t>4095, <size_t>4096)
        cdef int64_t blocks = <int64_t>size // BLOCK
        cdef void *words = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if words == MAP_FAILED:
            return 0    # then a caller looks up the keys
        if self.words != NULL:
            munmap(self.words, self.words_mapped)
        self.words, self.words_mapped = words, size
        kl_keymap_track_stale(&self.map, <uint64_t *>words, <uint64_t *>words + 64 * blocks, first, 4096 * blocks)
        return 0

    def __len__(self):
        return self.map.size

    @property
    def slots(self):
        """Keys that fit into its memory."""
        return self.map.slots_max

    @property
    def keys_max(self):
        """Maximum number of keys: slots x load factor."""
        return self.map.limit

    @property
    def full(self):
        """True if it holds keys_max keys."""
        return self.map.size >= self.map.limit

    @property
    def utilization(self):
        """Keys / slots."""
        return self.map.size / <double>self.map.slots_max

    def put(self, keys, offsets):
        """Put keys (a list of bytes), each with its offset, in order. Returns how many were put before the map was
        full."""
        cdef kl_key_t group[KL_KEYMAP_GROUP]
        cdef int64_t numbers[KL_KEYMAP_GROUP]
        cdef Py_ssize_t done = 0, n = len(keys)
        cdef int32_t count, put, i
        while done < n:
            count = <int32_t>min(n - done, KL_KEYMAP_GROUP)
            for i in range(count):
                point(&group[i], keys[done + i])
                numbers[i] = offsets[done + i]
                if numbers[i] < 0:
                    raise ValueError(f"offset {numbers[i]}")
            put = kl_keymap_put(&self.map, group, numbers, count)
            if put:
                self.latest_offset = numbers[put - 1]
            done += put
            if put < count:
                break
        return done

    def get(self, keys):
        """Return the offsets of keys (a list of bytes), -1 for an unknown key."""
        cdef kl_key_t group[KL_KEYMAP_GROUP]
        cdef int64_t numbers[KL_KEYMAP_GROUP]
        cdef Py_ssize_t done = 0, n = len(keys)
        cdef int32_t count, i
        found = []
        while done < n:
            count = <int32_t>min(n - done, KL_KEYMAP_GROUP)
            for i in range(count):
                point(&group[i], keys[done + i])
            kl_keymap_get(&self.map, group, count, numbers)
            for i in range(count):
                found.append(numbers[i])
            done += count
        return found


cdef int point(kl_key_t *key, bytes value) except -1:
    key.at = <const uint8_t *>value
    key.size = <size_t>len(value)
    return 0
