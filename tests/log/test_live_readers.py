"""Each call of a read-only log sees the records that the writer has appended before it; a snapshot does not change."""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog import Log
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import LogClosed, OffsetOutOfRange, StorageOffline
from klog.log.read import isolation
from klog.log.read.refresh import Follower
from klog.record import encode
from tests.support.batches import marker, old, transactional
from tests.support.damage import flip
from tests.support.faulty_io import FaultyIo
from tests.support.frames import frames_of
from tests.support.logs import NOW, settle, values
from tests.support.syscalls import count_syscalls

CALLS: dict[str, Callable[[Log], Any]] = {
    "log_end_offset": lambda log: log.log_end_offset,
    "high_watermark": lambda log: log.high_watermark,
    "last_stable_offset": lambda log: log.last_stable_offset,
    "bound": lambda log: log.bound("log_end"),
    "count": lambda log: log.count(),
    "read": lambda log: len(list(log.read())),
    "tail": lambda log: len(list(log.tail("earliest", timeout=0))),
    "chunks": lambda log: len(list(log.chunks(0, log.log_end_offset, max_bytes=1))),
    "fetch": lambda log: log.fetch(0).log_end_offset,
    "fetch_range": lambda log: log.fetch_range(0).stop,
    "list_offset": lambda log: log.list_offset("latest").offset,
    "offset_for_timestamp": lambda log: log.offset_for_timestamp(NOW + log.log_end_offset - 1).offset + 1,
    "fetch_offset_snapshot": lambda log: log.fetch_offset_snapshot().log_end_offset.offset,
    "segments": lambda log: log.segments[-1].next_offset,
    "metrics": lambda log: log.metrics()["LogEndOffset"],
    "verify": lambda log: log.verify().records,
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path / "t-0", config={"segment.bytes": 4000}, clock=ManualClock(NOW)) as log:
        yield log


@pytest.fixture
def reader(log: Log) -> Iterator[Log]:
    with Log.open(log.path, read_only=True) as reader:
        yield reader


def add(log: Log) -> None:
    """One batch of one record with the time NOW + its offset."""
    log.append([(b"", b"", NOW + log.log_end_offset)])


@pytest.mark.parametrize("name", CALLS)
def test_each_call_sees_what_was_appended_before_it(log: Log, reader: Log, name: str) -> None:
    """The writer rolls several times, after 57 batches each."""
    for number in range(1, 150):
        add(log)
        assert CALLS[name](reader) == number
    assert len(log.segments) == 3


def test_preallocated_files_change_without_growing(tmp_path: Path) -> None:
    config = {"preallocate": "true", "segment.bytes": 1 << 20}
    with Log.open(tmp_path / "t-0", config=config) as log, Log.open(tmp_path / "t-0", read_only=True) as reader:
        for number in range(1, 300):
            log.append([(None, b"v")])
            assert reader.log_end_offset == number


def test_rolls_truncations_and_retention_are_seen(log: Log, reader: Log) -> None:
    for _ in range(120):
        add(log)
    settle()
    assert (len(reader.segments), reader.log_end_offset) == (3, 120)
    settle()
    log.roll()
    assert len(reader.segments) == 4
    settle()
    log.truncate_to(100)
    assert reader.log_end_offset == 100 and len(values(reader)) == 100
    settle()
    log.delete_records(80)
    log.apply_retention()
    assert reader.segments[0].base_offset == log.segments[0].base_offset > 0
    assert reader.log_start_offset >= reader.segments[0].base_offset


def test_a_new_leader_epoch_is_seen(log: Log, reader: Log) -> None:
    add(log)
    assert reader.leader_epochs == [(0, 0)]
    log._core.epochs.assign(7, 1)
    log._core.epochs.flush()
    add(log)
    assert reader.leader_epochs == [(0, 0), (7, 1)]


def test_an_epoch_that_began_in_a_gap_is_seen_with_its_first_batch(log: Log, reader: Log) -> None:
    """A reader cannot see a log end in a gap, so it leaves out an epoch that begins there until a batch of it follows."""
    add(log)
    log.append_batches(encode([(b"k", b"v")] * 5, base_offset=5, leader_epoch=3), origin="replication")
    assert reader.leader_epochs == [(0, 0), (3, 5)]
    log.truncate_to(8)
    assert (reader.log_end_offset, reader.leader_epochs) == (1, [(0, 0)])
    log.append([(b"k", b"v")])
    assert log.leader_epochs == [(0, 0), (3, 5)]
    assert (reader.log_end_offset, reader.leader_epochs) == (9, [(0, 0), (3, 5)])


