"""Where a trial writes: one new directory of its own inside the user's, gone when it is over, however it ends.

P1  nothing that was there before is opened, changed or removed
P2  there is room: a trial never fills a disk
P3  Ctrl-C, an error, a full disk: the directory goes all the same
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
    """A fresh directory. OSError where bytes_needed would leave too little free."""
    found = os.statvfs(parent)
    free = found.f_bavail * found.f_frsize
    if free < bytes_needed + _LEFT_FREE:
        raise OSError(
            errno.ENOSPC,
            f"{free >> 20} MiB free, {(bytes_needed + _LEFT_FREE) >> 20} MiB needed: free space there, "
            f"or give a smaller --size",
            parent,
        )
    path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
