"""Handles know their process. In a forked child

- what may write raises ForkedHandle, on every call that reads or writes: its files are the parent's, who goes on to
  change them, and its maps would be shortened under the child
- what is only read goes on, with locks, descriptors and maps of its own: a lock that a thread of the parent held at
  the fork would never be let go, since that thread is not there
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class _Handle(Protocol):
    def _after_fork(self) -> None:
        """This process is a forked child, and has one thread."""


_handles: weakref.WeakSet[_Handle] = weakref.WeakSet()


def know(handle: _Handle) -> None:
    """Call its _after_fork() in forked children, as long as it lives."""
    _handles.add(handle)


def _in_child() -> None:
    for handle in list(_handles):
        handle._after_fork()


os.register_at_fork(after_in_child=_in_child)
