"""Log.compact: one cleaning in the calling thread, with the log's own config."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import klog
from klog.cleaner import read_first_dirty
from klog.clock import ManualClock
from klog.errors import ConfigUnknown, CorruptBatch, PolicyViolation, ReadOnly
from klog.progress import Event
from tests.cleaner.logs import NOW, append, damage, fill, latest, offsets, open_log, values

LATER = 2000  # ms, more than delete.retention.ms


def test_compact_keeps_the_latest_record_of_each_key(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        before, end, size = values(log), log.log_end_offset, log.size
        stats = log.compact()
        assert values(log) == before
        assert offsets(log) == [*range(125, 135), 135, 136]
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        assert stats.first_dirty_offset == log.segments[-1].base_offset == 135
        assert (stats.bytes_before, stats.bytes_after) == (size, log.size)
        assert (stats.records_before, stats.records_after, stats.rounds) == (137, 12, 1)
        again = log.compact()
        assert (again.rounds, again.bytes_before, again.bytes_after) == (0, log.size, log.size)


def test_roll_includes_the_active_segment(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        stats = log.compact(roll=True)
        assert stats.first_dirty_offset == log.log_end_offset == 137
        assert stats.records_after == len(offsets(log)) == 11
        assert len(log.segments) == 2


def test_a_tombstone_removes_older_values_at_once_and_stays_for_delete_retention_ms(tmp_path: Path) -> None:
    """CL4, CL30, CL31: exact to the millisecond."""
    clock = ManualClock(NOW)
    with open_log(tmp_path / "t-0", clock=clock) as log:
        append(log, [(b"a", b"1"), (b"b", b"1"), (b"a", None)])
        log.compact(roll=True)
        assert latest(log) == {b"a": None, b"b": b"1"}
        stamps = [record.timestamp for record in log.read()]
        (first,) = [batch.delete_horizon_ms for batch in log.read().batches()]
        assert first == NOW + 1000
        clock.advance(999)
        append(log, [(b"c", b"1")])
        log.compact(roll=True)
        assert latest(log) == {b"a": None, b"b": b"1", b"c": b"1"}
        assert [batch.delete_horizon_ms for batch in log.read().batches()] == [first, None]
        assert [record.timestamp for record in log.read()][:2] == stamps
        clock.advance(1)
        append(log, [(b"d", b"1")])
        log.compact(roll=True)
        assert latest(log) == {b"b": b"1", b"c": b"1", b"d": b"1"}


def test_the_largest_delete_retention_ms_keeps_tombstones(tmp_path: Path) -> None:
    """The sum with the time of the cleaning must not overflow."""
    clock = ManualClock(NOW)
    with open_log(tmp_path / "t-0", clock=clock, config={"delete.retention.ms": 2**63 - 1}) as log:
        append(log, [(b"a", b"1"), (b"a", None)])
        log.compact(roll=True)
        assert [batch.delete_horizon_ms for batch in log.read().batches()] == [2**63 - 1]
        stamps = [record.timestamp for record in log.read()]
        clock.advance(10**10)
        append(log, [(b"b", b"1")])
        log.compact(roll=True)
        assert latest(log) == {b"a": None, b"b": b"1"}
        assert [record.timestamp for record in log.read()][:1] == stamps


def test_a_small_map_needs_several_rounds(tmp_path: Path) -> None:
    config = {"log.cleaner.dedupe.buffer.size": 24 * 10}
    with open_log(tmp_path / "t-0", config=config) as log:
        fill(log, keys=40, segments=4)
        expected = values(log)
        ends = [log.compact(rounds=1).first_dirty_offset for _ in range(3)]
        assert ends == [9, 18, 27]
        assert read_first_dirty(log._core) == 27
        stats = log.compact()
        assert stats.first_dirty_offset == 180
        assert stats.rounds > 10
        assert values(log) == expected
        assert len(offsets(log)) == 42


def test_a_dry_run_reports_and_changes_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        names = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
        result = log.compact(dry_run=True)
        assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == names
        assert read_first_dirty(log._core) is None
        done = log.compact()
        assert (result.bytes_before, result.bytes_after) == (done.bytes_before, done.bytes_after)
        assert (result.records_before, result.records_after) == (done.records_before, done.records_after)
        assert result.first_dirty_offset == done.first_dirty_offset


def test_the_checkpoint_survives_a_restart(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        log.compact()
    with open_log(tmp_path / "t-0") as log:
        assert (log.compact().rounds, read_first_dirty(log._core)) == (0, 135)
    assert [problem for problem in klog.verify(tmp_path / "t-0").problems if problem.kind != "checkpoint"] == []


def test_progress_counts_the_bytes_of_both_passes(tmp_path: Path) -> None:
    events: list[Event] = []
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        log.compact(progress=events.append)
    stages = [event.stage for event in events]
    assert stages == sorted(stages, reverse=True)
    for stage in ("index", "clean"):
        last = [event for event in events if event.stage == stage][-1]
        assert (last.done, last.unit, last.note) == (last.total, "bytes", "t-0")


def test_compact_raises_unless_the_policy_is_compact(tmp_path: Path) -> None:
    """Any other log would lose records without keys and all but the latest record of each key."""
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "delete"}) as log:
        append(log, [(b"a", b"1"), (b"a", b"2"), (None, b"3")])
        with pytest.raises(PolicyViolation, match=r"cleanup\.policy=delete"):
            log.compact(roll=True)
        assert len(offsets(log)) == 3
    with klog.Log.open(tmp_path / "t-0") as log, pytest.raises(ConfigUnknown):
        log.compact(roll=True)
    with open_log(tmp_path / "t-0", read_only=True) as log, pytest.raises(ReadOnly):
        log.compact()
    with open_log(tmp_path / "t-0") as log, pytest.raises(ValueError, match="rounds"):
        log.compact(rounds=0)


def test_records_without_a_key_are_removed_and_counted(tmp_path: Path) -> None:
    """CL6: this does not depend on the other records of their batch."""
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "delete"}) as log:
        append(log, [(b"a", b"1"), (None, b"x"), (b"b", b"2"), (None, b"y")])
    with open_log(tmp_path / "t-0") as log:
        stats = log.compact(roll=True)
        assert (stats.keyless, values(log)) == (2, {b"a": b"1", b"b": b"2"})


def test_damage_stops_the_cleaning_and_stays_in_place(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        path = damage(log)
        log.segments[1].close()
        before = {p.name: p.read_bytes() for p in (tmp_path / "t-0").glob("*.log*")}
        with pytest.raises(CorruptBatch) as caught:
            log.compact()
        assert caught.value.path == str(path)
        assert {p.name: p.read_bytes() for p in (tmp_path / "t-0").glob("*.log*")} == before
        append(log, [(b"goes on", b"")])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_keep_their_codec_and_latest_records(codec: str, tmp_path: Path) -> None:
    """CL44: the remaining records equal those of a dict."""
    numbers = random.Random(codec)
    model: dict[bytes, bytes] = {}
    with open_log(tmp_path / "t-0") as log:
        for _ in range(40):
            pairs = [(b"k%d" % numbers.randrange(50), numbers.randbytes(20) * 3) for _ in range(10)]
            model.update(pairs)
            append(log, pairs, batch=10, compression=codec)
        log.compact(roll=True)
        assert values(log) == model
        assert len(offsets(log)) == len(model)
        assert {batch.compression or "none" for batch in log.read().batches()} == {codec}


def test_readers_of_replaced_segments_finish(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        whole = offsets(log)
        begun = iter(log.read(isolation="log_end"))
        seen = [next(begun).offset for _ in range(5)]
        fetched, stored = log.fetch(50, 1 << 20), bytes(log.fetch(50, 1 << 20).memory())
        log.compact()
        seen += [record.offset for record in begun]
        assert seen[:5] == whole[:5]
        assert seen == sorted(set(seen))
        assert set(offsets(log)) <= set(seen)
        assert fetched.memory() == stored and len(stored) > 1000


def test_replaced_files_are_unlinked_after_file_delete_delay_ms(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with open_log(tmp_path / "t-0", clock=clock) as log:
        fill(log)
        log.compact()
        assert sorted(p.name for p in (tmp_path / "t-0").glob("*.log.deleted")) == [
            f"{base:020d}.log.deleted" for base in (0, 45, 90)
        ]
        clock.advance(log.config.file_delete_delay_ms)
        log._core.options.scheduler.run_due()
        assert list((tmp_path / "t-0").glob("*.deleted")) == []
        assert [p.name for p in sorted((tmp_path / "t-0").glob("*.snapshot"))] == [f"{135:020d}.snapshot"]


def test_snapshots_of_removed_segments_are_removed(tmp_path: Path) -> None:
    """UL53: the remaining snapshots are at the base offsets of segments, except the first; also without producers."""
    config = {"segment.bytes": 2600}
    with open_log(tmp_path / "t-0", config=config) as log:
        for number in range(9):
            append(log, [(b"%d" % (20 * number * (number > 4) + i), bytes(30)) for i in range(20)])
            log.roll()
        before = [segment.base_offset for segment in log.segments]
        assert snapshots(log) == before[1:]
        log.compact()
        after = [segment.base_offset for segment in log.segments]
        assert 2 < len(after) < len(before)
        assert snapshots(log) == after[1:]


def snapshots(log: klog.Log) -> list[int]:
    return sorted(int(path.stem) for path in Path(log.path).glob("*.snapshot"))


def test_a_cleaned_segment_has_the_latest_mtime_of_its_sources(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        for number, segment in enumerate(log.segments[:-1]):
            segment.appended_ms = None
            os.utime(segment.path, ns=((NOW + number) * 10**6,) * 2)
        log.compact()
        assert os.stat(log.segments[0].path).st_mtime_ns == (NOW + 2) * 10**6


pairs = st.tuples(st.sampled_from([b"a", b"b", b"c", b"", b"longer key"]), st.one_of(st.none(), st.binary(max_size=30)))


@settings(deadline=None)
@given(st.lists(st.one_of(pairs, st.sampled_from(["roll", "compact", "later"])), max_size=60), st.data())
def test_random_operations_leave_the_state_of_a_dict(steps: list[Any], data: st.DataObject) -> None:
    """CL8, CL44: compared with a dict; an offset keeps its record."""
    import tempfile

    clock = ManualClock(NOW)
    model: dict[bytes, bytes | None] = {}
    written: dict[int, Any] = {}
    slots = data.draw(st.integers(2, 12))
    config = {"segment.bytes": 400, "log.cleaner.dedupe.buffer.size": 24 * slots}
    with tempfile.TemporaryDirectory() as place, open_log(Path(place) / "t-0", clock=clock, config=config) as log:
        for step in steps:
            if step == "roll":
                log.roll()
            elif step == "later":
                clock.advance(LATER)
            elif step == "compact":
                log.compact(roll=data.draw(st.booleans()))
            else:
                written[log.log_end_offset] = step
                log.append([(*step, NOW)])
                model[step[0]] = step[1]
            if isinstance(step, str):
                assert values(log) == {key: value for key, value in model.items() if value is not None}
        for record in log.read():
            assert written[record.offset] == (record.key, record.value)
            assert record.timestamp == NOW
        assert log.log_end_offset == len(written)


def test_truncation_and_deletion_lower_the_checkpoint(tmp_path: Path) -> None:
    """CM11: a truncation lowers the checkpoint and a deletion removes the line; other logs' lines stay."""
    path = tmp_path / "cleaner-offset-checkpoint"
    path.write_text("0\n1\nother 3 77\n")
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        log.compact()
        assert path.read_text() == "0\n2\nother 3 77\nt 0 135\n"
        log.truncate_to(136)
        assert read_first_dirty(log._core) == 135
        log.truncate_to(130)
        assert read_first_dirty(log._core) == 129  # where the previous batch ends
        log.delete()
    assert path.read_text() == "0\n1\nother 3 77\n"


