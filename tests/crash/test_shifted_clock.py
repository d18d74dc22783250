"""F25: the machine's wall clock jumps by days, forwards and back, while a log is used (tests/support/shifted.py)."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.file_systems import ROOT


def test_a_log_works_on_while_the_wall_clock_jumps(tmp_path: Path) -> None:
    shim, clock = tmp_path / "shifted.so", tmp_path / "clock"
    source = ROOT / "tests" / "support" / "shifted_clock.c"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-std=c11", "-O2", "-fPIC", "-shared", str(source), "-o", str(shim)], check=True)
    clock.write_bytes(bytes(8))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.shifted", str(tmp_path / "data"), str(clock)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(shim), "KLOG_TEST_CLOCK": str(clock)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "done\n", done.stderr
