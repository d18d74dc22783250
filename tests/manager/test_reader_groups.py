"""Groups of named readers: members get equal numbers of partitions; every record is read at least once when members
join, leave or are killed; positions never move back."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import klog
from klog.errors import AlreadyLocked, UnknownTopicOrPartition
from tests.support.batches import marker, transactional
from tests.support.patience import PATIENCE


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    """Six partitions of one record each."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=6)
        for partition in range(6):
            logs.log("t", partition).append([(None, b"%d" % partition)])
        yield logs


def member(logs: klog.LogManager, name: str = "m", **options: object) -> klog.NamedReader:
    return logs.reader("t", name, group="g", **options)  # type: ignore[arg-type]


def test_members_share_the_partitions_fairly(logs: klog.LogManager) -> None:
    one = member(logs, "one")
    assert (one.name, one.group, one.assignment) == ("one", "g", [0, 1, 2, 3, 4, 5])
    with klog.open(logs.path, read_only=True) as beside:
        members = [one, *(member(beside, f"m{number}") for number in range(3))]
        assert members[3].assignment == []
        for reader in [*members, *members]:  # each polls twice: one releases partitions, another takes them
            assert reader.lag is not None
        assert [len(reader.assignment) for reader in members] == [2, 2, 1, 1]
        assert sorted(number for reader in members for number in reader.assignment) == list(range(6))
        assert [name for name, _ in one.members] == ["one", "m0", "m1", "m2"]
        with pytest.raises(UnknownTopicOrPartition, match="reads no partition"):
            members[3].seek(0, partition=one.assignment[0])
        with pytest.raises(AlreadyLocked, match="group 'g' has several members"):
            one.delete()
        with pytest.raises(AlreadyLocked):
            logs.reader("t", "g")
    assert one.lag == dict.fromkeys(range(6), 1)
    one.delete()
    assert logs.readers() == {}


def test_a_partition_is_given_up_only_after_a_commit(logs: klog.LogManager) -> None:
    one = member(logs)
    records = iter(one)
    for _ in range(6):
        next(records)
    two = member(logs)
    assert two.assignment == [] and list(two) == []
    assert list(one) == [] and len(one.assignment) == 6
    one.commit()
    assert one.assignment == [0, 1, 2] and one.position == {0: 1, 1: 1, 2: 1}
    logs.log("t", 5).append([(None, b"new")])
    assert [record.value for record in two] == [b"new"] and two.assignment == [3, 4, 5]
    two.close()  # without a commit
    assert [record.value for record in one] == [b"new"] and len(one.assignment) == 6


def test_a_commit_within_an_iteration_ends_the_partitions_it_gives_up(logs: klog.LogManager) -> None:
    one = member(logs, commit_every=1)
    records = iter(one)
    assert next(records).value == b"0"
    two = member(logs)
    assert [record.value for record in records] == [b"1", b"2"]
    assert [record.value for record in two] == [b"3", b"4", b"5"]
    logs.log("t", 2).append([(None, b"2")] * 3)
    records = iter(one)
    assert next(records).value == b"2"
    three = member(logs)
    assert list(records) == [] and one.assignment == [0, 1]  # it was in the middle of partition 2
    assert three.lag is not None and three.assignment == [2]


def test_control_records_at_the_end_do_not_keep_a_partition(logs: klog.LogManager) -> None:
    logs.log("t", 5).append_batches(transactional(7, 0, 0))
    logs.log("t", 5).append_batches(marker(7, 0, "commit"), origin="coordinator")
    one = member(logs)
    for _ in one:
        one.commit()
    assert one.position[5] == one.committed[5] + 1 == 3
    two = member(logs)
    assert list(one) == [] and one.assignment == [0, 1, 2]
    assert list(two) == [] and two.position == {3: 1, 4: 1, 5: 3}


def test_a_new_group_begins_once_at_start(logs: klog.LogManager) -> None:
    """Records that are appended after its first member has joined are read, also by members that join later."""
    one = member(logs, start="latest")
    for partition in range(6):
        logs.log("t", partition).append([(None, b"new")])
    one.close()
    two = member(logs, start="latest")
    assert [record.value for record in two] == [b"new"] * 6
    logs.add_partitions("t", 7)
    logs.log("t", 6).append([(None, b"newer")])
    assert [record.value for record in two] == [b"newer"]


def test_a_tail_takes_over_when_a_member_leaves(logs: klog.LogManager) -> None:
    one = member(logs)
    list(one)
    two = member(logs, commit_every=1)
    one.commit()
    tail = two.tail(timeout=PATIENCE)
    logs.log("t", 3).append([(None, b"of two")])
    logs.log("t", 0).append([(None, b"of one")])
    assert next(tail).value == b"of two" and two.assignment == [3, 4, 5]
    one.close()
    assert next(tail).value == b"of one" and two.assignment == [0, 1, 2, 3, 4, 5]


