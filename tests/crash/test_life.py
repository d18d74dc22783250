"""Power goes, or an operation on files fails, at every point in the life of a log that is truncated and deleted from.

P3: what is left is a run without a hole, it holds what was promised, and nothing that a truncation took comes back once
that has returned: neither at the end nor behind later appends.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from klog.errors import StorageOffline
from tests.crash.life import CONFIG, TOPIC, Legal, Life, check, steps
from tests.crash.workload import open_logs
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.failing_files import FailingFiles


def run_until(path: Path, stop_at: int | None) -> tuple[CrashFiles, list[Legal]]:
    files, life = CrashFiles(stop_at), Life()
    try:
        for _ in steps(path, files, life):
            pass
    except PowerCut:
        pass
    return files, life.legal


def cut_everywhere(tmp_path: Path, stride: int, first: int, randoms: int) -> int:
    whole, legal = run_until(tmp_path / "whole", None)
    check(tmp_path / "whole", legal, power=True)
    states = 0
    for stop_at in range(first, whole.steps, stride):
        path = tmp_path / f"run-{stop_at}"
        files, legal = run_until(path, stop_at)
        if not path.exists():
            continue
        for name, state in files.states(path, tmp_path / "states", stop_at, randoms):
            try:
                check(state, legal, power=name != "all")
            except BaseException as error:
                error.add_note(f"stop_at={stop_at} state={name} last ops: {files.log[-8:]}")
                raise
            states += 1
        shutil.rmtree(tmp_path / "states", ignore_errors=True)
        shutil.rmtree(path)
    return states


def test_a_power_cut_at_a_sample_of_operations_leaves_a_legal_log(tmp_path: Path) -> None:
    assert cut_everywhere(tmp_path, stride=11, first=3, randoms=1) > 100


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_a_power_cut_at_every_operation_leaves_a_legal_log(tmp_path: Path) -> None:
    seed = int(os.environ.get("KLOG_CRASH_SEED", "0"))
    assert cut_everywhere(tmp_path, stride=1, first=seed % 2, randoms=6) > 800


@pytest.mark.parametrize("how", ["within a segment", "segments", "everything", "anew"])
def test_a_truncation_is_on_disk_when_it_returns(tmp_path: Path, how: str) -> None:
    """S8: before anything can be appended behind it."""
    files = CrashFiles(None)
    with open_logs(tmp_path / "data", files) as logs:
        logs.create_topic(TOPIC, config=CONFIG)
        log = logs.log(TOPIC)
        for _ in range(9):
            log.append([(b"k", b"x" * 50)])
        if how == "anew":
            log.truncate_fully_and_start_at(30)
        else:
            log.truncate_to({"within a segment": 8, "segments": 4, "everything": 0}[how])
        present = {str(path) for path in Path(log.path).glob("*.log")}
        assert {path for path in files.durable_names if path.endswith(".log")} == present
        for path in present:
            assert files.inode(path).pending == []
            assert bytes(files.inode(path).durable) == Path(path).read_bytes()


def fail_at(path: Path, nth: int, error: int, *, forever: bool) -> tuple[FailingFiles, list[Legal]]:
    files, life = FailingFiles(nth, error, forever=forever, torn=True), Life()
    try:
        for _ in steps(path, files, life):
            pass
    except (OSError, StorageOffline):
        pass
    files.armed = False
    return files, life.legal


def fail_everywhere(tmp_path: Path, stride: int, error: int, *, forever: bool) -> int:
    for nth in range(2, 5000, stride):
        path = tmp_path / str(nth)
        files, legal = fail_at(path, nth, error, forever=forever)
        if path.exists():
            try:
                check(path, legal, power=False)
            except BaseException as problem:
                problem.add_note(f"nth={nth} failed={files.failed[:3]}")
                raise
            shutil.rmtree(path)
        if not files.failed:
            return nth
    raise AssertionError("no run went through untouched")


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-good"])
def test_a_failure_at_a_sample_of_operations_leaves_a_legal_log(tmp_path: Path, forever: bool) -> None:
    assert fail_everywhere(tmp_path, 9, errno.EIO, forever=forever) > 150


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-good"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_failure_at_every_operation_leaves_a_legal_log(tmp_path: Path, error: int, forever: bool) -> None:
    assert fail_everywhere(tmp_path, 1, error, forever=forever) > 150
