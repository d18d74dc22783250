"""Keeps the garbage collector from running its callbacks, which are Python code, during a call under test."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_gc() -> Iterator[None]:
    """No collection begins inside the block. Hypothesis runs a callback for each collection: it would be counted, and
    an exception that a signal handler raises in it would be lost."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
