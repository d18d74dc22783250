"""Positions of named readers: several independent readers, after restarts, kills and retention, and beside other
processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import CorruptCheckpoint, NewerFormat, OffsetOutOfRange, UnknownTopicOrPartition
from tests.support.no_gc import no_gc
from tests.support.own_json import unchecked_in
from tests.support.patience import PATIENCE


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    """Two partitions of five records each: p0-0 .. p0-4, p1-0 .. p1-4."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events", partitions=2)
        for partition in range(2):
            logs.log("events", partition).append([(None, b"p%d-%d" % (partition, i)) for i in range(5)])
        yield logs


def file_of(logs: klog.LogManager, name: str) -> Path:
    return Path(logs.path) / f"klog-reader.{name}.json"


def test_a_reader_resumes_at_its_commit(logs: klog.LogManager) -> None:
    reader = logs.reader("events", "billing")
    assert (reader.name, reader.topic, reader.position, reader.lag) == ("billing", "events", {0: 0, 1: 0}, {0: 5, 1: 5})
    first = [record.value for record in reader]
    assert first == [b"p%d-%d" % (p, i) for p in range(2) for i in range(5)]
    assert (reader.position, reader.lag, reader.committed) == ({0: 5, 1: 5}, {0: 0, 1: 0}, {})
    assert list(reader) == []
    reader.commit()
    logs.log("events", 1).append([(None, b"later")])
    assert [record.value for record in reader] == [b"later"]
    reader.close()
    again = logs.reader("events", "billing")
    assert (again.position, again.committed, again.lag) == ({0: 5, 1: 5}, {0: 5, 1: 5}, {0: 0, 1: 1})
    assert [record.value for record in again] == [b"later"]


def test_uncommitted_records_are_read_again(logs: klog.LogManager) -> None:
    reader = logs.reader("events", "billing")
    for number, _record in enumerate(reader, 1):
        if number == 3:
            reader.commit()
        if number == 7:
            break
    assert reader.position == {0: 5, 1: 2} and reader.committed == {0: 3, 1: 0}
    assert [record.value for record in reader] == [b"p1-2", b"p1-3", b"p1-4"]  # this reader continues from its position
    reader.close()
    assert [record.value for record in logs.reader("events", "billing")][:3] == [b"p0-3", b"p0-4", b"p1-0"]


def test_readers_are_independent(logs: klog.LogManager) -> None:
    logs.create_topic("other")
    logs.append("other", [(None, b"x")] * 3)
    fast, slow, other = logs.reader("events", "fast"), logs.reader("events", "slow"), logs.reader("other", "fast")
    list(fast)
    next(iter(slow))
    list(other)
    for reader in (fast, slow, other):
        reader.commit()
    assert logs.readers() == {
        "fast": {"events": {0: 5, 1: 5}, "other": {0: 3}},
        "slow": {"events": {0: 1, 1: 0}},
    }
    with klog.open(logs.path, read_only=True) as beside:
        assert beside.readers() == logs.readers()


def test_a_restart(tmp_path: Path) -> None:
    for start in range(0, 9, 3):
        with klog.open(tmp_path, create=True) as logs:
            if not start:
                logs.create_topic("events")
            logs.append("events", [(None, b"%d" % i) for i in range(start, start + 3)])
            reader = logs.reader("events", "r")
            assert [record.value for record in reader] == [b"%d" % i for i in range(start, start + 3)]
            reader.commit()
    assert klog.verify(tmp_path).problems == []


KILLED = """
import sys, klog
with klog.open(sys.argv[1], read_only=True) as logs:
    reader = logs.reader("events", "r")
    for number, record in enumerate(reader.tail()):
        if number % 5 == 4:
            reader.commit()
            print(reader.position[0], flush=True)
"""


