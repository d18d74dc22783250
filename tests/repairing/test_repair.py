"""repair: a dry run reports what the real run does, and the originals are kept."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import DirectoryLock, RealFiles, os_error
from klog.errors import AlreadyLocked
from klog.inspect import diff, verify
from klog.inspect.files import ROOT_CHECKPOINTS
from klog.repairing import repair
from tests.cli.test_verbs import ok, ok_json, run
from tests.manager.staged_jobs import commit, interrupt, job, stage, values
from tests.support.golden import HOME
from tests.support.logs import tree
from tests.support.terminal import answered

CASES = ("unclean", "txn", "compacted", "idempotent", "epochs", "plain")
NOW = 1_800_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of five segments; the second has a wrong byte in its third."""
    with klog.open(tmp_path / "data", create=True, config={"log.segment.bytes": 1 << 20}) as logs:
        logs.create_topic("t", 2)
        for log in (logs.log("t", 0), logs.log("t", 1)):
            for number in range(5):
                log.append([(b"k%d" % number, b"v")] * 10)
                log.append([(b"k%d" % number, b"w")] * 10)
                log.roll()
    path = tmp_path / "data" / "t-1" / f"{40:020d}.log"
    flip(path, 120)
    return tmp_path / "data"


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x55
    path.write_bytes(content)


