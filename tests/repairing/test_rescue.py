"""rescue: every intact batch, and no others; what is missing is reported."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import RealFiles
from klog.inspect import diff, verify
from klog.log.staged import streams
from klog.manager.commits import TopicPlan
from klog.progress import Event
from klog.record import decode, encode
from klog.repairing import rescue
from klog.security import Users
from tests.cli.test_verbs import ok, run
from tests.manager.staged_jobs import interrupt, job, stage
from tests.support.batches import marker, transactional
from tests.support.golden import HOME
from tests.support.logs import tree

HEADER_WITHOUT_CHECKSUM = {*range(8), *range(12, 16)}  # base offset, leader epoch


def batches(path: Path) -> dict[str, list[tuple[str, int, bytes]]]:
    """{partition: (file, position, bytes) of its batches}, in order."""
    found: dict[str, list[tuple[str, int, bytes]]] = {}
    for file in sorted(path.glob("*-*/*.log")):
        for batch in decode(file.read_bytes(), verify_crc=False):
            position = sum(len(each[2]) for each in found.get(file.parent.name, ()) if each[0] == file.name)
            found.setdefault(file.parent.name, []).append((file.name, position, bytes(batch.raw)))
    return found


def contents(path: Path) -> dict[str, list[bytes]]:
    return {name: [raw for _, _, raw in listed] for name, listed in batches(path).items()}


@pytest.mark.parametrize("case", ["compacted", "internal", "medley", "names", "plain", "trimmed", "txn-v1", "unclean"])
def test_undamaged_directories_are_copied_whole(tmp_path: Path, case: str) -> None:
    source, to = HOME / case / "logdir", tmp_path / "new"
    before = tree(source)
    found = rescue(source, to)
    assert tree(source) == before
    assert [each["missing"] for each in found["partitions"] if each["missing"]] == [] and found["problems"] == []
    assert contents(source) == contents(to) and diff(source, to)["equal"]
    with klog.open(source, read_only=True) as old, klog.open(to, read_only=True) as new:
        for topic, numbers in old.topics().items():
            for number in numbers:
                one, two = old.log(topic, number), new.log(topic, number)
                assert (one.topic_id, one.log_start_offset) == (two.topic_id, two.log_start_offset)
                written = {batch.leader_epoch for raw in contents(to).get(two.name, ()) for batch in decode(raw)}
                assert [epoch for epoch, _ in two.leader_epochs] in (sorted(written), [one.leader_epoch])
                assert one.leader_epoch == two.leader_epoch


@pytest.mark.parametrize("seed", range(12))
def test_random_damage(tmp_path: Path, seed: int) -> None:
    """Each batch without a changed byte is in the result. Others are there only with another offset or epoch."""
    rng = random.Random(seed)
    source, to = tmp_path / "source", tmp_path / "to"
    shutil.copytree(
        HOME / rng.choice(["txn", "segments", "epochs", "idempotent", "codecs", "medley", "compacted"]) / "logdir",
        source,
    )
    original = batches(source)
    changed: dict[tuple[str, str], set[int]] = {}
    for file in rng.sample([each for each in sorted(source.glob("*-*/*.log")) if each.stat().st_size > 500], 2):
        data = bytearray(file.read_bytes())
        places = changed.setdefault((file.parent.name, file.name), set())
        for _ in range(rng.randrange(1, 4)):
            start = rng.randrange(len(data))
            size = rng.choice([1, 1, 4, 300])
            for position in range(start, min(start + size, len(data))):
                data[position] ^= rng.randrange(1, 256)
                places.add(position)
        if rng.random() < 0.2:
            cut = rng.randrange(len(data))
            places.update(range(cut, len(data)))
            del data[cut:]
        file.write_bytes(data)
    found = rescue(source, to)
    assert found["problems"] == [] and verify(to).ok
    rescued = contents(to)
    damaged = False
    for name, listed in original.items():
        intact, others = [], set()
        for file_name, position, raw in listed:
            hit = {at - position for at in changed.get((name, file_name), ()) if position <= at < position + len(raw)}
            if not hit:
                intact.append(raw)
            elif hit <= HEADER_WITHOUT_CHECKSUM:
                others.add(raw[16:])
            damaged |= bool(hit)
        got = rescued.get(name, [])
        assert [raw for raw in got if raw in set(intact)] == intact
        assert {raw[16:] for raw in got if raw not in set(intact)} <= others
    assert damaged or not any(each["missing"] for each in found["partitions"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three batches of ten records a segment, three segments."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", config={"retention.ms": 77})
        log = logs.log("t")
        for _ in range(3):
            for _ in range(3):
                log.append([(b"key", b"value")] * 10)
            log.roll()
        log.delete_records(5)
        reader = logs.reader("t", "me")
        next(iter(reader))
        reader.commit()
    return tmp_path / "data"


def test_a_partition_without_a_segment_is_rescued(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", 2)
        logs.log("t", 1).append([(b"k", b"v")])
    found = rescue(tmp_path / "data", tmp_path / "new")
    assert [(each["partition"], each["log_end_offset"], each["error"]) for each in found["partitions"]] == [
        (0, 0, None),
        (1, 1, None),
    ]
    assert not found["problems"] and verify(tmp_path / "new").ok
    with klog.open(tmp_path / "new") as logs:
        assert logs.topics() == {"t": [0, 1]}
        logs.append("t", [(b"%d" % n, b"v") for n in range(9)])


def test_the_report_and_what_is_kept(data: Path, tmp_path: Path) -> None:
    path = data / "t-0" / f"{30:020d}.log"
    content = bytearray(path.read_bytes())
    size = len(content) // 3
    content[size + 100] ^= 1
    content[2 * size + 100] ^= 1
    path.write_bytes(content)
    last = data / "t-0" / f"{60:020d}.log"
    last.write_bytes(last.read_bytes()[:-3])
    result = run("rescue", data, "--to", tmp_path / "new")
    assert result.exit_code == 3
    assert f"t-0: offsets 40 to 59: {path}, position {size}: " in result.stdout
    found = rescue(data, tmp_path / "again")
    (entry,) = found["partitions"]
    assert found["problems"] == []
    assert [(each["first_offset"], each["last_offset"], each["position"]) for each in entry["missing"]] == [
        (40, 59, size),
        (80, 89, 2 * size),
    ]
    assert (
        "and 1 more" in entry["missing"][0]["reason"]
        and "an incomplete batch at the end" in entry["missing"][1]["reason"]
    )
    assert (entry["records"], entry["log_start_offset"], entry["log_end_offset"]) == (60, 5, 90)
    with klog.open(tmp_path / "new") as logs:
        assert [record.offset for record in logs.read("t")] == [*range(5, 40), *range(60, 80)]
        assert logs.topic_config("t")["retention.ms"] == 77 and logs.reader("t", "me").committed == {0: 6}
        assert logs.log("t").recovery.clean_shutdown


WRONG = ((0, 1, 3), (1, 2, 12), (2, 2, 2))  # segment, batch, byte: two base offsets and a leader epoch


def change_bits(data: Path, bits: int, places: Sequence[tuple[int, int, int]] = WRONG) -> None:
    for number, batch, position in places:
        path = data / "t-0" / f"{30 * number:020d}.log"
        content = bytearray(path.read_bytes())
        content[batch * (len(content) // 3) + position] ^= bits
        path.write_bytes(content)


def test_a_wrong_offset_or_epoch_that_the_others_show_is_restored(data: Path, tmp_path: Path) -> None:
    """No checksum covers them. Readers of the damaged log have all its records."""
    original = contents(data)
    change_bits(data, 1)
    found = rescue(data, tmp_path / "new")
    (entry,) = found["partitions"]
    missing = [(each["first_offset"], each["last_offset"], each["reason"]) for each in entry["missing"]]
    assert missing == [
        (None, None, "a wrong base offset 4294967306, now 10"),
        (None, None, "a wrong leader epoch 16777216, now 0"),
        (None, None, "a wrong base offset 1099511627856, now 80"),
    ]
    assert (entry["records"], found["problems"]) == (90, []) and contents(tmp_path / "new") == original


@pytest.mark.parametrize("wrong", [1, 4, 7])
def test_a_wrong_epoch_where_a_segment_begins_changes_no_intact_batch(tmp_path: Path, wrong: int) -> None:
    """The segment before has epochs above a wrong low one."""
    data = tmp_path / "data"
    data.mkdir()
    with klog.Log.open(data / "t-0") as log:
        for _ in range(3):
            for _ in range(3):
                log.append_batches(encode([(b"k", b"v")] * 10), leader_epoch=5)
            log.roll()
    original = contents(data)
    path = data / "t-0" / f"{30:020d}.log"
    content = bytearray(path.read_bytes())
    content[12:16] = wrong.to_bytes(4)
    path.write_bytes(content)
    found = rescue(data, tmp_path / "new")
    (entry,) = found["partitions"]
    missing = [(each["first_offset"], each["last_offset"], each["reason"]) for each in entry["missing"]]
    assert missing == [(None, None, f"a wrong leader epoch {wrong}, now 5")]
    assert (entry["records"], found["problems"]) == (90, []) and contents(tmp_path / "new") == original


def test_a_batch_with_a_wrong_offset_or_epoch_hides_no_others(data: Path, tmp_path: Path) -> None:
    """No checksum covers them: a large offset or epoch must not make the batches after it look wrong."""
    change_bits(data, 3, [(0, 1, 3), (0, 2, 3), (2, 1, 12), (2, 2, 12)])
    (entry,) = rescue(data, tmp_path / "new")["partitions"]
    missing = [(each["first_offset"], each["last_offset"], each["reason"]) for each in entry["missing"]]
    assert missing == [(10, 29, "a batch outside the offsets of its segment, which begin at 0, and 1 more")]
    assert entry["records"] == 70


@pytest.mark.parametrize("kind", ["directory", "link", "dangling link"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_that_cannot_be_read_hides_no_others(data: Path, tmp_path: Path, kind: str, number: int) -> None:
    path = data / "t-0" / f"{30 * number:020d}.log"
    path.rename(tmp_path / "elsewhere.log")
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / ("elsewhere.log" if kind == "link" else "nowhere"))
    found = rescue(data, tmp_path / "new")
    (entry,) = found["partitions"]
    assert (entry["error"], entry["records"], found["problems"]) == (None, 60, [])
    assert [(each["first_offset"], each["last_offset"], each["path"]) for each in entry["missing"]] == [
        (30 * number, 30 * number + 29, str(path))
    ]


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_directory_that_cannot_be_read_hides_no_other_partitions(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    shutil.copytree(data / "t-0", data / "a-0")
    listed = os.listdir

    def failing(path: Any) -> list[str]:
        if os.fspath(path) == str(data / "a-0"):
            raise OSError(number, os.strerror(number), path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", failing)
    found = rescue(data, tmp_path / "new", progress=lambda event: None)
    lost, kept = found["partitions"]
    assert os.strerror(number) in lost["error"] and str(data / "a-0") in lost["error"]
    assert (kept["error"], kept["records"], found["problems"]) == (None, 90, [])
    assert not (tmp_path / "new" / "a-0").exists()


def log_of_transactions(path: Path, random_: random.Random) -> dict[int, bytes]:
    """Write a log of transactions of three producers, some of them aborted, in several segments. Returns the committed
    values by offset."""
    with klog.open(path, create=True) as logs:
        logs.create_topic("t")
        log, open_, sequences = logs.log("t"), set[int](), dict.fromkeys(range(3), 0)
        for number in range(60):
            pid = random_.randrange(3)
            if pid in open_ and random_.random() < 0.5:
                log.append_batches(marker(pid, 0, random_.choice(["abort", "commit"])), origin="coordinator")
                open_.discard(pid)
            else:
                count = random_.randrange(1, 4)
                log.append_batches(transactional(pid, 0, sequences[pid], count))
                sequences[pid] += count
                open_.add(pid)
            if number % 20 == 19:
                log.roll()
        for pid in open_:
            log.append_batches(marker(pid, 0, random_.choice(["abort", "commit"])), origin="coordinator")
        return {record.offset: record.value or b"" for record in log.read(isolation="read_committed")}


@pytest.mark.parametrize("seed", range(12))
def test_a_transaction_that_lost_its_marker_keeps_its_outcome(tmp_path: Path, seed: int) -> None:
    """The records that read_committed returns are those that it returned before the damage, as far as they are kept."""
    random_ = random.Random(seed)
    committed = log_of_transactions(tmp_path / "data", random_)
    listed = batches(tmp_path / "data")["t-0"]
    lost = random_.sample([number for number, (_, _, raw) in enumerate(listed) if next(decode(raw)).is_control], 5)
    lost += random_.sample(range(len(listed)), 2)
    for name, position, _ in (listed[number] for number in lost):
        path = tmp_path / "data" / "t-0" / name
        content = bytearray(path.read_bytes())
        content[position + 62] ^= 1
        path.write_bytes(content)
    if seed % 4 == 0:
        (tmp_path / "data" / "t-0" / listed[len(listed) // 2][0]).unlink()
    found = rescue(tmp_path / "data", tmp_path / "new")
    assert found["problems"] == []
    kept: set[int] = set()
    for raw in contents(tmp_path / "new")["t-0"]:
        kept.update(record.offset for batch in decode(raw) for record in batch if not record.is_control)
    with klog.open(tmp_path / "new", read_only=True) as logs:
        log = logs.log("t")
        due = {at: value for at, value in committed.items() if at in kept and at < log.last_stable_offset}
        assert {each.offset: each.value or b"" for each in log.read(isolation="read_committed")} == due


def test_a_segment_that_a_writer_removes_meanwhile_ends_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened, looks = data / "t-0" / f"{0:020d}.log", os.open, []

    def retention(name: str, *others: Any, **options: Any) -> int:
        if name == str(path):
            looks.append(name)
            if len(looks) == 2:
                path.unlink()
        return opened(name, *others, **options)

    monkeypatch.setattr(os, "open", retention)
    found = rescue(data, tmp_path / "new")
    (entry,) = found["partitions"]
    assert [(each["first_offset"], each["last_offset"]) for each in entry["missing"]] == [(0, 29)]
    assert (entry["error"], entry["records"], found["problems"]) == (None, 60, [])


def test_a_topic_that_a_writer_deletes_meanwhile_ends_nothing(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "t-0", data / "a-0")
    shutil.copytree(data / "t-0", data / "b-0")

    def delete(event: Event) -> None:
        shutil.rmtree(data / "b-0", ignore_errors=True)  # a-0 is being copied

    found = rescue(data, tmp_path / "new", progress=delete)
    first, second, third = found["partitions"]
    assert (first["records"], third["records"], found["problems"]) == (90, 90, [])
    assert second["error"] == f"{data / 'b-0'} is gone: its topic was deleted, or the partition moved"


def test_a_sector_that_cannot_be_read_hides_no_other_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        for number in range(20):
            log.append([(b"k", b"%d" % number * 1000)])
        path = log.segments[0].path
    inode, lost, pread, failed = os.stat(path).st_ino, 8192, os.pread, []

    def read(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino == inode and position < lost + 512 and lost < position + size:
            failed.append(position)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", read)
    found = rescue(tmp_path / "data", tmp_path / "new")
    (entry,) = found["partitions"]
    (missing,) = entry["missing"]
    hidden = range(missing["first_offset"], missing["last_offset"] + 1)
    assert 1 <= len(hidden) <= 5 and "cannot be read: Input/output error" in missing["reason"]
    assert (entry["error"], entry["records"], found["problems"]) == (None, 20 - len(hidden), [])
    assert len(failed) == 2, failed  # the window, and the block: a disk may take seconds to fail


def test_the_files_of_a_broker_are_kept(data: Path, tmp_path: Path) -> None:
    Users(str(data)).set_password("ann", "SCRAM-SHA-256", "secret")
    assert verify(data).problems == [] and "klog-users.json" in rescue(data, tmp_path / "new")["files"]
    assert (tmp_path / "new" / "klog-users.json").stat().st_mode & 0o777 == 0o600
    assert Users(str(tmp_path / "new")).names() == ["ann"]
    path = data / "klog-users.json"
    path.write_bytes(path.read_bytes().replace(b"4096", b"4097"))
    assert [problem.path for problem in verify(data).problems] == [str(path)]
    (missing,) = rescue(data, tmp_path / "again")["missing_files"]
    assert str(path) in missing and "checksum" in missing


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_lost_segment_is_reported(tmp_path: Path, policy: str) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", config={"cleanup.policy": policy})
        for _ in range(4):
            logs.log("t").append([(b"k", b"v")] * 10)
            logs.log("t").roll()
    (tmp_path / "data" / "t-0" / f"{10:020d}.log").unlink()
    for source, to in (("data", "one"), ("one", "two")):
        (entry,) = rescue(tmp_path / source, tmp_path / to)["partitions"]
        lost = [(each["first_offset"], each["last_offset"], each["reason"]) for each in entry["missing"]]
        reported = source == "data" and policy == "delete"
        assert lost == [(10, 19, "no segment has these offsets, and this log was not compacted")] * reported


@pytest.mark.parametrize("records", [0, 5])
def test_the_last_leader_epoch_stays(tmp_path: Path, records: int) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append_batches(encode([(b"k", b"v", 1)] * 5, leader_epoch=3), origin="replication")
        logs.log("t").begin_leader_epoch(7)
        if not records:
            logs.log("t").truncate_fully_and_start_at(5)
    assert rescue(tmp_path / "data", tmp_path / "new")["problems"] == []
    with klog.open(tmp_path / "data") as old, klog.open(tmp_path / "new") as new:
        assert old.log("t").leader_epoch == new.log("t").leader_epoch == 7
        assert len(list(new.log("t").read())) == records and new.log("t").log_end_offset == 5


def test_a_stream_repeats_no_batch_after_a_rescue(data: Path, tmp_path: Path) -> None:
    streams.committed(str(data), "q", 7, RealFiles())
    assert "klog-stream-q.json" in rescue(data, tmp_path / "new")["files"]
    assert streams.last_batch(str(tmp_path / "new"), "q") == 7


def test_a_commit_that_has_not_ended_is_reported(data: Path, tmp_path: Path) -> None:
    manifest = interrupt(data, job("a", stage(data, "a", {("t", 0): [b"x"]}), t=TopicPlan(1)))
    (missing,) = rescue(data, tmp_path / "new")["missing_files"]
    assert str(manifest) in missing and "a commit of a job that has not ended" in missing


def test_small_files_that_cannot_be_read_are_reported(data: Path, tmp_path: Path) -> None:
    """G4. Without them configurations, positions, topic ids and deleted records would change silently."""
    damaged = [data / "klog-topics.json", data / "log-start-offset-checkpoint", data / "meta.properties"]
    for path in damaged:
        path.write_bytes(b"{")
    (data / "bootstrap.checkpoint").mkdir()
    (data / "t-0" / "partition.metadata").write_bytes(b"{")
    found = rescue(data, tmp_path / "new")
    for path in [*damaged, data / "bootstrap.checkpoint"]:
        assert any(str(path) in text for text in found["missing_files"]), path
    (entry,) = found["partitions"]
    (missing,) = entry["missing"]
    assert (missing["first_offset"], missing["path"]) == (None, str(data / "t-0" / "partition.metadata"))
    assert entry["records"] == 90 and not {path.name for path in damaged} & {*found["files"]}
    result = run("rescue", data, "--to", tmp_path / "again")
    assert result.exit_code == 3 and str(damaged[0]) in result.stderr


def test_other_arguments(data: Path, tmp_path: Path) -> None:
    found: dict[str, Any] = rescue(data / "t-0", tmp_path / "one")
    assert found["partitions"][0]["records"] == 90 and ok("verify", tmp_path / "one").startswith("sound")
    result = run("rescue", data, "--to", data)
    assert result.exit_code == 1 and "is not empty" in result.stderr
    with pytest.raises(klog.errors.TopicExists):
        rescue(data, tmp_path / "one")
