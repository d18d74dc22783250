"""LogManager.append: a list over many partitions is appended whole or not at all; errors refer to the caller's list."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import klog
from klog.disk import LogFile, RealFiles
from klog.errors import InvalidRecord, RecordTooLarge, UnknownTopicOrPartition
from klog.manager.partitioner import shares, targets
from tests.support.resources import growth

RECORDS: list[tuple[Any, ...]] = [(str(number).encode(), b"v") for number in range(25_000)]


def ends(logs: klog.LogManager) -> list[int]:
    return [logs.log("t", partition).log_end_offset for partition in range(4)]


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    with klog.open(tmp_path / "d", create=True) as manager:
        manager.create_topic("t", partitions=4, config={"max.message.bytes": 4096})
        yield manager


@pytest.mark.parametrize("number", [0, 7, 9_999, 10_000, 24_999])
@pytest.mark.parametrize(
    ("bad", "error"), [((b"k", b"x" * 5000), RecordTooLarge), ((b"k", "text"), TypeError), ("text", TypeError)]
)
def test_one_bad_record_rejects_the_whole_list(logs: klog.LogManager, number: int, bad: Any, error: type) -> None:
    records = [*RECORDS[:number], bad, *RECORDS[number:]]
    with pytest.raises(error, match=rf"\brecord {number}\b"):
        logs.append("t", records)
    assert ends(logs) == [0, 0, 0, 0]


def test_an_iterator_keeps_the_records_before_the_bad_ten_thousand(logs: klog.LogManager) -> None:
    with pytest.raises(RecordTooLarge, match=r"record 15000\b") as caught:
        logs.append("t", iter([*RECORDS[:15_000], (b"k", b"x" * 5000), *RECORDS[15_000:]]))
    assert sum(ends(logs)) == 10_000
    assert (
        len(caught.value.__notes__) == 4
        and "appended before the error: partition 0, offsets 0 to" in caught.value.__notes__[0]
    )


def test_rows_are_freed_if_no_memory_is_left_for_the_next_partition() -> None:
    no_memory = pytest.importorskip("_testcapi", reason="needs: _testcapi of CPython")
    batch = pyarrow.record_batch({"key": [b"%d" % number for number in range(4000)], "value": [b"v"] * 4000})
    met = set()

    def work() -> None:
        for allocation in range(20):
            no_memory.set_nomemory(allocation, allocation + 1)
            try:
                shares(batch, 4, 0)
            except MemoryError:
                met.add(allocation)
            finally:
                no_memory.remove_mem_hooks()

    assert growth(work, 20).allocated < 64 << 10  # the numbers of the rows have 32 KB
    assert 4 < len(met) < 20


@pytest.mark.parametrize(("partitions", "sticky"), [(4, 4), (4, -1), (0, 0), (3, 1 << 20)])
def test_a_partition_that_the_topic_does_not_have_is_refused(partitions: int, sticky: int) -> None:
    rows = pyarrow.record_batch({"key": pyarrow.array([None, b"k"]), "value": [b"a", b"b"]})
    for call in (shares, targets):
        with pytest.raises(ValueError, match=f"sticky={sticky}: not one of {partitions} partitions"):
            call(rows, partitions, sticky)


def test_records_are_partitioned_by_key(logs: klog.LogManager) -> None:
    infos = logs.append("t", RECORDS)
    assert {partition: info.count for partition, info in infos.items()} == dict(enumerate(ends(logs)))
    assert sorted(record.key for record in logs.read("t")) == sorted(key for key, _ in RECORDS)
    again = logs.append("t", RECORDS[:100])
    for partition in range(4):
        keys = [record.key for record in logs.read("t", partition=partition)]
        new = keys[again[partition].first_offset :]
        assert set(new) <= set(keys[: again[partition].first_offset]) and len(new) == again[partition].count


def test_records_without_keys_rotate_over_partitions(logs: klog.LogManager) -> None:
    logs.append("t", [(None, b"v")] * 20_001)
    assert sorted(ends(logs)) == [0, 1, 10_000, 10_000]
    assert logs.append("t", []) == {}


def test_a_compacted_topic_names_the_callers_record(logs: klog.LogManager) -> None:
    logs.create_topic("c", partitions=3, config={"cleanup.policy": "compact"})
    with pytest.raises(InvalidRecord, match=r"record 2\b"):
        logs.append("c", [(b"a", b""), (b"b", b""), (None, b""), (b"c", b"")])


@pytest.mark.parametrize("method", ["append", "append_async"])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_topic_without_one_of_its_partitions_takes_no_keys(
    tmp_path: Path, lost: int, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its directory was removed from outside: the others would get keys whose earlier records are elsewhere."""
    with klog.open(tmp_path / "d", create=True) as logs:
        logs.create_topic("t", partitions=4)
        logs.append("t", RECORDS[:100])
    shutil.rmtree(tmp_path / "d" / f"t-{lost}")
    with klog.open(tmp_path / "d") as logs:
        assert f"event=partitions_missing topic=t partitions={lost}" in caplog.text
        append = logs.append if method == "append" else lambda *records: asyncio.run(logs.append_async(*records))
        kept = {partition: logs.log("t", partition).log_end_offset for partition in logs.topics()["t"]}
        with pytest.raises(UnknownTopicOrPartition, match=f"'t' lacks t-{lost} in .*restore the directory"):
            append("t", RECORDS[:100])
        assert kept == {partition: logs.log("t", partition).log_end_offset for partition in kept}
        assert sum(1 for _ in logs.read("t")) == sum(kept.values())
        logs.log("t", 2).append([(b"k", b"v")])
        (tmp_path / "d" / f"t-{lost}").mkdir()
        assert set(append("t", RECORDS[:100])) == {0, 1, 2, 3}


