"""Of random logs, klog's cleaner leaves the same batches as the model, tests/support/cleaner_reference.py.

The model was compared with Kafka's own cleaner over logs like these: tests/interop/test_cleaner_model.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import klog
from klog.clock import ManualClock
from tests.support import cleaned, cleaner_reference, golden
from tests.support.dirty_logs import DELETED, START_MS, DirtyLog, deletion_after_an_abort
from tests.support.examples import OF_FIXTURES

CHECKPOINT = "cleaner-offset-checkpoint"


def compare(log: klog.Log, directory: Path, task: cleaner_reference.Task, where: str) -> None:
    """Run one round over a log, and compare the result with that of the model."""
    before = (log.size, log.count())
    stats = log.compact(rounds=1)
    differences = golden.Differences(where)
    differences.equal("before", (stats.bytes_before, stats.records_before), before)
    differences.equal("after", (stats.bytes_after, stats.records_after), (log.size, log.count()))
    dirty = [it for it in task.sources if it.next_offset > task.dirty and it.base_offset < task.uncleanable]
    if any(source.size for source in dirty):
        end, made = cleaner_reference.clean(task)
        differences.equal("end", stats.first_dirty_offset, max(end, task.dirty))
        cleaned.compare_with_model(differences, directory, task, made)
    sizes = {path.name: path.stat().st_size for path in directory.iterdir() if path.suffix in (".index", ".timeindex")}
    too_large = {name: size for name, size in sizes.items() if size > task.index_bytes}
    differences.equal("indexes beyond segment.index.bytes, where Kafka's cleaner would fail", too_large, {})
    differences.report()


def problems(directory: Path) -> list[object]:
    """The problems that verify finds, except missing log.dir files (a single log has none) and intended offset gaps."""
    return [problem for problem in klog.verify(directory).problems if problem.kind not in ("checkpoint", "gap")]


def live_in_sessions(seed: int, parent: Path, cleanings: int) -> None:
    """Write and clean a log alternately, and reopen it each time."""
    log = DirtyLog(seed)
    directory = log.directory(parent)
    for number in range(cleanings):
        log.write(directory)
        plan = log.plan(once=True)
        if plan.afresh:
            (parent / CHECKPOINT).unlink(missing_ok=True)
        task = cleaned.task(directory, plan, log.config)  # has rolled
        with cleaned.open_planned(directory, plan, log.config) as opened:
            compare(opened, directory, task, f"seed {seed}, cleaning {number}")
        assert problems(directory) == []


def live_in_one_session(seed: int, parent: Path, cleanings: int) -> None:
    """Write and clean a log that stays open: its caches must follow the segments. A load after a crash, which has no
    caches, must read the same."""
    log = DirtyLog(seed)
    first = log.plan(once=True)
    clock = ManualClock(first.now_ms)
    directory = log.directory(parent)
    with cleaned.open_planned(directory, dataclasses.replace(first, high_watermark=None), log.config, clock) as opened:
        for number in range(cleanings):
            log.append_to(opened, clock)
            plan = dataclasses.replace(log.plan(once=True), slots=first.slots, load_factor=first.load_factor)
            clock.advance(plan.now_ms - clock.wall_ms())
            if plan.afresh:
                (parent / CHECKPOINT).unlink(missing_ok=True)
            if plan.roll:
                opened.roll()
            task = cleaned.task_of(opened, plan, log.config)
            compare(opened, directory, task, f"seed {seed}, cleaning {number}")
        read = [list(opened.read(isolation=isolation)) for isolation in ("read_committed", "high_watermark")]
    assert problems(directory) == []
    with klog.Log.open(directory, config=log.config, clean_shutdown=False, recovery_point=0, clock=clock) as opened:
        assert [list(opened.read(isolation=isolation)) for isolation in ("read_committed", "high_watermark")] == read


@pytest.mark.parametrize("seed", [*range(10), 321, 324])  # the last two need more index entries than fit
@pytest.mark.parametrize("life", [live_in_sessions, live_in_one_session])
def test_random_logs_match_the_model(seed: int, life: Callable[[int, Path, int], None], tmp_path: Path) -> None:
    life(seed, tmp_path, 3)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@settings(suppress_health_check=OF_FIXTURES, deadline=None)
@given(seed=st.integers(1000, 10**9), cleanings=st.integers(1, 5))
@pytest.mark.parametrize("life", [live_in_sessions, live_in_one_session])
def test_many_random_logs_match_the_model(
    life: Callable[[int, Path, int], None], seed: int, cleanings: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    life(seed, tmp_path_factory.mktemp("life"), cleanings)


def test_a_deleted_key_stays_deleted(tmp_path: Path) -> None:
    """Rounds with a small map: the second round begins after an abort marker in the middle of a segment.

    Kafka takes the following commit marker for an abort, so the old value outlives its tombstone."""
    directory = tmp_path / "dirty-0"
    config = {
        **deletion_after_an_abort(directory),
        "log.cleaner.threads": 1,
        "log.cleaner.dedupe.buffer.size": 2 * 24,
        "log.cleaner.io.buffer.load.factor": 1.0,
    }
    for now, roll, end in ((START_MS, False, 6), (START_MS + 1001, True, 7)):
        with klog.Log.open(
            directory, config=config, clean_shutdown=True, recovery_point=7, clock=ManualClock(now)
        ) as log:
            assert log.compact(roll=roll).first_dirty_offset == end
    records = [(record.key, record.value) for record in klog_records(directory, config)]
    assert DELETED not in [key for key, _ in records]


def klog_records(directory: Path, config: dict[str, object]) -> list[klog.Record]:
    with klog.Log.open(directory, config=config, clean_shutdown=True, recovery_point=7) as log:
        return list(log.read())
