"""klog reads the files that Apache Kafka wrote: every partition of tests/golden is compared with the contents that
Kafka's own classes listed."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.record import decode
from tests.support import golden

PARTITIONS = golden.all_partitions()
by_case = pytest.mark.parametrize("case", golden.CASES)
by_partition = pytest.mark.parametrize("partition", PARTITIONS, ids=[partition.id for partition in PARTITIONS])


def last_moment(case: str) -> ManualClock:
    """A clock set to the newest record of the whole case."""
    return ManualClock(max(partition.largest_timestamp for partition in golden.partitions(case)))


def test_all_cases_are_present() -> None:
    assert len(golden.CASES) == 16
    assert len(PARTITIONS) == 67
    assert sum(len(partition.records) for partition in PARTITIONS) == 46513


@by_partition
def test_stored_files_are_the_ones_kafka_wrote(partition: golden.Partition) -> None:
    """Checks the test data: a checkout that changed line ends in a .log would otherwise fail with an unclear error."""
    assert partition.log_bytes_sha256 == partition.entry["batches_sha256"]


@by_case
def test_read_only_view_equals_the_manifest_and_touches_nothing(case: str, tmp_path: Path) -> None:
    logdir = golden.copy_logdir(case, tmp_path)
    before = golden.file_tree(logdir)
    differences = golden.Differences(case)
    with klog.open(logdir, read_only=True, clock=last_moment(case)) as logs:
        expected: dict[str, list[int]] = {}
        for partition in golden.partitions(case):
            expected.setdefault(partition.topic, []).append(partition.number)
        differences.equal("topics", {topic: sorted(numbers) for topic, numbers in logs.topics().items()}, expected)
        for partition in golden.partitions(case):
            log = logs.log(partition.topic, partition.number)
            differences.attempt(
                partition.id,
                lambda log=log, it=partition: golden.compare_log(log, it, view="saved", with_producers=False),
            )
    differences.equal("files after reading", golden.file_tree(logdir), before)
    differences.report()


@by_case
def test_writable_open_equals_the_manifest(case: str, tmp_path: Path) -> None:
    logdir = golden.copy_logdir(case, tmp_path)
    differences = golden.Differences(case)
    with klog.open(logdir, recovery="kafka", clock=last_moment(case)) as logs:
        for partition in golden.partitions(case):
            log = logs.log(partition.topic, partition.number)
            differences.attempt(
                partition.id, lambda log=log, it=partition: golden.compare_log(log, it, with_producers=False)
            )
    differences.report()


@by_partition
@pytest.mark.parametrize("read_only", [False, True], ids=["writable", "read-only"])
def test_partition_alone_with_its_producers(partition: golden.Partition, read_only: bool, tmp_path: Path) -> None:
    logdir = golden.copy_logdir(partition.case, tmp_path)
    log = klog.Log.open(
        logdir / partition.name,
        config=partition.entry["config"],
        recovery="kafka",
        read_only=read_only,
        clock=ManualClock(partition.largest_timestamp),
    )
    try:
        golden.compare_log(log, partition, view="saved" if read_only else "loaded")
    finally:
        log.close()


@by_case
def test_a_closed_copy_opens_cleanly_with_the_same_content(case: str, tmp_path: Path) -> None:
    logdir = golden.copy_logdir(case, tmp_path)
    with klog.open(logdir, recovery="kafka", clock=last_moment(case)) as logs:
        for partition in golden.partitions(case):
            logs.log(partition.topic, partition.number)
    differences = golden.Differences(case)
    with klog.open(logdir, clock=last_moment(case)) as logs:
        for partition in golden.partitions(case):
            log = logs.log(partition.topic, partition.number)
            differences.equal(f"{partition.id} scanned", log.recovery.segments_scanned, 0)
            differences.attempt(
                partition.id,
                lambda log=log, it=partition: golden.compare_log(log, it, view="reloaded", with_producers=False),
            )
    differences.report()


@by_partition
def test_the_record_package_decodes_every_stored_batch(partition: golden.Partition) -> None:
    """Without index, start offset or transactions: all of the .log files, below the log start too."""
    got, codecs = [], []
    batches: list[tuple[int, int, int]] = []
    for path in sorted(partition.directory.glob("*.log")):
        count = records = 0
        largest = -1
        for batch in decode(path.read_bytes(), path=str(path)):
            mine = [golden.record_tuple(record) for record in batch]
            got += mine
            codecs += ["none" if batch.compression is None else batch.compression] * len(mine)
            count, records, largest = count + 1, records + batch.count, max(largest, batch.max_timestamp)
        batches.append((count, records, largest))
    differences = golden.Differences(partition.id)
    differences.equal_lists("records", got, partition.records)
    differences.equal_lists("codecs", codecs, partition.codecs)
    expected = [(item["batches"], item["records"], item["max_timestamp"]) for item in partition.entry["segments"]]
    differences.equal_lists("segments (batches, records, max_timestamp)", batches, expected)
    differences.report()
