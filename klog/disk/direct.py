"""Whole files by direct I/O, from start to end: bulk loads and the copies of the cleaner and the tier. Their bytes are
not read again soon, and should not evict pages that are read often.

If the file system does not support it, the same calls use the cache: see the property `direct`.
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
    """A file to write sequentially: `with DirectWriter(files, path) as writer: writer.write(data)`.

    Replaces what the path held before. After flush() the bytes are in the kernel and readable, after sync() they are on
    disk. Leaving the block calls flush(), except after an exception: then unflushed bytes are not written.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._file = files.open_direct(path, write=True, create=True)
        files.truncate(self._file, 0)
        self._stage = mmap.mmap(-1, _CHUNK_BYTES)  # page-aligned memory
        self._written = 0  # position in the file
        self._begin = self._end = 0  # of the bytes in the stage; _begin is _written % _PAGE

    @property
    def size(self) -> int:
        """Bytes written so far, flushed or not."""
        return self._written + self._end - self._begin

    @property
    def direct(self) -> bool:
        """Does the file system support direct writes?"""
        return not self._file.fallback

    def write(self, data: Buffer) -> None:
        """Append bytes. Raises OSError; the file's content is undefined then: remove it."""
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
        """Pass all bytes written so far to the kernel."""
        if self._end > self._begin:
            with memoryview(self._stage) as stage:
                self._file.write(stage[self._begin : self._end], self._written)
            self._written += self._end - self._begin
        self._begin = self._end = self._written % _PAGE

    def sync(self) -> None:
        """Wait until all bytes written so far are on disk. An OSError is final."""
        self.flush()
        self._files.fsync(self._file)

    def close(self) -> None:
        """flush(), and close the file; closing twice is allowed."""
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
    """Reads a file without leaving it in the page cache: `with DirectReader(files, path) as reader`.

    Iteration returns the whole file in pieces of 1 MiB. Any thread may call read().
    """

    def __init__(self, files: Files, path: str) -> None:
        self._file = files.open_direct(path)

    @property
    def direct(self) -> bool:
        """Does the file system support direct reads?"""
        return not self._file.fallback

    def read(self, position: int, size: int) -> AlignedBuffer:
        """Read up to size bytes at position; fewer only at the end of the file. Raises ReadFailed."""
        return self._file.read(position, size)

    def __iter__(self) -> Iterator[AlignedBuffer]:
        position = 0
        while piece := self.read(position, _CHUNK_BYTES):
            yield piece
            position += len(piece)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
