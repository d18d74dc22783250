from libc.stdint cimport int64_t, uint8_t

from klog.disk._send cimport SendCounts
from klog.network._mailbox cimport Mailbox
from klog.network._pool cimport MemoryPool

cdef enum:
    CONNECTED       # a socket of the acceptor
    MEMORY          # a connection may try again to get memory for its next request
    WATCH_PEER      # call a function if the peer closes its side before a request is completed
    QUEUE_SPACE     # the request queue has space again
    SWEEP           # look for expired connections now
    SHED            # close the connection that has been idle longest
    DRAIN           # take no more requests, and close each connection once all its responses are sent
    STOP            # close everything and end

cdef enum:
    END_OF_THROTTLE
    END_OF_DELAY

cdef enum:
    BUFFER_BYTES = 131072


cdef class NetworkThread:
    cdef readonly int number
    cdef readonly Mailbox mailbox
    cdef readonly MemoryPool pool
    cdef readonly object config
    cdef readonly object handler
    cdef readonly object is_cheap
    cdef readonly object queue
    cdef readonly object notices
    cdef readonly object clock
    cdef readonly object closed
    cdef readonly SendCounts sends
    cdef uint8_t *buffer
    cdef double now
    cdef list touched
    cdef list timers
    cdef int64_t order
    cdef object unqueued
    cdef bint draining
    cdef int handshakes_left
    cdef unsigned long ident
    cdef int64_t bytes_in, bytes_out, requests, responses, expired, throttled, refused, failed_handshakes, late

    cdef int touch(self, connection) except -1
    cdef int at(self, double due, connection, int kind) except -1
    cdef bint is_mine(self) noexcept
