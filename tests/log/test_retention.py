"""Retention: which segments are deleted, when their files are unlinked, and how the log start moves."""

from __future__ import annotations

import contextlib
import errno
import functools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import os_error
from klog.errors import ConfigUnknown, OffsetOutOfRange, PolicyViolation
from klog.log.retain import retention
from klog.record import encode
from klog.segment import Segment
from tests.support.batches import batch
from tests.support.failing_files import FailingFiles
from tests.support.groups import BATCH
from tests.support.logs import NOW, bases, one_log, rows, values
from tests.support.resources import open_descriptors

FIVE = {"segment.bytes": 5 * BATCH, "file.delete.delay.ms": 1000}


def open_log(path: Path, clock: ManualClock | None = None, mark: int | None = None, **config: object) -> klog.Log:
    """Segments of five records of a batch each."""
    return klog.Log.open(path / "t-0", config={**FIVE, **config}, high_watermark=mark, clock=clock or ManualClock(NOW))


def fill(log: klog.Log, count: int, timestamp: int = NOW - 1000) -> None:
    for _ in range(count):
        log.append([(None, None, timestamp)])


def names_in(log: klog.Log, suffix: str) -> list[str]:
    return sorted(path.name for path in Path(log.path).iterdir() if path.name.endswith(suffix))


def test_nothing_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    """UL59: without a high watermark nothing is deleted; with one, segments whose last offset is below it."""
    with open_log(tmp_path, mark=0, **{"retention.ms": 999}) as log:
        fill(log, 100)
        assert log.apply_retention() == 0
        for mark in range(25, 31):
            log.update_high_watermark(mark)
            log.apply_retention()
            assert log.log_start_offset <= mark
            assert all(segment.next_offset > mark - 5 for segment in log.segments)
        assert bases(log)[0] == log.log_start_offset == 30


def test_the_log_start_never_passes_the_high_watermark(tmp_path: Path) -> None:
    """UL60: for every high watermark, the first segment reaches down to it and all others lie above."""
    with open_log(tmp_path, mark=0, **{"retention.ms": 999}) as log:
        fill(log, 100)
        for mark in range(101):
            log.update_high_watermark(mark)
            log.apply_retention()
            assert bases(log)[0] <= mark
            assert log.log_start_offset <= mark
            assert all(base > mark for base in bases(log)[1:])
        assert (bases(log), log.size, log.log_start_offset) == ([100], 0, 100)


@pytest.mark.parametrize("count", [0, 1, 25])
def test_when_all_has_expired_an_empty_segment_keeps_the_end(tmp_path: Path, count: int) -> None:
    """UL61: a second pass finds nothing, and the next record gets the next offset."""
    clock = ManualClock(NOW)
    with open_log(tmp_path, clock, **{"retention.ms": 0}) as log:
        fill(log, count, NOW - 10)
        assert log.apply_retention() == len(range(0, count, 5))
        assert (bases(log), log.size, log.log_end_offset, log.log_start_offset) == ([count], 0, count, count)
        assert log.apply_retention() == 0
        assert log.append([(None, b"next")]).first_offset == count
        assert values(log) == [b"next"]


def test_epochs_begin_where_the_log_does(tmp_path: Path) -> None:
    """UL62: a deleted log has no epochs."""
    with open_log(tmp_path, **{"retention.ms": 999}) as log:
        log._core.epochs.assign(0, 0)
        fill(log, 40)
        log._core.epochs.assign(1, 40)
        fill(log, 60)
        assert log.apply_retention() == 20
        assert log.leader_epochs == [(1, 100)]
        assert (Path(log.path) / "leader-epoch-checkpoint").read_text() == "0\n1\n1 100\n"


