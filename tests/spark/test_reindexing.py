"""klog.spark.reindex without Spark: the tests call the code of the driver and of the tasks."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog.disk import LogFile
from klog.errors import AlreadyLocked
from klog.spark.reindexing import Outcome, Reindexing, Work, locked, rebuild
from tests.support import golden
from tests.support.batches import marker, transactional
from tests.support.damage import flip
from tests.support.killer import killed_at
from tests.support.recorded_files import RecordedFiles

INDEXES = (".index", ".timeindex", ".txnindex")
Rows = list[tuple[object, ...]]


def reindex(root: Path, build: Callable[[Work], list[Outcome]] = rebuild, target: int = 1 << 14) -> Rows:
    with locked(str(root)) as token:
        reindexing = Reindexing(str(root), None, token)
        for item in reindexing.items(target):
            reindexing.take(pickle.loads(pickle.dumps(build(pickle.loads(pickle.dumps(item.value))))))
        return reindexing.rows()


def indexes(root: Path) -> dict[str, bytes]:
    """Return the index files of closed segments."""
    found = {}
    for partition in root.iterdir():
        bases = sorted(path.stem for path in partition.glob("*.log")) if partition.is_dir() else []
        for base in bases[:-1]:
            for suffix in INDEXES:
                if (path := partition / f"{base}{suffix}").exists():
                    found[str(path.relative_to(root))] = path.read_bytes()
    return found


def recover(root: Path) -> None:
    """Rebuild all files by a recovery."""
    for path in (*root.rglob("*index"), *root.rglob("*.snapshot"), root / ".kafka_cleanshutdown"):
        path.unlink(missing_ok=True)
    (root / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    with klog.open(root, recovery="kafka") as logs:
        for topic, partitions in logs.topics().items():
            for number in partitions:
                logs.log(topic, number)


@pytest.mark.parametrize("case", golden.CASES)
def test_the_files_are_those_of_a_recovery(case: str, tmp_path: Path) -> None:
    """N1. In a compacted log, .txnindex files keep Kafka's entries: a recovery would no longer find the records for them."""
    root = Path(golden.copy_logdir(case, tmp_path))
    shutil.copytree(root, tmp_path / "recovered")
    recover(tmp_path / "recovered")
    expected = indexes(tmp_path / "recovered")
    cleaned = (root / "cleaner-offset-checkpoint").exists()
    generator = random.Random(case)
    kept = {name: data for name, data in indexes(root).items() if cleaned and name.endswith(".txnindex")}
    damaged = sorted(indexes(root).keys() - kept.keys())
    for name in damaged:
        path = root / name
        if path.suffix == ".txnindex" or generator.random() < 0.3:
            path.unlink()
        elif data := bytearray(path.read_bytes()):
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            path.write_bytes(data)
    rows = reindex(root)
    assert [row for row in rows if row[-1] is not None] == []
    assert indexes(root) == {**expected, **kept}
    assert not damaged or sum(int(str(row[5])) for row in rows) > 0
    assert not klog.verify(root).problems
    assert not list(root.rglob("*klog-staging*")) and not (root / ".lock").exists()
    assert [row[5] for row in reindex(root)] == [0] * len(rows)


def fill(root: Path) -> None:
    with klog.open(root, create=True) as logs:
        logs.create_topic("t", partitions=2, config={"segment.bytes": 2048, "index.interval.bytes": 256})
        for number in range(2):
            for first in range(0, 120, 5):
                logs.log("t", number).append([(b"k", b"%d" % n * 9, n + 1) for n in range(first, first + 5)])


def damage(root: Path) -> None:
    for number, path in enumerate(sorted(root.rglob("*index"))):
        if number % 3 == 0:
            path.unlink()
        elif path.stat().st_size:
            path.write_bytes(bytes((path.read_bytes()[0] ^ 1,)) + path.read_bytes()[1:])


