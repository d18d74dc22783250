"""Python code that runs in callbacks of the garbage collector: it is not of the call under test."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_gc() -> Iterator[None]:
    """No collection begins inside: Hypothesis runs a callback for each, which would be counted, and in which the
    exception of a signal handler would be lost."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
