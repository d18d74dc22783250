"""Fuzz targets: seeds and kept inputs in every run, a bounded search in the deep one."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.fuzz import build
from tests.fuzz.face import TARGETS

SECONDS = int(os.environ.get("KLOG_FUZZ_SECONDS", "20"))


@pytest.mark.parametrize("name", build.C_TARGETS)
def test_c_targets_accept_golden_bytes_and_kept_inputs(name: str) -> None:
    try:
        program = build.build_replay(name)
    except build.Unavailable as missing:
        pytest.skip(f"needs: {missing}")
    inputs = build.inputs(name)
    assert inputs
    done = subprocess.run([program, *map(str, inputs)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    assert f"{len(inputs)} inputs" in done.stdout


@pytest.mark.parametrize("name", build.FACE_TARGETS)
def test_python_targets_accept_golden_bytes_and_kept_inputs(name: str) -> None:
    inputs = build.inputs(name)
    assert inputs
    for path in inputs:
        data = path.read_bytes()
        TARGETS[name](data)
        TARGETS[name](data[: len(data) // 2])


@pytest.mark.deep
@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.parametrize("name", build.C_TARGETS + build.FACE_TARGETS)
def test_fuzzing_finds_nothing(name: str) -> None:
    try:
        done = build.run(name, SECONDS)
    except build.Unavailable as missing:
        pytest.skip(f"needs: {missing}")
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_inputs_reach_the_code_that_takes_bytes_apart() -> None:
    done = subprocess.run([build.ROOT / "tools" / "fuzz_coverage.sh"], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
