"""Kafka's loader reads logs that tasks and a driver have compacted or indexed, and ignores the files that a task has
staged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.spark.compacting import Outcome, build_one
from tests.interop.kafka import KafkaClasses
from tests.interop.loads import Given, differences, kafka_loads, klog_verdict
from tests.spark.test_compacting import CONFIG, TOPIC, fill, run
from tests.spark.test_reindexing import damage, reindex

pytestmark = [pytest.mark.java, pytest.mark.deep]


def check(kafka_classes: KafkaClasses, root: Path, copies: Path, *, clean: bool) -> None:
    """Kafka's view of copies of the partitions is klog's."""
    given = [
        Given(Path(shutil.copytree(path, copies / path.name)), clean=clean, now_ms=klog.clock.SystemClock().wall_ms(),
              config={"cleanup.policy": "compact", "segment.bytes": CONFIG["segment.bytes"]})
        for path in sorted(root.glob(f"{TOPIC}-?"))
    ]  # fmt: skip
    found = kafka_loads(kafka_classes, given)
    assert len(found) == 2
    with klog.open(root, read_only=True) as logs:
        for log, verdict in zip((logs.log(TOPIC, number) for number in range(2)), found, strict=True):
            assert verdict.error is None and verdict.log_end_offset == log.log_end_offset
            assert differences(verdict, klog_verdict(log), leave_out=("recovery_point", "producers")) == []


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafka_reads_a_compacted_log(kafka_classes: KafkaClasses, tmp_path: Path, clean: bool) -> None:
    fill(tmp_path / "data", 3000)
    staged: list[Path] = []

    def build(work: Any) -> Outcome:
        lost = build_one(work)
        staged.append(Path(shutil.copytree(tmp_path / "data" / f"{TOPIC}-{work.partition}",
                                           tmp_path / "while" / f"{TOPIC}-{work.partition}")))  # fmt: skip
        assert any(path.name.startswith(".klog-staging-") for path in staged[-1].iterdir())
        return lost

    with klog.open(tmp_path / "data") as logs:
        assert all(row[6] == 7 for row in run(logs, tmp_path / "data", build).rows())
    check(kafka_classes, tmp_path / "data", tmp_path / "copies", clean=clean)
    check(kafka_classes, tmp_path / "while", tmp_path / "copies of that", clean=False)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafka_reads_a_log_with_new_indexes(kafka_classes: KafkaClasses, tmp_path: Path, clean: bool) -> None:
    fill(tmp_path / "data", 3000)
    damage(tmp_path / "data")
    assert sum(int(str(row[5])) for row in reindex(tmp_path / "data")) > 0
    check(kafka_classes, tmp_path / "data", tmp_path / "copies", clean=clean)
