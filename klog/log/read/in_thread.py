"""in_thread: a blocking call of an asyncio task, in a thread of the loop's executor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Return what function() returns. A cancelled task waits for the end of the call: it leaves nothing running that
    uses the task's objects."""
    import asyncio  # takes a fifth of the time of `import klog`, and few callers need it

    call = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        while not call.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([call])
        if not call.cancelled():
            call.exception()  # marks it as retrieved
        raise
