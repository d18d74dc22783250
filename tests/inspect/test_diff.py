"""diff compares the records of logs, and finds the first offset that differs."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.inspect import diff
from klog.inspect.partition_files import bases
from klog.progress import Event
from klog.repairing import rescue
from tests.cli.test_verbs import ok, run
from tests.support.golden import HOME
from tests.support.logs import tree

Batch = list[tuple[bytes, bytes, int]]


def records(start: int, stop: int, value: bytes = b"v") -> Batch:
    return [(b"k%d" % offset, value, 1000 + offset) for offset in range(start, stop)]


def write(path: Path, batches: list[tuple[int, Batch]], *, codec: str | None = None, **config: Any) -> Path:
    """Write a log from pairs of leader epoch and records. The offset of a record is its timestamp - 1000."""
    path.mkdir()
    with klog.Log.open(path / "t-0", config=config) as log:
        for epoch, batch in batches:
            data = klog.record.encode(batch, base_offset=batch[0][2] - 1000, leader_epoch=epoch, compression=codec)
            log.append_batches(data, origin="replication")
    return path


def one(a: Path, b: Path) -> dict[str, Any]:
    """Return the difference of the only partition. Checks that the reverse comparison matches it."""
    found = diff(a, b)
    (entry,) = found["partitions"]
    assert found["equal"] is (entry["state"] == "equal")
    reverse = diff(b, a)["partitions"][0]
    assert reverse["state"] == entry["state"] and reverse["missing_in_a"] == entry["missing_in_b"]
    result: dict[str, Any] = entry
    return result


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return write(tmp_path / "a", [(0, records(0, 10)), (0, records(10, 20)), (3, records(20, 30))])


def test_other_batches_codecs_and_segments_are_equal(a: Path, tmp_path: Path) -> None:
    cut = [(0, records(0, 3)), (0, records(3, 17)), (0, records(17, 20)), (3, records(20, 30))]
    b = write(tmp_path / "b", cut, codec="lz4", **{"segment.bytes": 300})
    before = tree(tmp_path)
    assert one(a, b)["state"] == "equal" and tree(tmp_path) == before
    assert ok("diff", a, b) == "equal: 1 partition with the same records\n"
    assert ok("diff", a / "t-0", b / "t-0").startswith("equal")


def test_the_first_offset_and_epoch_that_differ(a: Path, tmp_path: Path) -> None:
    b = write(tmp_path / "b", [(0, records(0, 10)), (1, records(10, 12)), (2, records(12, 30, b"w"))])
    found = one(a, b)
    assert found["state"] == "diverged"
    assert found["first_divergence"] == {"offset": 10, "fields": ["leader_epoch"], "epoch_a": 0, "epoch_b": 1}
    assert found["a"]["epochs"] == [[0, 0], [3, 20]] and found["b"]["epochs"] == [[0, 0], [1, 10], [2, 12]]
    c = write(tmp_path / "c", [(0, records(0, 15)), (0, records(15, 20, b"w")), (3, records(20, 30))])
    assert one(a, c)["first_divergence"] == {"offset": 15, "fields": ["value"], "epoch_a": 0, "epoch_b": 0}
    result = run("diff", a, c)
    assert result.exit_code == 3 and "first at offset 15 (epoch 0 in A, 0 in B): value" in result.stdout


def test_ends_starts_and_compaction(a: Path, tmp_path: Path) -> None:
    shorter = write(tmp_path / "b", [(0, records(0, 10)), (0, records(10, 15))])
    assert one(a, shorter)["state"] == "ends_earlier" and one(a, shorter)["missing_in_b"]["count"] == 0
    kept = [(0, [each]) for each in records(0, 20) if each[2] % 2] + [(3, records(20, 30))]
    compacted = one(a, write(tmp_path / "c", kept))
    assert compacted["state"] == "compacted" and compacted["first_divergence"] is None
    assert compacted["missing_in_b"] == {"count": 10, "first_offset": 0}
    later = tmp_path / "d"
    shutil.copytree(a, later)
    with klog.Log.open(later / "t-0") as log:
        log.delete_records(7)
    found = one(a, later)
    assert (found["state"], found["compared_from"]) == ("starts_later", 7)
    assert run("diff", a, later).exit_code == 3


def test_missing_partitions_and_damage(a: Path, tmp_path: Path) -> None:
    b = tmp_path / "b"
    shutil.copytree(a, b)
    shutil.copytree(a / "t-0", b / "t-1")
    assert [entry["state"] for entry in diff(a, b)["partitions"]] == ["equal", "missing"]
    path = b / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = diff(a, b)["partitions"][0]
    assert (found["state"], found["missing_in_b"]) == ("damaged", {"count": 10, "first_offset": 10})
    with pytest.raises(ValueError, match="one is a partition directory"):
        diff(a, b / "t-0")
    assert run("diff", a, b / "t-0").exit_code == 2


@pytest.mark.parametrize("gone", ["a", "b", "ab"])
def test_a_partition_that_a_writer_deletes_meanwhile(
    a: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    shutil.copytree(a, tmp_path / "b")

    def after_a_deletion(path: str) -> list[int]:
        for side in gone:
            shutil.rmtree(tmp_path / side / "t-0", ignore_errors=True)
        return bases(path)

    monkeypatch.setattr("klog.inspect.compare.bases", after_a_deletion)
    found = diff(a, tmp_path / "b")["partitions"]
    assert [(entry["state"], entry[gone]) for entry in found] == ([] if gone == "ab" else [("missing", None)])


def test_the_same_damage_in_both_is_counted_but_is_not_a_difference(a: Path, tmp_path: Path) -> None:
    path = a / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    shutil.copytree(a, tmp_path / "b")
    found = one(a, tmp_path / "b")
    assert found["state"] == "equal" and "checksum" in found["unreadable_in_both"][0]
    result = run("diff", a, tmp_path / "b")
    assert result.exit_code == 0 and result.stderr.startswith("klog: in both: ")
    assert result.stdout == "equal: 1 partition with the same records; 1 place is damaged in both\n"
    data[len(data) // 2 + 1] ^= 1  # other bytes in the same batch
    (tmp_path / "b" / "t-0" / path.name).write_bytes(data)
    assert one(a, tmp_path / "b")["state"] == "damaged"


def test_the_records_that_a_rescue_left_out_are_a_gap(a: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(a, damaged)
    path = damaged / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    rescue(damaged, tmp_path / "rescued")
    found = one(a, tmp_path / "rescued")
    assert (found["state"], found["missing_in_b"]) == ("gap", {"count": 10, "first_offset": 10})
    assert "one log notes a gap, as klog rescue leaves it" in run("diff", a, tmp_path / "rescued").stdout


def test_the_golden_directories_are_equal_to_themselves(tmp_path: Path) -> None:
    events: list[Event] = []
    for case in ("txn", "compacted", "codecs"):
        copy = tmp_path / case
        shutil.copytree(HOME / case / "logdir", copy)
        events.clear()
        assert diff(HOME / case / "logdir", copy, progress=events.append)["equal"]
        assert events[-1].done == events[-1].total


@pytest.mark.parametrize("seed", range(8))
def test_a_random_change_is_found(tmp_path: Path, seed: int) -> None:
    """The logs differ in one record. With odd seeds, their batches and segments have the same boundaries."""
    rng = random.Random(seed)
    changed = rng.randrange(60)
    sides = []
    for name in "ab":
        batch = [
            (key, b"w" if name == "b" and at == 1000 + changed else value, at) for key, value, at in records(0, 60)
        ]
        cuts = sorted({0, 60, *(range(0, 60, 6) if seed % 2 else rng.sample(range(60), 8))})
        parts = [(0, batch[start:stop]) for start, stop in itertools.pairwise(cuts)]
        codec = None if seed % 2 else rng.choice([None, "gzip"])
        size = 500 if seed % 2 else rng.choice([1200, 1 << 20])
        sides.append(write(tmp_path / name, parts, codec=codec, **{"segment.bytes": size}))
    assert one(*sides)["first_divergence"]["offset"] == changed
