"""The directory of a trial: a new one inside the user's. It is removed at the end, also after an error.

P1  no other file is opened, changed or removed
P2  a trial needs enough free space to begin, so it never fills a disk
P3  the directory is also removed after a signal, an error or a full disk
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from klog.scratch import scratch_directory

PREFIX = ".klog-bench-"
_LEFT_FREE = 64 << 20


@contextlib.contextmanager
def own_directory(directory: str | os.PathLike[str], size: int, size_min: int) -> Iterator[tuple[str, str]]:
    """Yield the absolute path of the user's directory and that of a new one in it, and remove the latter.

    size: bytes that are written, at most half of them at a time. Raises ValueError for less than size_min; OSError if
    half of them would leave less than 64 MiB free.
    """
    if size < size_min:
        raise ValueError(f"size={size}: must be at least {size_min}, for results above the noise")
    parent = os.path.abspath(os.fspath(directory))
    found = os.statvfs(parent)
    free, needed = found.f_bavail * found.f_frsize, size // 2 + _LEFT_FREE
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"{free >> 20} MiB free, {needed >> 20} MiB needed: free some space there, or write less (klog bench: a "
            "smaller --size; klog tune: --no-disk)",
            parent,
        )
    advice = "the disk is measured in a new directory there (klog tune: --no-disk leaves that out)"
    with scratch_directory(PREFIX, parent, advice) as path:
        yield parent, path
