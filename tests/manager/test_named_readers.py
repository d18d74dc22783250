"""Named readers: a name has one holder; commits by block and by count; single partitions; deletion; topics that do not
exist yet."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import AlreadyLocked, CorruptCheckpoint, ForkedHandle, InvalidTopic, LogClosed, UnknownTopicOrPartition
from tests.support.patience import PATIENCE


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    """Two partitions of five records each: p0-0 .. p0-4, p1-0 .. p1-4."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events", partitions=2)
        for partition in range(2):
            logs.log("events", partition).append([(None, b"p%d-%d" % (partition, i)) for i in range(5)])
        yield logs


def values(records: Iterable[klog.Record]) -> list[bytes | None]:
    return [record.value for record in records]


async def collected(records: AsyncIterable[klog.Record]) -> list[bytes | None]:
    return [record.value async for record in records]


ALL = [b"p%d-%d" % (p, i) for p in range(2) for i in range(5)]


def crashed_with(tmp_path: Path, torn_bytes: int) -> Path:
    """A log.dir whose last stop was a crash that has cut the log, after a reader had read and committed all of it."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("events")
        for number in range(6):
            logs.log("events").append([(None, b"lost" if number > 3 else b"kept")])
        with logs.reader("events", "billing") as reader, logs.reader("events", "slow") as slow:
            assert len(list(reader)) == 6
            slow.seek({0: 2})
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (tmp_path / "data" / name).unlink()
    (log,) = (tmp_path / "data" / "events-0").glob("*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - torn_bytes)
    return tmp_path / "data"


def test_records_appended_where_a_crash_has_lost_some_are_read(tmp_path: Path) -> None:
    """N4"""
    path = crashed_with(tmp_path, 100)  # of two batches of 72 bytes
    with klog.open(path) as logs:
        assert logs.log("events").log_end_offset == 4
        for _ in range(4):
            logs.log("events").append([(None, b"new")])
        with logs.reader("events", "billing") as reader, logs.reader("events", "slow") as slow:
            assert values(reader) == [b"new"] * 4
            assert values(slow) == [b"kept"] * 2 + [b"new"] * 4


def test_records_appended_after_a_recovery_by_log_open_are_read(tmp_path: Path) -> None:
    """N4"""
    path = crashed_with(tmp_path, 100)
    with klog.Log.open(path / "events-0") as log:
        log.append([(None, b"new")] * 4)
    with klog.open(path) as logs, logs.reader("events", "billing") as reader:
        assert values(reader) == [b"new"] * 4


def test_records_appended_after_the_last_segment_was_lost_are_read(tmp_path: Path) -> None:
    """N4. After a clean stop no segment is scanned; the recovery point shows that records are missing."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(None, b"kept")] * 4)
        log.roll()
        log.append([(None, b"lost")] * 2)
        with logs.reader("events", "billing") as reader:
            assert len(list(reader)) == 6
    for path in (tmp_path / "events-0").glob(f"{4:020d}.*"):
        path.unlink()
    with klog.open(tmp_path) as logs:
        log = logs.log("events")
        assert log.recovery.clean_shutdown and log.log_end_offset == 4
        log.append([(None, b"new")] * 4)
        with logs.reader("events", "billing") as reader:
            assert values(reader) == [b"new"] * 4


@pytest.mark.parametrize("managed", [True, False])
@pytest.mark.parametrize("how", ["truncate_to", "truncate_fully_and_start_at"])
def test_records_that_replace_truncated_ones_are_read(tmp_path: Path, how: str, managed: bool) -> None:
    """N4"""

    def replace(log: klog.Log) -> None:
        getattr(log, how)(4)
        log.append([(None, b"new")] * 4)

    path = tmp_path / "data"
    with klog.open(path, create=True) as logs:
        logs.create_topic("events")
        for number in range(6):
            logs.log("events").append([(None, b"%d" % number)])
        with logs.reader("events", "billing") as reader, logs.reader("events", "slow") as slow:
            assert len(list(reader)) == 6
            slow.seek({0: 2})
        if managed:
            replace(logs.log("events"))
    if not managed:
        with klog.Log.open(path / "events-0") as log:
            replace(log)
    with klog.open(path) as logs:
        assert logs.readers() == {"billing": {"events": {0: 4}}, "slow": {"events": {0: 2}}}
        with logs.reader("events", "billing") as reader:
            assert values(reader) == [b"new"] * 4


