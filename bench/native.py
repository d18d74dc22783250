"""Compiles the C code of a contest when the contest runs: a peer's loop without Python."""

from __future__ import annotations

import ctypes
import functools
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from bench.contest import Unavailable

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def compiled(source: str, *more: str) -> ctypes.CDLL:
    """Build bench/<source> with files of csrc, once per process, and load it. Raises Unavailable without a compiler."""
    command = [*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-D_GNU_SOURCE", "-O3", "-fPIC", "-shared"]
    files = [str(ROOT / "bench" / source), *(str(ROOT / "csrc" / name) for name in more)]
    with tempfile.TemporaryDirectory(prefix="klog-bench-") as folder:
        target = str(Path(folder) / f"{Path(source).stem}.so")
        try:
            subprocess.run([*command, f"-I{ROOT / 'csrc'}", *files, "-o", target, "-ldl"], check=True)
        except FileNotFoundError:
            raise Unavailable(f"a C compiler ({command[0]})") from None
        return ctypes.CDLL(target)  # a loaded library stays when its file is deleted
