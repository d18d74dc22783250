"""Log.purge_key removes the records of one key and no others."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.cleaner import read_audit
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import CorruptBatch, LogClosed, ReadOnly
from klog.progress import Event
from klog.record import decode
from klog.record.control import control_key
from tests.cleaner.logs import append, damage, fill, open_log
from tests.support.batches import marker, old, transactional
from tests.support.dirty_logs import CODECS, DirtyLog

SAME = (
    "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "is_transactional", "is_control",
    "leader_epoch",
)  # fmt: skip


def batches(log: klog.Log) -> dict[int, list[Any]]:
    """{base offset of a segment: its batches}"""
    found = {}
    for segment in log.segments:
        data = Path(segment.path).read_bytes()[: segment.size]
        found[segment.base_offset] = list(decode(data, path=segment.path))
    return found


def as_reported(record: klog.Record) -> tuple[Any, ...]:
    kind = max(record.timestamp_type, klog.TimestampType.CREATE_TIME)  # magic 0 has none, and is rewritten as magic 2
    return record.offset, record.key, record.value, record.timestamp, tuple(record.headers), kind


def same_but_for(key: bytes, before: dict[int, list[Any]], after: dict[int, list[Any]], rewritten: set[int]) -> int:
    """Check that every batch is there with its records of other keys; return how many records are gone."""
    gone = 0
    assert list(before) == list(after)
    for base, batches_before in before.items():
        assert len(batches_before) == len(after[base])
        for was, is_ in zip(batches_before, after[base], strict=True):
            kept = [record for record in was if was.is_control or record.key != key]
            if base not in rewritten or len(kept) == was.count:
                assert bytes(was.raw) == bytes(is_.raw)
                continue
            gone += was.count - len(kept)
            assert [getattr(was, name) for name in SAME] == [getattr(is_, name) for name in SAME]
            assert [as_reported(record) for record in is_] == [as_reported(record) for record in kept]
            if kept:
                assert (is_.compression, is_.delete_horizon_ms) == (was.compression, was.delete_horizon_ms)
            else:
                assert (is_.size, is_.count) == (61, 0)
    return gone


def with_key(found: dict[int, list[Any]], key: bytes) -> dict[int, int]:
    """{base offset of a segment: records of the key}, without zeros"""
    counts = {
        base: sum(record.key == key for batch in them if not batch.is_control for record in batch)
        for base, them in found.items()
    }
    return {base: count for base, count in counts.items() if count}


def test_only_the_keys_records_are_removed(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        before = batches(log)
        stats = log.purge_key(b"key-1")
        after = batches(log)
        assert same_but_for(b"key-1", before, after, {0, 45, 90}) == stats.records_removed == 14
        assert (stats.segments_rewritten, stats.records_left, stats.left_from) == (3, 1, 135)
        assert (stats.first_offset, stats.last_offset) == (1, 131)
        assert stats.bytes_after == log.size < stats.bytes_before
    assert [problem for problem in klog.verify(tmp_path / "t-0").problems if problem.kind != "checkpoint"] == []
    with open_log(tmp_path / "t-0", clean_shutdown=False, recovery_point=0) as log:
        assert with_key(batches(log), b"key-1") == {135: 1}
        assert log.log_end_offset == 137


def test_roll_includes_the_active_segment(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        stats = log.purge_key(b"key-1", roll=True)
        assert (stats.records_removed, stats.records_left) == (15, 0)
        assert [segment.base_offset for segment in log.segments] == [0, 45, 90, 135, 137]
        assert log.purge_key(b"key-2", roll=True).records_removed == 14
        assert len(log.segments) == 5, "an active segment without the key does not roll"


def test_a_segment_without_the_key_keeps_its_file(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        for key in (b"a", b"b", b"a"):
            append(log, [(key, b"1")] * 3)
            log.roll()
        inodes = [Path(segment.path).stat().st_ino for segment in log.segments]
        assert log.purge_key(b"b").segments_rewritten == 1
        now = [Path(segment.path).stat().st_ino for segment in log.segments]
        assert [was == is_ for was, is_ in zip(inodes, now, strict=True)] == [True, False, True, True]
        assert log.purge_key(b"nobody's").segments_rewritten == 0
        assert [Path(segment.path).stat().st_ino for segment in log.segments] == now


def test_a_dry_run_reports_and_changes_nothing(tmp_path: Path) -> None:
    """Also on a log with another writer."""
    with open_log(tmp_path / "t-0") as log:
        fill(log)
    names = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    with open_log(tmp_path / "t-0", read_only=True) as log:
        result = log.purge_key(b"key-1", dry_run=True, roll=True)
        with pytest.raises(ReadOnly):
            log.purge_key(b"key-1")
    assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == names
    assert read_audit(tmp_path) == []
    with open_log(tmp_path / "t-0") as log:
        done = log.purge_key(b"key-1", roll=True)
        assert (result.records_removed, result.bytes_before, result.bytes_after) == (
            done.records_removed, done.bytes_before, done.bytes_after,
        )  # fmt: skip
        assert result.segments_rewritten == done.segments_rewritten == 4


def test_purge_works_with_any_cleanup_policy(tmp_path: Path) -> None:
    """A log that is not compacted keeps every offset: a crash after a purge truncates nothing."""
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "delete"}) as log:
        append(log, [(b"a", b"1"), (None, b"kept"), (b"a", b"2"), (b"a", b"3")], batch=1)
        append(log, [(b"a", b"4")], batch=1)
        log.roll()
        append(log, [(b"b", b"5")], batch=1)
        assert log.purge_key(b"a").records_removed == 4
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "delete"}, clean_shutdown=False, recovery_point=0) as log:
        assert [(record.offset, record.key, record.value) for record in log.read()] == [
            (1, None, b"kept"), (5, b"b", b"5"),
        ]  # fmt: skip
        assert log.recovery.bytes_truncated == 0
    assert [problem for problem in klog.verify(tmp_path / "t-0").problems if problem.kind != "checkpoint"] == []
    with klog.Log.open(tmp_path / "t-0") as log:  # a broker's log: its config is unknown here
        assert log.purge_key(b"b", roll=True).records_removed == 1


@pytest.mark.parametrize("codec", CODECS)
def test_batches_keep_their_codec(tmp_path: Path, codec: str) -> None:
    with open_log(tmp_path / "t-0") as log:
        append(log, [(b"a", b"x" * 50), (b"b", b"y" * 50), (b"", b"z" * 50)] * 3, 9, compression=codec)
        log.roll()
        before = batches(log)
        assert log.purge_key(b"").records_removed == 3
        assert same_but_for(b"", before, batches(log), {0}) == 3


def test_committed_aborted_and_open_transactions(tmp_path: Path) -> None:
    """Removes aborted data too; keeps markers (also one whose key has the same bytes) and sequences. Keeps and counts
    records of open transactions."""
    secret = control_key("abort")
    with open_log(tmp_path / "t-0") as log:
        for number, kind in enumerate(("abort", "commit")):
            data = transactional(7, 0, 2 * number, 2, key=secret, base_offset=3 * number)
            log.append_batches(data, origin="replication")
            log.append_batches(marker(7, 0, kind, base_offset=3 * number + 2), origin="replication")
        log.roll()
        log.append_batches(transactional(7, 0, 4, key=secret, base_offset=6), origin="replication")
        log.roll()
        append(log, [(secret, b"above")])
        before, aborted, producers = batches(log), log.aborted_transactions(), log.producers
        stats = log.purge_key(secret, roll=True)
        assert (stats.records_removed, stats.records_left, stats.left_from) == (4, 2, 6)
        assert same_but_for(secret, before, batches(log), {0}) == 4
        assert (log.aborted_transactions(), log.producers) == (aborted, producers)
        assert len(log.segments) == 3, "a roll would not help: the active segment is above the last stable offset"
    with open_log(tmp_path / "t-0", clean_shutdown=False, recovery_point=0) as log:
        assert (log.aborted_transactions(), log.last_stable_offset) == (aborted, 6)
        assert log.producers == producers


def test_old_formats(tmp_path: Path) -> None:
    """A removed message becomes an empty batch of magic 2; the others stay unchanged."""
    with open_log(tmp_path / "t-0") as log:
        for at in (0, 2, 4):
            log.append_batches(old(1, at, at + 1, "gzip" if at == 2 else None), origin="replication")
        append(log, [(b"other", b"1"), (b"k", b"2")])
        log.roll()
        append(log, [(b"other", b"1")])
        before = batches(log)
        assert log.purge_key(b"other").records_removed == 1
        between = batches(log)
        assert same_but_for(b"other", before, between, {0}) == 1
        assert log.purge_key(b"k").records_removed == 7
        assert same_but_for(b"k", between, batches(log), {0}) == 7


def test_files_marked_for_deletion_are_unlinked(tmp_path: Path) -> None:
    """Files that a compaction or retention left may hold the key too."""
    with open_log(tmp_path / "t-0") as log:
        append(log, [(b"secret-key", b"1")] * 4)
        log.compact(roll=True)
        assert [name for name in (tmp_path / "t-0").iterdir() if name.suffix == ".deleted"] != []
        reader = iter(log.read())
        assert next(reader).key == b"secret-key"
        assert log.purge_key(b"secret-key").leftovers == ()
        assert [path for path in (tmp_path / "t-0").iterdir() if b"secret-key" in path.read_bytes()] == []
        assert list(reader) == []
    assert b"secret-key" not in (tmp_path / "klog-audit.jsonl").read_bytes()


def test_files_that_cannot_be_unlinked_are_reported(tmp_path: Path) -> None:
    class Stuck(RealFiles):
        def unlink(self, path: str) -> None:
            if path.endswith(".log.deleted") and os.path.exists(path):
                raise PermissionError(errno.EPERM, "Operation not permitted", path)
            super().unlink(path)

    with open_log(tmp_path / "t-0", files=Stuck()) as log:
        fill(log)
        assert log.purge_key(b"last", roll=True).leftovers == ("00000000000000000135.log.deleted",)
    assert read_audit(tmp_path)[-1]["leftovers"] == ["00000000000000000135.log.deleted"]


def test_damage_stops_the_purge_before_any_write(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        path = damage(log)
        names = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
        with pytest.raises(CorruptBatch) as caught:
            log.purge_key(b"key-1")
        assert (caught.value.path, caught.value.kind) == (str(path), "crc")
        assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == names
    assert read_audit(tmp_path) == []


def test_progress_counts_the_bytes_of_both_passes(tmp_path: Path) -> None:
    events: list[Event] = []
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        log.purge_key(b"key-1", progress=events.append)
    for stage in ("search", "purge"):
        mine = [event for event in events if event.stage == stage]
        assert [event.done for event in mine] == sorted(event.done for event in mine)
        assert (mine[-1].done, mine[-1].note) == (mine[-1].total, "t-0")


def test_an_interrupted_purge_leaves_each_segment_old_or_purged(tmp_path: Path) -> None:
    """The oldest segments are purged (U4), and the audit has no `done`."""

    def stop(event: Event) -> None:
        if event.stage == "purge" and event.done > 0.5 * (event.total or 0):
            raise KeyboardInterrupt

    with open_log(tmp_path / "t-0") as log:
        fill(log)
        before = batches(log)
        with pytest.raises(KeyboardInterrupt):
            log.purge_key(b"key-1", progress=stop)
        assert same_but_for(b"key-1", before, batches(log), {0}) == 5
        assert [path for path in (tmp_path / "t-0").iterdir() if path.suffix == ".cleaned"] == []
        assert log.purge_key(b"key-1").records_removed == 9
    assert [line["outcome"] for line in read_audit(tmp_path)] == ["begun", "failed", "begun", "done"]


@pytest.mark.parametrize("stage", ["search", "purge"])
def test_a_log_truncated_during_the_purge_is_searched_again(tmp_path: Path, stage: str) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        cut: list[bool] = []

        def truncate(event: Event) -> None:
            if not cut and event.stage == stage:
                cut.append(log.truncate_to(60))

        stats = log.purge_key(b"key-1", progress=truncate)
        assert (stats.records_removed, stats.records_left, stats.segments_rewritten) == (5, 1, 1)
        assert [record.offset for record in log.read() if record.key == b"key-1"] == [51]
        assert not [path for path in (tmp_path / "t-0").iterdir() if path.suffix in (".cleaned", ".deleted")]
    assert read_audit(tmp_path)[-1]["outcome"] == "done"


@pytest.mark.parametrize("stage", ["search", "purge"])
def test_a_segment_truncated_and_refilled_to_the_same_size_is_searched_again(tmp_path: Path, stage: str) -> None:
    """It is the same object with the same size, so an earlier search that found no record of the key does not count."""
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "delete"}) as log:
        for keys in ([b"aaaa", b"bbbb"], [b"KEY!"], [b"last"]):
            append(log, [(key, b"1") for key in keys], batch=1)
            log.roll()
        sizes, cut = [segment.size for segment in log.segments[:1]], []

        def rewrite_tail(event: Event) -> None:
            if not cut and event.stage == stage:
                cut.append(log.truncate_to(1))
                append(log, [(b"KEY!", b"1")])
                log.roll()

        stats = log.purge_key(b"KEY!", progress=rewrite_tail)
        assert [segment.size for segment in log.segments][:1] < sizes
        assert (cut, stats.records_removed, stats.records_left) == ([True], 1, 0)
        assert with_key(batches(log), b"KEY!") == {}


def test_retention_may_delete_a_segment_during_the_purge(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "delete"}) as log:
        fill(log)
        taken: list[int] = []

        def retention(event: Event) -> None:
            if not taken and event.stage == "purge":
                log.maybe_increment_log_start_offset(45)
                taken.append(log.apply_retention())

        assert log.purge_key(b"key-1", progress=retention).records_removed == 9
        assert taken == [1]
        assert with_key(batches(log), b"key-1") == {135: 1}


def test_appends_and_reads_go_on_during_purges(tmp_path: Path) -> None:
    """An appender and a full reader run while one key after the other is purged."""
    over, failed, appended = threading.Event(), [], 0
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "delete"}) as log:
        fill(log)

        def work() -> None:
            nonlocal appended
            try:
                while not over.is_set() and appended < 3000:
                    log.append([(b"other", b"%d" % appended)])
                    appended += 1
                    if not appended % 50:
                        last = -1
                        for record in log.read():
                            assert record.offset > last
                            last = record.offset
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        gone = sum(log.purge_key(b"key-%d" % n, roll=True).records_removed for n in range(10))
        over.set()
        thread.join()
        assert (failed, gone) == ([], 136)
        others = [(record.key, record.value) for record in log.read()]
        assert others == [(b"last", b"in the active segment"), *((b"other", b"%d" % n) for n in range(appended))]


def test_a_dry_run_reports_damage_too(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        damage(log)
        with pytest.raises(CorruptBatch):
            log.purge_key(b"key-1", dry_run=True)


def test_invalid_calls_raise(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        with pytest.raises(TypeError, match=r"encode\(\)"):
            log.purge_key("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            log.purge_key(None)  # type: ignore[arg-type]
    with pytest.raises(LogClosed):
        log.purge_key(b"k")


def sequences(log: klog.Log) -> dict[int, Any]:
    """Producers without their last timestamp: a replay takes the largest one left in the batch."""
    return {number: dataclasses.replace(state, timestamp=0) for number, state in log.producers.items()}


def purged_and_compared(seed: int, parent: Path) -> None:
    chance = random.Random(f"purge {seed}")
    life = DirtyLog(seed)
    for _ in range(2):
        life.write(life.directory(parent))
    directory = life.directory(parent)
    (parent / "log-start-offset-checkpoint").write_text(f"0\n1\n{directory.name.replace('-', ' ')} {life.log_start}\n")

    def opened(**more: Any) -> klog.Log:
        return klog.Log.open(
            directory, config=life.config, log_start_offset=life.log_start, clock=ManualClock(life.now_ms), **more
        )

    with opened(clean_shutdown=False, recovery_point=0) as log:
        replayed = sequences(log), log.aborted_transactions(), log.last_stable_offset, log.log_end_offset
    with opened(clean_shutdown=True, recovery_point=life.end) as log:
        before, producers, aborted = batches(log), log.producers, log.aborted_transactions()
        keys = sorted(
            {r.key for them in before.values() for b in them if not b.is_control for r in b if r.key is not None}
        )
        key = chance.choice([*keys, b"nobody's"])
        roll = chance.random() < 0.5
        result = log.purge_key(key, roll=roll, dry_run=True)
        stats = log.purge_key(key, roll=roll)
        after = batches(log)
        rolled = [base for base in after if base not in before]
        assert all(not after.pop(base) for base in rolled)
        stable = log.last_stable_offset
        reach = [s.base_offset for s, later in zip(log.segments, log.segments[1:], strict=False)
                 if later.base_offset <= stable]  # fmt: skip
        held = with_key(before, key)
        touched = {base for base in held if base in reach}
        assert same_but_for(key, before, after, touched) == stats.records_removed == sum(held[b] for b in touched)
        assert stats.records_left == sum(count for base, count in held.items() if base not in touched)
        assert stats.segments_rewritten == len(touched)
        assert (result.records_removed, result.bytes_after) == (stats.records_removed, stats.bytes_after)
        assert (log.producers, log.aborted_transactions()) == (producers, aborted)
    problems = klog.verify(directory).problems
    assert [problem for problem in problems if problem.kind not in ("checkpoint", "gap")] == []
    with opened(clean_shutdown=False, recovery_point=0) as log:
        found = sequences(log), log.aborted_transactions(), log.last_stable_offset, log.log_end_offset
        assert found == replayed
        assert {base: with_key({base: them}, key) for base, them in batches(log).items() if base in touched} == {
            base: {} for base in touched
        }


@pytest.mark.parametrize("seed", [3, 8, 21])
def test_random_logs_lose_only_the_keys_records(seed: int, tmp_path: Path) -> None:
    purged_and_compared(seed, tmp_path)


@pytest.mark.deep
def test_many_random_logs_lose_only_the_keys_records(tmp_path: Path) -> None:
    for seed in range(400):
        (tmp_path / str(seed)).mkdir()
        try:
            purged_and_compared(seed, tmp_path / str(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
