# cython: auto_pickle=False
"""Finds the keys with most bytes among the records that a cleaning drops: csrc/waste.h in its own memory."""

cimport cython
from klog._c.keymap cimport kl_key_t, kl_keyhash_init
from klog._c.waste cimport kl_waste_add, kl_waste_counter_t
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free

import heapq
import os

SLOTS = 1 << 16     # 49,152 keys are counted at a time, in 5 MiB


@cython.final
cdef class Waste:
    """Filled by a Rewriter. One thread. slots: a power of two, at least 4."""

    def __cinit__(self, int64_t slots=SLOTS, *, bytes secret=None):
        if slots < 4 or slots & (slots - 1):
            raise ValueError(f"slots={slots}: use a power of two, at least 4")
        if secret is None:
            secret = os.urandom(16)
        kl_keyhash_init(&self.hash, <const uint8_t *>secret, -1)
        self.waste.hash = &self.hash
        self.waste.slots = slots
        self.waste.table = <kl_waste_counter_t *>calloc(slots, sizeof(kl_waste_counter_t))
        self.waste.scratch = <kl_waste_counter_t *>calloc(slots, sizeof(kl_waste_counter_t))
        if self.waste.table == NULL or self.waste.scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.waste.table)
        free(self.waste.scratch)

    @property
    def reduced_by(self):
        """By how many bytes the count of a key may be too low; 0: every count is exact."""
        return self.waste.reduced_by

    def add(self, bytes key not None, int64_t size, int64_t offset):
        """Count `size` more bytes of a key, in the record at offset."""
        cdef kl_key_t wanted
        wanted.at, wanted.size = <const uint8_t *>key, <size_t>len(key)
        kl_waste_add(&self.waste, wanted, size, offset)

    def top(self, Py_ssize_t count):
        """[(bytes, records, offset of one of them)] of the keys with most bytes, in descending order."""
        cdef int64_t i
        cdef list found = [
            (self.waste.table[i].bytes, self.waste.table[i].records, self.waste.table[i].offset)
            for i in range(self.waste.slots) if self.waste.table[i].records != 0
        ]
        return heapq.nsmallest(count, found, key=rank)


def rank(entry):
    """Most bytes first; with equal bytes, the lower offset first."""
    return -entry[0], entry[2]
