"""One connection: frames in, one request at a time, responses out.

    frame := size:i32 (big-endian)  body:size bytes

  C1  all fields are written by the network thread of the connection; a request that is completed in another thread is
      posted to it. So responses are sent in the order of the requests
  C2  the memory of a frame grows with the bytes that arrive (F1); received bytes that are not parsed yet are at most
      one receive, BUFFER_BYTES
  C3  the next request is handled only when at most 64 KiB of responses, of less than SENDING_MAX measured requests,
      wait to be sent: a peer that does not read uses the memory of these and of one more response
  C4  after the peer has closed, the complete requests that it had sent are still handled; after an error they are not
  C5  a request that waits is notified when the peer closes its side: the peer may wait for the response, or be gone,
      which only a response shows. Kafka reads the end of the stream after the response

Descriptors are edge-triggered: `readable` and `writable` keep what the kernel has reported, until a call is refused or
takes less than it could. Kafka: KafkaChannel, NetworkReceive, SocketServer.Processor.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from klog._c.bytes cimport kl_load_u32
from klog.durations cimport Durations
from klog.network._frame cimport Frame
from klog.network._mute cimport (
    MUTE, NOT_MUTED, REQUEST_RECEIVED, RESPONSE_PENDING, RESPONSE_SENT, THROTTLE_ENDED, THROTTLE_STARTED,
    THROTTLED_AND_PENDING, UNMUTE, after,
)
from klog.network._output cimport BLOCKED, EMPTY, MORE, FileSlice, Flushed, Output
from klog.network._network_thread cimport (
    BUFFER_BYTES, END_OF_DELAY, END_OF_THROTTLE, MEMORY, WATCH_PEER, NetworkThread,
)

import os

from klog.arguments import function, whole

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *data, size_t size, int flags)
    ssize_t send(int fd, const void *data, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_TRUNC

cdef extern from "<sys/epoll.h>" nogil:
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLLERR
        EPOLLHUP
        EPOLLRDHUP

cdef enum:
    DIRECT_BYTES = 32768        # of a frame still to come: received into its own memory
    HOLD_BYTES = 131072         # a receive of so much is too short to be worth taking the GIL back
    ROUNDS = 4                  # of one connection, before other connections are processed
    SENDING_MAX = 256           # measured responses that may be sent together

cdef enum:
    RESPONDED
    SILENT
    CLOSED
    REFUSED

ANONYMOUS = "User:ANONYMOUS"


@cython.final
cdef class Connection:
    """Facts about a connection, for handlers. Any thread may read them.

    listener: its Listener. peer: the address as the socket gives it. number: unique in the server. principal: of
    the peer; User:ANONYMOUS until it has authenticated. state: for the handler; klog does not touch it.
    """

    def __cinit__(self, NetworkThread thread, sock, listener, peer, int64_t number, session):
        self.thread = thread
        self.sock, self.listener, self.peer, self.number = sock, listener, peer, number
        self.fd = sock.fileno()
        self.principal = ANONYMOUS
        self.mute = NOT_MUTED
        self.wanted = -1
        self.writable = True
        self.output = Output()
        self.sending = []
        self.session = session
        self.handshaking = session is not None
        self.limit = (
            thread.config.unauthenticated_request_max_bytes if listener.authenticates
            else thread.config.socket_request_max_bytes
        )
        self.opened = self.active = thread.now

    def __repr__(self):
        return f"<Connection {self.id}{' closed' if self.closed else ''}>"

    @property
    def id(self):
        """local address-peer address-network thread-number, as in Kafka."""
        return f"{self.listener.host}:{self.listener.port}-{self.peer[0]}:{self.peer[1]}-{self.thread.number}-{self.number}"

    def authenticate(self, principal):
        """Set the principal of the peer, and admit requests of up to socket.request.max.bytes. Any thread."""
        if not isinstance(principal, str):
            raise TypeError(f"principal={principal!r}: a str expected, not {type(principal).__name__}")
        self.principal = principal
        self.limit = self.thread.config.socket_request_max_bytes

    def memory_available(self):
        """For the memory pool. Any thread."""
        self.thread.mailbox.post((MEMORY, self))

    # ---- state -------------------------------------------------------------------------------------------------------

    cdef bint accepts(self) noexcept:
        """May the next request be handled?"""
        return (
            self.mute == NOT_MUTED and not self.needs_memory and not self.finishing and not self.closed
            and not self.thread.draining
        )

    cdef bint is_pending(self) noexcept:
        """Is a request being handled, or its response being sent?"""
        return self.mute == RESPONSE_PENDING or self.mute == THROTTLED_AND_PENDING

    cdef int touch(self) except -1:
        if not self.touched and not self.closed:
            self.touched = True
            self.thread.touch(self)
        return 0

    cdef int notice(self, unsigned int events) except -1:
        """What epoll has reported."""
        if events & EPOLLERR or events & EPOLLHUP:
            self.close("reset")
            return 0
        if events & (EPOLLIN | EPOLLRDHUP):
            self.readable = True
            if events & EPOLLRDHUP:
                self.hung_up = True
                self.report_disconnect()
        if events & EPOLLOUT:
            self.writable = True
        self.touch()
        return 0

    cdef int watch_peer(self, Request request, callback) except -1:
        """Request.on_disconnect(), in the network thread."""
        if not request.completed:
            self.disconnected = callback
            if self.hung_up or self.closed:
                self.report_disconnect()
        return 0

    cdef int report_disconnect(self) except -1:
        callback, self.disconnected = self.disconnected, None
        if callback is not None:
            try:
                callback()
            except Exception as error:
                self.thread.notices.error("handler_failed", error, connection=self.id)
        return 0

    cdef int process(self) except -1:
        """Do everything that can be done without waiting, but yield to other connections after a few rounds."""
        cdef bint progress
        self.touched = False
        for _ in range(ROUNDS):
            progress = False
            if self.closed:
                return 0
            if self.handshaking:
                progress = self.handshake_step()
            elif self.accepts():
                if self.backlog is not None:
                    progress = self.use_backlog()
                elif self.readable:
                    self.receive()
                    progress = True
            if self.closed:
                return 0
            if self.writable and self.has_output() and not (self.backlog is not None and self.accepts()):
                progress |= self.flush()
            if self.closed or not progress:
                break
        else:
            self.touch()
        self.close_if_done()
        return 0

    cdef bint has_output(self) noexcept:
        return self.output.size > 0 or self.encrypted is not None

    cdef int close_if_done(self) except -1:
        if self.closed or self.has_output() or self.is_pending():
            return 0
        if not (self.finishing or self.thread.draining or (self.eof and self.backlog is None)):
            return 0
        if self.session is not None and not self.handshaking:
            self.keep_encrypted(self.session.end())
            self.flush()
            if self.closed:
                return 0
        if self.finishing or self.thread.draining:
            recv(self.fd, NULL, 1 << 20, MSG_TRUNC)     # closing with unread bytes would reset, and drop the response
        self.close("done")
        return 0

    cdef int drain(self) except -1:
        """The loop drains: handle no more requests, and close when all responses have been sent."""
        if self.body is not None or self.wanted >= 0:
            self.drop_frame()
        self.backlog = None
        self.close_if_done()
        return 0

    cdef int close(self, str reason) except -1:
        if self.closed:
            return 0
        self.closed = True
        self.drop_frame()
        self.backlog = None
        self.encrypted = None
        self.output.clear()
        if self.refusal is not None:
            self.sending.append(self.refusal)
            self.refusal = None
        for request in self.sending:
            (<Request>request).sent(self.thread.now)
        self.sending.clear()
        self.thread.closed(self, self.sock, reason)
        self.report_disconnect()
        return 0

    cdef int drop_frame(self) except -1:
        self.body = None
        if self.reserved:
            self.reserved = False
            self.thread.pool.give(self.wanted)
        self.wanted = -1
        return 0

    cdef object expired_by(self):
        """The name of the limit that the connection has exceeded by now, None if there is none."""
        cdef double now = self.thread.now
        config = self.thread.config
        if self.handshaking and now - self.opened > config.handshake_ms / 1000:
            return "handshake"
        if self.frame_started > 0 and now - self.frame_started > config.frame_ms / 1000:
            return "frame"
        if config.connections_max_idle_ms >= 0 and now - self.active > config.connections_max_idle_ms / 1000:
            return "idle"
        return None

    # ---- input -------------------------------------------------------------------------------------------------------

    cdef int receive(self) except -1:
        """One receive, and the requests in it."""
        cdef uint8_t *data = self.thread.buffer
        cdef Py_ssize_t space = BUFFER_BYTES, used
        cdef ssize_t got
        cdef bint direct = self.body is not None and self.session is None
        if direct:
            direct = self.wanted - self.body.filled >= DIRECT_BYTES
        if direct:
            self.body.grow()
            data = self.body.data + self.body.filled
            space = self.body.capacity - self.body.filled
        if space <= HOLD_BYTES:
            got = recv(self.fd, data, space, 0)
        else:
            with nogil:
                got = recv(self.fd, data, space, 0)
        if got <= 0:
            return self.received_nothing(got)
        if got < space and not self.hung_up:
            self.readable = False
        self.thread.bytes_in += got
        self.active = self.thread.now
        if direct:
            self.body.filled += got
            if self.body.filled == self.wanted:
                self.dispatch(self.body)
        elif self.session is not None:
            self.use_decrypted(self.decrypted(got))
        else:
            used = self.consume(data, got)
            if used < got and not self.closed:
                self.backlog, self.backlog_at = data[used:got], 0
        return 0

    cdef int received_nothing(self, ssize_t got) except -1:
        if got == 0:
            self.eof = True
            self.readable = False
        elif errno == EAGAIN:
            self.readable = False
        elif errno != EINTR:
            self.close("reset")
        return 0

    cdef bint use_backlog(self) except -1:
        """Process the bytes that were received while the connection was muted. Returns whether there was progress."""
        cdef bytes data = self.backlog
        cdef Py_ssize_t at = self.backlog_at, used
        used = self.consume(<const uint8_t *>(<const char *>data) + at, len(data) - at)
        if at + used == len(data):
            self.backlog = None
        else:
            self.backlog_at = at + used
        return used > 0

    cdef int use_decrypted(self, bytes data) except -1:
        """Process decrypted bytes."""
        if data and not self.closed:
            self.backlog, self.backlog_at = data, 0
            self.use_backlog()
        return 0

    cdef Py_ssize_t consume(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Take requests from received bytes while the connection accepts any. Returns the number of bytes used."""
        cdef Py_ssize_t at = 0, part
        while self.accepts():
            if self.wanted < 0:
                part = min(<Py_ssize_t>4 - self.prefixed, size - at)
                memcpy(self.prefix + self.prefixed, data + at, part)
                self.prefixed += part
                at += part
                if self.prefixed < 4:
                    break
                if not self.admit():
                    return size
            if not self.reserved:
                if not self.thread.pool.take(self.wanted, self):
                    self.needs_memory = True
                    break
                self.reserved = True
            if self.body is None and size - at >= self.wanted:
                at += self.wanted
                self.dispatch((<const char *>data)[at - self.wanted:at])
                continue
            if self.body is None:
                self.body = Frame(self.wanted)
            part = min(size - at, self.wanted - self.body.filled)
            self.body.append(data + at, part)
            at += part
            if self.body.filled < self.wanted:
                break
            self.dispatch(self.body)
        self.frame_started = self.frame_clock()
        return at

    cdef bint admit(self) except -1:
        """Check the size prefix. False: the connection will be closed, after the responses before."""
        cdef int32_t announced = <int32_t>kl_load_u32(self.prefix)
        self.prefixed = 0
        if announced < 0 or announced > self.limit:
            self.thread.refused += 1
            self.thread.notices.warn(
                "frame_refused", connection=self.id, size=announced, limit=self.limit,
                hint="TLS on a plaintext port" if self.prefix[0] == 0x16 else "not a request, or above the limit",
            )
            self.finishing = True
            return False
        self.wanted = announced
        return True

    cdef double frame_clock(self) noexcept:
        """When the frame that is arriving began; 0 if none is, or if it waits for memory."""
        if not self.accepts() or (self.wanted < 0 and self.prefixed == 0):
            return 0
        return self.frame_started if self.frame_started > 0 else self.thread.now

    cdef int dispatch(self, frame) except -1:
        """Pass a complete request to its handler: here if that is cheap, else to a handler thread."""
        cdef NetworkThread thread = self.thread
        cdef Request request = Request.__new__(Request)
        request.connection = self
        request.frame = memoryview(frame)
        request.received = thread.now
        request.reserved = self.wanted
        self.body = None
        self.wanted = -1
        self.reserved = False
        self.frame_started = 0
        self.mute = after(after(self.mute, MUTE), REQUEST_RECEIVED)
        thread.requests += 1
        if thread.is_cheap is not None:
            try:
                if thread.is_cheap(request):
                    thread.handler(request)
                    return 0
            except Exception as error:
                request.failed(error)
                return 0
        if thread.unqueued or not thread.queue.offer(request, thread.mailbox):
            thread.unqueued.append(request)
        return 0

    # ---- output ------------------------------------------------------------------------------------------------------

    cdef int complete(self, Request request) except -1:
        """A request has been completed. In the network thread."""
        cdef NetworkThread thread = self.thread
        self.disconnected = None
        thread.pool.give(request.reserved)
        request.taken(thread.now)
        if self.closed:
            thread.late += 1
            request.sent(thread.now)
            return 0
        if request.outcome == REFUSED:
            thread.at(thread.now + thread.config.failed_authentication_delay_ms / 1000, self, END_OF_DELAY)
            self.refusal = request
            return 0
        if request.throttle_ms > 0:
            thread.throttled += 1
            self.mute = after(self.mute, THROTTLE_STARTED)
            thread.at(thread.now + request.throttle_ms / 1000.0, self, END_OF_THROTTLE)
        self.add_response(request)
        return 0

    cdef int add_response(self, Request request) except -1:
        cdef int64_t before = self.output.added
        if request.outcome == CLOSED or request.outcome == REFUSED:
            self.finishing = True
        if request.parts is not None:
            self.thread.responses += 1
            for part in request.parts:
                self.output.add(part)
        request.parts = None
        if self.output.added == before:
            request.sent(self.thread.now)
        elif request.total_times is not None:
            request.end_of_response = self.output.added
            self.sending.append(request)
        if self.output.is_light() and len(self.sending) < SENDING_MAX:
            self.response_sent()
        else:
            self.unsent = True
        self.touch()
        return 0

    cdef int response_sent(self) except -1:
        self.unsent = False
        self.mute = after(after(self.mute, RESPONSE_SENT), UNMUTE)
        return 0

    cdef int note_sent(self) except -1:
        """Note the times of the responses that have been sent; they share one reading of the clock."""
        cdef Request request
        cdef Py_ssize_t count = 0
        cdef double now = 0
        for request in self.sending:
            if request.end_of_response > self.sent_bytes:
                break
            if count == 0:
                now = self.thread.clock.monotonic()
            request.sent(now)
            count += 1
        if count > 0:
            del self.sending[:count]
        return 0

    cdef int timer_expired(self, int kind) except -1:
        if self.closed:
            return 0
        if kind == END_OF_THROTTLE:
            self.mute = after(after(self.mute, THROTTLE_ENDED), UNMUTE)
            self.touch()
        else:
            if self.refusal is None:
                self.close("handshake")
            else:
                self.add_response(self.refusal)
                self.refusal = None
        return 0

    cdef bint flush(self) except -1:
        """Send what the socket takes. Returns whether the connection can go on: all was sent, or more may be."""
        cdef Flushed status
        cdef int64_t before = self.output.size
        try:
            if self.session is not None:
                status = self.flush_encrypted()
            else:
                status = self.output.flush(self.sock, self.fd, self.thread.sends)
                self.thread.bytes_out += before - self.output.size
                self.sent_bytes = self.output.added - self.output.size
        except (OSError, EOFError) as error:
            if isinstance(error, EOFError):
                self.thread.notices.warn("response_failed", connection=self.id, error=error)
            self.close("send")
            return False
        if self.output.size < before:
            self.active = self.thread.now
        if self.sending:
            self.note_sent()
        if status == BLOCKED:
            self.writable = False
            return False
        if status == EMPTY and self.unsent:
            self.response_sent()
        return True

    # ---- TLS ---------------------------------------------------------------------------------------------------------

    cdef bytes decrypted(self, Py_ssize_t size):
        """Pass received bytes to the TLS session. Returns the decrypted ones. They may complete the handshake."""
        cdef bytes data
        try:
            data = self.session.receive((<const char *>self.thread.buffer)[:size])
        except OSError as error:                # ssl.SSLError is one
            self.tls_failed(error)
            return b""
        if self.handshaking and self.session.established:
            self.handshaking = False
            self.principal = self.session.principal or ANONYMOUS
        if self.session.ended:
            self.eof, self.readable = True, False
        self.keep_encrypted(self.session.output())
        return data

    cdef bint handshake_step(self) except -1:
        """A step of the handshake. Returns whether another one may follow."""
        if not self.readable:
            return False
        if self.thread.handshakes_left <= 0:
            self.touch()
            return False
        self.thread.handshakes_left -= 1
        self.receive()
        if self.closed:
            return False
        if self.handshaking and self.eof:
            self.close("eof")
        return True

    cdef int tls_failed(self, error) except -1:
        """Send the alert, and close: later if it was the handshake, so that a failure takes the peer time."""
        self.keep_encrypted(self.session.output())
        self.readable = False
        if not self.handshaking:
            self.close("tls")
            return 0
        self.handshaking = False
        self.thread.failed_handshakes += 1
        self.thread.notices.warn("tls_handshake_failed", connection=self.id, error=error)
        if self.encrypted is not None:
            self.flush()
        if not self.closed:
            self.mute = after(after(self.mute, MUTE), REQUEST_RECEIVED)     # nothing is read until it is closed
            self.thread.at(
                self.thread.now + self.thread.config.failed_authentication_delay_ms / 1000, self, END_OF_DELAY
            )
        return 0

    cdef int keep_encrypted(self, bytes data) except -1:
        if data:
            self.encrypted = data if self.encrypted is None else self.encrypted[self.encrypted_at:] + data
            self.encrypted_at = 0
        return 0

    cdef Flushed flush_encrypted(self) except *:
        """Encrypt and send piece by piece: a piece is encrypted when the one before has been sent."""
        cdef ssize_t written
        cdef const char *data
        for _ in range(32):
            if self.encrypted is None:
                if self.output.size == 0:
                    return EMPTY
                self.keep_encrypted(self.session.encrypt(self.output.take()))
            data = self.encrypted
            written = send(self.fd, data + self.encrypted_at, len(self.encrypted) - self.encrypted_at, MSG_NOSIGNAL)
            if written < 0:
                if errno == EAGAIN:
                    return BLOCKED
                if errno == EINTR:
                    continue
                raise OSError(errno, os.strerror(errno))
            self.thread.bytes_out += written
            self.active = self.thread.now
            self.encrypted_at += written
            if self.encrypted_at == len(self.encrypted):
                self.encrypted = None
                self.sent_bytes = self.output.added - self.output.size
        return MORE


