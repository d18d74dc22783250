"""A memory control group for one command, by version 1 or 2 of the kernel's interface. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.contest import Unavailable

_ROOT = Path("/sys/fs/cgroup")


def _limit_file(group: Path) -> Path:
    return group / ("memory.max" if (group / "cgroup.controllers").exists() else "memory.limit_in_bytes")


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """Make a group with this memory limit, page cache included, and remove it at the end. Raises Unavailable if the
    kernel does not permit it."""
    parent = _ROOT / "memory" if (_ROOT / "memory").is_dir() else _ROOT
    group = parent / f"klog-bench-{os.getpid()}"
    try:
        if parent == _ROOT:
            (parent / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
        _limit_file(group).write_text(str(limit_bytes))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise Unavailable(f"a memory cgroup ({error})") from None
    try:
        yield group
    finally:
        for _ in range(50):  # the kernel may still be cleaning up after a process that has just ended in it
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def run_in(group: Path | None, command: Sequence[str]) -> str:
    """Run a command in a group, or without one if it is None. Returns its output."""

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, preexec_fn=enter)
    return done.stdout


def peak_bytes(group: Path) -> int | None:
    """Return the peak memory of a group in bytes; None if the kernel does not report it."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (group / name).exists():
            return int((group / name).read_text())
    return None