def test_a_call_without_a_change_makes_two_system_calls_and_enters_no_frame(log: Log, reader: Log) -> None:
    add(log)
    script = """
import sys, time, klog
with klog.Log.open(sys.argv[1], read_only=True) as reader:
    reader.log_end_offset
    time.sleep(0.02)
    for _ in range(int(sys.argv[2])):
        reader.log_end_offset
"""
    log.flush()
    calls = count_syscalls(script, log.path, "1010") - count_syscalls(script, log.path, "10")
    assert calls <= 2 * 2 * 1000 + 200  # ptrace stops twice at each call; a full check of the directory every 100 ms
    settle()
    assert reader.log_end_offset == 1
    settle()
    assert reader.log_end_offset == 1
    calls_of = [frames_of(lambda: reader.log_end_offset) for _ in range(20)]
    assert {"log_end_offset": 1} in calls_of  # not one that comes 100 ms after a full check, on a busy machine


def test_threads_that_share_a_reader_see_the_same(log: Log, reader: Log) -> None:
    """While one of them follows the writer, the others wait."""
    barrier, stale = threading.Barrier(3), []

    def read_end(end: int) -> None:
        barrier.wait()
        found = reader.log_end_offset
        if found != end:
            stale.append((found, end))

    for number in range(1, 60):
        add(log)
        time.sleep(0.005)
        threads = [threading.Thread(target=read_end, args=(number,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert stale == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EMFILE, "too many")])