cdef object part_of(part):
    """A part of a response as Output takes it."""
    if type(part) is bytes or type(part) is FileSlice:
        return part
    try:
        view = memoryview(part)
    except TypeError:
        raise TypeError(f"parts: bytes, buffers and FileSlices expected, not {type(part).__name__}") from None
    return view.cast("B")


cdef int64_t waits(throttle_ms) except -1:
    """An argument throttle_ms, checked."""
    if type(throttle_ms) is int and 0 <= throttle_ms < 1 << 31:
        return throttle_ms
    return whole("throttle_ms", throttle_ms, 0)


@cython.final
cdef class Request:
    """One request, which its handler completes once: by respond(), no_response() or close(), now or later. Any thread.

    connection: where it came from. frame: its bytes, a memoryview that is released when the request is completed, or
    before that by release().
    received: seconds of the monotonic clock. A request that is dropped without being completed closes its connection.
    """

    def respond(self, parts, *, throttle_ms=0):
        """Send a response. parts: bytes, a buffer or a FileSlice, or a list or tuple of them. They must not change
        until they have been sent. throttle_ms: how long the connection is not read afterwards. Raises RuntimeError if
        the request has been completed."""
        found = [part_of(part) for part in parts] if isinstance(parts, (list, tuple)) else [part_of(parts)]
        self.end(RESPONDED, found, waits(throttle_ms))

    def no_response(self, *, throttle_ms=0):
        """End the request without a response, as Produce with acks=0 does. throttle_ms, errors: as above."""
        self.end(SILENT, None, waits(throttle_ms))

    def close(self):
        """Close the connection, after the responses before. Errors as above."""
        self.end(CLOSED, None, 0)

    def refuse_authentication(self, parts):
        """Send this response after connection.failed.authentication.delay.ms, then close. Errors as above."""
        found = [part_of(part) for part in parts] if isinstance(parts, (list, tuple)) else [part_of(parts)]
        self.end(REFUSED, found, 0)

    def release(self):
        """The frame is no longer needed: give its memory back while the request waits. Nothing happens if the request
        has been completed, or if the buffer of the frame is in use. Any thread."""
        cdef int64_t reserved
        if self.completed:
            return
        try:
            self.frame.release()
        except BufferError:
            return
        reserved, self.reserved = self.reserved, 0      # before give(), which may let another thread run
        self.connection.thread.pool.give(reserved)

    def measure(self, double now, Durations queue not None, Durations send not None, Durations total not None):
        """Record the times of the response, each once, in the network thread: queue, until that thread takes it; send,
        from then until the socket has taken its last byte or the connection is closed; total, from the arrival of the
        request until then. now: of the monotonic clock, in seconds. To be called before the request is completed, else
        ignored."""
        if not self.completed:
            self.handled = now
            self.queue_times, self.send_times, self.total_times = queue, send, total

    def on_disconnect(self, callback):
        """Call callback() once, in the network thread, if the peer closes its side of the connection, or the connection
        is closed, before the request is completed: at once if that has happened. The peer may still read a response.
        After the end of that thread, in the caller's. A later callback replaces an earlier one; None ends it. Any
        thread. TypeError if it is not a function."""
        function("callback", callback)
        cdef NetworkThread thread = self.connection.thread
        message = (WATCH_PEER, (self, callback))    # now: between the look at fd and post() nothing may release the GIL
        if thread.is_mine() or thread.mailbox.fd < 0:
            self.connection.watch_peer(self, callback)
        else:
            thread.mailbox.post(message)

    def failed(self, error):
        """Close the connection, because its handler raised this."""
        self.connection.thread.notices.error("handler_failed", error, connection=self.connection.id)
        if not self.completed:
            self.end(CLOSED, None, 0)

    cdef int end(self, int outcome, parts, int64_t throttle_ms) except -1:
        cdef NetworkThread thread = self.connection.thread
        if self.completed:
            raise RuntimeError("the request has been completed before")
        self.completed = True
        self.outcome, self.parts, self.throttle_ms = outcome, parts, throttle_ms
        try:
            self.frame.release()
        except BufferError:     # the handler keeps a view of it, which stays valid
            pass
        if thread.is_mine():
            self.connection.complete(self)
        else:
            thread.mailbox.post(self)
        return 0

    cdef int taken(self, double now) except -1:
        """The network thread has the response. In an iteration of the loop that began before the handler ended: at
        once."""
        if self.total_times is not None:
            now = max(now, self.handled)
            self.queue_times.note_ns(<int64_t>((now - self.handled) * 1e9))
            self.handled = now
        return 0

    cdef int sent(self, double now) except -1:
        """The response has been sent, or will not be."""
        if self.total_times is not None:
            now = max(now, self.handled)
            self.send_times.note_ns(<int64_t>((now - self.handled) * 1e9))
            self.total_times.note_ns(<int64_t>((now - self.received) * 1e9))
        return 0

    def __del__(self):
        if self.connection is not None and not self.completed:
            self.end(CLOSED, None, 0)
