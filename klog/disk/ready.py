"""Turns in an event loop: something is tried again whenever a descriptor is ready, and between turns others run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable


def _now() -> bool:
    return True


async def turns(
    turn: Callable[[], bool] = _now,
    *,
    readers: Iterable[int] = (),
    writers: Iterable[int] = (),
    seconds: float | None = None,
) -> bool:
    """Call turn() in the running event loop each time that one of the descriptors is ready, until it answers True; or,
    which is False here, until this time has passed. What turn() raises ends the wait too.

    However it ends, the loop knows nothing of the descriptors any more. It must not have known them before.
    """
    import asyncio  # a fifth of the time of `import klog`, for doors that few use

    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if end.done():
            return
        try:
            if turn():
                end.set_result(None)
        except Exception as error:
            end.set_exception(error)

    with contextlib.ExitStack() as known:
        for fd in readers:
            loop.add_reader(fd, ready)
            known.callback(loop.remove_reader, fd)
        for fd in writers:
            loop.add_writer(fd, ready)
            known.callback(loop.remove_writer, fd)
        try:
            await asyncio.wait_for(end, seconds)
        except TimeoutError:
            if not end.cancelled():  # it is turn()'s
                raise
    return not end.cancelled()
