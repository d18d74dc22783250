"""System calls that fail, write only a part, or take long, by rules: a table of functions in C, for
RealFiles(table=...).

FailingFiles and CrashFiles replace Python calls. This table is below klog's code, and runs without the GIL, so that
other threads run during a slow fdatasync. There is one table per process, so one test can use it at a time: `with
FaultyIo() as io`.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = (
    "pread",
    "pwrite",
    "preadv2",
    "pwritev2",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "ftruncate",
    "fallocate",
    "fadvise",
    "sendfile",
    "splice",
    "send",
    "cachestat",
    "mincore",
)
_RULES = 32
ALWAYS = 1 << 62


class _Rule(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64) for name in ("function", "first", "times", "error", "at_most", "delay_us", "claims")
    ]


_library: ctypes.CDLL | None = None


def _load() -> ctypes.CDLL:
    global _library
    if _library is None:
        sources = [str(ROOT / "tests" / "support" / "faulty_io.c"), str(ROOT / "csrc" / "osio.c")]
        with tempfile.TemporaryDirectory(prefix="klog-faulty-") as folder:
            target = str(Path(folder) / "faulty.so")
            compiler = shlex.split(os.environ.get("CC", "cc"))
            flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", f"-I{ROOT / 'csrc'}"]
            subprocess.run([*compiler, *flags, *sources, "-o", target], check=True)
            _library = ctypes.CDLL(target)
    return _library


class FaultyIo:
    """The table and its rules. A call that matches no rule goes to the kernel."""

    def __init__(self) -> None:
        library = _load()
        self._rules = (_Rule * _RULES).in_dll(library, "faulty_rules")
        self._calls = (ctypes.c_int64 * len(FUNCTIONS)).in_dll(library, "faulty_calls")
        self._hits = (ctypes.c_int64 * _RULES).in_dll(library, "faulty_hits")
        self._released = (ctypes.c_int64 * _RULES).in_dll(library, "faulty_released")
        self.table = ctypes.addressof(ctypes.c_char.in_dll(library, "faulty_table"))
        """The table= argument of RealFiles and LogFile."""

    def __enter__(self) -> Self:
        self.heal()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.heal()

    def heal(self) -> None:
        """Remove all rules and reset all counts."""
        ctypes.memset(self._rules, 0, ctypes.sizeof(self._rules))
        ctypes.memset(self._calls, 0, ctypes.sizeof(self._calls))
        ctypes.memset(self._hits, 0, ctypes.sizeof(self._hits))

    def rule(
        self,
        function: str,
        *,
        error: int = 0,
        at_most: int = -1,
        delay_ms: float = 0,
        claims: bool = False,
        nth: int = 1,
        times: int = ALWAYS,
    ) -> int:
        """From the nth call from now on, `times` calls: wait, then fail, or move at most this many bytes. Returns the
        rule's number.

        claims: a sendfile, fsync or fdatasync does nothing and returns success. A test should not race with the wait:
        make it long, and release() it."""
        free = next(number for number, rule in enumerate(self._rules) if rule.times == 0)
        index = FUNCTIONS.index(function)
        first = self._calls[index] + nth
        self._released[free] = 0
        self._rules[free] = _Rule(index, first, times, error, at_most, int(delay_ms * 1000), claims)
        return free

    def release(self, number: int) -> None:
        """End the waits of this rule; later calls do not wait."""
        self._released[number] = 1

    def lift(self, number: int) -> None:
        """Remove one rule."""
        self._rules[number].times = 0

    def calls(self, function: str) -> int:
        """The number of calls of this function since heal()."""
        return int(self._calls[FUNCTIONS.index(function)])

    def hits(self, number: int) -> int:
        """The number of calls that this rule has matched."""
        return int(self._hits[number])
