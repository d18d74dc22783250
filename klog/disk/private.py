"""Files that only their owner may read: keys of users.

replace_private() writes `<path>.tmp`, which has mode 0600 before it has a byte, syncs it, renames it and syncs the
directory.
"""

from __future__ import annotations

import contextlib
import errno
import os

from klog.disk._whole import read_whole
from klog.disk.faults import naming_the_next_step
from klog.disk.files import Files

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def replace_private(files: Files, path: str, data: bytes) -> None:
    """Make the file at path hold data, atomically and durably, with mode 0600. Raises OSError."""
    temporary = f"{path}.tmp"
    files.unlink(temporary)
    with naming_the_next_step(temporary):
        os.close(os.open(temporary, _NEW, 0o600))
    try:
        file = files.open(temporary, write=True)
        try:
            file.write(data, 0)
            files.fsync(file)
        finally:
            file.close()
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # a full disk may refuse it
            files.unlink(temporary)
        raise
    files.fsync_dir(os.path.dirname(path))


def read_private(path: str) -> bytes | None:
    """Return the bytes of a file; None if there is none. Raises PermissionError if others than its owner may read or
    write it, OSError."""
    try:
        with naming_the_next_step(path, reading=True):
            mode = os.stat(path, follow_symlinks=False).st_mode
        if mode & 0o077:
            text = f"others may access it (mode {mode & 0o777:o}), and it holds keys of users; chmod 600"
            raise PermissionError(errno.EACCES, text, path)
        return read_whole(path)
    except FileNotFoundError:
        return None
