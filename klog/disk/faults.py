"""Classifies kernel errors: is the disk broken, or has a resource run out? And what should the user do next?

Every OSError that this package raises names its file and ends with the next step: [Errno 28] No space left on device;
free space there, ...: '/data/events-0/0.log'. Its class, errno and filename are those of the kernel's error.
"""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType

from klog.errors import ReadFailed

# These errors mean that a resource has run out or that the call was wrong: the disk is not broken. A failed sync is
# never temporary: see FailedSync.
_PASSING = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EINTR,
        errno.EEXIST,
        errno.ENOTEMPTY,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
    }
)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
NOT_REGULAR = "not a regular file; move it away, then try again"
_DMESG = "look into the kernel's log (dmesg)"
_LET_READ = "let this user read it: owner and mode, and those of the directories above it"
_LET_WRITE = "let this user write there: owner, mode, and lsattr for the immutable flag"
AFTER_SYNC = f"what was written may be lost: {_DMESG}, then open the log again, which checks what is there"
_GONE = "bring the directory back or mount it again, then open the log again"
_NEXT_STEPS = {
    errno.ENOSPC: "free space (or inodes: df -i) there, or shorten retention, then try again",
    errno.EDQUOT: "raise the quota or free space there, then try again",
    errno.EFBIG: "lower segment.bytes, or raise the limit on the size of files (ulimit -f), then try again",
    errno.EMFILE: "raise the limit on open files (ulimit -n), then try again",
    errno.ENFILE: "the whole machine has run out of open files: raise fs.file-max, then try again",
    errno.ENOMEM: "free memory, or raise vm.max_map_count, then try again",
    errno.EIO: f"the disk has failed: {_DMESG}, then open the log again, which checks what is there",
    errno.EROFS: f"remount it for writing (after errors the kernel remounts: {_DMESG}), or open with read_only=True",
    errno.ESTALE: "the network file system has lost the file: mount it again, then open the log again",
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
    errno.EEXIST: "move away what is there, or choose another name, then try again",
    errno.ELOOP: "a symbolic link is where a file is needed, or leads nowhere: move it away, then try again",
    errno.ENAMETOOLONG: "choose a shorter path or name",
    errno.EISDIR: "a directory is where a file is needed: move it away, then try again",
    errno.ENXIO: f"the device has gone: {_DMESG}; {_GONE}",
    errno.ENODEV: f"the device has gone: {_DMESG}; {_GONE}",
    errno.EACCES: _LET_WRITE,
    errno.EPERM: _LET_WRITE,
}


class FailedSync(OSError):
    """An error that the kernel returned from a sync, of any errno. Final, because bytes written before are lost (S2).

    noted: True once it has been handled: the log or its directory is offline."""

    noted = False


def failed_sync_in(error: BaseException) -> FailedSync | None:
    """Find the failed sync in an exception or in its contexts: Ctrl-C, or an exception from a signal handler, replaces
    the error that is being raised. Returns None if there is none, or if it has been handled."""
    at: BaseException | None = error
    while at is not None and not (isinstance(at, FailedSync) and not at.noted):
        at = at.__context__
    return at


def is_final(error: OSError) -> bool:
    """Does this error mean that the disk is broken, rather than that a resource has run out?

    An error without an errno does not come from the kernel: a signal handler has raised it, such as a TimeoutError.
    """
    return isinstance(error, FailedSync) or (error.errno is not None and error.errno not in _PASSING)


def is_full(error: OSError) -> bool:
    """Is the disk or the quota full? False for a failed sync, which is final whatever its errno."""
    return error.errno in _FULL and not isinstance(error, FailedSync)


def lacks_descriptors(error: OSError) -> bool:
    """Could a file not be opened because too many are open? A sync never fails for this reason."""
    return error.errno in _DESCRIPTORS and not isinstance(error, FailedSync)


def os_error(number: int, path: str | None, *, sync: bool = False, reading: bool = False) -> OSError:
    """Return the OSError of an errno, of the class that Python has for it, with the next step in its text. sync: a
    sync has failed. reading: the call does not write."""
    if number == errno.ENXIO and path is not None and _is_socket(path):
        return OSError(errno.EINVAL, NOT_REGULAR, path)
    text, step = os.strerror(number), AFTER_SYNC if sync else _NEXT_STEPS.get(number)
    if reading and step is _LET_WRITE:
        step = _LET_READ
    return (FailedSync if sync else OSError)(number, text if step is None else f"{text}; {step}", path)


def _is_socket(path: str) -> bool:
    """Is it a socket? open(2) fails there as on a device that has gone."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def read_error(number: int, path: str, position: int) -> ReadFailed:
    """Return the ReadFailed of an errno, for a read at this byte of a log file."""
    step = _NEXT_STEPS.get(number)
    text = f"{os.strerror(number)} at byte {position}"
    return ReadFailed(number, text if step is None else f"{text}; {step}", path, position)


class naming_the_next_step:  # noqa: N801 - reads as a sentence: with naming_the_next_step(path): os.mkdir(path)
    """Context manager around a call of Python's that adds the next step to its OSError, and the path if it has none.
    reading: the call does not write."""

    __slots__ = ("_path", "_reading")

    def __init__(self, path: str, reading: bool = False) -> None:
        self._path = path
        self._reading = reading

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, OSError) and error.errno is not None and "; " not in str(error.strerror):
            new = os_error(error.errno, error.filename or self._path, reading=self._reading)
            if error.filename2 is not None:  # of a rename
                new.filename2 = error.filename2
            try:
                raise new from error.__cause__
            finally:
                del new  # it and this frame would refer to each other, and keep all frames below with their data
