"""Runs a module of the tests under a library for LD_PRELOAD, whose C source is in this directory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run_under(library: str, folder: Path, module: str, *arguments: str, **environment: str) -> None:
    """Compile library.c into the folder, and run `python -m tests.support.MODULE`, which prints "done" at its end."""
    shim = folder / f"{library}.so"
    flags = ["-std=c11", "-O2", "-fPIC", "-shared", str(HERE / f"{library}.c"), "-o", str(shim)]
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), *flags], check=True)
    done = subprocess.run(
        [sys.executable, "-m", f"tests.support.{module}", *arguments],
        cwd=HERE.parents[1],
        env={**os.environ, "LD_PRELOAD": str(shim), **environment},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "done\n", done.stderr
