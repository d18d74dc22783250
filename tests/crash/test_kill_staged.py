"""A commit of staged files that a SIGKILL, a failing disk or a power cut stops at any point is whole or absent.

The ordinary run stops at a sample of the steps; `deep` at each failure and power cut, and at a third of the kills.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import KlogError
from klog.log.options import Policy
from klog.log.staged import layout
from klog.log.staged.writers import announce
from klog.manager.staging import abort_staged
from tests.crash import staged
from tests.support.crash_files import CrashFiles
from tests.support.failing_files import FailingFiles
from tests.support.killer import killed_at
from tests.support.power_cuts import PowerCuts
from tests.support.seeds import drawn, third

SAMPLES = pytest.mark.parametrize("sample", [pytest.param(0, marks=[pytest.mark.deep, pytest.mark.timeout(1200)]), 10])


@pytest.fixture
def prepared(quick_path: Path) -> Path:
    """A log.dir with records from before the job."""
    staged.fill(quick_path / "prepared")
    return quick_path / "prepared"


def copied(prepared: Path) -> Path:
    root = prepared.parent / "run"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(prepared, root)
    return root


def kills(
    prepared: Path, work: Callable[[Path, Callable[[], None]], object], sample: int, least: int = 30
) -> Iterator[tuple[Path, bool]]:
    """Yields (directory, whether the work was killed) for `sample` of the calls that change something (0: for a third),
    and for a run to the end."""
    calls = killed_at(0, lambda armed: work(copied(prepared), armed)).calls
    assert len(calls) > least
    every = range(1, len(calls) + 1)
    chosen = every[:: len(calls) // sample] if sample else third(every, drawn())
    for nth in (*chosen, len(calls) + 1):
        root = copied(prepared)
        end = killed_at(nth, lambda armed, root=root: work(root, armed))  # type: ignore[misc]
        yield root, end.killed


def staging_and_commit(root: Path, armed: Callable[[], None]) -> None:
    armed()
    staged.commit(root, staged.stage(root))


@SAMPLES
def test_a_kill_at_any_call_leaves_all_or_nothing(prepared: Path, sample: int) -> None:
    outcomes = set()
    for root, was_killed in kills(prepared, staging_and_commit, sample):
        committed = staged.check(root)
        assert committed or was_killed
        outcomes.add(committed)
        if not committed:  # run the same job again, as after a restart of its query
            staged.commit(root, staged.stage(root))
            assert staged.check(root)
    assert outcomes == {False, True}


@SAMPLES
def test_a_kill_while_a_start_finishes_the_commit(prepared: Path, sample: int) -> None:
    """Only the manifest has been written, and the start that finishes the commit is killed at any call."""
    interrupt_after_the_manifest(prepared)
    assert staged.content(prepared, read_only=True) == staged.OLD

    def start(root: Path, armed: Callable[[], None]) -> None:
        armed()
        klog.open(root, clock=ManualClock(staged.NOW)).close()

    for root, _ in kills(prepared, start, sample):
        assert staged.check(root)


@SAMPLES
def test_a_kill_while_log_open_finishes_its_partition(prepared: Path, sample: int) -> None:
    interrupt_after_the_manifest(prepared)

    def start(root: Path, armed: Callable[[], None]) -> None:
        armed()
        for topic, partition in staged.TARGETS:
            klog.Log.open(root / f"{topic}-{partition}", config=staged.CONFIG, clock=ManualClock(staged.NOW)).close()

    for root, _ in kills(prepared, start, sample):
        assert staged.check(root)


@SAMPLES
@pytest.mark.parametrize("what", ["abort", "start"])
def test_a_kill_while_the_staging_is_removed(prepared: Path, what: str, sample: int) -> None:
    staged.stage(prepared)

    def work(root: Path, armed: Callable[[], None]) -> None:
        armed()
        if what == "abort":
            abort_staged(str(root), staged.TOKEN)
        else:
            klog.open(root, clock=ManualClock(staged.NOW)).close()

    for root, _ in kills(prepared, work, sample, 10):
        assert not staged.check(root)


class _Stop(BaseException):
    """The process ends here."""


class _StopsAfter(FailingFiles):
    """Ends the process after it has written the manifest."""

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        super().replace(path, data, private=private)
        if os.path.basename(path).startswith("klog-commit-"):
            raise _Stop


def interrupt_after_the_manifest(root: Path) -> None:
    job = staged.stage(root)
    with pytest.raises(_Stop):
        staged.commit(root, job, _StopsAfter(armed=False))
    assert os.path.exists(layout.commit_path(str(root), staged.TOKEN))


@pytest.mark.parametrize("stride", [pytest.param(1, marks=[pytest.mark.deep, pytest.mark.timeout(1200)]), 17])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-good"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_failure_of_the_disk_leaves_all_or_nothing(prepared: Path, error: int, forever: bool, stride: int) -> None:
    """Spark aborts a job whose commit raised: the abort removes the staged files, or finishes the commit if the job was
    committed."""
    for nth in range(1 + error % stride, 1000, stride):
        root = copied(prepared)
        files = FailingFiles(nth, error, forever=forever, torn=True)
        raised = False
        try:
            staged.commit(root, staged.stage(root, files), files)
        except (OSError, KlogError):
            raised = True
            with contextlib.suppress(OSError, KlogError):
                abort_staged(str(root), staged.TOKEN, files=files)
            was_committed = os.path.exists(layout.commit_path(str(root), staged.TOKEN))
            done = abort_staged(str(root), staged.TOKEN)
            assert done == was_committed
        committed = staged.check(root)
        assert committed or raised
        if not files.failed:
            assert nth > 60 and committed
            return
    raise AssertionError("no run had fewer operations")


def cut_commits(place: Path, *, stride: int, randoms: int, seed: int = 0) -> int:
    committed = False

    def open_state(root: Path, recovery: Policy) -> bool:
        for path in root.glob("klog-staging-*.json"):  # the job's process has ended with the power
            path.unlink()
            announce(str(root), staged.TOKEN, staged.ended(), RealFiles())
        seen = staged.content(root, read_only=False, recovery=recovery)
        assert staged.leftovers(root) == []
        assert seen in (staged.OLD, staged.NEW)
        return seen == staged.NEW

    def check_found(found: bool, only_died: bool) -> None:
        assert found or not committed

    def work(root: Path, files: CrashFiles) -> None:
        nonlocal committed
        if not (root / "klog-topics.json").exists():
            staged.fill(root, files)
        cuts.begin()
        staged.commit(root, staged.stage(root, files), files)
        committed = True

    cuts = _CutsOfTheJob(place, open_state, check_found, stride=stride, randoms=randoms, seed=seed)
    return cuts.run(work).distinct


class _CutsOfTheJob(PowerCuts[bool]):
    """Cuts the power only after the job has begun. Several threads close logs, so a lock allows one cut at a time."""

    begun = False
    one = threading.RLock()

    def begin(self) -> None:
        self.begun = True

    def _before_step(self) -> None:
        with self.one:
            if self.begun:
                super()._before_step()


def test_a_power_cut_at_a_sample_of_operations(quick_path: Path) -> None:
    assert cut_commits(quick_path, stride=29, randoms=1) > 5


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_a_power_cut_at_every_operation(quick_path: Path, crash_seed: int) -> None:
    assert cut_commits(quick_path, stride=1, randoms=4, seed=crash_seed) > 100
