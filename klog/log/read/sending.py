"""Sending a slice in the running event loop, and the number of bytes sent in the errors of a send."""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.disk import YIELD_BYTES, HasFileno, send_yielding
from klog.errors import PeerGone, SendTimeout

_HAD_BEEN_SENT = " bytes had been sent"


async def send_whole(target: HasFileno, send_part: Callable[[HasFileno, int, int], int], start: int, stop: int) -> int:
    """Send bytes [start, stop) by send_part(target, start, size), and yield to other tasks. Returns their number."""
    done = start

    def step() -> bool:
        nonlocal done
        try:
            done += send_part(target, done, min(stop - done, YIELD_BYTES))
        except BaseException as error:  # not always the end: TLS may have to read from the peer first
            done += getattr(error, "sent", 0)
            raise
        return done == stop

    try:
        await send_yielding(target, step)
    except BaseException as error:
        note_sent(error, done - start)
        raise
    return done - start


def note_sent(error: BaseException, sent: int) -> None:
    """Set the number of bytes sent in an error that counts only those of its last part."""
    if isinstance(error, PeerGone):
        error.__init__(error.errno, sent)  # type: ignore[misc]
    elif isinstance(error, SendTimeout):
        error.__init__(error.seconds, sent)  # type: ignore[misc]
    else:
        error.sent = sent  # type: ignore[attr-defined]
        if isinstance(error, OSError) and str(error.strerror).endswith(_HAD_BEEN_SENT):
            error.strerror = f"{os.strerror(error.errno or 0)}: {sent}{_HAD_BEEN_SENT}"
