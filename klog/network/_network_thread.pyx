"""What the connections of one network thread share: the receive buffer, timers, counters, and the connections that have
work to do.

Written by that thread alone; other threads post to its mailbox, and read the counters.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport uint8_t

from klog.disk._send cimport SendCounts

from collections import deque
from heapq import heapify, heappush

cdef extern from "pythread.h" nogil:
    unsigned long PyThread_get_thread_ident()

cdef enum:
    FORGET_AT = 1024        # timers, and at each doubling: then those of closed connections are dropped


@cython.final
cdef class NetworkThread:
    """closed: called with each connection that has been closed. queue: the RequestQueue; is_cheap: which requests are
    handled in this thread, None for none."""

    def __cinit__(self, int number, config, MemoryPool pool, handler, queue, notices, clock, closed):
        self.number = number
        self.config = config
        self.pool = pool
        self.handler = handler
        self.is_cheap = getattr(handler, "is_cheap", None)
        self.queue = queue
        self.notices = notices
        self.clock = clock
        self.closed = closed
        self.mailbox = Mailbox()
        self.sends = SendCounts()
        self.touched = []
        self.timers = []
        self.unqueued = deque()
        self.buffer = <uint8_t *>PyMem_RawMalloc(BUFFER_BYTES)
        if self.buffer == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_RawFree(self.buffer)

    cdef int touch(self, connection) except -1:
        """Process the connection in this iteration of the loop, or in the next one."""
        self.touched.append(connection)
        return 0

    cdef int at(self, double due, connection, int kind) except -1:
        """Notify the connection at a time of the monotonic clock, unless it has been closed before."""
        cdef Py_ssize_t count = len(self.timers)
        if count >= FORGET_AT and (count & (count - 1)) == 0:
            # A throttle may last for weeks, and its client may connect again all the time.
            self.timers = [each for each in self.timers if not each[2].closed]
            heapify(self.timers)
        self.order += 1
        heappush(self.timers, (due, self.order, connection, kind))
        return 0

    cdef bint is_mine(self) noexcept:
        """Is this the network thread itself?"""
        return self.ident == PyThread_get_thread_ident()

    def counts(self):
        """The counters, by name. Any thread."""
        return {
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "requests": self.requests,
            "responses": self.responses,
            "expired": self.expired,
            "throttled": self.throttled,
            "refused": self.refused,
            "failed_handshakes": self.failed_handshakes,
            "responses_to_closed": self.late,
            "bytes_by_sendfile": self.sends.sendfile,
        }
