"""The directory of segments, and what they share there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from klog.config import LogConfig
from klog.disk import Files, HandleCache, ReadSampler
from klog.locks import CallLock
from klog.segment._state import SegmentDirState
from klog.segment.active import WriteCounts


class SegmentDir(SegmentDirState):
    """A directory of segments. All segments of a log share one, so that a closed segment takes only the memory of its
    numbers.

    move_to() and configure() change directory and config: the segments follow. suffix: appended to the names of their
    files. written: how the bytes of closed files were written. beside: a SegmentDir of the same directory, to exchange
    segments with. strict: a reader that reaches the end of a closed segment raises if batches were lost there.
    """

    __slots__ = (
        "_check_place",
        "config",
        "directory",
        "files",
        "handles",
        "mappable",
        "opening",
        "strict",
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
        strict: bool = False,
        beside: SegmentDir | None = None,
        suffix: str = "",
    ) -> None:
        self.directory = directory
        self.config = config
        self.files = files
        self.handles = handles
        self.writable = writable
        self.mappable = writable  # this process holds the log's lock, so no other one shortens a file
        # Held to open an index, or to rename a segment's files or the directory; shared by all of a directory.
        self.opening: AbstractContextManager[object] = CallLock() if beside is None else beside.opening
        self.strict: bool = strict if beside is None else beside.strict
        self.suffix = suffix
        self.written = WriteCounts()
        self._check_place: Callable[[], None] | None = None
        self.sampler = ReadSampler()  # estimates how many bytes read come from the page cache

    def belong_to(self, check_place: Callable[[], None] | None) -> None:
        """check_place() raises OSError if another directory has the path by now. Called before a segment takes appends;
        None: there is nothing to check."""
        self._check_place = check_place

    def check_place(self) -> None:
        """Raise OSError if another directory has the path by now."""
        if self._check_place is not None:
            self._check_place()

    def renew(self) -> None:
        """Reset in a forked child: other threads' locks are never released there, and the parent has the log's."""
        self.opening, self.mappable = CallLock(), False

    def move_to(self, directory: str) -> None:
        """The directory has been renamed."""
        self.directory = directory

    def configure(self, config: LogConfig) -> None:
        """Use another configuration."""
        self.config = config

    def map_nothing(self) -> None:
        """Map no file from now on: another process may shorten it."""
        self.mappable = False

    def path(self, base_offset: int, kind: str) -> str:
        """Return the path of a file of the segment with this base offset."""
        # names.file_path() without its frame: a start makes ten of these for each log.
        return f"{self.directory}/{base_offset:020d}{kind}{self.suffix}"
