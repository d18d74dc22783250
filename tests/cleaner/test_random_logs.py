"""Random logs, cleaned round after round, against the model of it. The model knows M1 to M4 (tests/support); Kafka's own
cleaner goes over the same logs in tests/interop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import cleaned, cleaner_reference, golden
from tests.support.dirty_logs import DirtyLog

CLEANINGS = 3


def clean_as_planned(seed: int, place: Path) -> int:
    """How many cleanings had something to do."""
    log, worked = DirtyLog(seed), 0
    directory = log.directory(place)
    directory.parent.mkdir(exist_ok=True)
    for number in range(CLEANINGS):
        log.write(directory)
        plan = log.plan(once=True)
        if plan.afresh:
            (directory.parent / "cleaner-offset-checkpoint").unlink(missing_ok=True)
        task = cleaned.task(directory, plan, log.config)  # rolls, where that is planned
        end, made = cleaner_reference.clean(task)
        with cleaned.open_planned(directory, plan, log.config) as opened:
            stats = opened.compact(rounds=1)
        if task.dirty >= task.uncleanable or stats.rounds == 0:
            continue
        worked += 1
        differences = golden.Differences(f"seed {seed}, cleaning {number}")
        differences.equal("end", stats.first_dirty_offset, max(end, task.dirty))
        cleaned.compare_with_model(differences, directory, task, made)
        differences.report()
    return worked


@pytest.mark.parametrize("first", [0, 10, 20])
def test_what_is_left_is_what_the_model_leaves(first: int, tmp_path: Path) -> None:
    """CL19 to CL31, CL35, CL36: transactions, tombstones, producers and small maps, in any order."""
    worked = sum(clean_as_planned(seed, tmp_path / str(seed)) for seed in range(first, first + 10))
    assert worked >= 10


@pytest.mark.deep
def test_what_is_left_of_many_logs_is_what_the_model_leaves(tmp_path: Path) -> None:
    for seed in range(1000, 1300):
        clean_as_planned(seed, tmp_path / str(seed))
