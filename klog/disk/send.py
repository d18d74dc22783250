"""A slice of a file goes to a socket by sendfile(2), which copies nothing through this process.

sendfile is called directly: asyncio's loop.sock_sendfile costs some 30 microseconds a call. A TLS socket encrypts in
this process, so there the bytes are read.
"""

from __future__ import annotations

import os
import select
import socket
import sys

_STEP = 1 << 30  # of what one call may move, somewhat less than Linux's 2 GiB


def send_slice(sock: socket.socket, fd: int, position: int, size: int) -> int:
    """Send what the socket takes of the slice: all of it, if it blocks. The number of bytes, 0 if it takes none now.

    A timeout of the socket bounds each wait. TimeoutError, OSError; EOFError where the file ends before the slice.
    """
    timeout, done = sock.gettimeout(), 0
    while done < size:
        try:
            sent = os.sendfile(sock.fileno(), fd, position + done, min(size - done, _STEP))
        except BlockingIOError:
            if timeout == 0:
                break
            _wait(sock, timeout)
            continue
        if sent == 0:
            raise EOFError(f"the file ends {size - done} bytes before the slice")
        done += sent
    return done


def _wait(sock: socket.socket, timeout: float | None) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    if not poll.poll(None if timeout is None else timeout * 1000):
        raise TimeoutError(f"the socket took nothing for {timeout} s")


def encrypts(sock: socket.socket) -> bool:
    """Is it a TLS socket? Without importing ssl for those that are none."""
    ssl = sys.modules.get("ssl")
    return ssl is not None and isinstance(sock, ssl.SSLSocket)


async def writable(sock: socket.socket) -> None:
    """Returns once the running event loop finds that the socket takes more."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(sock.fileno(), wake)
    try:
        await ready
    finally:
        loop.remove_writer(sock.fileno())
