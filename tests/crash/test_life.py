"""A power cut, or a failing file operation, at every point in the life of a log with truncations and deletions.

P3: the offsets of the log have no gap, the log has the promised records, and no record that a returned truncation
removed reappears, neither at the end nor after later appends.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from klog.errors import StorageOffline
from tests.crash.life import CONFIG, TOPIC, Life, check_found, cut_life, open_state, steps
from tests.crash.opening import open_logs
from tests.support.crash_files import CrashFiles
from tests.support.failing_files import FailingFiles


def test_a_power_cut_at_a_sample_of_operations_leaves_a_legal_log(tmp_path: Path) -> None:
    assert cut_life(tmp_path, stride=17, first=3, randoms=2).distinct > 100


@pytest.mark.parametrize("how", ["within a segment", "segments", "everything", "anew"])
def test_a_truncation_is_on_disk_when_it_returns(tmp_path: Path, how: str) -> None:
    """S8: so it is durable before the next append."""
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


def fail_at(path: Path, nth: int, error: int, *, forever: bool) -> tuple[FailingFiles, Life]:
    files, life = FailingFiles(nth, error, forever=forever, torn=True), Life()
    try:
        for _ in steps(path, files, life):
            pass
    except (OSError, StorageOffline):
        pass
    files.armed = False
    return files, life


def fail_everywhere(tmp_path: Path, stride: int, error: int, *, forever: bool) -> int:
    for nth in range(2, 5000, stride):
        path = tmp_path / str(nth)
        files, life = fail_at(path, nth, error, forever=forever)
        if path.exists():
            try:
                check_found(open_state(path), life, power=False)
            except BaseException as problem:
                problem.add_note(f"nth={nth} failed={files.failed[:3]}")
                raise
            shutil.rmtree(path)
        if not files.failed:
            return nth
    raise AssertionError("no run went through untouched")


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-good"])
def test_a_failure_at_a_sample_of_operations_leaves_a_legal_log(tmp_path: Path, forever: bool) -> None:
    assert fail_everywhere(tmp_path, 15, errno.EIO, forever=forever) > 150


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-good"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_failure_at_every_operation_leaves_a_legal_log(tmp_path: Path, error: int, forever: bool) -> None:
    assert fail_everywhere(tmp_path, 1, error, forever=forever) > 150
