"""Power cuts of real ext4 and xfs while a writer runs: nothing is lost that was promised before the cut.

The writers are those of tests/crash/reported.py: appends with each durability and write policy, truncations, producers,
compaction, topics, group commit from several threads. Some cuts come while klog loads the files that the previous cut
has left.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.file_systems import KINDS, ROOT, alone
from tests.support.patience import until

WORKLOADS = 12
PROGRAM = "tests.crash.real_cuts"
HOW: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True}


def cut(place: Path, kind: str, cuts: int, seed: int) -> dict[str, Any]:
    done = subprocess.run(alone(kind, PROGRAM, str(place), kind, str(cuts), str(seed)), **HOW)
    assert done.returncode == 0, f"seed={seed}\n{done.stderr}"
    tally: dict[str, Any] = json.loads(done.stdout)
    print(f"count: {tally['cuts']} power cuts of real file systems")
    assert tally["cuts"] == cuts
    assert tally["exit 3"] > 0, "no writer was cut while it worked"
    return tally


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_some_power_cuts_keep_what_was_promised(tmp_path: Path, kind: str, crash_seed: int) -> None:
    cut(tmp_path, kind, WORKLOADS * 2, crash_seed)


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_power_cuts_keep_what_was_promised(tmp_path: Path, kind: str, crash_seed: int) -> None:
    tally = cut(tmp_path, kind, WORKLOADS * 26, crash_seed)
    assert tally["second cuts"] > 30


@pytest.mark.deep
@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_power_cuts_find_a_sync_that_does_nothing(tmp_path: Path, call: str) -> None:
    """If the writer's syncs do nothing, its promises are broken, and the checks must find that."""
    done = subprocess.run(alone("ext4", PROGRAM, str(tmp_path), "ext4", str(WORKLOADS * 4), "1", call), **HOW)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("ext4 seed=1 cut"), done.stderr


def test_nothing_stays_attached_when_the_test_is_killed(tmp_path: Path) -> None:
    def backing_file(device: Path) -> str:
        try:
            return (device / "loop" / "backing_file").read_text()
        except OSError:  # free, or just detached: other tests use loop devices, too
            return ""

    def attached() -> bool:
        return any(backing_file(device).startswith(str(tmp_path)) for device in Path("/sys/block").glob("loop*"))

    command = alone("ext4", PROGRAM, str(tmp_path), "ext4", "100000", "1")
    program = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        until(attached)
    finally:
        program.kill()
        program.communicate()
    until(lambda: not attached())