@pytest.mark.parametrize(
    ("entries", "left"), [([(0, 0), (1, 7), (2, 10)], [(0, 5), (1, 7), (2, 10)]), ([(0, 0), (1, 5), (2, 10)], [(1, 5), (2, 10)])]
)  # fmt: skip
def test_the_epoch_at_the_new_start_stays(
    tmp_path: Path, entries: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    """UL71, LE11: earlier epochs are removed with their records."""
    with open_log(tmp_path, **{"retention.bytes": 10 * BATCH}) as log:
        for offset in range(15):
            for epoch, start in entries:
                if start == offset:
                    log._core.epochs.assign(epoch, start)
            fill(log, 1)
        assert log.apply_retention() == 1
        assert log.leader_epochs == left


@pytest.mark.parametrize(("limit", "left"), [(10, 2), (15, 3), (11, 3), (9, 2), (4, 1), (0, 1)])
def test_retention_by_size(tmp_path: Path, limit: int, left: int) -> None:
    """UL63: a segment is deleted if the others still hold retention.bytes."""
    with open_log(tmp_path, **{"retention.bytes": limit * BATCH, "retention.ms": -1}) as log:
        fill(log, 15)
        assert log.apply_retention() == 3 - left + (limit == 0)
        assert len(log.segments) == left
        assert log.log_start_offset == bases(log)[0]


@pytest.mark.parametrize(("timestamp", "left"), [(10, 1), (NOW, 3), (NOW - 10_000, 3), (NOW - 10_001, 1)])
def test_retention_by_time(tmp_path: Path, timestamp: int, left: int) -> None:
    """UL64: by the newest record of a segment."""
    with open_log(tmp_path, **{"retention.ms": 10_000}) as log:
        fill(log, 15, timestamp)
        log.apply_retention()
        assert len(log.segments) == left


def test_records_without_timestamps_are_as_old_as_their_append(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with open_log(tmp_path, clock, **{"retention.ms": 10_000}) as log:
        fill(log, 5, -1)
        clock.advance(5_000)
        fill(log, 6, -1)
        clock.advance(5_001)
        assert log.apply_retention() == 1
        assert bases(log) == [5, 10]


def test_one_record_with_a_far_timestamp_does_not_delete_the_newest_segment(tmp_path: Path) -> None:
    """Kafka would delete it, and the records without a timestamp beside it, as soon as it is written."""
    clock = ManualClock(NOW)
    with open_log(tmp_path, clock, **{"retention.ms": 10_000}) as log:
        log.append([(None, b"no time", -1)])
        log.append([(None, b"1970", 5)])
        log.append([(None, b"no time", -1)])
        assert log.apply_retention() == 0
        clock.advance(9_999)
        assert log.apply_retention() == 0
        assert len(rows(log)) == 3
        clock.advance(1)
        assert log.apply_retention() == 1
        assert (rows(log), log.log_start_offset) == ([], 3)


@pytest.mark.parametrize("origin", ["client", "replication"])
def test_encoded_batches_count_by_the_time_of_their_append_too(tmp_path: Path, origin: Any) -> None:
    clock = ManualClock(NOW)
    with open_log(tmp_path, clock, **{"retention.ms": 10_000, "message.timestamp.before.max.ms": 2**63 - 1}) as log:
        log.append([(None, b"1970", 5)])
        clock.advance(9_000)
        for offset in (1, 2):
            log.append_batches(
                batch(1, at=-1, base_offset=offset if origin == "replication" else 0, leader_epoch=0), origin=origin
            )
        clock.advance(9_000)
        assert log.apply_retention() == 0
        assert len(rows(log)) == 3
        clock.advance(1_000)
        assert log.apply_retention() == 1


def test_two_old_records_make_a_segment_old(tmp_path: Path) -> None:
    with open_log(tmp_path, **{"retention.ms": 10_000}) as log:
        log.append([(None, b"1970", 5), (None, b"no time", -1), (None, b"1970", 6)])
        assert log.apply_retention() == 1
    with klog.Log.open(tmp_path / "u-0", config={"retention.ms": 10_000}, clock=ManualClock(NOW)) as log:
        log.append([(None, b"1970", 5), (None, b"far future", NOW + 3_000_000)])
        assert log.apply_retention() == 0


@pytest.mark.parametrize(("policy", "left"), [("compact", 3), ("compact,delete", 1), ("delete", 1)])
def test_a_compacted_topic_expires_only_with_policy_delete(tmp_path: Path, policy: str, left: int) -> None:
    """UL65: by age and size; segments below the log start are deleted with any policy."""
    with open_log(tmp_path, **{"retention.ms": 10_000, "retention.bytes": 0, "cleanup.policy": policy}) as log:
        for _ in range(15):
            log.append([(b"", None, 10)])
        size = log.segments[0].size
        assert log.size == 3 * size
        log.apply_retention()
        assert len(log.segments) == left
        if policy == "compact":
            log.maybe_increment_log_start_offset(bases(log)[1], "record_deletion")
            assert log.apply_retention() == 1
            assert bases(log)[0] <= log.log_start_offset < bases(log)[1]


@pytest.mark.parametrize(("before", "left"), [(1, 3), (5, 2), (6, 2), (15, 1), (-1, 1)])
def test_segments_of_deleted_records_are_deleted(tmp_path: Path, before: int, left: int) -> None:
    """UL66: at the next retention pass; the log start is the given offset."""
    with open_log(tmp_path) as log:
        fill(log, 15, NOW)
        assert log.delete_records(before) == log.log_start_offset == (before if before >= 0 else 15)
        assert len(log.segments) == 3
        with pytest.raises(OffsetOutOfRange):
            log.read(log.log_start_offset - 1)
        log.apply_retention()
        assert len(log.segments) == left
        assert log.log_start_offset == (before if before >= 0 else 15)
        assert [offset for offset, *_ in rows(log)] == list(range(log.log_start_offset, 15))


@pytest.mark.parametrize("managed", [True, False])
def test_deleted_records_do_not_come_back_after_a_kill(tmp_path: Path, managed: bool) -> None:
    """Kafka stores the log start once a minute. Here it is stored, and readers beside follow it, at once."""
    live, killed = tmp_path / "live", tmp_path / "killed"
    clock = ManualClock(NOW)
    with contextlib.ExitStack() as stack:
        if managed:
            logs = stack.enter_context(klog.open(live, create=True, clock=clock))
            logs.create_topic("t")
            log = logs.log("t")
        else:
            live.mkdir()
            log = stack.enter_context(klog.Log.open(live / "t-0", config=FIVE, clock=clock))
        fill(log, 7)
        follower = stack.enter_context(klog.Log.open(live / "t-0", read_only=True, clock=clock))
        assert log.delete_records(3) == 3
        assert [offset for offset, *_ in rows(follower)] == [3, 4, 5, 6]
        shutil.copytree(live, killed)
    with klog.Log.open(killed / "t-0", clock=clock) as log:
        assert not log.recovery.clean_shutdown
        assert (log.log_start_offset, [offset for offset, *_ in rows(log)]) == (3, [3, 4, 5, 6])


def test_a_full_disk_does_not_keep_records_from_being_deleted(tmp_path: Path) -> None:
    """Their segments can go then. The log start is stored when there is space."""
    disk = FailingFiles(error=errno.ENOSPC)
    log = klog.Log.open(tmp_path / "t-0", config=FIVE, files=disk, clock=ManualClock(NOW))
    with contextlib.closing(log):
        fill(log, 12)
        log.flush()
        disk.under = [str(tmp_path / "log-start-offset-checkpoint")]
        assert log.delete_records(7) == 7
        assert disk.failed == ["replace"] and log.offline is None
        assert log.apply_retention() == 1
        disk.under = []
    with open_log(tmp_path) as log:
        assert log.log_start_offset == 7


def test_a_log_start_above_the_high_watermark_is_refused(tmp_path: Path) -> None:
    """UL67: neither by hand nor by deleting records."""
    with open_log(tmp_path, mark=0) as log:
        fill(log, 15)
        log.update_high_watermark(7)
        for increment in (log.maybe_increment_log_start_offset, log.delete_records):
            with pytest.raises(OffsetOutOfRange) as caught:
                increment(8)
            assert (caught.value.offset, caught.value.log_end_offset) == (8, 7)
        with pytest.raises(OffsetOutOfRange):
            log.delete_records(-2)
        assert log.delete_records(-1) == 7
        assert not log.maybe_increment_log_start_offset(7)
        assert not log.maybe_increment_log_start_offset(3)
        assert log.log_start_offset == 7


def test_delete_records_needs_policy_delete(tmp_path: Path) -> None:
    with open_log(tmp_path, **{"cleanup.policy": "compact"}) as log:
        log.append([(b"k", b"v")])
        with pytest.raises(PolicyViolation, match=r"cleanup\.policy=compact"):
            log.delete_records(1)


def test_a_moved_log_start_deletes_segments_that_retention_would_keep(tmp_path: Path) -> None:
    """UL68: two segments in the first pass, none in the second."""
    with open_log(tmp_path, **{"retention.ms": 10**9}) as log:
        fill(log, 15, NOW)
        assert log.apply_retention() == 0
        log.maybe_increment_log_start_offset(12, "record_deletion")
        assert [log.apply_retention(), log.apply_retention()] == [2, 0]
        assert (bases(log), log.log_start_offset) == ([10], 12)


def test_files_are_unlinked_after_a_delay(tmp_path: Path) -> None:
    """UL69, LL6: renamed at once, log and indexes, and unlinked after file.delete.delay.ms."""
    clock = ManualClock(NOW)
    with open_log(tmp_path, clock, **{"retention.ms": 999}) as log:
        fill(log, 11)
        assert log.apply_retention() == 3
        for suffix in (".log", ".index", ".timeindex"):
            assert names_in(log, suffix + ".deleted") == [f"{base:020d}{suffix}.deleted" for base in (0, 5, 10)]
        assert names_in(log, ".log") == [f"{11:020d}.log"]
        clock.advance(999)
        assert len(names_in(log, ".deleted")) >= 9
        clock.advance(1)
        assert names_in(log, ".deleted") == []
        assert log.verify().problems == []


def test_without_a_delay_files_are_unlinked_at_once(tmp_path: Path) -> None:
    with open_log(tmp_path, **{"retention.ms": 999, "file.delete.delay.ms": 0}) as log:
        fill(log, 11)
        assert log.apply_retention() == 3
        assert names_in(log, ".deleted") == []


def test_a_log_without_further_appends_keeps_no_deleted_file_open(tmp_path: Path) -> None:
    """Its blocks would be in use until the next append."""
    with open_log(tmp_path, **{"retention.ms": 999, "file.delete.delay.ms": 0}) as log:
        fill(log, 2)
        assert log.apply_retention() == 1
        files = [file for _, file in open_descriptors()]
        assert [file for file in files if file.startswith(str(tmp_path)) and file.endswith("(deleted)")] == []


def test_files_not_unlinked_are_unlinked_by_the_next_load(tmp_path: Path) -> None:
    with open_log(tmp_path, **{"retention.ms": 999}) as log:
        fill(log, 11)
        log.apply_retention()
    assert names_in(log, ".deleted") != []
    with open_log(tmp_path) as log:
        assert names_in(log, ".deleted") == []
        assert (log.log_start_offset, log.log_end_offset) == (11, 11)


def test_a_reader_of_a_deleted_segment_can_read_on(tmp_path: Path) -> None:
    with open_log(tmp_path, **{"retention.ms": 999}) as log:
        fill(log, 25)
        chunks = log.chunks(0, 25, max_bytes=BATCH)
        assert next(chunks).start == 0
        old = log.segments
        assert log.apply_retention() == 5
        assert next(chunks).start == 1
        assert [segment.locate(segment.base_offset + 1).base_offset for segment in old] == [1, 6, 11, 16, 21]  # type: ignore[union-attr]
        assert [segment.index.time_floor(NOW)[0] for segment in old] == [NOW - 1000] * 5


def test_a_predicate_sees_each_segment_with_its_successor(tmp_path: Path) -> None:
    """UL70: in order, until it returns False; the newest has no successor, and an empty segment is never deleted."""
    with open_log(tmp_path) as log:
        for _ in range(9):
            fill(log, 1)
            log.roll()
        assert bases(log) == list(range(10))
        seen: list[tuple[int, int | None]] = []

        def predicate(segment: Segment, following: Segment | None) -> bool:
            seen.append((segment.base_offset, None if following is None else following.base_offset))
            return True

        held = log.segments, log.high_watermark, log.log_end_offset
        assert len(retention.deletable(*held, lambda segment, _: segment.base_offset <= 5)) == 6
        assert len(retention.deletable(log.segments, log.high_watermark, log.log_end_offset, predicate)) == 9
        assert seen == [*((base, base + 1) for base in range(9)), (9, None)]
        fill(log, 1)
        assert len(retention.deletable(log.segments, log.high_watermark, log.log_end_offset, predicate)) == 10


def test_no_retention_without_a_known_configuration(tmp_path: Path) -> None:
    """A broker's directory does not record how long its topics keep their records."""
    with klog.Log.open(tmp_path / "t-0", config=FIVE, clock=ManualClock(NOW)) as log:
        fill(log, 10, 10)
    with klog.Log.open(tmp_path / "t-0") as log:
        with pytest.raises(ConfigUnknown, match="Set a configuration first"):
            log.apply_retention()
        assert log.log_start_offset == 0
    with klog.open(tmp_path, clock=ManualClock(NOW)) as logs:
        with pytest.raises(ConfigUnknown, match="alter_topic"):
            logs.log("t").apply_retention()
        logs.alter_topic("t", {"retention.ms": 1000})
    with klog.open(tmp_path, clock=ManualClock(NOW)) as logs:
        assert logs.log("t").apply_retention() == 2


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("clean", [True, False])
def test_epochs_of_a_log_whose_records_are_all_deleted(tmp_path: Path, clean: bool, gone: bool) -> None:
    """A restart keeps the last one, at the log end, also when the segments are deleted; without the checkpoint the
    records are visible again."""
    with open_log(tmp_path) as log:
        fill(log, 3)
        log.delete_records(3)
        assert log.leader_epochs == [(0, 3)]
        if gone:
            log.roll()
            log.apply_retention()
            assert log.size == 0
    if not clean:
        (tmp_path / "log-start-offset-checkpoint").unlink(missing_ok=True)
        (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with open_log(tmp_path) as log:
        assert (log.log_start_offset, log.leader_epochs) == ((3, [(0, 3)]) if clean or gone else (0, [(0, 0)]))
        assert log.end_offset_for(0) == (0, 3)
        assert log.verify().problems == []


def test_appends_use_no_epoch_below_that_of_deleted_records(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append_batches(encode([(b"k", b"v", NOW)] * 3, leader_epoch=6), origin="replication")
        log.delete_records(3)
    with open_log(tmp_path) as log:
        assert (log.leader_epochs, log.end_offset_for(6)) == ([(6, 3)], (6, 3))
    with open_log(tmp_path) as log:
        log.append([(b"k", b"v")])
        assert (log.leader_epochs, log.end_offset_for(6)) == ([(6, 3)], (6, 4))
        assert log.verify().problems == []


def test_records_below_a_log_start_are_on_disk_before_it_applies(tmp_path: Path) -> None:
    """S9: records below it are flushed first; a log start beyond the records on disk would mean damage."""
    with open_log(tmp_path) as log:
        fill(log, 3)
        assert log.recovery_point == 0
        log.delete_records(2)
        assert log.recovery_point == 3
        fill(log, 1)
        log.delete_records(2)
        assert log.recovery_point == 3


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("how", ["deletion", "retention"])
def test_leader_epochs_that_cannot_be_written(tmp_path: Path, how: str, error: int) -> None:
    """A failed disk takes the log offline (P6). A full disk does not: retention makes space."""
    disk = FailingFiles(error=error)
    config = {**FIVE, "retention.bytes": 5 * BATCH}
    log = klog.Log.open(tmp_path / "t-0", config=config, files=disk, clock=ManualClock(NOW))
    move = log.apply_retention if how == "retention" else functools.partial(log.delete_records, 7)
    with contextlib.closing(log):
        fill(log, 12)
        log.flush()
        disk.under = [str(tmp_path / "t-0" / "leader-epoch-checkpoint")]
        if error == errno.ENOSPC:
            move()
            disk.under = []
            log.delete_records(11)
        else:
            with pytest.raises(OSError, match="the disk has failed"):
                move()
        assert disk.failed == ["replace"]
        assert (log.offline is None) == (error == errno.ENOSPC)
    with open_log(tmp_path) as log:
        assert log.leader_epochs == [(0, log.log_start_offset)]
        assert log.log_end_offset == 12


def test_a_pass_reads_no_segments_beyond_those_it_deletes(tmp_path: Path) -> None:
    """However many segments follow the first one that stays."""
    with one_log(tmp_path, segment_bytes=BATCH, retention_ms=10_000) as log:
        fill(log, 50, NOW)
        for segment in log.segments[1:]:
            segment._max_timestamp = None
        assert log.apply_retention() == 0
        assert all(segment._max_timestamp is None for segment in log.segments[1:-1])


def test_a_reopened_log_has_the_same_start(tmp_path: Path) -> None:
    """Also with a manager, whose checkpoints are written when it stops."""
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        fill(log, 8)
        log.delete_records(3)
        log.close()
        log = logs.log("t")
        assert log.log_start_offset == 3
        log.truncate_to(2)
        log.close()
        assert (logs.log("t").log_start_offset, logs.log("t").log_end_offset) == (2, 2)


@pytest.mark.parametrize("error", [os_error(errno.EMFILE, "x.txnindex"), KeyboardInterrupt()])
def test_removed_segments_are_unlinked_wherever_the_round_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The next load is too late: a service that is short of descriptors may run for months."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, file_delete_delay_ms=1000, retention_ms=-1) as log:
        for _ in range(retention.BATCH + 3):
            log.append([(None, b"x")])
            log.roll()
        log.delete_records(log.log_end_offset)
        known = retention.load_aborted
        rounds: list[int] = []

        def short(segments: Sequence[Segment]) -> None:
            rounds.append(len(segments))
            if len(rounds) == 2:
                raise error
            known(segments)

        monkeypatch.setattr(retention, "load_aborted", short)
        with pytest.raises(type(error)):
            log.apply_retention()
        assert rounds == [retention.BATCH, 3] and bases(log)[0] == retention.BATCH
        deleted = [path for path in Path(log.path).iterdir() if path.name.endswith(".deleted")]
        assert len(deleted) >= retention.BATCH
        clock.advance(2000)
        log.append([(None, b"x")])
        assert not [path for path in Path(log.path).iterdir() if path.name.endswith(".deleted")]
        monkeypatch.undo()
        assert log.apply_retention() == 3


def test_the_snapshots_of_deleted_segments_go_with_them(tmp_path: Path) -> None:
    """R1: there is no snapshot for an offset at which no segment begins."""
    with one_log(tmp_path) as log:
        for number in range(4):
            log.append([(b"k", b"%d" % number)])
            log.roll()
        log.delete_records(3)
        assert log.apply_retention() == 3
        assert {int(path.stem) for path in Path(log.path).glob("*.snapshot")} == {3, 4}
