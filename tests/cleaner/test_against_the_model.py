"""klog's cleaner over random logs leaves what the model says, batch by batch: tests/support/cleaner_reference.py.

The model has been held against Kafka's own cleaner over logs like these: tests/interop/test_cleaner_model.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import klog
from klog.clock import ManualClock
from tests.support import cleaned, cleaner_reference, golden
from tests.support.dirty_logs import DELETED, START_MS, DirtyLog, deletion_behind_an_abort

CHECKPOINT = "cleaner-offset-checkpoint"


def live(seed: int, parent: Path, cleanings: int) -> None:
    """A log is written to and cleaned by turns; each cleaning is compared."""
    log = DirtyLog(seed)
    directory = log.directory(parent)
    for number in range(cleanings):
        log.write(directory)
        plan = log.plan(once=True)
        if plan.afresh:
            (parent / CHECKPOINT).unlink(missing_ok=True)
        task = cleaned.task(directory, plan, log.config)
        dirty = [it for it in task.sources if it.next_offset > task.dirty and it.base_offset < task.uncleanable]
        with cleaned.open_planned(directory, plan, log.config) as opened:
            before = (opened.size, opened.count())
            stats = opened.compact(roll=plan.roll, rounds=1)
            after = (opened.size, opened.count())
        differences = golden.Differences(f"seed {seed}, cleaning {number}")
        differences.equal("before", (stats.bytes_before, stats.records_before), before)
        differences.equal("after", (stats.bytes_after, stats.records_after), after)
        if any(source.size for source in dirty):
            end, made = cleaner_reference.clean(task)
            differences.equal("end", stats.first_dirty_offset, max(end, task.dirty))
            cleaned.compare_with_model(differences, directory, task, made)
        problems = [it for it in klog.verify(directory).problems if it.kind not in ("checkpoint", "gap")]
        differences.equal("problems", problems, [])
        differences.report()


@pytest.mark.parametrize("seed", range(6))
def test_one_life(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path, 3)


@pytest.mark.deep
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(seed=st.integers(1000, 10**9), cleanings=st.integers(1, 5))
def test_any_life(seed: int, cleanings: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    live(seed, tmp_path_factory.mktemp("life"), cleanings)


def test_a_deleted_key_stays_deleted(tmp_path: Path) -> None:
    """Rounds of a small map, the second of which begins behind an abort marker in the middle of a segment. Kafka takes
    the commit behind it for an abort, and the old value outlives its tombstone."""
    directory = tmp_path / "dirty-0"
    config = {
        **deletion_behind_an_abort(directory),
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
