"""A server: listeners, network threads, handler threads. Kafka: SocketServer.

    acceptor thread ──socket──► network thread(s) ──request──► queue ──► handler threads
                                      ▲      └─── cheap: handled here ───┐   │
                                      └────────────── response ◄─────────┴───┘

It knows nothing of the messages but their size prefix; the handler does the rest.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, Self

from klog import arguments
from klog.clock import Clock, ManualClock, SystemClock
from klog.locks import OwnLock
from klog.logger import logger_of
from klog.network._connection import Request
from klog.network._loop import Loop
from klog.network._pool import MemoryPool
from klog.network._queue import RequestQueue
from klog.network.acceptor import Acceptor
from klog.network.config import NetworkConfig
from klog.network.handlers import Handlers
from klog.network.listener import Listener, address_text
from klog.network.notices import Notices

if TYPE_CHECKING:
    import ssl

_log = logger_of("network")
_STOP_SECONDS = 30.0
_LAST_SECONDS = 5.0
_THREADS = ("klog-network-", "klog-acceptor", "klog-request-handler-")

_servers: weakref.WeakSet[Server] = weakref.WeakSet()


class Handler(Protocol):
    """Handles a request: completes it, now or later. It may also have is_cheap(request) -> bool: a request for which
    that is true is handled in its network thread, so it must not wait for a disk, a lock or a peer. And
    connection_delay(address) -> int: after how many ms to close a new connection of this address, 0 to accept it."""

    def __call__(self, request: Request, /) -> object: ...


class Server:
    """Serves connections of its listeners. Any thread.

    listeners: Listener objects, or "host:port" for plaintext. They are bound here: clients can connect from now on, and
    are served after start(). A listener that cannot be bound raises OSError, and none is.
    """

    def __init__(
        self,
        listeners: Iterable[Listener | str],
        handler: Handler,
        *,
        config: NetworkConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(listeners, str | bytes | Listener) or not isinstance(listeners, Iterable):
            raise arguments.wrong_type("listeners", listeners, "a list of Listener or host:port")
        found = [each if isinstance(each, Listener) else Listener.of(each) for each in listeners]
        if not found:
            raise ValueError("listeners=[]: at least one expected")
        if not callable(handler):
            raise arguments.wrong_type("handler", handler, "a function of a request")
        self._config = (
            NetworkConfig()
            if config is None
            else arguments.instance("config", config, NetworkConfig, "a klog.network.NetworkConfig, or None,")
        )
        self._clock: Clock = (
            SystemClock()
            if clock is None
            else arguments.having("clock", clock, ("wall_ms", "monotonic", "sleep"), "a Clock, or None,")
        )
        self._pid = os.getpid()
        self._life = OwnLock()
        self._ended = threading.Event()
        self._network: list[threading.Thread] = []  # in the order of the loops
        self._accepting: threading.Thread | None = None
        self._started = self._stopped = False
        notices = Notices(self._clock)
        self._pool = MemoryPool(self._config.queued_max_request_bytes, self._clock)
        self._queue = RequestQueue(self._config.queued_max_requests)
        self._loops: list[Loop] = []
        self._next_due = round(self._clock.monotonic() * 1000)
        try:
            for number in range(self._config.num_network_threads):
                self._loops.append(
                    Loop(
                        number,
                        self._config,
                        self._pool,
                        handler,
                        self._queue,
                        notices,
                        self._clock,
                        self._connection_closed,
                        self._slot_is_free,
                    )
                )
            delay = getattr(handler, "connection_delay", None)
            self._acceptor = Acceptor(found, self._loops, self._config, self._clock, notices, delay)
        except BaseException:
            for loop in self._loops:
                loop.close()
            raise
        self._handlers = Handlers(self._config.num_io_threads, self._queue, handler, self._clock)
        if isinstance(self._clock, ManualClock):
            self._clock.subscribe(self)
        _servers.add(self)

    def __repr__(self) -> str:
        return f"<Server {', '.join(address_text(each.host, each.port) for each in self.listeners)}>"

    @property
    def listeners(self) -> list[Listener]:
        """The listeners, with the ports that they are bound to."""
        return self._acceptor.listeners

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.listeners[0].port

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the threads. RuntimeError if the server has been started or stopped before, in a forked child, and if
        the machine has no thread left; then everything has ended."""
        if os.getpid() != self._pid:  # first: a thread of the parent may have held the lock at the fork
            raise RuntimeError("the server is the parent's: make a new Server")
        with self._life:
            if self._started or self._stopped:
                raise RuntimeError("the server cannot start again: make a new Server")
            self._started = True
            try:
                self._handlers.start()
                for loop in self._loops:
                    self._network.append(_started(f"klog-network-{loop.thread.number}", loop.run))
                self._accepting = _started("klog-acceptor", self._acceptor.run)
            except BaseException:  # the machine may have no thread left
                self._stopped = True
                self._end(0)
                self._ended.set()
                raise
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until stop() has been called in another thread or a signal handler. Returns False if `timeout` seconds
        passed first. Ctrl-C raises KeyboardInterrupt here, as usual."""
        return self._ended.wait(arguments.seconds("timeout", timeout))

    def stop(self, timeout: float = _STOP_SECONDS) -> None:
        """Accept no more, complete the requests that are being handled, send their responses, close.

        What has not been completed after `timeout` seconds is closed unanswered. Afterwards neither threads nor
        descriptors are left, unless a handler does not return: that is logged. A second call does nothing, and so does
        one in a forked child. RuntimeError in a thread of the server: it would wait for itself.
        """
        seconds = arguments.some_seconds("timeout", timeout)
        self.check_outside()
        if os.getpid() != self._pid or self._life._is_owned():  # owned: in a signal handler that interrupted stop()
            return
        with self._life:
            if self._stopped:
                return
            self._stopped = True
            self._end(seconds)
        self._ended.set()

    @staticmethod
    def check_outside() -> None:
        """Raise RuntimeError in a thread of a server."""
        if threading.current_thread().name.startswith(_THREADS):
            raise RuntimeError("a handler cannot stop its server: set an event, and call stop() in another thread")

    def _end(self, seconds: float) -> None:
        self._acceptor.stop()
        if self._accepting is not None:
            self._accepting.join()
        self._acceptor.close()  # now: clients are refused from here on
        for loop in self._loops[len(self._network) :]:  # never started
            loop.close()
        for loop in self._loops:
            loop.drain()
        if not self._join(self._network, seconds):
            _log.warning("event=stop_unfinished seconds=%s connections=%d", seconds, self._acceptor.quotas.count())
            for loop in self._loops:
                loop.stop()
        all_ended = self._handlers.stop(_LAST_SECONDS)
        if not (self._join(self._network, _LAST_SECONDS) and all_ended):
            _log.error("event=handler_does_not_return hint=a thread of the server is left")

    def _join(self, threads: list[threading.Thread], seconds: float) -> bool:
        """Wait until the threads have ended. False if one has not in time."""
        clock = SystemClock()  # a manual one would stand still
        deadline = clock.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - clock.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def __enter__(self) -> Self:
        return self if self._started else self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _after_fork(self) -> None:
        """In a forked child: the connections are the parent's. Close the descriptors, so that the peers notice its
        end."""
        for loop in self._loops:
            loop.abandon()
        self._acceptor.close()
        self._ended.set()

    # ---- connections -------------------------------------------------------------------------------------------------

    def reload_tls(self, name: str, context: ssl.SSLContext) -> None:
        """Use this context for new connections of the TLS listeners of this name; those that are open keep theirs.
        Raises LookupError if there are none, ValueError if no handshake is possible with it."""
        from klog.network.tls import check_context

        check_context(context)
        self._acceptor.reload(arguments.text("name", name), context)

    def _connection_closed(self, listener: Listener, peer: tuple[object, ...]) -> None:
        self._acceptor.quotas.remove(listener, str(peer[0]))
        self._acceptor.slot_is_free()

    def _slot_is_free(self) -> None:
        self._acceptor.slot_is_free()

    # ---- the manual clock --------------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """For ManualClock: when the threads read the clock next."""
        return None if self._stopped else self._next_due

    def run_due(self) -> int:
        """For ManualClock: let the threads read the clock."""
        self._next_due = round((self._clock.monotonic() + self._config.sweep_seconds) * 1000)
        self._acceptor.wake()
        for loop in self._loops:
            loop.sweep()
        return 1

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Counters since the start and current values, under Kafka's names where it has one."""
        from klog.network.metrics import collect

        return collect(self._loops, self._acceptor, self._handlers, self._queue, self._pool)


def _started(name: str, run: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _after_fork_in_child() -> None:
    for server in list(_servers):
        server._after_fork()
    _servers.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
