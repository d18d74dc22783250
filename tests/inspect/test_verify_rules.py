"""Rules of verify that the golden directories do not break: the root of a log.dir, foreign indexes, logs in use."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.inspect import verify
from klog.inspect.entries import OFFSET_ENTRY
from klog.inspect.files import ROOT_CHECKPOINTS
from klog.progress import Event, Progress
from klog.record import encode
from tests.support import golden
from tests.support.batches import NOW, batch, marker, transactional

ROOT = Path(klog.__file__).resolve().parent.parent
SMALL = {"segment.bytes": 4096, "index.interval.bytes": 200, "segment.index.bytes": 400}


def _kinds(path: Path) -> list[str]:
    return [problem.kind for problem in verify(path).problems]


def _messages(path: Path) -> str:
    return "\n".join(map(str, verify(path).problems))


def _fill(logs: klog.LogManager, count: int = 400, compression: str | None = None) -> None:
    log = logs.log("t")
    for i in range(0, count, 5):
        log.append([(b"k%d" % j, b"v" * 20, 1_700_000_000_000 + j) for j in range(i, i + 5)], compression=compression)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", config=SMALL)
        _fill(logs)
        assert len(logs.log("t").segments) > 3
    return tmp_path / "data"


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_klogs_directories_have_no_problem_closed_or_open(compression: str | None, tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2, config=SMALL)
        assert verify(tmp_path / "data").problems == []
        _fill(logs, compression=compression)
        assert verify(tmp_path / "data").problems == []
    report = verify(tmp_path / "data")
    assert (report.problems, report.records, report.partitions) == ([], 400, 2)


def test_a_killed_writers_directory_has_no_problem(tmp_path: Path) -> None:
    """Untrimmed indexes, no clean-shutdown file, stale checkpoints: none of these is a problem."""
    program = (
        "import klog, os, sys\n"
        "logs = klog.open(sys.argv[1], create=True)\n"
        "logs.create_topic('t', config={'segment.bytes': 4096, 'index.interval.bytes': 200})\n"
        "log = logs.log('t')\n"
        "for i in range(200): log.append([(b'k', b'v' * 50)])\n"
        "os._exit(0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "data")], check=True, env=environment)
    report = verify(tmp_path / "data")
    assert (report.problems, report.records) == ([], 200)


def test_checkpoints_must_be_inside_an_existing_log(data: Path) -> None:
    path = data / "recovery-point-offset-checkpoint"
    path.write_text("0\n1\nt 0 401\n")
    assert "t-0 at 401, but its log ends at 400" in _messages(data)
    path.write_text("0\n1\nt 0 399\n")
    assert "t-0 at 399 after a clean stop" in _messages(data)
    (data / ".kafka_cleanshutdown").unlink()
    assert _kinds(data) == []
    path.write_text("0\n2\nt 0 400\nt 1 1\n")
    assert _kinds(data) == []
    shutil.rmtree(data / "t-0")
    assert "names t-0, which is not in the directory" in _messages(data)


def test_a_checkpoint_may_have_removed_partitions(data: Path) -> None:
    """A broker ignores them: a crash comes between the removal and the next checkpoint."""
    for name in ROOT_CHECKPOINTS:
        path = data / name
        path.write_text(f"0\n2\nt 0 {400 if name.startswith('rec') else 0}\ngone 0 1\n")
    report = verify(data)
    assert report.problems == []
    assert {note.path for note in report.notes} == {str(data / name) for name in ROOT_CHECKPOINTS}
    assert "names gone-0, which is not in the directory" in report.notes[0].message


@contextmanager
def log_of_two_epochs(path: Path) -> Iterator[klog.Log]:
    """A log with a batch of three records of each of the leader epochs 0 and 1."""
    with klog.open(path, create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        for epoch in (0, 1):
            log.append_batches(batch(3), leader_epoch=epoch)
        yield log


def test_what_a_truncation_inside_a_batch_leaves_beyond_the_last_batch(tmp_path: Path) -> None:
    """The log ends at 4, its last batch at 3, and a broker gives the next leader an epoch from 4 on."""
    with log_of_two_epochs(tmp_path) as log:
        log.truncate_to(4)
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 4\n")
    report = verify(tmp_path)
    assert report.problems == []
    assert [(note.kind, note.offset) for note in report.notes] == [("epoch", 4), ("checkpoint", 4)]
    assert verify(tmp_path / "t-0").problems == []


def test_a_log_whose_last_segment_is_empty_ends_where_that_begins(tmp_path: Path) -> None:
    with log_of_two_epochs(tmp_path) as log:
        log.begin_leader_epoch(2)
        log.delete_records(6)
    assert verify(tmp_path).problems == []


def test_checkpoints_beyond_the_log(data: Path) -> None:
    path = data / "recovery-point-offset-checkpoint"
    path.write_text("0\n1\n")
    assert _kinds(data) == ["checkpoint"]


def test_a_log_that_has_lost_every_segment(data: Path) -> None:
    for path in (data / "t-0").iterdir():
        if path.name[0].isdigit():
            path.unlink()
    assert "t-0 at 400, but its log ends at 0" in _messages(data)
    assert "checkpoint" in _kinds(data)


def test_an_untrimmed_index_is_a_problem_only_after_a_clean_stop(data: Path) -> None:
    path = sorted((data / "t-0").glob("*.index"))[-1]
    with path.open("ab") as file:
        file.write(bytes(80))
    assert _kinds(data) == ["index"]
    (data / ".kafka_cleanshutdown").unlink()
    assert _kinds(data) == []
    with path.open("ab") as file:
        file.write(b"\1")
    assert "after the first unused entry" in _messages(data)


def test_other_files_and_directories_in_a_log_dir(data: Path) -> None:
    (data / "lost+found").mkdir()
    (data / f"t-1.{'0' * 32}-delete").mkdir()
    (data / "recovery-point-offset-checkpoint.tmp").write_text("")
    (data / "notes.txt").write_text("of no concern")
    (data / "t-0" / "notes.txt").write_text("of no concern")
    (data / "t-0" / "abc.log").write_text("")
    assert _kinds(data) == ["leftover"] * 3
    assert [note.path for note in verify(data).notes] == [str(data / f"t-1.{'0' * 32}-delete")]
    assert "Kafka refuses to start with it" in _messages(data)


def test_a_topic_id_that_the_topics_file_contradicts(data: Path) -> None:
    (data / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert "topic id AAECAwQFBgcICQoLDA0ODw, expected " in _messages(data)


def test_which_partitions_must_have_a_topic_id(data: Path, tmp_path: Path) -> None:
    """klog-topics.json has one; a broker's directory must have one; a log that Log.open created has none."""
    (data / "t-0" / "partition.metadata").unlink()
    assert _kinds(data) == ["checkpoint"] and _kinds(data / "t-0") == ["checkpoint"]
    alone = tmp_path / "alone"
    alone.mkdir()
    with klog.Log.open(alone / "t-0") as log:
        log.append([(b"k", b"v")])
        assert log.verify().problems == []
    assert verify(alone).problems == []
    (alone / "meta.properties").write_text("#\nversion=0\nbroker.id=1\ncluster.id=x\n")
    assert verify(alone).problems == [], "a broker with ZooKeeper writes it again, and before 2.8 there was none"
    (alone / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n")
    assert _kinds(alone) == ["checkpoint"]


def test_a_missing_segment_is_a_gap(data: Path) -> None:
    log = sorted((data / "t-0").glob("*.log"))[2]
    for path in (data / "t-0").glob(f"{log.stem}.*"):
        path.unlink()
    assert _kinds(data) == ["gap"]


def test_many_missing_segments_are_gaps_if_the_policy_is_known(data: Path) -> None:
    """A broker's directory does not store the policy: there, so many gaps are signs of compaction."""
    with klog.open(data) as logs:
        _fill(logs)
    found = sorted((data / "t-0").glob("*.log"))
    assert len(found) > 7
    for log in (found[1], found[3], found[5]):
        for path in (data / "t-0").glob(f"{log.stem}.*"):
            path.unlink()
    assert _kinds(data) == ["gap"] * 3
    (data / "klog-topics.json").unlink()
    assert _kinds(data) == []


def test_gaps_of_an_interrupted_first_cleaning(tmp_path: Path) -> None:
    """The cleaner has written no checkpoint yet, but klog-topics.json has cleanup.policy=compact."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={**SMALL, "cleanup.policy": "compact"})
        log = logs.log("t")
        for number in range(400):
            log.append([(b"often" if number in (3, 399) else b"%d" % number, bytes(20))])
        cleaned = 0

        def stop(event: Event) -> None:
            nonlocal cleaned
            cleaned += event.stage == "clean"
            if cleaned == 4:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            log.compact(roll=True, progress=stop)
        assert 3 not in {record.offset for record in log.read()} and log.count() == 399
    with klog.open(tmp_path) as logs:
        logs.log("t")  # unlinks the pending files
    assert verify(tmp_path).problems == []
    with klog.open(tmp_path) as logs:
        logs.alter_topic("t", {"cleanup.policy": "delete"})
    assert _kinds(tmp_path) == ["gap"]


def test_time_entries_must_be_correct_and_complete(data: Path) -> None:
    path = sorted((data / "t-0").glob("*.timeindex"))[1]
    content = path.read_bytes()
    path.write_bytes(content[:-12])
    assert "largest time of this closed segment" in _messages(data)
    path.write_bytes((int.from_bytes(content[:8], "big") - 1).to_bytes(8, "big") + content[8:])
    assert _kinds(data) == ["timeindex"]
    path.write_bytes(content[:8] + (2**20).to_bytes(4, "big") + content[12:])
    assert set(_kinds(data)) == {"timeindex"}


def _foreign(tmp_path: Path, entries: list[tuple[int, int]]) -> Path:
    """Write a partition of four batches of two records, about 100 bytes each, with these index entries."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = [encode([(None, b"v" * 20, 5)] * 2, base_offset=2 * i, leader_epoch=0) for i in range(4)]
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    size = len(batches[0])
    packed = b"".join(OFFSET_ENTRY.pack(offset, batch * size) for offset, batch in entries)
    (directory / "00000000000000000000.index").write_bytes(packed)
    (directory / "00000000000000000000.timeindex").write_bytes((5).to_bytes(8, "big") + (1).to_bytes(4, "big"))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    return directory


def test_entries_of_whole_appends_are_valid(tmp_path: Path) -> None:
    """Kafka up to 3.9.0 wrote the last offset of an append of several batches."""
    assert _kinds(_foreign(tmp_path, [(7, 1)])) == []


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(3, 1), (7, 2)], "as all other entries' batches do"),  # only (7, 2) has the offset of another batch
        ([(4, 1)], "no batch near"),
        ([(2, 1)], "the batch at"),
        ([(3, 1), (3, 2)], "does not rise"),
        ([(3, 1), (5, 2), (9, 3)], "no batch near"),
        ([(3, 9)], "but no batch begins there"),
    ],
)
def test_invalid_index_entries(entries: list[tuple[int, int]], message: str, tmp_path: Path) -> None:
    directory = _foreign(tmp_path, entries)
    assert _kinds(directory) == ["index"]
    assert message in _messages(directory)


