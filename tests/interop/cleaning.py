"""Run Kafka's cleaner and klog's on copies of one directory."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import klog
from tests.interop.kafka import KafkaClasses
from tests.support import cleaned
from tests.support.dirty_logs import DirtyLog, Plan

CHECKPOINT = "cleaner-offset-checkpoint"

# A merged segment needs one more index entry than its sources, each of which had none for its first batch. If that is
# more than segment.index.bytes, Kafka's cleaner fails, and the partition stays unchanged.
KAFKA_FAILS = ("Attempt to append to a full time index", "Attempt to append to a full index")


def copy_of(directory: Path, into: Path) -> Path:
    """Copy the directory with its checkpoint; modification times are kept."""
    into.mkdir()
    if (directory.parent / CHECKPOINT).exists():
        shutil.copy2(directory.parent / CHECKPOINT, into)
    return Path(shutil.copytree(directory, into / directory.name))


def checkpoint_of(directory: Path) -> str | None:
    path = directory.parent / CHECKPOINT
    return path.read_text() if path.exists() else None


def forget(directory: Path, plan: Plan) -> None:
    """Remove the checkpoint if a plan begins afresh."""
    if plan.afresh:
        (directory.parent / CHECKPOINT).unlink(missing_ok=True)


def stable_in_both(directory: Path, plan: Plan) -> Plan:
    """The plan, without its high watermark if a marker lies at or above it: after a start such a transaction is still not
    stable in klog, but in Kafka, which keeps that nowhere."""
    high = plan.high_watermark
    last = max(
        (b.base_offset for path in directory.glob("*.log") for b in cleaned.batches_of(path) if b.is_control),
        default=-1,
    )
    return dataclasses.replace(plan, high_watermark=None) if high is not None and last >= high else plan


def by_kafka(kafka_classes: KafkaClasses, directory: Path, plan: Plan, log: DirtyLog) -> list[Any] | None:
    """The rounds of Kafka's cleaner for the plan over the directory; None if it fails."""
    try:
        answer = kafka_classes.clean(
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
    except AssertionError as error:
        if any(reason in str(error) for reason in KAFKA_FAILS):
            return None
        raise
    rounds = answer["rounds"]
    assert isinstance(rounds, list)
    return rounds


def by_klog(directory: Path, plan: Plan, log: DirtyLog) -> klog.cleaner.CompactionStats:
    """Clean the directory with klog as planned."""
    with cleaned.open_planned(directory, plan, log.config) as opened:
        return opened.compact(roll=plan.roll, rounds=1 if plan.once else None)
