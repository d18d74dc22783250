"""Caches of the open files and the indexes of closed segments. They are bounded, as a process's descriptors and maps
are.

A file takes a descriptor, and a map once its bytes were viewed. An index takes two maps, or memory if it is small, and
no descriptor. Both stay open while a caller holds them. The caches only decide how many are held for reuse.
"""

from __future__ import annotations

from klog.disk._handles import FILES, INDEXES, Handles


class HandleCache:
    """Files and indexes that segments have open for reading. Any thread. Keys are the segments.

    The limits are those of the process, for all its logs together, because its descriptors and maps are. A number
    limits this cache alone: files, or bytes of indexes.
    """

    __slots__ = ("files", "indexes")

    def __init__(self, files: int | None = None, indexes: int | None = None) -> None:
        self.files = FILES if files is None else Handles(True, files)
        self.indexes = INDEXES if indexes is None else Handles(False, indexes)

    def renew(self) -> None:
        """Drop all that is held, so that it is opened again when needed."""
        self.files.clear()
        self.indexes.clear()
