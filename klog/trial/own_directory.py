"""The directory of a trial: a new one inside the user's. It is removed at the end, also after an error.

P1  no other file is opened, changed or removed
P2  a trial needs enough free space to begin, so it never fills a disk
P3  the directory is also removed after Ctrl-C, an error or a full disk
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator

PREFIX = ".klog-bench-"
_LEFT_FREE = 64 << 20


@contextlib.contextmanager
def own_directory(parent: str, bytes_needed: int) -> Iterator[str]:
    """Yield a new directory, and remove it. Raises OSError if bytes_needed would leave less than 64 MiB free."""
    found = os.statvfs(parent)
    free = found.f_bavail * found.f_frsize
    if free < bytes_needed + _LEFT_FREE:
        raise OSError(
            errno.ENOSPC,
            f"{free >> 20} MiB free, {(bytes_needed + _LEFT_FREE) >> 20} MiB needed: free some space there, "
            f"or give a smaller --size",
            parent,
        )
    path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