MEMBER = """
import sys, klog
with klog.open(sys.argv[1], read_only=True) as logs:
    with logs.reader("t", sys.argv[2], group="g", commit_every=5, missing_topic="wait") as reader:
        for record in reader.tail():
            print(record.value.decode(), flush=True)
"""


def test_processes_share_a_topic_and_are_killed(tmp_path: Path) -> None:
    """Three members; one is killed and replaced again and again. Every record is read at least once, only records since
    a member's last commit are read twice, and no committed position moves back."""
    rng = random.Random(1)
    outputs: list[Path] = []

    def started() -> subprocess.Popen[bytes]:
        outputs.append(tmp_path / f"out{len(outputs)}")
        command = [sys.executable, "-c", MEMBER, str(tmp_path / "d"), f"m{len(outputs)}"]
        with open(outputs[-1], "wb") as out:
            return subprocess.Popen(command, stdout=out)

    def values() -> Counter[int]:
        return Counter(int(line) for path in outputs for line in path.read_bytes().split(b"\n")[:-1])

    with klog.open(tmp_path / "d", create=True) as logs:
        members = [started() for _ in range(3)]
        committed: dict[int, int] = {}
        total = kills = 0
        try:
            logs.create_topic("t", partitions=6)
            while kills < 4 or sum(committed.values()) < total:
                read = values()
                if kills < 4 and total < len(read) + 60:
                    for partition in range(6):
                        logs.log("t", partition).append([(None, b"%d" % (total + i)) for i in range(5)])
                        total += 5
                    if len(read) >= (kills + 1) * 100:
                        victim = rng.randrange(3)
                        members[victim].send_signal(signal.SIGKILL)
                        members[victim].wait(PATIENCE)
                        members[victim] = started()
                        kills += 1
                now = logs.readers().get("g", {}).get("t", {})
                assert all(now[partition] >= offset for partition, offset in committed.items())
                committed = now
                assert all(process.poll() is None for process in members)
        finally:
            for process in members:
                process.kill()
                process.wait(PATIENCE)
        read = values()
        assert set(read) == set(range(total)) and read.total() - total <= kills * 5


# ---- against a model -------------------------------------------------------------------------------------------------

STEPS = ["append", "read", "read all", "commit", "join", "die", "add partition"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), max_size=60))
def test_members_of_one_process_against_a_model(steps: list[tuple[str, int]]) -> None:
    """handed: the records that each member has received since its last commit. A partition has one holder. It gets
    another one only after its records are committed, or after its holder has closed without a commit."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path, klog.open(path, create=True) as logs:
        logs.create_topic("t", 3)
        members: list[klog.NamedReader] = []
        handed: dict[klog.NamedReader, set[int]] = {}  # partitions with uncommitted records
        seen: set[tuple[int, int]] = set()
        committed: dict[int, int] = {}

        def note(reader: klog.NamedReader, record: klog.Record) -> None:
            (partition,) = (n for n in reader.assignment if b"p%d" % n == record.key)
            assert record.offset >= committed.get(partition, 0)
            assert all(partition not in handed[other] for other in members if other is not reader)
            handed[reader].add(partition)
            seen.add((partition, record.offset))

        def check() -> None:
            held = [partition for reader in members for partition in reader.assignment]
            assert len(held) == len(set(held))
            for reader in members:
                assert handed[reader] <= set(reader.assignment)
            now = logs.readers().get("g", {}).get("t", {})
            assert all(now[partition] >= offset for partition, offset in committed.items())
            for partition, offset in now.items():
                assert all((partition, before) in seen for before in range(offset)), "skipped"
            committed.update(now)

        for step, number in [*steps, ("join", 0), ("read all", 0)]:
            reader = members[number % len(members)] if members else None
            if step == "append":
                partition = number % len(logs.topics()["t"])
                logs.log("t", partition).append([(b"p%d" % partition, b"")] * 2)
            elif step == "add partition":
                logs.add_partitions("t", len(logs.topics()["t"]) + 1)
            elif step == "join":
                joined = member(logs)
                members.append(joined)
                handed[joined] = set()
            elif reader is not None and step in ("read", "read all"):
                for record in reader:
                    note(reader, record)
                    if step == "read":
                        break
            elif reader is not None and step == "commit":
                handed[reader].clear()
                reader.commit()
            elif reader is not None and step == "die":
                members.remove(reader)
                reader.close()
            check()
        for _ in range(2):
            for reader in members:
                for record in reader:
                    note(reader, record)
                handed[reader].clear()
                reader.commit()
                check()
        for reader in members:
            for record in reader:
                note(reader, record)
        partitions = len(logs.topics()["t"])
        ends = {partition: logs.log("t", partition).log_end_offset for partition in range(partitions)}
        assert seen == {(partition, offset) for partition, end in ends.items() for offset in range(end)}
        sizes = [len(reader.assignment) for reader in members]
        assert sum(sizes) == partitions and max(sizes) - min(sizes) <= 1
