"""Files that only their owner may read: keys of users. Files.replace(private=True) writes them."""

from __future__ import annotations

import errno
import os

from klog.disk._whole import read_whole
from klog.disk.faults import naming_the_next_step


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
