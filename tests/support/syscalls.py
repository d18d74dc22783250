"""Counts the system calls of a process by ptrace(2): exact, and independent of the load of the machine."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

import pytest

_TRACEME, _SYSCALL, _SETOPTIONS = 0, 24, 0x4200
_SYSGOOD, _EXITKILL = 1, 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, pid: int, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def count_syscalls(script: str, *arguments: str) -> int:
    """Run a Python script in a process of its own. Returns the number of system calls of its main thread."""
    try:
        child = subprocess.Popen([sys.executable, "-c", script, *arguments], preexec_fn=lambda: ptrace(_TRACEME, 0))
    except subprocess.SubprocessError:
        pytest.skip("needs: permission for ptrace(2)")
    stops, status = 0, os.waitpid(child.pid, 0)[1]
    ptrace(_SETOPTIONS, child.pid, _SYSGOOD | _EXITKILL)
    passed_on = 0  # the exec stops with SIGTRAP, which is not for the child
    while os.WIFSTOPPED(status):
        ptrace(_SYSCALL, child.pid, passed_on)
        status = os.waitpid(child.pid, 0)[1]
        reason = os.WSTOPSIG(status) if os.WIFSTOPPED(status) else 0
        is_call = reason == signal.SIGTRAP | 0x80
        stops, passed_on = stops + is_call, 0 if is_call else reason
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, f"the script ended with {child.returncode}"
    return stops // 2  # one stop before each call, one after it
