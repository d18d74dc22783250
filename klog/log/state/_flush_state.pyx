# cython: auto_pickle=False
"""How much of a log is on disk.

  FS1  below recovery_point all data, indexes and names are on disk: only a finished flush, roll or restart raises it
  FS2  what removes records lowers it first, and the checkpoint with it

Kafka: LocalLog.recoveryPoint, lastFlushedTime.
"""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class FlushState:
    """The sole writer of these fields. Changed under the log's lock; any thread may read.

    recovery_point: the offset below which everything is on disk. flushed_ms: time of the last flush of the whole log, by
    the log's clock; before the first flush that of opening. flushed_bytes: bytes appended until then.
    """

    def __init__(self, int64_t recovery_point, int64_t now_ms):
        self.recovery_point = recovery_point
        self.flushed_ms = now_ms
        self.flushed_bytes = 0

    def flushed(self, int64_t recovery_point, int64_t now_ms, int64_t appended_bytes):
        """A flush under the log's lock has ended: all below recovery_point is on disk."""
        self.recovery_point = recovery_point
        self.flushed_ms = now_ms
        self.flushed_bytes = appended_bytes

    def flushed_beside(self, int64_t recovery_point, int64_t now_ms, int64_t appended_bytes):
        """A flush beside appends has ended. The recovery point stays if a roll has raised it further meanwhile."""
        self.flushed(max(self.recovery_point, recovery_point), now_ms, appended_bytes)

    def synced_up_to(self, int64_t recovery_point):
        """All below recovery_point is on disk after a roll, or no longer in the log after a restart at another offset."""
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
