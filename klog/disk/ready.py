"""Retries a step in an event loop whenever a descriptor is ready; between the steps other tasks run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable


def _now() -> bool:
    return True


async def wait_ready(
    step: Callable[[], bool] = _now,
    *,
    readers: Iterable[int] = (),
    writers: Iterable[int] = (),
    seconds: float | None = None,
) -> bool:
    """Call step() in the running event loop each time one of the descriptors is ready, until step() returns True.
    Returns False if `seconds` passed first, None: no limit. An exception from step() ends the wait and is raised.

    Afterwards the loop no longer watches the descriptors. It must not have watched them before.
    """
    import asyncio  # takes a fifth of the time of `import klog`, and few callers need it

    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if end.done():
            return
        try:
            if step():
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
            if not end.cancelled():  # the TimeoutError is step()'s
                raise
    return not end.cancelled()
