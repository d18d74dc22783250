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
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import LogFile, RealFiles
from klog.errors import AlreadyLocked, CorruptCheckpoint, ForkedHandle, InvalidTopic, LogClosed, UnknownTopicOrPartition
from klog.inspect.verify import verify
from tests.support.logs import WHERE, seen
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


# ---- truncations beside open readers ---------------------------------------------------------------------------------


@pytest.fixture
def singly(tmp_path: Path) -> Iterator[klog.LogManager]:
    """The records of `logs`, each in its own batch."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events", partitions=2)
        for value in ALL:
            logs.log("events", int(value[1:2])).append([(None, value)])
        yield logs


@pytest.fixture(params=WHERE)
def reading(request: pytest.FixtureRequest, singly: klog.LogManager) -> Iterator[klog.LogManager]:
    """The manager of the readers."""
    with seen(singly, request.param) as found:
        yield found


def begun(logs: klog.LogManager, partition: int | None = None) -> Any:
    """A reader that has committed that it has read nothing."""
    reader = logs.reader("events", "billing", partition=partition)
    reader.commit()
    return reader


@pytest.mark.parametrize("how", ["truncate_to", "truncate_fully_and_start_at"])
@pytest.mark.parametrize("then", ["read", "tail", "columns", "commit"])
def test_an_open_reader_follows_a_truncation(
    singly: klog.LogManager, reading: klog.LogManager, then: str, how: str
) -> None:
    """R3: also in what it has read since its last commit."""
    reader = begun(reading)
    assert values(reader) == ALL
    log = singly.log("events", 1)
    getattr(log, how)(3)
    for _ in range(4):
        log.append([(None, b"new")])
    if then == "commit":
        reader.commit()
        assert singly.readers() == {"billing": {"events": {0: 5, 1: 3}}}
        reader.close()
        reader = reading.reader("events", "billing")
    if then == "columns":
        assert sum(columns.num_rows for columns in reader.columns(["value"])) == 4
    else:
        assert values(reader.tail(timeout=0) if then == "tail" else reader) == [b"new"] * 4
    reader.commit()
    assert singly.readers() == {"billing": {"events": {0: 5, 1: 7}}}


def test_a_committed_position_is_lowered_in_an_open_reader(singly: klog.LogManager, reading: klog.LogManager) -> None:
    reader = reading.reader("events", "billing")
    assert values(reader) == ALL
    reader.commit()
    singly.log("events", 1).truncate_to(3)
    assert reader.lag == {0: 0, 1: 0} and reader.position == reader.committed == {0: 5, 1: 3}


@pytest.mark.parametrize("commits", [True, False])
def test_a_truncation_within_an_iteration(singly: klog.LogManager, reading: klog.LogManager, commits: bool) -> None:
    reader, log = begun(reading, 0), singly.log("events", 0)
    records = iter(reader)
    assert [next(records).offset for _ in range(4)] == [0, 1, 2, 3]
    log.truncate_to(2)
    log.append([(None, b"new")] * 8)
    if commits:
        reader.commit()
        assert reader.committed == {0: 2} and list(records) == []
    else:
        records.close()
    assert values(reader) == [b"new"] * 8


def test_a_truncation_within_an_iteration_of_a_task(singly: klog.LogManager) -> None:
    reader, log = begun(singly, 0), singly.log("events", 0)

    async def read() -> list[bytes | None]:
        found = []
        async for record in reader:
            found.append(record.value)
            if len(found) == 4:
                log.truncate_to(2)
                log.append([(None, b"new")] * 8)
                reader.commit()
        return found

    assert asyncio.run(read()) == ALL[:4]
    assert asyncio.run(collected(reader)) == [b"new"] * 8


def test_the_lowest_of_several_truncations_counts(singly: klog.LogManager) -> None:
    reader, log = begun(singly, 0), singly.log("events", 0)
    assert len(values(reader)) == 5
    for end in (4, 1, 3, 2):
        for number in range(3):
            log.append([(None, b"%d" % number)])
        log.truncate_to(end)
    log.append([(None, b"new")] * 8)
    assert len(values(reader)) == 9 and reader.position == {0: 10}
    log.truncate_to(7)
    assert values(reader) == [] and reader.position == {0: 7}, "the earlier ones count no more"


def test_a_truncation_before_a_reader_is_opened(singly: klog.LogManager) -> None:
    with singly.reader("events", "billing", partition=0) as reader:
        assert len(values(reader)) == 5
    log = singly.log("events", 0)
    log.truncate_to(2)
    log.append([(None, b"new")] * 3)
    for expected in ([b"new"] * 3, []):
        with singly.reader("events", "billing", partition=0) as reader:
            assert values(reader) == expected


def test_two_readers_of_a_name_follow_their_own_truncations(singly: klog.LogManager) -> None:
    readers = [begun(singly, partition) for partition in range(2)]
    assert [values(reader) for reader in readers] == [ALL[:5], ALL[5:]]
    for partition in range(2):
        singly.log("events", partition).truncate_to(3 - partition)
    assert verify(singly.path).problems == []
    readers[0].commit()
    assert singly.readers() == {"billing": {"events": {0: 3, 1: 0}}}
    readers[0].delete()
    assert values(readers[1]) == [] and readers[1].position == {1: 2}


class During(RealFiles):
    """Calls during() before a file is shortened."""

    def __init__(self) -> None:
        super().__init__()
        self.during: Callable[[], object] = lambda: None

    def truncate(self, file: LogFile, size: int) -> None:
        self.during()
        super().truncate(file, size)


def test_a_reader_commits_removed_records_during_a_truncation(tmp_path: Path) -> None:
    files = During()
    with klog.open(tmp_path, create=True, files=files) as logs, klog.open(tmp_path, read_only=True) as beside:
        logs.create_topic("events")
        log = logs.log("events")
        for number in range(5):
            log.append([(None, b"%d" % number)])
        reader = begun(beside)
        read: list[bytes | None] = []

        def during() -> None:
            files.during = lambda: None
            read.extend(values(reader))
            reader.commit()

        files.during = during
        log.truncate_to(2)
        assert read == [b"%d" % number for number in range(5)]
        assert logs.readers() == {"billing": {"events": {0: 2}}}
        log.append([(None, b"new")] * 8)
        assert values(reader) == [b"new"] * 8


def test_a_truncation_by_a_log_that_is_opened_alone(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
    with klog.Log.open(tmp_path / "events-0") as log, klog.open(tmp_path, read_only=True) as beside:
        log.append([(None, b"old")] * 2)
        log.append([(None, b"old")])
        reader = begun(beside)
        assert values(reader) == [b"old"] * 3
        log.truncate_to(2)
        log.append([(None, b"new")] * 2)
        assert values(reader) == [b"new"] * 2


def test_a_seek_within_an_iteration(singly: klog.LogManager) -> None:
    """The iteration of that partition ends; the next one begins at the new position."""
    reader = singly.reader("events", "billing")
    records = iter(reader)
    assert next(records).value == b"p0-0"
    reader.seek(3, partition=0)
    assert values(records) == ALL[5:]
    assert values(reader) == ALL[3:5]


def test_a_topic_made_anew_beside_a_reader(singly: klog.LogManager, reading: klog.LogManager) -> None:
    """Its positions are forgotten, and its commit does not remove those in the new topic."""
    reader = reading.reader("events", "billing", partition=0)
    assert len(values(reader)) == 5
    singly.delete_topic("events")
    singly.create_topic("events", partitions=2)
    for partition in range(2):
        singly.log("events", partition).append([(None, b"new")] * 8)
    with singly.reader("events", "billing", partition=1) as other:
        assert len(values(other)) == 8
    reader.commit()
    assert singly.readers() == {"billing": {"events": {1: 8}}}
    assert values(reader) == [b"new"] * 8


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


def test_two_readers_of_a_name_whose_lock_file_was_removed(logs: klog.LogManager) -> None:
    first = logs.reader("events", "billing")
    assert len(list(first)) == 10
    lock_file = Path(logs.path, "klog-reader.billing@events.lock")
    lock_file.unlink()
    first.commit()
    with pytest.raises(AlreadyLocked):
        logs.reader("events", "billing")
    lock_file.unlink()
    second = logs.reader("events", "billing")
    logs.log("events").append([(None, b"new")])
    for use in (first.commit, lambda: list(first), first.delete):
        with pytest.raises(AlreadyLocked, match="was removed"):
            use()
    assert values(second) == [b"new"]
    second.commit()


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
