"""New directories whose names survive a power cut, also after a process that was killed while it made some."""

from __future__ import annotations

import contextlib
import os

from klog.disk.files import Files
from klog.disk.presence import is_directory


def make_directories(path: str, files: Files, mode: int = 0o750) -> None:
    """Make a directory, of this mode, and those that are missing above it, unless it exists. All names are on disk on
    return. Raises OSError.

    Each name is synced before a directory is made below it. So of the names that a killed call has left only the last
    one may not be on disk.
    """
    path, missing = os.path.abspath(path), []
    while not is_directory(path):
        missing.append(path)
        path = os.path.dirname(path)
    sync_name(path, files)
    while missing:
        path = missing.pop()
        with contextlib.suppress(FileExistsError):  # another process makes it, too
            files.mkdir(path, 0o777 if missing else mode)
        files.fsync_dir(os.path.dirname(path))


def sync_name(path: str, files: Files) -> None:
    """Sync the name of a directory that another process may have made. Does nothing if this one may not open the
    directory above it. Raises OSError."""
    with contextlib.suppress(PermissionError):
        files.fsync_dir(os.path.dirname(path))
