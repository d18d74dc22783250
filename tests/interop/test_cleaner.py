"""klog's cleaner, Kafka's cleaner and the model over the same random logs, with the same clock."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.interop.kafka import Judge
from tests.support import cleaned, cleaner_reference, golden
from tests.support.dirty_logs import DirtyLog, Plan

pytestmark = [pytest.mark.java, pytest.mark.deep]

SEEDS = int(os.environ.get("KLOG_CLEANER_SEEDS", "60"))
FIRST_SEED = int(os.environ.get("KLOG_CLEANER_FIRST_SEED", "0"))
CLEANINGS = 4
CHECKPOINT = "cleaner-offset-checkpoint"


def copy_of(directory: Path, into: Path) -> Path:
    """With the checkpoint beside it; modification times are kept."""
    into.mkdir()
    if (directory.parent / CHECKPOINT).exists():
        shutil.copy2(directory.parent / CHECKPOINT, into)
    return Path(shutil.copytree(directory, into / directory.name))


# A merged segment needs an index entry more than its sources had, each of which had none for its first batch. Where that
# is more than segment.index.bytes, Kafka's cleaner fails, and the partition stays as it is.
KAFKA_FAILS = ("Attempt to append to a full time index", "Attempt to append to a full index")


def by_kafka(judge: Judge, directory: Path, plan: Plan, log: DirtyLog) -> list[Any] | None:
    """The rounds that Kafka made of the plan over the directory; None where it cannot."""
    try:
        answer = _clean(judge, directory, plan, log)
    except AssertionError as error:
        if any(reason in str(error) for reason in KAFKA_FAILS):
            return None
        raise
    rounds = answer["rounds"]
    assert isinstance(rounds, list)
    return rounds


def _clean(judge: Judge, directory: Path, plan: Plan, log: DirtyLog) -> Any:
    return judge.clean(
        directory,
        [{"now_ms": plan.now_ms, "first_dirty_offset": "checkpoint", "roll": plan.roll}],
        config={name: value for name, value in log.config.items() if name != "retention.ms"},
        recovery_point=plan.log_end_offset,
        log_start_offset=plan.log_start_offset,
        high_watermark=plan.high_watermark,
        slots=plan.slots,
        load_factor=plan.load_factor,
        io_buffer_size=plan.io_buffer_size,
        until_clean=not plan.once,
        only_dirty=True,
    )


def test_the_model_and_kafka_agree(judge: Judge, tmp_path: Path) -> None:
    """The model is judged as well: whatever klog is held against must be what Kafka does."""
    differences = golden.Differences("model")
    seen = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        log = DirtyLog(seed)
        directory = log.directory(tmp_path / str(seed))
        directory.parent.mkdir()
        for number in range(CLEANINGS):
            log.write(directory)
            plan = log.plan(once=True)
            if plan.afresh:
                (directory.parent / CHECKPOINT).unlink(missing_ok=True)
            before = copy_of(directory, tmp_path / f"{seed}-{number}")
            where = f"seed {seed}, cleaning {number}"
            rounds = by_kafka(judge, directory, plan, log)
            if rounds is None:
                break
            if not rounds:
                continue
            (answer,) = rounds
            seen += 1
            task = cleaned.task(
                before, plan, log.config, answer["first_dirty_offset"], answer["first_uncleanable_offset"]
            )
            end, made = cleaner_reference.clean(dataclasses.replace(task, mistaken=True))
            differences.equal(f"{where}: end", end, answer["first_dirty_offset_after"])
            bases = [segment["base_offset"] for segment in answer["segments"]]
            replaced = {source.base_offset for segment in made for source in segment.sources}
            kept = [source.base_offset for source in task.sources if source.base_offset not in replaced]
            differences.equal(
                f"{where}: segments", sorted([segment.base_offset for segment in made] + kept), bases[:-1]
            )
            for segment in made:
                path = directory / f"{segment.base_offset:020}.log"
                if path.exists():
                    got = cleaned.kept_in(path)
                    differences.equal_lists(f"{where}: {path.name}", got, segment.batches)
                    differences.equal_lists(
                        f"{where}: aborted in {path.name}",
                        cleaned.aborted_in(path.with_suffix(".txnindex")),
                        segment.aborted,
                    )
            if differences.found:
                differences.report()
    assert seen > SEEDS
