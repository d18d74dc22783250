"""A bounded cache of the open files and mapped indexes of closed segments: descriptors and maps are limited.

A file takes a descriptor; an index takes two maps and no descriptor. Both stay open while a caller holds them. The
cache only decides how many are held for reuse.
"""

from __future__ import annotations

import resource

from klog.disk._lru import Lru

FILES_MAX = 512
INDEXES_MAX = 2048  # of 65,530 maps that a process may have


def files_max() -> int:
    """Return how many descriptors may be held for reuse: a quarter of the process's limit."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if allowed == resource.RLIM_INFINITY else max(16, min(FILES_MAX, allowed // 4))


class HandleCache:
    """Files and indexes that the segments of one log.dir have open for reading. Any thread. Keys are the segments."""

    __slots__ = ("files", "indexes")

    def __init__(self, files: int | None = None, indexes: int = INDEXES_MAX) -> None:
        self.files = Lru(files_max() if files is None else files)
        self.indexes = Lru(indexes)

    def renew(self) -> None:
        """Drop everything held, so that it is opened again when needed."""
        self.files, self.indexes = Lru(self.files.limit), Lru(self.indexes.limit)