def test_a_reader_killed_beside_a_writer(tmp_path: Path) -> None:
    """It resumes at its last commit: no record is skipped, and only uncommitted ones repeat."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            acknowledged = 0
            for i in range(200):
                logs.append("events", [(None, b"%d" % i)])
                if i % 5 == 4 and acknowledged < 60:
                    acknowledged = int(child.stdout.readline())
        finally:
            os.kill(child.pid, signal.SIGKILL)
            acknowledged = max([acknowledged, *(int(line) for line in child.stdout.read().split())])
            child.wait(PATIENCE)
            child.stdout.close()
        reader = logs.reader("events", "r")
        assert acknowledged <= reader.position[0] <= acknowledged + 5 and reader.position[0] % 5 == 0
        assert [record.offset for record in reader] == list(range(reader.committed[0], 200))


def test_seek(logs: klog.LogManager) -> None:
    reader = logs.reader("events", "r", start="latest")
    assert reader.position == {0: 5, 1: 5}
    reader.seek(2, partition=1)
    assert reader.position == {0: 5, 1: 2}
    reader.seek("earliest")
    assert reader.position == {0: 0, 1: 0}
    reader.seek("1970-01-01T00:00Z", partition=0)
    assert reader.position == {0: 0, 1: 0}
    logs.log("events", 0).append([(None, b"x")])
    with pytest.raises(OffsetOutOfRange):
        reader.seek(6)  # one of the two partitions lacks it
    assert reader.position == {0: 0, 1: 0}
    with pytest.raises(UnknownTopicOrPartition, match="no partition 7"):
        reader.seek(0, partition=7)


def out_of_reach(logs: klog.LogManager, missing: Any) -> klog.NamedReader:
    """A reader at offset 1 of partition 0, whose first records were deleted."""
    reader = logs.reader("events", "r")
    next(iter(reader))
    reader.commit()
    reader.close()
    logs.log("events", 0)._core.start_at(3)
    return logs.reader("events", "r", missing=missing)


def test_records_deleted_before_they_were_read(logs: klog.LogManager) -> None:
    with pytest.raises(OffsetOutOfRange, match=r"offset 1 is outside events-0, which holds \[3, 5\)"):
        list(out_of_reach(logs, "error"))


@pytest.mark.parametrize(("missing", "rest"), [("earliest", [b"p0-3", b"p0-4"]), ("latest", [])])
def test_resuming_at_the_earliest_or_latest_record(logs: klog.LogManager, missing: str, rest: list[bytes]) -> None:
    reader = out_of_reach(logs, missing)
    assert reader.lag[0] == 2
    assert [record.value for record in reader if record.value.startswith(b"p0")] == rest
    assert reader.position == {0: 5, 1: 5}


def test_a_dropped_reader_holds_no_lease(logs: klog.LogManager) -> None:
    """Nor does the error that has ended it: both go without a collection of garbage."""
    with no_gc():
        out_of_reach(logs, "error")
        with pytest.raises(OffsetOutOfRange):
            list(out_of_reach(logs, "error"))
        assert len(list(logs.reader("events", "r", missing="earliest"))) == 7


def test_a_log_truncated_below_the_position(tmp_path: Path, logs: klog.LogManager) -> None:
    reader = logs.reader("events", "r", start="latest")
    reader.commit()
    path = logs.log("events", 0).segments[0].path
    logs.close()
    os.truncate(path, 0)
    with klog.open(tmp_path, read_only=True) as cut:
        with pytest.raises(OffsetOutOfRange):
            list(cut.reader("events", "r"))
        reader = cut.reader("events", "r", missing="earliest")
        assert list(reader) == [] and reader.position == {0: 0, 1: 5}


def test_a_recreated_topic_is_read_from_the_start(tmp_path: Path) -> None:
    with klog.open(tmp_path / "a", create=True) as logs:
        logs.create_topic("events")
        logs.append("events", [(None, b"old")] * 9)
        reader = logs.reader("events", "r")
        list(reader)
        reader.commit()
    with klog.open(tmp_path / "b", create=True) as logs:
        logs.create_topic("events")
        logs.append("events", [(None, b"new")] * 9)
        (tmp_path / "b" / "klog-reader.r.json").write_bytes((tmp_path / "a" / "klog-reader.r.json").read_bytes())
        reader = logs.reader("events", "r")
        assert reader.position == {0: 0} and len(list(reader)) == 9


def test_later_partitions_are_read_too(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs, klog.open(tmp_path, read_only=True) as beside:
        logs.create_topic("events")
        reader = beside.reader("events", "r")
        (tmp_path / "events-1").mkdir()
        logs.log("events", 1).append([(None, b"x")])
        assert [record.value for record in reader] == [b"x"]
        assert reader.position == {0: 0, 1: 1}


def test_arrow_columns_move_the_position(logs: klog.LogManager) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs: pyarrow")
    reader = logs.reader("events", "r")
    assert reader.to_arrow().column("value").to_pylist() == [b"p%d-%d" % (p, i) for p in range(2) for i in range(5)]
    assert reader.position == {0: 5, 1: 5} and reader.to_arrow().num_rows == 0
    logs.log("events", 1).append([(None, b"more")])
    (columns,) = reader.columns(["offset", "value"])
    assert pyarrow.record_batch(columns).to_pylist() == [{"offset": 5, "value": b"more"}]
    assert reader.lag == {0: 0, 1: 0}


def test_control_and_aborted_records_are_skipped(tmp_path: Path) -> None:
    """The position moves past these records: a reader that has read everything has lag 0."""
    from klog.record import encode
    from klog.record.control import marker

    directory = tmp_path / "events-0"
    directory.mkdir()
    producer = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    data = encode([(None, b"aborted", 5)], base_sequence=0, **producer)
    data += encode([(*marker("abort", 0), 5)], base_offset=1, is_control=True, **producer)
    (directory / f"{0:020d}.log").write_bytes(data)
    with klog.open(tmp_path, read_only=True) as logs:
        reader = logs.reader("events", "r", isolation="read_committed")
        assert list(reader) == [] and (reader.position, reader.lag) == ({0: 2}, {0: 0})


def test_tail_yields_new_records(logs: klog.LogManager) -> None:
    reader = logs.reader("events", "r")
    tail = reader.tail(timeout=0.05)
    assert [next(tail).value for _ in range(10)][-1] == b"p1-4"
    logs.log("events", 0).append([(None, b"later")])
    assert [record.value for record in tail] == [b"later"]


# ---- the file --------------------------------------------------------------------------------------------------------


def test_the_file(logs: klog.LogManager) -> None:
    reader = logs.reader("events", "r")
    list(reader)
    assert not file_of(logs, "r").exists()
    reader.commit()
    document = unchecked_in(file_of(logs, "r"))
    topic_id = document["topics"]["events"].pop("topic_id")
    assert len(topic_id) == 22
    assert document == {"version": 1, "reader": "r", "topics": {"events": {"positions": {"0": 5, "1": 5}}}}
    assert not [path for path in Path(logs.path).iterdir() if path.is_dir() and path.name.startswith("klog")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"version": 1}',
        '{"version": 0, "topics": {}}',
        '{"version": 1, "topics": {"events": {"topic_id": null, "positions": {"0": -1}}}}',
        '{"version": 1, "topics": {"events": {"topic_id": null, "positions": {"zero": 1}}}}',
        '{"version": 1, "topics": {"events": {"topic_id": null, "positions": {"0": 99999999999999999999}}}}',
        '{"version": 1, "topics": {"events": {"topic_id": 5, "positions": {}}}}',
        "[" * 100_000,
    ],
)
def test_an_invalid_file_raises(logs: klog.LogManager, text: str) -> None:
    file_of(logs, "r").write_text(text)
    with pytest.raises(CorruptCheckpoint, match="start again") as caught:
        logs.reader("events", "r")
    assert caught.value.path == str(file_of(logs, "r"))
    logs.reader("events", "other")


def test_a_newer_file_raises(logs: klog.LogManager) -> None:
    file_of(logs, "r").write_text('{"version": 2, "news": []}')
    with pytest.raises(NewerFormat, match=r"klog-reader\.r\.json has version 2.*upgrade"):
        logs.reader("events", "r")
    reader = logs.reader("events", "s")
    file_of(logs, "s").write_text('{"version": 2}')
    with pytest.raises(NewerFormat):
        reader.commit()
    assert file_of(logs, "s").read_text() == '{"version": 2}'


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 201, "ä", 5])
def test_invalid_reader_names_raise(logs: klog.LogManager, name: Any) -> None:
    if name == "..":
        logs.reader("events", name)  # klog-reader....json is a valid name
        return
    with pytest.raises(ValueError if isinstance(name, str) else TypeError, match="not a reader name|name=5: a str"):
        logs.reader("events", name)


def test_invalid_arguments_raise(logs: klog.LogManager) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        logs.reader("nothing", "r")
    with pytest.raises(ValueError, match="'error', 'earliest' or 'latest'"):
        logs.reader("events", "r", missing="first")  # type: ignore[arg-type]


COMMITS = """
import sys, klog
with klog.open(sys.argv[1], read_only=True) as logs:
    reader = logs.reader(sys.argv[2], "r")
    for offset in range(1, 41):
        reader.seek(offset)
        reader.commit()
"""


def test_commits_of_several_processes_under_one_name(tmp_path: Path) -> None:
    """Each process has its own topic; no commit overwrites another."""
    topics = ["a", "b", "c"]
    with klog.open(tmp_path, create=True) as logs:
        for topic in topics:
            logs.create_topic(topic)
            logs.append(topic, [(None, b"x")] * 40)
        children = [subprocess.Popen([sys.executable, "-c", COMMITS, str(tmp_path), topic]) for topic in topics]
        assert [child.wait(PATIENCE) for child in children] == [0, 0, 0]
        assert logs.readers() == {"r": {topic: {0: 40} for topic in topics}}


def test_a_failed_commit_keeps_the_previous_one(logs: klog.LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = logs.reader("events", "r")
    reader.seek(2)
    reader.commit()
    before = file_of(logs, "r").read_bytes()
    reader.seek(4)

    def refuse(source: str, target: str) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        with pytest.raises(OSError, match="No space"):
            reader.commit()
    assert file_of(logs, "r").read_bytes() == before and reader.committed == {0: 2, 1: 2}
    reader.commit()
    assert logs.readers()["r"]["events"] == {0: 4, 1: 4}