def test_logs_are_recovered_without_the_log_dir_that_has_the_positions(tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    with klog.open(paths, create=True) as logs:
        logs.create_topic("events", partitions=2)
        for partition in range(2):
            logs.log("events", partition).append([(None, b"kept")])
        with logs.reader("events", "billing") as reader:
            list(reader)
    (partition,) = (int(path.name[-1]) for path in paths[1].glob("events-?"))
    (paths[1] / ".kafka_cleanshutdown").unlink()
    paths[0].rename(tmp_path / "lost")
    paths[0].write_text("not a directory")
    with klog.open(paths) as logs:
        logs.load_all()
        log = logs.log("events", partition)
        assert not log.recovery.clean_shutdown
        assert [record.value for record in log.read()] == [b"kept"]


def test_a_damaged_file_of_positions_does_not_keep_a_log_from_being_recovered(tmp_path: Path) -> None:
    path = crashed_with(tmp_path, 100)
    (path / "klog-reader.billing.json").write_text("{")
    with klog.open(path) as logs:
        assert logs.log("events").log_end_offset == 4
        with logs.reader("events", "slow") as slow:
            assert values(slow) == [b"kept"] * 2
        with pytest.raises(CorruptCheckpoint):
            logs.reader("events", "billing")


# ---- one holder ------------------------------------------------------------------------------------------------------


def test_a_second_reader_of_a_name_is_refused(logs: klog.LogManager) -> None:
    reader = logs.reader("events", "billing")
    with klog.open(logs.path, read_only=True) as beside:
        for manager in (logs, beside):
            with pytest.raises(
                AlreadyLocked, match=r"'billing' of topic 'events' is in use by process \d+ \(this"
            ) as e:
                manager.reader("events", "billing")
            assert e.value.holder == f"process {os.getpid()} (this one)"
        assert len(list(beside.reader("events", "other"))) == 10
        logs.create_topic("more")
        beside.reader("more", "billing")
        reader.close()
        reader.close()
        with beside.reader("events", "billing") as second, pytest.raises(AlreadyLocked):
            logs.reader("events", "billing", partition=1)
        logs.reader("events", "billing")  # garbage-collected
        gc.collect()
        third = beside.reader("events", "billing")
    uses = ("commit", "delete", "tail", "__arrow_c_stream__")
    for use in [getattr(closed, name) for closed in (reader, second, third) for name in uses]:  # third by its manager
        with pytest.raises(LogClosed):
            use()
    with pytest.raises(LogClosed):
        list(reader)
    assert len(list(logs.reader("events", "billing"))) == 10


HOLDER = """
import sys, klog
with klog.open(sys.argv[1], read_only=True) as logs:
    reader = logs.reader("events", "billing")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_name_held_by_a_process_is_free_once_it_dies(logs: klog.LogManager) -> None:
    command = [sys.executable, "-c", HOLDER, logs.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyLocked, match=f"in use by process {child.pid}:"):
            logs.reader("events", "billing")
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
        assert len(list(logs.reader("events", "billing"))) == 10


def test_a_forked_child_cannot_use_its_parents_reader(logs: klog.LogManager) -> None:
    with klog.open(logs.path, read_only=True) as beside:
        reader = beside.reader("events", "billing")
        child = os.fork()
        if not child:
            code = 1
            try:
                with pytest.raises(ForkedHandle):
                    reader.commit()
                with pytest.raises(AlreadyLocked):
                    beside.reader("events", "billing")
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        reader.commit()


def test_readers_of_single_partitions(logs: klog.LogManager) -> None:
    """They keep each other's commits. While one of them is open, the name without a partition is in use."""
    zero, one = (logs.reader("events", "r", partition=partition) for partition in range(2))
    assert (values(zero), values(one)) == (ALL[:5], ALL[5:]) and zero.assignment == [0]
    for reader in (zero, one):
        reader.commit()
    assert [name for name, _ in zero.members] == ["r", "r"]
    for options in ({}, {"partition": 1}):
        with pytest.raises(AlreadyLocked):
            logs.reader("events", "r", **options)  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicOrPartition, match="reads no partition 1; it reads 0"):
        zero.seek(0, partition=1)
    one.delete()
    zero.close()
    assert logs.readers() == {"r": {"events": {0: 5}}}
    with pytest.raises(UnknownTopicOrPartition, match="has no partition 2"):
        logs.reader("events", "r", partition=2)


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_leaving_a_block_commits_and_an_exception_does_not(logs: klog.LogManager) -> None:
    with logs.reader("events", "r") as reader:
        for record in reader:
            if record.value == b"p0-2":
                break
    assert (reader.position, reader.committed) == ({0: 3, 1: 0}, {0: 3, 1: 0})
    with pytest.raises(ZeroDivisionError), logs.reader("events", "r") as reader:
        assert next(iter(reader)).offset // 0
    with pytest.raises(ZeroDivisionError):
        asyncio.run(_fails_in_a_block(logs))
    assert logs.readers() == {"r": {"events": {0: 3, 1: 0}}}
    asyncio.run(_leaves_a_block(logs))
    assert logs.readers() == {"r": {"events": {0: 5, 1: 5}}}


async def _fails_in_a_block(logs: klog.LogManager) -> None:
    async with logs.reader("events", "r") as reader:
        async for _ in reader:
            raise ZeroDivisionError


async def _leaves_a_block(logs: klog.LogManager) -> None:
    async with logs.reader("events", "r") as reader:
        assert await collected(reader) == ALL[3:]


def seen_while(reader: klog.NamedReader, records: Any) -> list[int]:
    """The number of committed records at the time when each record was returned."""
    found = []
    for _ in records:
        found.append(sum(reader.committed.values()))
    return found


async def seen_while_async(reader: klog.NamedReader, records: Any) -> list[int]:
    return [sum(reader.committed.values()) async for _ in records]


