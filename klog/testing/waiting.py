"""Waiting in real time for something that a test expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog import arguments
from klog.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_SECONDS = 0.005


def wait_for(is_there: Callable[[], bool], timeout: float, missing: Callable[[], str]) -> None:
    """Wait until is_there() is true. Raises TimeoutError with the text of missing() after `timeout` seconds."""
    clock = SystemClock()
    deadline = clock.monotonic() + arguments.some_seconds("timeout", timeout)
    while not is_there():
        if clock.monotonic() >= deadline:
            raise TimeoutError(f"{missing()}, after {timeout} s")
        clock.sleep(_PAUSE_SECONDS)
