"""Slices of files, and bytes between them, to whatever has a descriptor: sockets, pipes, files.

  W1  the way is the first that serves: sendfile, splice through a pipe, copying. TLS is encrypted here, so it copies
  W2  what a call returns, or its error says in `sent`, is what the target has taken: no byte twice, none left out
  W3  no more memory than one buffer of the pool, however slow the target takes it

One sender at a time for a target. In an event loop sends take turns of YIELD_BYTES. Kafka: FileRecords.writeTo.
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
from klog.disk._io import LogFile
from klog.disk._send import SendCounts, Target
from klog.disk.ready import turns

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

YIELD_BYTES = 1 << 20  # what a loop's other tasks wait for: some 100 microseconds

_busy: WeakKeyDictionary[AbstractEventLoop, set[int]] = WeakKeyDictionary()


class HasFileno(Protocol):
    """What bytes are sent to. One with a gettimeout() waits so long, as sockets do."""

    def fileno(self) -> int:
        """Its descriptor."""


def send_slice(target: HasFileno, file: LogFile, position: int, size: int, counts: SendCounts | None) -> int:
    """Send what the target takes of a slice: all of it, if the target waits. The number of bytes; 0 if none now.

    A timeout bounds each wait. Raises PeerGone, SendTimeout, OSError; EOFError where the file ends before the slice.
    """
    if not tls.encrypts(target):
        return _send.send_slice(target, file, position, size, counts)
    sent = 0
    try:
        sent = tls.send_slice(target, file, position, size)
    except BaseException as error:
        sent = getattr(error, "sent", 0)
        raise
    finally:
        if counts is not None:
            counts.copied += sent
    return sent


def send_bytes(target: HasFileno, data: memoryview, more: bool) -> int:
    """The same for bytes in memory. more: others follow at once, no packet need leave for these alone."""
    return tls.send_bytes(target, data) if tls.encrypts(target) else _send.send_bytes(target, data, more)


def cork(target: HasFileno, on: bool) -> None:
    """Hold back packets that are not full, until the cork is drawn. For what is no TCP socket: nothing."""
    if getattr(target, "family", None) in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):  # of a peer that is gone: the next send says so
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)  # type: ignore[attr-defined]


def _reports_space(fd: int) -> bool:
    """Can an event loop wait for it? Not for a file: that always takes more."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
        return True
    with select.epoll(1) as probe:
        try:
            probe.register(fd, select.EPOLLOUT)
        except PermissionError:
            return False
    return True


async def send_yielding(target: HasFileno, turn: Callable[[], bool]) -> None:
    """Call turn() until it says that all has been sent, each time that the running event loop finds room for more."""
    import asyncio

    if Target(target).timeout != 0:
        raise ValueError("the socket blocks: call sock.setblocking(False) first")
    fd, busy = target.fileno(), _busy.setdefault(asyncio.get_running_loop(), set())
    if fd in busy:
        raise RuntimeError("something else is being sent to this socket: wait for it, or their bytes would mix")
    wants_to_be_notified: tuple[type[Exception], ...] = ()
    if tls.encrypts(target):
        import ssl

        wants_to_be_notified = (ssl.SSLWantReadError,)
    busy.add(fd)
    try:
        while True:
            try:
                while not turn():
                    if _reports_space(fd):
                        await turns(turn, writers=(fd,))
                        return
                    await asyncio.sleep(0)
                return
            except wants_to_be_notified:
                await turns(readers=(fd,))
    finally:
        busy.discard(fd)
