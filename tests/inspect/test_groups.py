"""groups() and transactions() read the internal topics of a directory."""

from __future__ import annotations

import shutil
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.inspect import groups, partition_files, transactions
from klog.log.directory.checkpoint import encode_uuid
from klog.manager.move_note import MoveNote, write
from tests.cli.test_verbs import ok, run
from tests.support.batches import NOW, marker
from tests.support.golden import HOME
from tests.support.logs import one_log

DAY = 86_400_000
OFFSETS = "__consumer_offsets"


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def compact(value: str) -> bytes:
    return bytes((len(value) + 1,)) + value.encode()


def commit(group: str, partition: int, offset: int | None, *, expire: int | None = None) -> tuple[bytes, bytes | None]:
    key = b"\0\1" + text(group) + text("t") + struct.pack(">i", partition)
    if offset is None:
        return key, None
    if expire is not None:
        return key, struct.pack(">hq", 1, offset) + text("") + struct.pack(">qq", NOW, expire)
    return key, struct.pack(">hqi", 3, offset, 0) + text("") + struct.pack(">q", NOW)


def in_transaction(log: klog.Log, producer: int, sequence: int, records: list[tuple[bytes, bytes | None]]) -> None:
    fields: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    log.append_batches(klog.record.encode(records, is_transactional=True, **fields))


def end(log: klog.Log, producer: int, kind: str) -> None:
    log.append_batches(marker(producer, 0, kind), origin="coordinator")


def offsets(found: dict[str, Any], kind: str = "offsets") -> dict[tuple[str, int], tuple[int, int | None]]:
    return {
        (group["group"], each["partition"]): (each["offset"], each["lag"])
        for group in found["groups"]
        for each in group[kind]
    }


def groups_at(path: Path | list[Path], group: str | None = None, *, days: int = 0) -> dict[str, Any]:
    return groups(path, group, clock=ManualClock(NOW + days * DAY))


def test_the_last_record_of_a_key_counts_and_a_transaction_counts_once_committed(tmp_path: Path) -> None:
    with one_log(tmp_path, None, "t") as log:
        log.append([(b"k", b"v")] * 10)
    with one_log(tmp_path, None, OFFSETS) as log:
        log.append([commit("a", 0, 1), commit("a", 0, 4), commit("a", 1, 7), commit("b", 0, 3), commit("c", 0, 12)])
        log.append([commit("b", 0, None)])
        in_transaction(log, 1, 0, [commit("a", 0, 6), commit("d", 0, 5)])
        in_transaction(log, 2, 0, [commit("a", 1, 8)])
        in_transaction(log, 3, 0, [commit("c", 0, 9), commit("d", 0, 2)])
        log.append([commit("d", 0, 10)])  # newer than the offset that the transaction commits
        end(log, 1, "commit")
        end(log, 2, "abort")
    found = groups_at(tmp_path)
    assert offsets(found) == {("a", 0): (6, 4), ("a", 1): (7, None), ("c", 0): (12, 0), ("d", 0): (10, 0)}
    assert offsets(found, "pending") == {("c", 0): (9, 1), ("d", 0): (2, 8)}
    assert found["problems"] == [] and offsets(groups_at(tmp_path, "a")).keys() == {("a", 0), ("a", 1)}
    shown = ok("groups", tmp_path)
    assert "pending, producer 3" in shown and "t              1          7        -    -" in shown
    assert run("groups", tmp_path, "--group", "nobody").exit_code == 1


def test_a_tombstone_removes_what_is_pending_too(tmp_path: Path) -> None:
    with one_log(tmp_path, None, OFFSETS) as log:
        in_transaction(log, 1, 0, [commit("a", 0, 6), commit("a", 1, 5)])
        log.append([commit("a", 0, None)])
        assert offsets(groups_at(tmp_path), "pending") == {("a", 1): (5, None)}
        end(log, 1, "commit")
    assert offsets(groups_at(tmp_path)) == {("a", 1): (5, None)}


