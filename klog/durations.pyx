# cython: auto_pickle=False
"""Durations counted in classes, cheap enough for the hot paths.

    class = 8 * (power of two of the nanoseconds) + the next three bits

Each class is an eighth of its power of two wide. The first holds all below 256 ns, the last all from 36 minutes on.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from klog.clock import SystemClock

cdef enum:
    FIRST_BIT = 8
    LAST_BIT = 41
    CLASSES = 8 * (LAST_BIT - FIRST_BIT)

cdef extern from *:
    int last_bit "63 - __builtin_clzll" (uint64_t) noexcept nogil


cdef int64_t monotonic_ns(clock) except? -1:
    """clock.monotonic() in nanoseconds; for a SystemClock without the Python call."""
    cdef timespec at
    if type(clock) is SystemClock and clock_gettime(CLOCK_MONOTONIC, &at) == 0:
        return <int64_t>at.tv_sec * 1_000_000_000 + at.tv_nsec
    return round(clock.monotonic() * 1e9)


cdef int class_of(int64_t ns) noexcept:
    cdef int bit
    if ns < <int64_t>1 << FIRST_BIT:
        return 0
    bit = last_bit(ns)
    return min(8 * (bit - FIRST_BIT) + ((ns >> (bit - 3)) & 7), CLASSES - 1)


cdef class Durations:
    """Count, sum and maximum, which are exact, and the number of durations in each class. Any thread; relies on the
    GIL."""

    def __dealloc__(self):
        PyMem_Free(self._classes)

    cdef int note_ns(self, int64_t ns) except -1:
        """Add one duration."""
        ns = max(ns, 0)
        self.make()
        self._classes[class_of(ns)] += 1
        self.count += 1
        self.total_ns += ns
        self.longest_ns = max(self.longest_ns, ns)
        return 0

    cdef int make(self) except -1:
        """Only with the first duration: of thousands of logs few are used."""
        if self._classes == NULL:
            self._classes = <int64_t *>PyMem_Calloc(CLASSES, sizeof(int64_t))
            if self._classes == NULL:
                raise MemoryError
        return 0

    def note(self, double seconds):
        """Add one duration."""
        self.note_ns(<int64_t>(seconds * 1e9))

    def add(self, Durations other not None):
        """Add all durations of another object."""
        if other._classes == NULL:
            return
        self.make()
        for i in range(CLASSES):
            self._classes[i] += other._classes[i]
        self.count += other.count
        self.total_ns += other.total_ns
        self.longest_ns = max(self.longest_ns, other.longest_ns)

    @property
    def total(self):
        """The sum in seconds."""
        return self.total_ns / 1e9

    @property
    def longest(self):
        """The longest in seconds; 0 without durations."""
        return self.longest_ns / 1e9

    def percentile(self, double percent):
        """The seconds that `percent` of the durations do not exceed, at most 12.5 % too high; 0 without durations."""
        cdef double wanted = self.count * percent / 100
        cdef int64_t passed = 0
        if self._classes == NULL:
            return 0.0
        for i in range(CLASSES):
            passed += self._classes[i]
            if self._classes[i] and passed >= wanted:
                return min(<double>(<int64_t>(9 + i % 8) << (FIRST_BIT + i // 8 - 3)), <double>self.longest_ns) / 1e9
        return self.longest
