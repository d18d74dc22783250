"""The thread that accepts connections, for all listeners. Kafka: SocketServer.Acceptor.

A listener at a limit of its own or of the broker is not accepted from, until a connection has been closed or its rate
allows one: its clients wait in the kernel's queue. Without a free descriptor a connection is accepted on a spare one
and closed at once, so that its client learns of it and the thread does not spin.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import select
import socket
from collections.abc import Callable

from klog.clock import Clock, ManualClock
from klog.network._loop import Loop
from klog.network._mailbox import Mailbox
from klog.network.config import NetworkConfig
from klog.network.listener import Listener
from klog.network.notices import Notices
from klog.network.quotas import ConnectionQuotas
from klog.values import replace

_LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_GONE = {
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.EPERM,
    errno.EINTR,
    errno.ENETDOWN,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
}
_BACK_OFF_SECONDS = 0.1
_MAPPED = "::ffff:"
_ACCEPTS_MAX = 64  # of one listener, before the others


class _ListeningSocket:
    """A listening socket, and until when it is not accepted from. context: of new connections, replaced on reload."""

    def __init__(self, listener: Listener, sock: socket.socket) -> None:
        self.listener = listener
        self.sock = sock
        self.context = listener.context
        self.not_before = 0.0
        self.watched = False


class Acceptor:
    """run() is the thread; any thread may call the other methods, except that close() follows the thread's end. delay:
    the handler's connection_delay."""

    def __init__(
        self,
        listeners: list[Listener],
        loops: list[Loop],
        config: NetworkConfig,
        clock: Clock,
        notices: Notices,
        delay: Callable[[str], int] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._notices = notices
        self._delay = delay
        self._loops = loops
        self._loops_in_turn = itertools.cycle(loops)
        self._numbers = itertools.count()
        self._parked: list[tuple[float, int, socket.socket]] = []  # to be closed at a time
        self._listening: list[_ListeningSocket] = []
        self._wants_slot = False
        self._stopping = False
        self.accepted = 0
        self.rejected = 0
        self._spare = -1
        self._mailbox = Mailbox()
        self._poll = select.epoll()
        try:
            self._poll.register(self._mailbox.fd, select.EPOLLIN | select.EPOLLET)
            for listener in listeners:
                sock = listener.bind(config)
                self._listening.append(_ListeningSocket(replace(listener, port=sock.getsockname()[1]), sock))
            self._take_spare()
        except BaseException:
            self.close()
            raise
        self.listeners = [listening.listener for listening in self._listening]
        self._quotas = ConnectionQuotas(self.listeners, config, clock)

    @property
    def quotas(self) -> ConnectionQuotas:
        """The counts of connections."""
        return self._quotas

    def reload(self, name: str, context: object) -> None:
        """Use this context for new connections of the listeners of this name. LookupError if there are none with
        TLS."""
        listening_sockets = [
            listening
            for listening in self._listening
            if listening.listener.name == name and listening.context is not None
        ]
        if not listening_sockets:
            raise LookupError(f"name={name!r}: no TLS listener of this name")
        for listening in listening_sockets:
            listening.context = context  # type: ignore[assignment]

    def slot_is_free(self) -> None:
        """A connection has been closed, or a network thread can take more."""
        if self._wants_slot:
            self._mailbox.send("slot")

    def wake(self) -> None:
        """Read the clock again."""
        self._mailbox.send("look")

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._mailbox.send("stop")

    def close(self) -> None:
        """Close its descriptors. In a forked child they are closed without notifying the peers."""
        for listening in self._listening:
            listening.sock.close()
        for _, _, sock in self._parked:
            sock.close()
        self._parked.clear()
        self._poll.close()
        self._mailbox.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    # ---- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Accept until stop()."""
        while not self._stopping:
            try:
                self._wait_and_accept()
            except Exception as error:  # the next iteration may do better
                self._notices.error("accept_failed", error)
                self._clock.sleep(_BACK_OFF_SECONDS)

    def _wait_and_accept(self) -> None:
        self._watch_listeners()
        wait = self._wait_seconds()
        if not self._mailbox.sleeps():
            wait = 0.0
        ready = {fd for fd, _ in self._poll.poll(-1 if wait is None else wait)}
        self._mailbox.receive()
        self._close_parked()
        for listening in self._listening:
            if listening.watched and listening.sock.fileno() in ready and not self._stopping:
                self._accept_from(listening)

    def _watch_listeners(self) -> None:
        """Watch the listeners that may accept now, and no others."""
        now = self._clock.monotonic()
        self._wants_slot = True  # before looking: a slot that becomes free meanwhile is reported
        may = [now >= listening.not_before and self._has_slot(listening) for listening in self._listening]
        self._wants_slot = not all(may)
        for listening, watched in zip(self._listening, may, strict=True):
            if watched != listening.watched:
                listening.watched = watched
                if watched:
                    self._poll.register(listening.sock, select.EPOLLIN)
                else:
                    self._poll.unregister(listening.sock)

    def _has_slot(self, listening: _ListeningSocket) -> bool:
        return self._quotas.has_slot(listening.listener) and not all(loop.is_full for loop in self._loops)

    def _wait_seconds(self) -> float | None:
        """Until the next time at which something is due; None: for ever."""
        now = self._clock.monotonic()
        dues = [listening.not_before for listening in self._listening if listening.not_before > now]
        if self._parked:
            dues.append(self._parked[0][0])
        if not dues or isinstance(self._clock, ManualClock):
            return None
        return max(0.0, min(dues) - now)

    def _close_parked(self) -> None:
        now = self._clock.monotonic()
        while self._parked and self._parked[0][0] <= now:
            heapq.heappop(self._parked)[2].close()

    def _accept_from(self, listening: _ListeningSocket) -> None:
        for _ in range(_ACCEPTS_MAX):
            if self._clock.monotonic() < listening.not_before or not self._has_slot(listening):
                return
            try:
                sock, peer = listening.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _LACKS:
                    self._refuse_one(listening, error)
                    return
                if error.errno not in _GONE:
                    raise
                continue
            self._welcome(listening, sock, _plain(peer))

    def _refuse_one(self, listening: _ListeningSocket, error: OSError) -> None:
        """No descriptor is free: accept on the spare one and close, then pause."""
        self._notices.warn("no_descriptor", listener=listening.listener.name, error=error, hint="raise RLIMIT_NOFILE")
        self.rejected += 1
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        try:
            listening.sock.accept()[0].close()
        except OSError:  # another thread was faster: the client waits
            pass
        self._take_spare()
        listening.not_before = self._clock.monotonic() + _BACK_OFF_SECONDS

    def _take_spare(self) -> None:
        try:
            self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # then the client waits in the kernel's queue, and the next refusal tries again
            self._spare = -1

    def _welcome(self, listening: _ListeningSocket, sock: socket.socket, peer: tuple[object, ...]) -> None:
        listener, address = listening.listener, str(peer[0])
        now = self._clock.monotonic()
        delay = self._quotas.rate_delay(listener)
        if delay > 0:
            listening.not_before = now + delay
        parked = self._quotas.address_delay(address)
        if parked == 0 and self._delay is not None:
            parked = self._delay(address) / 1000
        if parked > 0:
            heapq.heappush(self._parked, (now + parked, next(self._numbers), sock))
            self.rejected += 1
            return
        if not self._quotas.add(listener, address):
            sock.close()
            self.rejected += 1
            self._notices.warn("too_many_connections", address=address, limit="max.connections.per.ip")
            return
        try:
            self._set_up(listening, sock, peer)
        except BaseException:
            self._quotas.remove(listener, address)
            sock.close()
            raise

    def _set_up(self, listening: _ListeningSocket, sock: socket.socket, peer: tuple[object, ...]) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._config.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._config.socket_send_buffer_bytes)
        session = None
        if listening.context is not None:
            from klog.network.tls import TlsSession

            session = TlsSession(listening.context, listening.listener.principal_of)
        number = next(self._numbers)
        loop = next(loop for loop in self._loops_in_turn if not loop.is_full)
        loop.connect(sock, listening.listener, peer, number, session)
        self.accepted += 1
        if self._quotas.exceeds():
            loop.shed()


def _plain(peer: tuple[object, ...]) -> tuple[object, ...]:
    """The IPv4 address of a client that an IPv6 socket shows as ::ffff:192.0.2.1, as Java has it; others as they are.
    Limits and access rules name the IPv4 address."""
    host = str(peer[0])
    return (host.removeprefix(_MAPPED), *peer[1:2]) if host.startswith(_MAPPED) and "." in host else peer