def test_offsets_expire_unless_the_group_has_members(tmp_path: Path) -> None:
    member = text("m") + b"\xff\xff" + text("c") + text("/h") + struct.pack(">ii", 1, 1) + bytes(4) + bytes(4)

    def group(name: str, since: int, members: list[bytes]) -> tuple[bytes, bytes]:
        value = b"\0\3" + text("consumer") + struct.pack(">i", 3) + text("range") + text("m") + struct.pack(">q", since)
        return b"\0\2" + text(name), value + struct.pack(">i", len(members)) + b"".join(members)

    with one_log(tmp_path, None, OFFSETS) as log:
        log.append([commit("alone", 0, 1), commit("given", 0, 1, expire=NOW + DAY), commit("old", 0, 1)])
        log.append([commit("left", 0, 1), group("left", NOW + 2 * DAY, []), commit("here", 0, 1)])
        log.append([group("here", NOW, [member])])

    def expired(days: int) -> set[str]:
        found = groups_at(tmp_path, days=days)["groups"]
        return {group["group"] for group in found if group["offsets"][0]["expired"]}

    assert [expired(days) for days in (0, 1, 6)] == [set(), {"given"}, {"given"}]
    assert [expired(days) for days in (7, 9)] == [{"given", "alone", "old"}, {"given", "alone", "old", "left"}]
    here, left = groups_at(tmp_path, "here")["groups"][0], groups_at(tmp_path, "left")["groups"][0]
    assert (here["state"], left["state"]) == ("Stable", "Empty")
    assert [here["members"][0][name] for name in ("member_id", "client_id", "client_host")] == ["m", "c", "/h"]


@pytest.mark.parametrize(
    ("target", "member_epoch", "state"), [(4, 5, "Assigning"), (5, 4, "Reconciling"), (5, 5, "Stable")]
)
def test_a_group_of_the_newer_protocol(tmp_path: Path, target: int, member_epoch: int, state: str) -> None:
    topic_id = uuid.UUID(int=77)
    with klog.Log.open(tmp_path / "t-0", topic_id=topic_id):
        pass
    member_key = text("g") + text("m")
    assigned = b"\3" + topic_id.bytes + b"\2\0\0\0\0\0" + uuid.UUID(int=5).bytes + b"\2\0\0\0\3\0"
    with one_log(tmp_path, None, OFFSETS) as log:
        log.append([(b"\0\3" + text("g"), b"\0\0\0\0\0\5\0"), (b"\0\6" + text("g"), struct.pack(">hiB", 0, target, 0))])
        member = b"\0\0\0\0" + compact("client") + compact("/host") + b"\1\0" + struct.pack(">i", 9) + b"\0\0"
        log.append([(b"\0\5" + member_key, member)])
        log.append([(b"\0\x08" + member_key, struct.pack(">hiib", 0, member_epoch, 0, 0) + assigned + b"\1\0")])
    (found,) = groups_at(tmp_path)["groups"]
    assert (found["type"], found["state"], found["generation"]) == ("consumer", state, 5)
    assert found["members"][0]["assignment"] == [["t", 0], [encode_uuid(uuid.UUID(int=5)), 3]]


def test_several_directories_readers_and_damage(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with klog.open([one, two], create=True) as logs:
        logs.create_topic("t", directory=two)
        logs.append("t", [(b"k", b"v")] * 5)
        reader = logs.reader("t", "billing")
        next(iter(reader))
        reader.commit()
    with klog.Log.open(one / f"{OFFSETS}-0") as log:
        for offset in range(3):
            log.append([commit("g", offset, 1)])
        log.append([(b"\0\x63", b"?")])
        path, position = log.segments[0].path, log.size // 4 + 20
    with open(path, "r+b") as file:
        file.seek(position + 60)
        file.write(b"\xff")
    found = groups_at([one, two])
    assert len(offsets(found)) == 2 and offsets(found)["g", 0] == (1, 4)
    assert len(found["problems"]) == 2 and "unknown record type 99" in found["problems"][1]
    assert [(each["reader"], each["offset"], each["lag"]) for each in found["readers"]] == [("billing", 1, 4)]
    (one / "klog-reader.newer.json").write_text('{"version": 2}')
    newer, billing = groups_at([one, two])["readers"]
    assert (newer["reader"], billing["reader"]) == ("newer", "billing") and "upgrade klog" in newer["problem"]
    for as_json in ((), ("--json",)):
        result = run("groups", one, two, *as_json)
        assert result.exit_code == 1 and "billing" in result.stdout
        assert result.stderr.count("klog: ") == 3 and "upgrade klog" in result.stderr


def test_what_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / f"{OFFSETS}-0") as log:
        log.append([commit("g", 7, 1)])
    with klog.Log.open(tmp_path / "__transaction_state-0") as log:
        log.append([(b"\0\x63", b"?")])
    assert "unknown record type 99" in run("transactions", tmp_path).stderr
    assert [run(verb, tmp_path).exit_code for verb in ("groups", "transactions")] == [0, 1]


