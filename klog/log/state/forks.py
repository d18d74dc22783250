"""What handles do in a forked child.

- A handle that may write raises ForkedHandle on every call that reads or writes. The parent goes on changing the
  files and could shorten mapped files under the child.
- A read-only handle keeps working, with its own locks, descriptors and maps. A lock that another thread of the parent
  held at the fork would never be released, because that thread does not exist in the child.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class _Handle(Protocol):
    def _after_fork(self) -> None:
        """Called in a forked child, which has one thread."""


_process_id = os.getpid()
_handles: set[weakref.ref[_Handle]] = set()


def register(handle: _Handle) -> None:
    """Call handle._after_fork() in forked children. Holds only a weak reference to the handle."""
    _handles.add(weakref.ref(handle, _handles.discard))


def process_id() -> int:
    """Return os.getpid(), without a system call."""
    return _process_id


def _in_child() -> None:
    global _process_id
    _process_id = os.getpid()
    for reference in list(_handles):
        handle = reference()
        if handle is not None:
            handle._after_fork()


os.register_at_fork(after_in_child=_in_child)
