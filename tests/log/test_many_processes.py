"""One writer and several reader processes, while the log grows, rolls, is truncated, and old segments are deleted.

Every record's value holds its offset and the number of truncations before it. A reader checks both, and may
only get OffsetOutOfRange.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import klog
from klog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from tests.support.patience import PATIENCE

WRITER = """
import random, sys, klog
pick = random.Random(int(sys.argv[2]))
rounds, bases = 0, []
with klog.open(sys.argv[1]) as logs:
    log = logs.log("events")
    for step in range(700):
        what = pick.random()
        if what < 0.9 or log.log_end_offset == log.log_start_offset:
            first = log.log_end_offset
            bases.append(first)
            batch = [(b"%d" % rounds, b"%d:" % (first + i) + bytes(pick.randrange(120))) for i in range(pick.randrange(1, 9))]
            log.append(batch, compression=pick.choice([None, "lz4", "zstd"]))
        elif what < 0.93:
            log.roll()
        elif what < 0.96:
            log.apply_retention()
        elif what < 0.98:
            log.delete_records(pick.randrange(log.log_start_offset, log.log_end_offset + 1))
        else:
            rounds += 1
            target = pick.choice(bases[-8:])  # where a batch begins: inside one, a gap would be left
            if target >= log.log_start_offset:
                log.truncate_to(target)
                bases = [base for base in bases if base < target]
        if step % 100 == 0:
            logs.create_topic(f"more-{step}")
            logs.append(f"more-{step}", [(None, b"x")])
    log.append([(b"%d" % rounds, b"%d:" % log.log_end_offset), (b"end", b"%d:" % (log.log_end_offset + 1))])
"""

READER = """
import random, sys, klog
from klog.errors import OffsetOutOfRange, UnknownTopicOrPartition
pick = random.Random(int(sys.argv[2]))
seen = raised = 0
def check(record, rounds):
    assert int(record.value.split(b":")[0]) == record.offset, (record.offset, record.value)
    if record.key == b"end":
        return None
    assert int(record.key) >= rounds, (record.offset, record.key, rounds)
    return int(record.key)

with klog.open(sys.argv[1], read_only=True) as logs:
    log = logs.log("events")
    next_offset, rounds, more = "earliest", 0, set()
    while rounds is not None:
        try:
            for record in log.tail(next_offset, timeout=240):
                if isinstance(next_offset, int):
                    assert record.offset == next_offset, (record.offset, next_offset)
                rounds = check(record, rounds)
                next_offset, seen = record.offset + 1, seen + 1
                if rounds is None or seen % 50 == 0:
                    break
            else:
                sys.exit("nothing came for a minute")
            if rounds is not None:  # other questions, in the middle of it
                start, end = log.log_start_offset, log.log_end_offset
                offset = pick.randrange(start, end + 1)
                for record in log.read(offset):
                    check(record, 0)
                log.fetch(offset).memory()
                log.count()
                found = log.offset_for_timestamp(1)
                assert found is None or found.offset >= start
                more |= set(logs.topics())
        except OffsetOutOfRange as error:
            raised += 1
            log.refresh()
            if not isinstance(next_offset, int) or not log.log_start_offset <= next_offset <= log.log_end_offset:
                next_offset, rounds = "earliest", 0
