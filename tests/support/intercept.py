"""File calls that fail at chosen call sites, and allocations that fail: the Python half of intercept.c.

Only in a process with the library preloaded: `preloaded(command)` runs one. There, `record` runs work and returns its
file calls with the call sites on their stacks; `inject` runs it with one fault at one of them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from tests.support.io_sites import ROOT, Site, lines_of, sites

SOURCE = ROOT / "tests" / "support" / "intercept.c"
_ENGINE = str(ROOT / "klog") + "/"
_HOOK = ctypes.CFUNCTYPE(
    ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)
)
_ACTIONS = {"short": -1, "torn": -2, "lost": -3, "killed in the middle": -4, "cold": -5}
_ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EINTR", "ENOMEM")
_FULL = ("ENOSPC", "EDQUOT")
_WRITES = ("EIO", *_FULL, "short", "torn", "lost", "EINTR", "killed", "killed in the middle")
_READS = ("EIO", "short", "EINTR")
_LOOKS = ("EIO",)
APPLICABLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("write", "pwrite", "pwritev2"), _WRITES),
    **dict.fromkeys(("read", "pread", "preadv2", "sendfile", "splice"), _READS),
    **dict.fromkeys(("fsync", "fdatasync", "sync_file_range", "msync"), ("EIO", *_FULL, "EINTR", "killed")),
    **dict.fromkeys(("ftruncate", "ftruncate64"), ("EIO", "EINTR", "killed")),
    "fallocate": ("EIO", *_FULL, "EINTR", "killed"),
    "creat": ("EIO", *_FULL, "EINTR", "killed"),
    **dict.fromkeys(("rename", "renameat2", "mkdir", "mkdirat", "link"), ("EIO", *_FULL, "killed")),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir", "utimensat", "futimens"), ("EIO", "killed")),
    "open": ("EIO", "EINTR"),
    "mmap": ("ENOMEM",),
    **dict.fromkeys(("stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat64"), _LOOKS),
    **dict.fromkeys(
        ("opendir", "getdents64", "statvfs64", "fstatvfs64", "fadvise", "cachestat", "mincore", "access", "faccessat"),
        _LOOKS,
    ),
}
"""The faults that each call can have."""
NOT_APPLICABLE = {
    "short": "only calls that move bytes can move fewer of them",
    "torn": "only writes leave a part",
    "lost": "only writes are cached; names that a power cut loses are the subject of the power-cut tests",
    "EINTR": "the kernel interrupts only calls that may wait",
    "ENOSPC, EDQUOT": "only calls that need blocks or names",
    "killed": "a kill before a call that changes nothing is a kill before the next that does",
    "EIO": "mmap(2) reads nothing: it fails for want of memory; a page that cannot be read raises SIGBUS",
}


class Call(NamedTuple):
    """A call of libc: its name, the positions of the Python calls and the return addresses on its stack."""

    name: str
    positions: tuple[tuple[str, int, int], ...]
    addresses: tuple[int, ...]


class Fault(NamedTuple):
    kind: str
    forever: bool


def preloaded(*command: str, timeout: float | None = None) -> str:
    """Run `python command` with the library preloaded, and return its output."""
    with tempfile.TemporaryDirectory(prefix="klog-intercept-") as folder:
        target = str(Path(folder) / "intercept.so")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        flags = ["-std=c11", "-D_GNU_SOURCE", "-D_LARGEFILE64_SOURCE", "-O2", "-fPIC", "-shared"]
        subprocess.run([*compiler, *flags, str(SOURCE), "-o", target], check=True)
        environment = {**os.environ, "LD_PRELOAD": target}
        done = subprocess.run(
            [sys.executable, *command], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=timeout
        )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


def is_preloaded() -> bool:
    return hasattr(ctypes.CDLL(None), "ic_watch")


@cache
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(None)
    found.ic_watch.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    assert found.ic_libraries(_ENGINE.encode()) > 0, "no library of klog's is loaded"
    return found


@cache
def _positions(code: CodeType) -> list[tuple[int, int]]:
    return [(line or 0, column or 0) for line, _, column, _ in code.co_positions()]


def _stack(frame: FrameType | None) -> Iterator[tuple[str, int, int]]:
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_ENGINE):
            yield (code.co_filename[len(_ENGINE) - 5 :], *_positions(code)[frame.f_lasti // 2])
        frame = frame.f_back


@contextmanager
def watched(root: Path, decide: Callable[[Call, str], int]) -> Iterator[None]:
    """Ask `decide`, with the path, before every file call at or below root."""

    def hook(name: bytes, path: bytes, _size: int, n: int, callers: ctypes._Pointer[ctypes.c_void_p]) -> int:
        # Line numbers go with the call, not with the instruction after it.
        addresses = tuple((callers[i] or 1) - 1 for i in range(n))
        call, where = Call(name.decode(), tuple(_stack(sys._getframe(1))), addresses), os.fsdecode(path)
        return decide(call, where) or next((found for each in _given if (found := each.action(call.name, where))), 0)

    kept = _HOOK(hook)
    library().ic_watch(os.fsencode(root), ctypes.cast(kept, ctypes.c_void_p))
    try:
        yield
    finally:
        library().ic_watch(b"", None)


class _Given:
    def __init__(self, kind: str, calls: tuple[str, ...], ending: str, times: float) -> None:
        self._action = _ACTIONS[kind] if kind in _ACTIONS else getattr(errno, kind)
        self._calls, self._ending, self._left = calls, ending, times

    def action(self, call: str, path: str) -> int:
        if call not in self._calls or not path.endswith(self._ending) or self._left < 1:
            return 0
        self._left -= 1
        return self._action


_given: list[_Given] = []


@contextmanager
def given(kind: str, *calls: str, ending: str = "", times: float = float("inf")) -> Iterator[None]:
    """The kernel does this to these calls, to files with this end of their path, in a process that is watched.

    So the code behind it is reached, and meets faults. kind: that of a fault, any name of an errno, or "cold": cachestat(2)
    reports that no page is cached.
    """
    rule = _Given(kind, calls, ending, times)
    _given.append(rule)
    try:
        yield
    finally:
        _given.remove(rule)


@contextmanager
def without_kinds() -> Iterator[None]:
    """Directories give names without the kind of the file, as some file systems do."""
    try:
        kinds = ctypes.c_int.in_dll(ctypes.CDLL(None), "ic_no_kinds")
    except ValueError:  # not preloaded
        kinds = ctypes.c_int()
    kinds.value = 1
    try:
        yield
    finally:
        kinds.value = 0


def record(root: Path, work: Callable[[], object]) -> list[Call]:
    """Run work. Returns its file calls, without repetitions."""
    found: dict[Call, None] = {}

    def note(call: Call, _path: str) -> int:
        found[call] = None
        return 0

    with watched(root, note):
        work()
    return list(found)


class Injection:
    """One fault at the first call that equals this one. forever: also at every later call that can have the fault."""

    def __init__(self, call: Call, fault: Fault) -> None:
        self.call, self.fault = call, fault
        self.hits = 0
        self.paths: list[str] = []

    def decide(self, call: Call, path: str) -> int:
        kind, forever = self.fault
        if self.hits == 0:
            if call != self.call:
                return 0
        elif not forever or kind not in APPLICABLE.get(call.name, ()):
            return 0
        self.hits += 1
        self.paths.append(path)
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return _ACTIONS[kind] if kind in _ACTIONS else getattr(errno, kind)


def faults_of(call: Call) -> list[Fault]:
    """Every fault that this call can have, once and for good. An interruption for good would be a livelock, and a
    process dies once."""
    found = []
    for kind in APPLICABLE[call.name]:
        found.append(Fault(kind, False))
        if not kind.startswith(("killed", "EINTR")):
            found.append(Fault(kind, True))
    return found


class Sites:
    """The table of call sites. It finds those that are on the stack of a call."""

    def __init__(self) -> None:
        self.all = sites()
        self._lines: dict[int, list[tuple[str, int]]] = {}

    def of(self, calls: list[Call]) -> dict[Call, list[Site]]:
        self._resolve({address for call in calls for address in call.addresses})
        return {call: self._of(call) for call in calls}

    def _of(self, call: Call) -> list[Site]:
        native = [(path, line, 0) for at in call.addresses for path, line in self._lines.get(at, [])]
        return [self.all[key] for key in (*native, *call.positions) if key in self.all]

    def lines(self, address: int) -> list[tuple[str, int]]:
        """The source lines of an address in this process."""
        self._resolve({address})
        return self._lines.get(address, [])

    def _resolve(self, addresses: set[int]) -> None:
        places: dict[str, dict[int, int]] = {}
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        ranges = [
            (*(int(end, 16) for end in fields[0].split("-")), int(fields[2], 16), fields[5])
            for fields in maps
            if len(fields) > 5 and fields[5].startswith(_ENGINE)
        ]
        for address in addresses - self._lines.keys():
            for low, high, offset, name in ranges:
                if low <= address < high:
                    places.setdefault(name, {})[address - low + offset] = address
        for name, known in places.items():
            for at, lines in lines_of(name, list(known)).items():
                self._lines[known[at]] = lines
