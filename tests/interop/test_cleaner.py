"""klog's cleaner and Kafka's over the same random logs, with the same clock."""

from __future__ import annotations

import collections
import dataclasses
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import klog
from tests.interop.cleaning import by_kafka, by_klog, checkpoint_of, copy_of, forget, stable_in_both
from tests.interop.kafka import KafkaClasses
from tests.support import cleaned, cleaner_reference
from tests.support.dirty_logs import DirtyLog, Plan

SEEDS = int(os.environ.get("KLOG_CLEANER_SEEDS", "40"))
FIRST_SEED = int(os.environ.get("KLOG_CLEANER_FIRST_SEED", "0"))
CLEANINGS = 4
SECONDS = 300 + 30 * SEEDS  # enough for all of them on a slow machine

pytestmark = [pytest.mark.java, pytest.mark.deep, pytest.mark.timeout(SECONDS)]


def ages(directory: Path) -> dict[str, int]:
    """The age of each closed segment; the last one is still being written."""
    logs = sorted(directory.glob("*.log"))
    return {path.name: path.stat().st_mtime_ns // 1_000_000 for path in logs[:-1]}


def may_be_mistaken(before: Path, plan: Plan, rounds: list[Any]) -> bool:
    """Whether Kafka could have treated committed records as aborted ones, or the reverse. FINDINGS.md: this happens if a
    range begins inside a segment, or the log begins after a marker."""
    ends = [entry[2] for path in before.glob("*.txnindex") for entry in cleaned.aborted_in(path)]
    bases = {int(path.stem) for path in before.glob("*.log")}
    for item in rounds:
        if item["first_dirty_offset"] not in bases and ends:
            return True
        bases = {segment["base_offset"] for segment in item["segments"]}
    return any(end < plan.log_start_offset for end in ends)


def mistaken(before: Path, plan: Plan, log: DirtyLog, rounds: list[Any]) -> bool:
    """Whether Kafka did so. The model covers only the first of several rounds: later rounds count as mistaken if they may
    be."""
    if not may_be_mistaken(before, plan, rounds):
        return False
    task = cleaned.task(copy_of(before, before.parent / "asked"), plan, log.config)
    wrong = dataclasses.replace(task, mistaken=True)
    return len(rounds) > 1 or cleaner_reference.clean(task) != cleaner_reference.clean(wrong)


def compare(
    mine: Path, theirs: Path, before: Path, stats: klog.cleaner.CompactionStats, rounds: list[Any]
) -> list[str]:
    found = []
    if rounds:
        end = rounds[-1]["first_dirty_offset_after"]
        if stats.first_dirty_offset != end:
            found.append(f"ends at {stats.first_dirty_offset}, Kafka at {end}")
        if checkpoint_of(mine) != checkpoint_of(theirs):
            found.append(f"checkpoint {checkpoint_of(mine)!r}, Kafka {checkpoint_of(theirs)!r}")
    found += cleaned.files_differ(mine, theirs, bytes_alike=not cleaned.has_codecs(before))
    if ages(mine) != ages(theirs):
        found.append(f"ages {ages(mine)}, Kafka {ages(theirs)}")
    return found


def test_klog_and_kafka_agree(kafka_classes: KafkaClasses, tmp_path: Path) -> None:
    """Both clean a copy of the same directory, and all files that they leave are equal. One of the two copies,
    alternately, is written to next and cleaned again: each continues with what the other one cleaned."""
    found: list[str] = []
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        log, turn = DirtyLog(seed), random.Random(seed)
        mine = log.directory(tmp_path / str(seed))
        mine.parent.mkdir()
        for number in range(CLEANINGS):
            log.write(mine)
            # A codec that saves one byte changes the groups of the next round: then only one round is compared.
            plan = stable_in_both(mine, log.plan(once=True if cleaned.has_codecs(mine) else None))
            forget(mine, plan)
            before = copy_of(mine, tmp_path / f"{seed}-{number}-before")
            theirs = copy_of(mine, tmp_path / f"{seed}-{number}-kafka")
            rounds = by_kafka(kafka_classes, theirs, plan, log)
            stats = by_klog(mine, plan, log)
            odd = [f"{it}" for it in klog.verify(mine).problems if it.kind not in ("checkpoint", "gap")]
            if rounds is None or mistaken(before, plan, log, rounds):
                counts["not compared"] += 1
            else:
                counts["compared"] += bool(rounds)
                odd += compare(mine, theirs, before, stats, rounds)
                if turn.random() < 0.5 and not odd:
                    shutil.rmtree(mine.parent)
                    mine = copy_of(theirs, mine.parent)
            found += [f"seed {seed}, cleaning {number}: {text}" for text in odd]
            if odd:
                break
            for path in (before, theirs):
                shutil.rmtree(path.parent)
        if len(found) > 20:
            break
    assert not found, "\n".join(found)
    assert counts["compared"] > counts["not compared"]
