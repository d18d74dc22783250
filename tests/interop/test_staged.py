"""Kafka's loader ignores staged files, does not change them, and reads the records that a commit of them has appended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from tests.crash import staged
from tests.interop.kafka import KafkaClasses
from tests.interop.loads import Given, Verdict, differences, kafka_loads, klog_verdict

pytestmark = [pytest.mark.java, pytest.mark.deep]

PARTITIONS = [(topic, partition) for topic, targets in staged.NEW.items() for partition in range(len(targets))]


def verdicts(kafka_classes: KafkaClasses, root: Path, copies: Path, *, clean: bool) -> dict[str, Verdict]:
    """How Kafka opens copies of the partitions' directories."""
    given, names = [], []
    with klog.open(root, read_only=True) as logs:
        for topic, partition in PARTITIONS:
            name = f"{topic}-{partition}"
            if not (root / name).exists():
                continue
            start = logs.log(topic, partition).log_start_offset if partition in logs.topics().get(topic, ()) else 0
            copy = Path(shutil.copytree(root / name, copies / name))
            given.append(Given(copy, clean=clean, now_ms=staged.NOW, log_start_offset=start, config=staged.CONFIG))
            names.append(name)
    return dict(zip(names, kafka_loads(kafka_classes, given), strict=True))


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafka_passes_over_staged_files(kafka_classes: KafkaClasses, tmp_path: Path, clean: bool) -> None:
    root, copies = tmp_path / "data", tmp_path / "copies"
    staged.fill(root)
    staged.stage(root)
    for name, verdict in verdicts(kafka_classes, root, copies, clean=clean).items():
        topic, _, partition = name.rpartition("-")
        old = staged.OLD.get(topic, [[], []])[int(partition)]
        assert (verdict.error, verdict.log_end_offset) == (None, len(old)), name
    assert sorted(path.parent.parent.name for path in copies.glob("*/.klog-staging-job-1/0-7")) == [
        "appended-0",
        "created-1",
        "overwritten-1",
    ]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafka_reads_what_was_committed(kafka_classes: KafkaClasses, tmp_path: Path, clean: bool) -> None:
    root = tmp_path / "data"
    staged.fill(root)
    staged.commit(root, staged.stage(root))
    found = verdicts(kafka_classes, root, tmp_path / "copies", clean=clean)
    assert len(found) == len(PARTITIONS)
    with klog.open(root, clock=ManualClock(staged.NOW)) as logs:
        for log in logs.logs():
            emptied = log.log_start_offset == log.log_end_offset  # Kafka forgets the epoch of a log without records
            leave_out = ("recovery_point", "leader_epochs") if emptied else ("recovery_point",)
            assert differences(found[log.name], klog_verdict(log), leave_out=leave_out) == [], log.name
