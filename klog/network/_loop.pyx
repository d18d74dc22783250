"""A network thread: waits in epoll, and processes its connections. Kafka: SocketServer.Processor.

An iteration of the loop: new connections and messages, what the kernel reports, the connections that can make progress,
timers, then the wait. Each descriptor is registered once. A small request costs epoll_wait, recv and sendmsg; requests
that arrive together share them. An exception in one connection closes that connection.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno

from klog.network._connection cimport Connection, Request
from klog.network._network_thread cimport (
    CONNECTED, DRAIN, MEMORY, QUEUE_SPACE, SHED, STOP, SWEEP, WATCH_PEER, NetworkThread,
)

import os
import random
from heapq import heappop

from klog.clock import ManualClock

cdef extern from "<sys/epoll.h>" nogil:
    enum:
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
        EPOLLIN
        EPOLLOUT
        EPOLLRDHUP
        EPOLLET
        EPOLL_CLOEXEC
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int size, int timeout_ms)

cdef extern from "pythread.h" nogil:
    unsigned long PyThread_get_thread_ident()

cdef enum:
    EVENTS_MAX = 512
    HANDSHAKES_MAX = 8      # of an iteration: each takes up to a millisecond of the processor
    NEW_MAX = 20            # connections that may wait for a network thread, as in Kafka


@cython.final
cdef class Loop:
    """One network thread's connections. run() is the thread; any thread may call the methods that post.

    In the network thread: freed is called with listener and address of each connection that has been closed, can_accept
    when new ones may come again.
    """

    cdef readonly NetworkThread thread
    cdef object freed, can_accept
    cdef dict connections       # by descriptor
    cdef int epoll
    cdef int arriving           # connections that have been posted and not yet registered
    cdef bint stopping
    cdef bint manual
    cdef double next_sweep, sweep_seconds
    cdef double waited, began
    cdef double waits_since     # 0: it does not wait

    def __cinit__(self, int number, config, pool, handler, queue, notices, clock, freed, can_accept):
        self.epoll = -1
        self.thread = NetworkThread(number, config, pool, handler, queue, notices, clock, self.forget)
        self.freed, self.can_accept = freed, can_accept
        self.connections = {}
        self.manual = isinstance(clock, ManualClock)
        self.sweep_seconds = config.sweep_seconds
        self.began = self.thread.now = clock.monotonic()
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self.watch(self.thread.mailbox.fd, EPOLLIN | <unsigned int>EPOLLET)

    cdef int watch(self, int fd, unsigned int events) except -1:
        cdef epoll_event event
        event.events = events
        event.data.fd = fd
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    # ---- any thread --------------------------------------------------------------------------------------------------

    @property
    def is_full(self):
        """Do so many new connections wait for this thread that it should get no more?"""
        return self.arriving >= NEW_MAX

    def connect(self, sock, listener, peer, number, session):
        """Take over an accepted socket."""
        self.arriving += 1
        self.thread.mailbox.post((CONNECTED, (sock, listener, peer, number, session)))

    def sweep(self):
        """Look for expired connections now."""
        self.thread.mailbox.post((SWEEP, None))

    def shed(self):
        """Close the connection that has been idle longest, of listeners that are not protected."""
        self.thread.mailbox.post((SHED, None))

    def drain(self):
        """Take no more requests, complete those that are being handled, then end."""
        self.thread.mailbox.post((DRAIN, None))

    def stop(self):
        """Close all connections, and end."""
        self.thread.mailbox.post((STOP, None))

    @property
    def count(self):
        """Number of connections."""
        return len(self.connections)

    @property
    def idle_ratio(self):
        """The share of time in which the thread waited, since it began."""
        cdef double now = self.thread.clock.monotonic(), waited = self.waited
        if self.waits_since > 0:
            waited += now - self.waits_since
        return min(1.0, waited / (now - self.began)) if now > self.began else 1.0

    # ---- the thread --------------------------------------------------------------------------------------------------

    def run(self):
        """Serve until stop(), or until everything has been drained."""
        self.thread.ident = PyThread_get_thread_ident()
        self.next_sweep = self.thread.now + self.sweep_seconds
        try:
            while not self.stopping and not (self.thread.draining and not self.connections):
                try:
                    self.run_once()
                except Exception as error:      # of the loop itself: the next iteration may succeed
                    self.thread.notices.error("loop_failed", error, thread=self.thread.number)
        finally:
            self.end()

    cdef int run_once(self) except -1:
        cdef epoll_event events[EVENTS_MAX]
        cdef int count, timeout = self.timeout_ms(), number, failure
        cdef Connection connection
        if timeout != 0 and not self.thread.mailbox.may_sleep():
            timeout = 0
        if timeout != 0:
            self.waits_since = self.thread.clock.monotonic()
        with nogil:
            count = epoll_wait(self.epoll, events, EVENTS_MAX, timeout)
            failure = errno     # now: the clock is Python code, which may change it
        self.thread.now = self.thread.clock.monotonic()
        if timeout != 0:
            self.waited += self.thread.now - self.waits_since
            self.waits_since = 0
        if count < 0:
            if failure != EINTR:
                raise OSError(failure, os.strerror(failure))
            PyErr_CheckSignals()
            count = 0
        self.thread.handshakes_left = HANDSHAKES_MAX
        for number in range(count):
            if events[number].data.fd == self.thread.mailbox.fd:
                continue
            connection = self.connections.get(events[number].data.fd)
            if connection is not None:
                try:
                    connection.notice(events[number].events)
                except Exception as error:
                    self.fail(connection, error)
        self.read_messages()
        self.run_timers()
        self.run_touched()
        return 0

    cdef int timeout_ms(self) except -2:
        """How long to wait: -1 for ever."""
        cdef double due
        if self.thread.touched:
            return 0
        if self.manual or not self.connections:
            return -1
        due = self.next_sweep
        if self.thread.timers and <double>self.thread.timers[0][0] < due:
            due = self.thread.timers[0][0]
        return max(0, min(<int>((due - self.thread.now) * 1000) + 1, 3_600_000))

    cdef int read_messages(self) except -1:
        cdef Connection connection
        for message in self.thread.mailbox.receive():
            if type(message) is Request:
                connection = (<Request>message).connection
                try:
                    connection.complete(message)
                except Exception as error:
                    self.fail(connection, error)
            else:
                self.read(message[0], message[1])
        return 0

    cdef int read(self, int kind, about) except -1:
        cdef Connection connection
        if kind == CONNECTED:
            self.arriving -= 1
            if self.arriving == NEW_MAX - 1:
                self.can_accept()
            self.register(about)
        elif kind == MEMORY:
            connection = about
            connection.needs_memory = False
            try:
                connection.process()
            except Exception as error:
                self.fail(connection, error)
            self.thread.pool.wake()
        elif kind == WATCH_PEER:
            request, callback = about
            connection = (<Request>request).connection
            connection.watch_peer(request, callback)
        elif kind == QUEUE_SPACE:
            while self.thread.unqueued and self.thread.queue.offer(self.thread.unqueued[0], self.thread.mailbox):
                self.thread.unqueued.popleft()
        elif kind == SWEEP:
            self.next_sweep = self.thread.now
        elif kind == SHED:
            self.shed_one()
        elif kind == DRAIN:
            self.thread.draining = True
            for connection in list(self.connections.values()):
                connection.drain()
        else:
            self.stopping = True
        return 0

    cdef int register(self, about) except -1:
        sock, listener, peer, number, session = about
        cdef Connection connection
        try:
            connection = Connection(self.thread, sock, listener, peer, number, session)
        except Exception as error:
            self.thread.notices.error("connection_failed", error, peer=peer)
            sock.close()
            self.freed(listener, peer)
            return 0
        self.connections[sock.fileno()] = connection
        try:
            self.watch(sock.fileno(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | <unsigned int>EPOLLET)
        except OSError as error:
            self.fail(connection, error)
            return 0
        if self.thread.draining:
            connection.close("draining")
        return 0

    cdef int run_touched(self) except -1:
        cdef list ready = self.thread.touched
        cdef Connection connection
        if not ready:
            return 0
        self.thread.touched = []
        if self.thread.pool.limit and self.thread.pool.available < self.thread.pool.limit // 10:
            random.shuffle(ready)       # else the first ones would take all memory that comes back
        for connection in ready:
            try:
                connection.process()
            except Exception as error:
                self.fail(connection, error)
        return 0

    cdef int fail(self, Connection connection, error) except -1:
        self.thread.notices.error("connection_failed", error, connection=connection.id)
        connection.close("failed")
        return 0

    cdef int run_timers(self) except -1:
        cdef Connection connection
        while self.thread.timers and <double>self.thread.timers[0][0] <= self.thread.now:
            _, _, connection, kind = heappop(self.thread.timers)
            connection.timer_expired(kind)
        if self.thread.now >= self.next_sweep:
            self.next_sweep = self.thread.now + self.sweep_seconds
            for connection in list(self.connections.values()):
                limit = connection.expired_by()
                if limit is not None:
                    self.thread.expired += limit == "idle"
                    if limit != "idle":
                        self.thread.notices.warn(f"{limit}_timeout", connection=connection.id)
                    connection.close(limit)
        return 0

    cdef int shed_one(self) except -1:
        cdef Connection connection, oldest = None
        for connection in self.connections.values():
            if not connection.listener.protected and (oldest is None or connection.active < oldest.active):
                oldest = connection
        if oldest is not None:
            oldest.close("shed")
        return 0

    def forget(self, Connection connection, sock, str reason):
        """For NetworkThread: a connection has been closed."""
        fd = sock.fileno()
        if self.connections.pop(fd, None) is not None:
            epoll_ctl(self.epoll, EPOLL_CTL_DEL, fd, NULL)  # a forked child may hold the socket open
        sock.close()
        self.freed(connection.listener, connection.peer)

    cdef int end(self) except -1:
        cdef Connection connection
        for connection in list(self.connections.values()):
            connection.close("stop")
        self.close()    # now: what is posted later is not received
        for message in self.thread.mailbox.receive():
            if type(message) is tuple and message[0] == CONNECTED:
                sock, listener, peer, _, _ = message[1]
                sock.close()
                self.freed(listener, peer)
            elif type(message) is tuple and message[0] == WATCH_PEER:
                self.read(message[0], message[1])
        self.thread.unqueued.clear()
        self.thread.timers.clear()
        self.thread.touched.clear()
        return 0

    def close(self):
        """Close its own descriptors; for a loop that never ran, and in a forked child."""
        self.stopping = True
        if self.epoll >= 0:
            os.close(self.epoll)
            self.epoll = -1
        self.thread.mailbox.close()

    def abandon(self):
        """In a forked child: close the descriptors of all connections, without notifying their peers."""
        cdef Connection connection
        for connection in self.connections.values():
            connection.closed = True
            connection.sock.close()
        self.connections = {}
        for message in self.thread.mailbox.receive():
            if type(message) is tuple and message[0] == CONNECTED:
                message[1][0].close()
        self.close()
