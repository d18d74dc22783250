"""Sends slices of files, and bytes between them, to any descriptor: sockets, pipes, files.

  W1  the first method that works is used: sendfile, splice through a pipe, a copy. TLS is encrypted here, so it copies
  W2  the result of a call, or `sent` of its error, is the number of bytes that the target has taken: no byte is sent
      twice or left out. After an exception from a signal handler a TLS socket does not know that number, and takes no
      more sends
  W3  a send uses at most one buffer of the pool, however slow the target is

One sender at a time per target. In an event loop a send yields after YIELD_BYTES. Kafka: FileRecords.writeTo.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from klog.disk import _send, tls
from klog.disk._send import Target
from klog.disk.ready import wait_ready

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

YIELD_BYTES = 1 << 20  # the loop's other tasks wait for this much: about 100 microseconds

_busy: WeakKeyDictionary[AbstractEventLoop, set[int]] = WeakKeyDictionary()


class HasFileno(Protocol):
    """A target of sends. If it has a gettimeout(), as sockets do, sends wait that long."""

    def fileno(self) -> int:
        """Return its descriptor."""


def send_bytes(target: HasFileno, data: memoryview, more: bool) -> int:
    """Send bytes in memory. Returns how many the target has taken: all, if it blocks. more: other bytes follow at once,
    so a partial packet may wait for them. Raises PeerGone, SendTimeout, SendInterrupted, OSError."""
    return tls.send_bytes(target, data) if tls.encrypts(target) else _send.send_bytes(target, data, more)


def cork(target: HasFileno, on: bool) -> None:
    """Hold back partial packets while on is true. Does nothing if the target is not a TCP socket."""
    if getattr(target, "family", None) in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):  # the peer has gone: the next send reports it
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)  # type: ignore[attr-defined]


def _reports_space(fd: int) -> bool:
    """Can an event loop wait until it accepts more? It cannot for a file, which always does."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
        return True
    with select.epoll(1) as probe:
        try:
            probe.register(fd, select.EPOLLOUT)
        except PermissionError:
            return False
    return True


async def send_yielding(target: HasFileno, step: Callable[[], bool]) -> None:
    """Call step() each time the event loop reports space for more, until it returns True: everything has been sent.
    Raises ValueError for a target that blocks, RuntimeError if another send to it is in progress."""
    import asyncio

    if Target(target).timeout != 0:
        raise ValueError("the socket blocks: call sock.setblocking(False) first")
    fd, busy = target.fileno(), _busy.setdefault(asyncio.get_running_loop(), set())
    if fd in busy:
        raise RuntimeError("another send to this socket is in progress: wait for it, or their bytes would mix")
    want_read: tuple[type[Exception], ...] = ()
    if tls.encrypts(target):
        import ssl

        want_read = (ssl.SSLWantReadError,)
    busy.add(fd)
    try:
        while True:
            try:
                while not step():
                    if _reports_space(fd):
                        await wait_ready(step, writers=(fd,))
                        return
                    await asyncio.sleep(0)
                return
            except want_read:
                await wait_ready(readers=(fd,))
    finally:
        busy.discard(fd)
