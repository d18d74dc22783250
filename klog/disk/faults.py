"""What an error of the kernel means: is the disk broken, or has something run out? And what is to be done next?

Every OSError that this room raises names its file and ends with the next step: [Errno 28] No space left on device; free
space there, ...: '/data/events-0/0.log'. Its class, errno and filename are those of the kernel's own.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

from klog.errors import ReadFailed

# What says that something has run out, or that somebody asked for the wrong thing: the disk is well. Of a failed sync
# nothing is passing: see FailedSync.
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
    }
)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_LOOK = "look into the kernel's log (dmesg)"
_LET_READ = "let this user read it: owner and mode, and those of the directories above it"
_LET_WRITE = "let this user write there: owner, mode, and lsattr for the immutable flag"
AFTER_SYNC = f"what was written may be lost: {_LOOK}, then open the log again, which checks what is there"
_GONE = "bring the directory back or mount it again, then open the log again"
_NEXT_STEPS = {
    errno.ENOSPC: "free space (or inodes: df -i) there, or shorten retention, then try again",
    errno.EDQUOT: "raise the quota or free space there, then try again",
    errno.EFBIG: "lower segment.bytes, or raise the limit on the size of files (ulimit -f), then try again",
    errno.EMFILE: "raise the limit on open files (ulimit -n), then try again",
    errno.ENFILE: "the whole machine has run out of open files: raise fs.file-max, then try again",
    errno.ENOMEM: "free memory, or raise vm.max_map_count, then try again",
    errno.EIO: f"the disk has failed: {_LOOK}, then open the log again, which checks what is there",
    errno.EROFS: f"remount it for writing (after errors the kernel remounts: {_LOOK}), or open with read_only=True",
    errno.ESTALE: "the network file system has lost the file: mount it again, then open the log again",
    errno.ENOENT: _GONE,
    errno.ENOTDIR: _GONE,
    errno.EISDIR: "a file is to be there: move the directory away, then try again",
    errno.ENXIO: f"the device has gone: {_LOOK}; {_GONE}",
    errno.ENODEV: f"the device has gone: {_LOOK}; {_GONE}",
    errno.EACCES: _LET_WRITE,
    errno.EPERM: _LET_WRITE,
}


class FailedSync(OSError):
    """What the kernel answered to a sync, whatever it was: final, since bytes that were taken before are lost (S2).

    heard: somebody has stopped using what it belongs to."""

    heard = False


def failed_sync_in(error: BaseException) -> FailedSync | None:
    """The failed sync that an exception is, or has come over: Ctrl-C, or what a signal handler has raised, takes the
    place of an error that is on its way. None where there is none that nobody has heard of."""
    at: BaseException | None = error
    while at is not None and not (isinstance(at, FailedSync) and not at.heard):
        at = at.__context__
    return at


def is_final(error: OSError) -> bool:
    """Does this error say that the disk is broken, and not only that something has run out?"""
    return error.errno not in _PASSING or isinstance(error, FailedSync)


def is_full(error: OSError) -> bool:
    """Is there no room, on the disk or in a quota? Of a failed sync that is not the point."""
    return error.errno in _FULL and not isinstance(error, FailedSync)


def lacks_descriptors(error: OSError) -> bool:
    """Was no file opened because there are too many? No sync answers that, so none has failed."""
    return error.errno in _DESCRIPTORS and not isinstance(error, FailedSync)


def os_error(number: int, path: str | None, *, sync: bool = False, reading: bool = False) -> OSError:
    """The OSError of an errno, of the class that Python has for it, with the next step in its text. reading: nothing
    was to be written."""
    text, step = os.strerror(number), AFTER_SYNC if sync else _NEXT_STEPS.get(number)
    if reading and step is _LET_WRITE:
        step = _LET_READ
    return (FailedSync if sync else OSError)(number, text if step is None else f"{text}; {step}", path)


def read_error(number: int, path: str, position: int) -> ReadFailed:
    """The same of a read at this byte of a log file."""
    step = _NEXT_STEPS.get(number)
    text = f"{os.strerror(number)} at byte {position}"
    return ReadFailed(number, text if step is None else f"{text}; {step}", path, position)


class naming_the_next_step:  # noqa: N801 - reads as what it does: with naming_the_next_step(path): os.mkdir(path)
    """Around a call of Python's: its OSError has the next step in its text, and the path where it names none. reading:
    the call is not there to write."""

    __slots__ = ("_path", "_reading")

    def __init__(self, path: str, reading: bool = False) -> None:
        self._path = path
        self._reading = reading

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, OSError) and error.errno is not None and "; " not in str(error.strerror):
            told = os_error(error.errno, error.filename or self._path, reading=self._reading)
            if error.filename2 is not None:  # of a rename
                told.filename2 = error.filename2
            try:
                raise told from error.__cause__
            finally:
                del told  # else this frame and it would hold each other, and all frames below: a cleaner's map, say
