"""Open files and mappings of closed segments, bounded: descriptors and maps are limited, segments are not.

A handle stays open while somebody holds a reference to it; the cache only decides how many are held for reuse.
Any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class HandleCache:
    """Least recently used handles, at most `limit`. Dropping one closes it once its last user lets go."""

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._handles: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, opener: Callable[[], T]) -> T:
        """The handle of key, opened by opener() when it is not held."""
        with self._lock:
            handle = self._handles.get(key)
            if handle is not None:
                self._handles.move_to_end(key)
                return handle  # type: ignore[no-any-return]
        opened = opener()
        with self._lock:
            handle = self._handles.setdefault(key, opened)
            self._handles.move_to_end(key)
            while len(self._handles) > self._limit:
                self._handles.popitem(last=False)
        return handle  # type: ignore[no-any-return]

    def drop(self, key: Any) -> None:
        """Forget one handle."""
        with self._lock:
            self._handles.pop(key, None)