def test_falling_leader_epochs_are_reported(tmp_path: Path) -> None:
    directory = _foreign(tmp_path, [])
    batches = [encode([(None, b"v", 5)], base_offset=i, leader_epoch=epoch) for i, epoch in enumerate((3, 4, 3))]
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    (directory / "00000000000000000000.timeindex").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").unlink()
    assert _kinds(directory) == ["epoch", "epoch"]
    assert "leader epoch 3 after 4; epochs never fall" in _messages(directory)


def test_a_lost_batch_is_reported_once(tmp_path: Path) -> None:
    directory = golden.copy_logdir("plain", tmp_path)
    path = directory / "plain-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[8:12], "big") + 12
    content[size + 9] ^= 1  # the length of the second batch
    path.write_bytes(content)
    (problem,) = verify(directory).problems
    assert (problem.position, problem.path) == (size, str(path))


def test_verify_beside_a_writer_gives_no_false_alarms(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", config=SMALL)
        for i in range(60):
            logs.log("t").append([(b"k", b"v" * (i * 7 % 90), 1_700_000_000_000 + i)] * 3)
            assert verify(tmp_path / "data").problems == []


def _meanwhile(monkeypatch: pytest.MonkeyPatch, path: Path, change: Callable[[], object]) -> list[object]:
    """Change something when this file is opened for the first time. Returns what is opened."""
    real, left = os.open, [change]
    opened: list[object] = []

    def opening(name: object, *others: int, **options: int) -> int:
        opened.append(name)
        if name == str(path) and left:
            left.pop()()
        return real(name, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opening)
    return opened


def test_retention_meanwhile_is_no_gap(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with klog.open(data) as logs:
        logs.alter_topic("t", {**SMALL, "file.delete.delay.ms": 0, "retention.ms": -1})
        log = logs.log("t")
        second, third = log.segments[1].path, log.segments[2].base_offset

        def retention() -> None:
            log.delete_records(third)
            log.apply_retention()

        opened = _meanwhile(monkeypatch, Path(second), retention)
        assert verify(data).problems == []
        assert not os.path.exists(second) and opened.count(log.segments[-1].path) == 1  # it is not checked twice


@pytest.mark.parametrize("at", [16, (1 << 16) + 15, (1 << 16) + 16, 1 << 17, (10 << 20) - 1])
def test_a_byte_in_the_unused_part_of_a_large_index_is_found(tmp_path: Path, at: int) -> None:
    """klog and Kafka preallocate 10 MiB for the index of an active segment."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        for _ in range(3):
            logs.append("t", [(None, b"x" * 5000)])
        assert verify(tmp_path / "data").problems == []
        index = tmp_path / "data" / "t-0" / f"{0:020d}.index"
        with open(index, "r+b") as file:
            file.seek(at)
            file.write(b"\1")
        problems = verify(tmp_path / "data").problems
        assert [(each.kind, each.position) for each in problems] == [("index", at)]


@pytest.mark.parametrize("name", [f"t-0/{9999:020d}.index", "recovery-point-offset-checkpoint.tmp"])
def test_what_a_writer_removes_meanwhile_is_no_problem(data: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (data / name).touch()
    assert _kinds(data) == ["leftover"]
    _meanwhile(monkeypatch, data / "t-0" / f"{0:020d}.log", (data / name).unlink)
    assert verify(data).problems == []


def test_a_writer_that_starts_meanwhile_is_no_problem(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean-shutdown marker was read before."""
    with contextlib.ExitStack() as stack:

        def start() -> None:
            logs = stack.enter_context(klog.open(data))
            _fill(logs, 30)

        opened = _meanwhile(monkeypatch, data / "t-0" / f"{0:020d}.log", start)
        assert verify(data).problems == [] and opened


def test_a_leader_epoch_that_begins_meanwhile_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with log_of_two_epochs(tmp_path) as log:

        def begin() -> None:
            log.append_batches(batch(5), leader_epoch=9)

        opened = _meanwhile(monkeypatch, tmp_path / "t-0" / f"{0:020d}.log", begin)
        assert verify(tmp_path / "t-0").problems == [] and opened


def test_a_topic_that_is_deleted_while_the_checkpoints_are_read_is_no_problem(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with klog.open(data) as logs:
        logs.create_topic("u")
        logs.append("u", [(b"k", b"v")])
    with klog.open(data) as logs:
        (data / "klog-audit.jsonl").touch()  # it is read after klog-topics.json
        opened = _meanwhile(monkeypatch, data / "klog-audit.jsonl", lambda: logs.delete_topic("u"))
        assert verify(data).problems == [] and opened


DELETED = "t-0.0123456789abcdef0123456789abcdef-delete"


@pytest.mark.parametrize("first", ["log-start-offset-checkpoint", f"a-0/{0:020d}.log", f"t-0/{0:020d}.log"])
@pytest.mark.parametrize("progress", [None, lambda event: None])
def test_a_topic_that_is_deleted_meanwhile_is_left_out(
    data: Path, monkeypatch: pytest.MonkeyPatch, first: str, progress: Progress | None
) -> None:
    with klog.open(data) as logs:
        logs.create_topic("a")
        logs.append("a", [(b"k", b"v")])
    opened = _meanwhile(monkeypatch, data / first, lambda: os.rename(data / "t-0", data / DELETED))
    report = verify(data, progress)
    assert opened and [each for each in report.problems if "t-0" in each.path] == []
    assert report.partitions == 1


def test_the_partition_that_is_named_must_stay(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _meanwhile(monkeypatch, data / "t-0" / f"{0:020d}.log", lambda: os.rename(data / "t-0", data / DELETED))
    with pytest.raises(FileNotFoundError, match="t-0"):
        verify(data / "t-0")


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/nowhere")])
def test_a_metadata_snapshot_that_is_no_file_is_a_problem(data: Path, make: Callable[[Path], object]) -> None:
    path = data / "t-0" / f"{0:020d}-{0:010d}.checkpoint"
    make(path)
    (problem,) = verify(data).problems
    assert problem.path == str(path) and "a log directory holds only files" in problem.message


def test_a_metadata_snapshot_that_is_deleted_meanwhile_is_no_problem(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data / "t-0" / f"{0:020d}-{0:010d}.checkpoint"
    path.write_bytes(encode([(b"k", b"v")]))
    opened = _meanwhile(monkeypatch, path, path.unlink)
    assert verify(data).problems == [] and opened


def test_a_recovery_drops_transactions_below_the_log_start(tmp_path: Path) -> None:
    """Kafka drops them too, since it does not need their entries. verify reports them only if the log start is not known."""
    directory = tmp_path / "t-0"
    with klog.Log.open(directory, clock=ManualClock(NOW)) as log:
        for sequence in (0, 1):  # producer 1 aborts in the second segment, producer 2 in the third
            log.append_batches(transactional(1, 0, sequence))
            log.append_batches(transactional(2, 0, sequence))
            log.roll()
            log.append_batches(marker(1 + sequence, 0, "abort"), origin="coordinator")
        log.append_batches(batch(2))
        log.append_batches(transactional(3, 0, 0))
        log.append_batches(marker(3, 0, "abort"), origin="coordinator")
        end = log.log_end_offset
    start = end - 1
    point = tmp_path / "log-start-offset-checkpoint"
    point.write_text(f"0\n1\nt 0 {start}\n")
    for path in directory.glob("*.snapshot"):
        path.unlink()
    with klog.Log.open(directory, log_start_offset=start, clean_shutdown=False, recovery_point=0) as log:
        assert log.log_start_offset == start
    assert verify(directory).problems == []
    point.unlink()
    assert {problem.kind for problem in verify(directory).problems} == {"txnindex"}


def test_an_aborted_transaction_below_the_log_start_needs_no_entry(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with klog.Log.open(directory, clock=ManualClock(NOW)) as log:
        log.append_batches(transactional(8, 0, 0))
        log.append_batches(marker(8, 0, "abort"), origin="coordinator")
        log.append_batches(batch(2))
    (directory / f"{0:020d}.txnindex").unlink()
    point = tmp_path / "log-start-offset-checkpoint"
    for start, kinds in ((2, []), (1, []), (0, ["txnindex"])):
        point.write_text(f"0\n1\nt 0 {start}\n")
        assert _kinds(directory) == kinds


def test_a_transaction_aborted_after_its_records_were_deleted_needs_no_entry(tmp_path: Path) -> None:
    """The load drops the producers of a log without records, and so the open transaction."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        log.append_batches(transactional(8, 0, 0))
        log.delete_records(-1)
    with klog.open(tmp_path / "data") as logs:
        log = logs.log("t")
        log.append_batches(batch(2))
        log.append_batches(marker(8, 0, "abort"), origin="coordinator")
        assert log.verify().problems == []
    assert verify(tmp_path / "data").problems == []


def test_the_cleaner_drops_the_entry_of_a_transaction_whose_records_are_gone(tmp_path: Path) -> None:
    """Retention has deleted them; the producer snapshot where the marker's segment begins still has the transaction."""
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW), config={"cleanup.policy": "compact,delete"}) as log:
        log.append_batches(transactional(8, 0, 0))
        log.roll()
        log.append_batches(marker(8, 0, "abort"), origin="coordinator")
        log.delete_records(1)
        assert log.apply_retention() == 1
        assert log.verify().problems == []
        log.compact(roll=True)
        assert log.verify().problems == [] and log.aborted_transactions() == []


def test_a_transaction_that_begins_below_the_log_start_may_have_a_later_first_offset(tmp_path: Path) -> None:
    """A replay from the log start on finds a later first offset, and does not find another open transaction."""
    directory = tmp_path / "t-0"
    with klog.Log.open(directory, clock=ManualClock(NOW)) as log:
        log.append_batches(transactional(8, 0, 0))
        log.append_batches(transactional(7, 0, 0))
        log.append_batches(batch(2))
        log.append_batches(transactional(8, 0, 1))
        log.append_batches(marker(8, 0, "abort"), origin="coordinator")
    for path in directory.glob("*.snapshot"):
        path.unlink()
    point = tmp_path / "log-start-offset-checkpoint"
    index = directory / f"{0:020d}.txnindex"
    for start, first, stable, sound in [(3, 4, 6, True), (3, 0, 1, True), (3, 5, 6, False), (0, 4, 1, False)]:
        index.write_bytes(struct.pack(">hqqqq", 0, 8, first, 5, stable))
        point.write_text(f"0\n1\nt 0 {start}\n")
        assert {problem.kind for problem in verify(directory).problems} == (set() if sound else {"txnindex"}), first


def test_a_truncation_drops_producers_below_the_log_start(tmp_path: Path) -> None:
    """The snapshot holds the producers that a replay from the log start finds. The .log files hold more."""
    path = tmp_path / "t-0"
    with klog.Log.open(path, clock=ManualClock(NOW)) as log:
        log.append_batches(batch(1))
        log.append_batches(transactional(8, 0, 0, 1))
        log.append_batches(marker(8, 0, "commit"), origin="coordinator")
        log.append_batches(batch(2))
        log.delete_records(2)
        log.truncate_to(3)
        log.roll()
        log.append_batches(batch(1))
        assert log.verify().problems == []


def test_an_epoch_may_begin_in_a_gap_that_a_truncation_has_left(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW)) as log:
        for epoch in (0, 1):
            log.append_batches(batch(3), leader_epoch=epoch)
        log.truncate_to(4)  # inside the batch of epoch 1
        log.roll()
        log.append_batches(batch(1))
        assert log.leader_epochs == [(0, 0), (1, 3)]
        assert log.verify().problems == []


def test_an_epoch_that_begins_inside_a_batch_is_reported(tmp_path: Path) -> None:
    directory = _foreign(tmp_path, [])
    batches = [encode([(None, b"v" * 20, 5)] * 2, base_offset=2 * i, leader_epoch=i // 2) for i in range(4)]
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 3\n")
    assert _kinds(directory) == ["epoch"]
    assert "epoch 1 from 3, but no batch begins there" in _messages(directory)


def test_a_lost_log_start_is_taken_from_the_leader_epochs(tmp_path: Path) -> None:
    """The truncation dropped the open transaction at offset 0, so the producer's next one begins later."""
    path = tmp_path / "t-0"
    with klog.Log.open(path, clock=ManualClock(NOW)) as log:
        log.append_batches(transactional(8, 0, 0, 1))
        for _ in range(3):
            log.append_batches(batch(1))
        log.delete_records(2)
        log.truncate_to(3)
        log.append_batches(transactional(8, 0, 0, 1))
        log.roll()
        log.append_batches(batch(1))
    (tmp_path / "log-start-offset-checkpoint").unlink()
    assert verify(path).problems == []


def test_a_name_beyond_the_last_offset_is_not_that_of_a_segment(data: Path) -> None:
    """As a load and Kafka see it. The log seemed to end there."""
    for base in (2**63, 10**20 - 1):
        (data / "t-0" / f"{base}.log".rjust(24, "0")).touch()
    assert _kinds(data) == ["leftover"] * 2
