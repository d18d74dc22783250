"""The memory of requests: from the size prefix of a frame until its handler releases it or completes the request.

A frame is admitted while any memory is left, so the pool may go below zero by one frame per admission: an admitted
frame can always complete, and no two half-received ones wait for each other. A frame that is not admitted waits, and
its connection is not read. Only the count is pooled: each frame has memory of its own, which grows with the bytes that
arrive. Kafka: SimpleMemoryPool, not strict.
"""

cimport cython
from libc.stdint cimport int64_t

from collections import deque


@cython.final
cdef class MemoryPool:
    """limit: bytes; 0 or less: no limit. Any thread, under the GIL.

    A waiter has memory_available(), which is called from the thread that gives memory back.
    """

    def __cinit__(self, int64_t limit, clock):
        self.limit = max(limit, 0)
        self.available = self.limit
        self.waiting = deque()
        self.clock = clock
        self.depleted_at = -1.0

    cdef bint take(self, int64_t size, waiter) except -1:
        """Admit a frame of this size. False: the waiter is called once there is memory."""
        if self.limit == 0:
            return True
        if self.available <= 0:
            self.refused += 1
            self.waiting.append(waiter)
            return False
        self.available -= size
        if self.available <= 0:
            self.depleted_at = self.clock.monotonic()
        return True

    cdef int give(self, int64_t size) except -1:
        if self.limit == 0:
            return 0
        self.available += size
        assert self.available <= self.limit
        if self.available > 0:
            if self.depleted_at >= 0:
                self.depleted_seconds += self.clock.monotonic() - self.depleted_at
                self.depleted_at = -1.0
            self.wake()
        return 0

    cdef int wake(self) except -1:
        """Let the connection that waits longest try again. It calls this again: one release admits as many as fit."""
        if self.available > 0 and self.waiting:
            self.waiting.popleft().memory_available()
        return 0

    def metrics(self):
        """The values under Kafka's names."""
        return {
            "MemoryPoolAvailable": self.available,
            "MemoryPoolUsed": self.limit - self.available,
            "MemoryPoolDepletedTimeTotal": self.depleted_seconds * 1e9,
        }
