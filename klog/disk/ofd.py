"""Open-file-description locks on bytes of a file. They conflict with POSIX locks, also with those of a JVM. The kernel
releases them when the last copy of the descriptor is closed."""

from __future__ import annotations

import fcntl
import os
import struct

from klog.disk._io import LogFile

_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length (0: to the end), process


def set_lock(file: LogFile, kind: int, first: int = 0, count: int = 0) -> None:
    """Lock or unlock bytes without waiting. kind: F_RDLCK, F_WRLCK or F_UNLCK. Raises OSError, with EAGAIN or EACCES if
    another holder has locked one of them."""
    fcntl.fcntl(file, _SETLK, _FLOCK.pack(kind, os.SEEK_SET, first, count, 0))


def locked_range(file: LogFile, first: int, count: int) -> tuple[int, int] | None:
    """Return (first, count) of bytes that another holder has locked and that overlap these; None if there are none.
    Raises OSError."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)
    kind, _, found, held, _ = _FLOCK.unpack(fcntl.fcntl(file, _GETLK, asked))
    return None if kind == fcntl.F_UNLCK else (found, held)