def test_an_invalid_checkpoint_only_makes_the_round_longer(tmp_path: Path) -> None:
    """CM3, CM12: if the checkpoint is above the log end, below the log start or invalid, the round begins at the log
    start and corrects the checkpoint."""
    for text in ("0\n1\nt 0 9999\n", "0\n1\nt 0 -3\n", "what\nis this", ""):
        (tmp_path / "cleaner-offset-checkpoint").write_text(text)
        with open_log(tmp_path / "t-0") as log:
            fill(log)
            stats = log.compact(roll=True)
            assert stats.first_dirty_offset == read_first_dirty(log._core) == log.log_end_offset
            assert len(offsets(log)) == 11
            log.truncate_fully_and_start_at(0)


def test_a_recreated_topic_has_no_checkpoint(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        for _ in range(2):
            logs.create_topic("t", config={"cleanup.policy": "compact", "file.delete.delay.ms": 0})
            log = logs.log("t")
            log.append([(b"k", b"%d" % i) for i in range(20)])
            assert log.compact(roll=True).first_dirty_offset == 20
            assert len(offsets(log)) == 1
            logs.delete_topic("t")
            assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_a_read_only_log_finds_the_new_segments(tmp_path: Path) -> None:
    """The reader begins before the cleaning and continues after it, with old files unlinked or not."""
    clock = ManualClock(NOW)
    with open_log(tmp_path / "t-0", clock=clock) as log:
        fill(log)
        with open_log(tmp_path / "t-0", read_only=True) as reader, open_log(tmp_path / "t-0", read_only=True) as late:
            expected = values(log)
            assert values(reader) == values(late) == expected
            begun = iter(reader.read(isolation="log_end"))
            for _ in range(5):
                next(begun)
            log.compact()
            assert [record.offset for record in begun][-1] == 136
            reader.refresh()
            assert values(reader) == expected
            assert offsets(reader) == offsets(log)
            assert reader.size == log.size
            clock.advance(log.config.file_delete_delay_ms)
            log._core.options.scheduler.run_due()
            append(log, [(b"more", b"1")])
            late.refresh()
            assert values(late) == values(log)
            assert offsets(late) == offsets(log)
            assert late.count() == log.count()
