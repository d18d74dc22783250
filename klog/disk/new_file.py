"""Files that are written as a stream: FileSink, and NewFile, which appears under its name complete, or not at all.

The bytes of a NewFile go to `<path>.tmp`. commit() syncs it, renames it and syncs the directory; without a commit it is
removed. A crash may leave the `.tmp`, which the next file of this name replaces. Its writer holds an flock of it, so
that a second one neither removes it nor has its own half-written file renamed.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
from typing import TYPE_CHECKING

from klog.disk._io import LogFile
from klog.disk.files import Files
from klog.disk.presence import exists, has_its_name, is_directory, is_file

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FileSink(io.RawIOBase):
    """A writable binary file, for libraries that take a Python file. close() leaves the LogFile open. One thread."""

    _file: LogFile | None = None

    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self._file = file
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:  # type: ignore[override]
        """Append bytes. Returns their number, always all."""
        assert self._file is not None
        self._file.write(data, self._size)
        count = memoryview(data).nbytes
        self._size += count
        return count

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size


class NewFile(FileSink):
    """A FileSink of its own file.

    overwrite: replace a file at this path; otherwise FileExistsError is raised if there is one. A directory, device or
    pipe is never replaced: OSError. Raises FileNotFoundError without the directory, OSError, also for a file that is
    being written.
    """

    def __init__(self, path: str, files: Files, *, overwrite: bool = False) -> None:
        self._temporary: str | None = None  # set while there is one to be removed
        _check_free(path, overwrite)
        directory = os.path.dirname(path) or "."
        if not is_directory(directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory; create it first", directory)
        self._path, self._files, self._overwrite = path, files, overwrite
        temporary = f"{path}.tmp"
        super().__init__(_locked(temporary, files))
        self._temporary = temporary

    def commit(self) -> None:
        """Make the file appear under its name, on disk when this returns. Nothing can be written after that.
        Raises OSError, also for what another program has put there meanwhile."""
        assert self._file is not None and self._temporary is not None
        self._files.fsync(self._file)
        _check_free(self._path, self._overwrite)
        self._files.rename(self._temporary, self._path)
        self._temporary = None
        self._files.fsync_dir(os.path.dirname(self._path))

    def close(self) -> None:
        """Close the file, and remove it if it was not committed."""
        if self.closed:
            return
        super().close()
        try:
            if self._temporary is not None:
                self._files.unlink(self._temporary)  # while it is locked: afterwards it may be another one's
        finally:
            if self._file is not None:
                self._file.close()


def _check_free(path: str, overwrite: bool) -> None:
    """Raise OSError if a file must not be put here."""
    if exists(path):
        if not is_file(path):  # not even as root, who may rename a file over /dev/null
            raise OSError(errno.EINVAL, "not a regular file, so it is not replaced; name another", path)
        if not overwrite:
            raise FileExistsError(errno.EEXIST, "the file exists; name another, or pass overwrite=True", path)


def _locked(path: str, files: Files) -> LogFile:
    """Make the temporary file, and lock it as long as it is open."""
    while True:
        file = files.open(path, write=True, create=True)
        try:
            _lock(file)
            if has_its_name(file):  # its last writer may have renamed or removed it before it was locked
                if file.length() == 0:
                    return file
                files.unlink(path)  # left by a crash
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: LogFile) -> None:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = "another file of this name is being written; wait for its end, or name another"
        raise OSError(errno.EBUSY, text, file.path) from None
    except OSError:  # a file system without locks
        pass