def test_a_brokers_directory_without_some_partitions_takes_no_keys(tmp_path: Path) -> None:
    """They are on other brokers."""
    for partition in (0, 2):
        klog.Log.open(tmp_path / f"t-{partition}").close()
    with klog.open(tmp_path) as logs:
        with pytest.raises(UnknownTopicOrPartition, match="'t' lacks t-1 in"):
            logs.append("t", RECORDS[:1])
        (tmp_path / "t-1").mkdir()
        logs.append("t", RECORDS[:1])


class FullFile(LogFile):
    def write(self, data: Any, position: int) -> None:
        if "t-2" in self.path:
            raise OSError(errno.ENOSPC, "No space left on device", self.path)
        super().write(data, position)


class FullDisk(RealFiles):
    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        plain = super().open(path, write=write, create=create)
        return FullFile(os.dup(plain.fileno()), path, write) if path.endswith(".log") else plain


@pytest.mark.parametrize("method", ["append", "append_async"])
def test_a_full_disk_between_partitions_reports_what_was_appended(tmp_path: Path, method: str) -> None:
    with klog.open(tmp_path / "d", create=True, files=FullDisk()) as logs:
        logs.create_topic("t", partitions=4)
        append = logs.append if method == "append" else lambda *records: asyncio.run(logs.append_async(*records))
        with pytest.raises(OSError, match="No space") as caught:
            append("t", RECORDS[:100])
        first, second, third, fourth = ends(logs)
        assert (
            first and second and not third and bool(fourth) == (method == "append_async")
        )  # tasks' commits are parallel
        assert caught.value.__notes__ == [
            f"appended before the error: partition {partition}, offsets 0 to {end - 1} ({end} records)"
            for partition, end in enumerate(ends(logs))
            if end
        ]


def test_partition_for_is_the_partition_of_append(logs: klog.LogManager) -> None:
    for partition in range(4):
        logs.append("t", RECORDS[:100])
        for record in logs.read("t", partition=partition):
            assert record.key is not None and klog.partition_for(record.key, 4) == partition
    hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}  # Kafka: UtilsTest.testMurmur2
    for key, hashed in hashes.items():
        assert klog.partition_for(memoryview(key), 1000) == (hashed & 0x7FFFFFFF) % 1000
    with pytest.raises(TypeError, match=r"key=None: bytes expected, not NoneType: null keys are sticky"):
        klog.partition_for(None, 4)  # type: ignore[arg-type]
