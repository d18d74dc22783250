# cython: auto_pickle=False
"""The counters that every append and fetch moves: struct members for the hot paths, attributes for Python code.

One call in TIMED_ONE_IN is timed, the first one included: two clock reads would be 1 to 3 % of a short append.
"""

cimport cython
from libc.stdint cimport int64_t

from klog.durations cimport monotonic_ns

cdef enum:
    TIMED_ONE_IN = 16


cdef class Counters:
    """The counters of appends, under the log's lock, and of calls, for which the GIL is enough.

    What begins() returns goes to ends(): the time in ns, 0 if the call is not timed. options: the log's, for its clock.
    """

    cdef int64_t appended(self) noexcept:
        return self.bytes_in + self.replicated_bytes_in

    @cython.final
    cdef int64_t append_begins(self, options) except? -1:
        """Count an append."""
        self.appends += 1
        return monotonic_ns(options.clock) if self.appends & (TIMED_ONE_IN - 1) == 1 else 0

    @cython.final
    cdef int append_ends(self, int64_t began, options) except -1:
        """An append has succeeded."""
        return self.append_times.note_ns(monotonic_ns(options.clock) - began) if began else 0

    @cython.final
    cdef int64_t fetch_begins(self, options) except? -1:
        """A fetch begins. It counts when it ends or fails: the fast path may leave it to the full path."""
        return monotonic_ns(options.clock) if self.fetches & (TIMED_ONE_IN - 1) == 0 else 0

    @cython.final
    cdef int fetch_ends(self, int64_t began, int64_t size, options) except -1:
        """Count a fetch that has found size bytes."""
        self.fetches += 1
        self.bytes_out += size
        return self.fetch_times.note_ns(monotonic_ns(options.clock) - began) if began else 0

    @cython.final
    cdef void count_led(self, int64_t count, int64_t size) noexcept:
        """Count records, and their bytes, that a leader has appended."""
        self.messages_in += count
        self.bytes_in += size

    @cython.final
    cdef void count_replicated(self, int64_t size) noexcept:
        """Count bytes that a follower has appended."""
        self.replicated_bytes_in += size

    @cython.final
    cdef void count_failed_append(self) noexcept:
        self.failed_appends += 1

    @cython.final
    cdef void count_failed_fetch(self) noexcept:
        self.failed_fetches += 1

    @property
    def appended_counts(self):
        """What an append that is undone gives to take_back()."""
        return self.messages_in, self.bytes_in, self.replicated_bytes_in

    def take_back(self, counts):
        """Restore appended_counts."""
        self.messages_in, self.bytes_in, self.replicated_bytes_in = counts

    def read(self, int64_t size):
        """Count bytes that a reader has got without a fetch."""
        self.bytes_out += size

    # The same for Python code.

    def replicated(self, int64_t size):
        self.count_replicated(size)

    def append_failed(self):
        self.count_failed_append()

    def fetch_failed(self):
        self.count_failed_fetch()

    def begin_append(self, options):
        return self.append_begins(options)

    def end_append(self, int64_t began, options):
        self.append_ends(began, options)

    def begin_fetch(self, options):
        return self.fetch_begins(options)

    def end_fetch(self, int64_t began, int64_t size, options):
        self.fetch_ends(began, size, options)
