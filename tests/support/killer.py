"""SIGKILL at any system call by which a forked child may change files, by ptrace and seccomp. The part in C, killer.c, is
compiled at the first use.

The child is forked from this process, which has loaded everything, so that hundreds of kills take seconds. The child's
effects are those of a real kill: files and page cache stay, nothing is flushed, no `finally` runs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shlex
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_CALLS_MAX = 1 << 16
Work = Callable[[Callable[[], None]], object]
"""The child's work. It gets `armed`, and system calls count from when it calls that."""


@dataclass(frozen=True)
class End:
    """killed: whether the child was killed at the requested call. calls: the names of the calls until then."""

    killed: bool
    calls: list[str]


@cache
def _library() -> ctypes.CDLL:
    source = str(ROOT / "tests" / "support" / "killer.c")
    with tempfile.TemporaryDirectory(prefix="klog-killer-") as folder:
        target = str(Path(folder) / "killer.so")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared"]
        subprocess.run([*compiler, *flags, source, "-o", target], check=True)
        library = ctypes.CDLL(target)
    library.kl_call_name.restype = ctypes.c_char_p
    library.kl_call_name.argtypes = [ctypes.c_long]
    library.kl_kill_at.restype = ctypes.c_int64
    library.kl_kill_at.argtypes = [
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int),
    ]
    return library


def killed_at(nth: int, work: Work, *, tear: bool = False) -> End:
    """Run a child until its nth call begins, and kill it; 0: run it to its end. tear: kill it when its nth write has
    written half of its bytes."""
    library = _library()
    if tear and not library.kl_can_tear():
        pytest.skip("needs: a processor whose registers are supported")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(lambda: _be_traced(library, tear))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    calls = (ctypes.c_int32 * _CALLS_MAX)()
    status = (ctypes.c_int * 2)()
    count = library.kl_kill_at(pid, nth, int(tear), calls, _CALLS_MAX, status)
    if count < 0:
        os.kill(pid, signal.SIGKILL)
        raise OSError(-count, os.strerror(-count))
    ended = status[0]
    if os.WIFEXITED(ended) and os.WEXITSTATUS(ended) == _REFUSED:
        pytest.skip("needs: ptrace and seccomp")
    assert ended == signal.SIGKILL or (os.WIFEXITED(ended) and os.WEXITSTATUS(ended) == 0), (
        f"the child ended with {ended:#x}"
    )
    names = [library.kl_call_name(number).decode() for number in calls[: min(count, _CALLS_MAX)]]
    return End(ended == signal.SIGKILL, names)


_REFUSED = 77


def _be_traced(library: ctypes.CDLL, tear: bool) -> None:
    status = library.kl_be_traced(int(tear))
    if status in (-errno.EPERM, -errno.ENOSYS, -errno.EINVAL):
        os._exit(_REFUSED)
    if status:
        raise OSError(-status, os.strerror(-status))
