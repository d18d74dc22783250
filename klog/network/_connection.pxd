from libc.stdint cimport int64_t, uint8_t

from klog.durations cimport Durations
from klog.network._frame cimport Frame
from klog.network._output cimport Flushed, Output
from klog.network._network_thread cimport NetworkThread


cdef class Request


cdef class Connection:
    cdef NetworkThread thread
    cdef readonly object listener
    cdef readonly object peer
    cdef readonly int64_t number
    cdef readonly object principal
    cdef public object state
    cdef readonly bint closed
    cdef object sock
    cdef int fd
    cdef int mute
    # input
    cdef bint readable, hung_up, eof, needs_memory, reserved
    cdef bint touched
    cdef int64_t limit          # bytes of the next request at most
    cdef int64_t wanted         # bytes of the request that arrives, -1: its size prefix is not complete
    cdef uint8_t prefix[4]
    cdef int prefixed
    cdef Frame body
    cdef bytes backlog          # received, not parsed yet, because the connection is muted
    cdef Py_ssize_t backlog_at
    # output
    cdef bint writable, unsent, finishing
    cdef Output output
    cdef list sending           # measured requests whose responses have not been sent, oldest first
    cdef int64_t sent_bytes       # bytes of the output that have been sent
    cdef object session         # of TLS
    cdef bytes encrypted
    cdef Py_ssize_t encrypted_at
    cdef bint handshaking           # the handshake is not complete
    cdef Request refusal        # of an authentication, to be sent after a delay
    cdef object disconnected    # called when the peer closes its side; None unless a request waits for that
    # times
    cdef double opened, active, frame_started

    cdef bint accepts(self) noexcept
    cdef bint is_pending(self) noexcept
    cdef int touch(self) except -1
    cdef int notice(self, unsigned int events) except -1
    cdef int watch_peer(self, Request request, callback) except -1
    cdef int report_disconnect(self) except -1
    cdef int process(self) except -1
    cdef bint has_output(self) noexcept
    cdef int close_if_done(self) except -1
    cdef int drain(self) except -1
    cdef int close(self, str reason) except -1
    cdef int drop_frame(self) except -1
    cdef object expired_by(self)
    cdef int receive(self) except -1
    cdef int received_nothing(self, ssize_t got) except -1
    cdef bint use_backlog(self) except -1
    cdef int use_decrypted(self, bytes data) except -1
    cdef Py_ssize_t consume(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef bint admit(self) except -1
    cdef double frame_clock(self) noexcept
    cdef int dispatch(self, frame) except -1
    cdef int complete(self, Request request) except -1
    cdef int add_response(self, Request request) except -1
    cdef int response_sent(self) except -1
    cdef int note_sent(self) except -1
    cdef int timer_expired(self, int kind) except -1
    cdef bint flush(self) except -1
    cdef bytes decrypted(self, Py_ssize_t size)
    cdef bint handshake_step(self) except -1
    cdef int tls_failed(self, error) except -1
    cdef int keep_encrypted(self, bytes data) except -1
    cdef Flushed flush_encrypted(self) except *


cdef class Request:
    cdef readonly Connection connection
    cdef readonly object frame
    cdef readonly double received
    cdef readonly bint completed
    cdef int64_t reserved
    cdef int outcome
    cdef object parts
    cdef int64_t throttle_ms
    cdef Durations queue_times, send_times, total_times     # None: the request is not measured
    cdef double handled         # when the response was complete; from taken() on, when the network thread took it
    cdef int64_t end_of_response    # in bytes of the output

    cdef int end(self, int outcome, parts, int64_t throttle_ms) except -1
    cdef int taken(self, double now) except -1
    cdef int sent(self, double now) except -1
