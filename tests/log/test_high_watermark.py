"""The high watermark: its own rules, and its behaviour in a log."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import OffsetOutOfRange
from klog.log.state import high_watermark_rules
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.write.roll import roll_locked
from klog.record import encode
from tests.support.batches import transactional
from tests.support.failing_files import FailingFiles
from tests.support.logs import values

A, B = OffsetMetadata(5, 0, 300), OffsetMetadata(12, 10, 100)
ALONE = OffsetMetadata(5)


def test_metadata_compares_only_known_fields() -> None:
    assert ALONE.is_message_only
    assert not A.is_message_only
    assert A.on_older_segment(B)
    assert not B.on_older_segment(A)
    for pair in ((A, ALONE), (ALONE, A)):
        with pytest.raises(ValueError, match="has no position"):
            OffsetMetadata.on_older_segment(*pair)
        assert OffsetMetadata.bytes_until(*pair) is None
    assert A.bytes_until(B) is None
    assert A.bytes_until(OffsetMetadata(7, 0, 500)) == 200
    assert OffsetMetadata(7, 0, 500).bytes_until(A) == B.bytes_until(A) == 0


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 10), (0, 10), (-7, 10), (15, 15), (20, 20), (99, 20)])
def test_a_checkpoint_is_not_trusted_beyond_the_log(checkpoint: int | None, expected: int) -> None:
    assert high_watermark_rules.initial(checkpoint, 10, 20) == expected


def test_an_update_is_bounded_by_the_log() -> None:
    assert [high_watermark_rules.updated(offset, 10, 20) for offset in (0, 10, 15, 20, 21)] == [10, 10, 15, 20, 20]
    with pytest.raises(ValueError, match="is negative"):
        high_watermark_rules.updated(-1, 10, 20)


def test_a_leader_only_increases_it() -> None:
    rolled = OffsetMetadata(5, 5, 0)
    assert high_watermark_rules.increments(A, B, 12)
    assert not high_watermark_rules.increments(B, A, 12)
    assert not high_watermark_rules.increments(A, A, 12)
    assert high_watermark_rules.increments(A, rolled, 12)
    assert not high_watermark_rules.increments(rolled, A, 12)
    with pytest.raises(ValueError, match="beyond the log end"):
        high_watermark_rules.increments(A, B, 11)


def test_a_follower_update_returns_the_change() -> None:
    assert [high_watermark_rules.followed(99, offset, 0, 100) for offset in (99, 100, 101, 7)] == [None, 100, 100, 7]
    assert high_watermark_rules.followed(100, 101, 0, 100) is None


# ---- as a log keeps it ----------------------------------------------------------------------------------------------

THREE = [(None, b"0"), (None, b"1"), (None, b"2")]


def managed(tmp_path: Path, **options: Any) -> klog.Log:
    return klog.Log.open(tmp_path / "t-0", high_watermark=0, **options)


def test_an_unmanaged_high_watermark_follows_the_log_end_until_it_is_set(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append(THREE)
        assert log.high_watermark == 3
        assert log.maybe_increment_high_watermark(2) is None
        log.append(THREE)
        assert log.high_watermark == 6  # nothing was changed, so it is not managed
        assert log.update_high_watermark(4) == 4
        log.append(THREE)
        assert (log.high_watermark, log.log_end_offset) == (4, 9)
    with klog.Log.open(tmp_path / "t-0") as log:
        assert log.high_watermark == 9
    with klog.Log.open(tmp_path / "t-0", high_watermark=77) as log:
        assert log.high_watermark == 9
        log.append(THREE)
        assert log.high_watermark == 9


def test_nothing_at_or_above_the_high_watermark_is_read(tmp_path: Path) -> None:
    """UL1: also after a roll, and where a read begins at it."""
    with managed(tmp_path) as log:
        log.append(THREE)
        assert values(log, 0) == []
        log.update_high_watermark(3)
        assert values(log, 0) == [b"0", b"1", b"2"]
        log.roll()
        assert values(log, 0) == [b"0", b"1", b"2"]
        assert values(log, 3) == []
        log.append(THREE)
        assert values(log, 3) == []
        assert log.fetch(3, isolation="high_watermark").size == 0


def test_a_managed_high_watermark_moves_only_by_calls(tmp_path: Path) -> None:
    """UL4: it never moves beyond the log end, and a truncation moves it back."""
    with managed(tmp_path) as log:
        assert log.high_watermark == 0
        log.append(THREE)
        assert log.high_watermark == 0
        assert log.maybe_increment_high_watermark(1) == 0
        assert log.high_watermark == 1
        assert log.update_high_watermark(5) == 3
        log.append(THREE)
        assert log.high_watermark == 3
        assert log.update_high_watermark(6) == 6


def test_an_increment_beyond_the_end_or_a_negative_update_is_refused(tmp_path: Path) -> None:
    with managed(tmp_path) as log:
        log.append(THREE)
        with pytest.raises(ValueError, match="beyond the log end"):
            log.maybe_increment_high_watermark(4)
        with pytest.raises(ValueError, match="is negative"):
            log.update_high_watermark(-1)
        assert log.high_watermark == 0


def test_a_snapshot_has_the_position_of_the_high_watermark(tmp_path: Path) -> None:
    """UL5: its position is that of the batch that a read from there finds."""
    with managed(tmp_path) as log:
        for _ in range(5):
            log.append(THREE)
        log.roll()
        log.append(THREE)
        for offset in (0, 4, 9, 14, 15, 16, 18):
            log.update_high_watermark(offset)
            snapshot = log.fetch_offset_snapshot()
            mark = snapshot.high_watermark
            assert (snapshot.log_start_offset, snapshot.log_end_offset.offset, mark.offset) == (0, 18, offset)
            assert snapshot.last_stable_offset == mark
            assert log.high_watermark_metadata == mark
            assert not mark.is_message_only
            if offset < 18:
                segment = next(segment for segment in log.segments if segment.base_offset == mark.segment_base_offset)
                header = segment.locate(offset)
                assert header is not None and header.position == mark.position
            else:
                assert mark == snapshot.log_end_offset == OffsetMetadata(18, 15, log.segments[-1].size)


def test_the_same_offset_on_a_newer_segment_is_an_increment(tmp_path: Path) -> None:
    with managed(tmp_path) as log:
        log.append(THREE)
        old = log.maybe_convert_to_offset_metadata(3)
        assert log.maybe_increment_high_watermark(old) == 0
        roll_locked(log._core, 3)
        assert log.maybe_increment_high_watermark(3) == 3
        assert log.high_watermark_metadata == OffsetMetadata(3, 3, 0)
        assert log.maybe_increment_high_watermark(3) is None


@pytest.mark.parametrize("kind", ["records", "batches"])
def test_a_roll_moves_a_high_watermark_at_the_log_end_to_the_new_segment(tmp_path: Path, kind: str) -> None:
    """It moves back if the append fails, but not if only later batches of the append fail."""
    files = FailingFiles()
    with managed(tmp_path, config={"segment.bytes": 300}, files=files) as log:
        log.append(THREE)
        log.update_high_watermark(3)
        big = [(None, b"x" * 200)]
        send = {"records": lambda: log.append(big), "batches": lambda: log.append_batches(encode(big))}[kind]
        files.armed, files.calls = True, 0
        old = log.high_watermark_metadata
        assert old == OffsetMetadata(3, 0, log.segments[0].size)
        for files.nth in range(1, 100):
            files.calls = 0
            with contextlib.suppress(OSError):
                send()
                break
            if log.offline is not None:
                log.close()
                log = managed(tmp_path, config={"segment.bytes": 300}, files=files)
                log.update_high_watermark(3)
            on = log.segments[-1]
            assert log.high_watermark_metadata == OffsetMetadata(3, on.base_offset, on.size)
        assert files.nth > 5, "few operations have failed"
        files.armed = False
        assert [segment.base_offset for segment in log.segments] == [0, 3]
        assert log.high_watermark_metadata == OffsetMetadata(3, 3, 0)
        assert log.maybe_increment_high_watermark(3) is None
        log.update_high_watermark(4)
        if kind == "records":
            log.append(big[:1] * 5, compression="none")
            assert log.high_watermark_metadata.segment_base_offset == 4


def test_an_exception_in_a_listener_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notified: list[int] = []

    def listener(offset: int) -> None:
        notified.append(offset)
        raise RuntimeError("in the listener")

    with klog.Log.open(tmp_path / "t-0") as log:
        log.append(THREE)
        log.set_offsets_listener(listener)
        assert log.append(THREE[:1]).last_offset == 3
        assert log.append_batches(encode(THREE[:1])).last_offset == 4
        assert log.append_batches(transactional(1, 0, 0)).last_offset == 5
        assert log.truncate_to(3)
        assert log.update_high_watermark(1) == 1
        assert (notified, log.log_end_offset, log.offline) == ([4, 5, 6, 3, 1], 3, None)
        assert "listener_failed" in caplog.text
    with klog.Log.open(tmp_path / "t-0") as log:
        assert len(values(log)) == 3


def test_reads_up_to_the_log_end(tmp_path: Path) -> None:
    """UL6, UL7: every offset below the bound has data; from the high watermark to the log end there is none, and no
    error."""
    with managed(tmp_path) as log:
        for number in range(5):
            log.append(THREE)
            if number == 2:
                log.roll()
        log.update_high_watermark(6)
        for offset in range(15):
            fetched = log.fetch(offset, isolation="log_end")
            assert fetched.size
            assert fetched.offset == offset
            assert bool(log.fetch(offset, isolation="high_watermark").size) == (offset < 6)
        assert log.fetch(15, isolation="log_end").size == log.fetch(15, isolation="high_watermark").size == 0
        with pytest.raises(OffsetOutOfRange):
            log.fetch(16, isolation="high_watermark")


def test_reads_are_bounded_by_the_high_watermarks_offset_alone(tmp_path: Path) -> None:
    """LL9: klog bounds reads by the offset alone: its position may be unknown, or on another segment."""
    with managed(tmp_path) as log:
        for _ in range(6):
            log.append(THREE[:1])
            log.roll()
        for mark in (OffsetMetadata(4), OffsetMetadata(4, 4, 0)):
            log._core.watermark.set(mark)
            assert [record.offset for record in log.read(3)] == [3]
            assert log.fetch(3, isolation="high_watermark").size
            for offset in (4, 5):
                assert log.fetch(offset, isolation="high_watermark").size == 0
                assert list(log.read(offset)) == []


def test_metadata_of_any_offset(tmp_path: Path) -> None:
    """UL103: full where the log holds it, the offset alone elsewhere, never an exception."""
    with klog.Log.open(tmp_path / "t-0", log_start_offset=10) as log:
        log.append(THREE)
        log.append(THREE)
        size = log.segments[0].size
        assert log.maybe_convert_to_offset_metadata(10) == OffsetMetadata(10, 10, 0)
        assert log.maybe_convert_to_offset_metadata(14) == OffsetMetadata(14, 10, size // 2)
        assert log.maybe_convert_to_offset_metadata(16) == OffsetMetadata(16, 10, size)
        for offset in (-1, 0, 9, 17, 2**62):
            assert log.maybe_convert_to_offset_metadata(offset) == OffsetMetadata(offset)


def test_a_follower_update_returns_the_new_high_watermark(tmp_path: Path) -> None:
    """UL104: the new high watermark if it has changed, else None."""
    with managed(tmp_path) as log:
        log.append([(None, b"x")] * 100)
        assert [log.maybe_update_high_watermark(offset) for offset in (99, 99, 100, 100, 101)] == [
            99, None, 100, None, None,
        ]  # fmt: skip


def test_a_high_watermark_in_a_gap_has_no_position(tmp_path: Path) -> None:
    """In a gap at the end of the log there is no position: the offset alone is used."""
    with managed(tmp_path) as log:
        log.append(THREE)
        log._core.end_at(9)
        assert log.update_high_watermark(7) == 7
        assert log.high_watermark_metadata == OffsetMetadata(7)
        assert log.maybe_increment_high_watermark(7) is None
        assert log.maybe_increment_high_watermark(8) == 7


def test_a_roll_by_hand_moves_a_high_watermark_at_the_log_end(tmp_path: Path) -> None:
    """A fetch that waits there is not on an older segment."""
    with managed(tmp_path) as log:
        log.append(THREE)
        log.update_high_watermark(3)
        log.roll()
        assert log.high_watermark_metadata == OffsetMetadata(3, 3, 0)
