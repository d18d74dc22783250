"""A machine that has no more than a few threads left: as under ulimit -u, or at the limit of a container."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def few_threads(count: int) -> Iterator[None]:
    """In this block `count` more threads can be started; then start() raises what CPython raises."""
    start, left = threading.Thread.start, iter(range(count))

    def limited(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    with mock.patch.object(threading.Thread, "start", limited):
        yield
