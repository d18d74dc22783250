"""Whole files past the page cache, front to back: bulk loads, the cleaner's and the tier's copies, whose bytes nobody
reads soon, and which should not take the place of those that somebody does.

Where the file system cannot, the same calls go through the cache: `direct` tells.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from klog.disk._io import AlignedBuffer
from klog.disk.files import Files

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PAGE = 4096
_CHUNK_BYTES = 1 << 20


class DirectWriter:
    """A file of its own to write from the front: `with DirectWriter(files, path) as writer: writer.write(data)`.

    What the path held before is gone. After flush() the bytes are in the kernel and others can read them, after sync()
    on disk. The end of the block sees to flush(); where it ends by an exception, what was not flushed is not written.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._file = files.open_direct(path, write=True, create=True)
        files.truncate(self._file, 0)
        self._stage = mmap.mmap(-1, _CHUNK_BYTES)  # memory that begins on a page
        self._written = 0  # position of the file
        self._begin = self._end = 0  # of what is in the stage: as far into a page as the file is

    @property
    def size(self) -> int:
        """Bytes given so far."""
        return self._written + self._end - self._begin

    @property
    def direct(self) -> bool:
        """Does the file system let writes past the page cache?"""
        return not self._file.fallback

    def write(self, data: Buffer) -> None:
        """Take more bytes. OSError: what the file holds is undefined; remove it."""
        with memoryview(data).cast("B") as view:
            at = 0
            while at < len(view):
                if self._end == _CHUNK_BYTES:
                    self.flush()
                some = min(len(view) - at, _CHUNK_BYTES - self._end)
                self._stage[self._end : self._end + some] = view[at : at + some]
                self._end += some
                at += some

    def flush(self) -> None:
        """Everything given so far is in the kernel when this returns."""
        if self._end > self._begin:
            with memoryview(self._stage) as stage:
                self._file.write(stage[self._begin : self._end], self._written)
            self._written += self._end - self._begin
        self._begin = self._end = self._written % _PAGE

    def sync(self) -> None:
        """Everything given so far is on disk when this returns. OSError is final."""
        self.flush()
        self._files.fsync(self._file)

    def close(self) -> None:
        """flush(), and let go of the file; a second time is no error."""
        if not self._stage.closed:
            try:
                self.flush()
            finally:
                self._abandon()

    def _abandon(self) -> None:
        self._file.close()
        self._stage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._abandon()


class DirectReader:
    """A file's bytes, without leaving them in the page cache: `with DirectReader(files, path) as reader`.

    Iteration gives all of it from the front in pieces of 1 MiB. Any thread may read().
    """

    def __init__(self, files: Files, path: str) -> None:
        self._file = files.open_direct(path)

    @property
    def direct(self) -> bool:
        """Does the file system let reads past the page cache?"""
        return not self._file.fallback

    def read(self, position: int, size: int) -> AlignedBuffer:
        """Up to size bytes from position; shorter only at the end of the file."""
        return self._file.read(position, size)

    def __iter__(self) -> Iterator[AlignedBuffer]:
        position = 0
        while piece := self.read(position, _CHUNK_BYTES):
            yield piece
            position += len(piece)

    def close(self) -> None:
        """Let go of the file; a second time is no error."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