def test_a_check_that_failed_is_repeated(
    log: Log, reader: Log, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    add(log)
    settle()
    assert reader.log_end_offset == 1
    add(log)
    settle()
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise error

        patch.setattr(Follower, "_follow_end", fail)
        with pytest.raises(type(error)):
            reader.log_end_offset  # noqa: B018
    assert reader.log_end_offset == 2


def test_a_roll_in_the_same_step_of_the_clock_is_seen(log: Log, reader: Log) -> None:
    """Older kernels stamp a directory in steps of milliseconds."""
    add(log)
    settle()
    assert reader.log_end_offset == 1
    before = os.stat(log.path)
    add(log)
    log.roll()
    add(log)
    os.utime(log.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    settle()
    assert reader.log_end_offset == 3
    add(log)
    assert reader.log_end_offset == 4


def test_leader_epochs_that_a_load_has_corrected_stay(tmp_path: Path) -> None:
    """leader-epoch-checkpoint has no checksum: a wrong number there is found by the batches."""
    with Log.open(tmp_path / "t-0", config={"segment.bytes": 4000}) as log:
        for epoch in (0, 3):
            log._core.epochs.assign(epoch, log.log_end_offset)
            log._core.epochs.flush()
            log.append([(None, b"a"), (None, b"b")])
            log.append([(None, b"c")])
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    assert path.read_text().endswith("3 3\n")
    path.write_text(path.read_text()[:-4] + "3 1\n")
    with Log.open(tmp_path / "t-0", read_only=True) as reader:
        (tmp_path / "t-0" / "another-file").touch()  # the directory has changed
        assert reader.log_end_offset == 6
        assert reader.leader_epochs == [(0, 0), (3, 3)]


def replicate_transactions(log: Log) -> None:
    """Two that begin at offsets 0 and 1, with markers at 2 and 3."""
    for offset, producer in enumerate((1, 2)):
        log.append_batches(transactional(producer, 0, 0, base_offset=offset, leader_epoch=0), origin="replication")
    for offset, producer in enumerate((1, 2), 2):
        log.append_batches(marker(producer, 0, "commit", base_offset=offset, leader_epoch=0), origin="replication")


def flip_in_place(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        flipped = flip(file.read(1), 0)
        file.seek(position)
        file.write(flipped)


def committed(log: Log) -> tuple[Any, ...]:
    """The records that a read_committed reader sees."""
    found = (
        log.last_stable_offset,
        values(log, isolation="read_committed"),
        log.fetch(log.log_start_offset, isolation="read_committed").size,
    )
    return *found, sorted(log.producers)


@pytest.mark.parametrize("seed", range(12))
def test_a_reader_of_committed_records_goes_on_from_what_it_knows(tmp_path: Path, seed: int) -> None:
    """At each moment it sees the same records as a reader that is opened at that moment."""
    chance, sequence = random.Random(seed), itertools.count()
    with (
        Log.open(tmp_path / "t-0", config={"segment.bytes": 3000}, clock=ManualClock(NOW)) as log,
        Log.open(log.path, read_only=True) as reader,
    ):
        for _ in range(60):
            at: dict[str, Any] = {"base_offset": log.log_end_offset, "leader_epoch": 0}
            what = chance.choices(["data", "end", "plain", "roll", "delete", "truncate"], [40, 15, 20, 3, 2, 2])[0]
            if what == "data":
                data = transactional(chance.randrange(4), 0, next(sequence), **at)
                log.append_batches(data, origin="replication")
            elif what == "end":
                ended = marker(chance.randrange(4), 0, chance.choice(["commit", "abort"]), **at)
                log.append_batches(ended, origin="replication")
            elif what == "plain":
                add(log)
            elif what == "roll":
                log.roll()
            elif what == "delete":
                log.delete_records(chance.randint(log.log_start_offset, log.last_stable_offset))
            else:
                log.truncate_to(chance.randint(log.log_start_offset, log.log_end_offset))
            if chance.random() < 0.6:
                with Log.open(log.path, read_only=True) as fresh:
                    assert committed(reader) == committed(fresh)


def test_a_reader_leaves_out_what_was_aborted_after_its_first_look(tmp_path: Path) -> None:
    with (
        Log.open(tmp_path / "t-0", clock=ManualClock(NOW)) as log,
        Log.open(log.path, read_only=True, clock=ManualClock(NOW)) as reader,
    ):
        for sequence in range(3):
            log.append_batches(transactional(7, 0, sequence))
            log.append_batches(marker(7, 0, "abort"), origin="coordinator")
            add(log)
            assert [record.offset for record in reader.read(isolation="read_committed")] == [2, 5, 8][: sequence + 1]


def test_a_cleaner_that_replaces_what_a_reader_replays_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = isolation.replay_up_to
    with Log.open(tmp_path / "t-0", config={"cleanup.policy": "compact"}) as log:
        for sequence in range(3):
            log.append_batches(transactional(7, 0, sequence))
            log.roll()
        with Log.open(log.path, read_only=True) as reader:

            def compact_and_replay(*arguments: Any) -> None:
                monkeypatch.undo()
                log.compact()
                replay(*arguments)

            assert reader.last_stable_offset == 0
            log.append_batches(marker(7, 0, "commit"), origin="coordinator")
            log.roll()
            assert reader.log_end_offset == 4
            monkeypatch.setattr(isolation, "replay_up_to", compact_and_replay)
            reader._core.segment_list.segments[-2].close()
            assert reader.last_stable_offset == 4
            assert log.segments[0].next_offset == 4


def test_a_high_watermark_that_falls_makes_transactions_undecided_again(tmp_path: Path) -> None:
    """Without a checkpoint it is the log end; the first one that the broker writes may be lower."""
    with Log.open(tmp_path / "t-0") as log, Log.open(log.path, read_only=True) as reader:
        replicate_transactions(log)
        assert (reader.high_watermark, reader.last_stable_offset) == (4, 4)
        for mark, stable in ((2, 0), (3, 1), (2, 0)):
            (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {mark}\n")
            log.append([(b"k", b"v")])
            time.sleep(0.15)  # checkpoints are read once in 100 ms
            with Log.open(log.path, read_only=True) as fresh:
                assert committed(reader) == committed(fresh)
            assert (reader.high_watermark, reader.last_stable_offset) == (mark, stable)


def test_a_marker_that_can_be_read_again_ends_its_transaction(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0") as log:
        replicate_transactions(log)
        position, path = log.size - 3, Path(log.segments[-1].path)  # in the value of the last marker
        log.append([(b"k", b"v")])
        settle()
        with Log.open(log.path, read_only=True) as reader:
            flip_in_place(path, position)
            assert reader.last_stable_offset == 1
            flip_in_place(path, position)
            log.append([(b"k", b"v")])
            assert reader.last_stable_offset == reader.log_end_offset == 6


def test_a_reader_of_committed_records_replays_only_what_is_new(tmp_path: Path) -> None:
    with FaultyIo() as io, Log.open(tmp_path / "t-0") as log:
        reads = []
        with Log.open(log.path, read_only=True, files=RealFiles(io.table)) as reader:
            for number in range(2000):
                data = transactional(9, 0, number, [b"v" * 5000])  # too long to be passed by the read of a header
                log.append_batches(data, origin="coordinator")
                if number % 200 == 199:
                    before = io.calls("pread") + io.calls("preadv2")
                    assert (reader.last_stable_offset, reader.log_end_offset) == (0, number + 1)
                    reads.append(io.calls("pread") + io.calls("preadv2") - before)
        assert len(reads) == 10 and max(reads) <= 600, (
            reads
        )  # it finds the position by an index that may lack the last 1 MiB


def test_a_checkpoint_that_cannot_be_read_hides_no_record(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        with klog.open(tmp_path, read_only=True) as others:
            reader = others.log("t")
            (tmp_path / "replication-offset-checkpoint").mkdir()
            logs.append("t", [(None, b"a")])
            assert reader.log_end_offset == 1
            (tmp_path / "replication-offset-checkpoint").rmdir()


# ---- snapshots -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["writer", "reader"])
def test_a_snapshot_stays_at_its_moment(log: Log, reader: Log, of: str) -> None:
    for _ in range(100):
        add(log)
    with (log if of == "writer" else reader).snapshot() as snapshot:
        assert snapshot.read_only
        before = {name: call(snapshot) for name, call in CALLS.items() if name not in ("segments", "verify")}
        assert set(before.values()) == {100}
        for _ in range(100):
            add(log)
        snapshot.refresh()
        assert {name: CALLS[name](snapshot) for name in before} == before
        assert (reader.log_end_offset, log.log_end_offset) == (200, 200)
    with pytest.raises(LogClosed):
        snapshot.fetch(0)
    assert reader.log_end_offset == 200


def test_a_snapshot_keeps_the_last_stable_offset(log: Log) -> None:
    log.append_batches(transactional(9, 0, 0))
    end = log.log_end_offset
    with log.snapshot() as snapshot:
        log.append_batches(marker(9, 0, "commit"), origin="coordinator")
        assert (snapshot.last_stable_offset, snapshot.log_end_offset) == (0, end)
        assert list(snapshot.read(isolation="read_committed")) == []
    assert log.last_stable_offset == end + 1


@pytest.mark.parametrize("of", ["writer", "reader"])
def test_a_snapshot_keeps_the_last_stable_offset_when_an_open_transaction_is_compacted_away(
    tmp_path: Path, of: str
) -> None:
    """It was committed after the snapshot, and a later record has its key."""
    with (
        Log.open(tmp_path / "t-0", config={"cleanup.policy": "compact"}) as log,
        Log.open(log.path, read_only=True) as reader,
    ):
        log.append_batches(transactional(7, 0, 0))
        log.append([(b"other", b"plain")])
        log.roll()
        with {"writer": log, "reader": reader}[of].snapshot() as snapshot:
            seen = [committed(snapshot)]
            log.append_batches(marker(7, 0, "commit"), origin="coordinator")
            log.append_batches(transactional(7, 0, 1))
            log.append_batches(marker(7, 0, "commit"), origin="coordinator")
            log.compact(roll=True)
            assert [record.offset for record in log.read()] == [1, 3]
            assert [record.offset for record in snapshot.read()] == [1]
            seen.append(committed(snapshot))
            assert seen == [(0, [], 0, [7])] * 2


def test_a_snapshot_of_a_managed_log_keeps_its_high_watermark(log: Log) -> None:
    for _ in range(10):
        add(log)
    log.update_high_watermark(4)
    with log.snapshot() as snapshot:
        log.update_high_watermark(9)
        assert (snapshot.high_watermark, snapshot.log_end_offset, len(values(snapshot))) == (4, 10, 4)


def test_records_that_the_writer_deletes_are_gone_from_a_snapshot(log: Log) -> None:
    for _ in range(120):
        add(log)
    with log.snapshot() as snapshot:
        for _ in range(100):
            add(log)
        log.delete_records(200)
        log.apply_retention()
        with pytest.raises(OffsetOutOfRange):
            list(snapshot.read(0))
        assert (snapshot.log_start_offset, snapshot.log_end_offset) == (120, 120)
        assert list(snapshot.read()) == []


def test_a_truncation_below_its_end_ends_a_snapshot(log: Log) -> None:
    for _ in range(10):
        add(log)
    with log.snapshot() as snapshot:
        log.truncate_to(3)
        for _ in range(20):
            log.append([(b"other", b"")])
        with pytest.raises(StorageOffline, match="make another one"):
            list(snapshot.read())
    with log.snapshot() as snapshot:
        assert len(values(snapshot)) == 23


@pytest.mark.parametrize("cut", [0, 4, 9])
def test_other_records_of_the_same_number_are_no_compaction(tmp_path: Path, cut: int) -> None:
    with Log.open(tmp_path / "t-0") as log:
        for offset in range(10):
            log.append([(b"k", b"v")])
            if offset % 4 == 3:
                log.roll()
        with log.snapshot() as snapshot:
            log.truncate_to(cut)
            for offset in range(cut, 10):
                log.append([(b"k", b"w")])
                if offset % 4 == 3:
                    log.roll()
            log.roll()
            with pytest.raises(StorageOffline, match="make another one"):
                list(snapshot.read())


@pytest.mark.parametrize("of", ["writer", "reader"])
@pytest.mark.parametrize("rolls", [False, True])
def test_a_snapshot_outlives_the_compaction_of_its_last_segment(tmp_path: Path, of: str, rolls: bool) -> None:
    """Also if that becomes a part of the segment before, or has no record of the snapshot any more."""
    config = {"cleanup.policy": "compact", "file.delete.delay.ms": 0}
    with Log.open(tmp_path / "t-0", config=config) as log, Log.open(log.path, read_only=True) as reader:
        for value in (b"a", b"b"):
            log.append([(key, value) for key in (b"1", b"2", b"3")])
            if rolls:
                log.roll()
        log.append([(b"4", b"c"), (b"1", b"c")])
        with (log if of == "writer" else reader).snapshot() as snapshot:
            for key, left in ((b"2", [b"b", b"c", b"c"]), (b"4", [b"b", b"c"]), (b"3", [b"c"]), (b"1", [])):
                log.append([(key, b"later")])
                log.compact(roll=True)
                log.append([(b"5", b"later")])
                assert (values(snapshot), snapshot.log_end_offset) == (left, 8)


@pytest.mark.parametrize(("magic", "codec"), [(0, None), (1, None), (1, "gzip")])
def test_a_snapshot_outlives_a_compaction_that_rewrites_old_messages(
    tmp_path: Path, magic: int, codec: str | None
) -> None:
    with Log.open(tmp_path / "t-0", config={"cleanup.policy": "compact", "file.delete.delay.ms": 0}) as log:
        log.append_batches(old(magic, 0, 2, codec), origin="replication")
        log.roll()
        with log.snapshot() as snapshot:
            log.append([(b"other", b"later")])
            log.compact(roll=True)
            assert (values(snapshot), snapshot.log_end_offset) == ([b"old"], 3)


def test_a_truncation_above_its_end_leaves_a_snapshot(log: Log, reader: Log) -> None:
    for _ in range(10):
        add(log)
    before = values(log)
    with log.snapshot() as snapshot:
        for _ in range(10):
            add(log)
        with snapshot.snapshot() as another, reader.snapshot() as later:
            for _ in range(2):
                log.truncate_to(12)
                log.append([(b"other", b"")])
                assert values(snapshot) == values(another) == before
            with pytest.raises(StorageOffline, match="make another one"):
                list(later.read())


def test_positions_and_epochs_of_a_snapshot_end_with_it(log: Log) -> None:
    for _ in range(10):
        add(log)
    before = log.fetch_offset_snapshot()
    with log.snapshot() as snapshot:
        for _ in range(90):
            add(log)
        log._core.epochs.assign(7, log.log_end_offset)
        log._core.epochs.flush()
        add(log)
        assert list(snapshot.tail("earliest", timeout=0)) == list(snapshot.read())
        assert snapshot.fetch_offset_snapshot() == before
        assert snapshot.end_offset_for(0) == (0, 10)
        assert snapshot.leader_epochs == [(0, 0)]
        assert snapshot.legacy_fetch_offsets_before(-1, 10)[0] == 10


def test_a_snapshot_of_a_topic_with_an_id(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(None, b"a")])
        with logs.log("t").snapshot() as snapshot:
            assert isinstance(snapshot.topic_id, uuid.UUID) and snapshot.topic_id == logs.log("t").topic_id
            assert (snapshot.name, snapshot.path) == ("t-0", str(tmp_path / "t-0"))
            logs.append("t", [(None, b"b")])
            assert values(snapshot) == [b"a"]