def plan(found: dict[str, Any]) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = found["partitions"]
    return result


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("byte", "bit"), [(1, 0x20), (7, 1), (7, 8)])
def test_a_base_offset_with_one_wrong_bit_is_restored(
    tmp_path: Path, closed: bool, batch: int, byte: int, bit: int
) -> None:
    """No checksum covers it. A load as after a crash cuts the log there, although readers can read all of it; one far
    out of range it keeps, and a strict open refused the repaired log."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t", 0)
        positions = []
        for number in range(4):
            positions.append(log.size)
            log.append([(b"k", b"%d" % number)] * 3)
        if closed:
            log.roll()
            log.append([(b"k", b"last")])
    path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    original = bytes(content)
    content[positions[batch] + byte] ^= bit
    path.write_bytes(content)
    assert verify(tmp_path / "data").problems
    (entry,) = plan(repair(tmp_path / "data"))
    assert entry["error"] is None and entry["remaining"] == []
    assert (entry["bytes_cut"], entry["intact_batches_cut"], entry["intact_records_cut"]) == (0, 0, 0)
    assert any(f"byte {positions[batch]}," in line for line in entry["details"])
    assert path.read_bytes() == original
    with klog.open(tmp_path / "data") as logs:
        assert [record.offset for record in logs.log("t", 0).read()] == list(range(13 if closed else 12))


@pytest.mark.parametrize("bits", [8, 24])
def test_a_wrong_base_offset_between_gaps(tmp_path: Path, bits: int) -> None:
    """Where compaction has left gaps, a batch does not begin at the end of the one before. One wrong bit is restored.
    With two, the load keeps the batch, far out of range, and cuts the rest: the report counts it."""
    shutil.copytree(HOME / "medley" / "logdir", tmp_path / "data")
    path = tmp_path / "data" / "medley-0" / f"{572:020d}.log"
    content = bytearray(path.read_bytes())
    content[1712 + 1] ^= bits
    original = path.read_bytes()
    path.write_bytes(content)
    (entry,) = plan(repair(tmp_path / "data"))
    if bits == 8:
        assert (entry["log_end_after"], entry["intact_records_cut"], path.read_bytes()) == (699, 0, original)
        assert verify(tmp_path / "data").problems == []
        return
    with klog.open(HOME / "medley" / "logdir", read_only=True) as logs:
        cut = list(logs.log("medley", 0).read(start=615, include_control=True))
    assert entry["intact_records_cut"] == len(cut)


def test_intact_records_above_the_log_start_are_counted(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t", 0)
        for number in range(4):
            log.append([(b"k", b"%d" % number)] * 3)
        log.delete_records(4)
        path = Path(log.segments[0].path)
    content = bytearray(path.read_bytes())
    content[len(content) // 4 - 1] ^= 1  # in a deleted record
    path.write_bytes(content)
    (entry,) = plan(repair(tmp_path / "data"))
    assert (entry["intact_batches_cut"], entry["intact_records_cut"]) == (3, 8)


def test_the_original_is_kept_and_the_rest_left_alone(data: Path) -> None:
    before = tree(data)
    dry = repair(data, dry_run=True)
    assert tree(data) == before and sorted(path.name for path in data.parent.iterdir()) == ["data"]
    found = repair(data)
    assert plan(found) == plan(dry) and (dry["copy"], found["dry_run"]) == (None, False)
    (entry,) = plan(found)
    assert (entry["log_end_before"], entry["log_end_after"]) == (100, 40)
    assert (entry["intact_batches_cut"], entry["intact_records_cut"]) == (5, 50)
    assert entry["bytes_cut"] == sum(
        len(before[name])
        for name in before
        if name.startswith("t-1/") and name.endswith(".log") and int(name[4:24]) >= 40
    )
    assert "a batch with an invalid checksum at byte 0" in entry["details"][0] and entry["remaining"] == []
    assert verify(data).ok
    after, copy = tree(data), tree(Path(found["copy"]))
    assert {name: part for name, part in after.items() if name.startswith("t-0")} == {
        name: part for name, part in before.items() if name.startswith("t-0")
    }
    assert {name: part for name, part in copy.items() if name.startswith("t-1")} == {
        name: part for name, part in before.items() if name.startswith("t-1")
    }
    assert copy["recovery-point-offset-checkpoint"] == before["recovery-point-offset-checkpoint"]
    with klog.open(data) as logs:
        assert [record.offset for record in logs.log("t", 1).read()] == list(range(40))
        assert logs.log("t", 1).recovery.reason == ""  # the clean-shutdown marker and the recovery point hold
    assert plan(repair(data)) == [] and len(list(data.parent.iterdir())) == 2


@pytest.mark.parametrize("interrupted", [True, False])
def test_what_a_job_has_staged_stays_in_the_partition(data: Path, interrupted: bool) -> None:
    staged = job("a", stage(data, "a", {("t", 1): [b"x", b"y"]}))
    if interrupted:
        interrupt(data, staged)
    for path in (data / "t-1").glob("*.index"):
        path.write_bytes(b"garbage")
    flip(data / "t-1" / f"{40:020d}.log", 120)  # sound again
    dry = repair(data, dry_run=True)
    assert plan(repair(data)) == plan(dry) and plan(dry)[0]["error"] is None
    if not interrupted:
        commit(data, staged)
    assert values(data, partition=1, read_only=False)[100:] == [b"x", b"y"] and verify(data).ok
    assert list((data / "t-1").glob(".klog-*")) == []


@pytest.mark.parametrize("name", ROOT_CHECKPOINTS)
def test_a_checkpoint_that_cannot_be_parsed_does_not_stop_a_repair(data: Path, name: str) -> None:
    (data / name).write_bytes(b"garbage")
    dry = repair(data, dry_run=True)
    found = repair(data)
    (entry,) = plan(found)
    assert plan(found) == plan(dry) and (entry["error"], entry["log_end_after"]) == (None, 40)
    assert [name in problem for problem in dry["problems"]] == [True]
    assert found["problems"] == [str(problem) for problem in verify(data).problems]
    assert verify(data / "t-1").ok and len(list(data.parent.iterdir())) == 2
    assert (Path(found["copy"]) / name).read_bytes() == b"garbage"


def test_a_partition_without_a_file_does_not_stop_a_repair(data: Path) -> None:
    (data / "t-2").mkdir()
    damaged, empty = plan(repair(data))
    assert (damaged["partition"], damaged["log_end_after"], damaged["remaining"]) == (1, 40, [])
    assert (empty["log_end_before"], empty["log_end_after"], empty["error"]) == (None, 0, None)
    assert "partition.metadata: checkpoint: missing" in "".join(empty["remaining"])  # the id is not known


def test_a_problem_outside_the_partitions_is_not_repaired(data: Path) -> None:
    repair(data)
    (data / "strange").mkdir()
    before = tree(data)
    for options in (["--dry-run"], ["--yes"]):
        result = run("repair", data, *options)
        assert (result.exit_code, result.stdout) == (3, "no partition to repair\n")
        assert f"klog: not repaired: {data / 'strange'}: leftover: not a partition's directory" in result.stderr
    assert run("repair", data, "--yes", "--json").exit_code == run("verify", data).exit_code == 3
    assert tree(data) == before


def test_two_repairs_at_the_same_time_of_the_clock_have_copies_of_their_own(data: Path) -> None:
    copies = set()
    for name in ("t-0", "t-1"):
        flip(data / name / f"{60:020d}.log", 120)
        copies.add(repair(data / name, clock=ManualClock(NOW))["copy"])
    assert len(copies) == 2 and all(Path(copy).is_dir() for copy in copies)


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path.name)], ids=["fifo", "directory", "link"]
)
@pytest.mark.parametrize("where", ["t-0", "t-1"])
def test_what_is_not_a_file_stays_with_the_originals(data: Path, make: Callable[[Path], None], where: str) -> None:
    """In an intact partition, and in one with damage."""
    name = f"{99999:020d}.log"
    make(data / where / name)
    planned = run("repair", data, "--dry-run")
    assert planned.exit_code == 3 and f"{name} is not a file: it stays with the originals" in planned.stdout
    found = repair(data)
    assert (Path(found["copy"]) / where / name).lstat() and not os.path.lexists(data / where / name)
    (entry,) = [entry for entry in plan(found) if entry["path"] == str(data / where)]
    assert name in [file["name"] for file in entry["files"]] and entry["remaining"] == [] and verify(data).ok


def test_command(data: Path) -> None:
    before = tree(data)
    planned = run("repair", data, "--dry-run")
    assert planned.exit_code == 3
    assert f"klog rescue {data} --to NEWDIR keeps the 50 intact records after the damage\n" in planned.stdout
    code, shown, text = answered("n\n", "repair", data)
    assert code == 1 and "t-1" in shown and "Repair? [y/N]" in text and "nothing was changed" in text
    unasked = run("repair", data, input="y\n")
    assert unasked.exit_code == 2 and "no terminal to ask on: add --yes" in unasked.stderr and tree(data) == before
    assert run("repair", data, "--json").exit_code == 2 and run("repair", data, "--scratch", data).exit_code == 2
    scratch = data.parent / "scratch"
    scratch.mkdir()
    dry = run("repair", data / "t-1", "--dry-run", "--scratch", scratch, "--json")
    assert dry.exit_code == 3 and not list(scratch.iterdir())
    lock = DirectoryLock(str(data))
    try:
        assert run("repair", data, "--dry-run").exit_code == 4
        with pytest.raises(AlreadyLocked):
            repair(data / "t-1")
    finally:
        lock.release()
    code, shown, _ = answered("y\n", "repair", data)
    assert code == 0 and "t-1" in shown and "the originals are in" in shown
    assert f"klog rescue {data}.before-repair-" in shown  # the plan before it names DIR
    assert ok("repair", data, "--yes") == "sound: nothing to repair\n"
    assert ok_json("repair", data, "--yes")["partitions"] == []


def test_leftovers_of_a_broker_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "data"
    shutil.copytree(HOME / "internal" / "logdir", path)
    before = tree(path)
    assert verify(path).ok and len(verify(path).notes) > 30
    assert ok("repair", path, "--dry-run") == ok("repair", path, "--yes") == "sound: nothing to repair\n"
    assert {name: content for name, content in tree(path).items() if name != ".lock"} == before


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("crash_at", range(14))
def test_a_crash_at_any_rename_or_sync(
    data: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int, exchanges: bool
) -> None:
    """F2: the partition is there, repaired or as it was; without exchanges only after one more repair."""
    before, calls = tree(data), 0
    if not exchanges:

        def refused(_self: RealFiles, path: str, _other: str) -> None:
            raise os_error(errno.EINVAL, path)

        monkeypatch.setattr(RealFiles, "exchange", refused)

    def crashing(name: str) -> None:
        original = getattr(RealFiles, name)

        def call(self: RealFiles, *args: Any) -> Any:
            nonlocal calls
            if any(Path(arg) == data or "data.before" in arg or Path(arg).name == "t-1" for arg in args):
                calls += 1
                if calls > crash_at:
                    raise KeyboardInterrupt
            return original(self, *args)

        monkeypatch.setattr(RealFiles, name, call)

    for name in ("rename", "fsync_dir", *(["exchange"] if exchanges else [])):
        crashing(name)
    ended = False
    with contextlib.suppress(KeyboardInterrupt):
        repair(data)
        ended = True
    assert ended is (crash_at >= calls)
    if exchanges:
        assert (data / "t-1").is_dir()
    monkeypatch.undo()
    repair(data)
    assert verify(data).ok and (data / "t-1").is_dir()
    kept = [tree(path / "t-1") for path in data.parent.iterdir() if path != data and (path / "t-1").is_dir()]
    assert {name[4:]: part for name, part in before.items() if name.startswith("t-1/")} in kept
    assert not [*data.parent.glob("*/repaired"), *data.parent.glob("*/original")]


@pytest.mark.parametrize("seed", range(12))
def test_random_damage(tmp_path: Path, seed: int) -> None:
    """The dry run and the real run agree. The result is sound, begins as the original does, and the copy is the original."""
    rng = random.Random(seed)
    path = tmp_path / "data"
    shutil.copytree(HOME / CASES[seed % len(CASES)] / "logdir", path, ignore=shutil.ignore_patterns(".lock"))
    for log in rng.sample([each for each in sorted(path.glob("*/*")) if each.stat().st_size > 200], 2):
        if rng.random() < 0.3:
            log.write_bytes(log.read_bytes()[: rng.randrange(log.stat().st_size)])
        else:
            flip(log, rng.randrange(log.stat().st_size))
    before = tree(path)
    dry = repair(path, dry_run=True, clock=ManualClock(NOW))
    assert tree(path) == before
    found = repair(path, clock=ManualClock(NOW))
    assert plan(found) == plan(dry)
    done = [entry for entry in plan(found) if entry["error"] is None and entry["files"]]
    remaining = [text for entry in plan(found) for text in entry["remaining"]]
    refused = [entry["path"] for entry in plan(found) if entry["error"] is not None]
    for problem in verify(path).problems:
        where = Path(problem.path)
        assert str(problem) in remaining or str(where.parent) in (*refused, str(path)) or where == path
    for entry in done:
        name = Path(entry["path"]).name
        copy = Path(found["copy"]) / name
        assert tree(copy) == {key.split("/", 1)[1]: part for key, part in before.items() if key.startswith(f"{name}/")}
        after = {key.split("/", 1)[1] for key in tree(path) if key.startswith(f"{name}/")}
        removed = {file["name"] for file in entry["files"] if file["change"] == "removed"}
        assert after == ({*tree(copy)} | {file["name"] for file in entry["files"]}) - removed
        same = diff(copy, path / name)["partitions"][0]
        assert same["first_divergence"] is None and same["missing_in_a"]["count"] == 0