def test_a_damaged_segment_keeps_its_indexes(tmp_path: Path) -> None:
    """N3"""
    fill(tmp_path)
    log = sorted((tmp_path / "t-1").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    before = indexes(tmp_path)
    damage(tmp_path)
    kept = log.with_suffix(".timeindex")
    kept.write_bytes(b"as it is")
    (good, bad) = reindex(tmp_path)
    assert good[-1] is None and "CorruptBatch" in str(bad[-1]) and log.name in str(bad[-1])
    after = indexes(tmp_path)
    own = {f"t-1/{log.stem}{suffix}" for suffix in INDEXES}
    assert {name: data for name, data in after.items() if name not in own} == {
        name: data for name, data in before.items() if name not in own
    }
    assert kept.read_bytes() == b"as it is"


def test_a_segment_with_a_wrong_base_offset_keeps_its_indexes(tmp_path: Path) -> None:
    """N3: no checksum covers it."""
    fill(tmp_path)
    log = sorted((tmp_path / "t-1").glob("*.log"))[1]
    log.write_bytes(flip(log.read_bytes(), 6))
    kept = log.with_suffix(".index")
    kept.write_bytes(b"as it is")
    assert "offset_order" in str(reindex(tmp_path)[1][-1])
    assert kept.read_bytes() == b"as it is"


class RecordedSyncs(RecordedFiles):
    def fsync(self, file: LogFile) -> None:
        self.calls.append(("sync", file.path))
        super().fsync(file)


def test_tasks_share_the_segments_of_a_partition(tmp_path: Path) -> None:
    """Each segment is counted once, with its bytes. Only files that differ are staged, and they are on disk."""
    fill(tmp_path)
    closed = [path for number in range(2) for path in sorted((tmp_path / f"t-{number}").glob("*.log"))[:-1]]
    closed[1].with_suffix(".index").unlink()
    files, staged, tasks = RecordedSyncs(), list[Path](), 0

    def build(work: Work) -> list[Outcome]:
        nonlocal tasks
        tasks += 1
        files.calls.clear()
        built = rebuild(work, files)
        for each in built:
            new = list(Path(each.directory).iterdir())
            synced = [path for call, path in files.calls if call == "sync"]
            assert synced[-1 - len(new) :] == [*map(str, new), each.directory]
            staged.extend(new)
        return built

    rows = reindex(tmp_path, build, target=4096)
    assert tasks > 2 and [path.name for path in staged] == [closed[1].with_suffix(".index").name]
    assert sum(int(str(row[3])) for row in rows) == len(closed)
    assert sum(int(str(row[4])) for row in rows) == sum(path.stat().st_size for path in closed)


def test_the_indexes_have_the_size_that_the_config_allows(tmp_path: Path) -> None:
    """N1: a recovery writes them so, too."""
    fill(tmp_path / "a")
    with klog.open(tmp_path / "a") as logs:
        logs.alter_topic("t", {"segment.index.bytes": 24, "index.interval.bytes": 1})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    recover(tmp_path / "b")
    reindex(tmp_path / "a")
    assert indexes(tmp_path / "a") == indexes(tmp_path / "b")
    assert {len(data) for name, data in indexes(tmp_path / "a").items()} == {24}


@pytest.mark.parametrize("lost", [True, False])
def test_transaction_indexes_are_those_of_the_batches(tmp_path: Path, lost: bool) -> None:
    """N1: a segment without aborted transactions has none, or an empty file in place of a wrong one."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        for kind in ("abort", "commit"):
            log.append_batches(transactional(7, 0, log.log_end_offset // 2))
            log.append_batches(marker(7, 0, kind), origin="coordinator")
            log.roll()
        log.append([(b"k", b"v")])
    first, second = (tmp_path / "t-0" / f"{base:020}.txnindex" for base in (0, 2))
    sound = first.read_bytes()
    if lost:
        first.unlink()
    else:
        second.write_bytes(sound)
    assert [row[5] for row in reindex(tmp_path)] == [1]
    assert first.read_bytes() == sound
    assert not second.exists() if lost else second.read_bytes() == b""


def test_names_that_a_killed_reindexing_has_replaced_are_synced(tmp_path: Path) -> None:
    """Nothing shows whether they are durable: the files are as they should be."""
    fill(tmp_path)
    reindex(tmp_path)
    files = RecordedFiles()
    with locked(str(tmp_path)) as token:
        reindexing = Reindexing(str(tmp_path), None, token, files)
        for item in reindexing.items(1 << 14):
            reindexing.take(rebuild(item.value))
    assert [row[5] for row in reindexing.rows()] == [0, 0]
    assert {path for call, path in files.calls if call == "sync"} == {str(tmp_path / "t-0"), str(tmp_path / "t-1")}


def test_another_writer_is_refused_and_named(tmp_path: Path) -> None:
    fill(tmp_path)
    with klog.open(tmp_path), pytest.raises(AlreadyLocked, match="process"):
        reindex(tmp_path)

    def writes(work: Work) -> list[Outcome]:
        with pytest.raises(AlreadyLocked):
            klog.open(tmp_path)
        return rebuild(work)

    assert reindex(tmp_path, writes)


@pytest.mark.parametrize("sample", [pytest.param(0, marks=[pytest.mark.deep, pytest.mark.timeout(1200)]), 4])
def test_a_kill_of_driver_or_task_leaves_valid_indexes(tmp_path: Path, sample: int) -> None:
    """N2, R2"""
    fill(tmp_path / "sound")
    expected = indexes(tmp_path / "sound")
    shutil.copytree(tmp_path / "sound", tmp_path / "damaged")
    damage(tmp_path / "damaged")
    root = tmp_path / "run"

    def work(armed: Callable[[], None]) -> None:
        armed()
        reindex(root, target=4096)

    def killed(nth: int) -> list[str]:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(tmp_path / "damaged", root)
        return killed_at(nth, work).calls

    before = indexes(tmp_path / "damaged")
    count = len(killed(0))
    for nth in range(1, count + 1, count // sample if sample else 1):
        killed(nth)
        for name, data in indexes(root).items():
            assert data in (expected[name], before.get(name)), (nth, name)
        reindex(root)
        assert indexes(root) == expected
        with klog.open(root) as logs:
            assert all(log.log_end_offset == 120 for log in (logs.log("t", 0), logs.log("t", 1)))
        assert not list(root.rglob("*klog-staging*"))
        assert not klog.verify(root).problems