@pytest.mark.parametrize("method", ["for", "tail", "async for", "async tail"])
def test_commit_every_commits_processed_records(logs: klog.LogManager, method: str) -> None:
    """A commit comes before the next record is returned, and at the end. If the loop is left early, the last records
    stay uncommitted."""
    reader = logs.reader("events", "r", commit_every=4)
    records = reader.tail(timeout=0) if "tail" in method else reader
    found = asyncio.run(seen_while_async(reader, records)) if "async" in method else seen_while(reader, records)
    assert found == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    assert reader.committed == {0: 5, 1: 5}
    logs.log("events", 0).append([(None, b"more")])
    for _ in reader:
        break
    assert reader.committed == {0: 5, 1: 5}
    assert list(reader) == [] and reader.committed == {0: 6, 1: 5}


def test_commit_every_with_arrow(logs: klog.LogManager) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs: pyarrow")
    reader = logs.reader("events", "r", commit_every=1)
    assert pyarrow.table(reader).num_rows == 10 and reader.committed == {}
    reader.seek(0)
    found = [dict(reader.committed) for _ in reader.columns()]
    assert found == [{}, {0: 5, 1: 0}] and reader.committed == {0: 5, 1: 5}


def test_deletion_forgets_the_topic_and_then_the_name(logs: klog.LogManager) -> None:
    logs.create_topic("more")
    for topic in ("more", "events"):
        with logs.reader(topic, "r") as reader:
            list(reader)
    with logs.reader("more", "r") as reader:
        reader.delete()
    assert logs.readers() == {"r": {"events": {0: 5, 1: 5}}}
    logs.reader("events", "r").delete()
    assert logs.readers() == {} and not list(Path(logs.path).glob("klog-reader*"))
    reader = logs.reader("events", "r")
    assert values(reader) == ALL
    reader.delete()  # nothing is committed
    long = "n" * 200
    logs.create_topic("t" * 249)
    with logs.reader("t" * 249, long), pytest.raises(AlreadyLocked):
        logs.reader("t" * 249, long)


# ---- topics and partitions that do not exist yet ---------------------------------------------------------------------


def test_later_partitions_are_read_from_their_first_record(logs: klog.LogManager) -> None:
    with logs.reader("events", "r", start="latest") as reader:
        assert list(reader) == []
    with logs.reader("events", "s", start="latest") as other:
        logs.add_partitions("events", 3)
        logs.log("events", 2).append([(None, b"new")])
        assert values(other) == [b"new"]
    assert values(logs.reader("events", "r", start="latest")) == [b"new"]


def test_a_reader_may_begin_before_its_topic(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs, klog.open(tmp_path, read_only=True) as beside:
        with pytest.raises(UnknownTopicOrPartition):
            beside.reader("later", "r")
        with pytest.raises(InvalidTopic):
            beside.reader("la/ter", "r", missing_topic="wait")
        assert not list(tmp_path.glob("klog-reader*"))
        reader = beside.reader("later", "r", missing_topic="wait", start="latest")
        reader.commit()
        assert (list(reader), list(reader.tail(timeout=0)), reader.lag, reader.assignment) == ([], [], {}, [])
        logs.create_topic("later", 2)
        logs.log("later", 1).append([(None, b"first")])
        assert values(reader) == [b"first"]
        reader.commit()
        assert logs.readers() == {"r": {"later": {0: 0, 1: 1}}}
        single = beside.reader("later", "s", missing_topic="wait", partition=2)
        assert list(single) == []
        logs.add_partitions("later", 3)
        logs.log("later", 2).append([(None, b"third")])
        assert values(single) == [b"third"]


def test_a_topic_made_anew_under_a_reader(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", topic_id=uuid.UUID(int=2**100))
        logs.append("t", [(None, b"old")] * 3)
        reader = logs.reader("t", "r", missing_topic="wait")
        assert len(list(reader)) == 3
        reader.commit()
        logs.delete_topic("t")
        assert list(reader) == []
        logs.create_topic("t")
        logs.append("t", [(None, b"new")] * 4)
        assert values(reader) == [b"new"] * 4 and reader.committed == {}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"group": "a b"}, ValueError, "group='a b' is not a reader name"),
        ({"group": 5}, TypeError, "group=5: a str"),
        ({"group": "g", "partition": 0}, ValueError, "a group shares out all partitions"),
        ({"commit_every": 0}, ValueError, "commit_every=0"),
        ({"missing_topic": "create"}, ValueError, "'error' or 'wait'"),
    ],
)
def test_invalid_options_raise(logs: klog.LogManager, options: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        logs.reader("events", "r", **options)
    assert not list(Path(logs.path).glob("klog-reader*"))


def test_a_reader_reads_a_new_log_where_another_program_has_removed_one(tmp_path: Path) -> None:
    """After a clean stop, and without a topic id that would tell the two apart."""
    path = tmp_path / "events-0"
    for value in (b"old", b"new"):
        with klog.Log.open(path) as log:
            log.append([(None, value)] * 3)
        with klog.open(tmp_path) as logs, logs.reader("events", "billing") as reader:
            assert values(reader) == [value] * 3
        shutil.rmtree(path)