print(seen, raised, len(more))
"""


def test_readers_beside_a_writer_that_does_everything(tmp_path: Path) -> None:
    config = {"segment.bytes": 3000, "segment.index.bytes": 240, "index.interval.bytes": 300, "retention.bytes": 15_000}
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events", config={**config, "file.delete.delay.ms": 0})
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, str(tmp_path), str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in range(3)
    ]
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), "11"])
    try:
        assert writer.wait(PATIENCE) == 0
        outputs = [reader.communicate(timeout=PATIENCE)[0].split() for reader in readers]
    finally:
        for process in (writer, *readers):
            if process.poll() is None:
                process.kill()
                process.wait()
    assert [reader.returncode for reader in readers] == [0, 0, 0]
    assert all(int(seen) > 50 for seen, _, _ in outputs)
    with klog.open(tmp_path, read_only=True) as logs:
        log = logs.log("events")
        assert log.log_start_offset > 0 and log.verify().problems == []


def test_a_tail_raises_after_a_truncation_below_it(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs, klog.open(tmp_path, read_only=True) as beside:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(None, b"a")])
        log.append([(None, b"b")])
        log.append([(None, b"c")])
        tail = iter(beside.log("events").tail(0, timeout=PATIENCE))
        assert [next(tail).value for _ in range(3)] == [b"a", b"b", b"c"]
        log.truncate_to(1)
        with pytest.raises(OffsetOutOfRange, match=r"offset 3 is outside events-0, which holds \[0, 1\)"):
            next(tail)
        log.append([(None, b"B")])
        late = beside.log("events").tail(1, timeout=PATIENCE)
        assert next(iter(late)).value == b"B"


def test_views_of_a_log_that_is_truncated(tmp_path: Path) -> None:
    """Through the public API: the bytes of memory() stay, whatever truncations do to the file."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        for i in range(40):
            log.append([(None, b"%d" % i * 1000)])
            if i == 20:
                log.roll()
        views = [log.fetch(offset).memory() for offset in (0, 10, 21, 30)]
        before = [bytes(view) for view in views]
        for truncate in (
            lambda: log.truncate_to(30),
            lambda: log.truncate_to(5),
            lambda: log.truncate_fully_and_start_at(2),
        ):
            truncate()
            assert [bytes(view) for view in views] == before
            log.append([(None, b"new" * 3000)])
        assert [bytes(view) for view in views] == before


def test_a_topic_that_is_deleted_and_recreated_beside_a_reader(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs, klog.open(tmp_path, read_only=True) as beside:
        logs.create_topic("events")
        logs.append("events", [(None, b"old")] * 5)
        reader = beside.log("events")
        tail = iter(reader.tail(0, timeout=PATIENCE))
        assert [next(tail).value for _ in range(5)] == [b"old"] * 5
        logs.delete_topic("events")
        assert beside.topics() == {}
        with pytest.raises(UnknownTopicOrPartition):
            beside.read("events")
        logs.create_topic("events")
        logs.append("events", [(None, b"new")] * 3)
        with pytest.raises(OffsetOutOfRange, match=r"offset 5 is outside events-0, which holds \[0, 3\)"):
            next(tail)
        assert [record.value for record in beside.read("events")] == [b"new"] * 3
        named = beside.reader("events", "r")
        assert len(list(named)) == 3


def test_a_read_has_no_records_of_two_topics_of_the_same_name(tmp_path: Path) -> None:
    """The new log is longer than where the readers are."""
    config = {"segment.bytes": 100, "file.delete.delay.ms": 0}
    with klog.open(tmp_path, create=True) as logs, klog.open(tmp_path, read_only=True) as beside:
        for value in (b"old", b"new"):
            logs.create_topic("events", config=config)
            for number in range(10):
                logs.append("events", [(b"%d" % (number % 5), value)])
            if value == b"old":
                alone = klog.Log.open(tmp_path / "events-0", read_only=True)
                begun = [iter(log.read()) for log in (beside.log("events"), alone)]
                assert [next(records).value for records in begun] == [b"old"] * 2
                logs.delete_topic("events")
        for records in begun:
            with pytest.raises(UnknownTopicOrPartition, match="deleted and created again while it was read"):
                list(records)
        assert [record.value for record in alone.read()] == [b"new"] * 10
        alone.close()
        with beside.log("events").snapshot() as snapshot:
            begun[0] = iter(snapshot.read())
            next(begun[0])
            logs.alter_topic("events", {"cleanup.policy": "compact"})
            logs.log("events").compact()
            assert {record.value for record in begun[0]} == {b"new"}
