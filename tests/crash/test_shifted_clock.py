"""F25: the machine's wall clock jumps by days, forwards and back, while a log is used (tests/support/shifted.py)."""

from __future__ import annotations

from pathlib import Path

from tests.support.preload import run_under


def test_a_log_works_on_while_the_wall_clock_jumps(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_bytes(bytes(8))
    run_under("shifted_clock", tmp_path, "shifted", str(tmp_path / "data"), str(clock), KLOG_TEST_CLOCK=str(clock))
