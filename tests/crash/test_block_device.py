"""ext4 and xfs on a disk that records its writes and flushes: power cuts between any two writes, flushes that fail, and
flushes that do nothing.

tests/crash/device_cuts.py describes the method. This file sets how many states are tried.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.block_device import HOW
from tests.support.file_systems import ROOT, alone

WORKLOADS = 12


def run(place: Path, kind: str, what: str, seed: int, states: int) -> dict[str, int]:
    if not os.path.exists("/dev/fuse"):
        pytest.skip("needs: /dev/fuse")
    command = alone(kind, "tests.crash.device_cuts", kind, what, str(place), str(seed), str(states))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"seed={seed}\n{done.stderr}"
    tally: dict[str, int] = json.loads(done.stdout)
    return tally


def test_some_device_states_keep_what_was_promised(tmp_path: Path, crash_seed: int) -> None:
    assert run(tmp_path, "ext4", "cuts", crash_seed, 2)["states"] == 2 * WORKLOADS


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["ext4", "ext4-writeback", "xfs"])
def test_device_states_keep_what_was_promised(tmp_path: Path, kind: str, crash_seed: int) -> None:
    tally = run(tmp_path, kind, "cuts", crash_seed, 30)
    print(f"count: {tally['states']} states of a block device with real file systems")
    assert tally["states"] == 30 * WORKLOADS
    assert tally["flushes"] > 1000 and all(tally[how] for how in HOW)


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.deep)])
def test_a_failed_write_or_flush_of_the_device_is_final(tmp_path: Path, kind: str) -> None:
    """S2, F19: the failure occurs in a flush, a roll, an append with durability="sync", or a close."""
    assert run(tmp_path, kind, "faults", 0, 0) == {"faults": 8}


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_nothing_wrong_is_served_after_flushes_that_did_nothing(tmp_path: Path, kind: str, crash_seed: int) -> None:
    """P5: each value is at its offset, or an error reports the file and position."""
    tally = run(tmp_path, kind, "lies", crash_seed, 60)
    assert tally["states"] == 120 and tally["opened"] > 40
