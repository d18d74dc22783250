"""Kafka's cleaner and its model agree over random logs: klog is compared with the model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.interop.cleaning import by_kafka, copy_of, forget, stable_in_both
from tests.interop.kafka import KafkaClasses
from tests.interop.test_cleaner import CLEANINGS, FIRST_SEED, SECONDS, SEEDS
from tests.support import cleaned, cleaner_reference, golden
from tests.support.dirty_logs import DELETED, START_MS, DirtyLog, deletion_after_an_abort

pytestmark = [pytest.mark.java, pytest.mark.deep, pytest.mark.timeout(SECONDS)]


def test_the_model_and_kafka_agree(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    seen = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        log = DirtyLog(seed)
        directory = log.directory(tmp_path / str(seed))
        directory.parent.mkdir()
        for number in range(CLEANINGS):
            log.write(directory)
            plan = stable_in_both(directory, log.plan(once=True))
            forget(directory, plan)
            before = copy_of(directory, tmp_path / f"{seed}-{number}")
            rounds = by_kafka(kafka_classes, directory, plan, log)
            if rounds is None:
                break
            if not rounds:
                continue
            seen += 1
            differences = golden.Differences(f"seed {seed}, cleaning {number}")
            (answer,) = rounds
            task = cleaned.task(before, plan, log.config)
            differences.equal("dirty", task.dirty, answer["first_dirty_offset"])
            differences.equal("uncleanable", task.uncleanable, answer["first_uncleanable_offset"])
            end, made = cleaner_reference.clean(dataclasses.replace(task, mistaken=True))
            differences.equal("end", end, answer["first_dirty_offset_after"])
            cleaned.compare_with_model(differences, directory, task, made)
            differences.report()
    assert seen > SEEDS


def test_kafka_restores_deleted_records(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    """Why the model has `mistaken`, and klog does not: FINDINGS.md."""
    directory = tmp_path / "dirty-0"
    config = deletion_after_an_abort(directory)
    later = START_MS + 1001  # the tombstone's horizon has passed
    answer = kafka_classes.clean(
        directory,
        [
            {"now_ms": START_MS, "first_dirty_offset": None},
            {"now_ms": START_MS, "first_dirty_offset": "previous"},
            {"now_ms": later, "first_dirty_offset": "previous", "roll": True},
        ],
        config=config,
        recovery_point=7,
        slots=2,
        load_factor=1.0,
    )
    assert [item["first_dirty_offset_after"] for item in answer["rounds"]] == [4, 6, 7]
    records = cleaned.keys_and_values(directory)
    assert (DELETED, None) not in records
    assert (DELETED, b"old") in records, "Kafka has fixed this: remove `mistaken`"