def test_a_lag_that_is_not_known_has_a_reason(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
        with logs.reader("t", "billing") as reader:
            list(reader)
    for path in (tmp_path / "t-0").glob("0*"):
        path.unlink()
    found = groups_at(tmp_path)
    (problem,) = found["problems"]
    assert found["readers"][0]["lag"] is None and problem.startswith(f"{tmp_path / 't-0'}: no segment")


def test_transactions_of_a_broker() -> None:
    path = HOME / "txn" / "logdir"
    found = transactions(path, clock=ManualClock(1_700_000_100_000))
    states = {each["transactional_id"]: each["state"] for each in found["transactions"]}
    assert states == dict(
        zip(
            ["pay-0", "pay-1", "pay-2", "pay-3"],
            ["CompleteCommit", "CompleteAbort", "CompleteCommit", "Ongoing"],
            strict=True,
        )
    )
    shown = [
        [each[name] for name in ("partition", "transactional_id", "first_offset", "held_back", "age_ms")]
        for each in found["open"]
    ]
    assert shown == [[0, "pay-3", 392, 34, 45_250], [1, "pay-3", 427, 30, 45_500]]
    with klog.open(path, read_only=True) as logs:
        for each in found["open"]:
            log = logs.log(each["topic"], each["partition"])
            assert (log.last_stable_offset, log.log_end_offset) == (each["last_stable_offset"], each["log_end_offset"])
    assert "payments-0  pay-3                    3    392  2023-11-14T22:14:14.750Z" in ok("transactions", path)


def test_a_partition_that_a_move_has_left_in_two_directories_counts_once(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with klog.open(paths, create=True) as logs:
        logs.create_topic("t", directory=paths[0])
        log = logs.log("t")
        in_transaction(log, 1, 0, [(b"k", b"v")])
        log.roll()
    shutil.copytree(paths[0] / "t-0", paths[1] / "t-0")
    write(RealFiles(), str(paths[1] / "t-0"), MoveNote(("t", 0), str(paths[0]), True, 1))
    (found,) = transactions(paths)["open"]
    assert (found["topic"], found["producer_id"], found["first_offset"]) == ("t", 1, 0)
    (tmp_path / "c").mkdir()
    shutil.copytree(paths[1] / "t-0", tmp_path / "c" / "t-0")
    with one_log(tmp_path / "d", None, OFFSETS) as log:
        log.append([commit("a", 0, 1)])
    with klog.Log.open(tmp_path / "c" / "t-0") as log:
        log.append([(b"k", b"v")] * 3)
    for order in ([paths[0], tmp_path / "c"], [tmp_path / "c", paths[0]]):
        assert offsets(groups_at([*order, tmp_path / "d"])) == {("a", 0): (1, 3)}, "the end of the copy"
    with klog.Log.open(paths[0] / "t-0") as log:
        log.append([(b"k", b"v")])
    assert len(transactions(paths)["open"]) == 2, "it is not certain which one is needed"


def test_open_transactions_without_a_snapshot(tmp_path: Path) -> None:
    with one_log(tmp_path, None, "t") as log:
        in_transaction(log, 1, 0, [(b"k", b"v")])
        in_transaction(log, 2, 0, [(b"k", b"v")])
        end(log, 1, "commit")
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    found = transactions(tmp_path)
    assert found["transactions"] == []
    assert [(each["producer_id"], each["first_offset"], each["held_back"]) for each in found["open"]] == [(2, 1, 2)]


def test_a_cleaner_that_removes_segments_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the listing of the segments and the look at them, the oldest ones are merged, or the topic is deleted."""
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    with klog.open(tmp_path, create=True) as logs:
        for name in (OFFSETS, "gone"):
            logs.create_topic(name, config=config)
            for number in range(4):
                logs.append(name, [commit("a", 0, number), commit("a", number, 7)])
                logs.log(name).roll()
        steps: list[Any] = [lambda: logs.log(OFFSETS).compact(), lambda: logs.delete_topic("gone")]

        def listed(path: str) -> list[int]:
            found = bases(path)
            if steps and Path(path).name.startswith(OFFSETS if len(steps) == 2 else "gone"):
                steps.pop(0)()
            return found

        bases = partition_files.bases
        monkeypatch.setattr(partition_files, "bases", listed)
        expected = {("a", 0): (3, None), ("a", 1): (7, None), ("a", 2): (7, None), ("a", 3): (7, None)}
        assert offsets(groups_at(tmp_path)) == expected
        assert transactions(tmp_path)["problems"] == []
        assert steps == []


def test_each_partition_of_a_transaction_waits_for_its_own_marker(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic(OFFSETS, partitions=2)
        for partition, group in enumerate("ab"):
            in_transaction(logs.log(OFFSETS, partition), 1, 0, [commit(group, 0, 5)])
        end(logs.log(OFFSETS, 1), 1, "commit")
    found = groups_at(tmp_path)
    assert (offsets(found), offsets(found, "pending")) == ({("b", 0): (5, None)}, {("a", 0): (5, None)})
