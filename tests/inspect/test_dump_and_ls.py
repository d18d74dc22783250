"""dump returns what Kafka's own reader found; ls matches the manifests. Neither changes a file."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import RealFiles
from klog.inspect import dump, listing, ls
from klog.manager import move_note
from klog.record import encode
from klog.security import Users
from tests.support import golden
from tests.support.logs import NOW, one_log

KINDS = {"create": "create_time", "append": "log_append_time"}


def _bytes(entry: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_b64" in entry:
        return base64.b64decode(entry[f"{name}_b64"])
    return None if entry[name] is None else entry[name].encode()


@pytest.mark.parametrize("partition", golden.all_partitions(), ids=lambda partition: partition.id)
def test_records_match_kafkas(partition: golden.Partition) -> None:
    found = []
    for file in dump(partition.directory):
        assert file.leftover is None or file.leftover == "deleted"
        for entry in file.entries:
            json.dumps(entry)
            assert entry["type"] != "problem"
            # metadata snapshots of KRaft are batches too, with offsets from 0: not part of the log
            if entry["type"] == "batch" and file.path.endswith(".log"):
                assert entry["valid"]
                assert len(entry["records"]) == entry["count"]
                found += entry["records"]
    got = [
        (
            r["offset"],
            r["timestamp"],
            r["timestamp_type"],
            _bytes(r, "key"),
            _bytes(r, "value"),
            [(header["key"], _bytes(header, "value")) for header in r["headers"]],
            r["leader_epoch"],
            r["producer_id"],
            r["sequence"],
            r["control_type"],
        )
        for r in found
    ]
    expected = [
        (
            r.offset,
            r.timestamp,
            KINDS[r.timestamp_type],
            r.key,
            r.value,
            list(r.headers),
            r.leader_epoch,
            r.producer_id,
            r.sequence,
            r.control_type,
        )
        for r in partition.records
    ]
    assert got == expected


def test_control_records_of_kraft_are_decoded() -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for directory in sorted(golden.HOME.glob("*/logdir")):
        for file in dump(directory):
            for entry in file.entries:
                for record in entry.get("records", ()):
                    if record["control_type"] not in (None, "abort", "commit"):
                        found.setdefault(record["control_type"], []).append(record["control"])
    kinds = {"leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "kraft_voters"}
    assert set(found) == kinds
    assert {version["kraft_version"] for version in found["kraft_version"]} == {1}
    assert {voter["endpoints"][0]["name"] for voters in found["kraft_voters"] for voter in voters["voters"]} == {
        "CONTROLLER"
    }
    assert {change["leader_id"] for change in found["leader_change"]} == {1}
    assert all(change["voters"] == [1] for change in found["leader_change"])


def test_every_kind_of_file_has_its_entries(tmp_path: Path) -> None:
    directory = golden.copy_logdir("txn-v1", tmp_path)
    before = golden.file_tree(directory)
    types: dict[str, set[str]] = {}
    for file in dump(directory):
        types.setdefault(file.kind, set()).update(entry["type"] for entry in file.entries)
    assert types == {
        "clean_shutdown": {"document"},
        "log": {"batch"},
        "checkpoint": {"offset"},
        "properties": {"document"},
        "index": {"offset_entry"},
        "timeindex": {"time_entry"},
        "txnindex": {"aborted_transaction"},
        "snapshot": {"producer"},
        "epochs": {"epoch"},
        "partition_metadata": {"document"},
    }
    assert golden.file_tree(directory) == before


def test_the_files_of_a_broker_are_shown_without_keys(tmp_path: Path) -> None:
    Users(str(tmp_path)).set_password("secret", "SCRAM-SHA-256", "correct horse")
    stored = json.loads((tmp_path / "klog-users.json").read_text())
    (file,) = dump(tmp_path)
    (entry,) = file.entries
    shown = entry["content"]["users"]["secret"]["SCRAM-SHA-256"]
    assert (file.kind, entry["type"], shown["iterations"]) == ("broker", "document", 4096)
    credential = stored["users"]["secret"]["SCRAM-SHA-256"]
    for key in (stored["secret"], credential["salt"], credential["stored_key"], credential["server_key"]):
        assert key not in json.dumps(entry)


def test_intended_gaps_are_shown(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append_batches(encode([(b"k", b"v")]), origin="replication")
        log.roll(expected_next_offset=5)
    (gap,) = [entry for file in dump(tmp_path / "t-0") if file.kind == "gaps" for entry in file.entries]
    assert gap == {"type": "gap", "end": 1, "base_offset": 5}


def test_the_note_of_a_move_is_shown(tmp_path: Path) -> None:
    move_note.write(RealFiles(), str(tmp_path), move_note.MoveNote(("t", 0), "/disk", True, 5))
    (file,) = dump(tmp_path / move_note.NOTE)
    (entry,) = file.entries
    assert (file.kind, entry["type"]) == ("move", "document")
    content = {"version": 1, "topic": "t", "partition": 0, "from": "/disk", "ready": True, "end": 5}
    assert {name: entry["content"][name] for name in content} == content


def test_txn_index_entries_match_the_manifest() -> None:
    for partition in golden.partitions("txn-v1"):
        found = [
            {name: value for name, value in entry.items() if name != "type"}
            for file in dump(partition.directory)
            if file.kind == "txnindex"
            for entry in file.entries
        ]
        assert found == list(partition.entry["aborted"])


def test_damage_becomes_an_entry_and_dump_continues(tmp_path: Path) -> None:
    directory = golden.copy_logdir("plain", tmp_path) / "plain-0"
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    (first,) = dump(path)
    second = [entry["position"] for entry in first.entries][1]
    data[second + 70] ^= 1
    path.write_bytes(data)
    (file,) = dump(path)
    flags = [entry["valid"] for entry in file.entries]
    assert flags.count(False) == 1
    assert not flags[1]
    path.write_bytes(data[:-5])
    (file,) = dump(path)
    last = list(file.entries)[-1]
    assert (last["type"], last["torn"], last["kind"]) == ("problem", True, "length")


@pytest.mark.parametrize("case", golden.CASES)
def test_ls_matches_the_manifest(case: str, tmp_path: Path) -> None:
    directory = golden.copy_logdir(case, tmp_path)
    before = golden.file_tree(directory)
    found = {
        (entry["topic"], entry["partition"]): entry
        for topic in ls(directory)["topics"]
        for entry in topic["partitions"]
    }
    assert golden.file_tree(directory) == before
    for partition in golden.partitions(case):
        entry = found.pop((partition.topic, partition.number))
        wanted = partition.entry
        assert entry["problem"] is None
        assert entry["topic_id"] == partition.topic_id
        assert entry["log_end_offset"] == wanted["log_end_offset"]
        if not (case == "medley" and wanted["log_start_offset"]):
            assert entry["log_start_offset"] == wanted["log_start_offset"]
        assert entry["size"] == sum(segment["size"] for segment in wanted["segments"])
        assert entry["segments"] == len(wanted["segments"])
        latest = partition.largest_timestamp
        assert entry["max_timestamp"] == (latest if latest >= 0 else None)
    assert found == {}


@pytest.mark.parametrize("index_interval", [0, 4096])
def test_the_first_time_is_that_of_the_first_record_left_that_has_one(tmp_path: Path, index_interval: int) -> None:
    with one_log(tmp_path, index_interval_bytes=index_interval) as log:
        log.append([(None, b"v", -1), (None, b"v", NOW), (None, b"v", NOW + 5)])
        for after in (-1, NOW + 2, NOW + 3):
            log.append([(None, b"v", after)])
        log.roll()
        log.append([(None, b"v", NOW + 4)])
        found = []
        for start in (0, 2, 3, 5, 6, 7):
            log.delete_records(start)
            partition = ls(tmp_path)["topics"][0]["partitions"][0]
            assert partition["log_start_offset"] == start
            found.append(partition["first_timestamp"])
        assert found == [NOW, NOW + 5, NOW + 2, NOW + 3, NOW + 4, None]
        assert partition["max_timestamp"] == NOW + 5, "of the segments, as in Kafka"


def test_a_partition_that_was_never_written_is_an_empty_log(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
    assert [path.name for path in (tmp_path / "t-0").iterdir()] == ["partition.metadata"]
    for where in (tmp_path, tmp_path / "t-0"):
        (entry,) = ls(where)["topics"][0]["partitions"]
        assert (entry["log_start_offset"], entry["log_end_offset"], entry["segments"]) == (0, 0, 0)
        assert entry["problem"] is None


def test_a_partition_that_has_lost_every_segment_has_a_problem(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
    for path in (tmp_path / "t-0").glob("0*"):
        path.unlink()
    for where in (tmp_path, tmp_path / "t-0"):
        (entry,) = ls(where)["topics"][0]["partitions"]
        assert entry["log_end_offset"] is None
        assert entry["problem"] == "no segment, but records below offset 1 were flushed: they are missing"


@pytest.mark.parametrize(
    ("number", "bit", "found_at", "end"),
    [(0, 1, 1, 21), (0, 2, 1, 21), (0, 31, 0, 21), (0, 62, 0, 21), (2, 1, 2, 14), (2, 31, 2, 14), (2, 62, 2, 14)],
)
def test_a_base_offset_that_cannot_be_is_a_problem(
    tmp_path: Path, number: int, bit: int, found_at: int, end: int
) -> None:
    """It is in no checksum. Log.open refuses such a log."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        for _ in range(3):
            logs.append("t", [(b"k", b"v", NOW)] * 7)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    data[number * size : number * size + 8] = (7 * number ^ 1 << bit).to_bytes(8)
    path.write_bytes(data)
    (entry,) = ls(tmp_path)["topics"][0]["partitions"]
    assert f"position {found_at * size}" in entry["problem"] and entry["log_end_offset"] == end


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("at", ["is_directory", "_read_files"])
def test_a_topic_that_is_deleted_meanwhile_has_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, again: bool
) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")] * 5)
        logs.log("t").delete_records(3)
    with klog.open(tmp_path) as logs:
        before, left = getattr(listing, at), [again]

        def delete(*arguments: Any, **options: Any) -> Any:
            if left:
                logs.delete_topic("t")
                if left.pop():
                    logs.create_topic("t")
            return before(*arguments, **options)

        monkeypatch.setattr(listing, at, delete)
        entries = [entry for topic in ls(tmp_path)["topics"] for entry in topic["partitions"]]
    fields = ("problem", "log_start_offset", "log_end_offset", "high_watermark")
    assert [[entry[name] for name in fields] for entry in entries] == [[None, 0, 0, None]] * again


def test_what_a_writer_removes_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        for _ in range(3):
            logs.append("t", [(b"k", b"v")])
            logs.log("t").roll()
    directory, opened, left = tmp_path / "data" / "t-0", os.open, [0]

    def retention(name: str, *others: Any, **options: Any) -> int:
        if left and str(name).endswith(".log"):
            for path in directory.glob(f"{left.pop():020d}.*"):
                path.unlink()
        return opened(name, *others, **options)

    monkeypatch.setattr(os, "open", retention)
    (entry,) = ls(tmp_path / "data")["topics"][0]["partitions"]
    assert (entry["problem"], entry["log_start_offset"], entry["segments"], left) == (None, 1, 3, [])
    left.append(2)
    found = dump(tmp_path / "data")
    dumped = {file.path: list(file.entries) for file in found if file.kind == "log" and "t-0" in file.path}
    assert [len(entries) for entries in dumped.values()] == [1, 0] and left == []
    (log,) = [file for file in dump(directory) if file.path.endswith(f"{1:020d}.log")]
    os.unlink(log.path)
    assert list(log.entries) == []
