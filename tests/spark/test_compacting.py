"""klog.spark.compact without Spark: the tests call the code of the driver and of the tasks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.spark.compacting import Compaction, Outcome, build_one
from klog.spark.jobs import clear_staging
from tests.cleaner import test_overflow as overflow
from tests.cleaner.logs import NOW
from tests.crash.compaction import CONFIG, TOPIC, Cleaning, Setup, TaskSetup, three_segments


def segments(root: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in (root / f"{TOPIC}-0").iterdir() if not path.is_dir()}
    found["checkpoint"] = (root / "cleaner-offset-checkpoint").read_bytes()
    return {name: data for name, data in found.items() if not name.endswith((".deleted", ".lock"))}


@pytest.mark.parametrize("broker", [{}, {"log.cleaner.dedupe.buffer.size": 24 * 6}], ids=["one round", "small map"])
def test_the_files_are_those_of_log_compact(tmp_path: Path, broker: dict[str, Any]) -> None:
    cleaning = Cleaning(tmp_path / "staged", TaskSetup(True, CONFIG, broker, roll=True), three_segments)
    by_tasks = cleaning.copy()
    by_hand = tmp_path / "by hand"
    shutil.copytree(by_tasks, by_hand)
    cleaning.setup.clean(by_tasks)
    Setup(True, CONFIG, broker, roll=True, at=cleaning.setup.at).clean(by_hand)
    assert segments(by_tasks) == segments(by_hand)


def fill(root: Path, count: int = 60) -> None:
    with klog.open(root, create=True) as logs:
        logs.create_topic(TOPIC, partitions=2, config={**CONFIG, "delete.retention.ms": 86_400_000})
        for number in range(2):
            for first in range(0, count, 3):
                logs.log(TOPIC, number).append([(b"k%d" % (n % 7), b"v%d" % n) for n in range(first, first + 3)])


def run(logs: klog.LogManager, root: Path, build: Callable[[Any], Outcome] = build_one) -> Compaction:
    compaction = Compaction(logs, str(root), [TOPIC])
    while items := compaction.items():
        for item in items:
            compaction.take(build(item.value))
    clear_staging(str(root), compaction.token)
    return compaction


def newest(root: Path) -> dict[bytes, bytes]:
    with klog.open(root, read_only=True) as logs:
        return {record.key: record.value for record in logs.read(TOPIC)}


def test_a_repeated_attempt_and_a_late_attempt_change_nothing(tmp_path: Path) -> None:
    """C1"""
    fill(tmp_path)
    before = newest(tmp_path)
    late = []

    def twice(work: Any) -> Outcome:
        late.append(work)
        lost = build_one(work)
        assert lost.error is None and os.listdir(lost.directory)
        return build_one(work)

    with klog.open(tmp_path) as logs:
        rows = run(logs, tmp_path, twice).rows()
        assert [row[7:] for row in rows if row[9] is not None] == []
        assert all(row[4] < row[3] and (row[5], row[6]) == (60, 7) for row in rows), rows
        assert not list(tmp_path.rglob("*klog-staging*"))
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    build_one(late[0])
    assert files.items() <= {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}.items()
    assert newest(tmp_path) == before and klog.verify(tmp_path).ok


def test_an_error_ends_only_its_partition(tmp_path: Path) -> None:
    """C3"""
    fill(tmp_path)
    log = min((tmp_path / f"{TOPIC}-1").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with klog.open(tmp_path) as logs:
        (good, bad) = run(logs, tmp_path).rows()
        assert good[9] is None and good[6] == 7
        assert "CorruptBatch" in str(bad[9]) and log.name in str(bad[9])
    assert log.read_bytes() == data


def test_a_log_that_was_truncated_meanwhile_is_not_changed(tmp_path: Path) -> None:
    fill(tmp_path)

    def cut(work: Any) -> Outcome:
        outcome = build_one(work)
        logs.log(TOPIC, work.partition).truncate_to(48)
        return outcome

    with klog.open(tmp_path) as logs:
        rows = run(logs, tmp_path, cut).rows()
        assert all("Overtaken" in str(row[9]) for row in rows)
        assert [record.offset for record in logs.log(TOPIC, 0).read()] == list(range(48))


def test_the_driver_compacts_a_log_whose_segments_must_be_split_first(tmp_path: Path) -> None:
    roots = tmp_path / "by tasks", tmp_path / "by hand"
    for root in roots:
        with klog.open(root, create=True) as logs:
            logs.create_topic(TOPIC, config=overflow.CONFIG)
            shutil.rmtree(root / f"{TOPIC}-0", ignore_errors=True)
        overflow.overflowed(root / f"{TOPIC}-0")
        (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {4 * overflow.BEYOND}\n")
    outcomes = []

    def build(work: Any) -> Outcome:
        outcomes.append(build_one(work))
        return outcomes[-1]

    with klog.open(roots[0], clock=ManualClock(NOW)) as logs:
        (row,) = run(logs, roots[0], build).rows()
        assert row[9] is None and row[7] and outcomes[0].split
        found = [record.offset for record in logs.log(TOPIC).read(isolation="log_end")]
    with klog.open(roots[1], clock=ManualClock(NOW)) as logs:
        stats = logs.log(TOPIC).compact(roll=True)
        assert (row[4:7]) == (stats.bytes_after, 90, stats.records_after)
        assert found == [record.offset for record in logs.log(TOPIC).read(isolation="log_end")]
