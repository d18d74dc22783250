"""What the segments of one directory have in common."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from klog.config import LogConfig
from klog.disk import Files, HandleCache, ReadSampler
from klog.segment import names
from klog.segment.active import WriteCounts


class Home:
    """What all segments of a log have in common, so that a closed segment costs no more than its numbers.

    directory and config may be set anew: the segments follow. suffix: what stands behind the names of their files.
    written: how the bytes of those that are closed again took their way. beside: a home of the same directory, to
    which segments move from here or from which they come.
    """

    __slots__ = (
        "config",
        "directory",
        "files",
        "handles",
        "mappable",
        "opening",
        "sampler",
        "suffix",
        "writable",
        "written",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        files: Files,
        handles: HandleCache,
        *,
        writable: bool,
        beside: Home | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.files = files
        self.handles = handles
        self.writable = writable
        self.mappable = writable  # does this process hold the log's lock, so that nobody else shortens a file?
        # Who opens an index, renames a segment's files or the directory holds it: one for all homes of a directory.
        self.opening: AbstractContextManager[object] = threading.RLock() if beside is None else beside.opening
        self.suffix = ""
        self.written = WriteCounts()
        self.sampler = ReadSampler()  # how much of what is read comes from the page cache

    def renew(self) -> None:
        """In a forked child: nobody there lets go of what another thread had, and its parent has the log's lock."""
        self.opening, self.mappable = threading.RLock(), False

    def path(self, base_offset: int, kind: str) -> str:
        """A file of the segment of this base offset."""
        return names.file_path(self.directory, base_offset, kind) + self.suffix
