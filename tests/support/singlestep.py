"""Counts the instructions of single calls in user mode: a child process is run one instruction at a time (ptrace).

The load and the speed of the machine do not change the counts. Another version of Python, of the compiler or of libc
does, and, by a few percent, another processor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.syscalls import ptrace

_CONT, _STEP = 7, 9
_BEGIN, _END = signal.SIGUSR1, signal.SIGUSR2
_STEPS_MAX = 1_000_000

# In the child: measured(call) runs it between the two signals.
_CHILD = """
import ctypes, gc, signal

def trace():
    gc.collect()
    gc.disable()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0, 0, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")

def measured(call, begin=signal.SIGUSR1, end=signal.SIGUSR2, send=signal.raise_signal):
    send(begin)
    call()
    send(end)
"""


def steps_of(script: str, folder: str) -> list[int]:
    """The instructions of each call that `script` gives to measured(), after it has called trace().

    sys.argv[1] of the script is `folder`. The first measured call should do nothing: its count,
    that of the measurement itself, is subtracted from the others.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD + script, folder],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    try:
        counts = _follow(child.pid)
        error = child.stderr.read()
    finally:
        child.kill()
        child.wait()
        child.stderr.close()
    if "PermissionError" in error and "ptrace" in error:
        pytest.skip("needs: ptrace")
    assert error == ""
    empty, *others = counts
    return [count - empty for count in others]


def _follow(pid: int) -> list[int]:
    """Run the child to its end, between the signals step by step."""
    counts: list[int] = []
    request, steps = _CONT, 0
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return counts
        reason = os.WSTOPSIG(status)
        if reason == _BEGIN:
            request, steps = _STEP, 0
        elif reason == _END:
            counts.append(steps)
            request = _CONT
        else:
            steps += 1
            if steps > _STEPS_MAX:
                raise AssertionError(f"more than {_STEPS_MAX} instructions")
        ptrace(request, pid)
