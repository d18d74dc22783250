# cython: auto_pickle=False
"""How much of a log is on disk.

  FS1  below recovery_point all data, indexes and names are on disk: only a finished flush, roll or restart raises it
  FS2  what removes records lowers it first, and the checkpoint with it
  FS3  flush.ms is measured by the monotonic clock: a jump of the wall clock neither delays a flush nor causes one

Kafka: LocalLog.recoveryPoint, lastFlushedTime.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from klog.clock import SystemClock


cdef int64_t monotonic_ms(clock) except? -1:
    """clock.monotonic() in milliseconds; for a SystemClock without the Python call."""
    cdef timespec at
    if type(clock) is SystemClock and clock_gettime(CLOCK_MONOTONIC, &at) == 0:
        return <int64_t>at.tv_sec * 1000 + at.tv_nsec // 1_000_000
    return round(clock.monotonic() * 1000)


@cython.final
cdef class FlushState:
    """The sole writer of these fields. Changed under the log's lock; any thread may read.

    recovery_point: the offset below which everything is on disk. flushed_ms: wall time of the last flush of the whole
    log; before the first flush that of opening. flushed_bytes: bytes appended until then.
    """

    def __init__(self, int64_t recovery_point, clock):
        self.clock = clock
        self.flushed(recovery_point, self.moment(0))

    def moment(self, int64_t appended_bytes):
        """Return what a flush that begins now passes on when it has ended."""
        return self.clock.wall_ms(), monotonic_ms(self.clock), appended_bytes

    def flushed(self, int64_t recovery_point, tuple moment):
        """A flush under the log's lock has ended: all below recovery_point is on disk."""
        self.recovery_point = recovery_point
        self.flushed_ms, self.since_ms, self.flushed_bytes = moment

    def flushed_beside(self, int64_t recovery_point, tuple moment):
        """A flush beside appends has ended. The recovery point stays if a roll has raised it further meanwhile."""
        self.flushed(max(self.recovery_point, recovery_point), moment)

    cpdef bint has_waited(self, int64_t flush_ms) except -1:
        """Have flush_ms passed since the last flush? FS3."""
        return flush_ms != INT64_MAX and monotonic_ms(self.clock) - self.since_ms >= flush_ms

    def synced_up_to(self, int64_t recovery_point):
        """All below recovery_point is on disk after a roll, or no longer in the log after a restart at another
        offset."""
        self.recovery_point = recovery_point

    def recount(self, int64_t flushed_bytes):
        """The log has other counters of appended bytes now: a move has exchanged it."""
        self.flushed_bytes = flushed_bytes

    def lower(self, int64_t recovery_point):
        """FS2. Returns False if the recovery point is there already or below."""
        if recovery_point >= self.recovery_point:
            return False
        self.recovery_point = recovery_point
        return True
