"""append_batches(): the batches that a leader and a follower accept and refuse; a refusal leaves the log unchanged."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import (
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    LogClosed,
    OffsetsOutOfOrder,
    OutOfOrderSequence,
    ReadOnly,
    RecordBatchTooLarge,
    RecordTooLarge,
    SegmentOffsetOverflow,
    UnexpectedAppendOffset,
)
from klog.log.directory import checkpoint
from klog.record import decode
from tests.support.batches import NOW, batch, marker, old, produced, transactional
from tests.support.logs import bases, values
from tests.support.produced import ATTRIBUTES, override


def opened(path: Path, clock: ManualClock | None = None, /, **config: Any) -> klog.Log:
    return klog.Log.open(path / "t-0", config=config, clock=clock or ManualClock(NOW))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[klog.Log]:
    with opened(tmp_path) as log:
        yield log


def follow(log: klog.Log, *batches: bytes, **more: Any) -> klog.AppendInfo:
    return log.append_batches(b"".join(batches), origin="replication", **more)


# ---- leader --------------------------------------------------------------------------------------------------------


def test_a_leader_assigns_offsets_to_client_batches(log: klog.Log) -> None:
    """UL3: first offsets 0, 3, 6 of three appends, with a roll before the third; each AppendInfo has all its fields."""
    first = log.append_batches(batch(3, at=NOW + 5))
    second = log.append_batches(batch(3, compression="lz4"))
    log.roll()
    third = log.append_batches(batch(3))
    assert [info.first_offset for info in (first, second, third)] == [0, 3, 6]
    assert first == klog.AppendInfo(0, 2, 3, NOW + 5, -1)
    assert (second.source_compression, first.source_compression) == ("lz4", "none")
    assert (second.last_offset, second.last_leader_epoch, second.shallow_offset_of_max_timestamp) == (5, 0, 5)
    assert (second.log_start_offset, second.last_offset_of_first_batch) == (0, 5)
    assert second.valid_bytes == len(batch(3, compression="lz4")) and not second.is_duplicate
    assert log.leader_epochs == [(0, 0)] and bases(log) == [0, 6]
    assert values(log) == [b"v0", b"v1", b"v2"] * 3


def test_append_info_can_be_stored_and_compared(log: klog.Log) -> None:
    info = log.append_batches(produced(1, 0, 0, 2))
    again = pickle.loads(pickle.dumps(info))
    assert again == info and hash(again) == hash(info) and again.valid_bytes == info.valid_bytes
    assert info != log.append_batches(batch(2)) and info != (0, 1)
    assert repr(info) == f"AppendInfo(first_offset=0, last_offset=1, count=2, max_timestamp={NOW}, log_append_time=-1)"


def test_the_leader_writes_its_epoch_into_every_batch(log: klog.Log) -> None:
    """UL36: 72 in every batch."""
    for _ in range(3):
        assert log.append_batches(batch(2, leader_epoch=5), leader_epoch=72).last_leader_epoch == 72
    assert [stored.leader_epoch for stored in log.read().batches()] == [72, 72, 72]
    assert log.leader_epochs == [(72, 0)]
    assert log.append_batches(batch(1)).last_leader_epoch == 72
    log.append_batches(batch(1), leader_epoch=73)
    assert log.leader_epochs == [(72, 0), (73, 7)]


def test_the_leader_writes_the_time_with_log_append_time(tmp_path: Path) -> None:
    with opened(tmp_path, ManualClock(NOW + 7), message_timestamp_type="LogAppendTime") as log:
        info = log.append_batches(batch(2, at=NOW - 99))
        assert (info.log_append_time, info.max_timestamp) == (NOW + 7, NOW + 7)
        assert {record.timestamp for record in log.read()} == {NOW + 7}


def test_batches_are_stored_in_the_topics_codec(tmp_path: Path) -> None:
    with opened(tmp_path, compression_type="zstd") as log:
        info = log.append_batches(batch([b"x" * 300] * 9, compression="lz4"))
        assert info.source_compression == "lz4"
        assert [stored.compression for stored in log.read().batches()] == ["zstd"]


def test_old_messages_of_a_client_become_a_batch(log: klog.Log) -> None:
    assert log.append_batches(old(1, 0, 2)).count == 3
    assert [stored.magic for stored in log.read().batches()] == [2]


def test_an_incomplete_last_batch_is_ignored(log: klog.Log) -> None:
    whole = batch(2)
    for tail in (b"", whole[:5], whole[:-1]):
        before = log.log_end_offset
        assert log.append_batches(whole + tail).valid_bytes == len(whole)
        assert log.log_end_offset == before + 2
    follower = batch(2, base_offset=6)
    assert follow(log, follower, follower[:40]).valid_bytes == len(follower)
    assert log.log_end_offset == 8


@pytest.mark.parametrize("origin", ["client", "coordinator", "replication", "raft"])
def test_an_empty_record_set_appends_nothing(log: klog.Log, origin: Any) -> None:
    """UL21: an empty record set, or less than one batch, does nothing."""
    log.append_batches(batch(1))
    for empty in (b"", batch(1)[:16], batch(1)[:-1]):
        info = log.append_batches(empty, origin=origin)
        assert (info.first_offset, info.last_offset, info.count) == (1, 0, 0)
    assert log.log_end_offset == 1 and len(log.segments) == 1 and not log.metrics()["BytesRejectedPerSec"]


def test_any_buffer_type_is_accepted_and_not_changed(log: klog.Log) -> None:
    whole = batch(2)
    for number, made in enumerate((bytearray(whole), memoryview(whole), bytearray(b"xx" + whole))):
        buffer = memoryview(made)[2:] if number == 2 else made
        log.append_batches(buffer)
        assert bytes(buffer) == whole
    kept = bytearray(batch(2, base_offset=6))
    follow(log, kept)
    kept.extend(b"still mine")
    assert log.log_end_offset == 8


def test_batches_above_the_size_limits_are_refused(tmp_path: Path) -> None:
    """UL27: a batch above max.message.bytes, an append above segment.bytes; a follower checks only the second."""
    large, small = batch([b"x" * 400]), batch([b"x" * 40])
    with opened(tmp_path, max_message_bytes=300, segment_bytes=1000) as log:
        with pytest.raises(RecordTooLarge, match="max.message.bytes=300"):
            log.append_batches(large)
        assert log.metrics()["BytesRejectedPerSec"] == len(large)
        with pytest.raises(RecordTooLarge):
            log.append_batches(large, origin="raft")
        log.append_batches(small)
        follow(log, batch([b"x" * 400], base_offset=1))
        both = b"".join(batch([b"x" * 400], base_offset=offset) for offset in (2, 3, 4))
        with pytest.raises(RecordBatchTooLarge):
            follow(log, both)
        assert log.log_end_offset == 2 and log.count() == 2
    (tmp_path / "other").mkdir()
    with opened(tmp_path / "other", max_message_bytes=5000, segment_bytes=300) as log:
        with pytest.raises(RecordBatchTooLarge):
            log.append_batches(large)
        assert log.log_end_offset == 0


def test_a_batch_that_grows_above_the_bound_when_rewritten_is_refused(tmp_path: Path) -> None:
    squeezed = batch([b"x" * 5000], compression="gzip")
    with opened(tmp_path, max_message_bytes=1000, compression_type="uncompressed") as log:
        with pytest.raises(RecordTooLarge):
            log.append_batches(squeezed)
        assert log.metrics()["BytesRejectedPerSec"] == len(squeezed)


def test_client_batches_must_have_base_offset_zero(log: klog.Log) -> None:
    with pytest.raises(InvalidRecord, match="begin at offset 0"):
        log.append_batches(batch(1, base_offset=1))
    assert log.append_batches(batch(1, base_offset=1), origin="coordinator").first_offset == 0


def test_several_batches_in_one_client_request_are_refused(log: klog.Log) -> None:
    with pytest.raises(InvalidRecord):
        log.append_batches(batch(1) + batch(1))


@pytest.mark.parametrize("origin", ["client", "coordinator", "replication", "raft"])
def test_a_damaged_batch_is_refused(log: klog.Log, origin: Any) -> None:
    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch) as caught:
        log.append_batches(damaged, origin=origin)
    assert caught.value.kind == "crc"
    assert log.metrics()["InvalidMessageCrcRecordsPerSec"] == 1
    assert log.log_end_offset == 0 and log.size == 0


def test_a_compacted_topic_takes_only_keyed_records(tmp_path: Path) -> None:
    """UL29: the record without a key is named by its index in the batch, and counted; keyed ones are appended."""
    with opened(tmp_path, cleanup_policy="compact") as log:
        with pytest.raises(InvalidRecord, match="Compacted topic cannot accept message without key") as caught:
            log.append_batches(batch(1, key=None))
        assert [error.batch_index for error in caught.value.record_errors] == [0]
        mixed = klog.record.encode([(b"k", b"1", NOW), (None, b"2", NOW)], compression="gzip")
        with pytest.raises(InvalidRecord) as caught:
            log.append_batches(mixed)
        assert [error.batch_index for error in caught.value.record_errors] == [1]
        assert str(caught.value.record_errors[0].message).startswith(
            "Compacted topic cannot accept message without key"
        )
        assert log.metrics()["NoKeyCompactedTopicRecordsPerSec"] == 2
        log.append_batches(batch(2))
        log.append_batches(batch(2, compression="gzip"))
        assert log.log_end_offset == 4


def test_timestamps_out_of_range_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000) as log:
        for at in (NOW - 1001, NOW + 1001):
            with pytest.raises(InvalidTimestamp):
                log.append_batches(batch(1, at=at))
        for at in (NOW - 1000, NOW + 1000, -1):
            log.append_batches(batch(1, at=at))
        follow(log, batch(1, at=NOW - 9999, base_offset=3))
        assert log.log_end_offset == 4


def test_only_coordinators_may_append_markers(log: klog.Log) -> None:
    with pytest.raises(InvalidRecord):
        log.append_batches(marker(1, 0, "commit"))
    log.append_batches(marker(1, 0, "commit"), origin="coordinator")
    assert [record.control_type for record in log.read(include_control=True)] == ["commit"]


def test_invalid_arguments_are_refused(log: klog.Log) -> None:
    with pytest.raises(ValueError, match="origin"):
        log.append_batches(batch(1), origin="leader")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leader_epoch"):
        log.append_batches(batch(1), leader_epoch=-1)
    with pytest.raises(TypeError):
        log.append_batches("text")  # type: ignore[arg-type]


def test_a_read_only_or_closed_log_refuses_batches(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append_batches(batch(1))
    log.close()
    with pytest.raises(LogClosed):
        log.append_batches(batch(1))
    with klog.Log.open(tmp_path / "t-0", read_only=True) as reader, pytest.raises(ReadOnly):
        reader.append_batches(batch(1))


# ---- follower ------------------------------------------------------------------------------------------------------


def test_raft_batches_must_begin_at_the_log_end(log: klog.Log) -> None:
    """UL2: base 0 gives log end 3; bases 1 and 4 are refused; base 3 gives 6."""
    assert log.append_batches(batch(3), origin="raft").last_offset == 2
    for base in (1, 4):
        with pytest.raises(UnexpectedAppendOffset):
            log.append_batches(batch(3, base_offset=base), origin="raft")
    log.append_batches(batch(3, base_offset=3), origin="raft")
    assert log.log_end_offset == 6


def test_raft_batches_have_one_epoch(log: klog.Log) -> None:
    with pytest.raises(InvalidRecord, match="epoch"):
        log.append_batches(batch(1, leader_epoch=4), origin="raft", leader_epoch=5)
    log.append_batches(batch(1, leader_epoch=5), origin="raft", leader_epoch=5)
    assert log.leader_epochs == [(5, 0)]


def test_a_follower_stores_batches_unchanged(log: klog.Log) -> None:
    """UL33: four producers' batches in one append keep bytes, producer ids, offsets and sequences; a gap is allowed."""
    sent = [produced(10 + n, 0, 7 * n, 2, base_offset=100 + 2 * n, leader_epoch=3) for n in range(4)]
    info = follow(log, *sent)
    assert (info.first_offset, info.last_offset, info.count) == (100, 107, 8)
    stored = list(log.read("earliest").batches())
    assert b"".join(bytes(one.raw) for one in stored) == b"".join(sent)
    assert [(one.producer_id, one.base_offset, one.base_sequence) for one in stored] == [
        (10, 100, 0),
        (11, 102, 7),
        (12, 104, 14),
        (13, 106, 21),
    ]
    follow(log, batch(1, base_offset=500))
    assert log.log_end_offset == 501
    assert log.metrics()["ReplicationBytesInPerSec"] == sum(map(len, sent)) + len(batch(1, base_offset=500))
    assert log.metrics()["MessagesInPerSec"] == 0


def test_offsets_out_of_order_are_refused(log: klog.Log) -> None:
    """UL30: 0, 1, 3, 2, 4 in one append."""
    with pytest.raises(OffsetsOutOfOrder):
        follow(log, *(batch(1, base_offset=offset) for offset in (0, 1, 3, 2, 4)))
    with pytest.raises(OffsetsOutOfOrder):  # Kafka appends these, and its readers skip records
        follow(log, batch(3, base_offset=0), batch(3, base_offset=1))
    assert log.log_end_offset == 0 and log.size == 0


@pytest.mark.parametrize("origin", ["replication", "raft"])
def test_an_unknown_codec_is_refused(log: klog.Log, origin: Any) -> None:
    """As in Kafka: no reader could decompress it."""
    good, bad = batch(1), override(batch(1, base_offset=1), (ATTRIBUTES, 5))
    with pytest.raises(CorruptBatch, match="codec bits 5") as caught:
        log.append_batches(good + bad, origin=origin)
    assert (caught.value.position, caught.value.offset) == (len(good), 1)
    assert log.log_end_offset == 0


CODEC_OF = [None, "lz4"]


def replicated(magic: int, first: int, last: int, codec: str | None) -> bytes:
    if magic < 2:
        return old(magic, first, last, codec)
    return batch(last - first + 1, base_offset=first, compression=codec)


@pytest.mark.parametrize("codec", CODEC_OF)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_offsets_below_the_log_end_are_refused(tmp_path: Path, magic: int, codec: str | None) -> None:
    """UL31: offsets below the log end are unexpected, in every format."""
    with opened(tmp_path) as log:
        log.append_batches(batch(2))
        with pytest.raises(UnexpectedAppendOffset):
            follow(log, replicated(magic, 0, 0, codec))
        with pytest.raises(UnexpectedAppendOffset) as caught:
            follow(log, replicated(magic, 1, 1, codec))
        assert (caught.value.first_offset, caught.value.last_offset, caught.value.log_end_offset) == (1, 1, 2)
        assert log.log_end_offset == 2
        follow(log, replicated(magic, 2, 4, codec))
        assert log.log_end_offset == 5


@pytest.mark.parametrize("codec", CODEC_OF)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_offsets_below_the_start_of_an_empty_log_are_refused(tmp_path: Path, magic: int, codec: str | None) -> None:
    """UL32: an empty log at 7 refuses offsets 4 to 6, in every format, and the error names them."""
    with klog.Log.open(tmp_path / "t-0", log_start_offset=7) as log:
        with pytest.raises(UnexpectedAppendOffset) as caught:
            follow(log, replicated(magic, 4, 6, codec))
        assert (caught.value.first_offset, caught.value.last_offset) == (4, 6)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.first_offset, again.last_offset, str(again)) == (4, 6, str(caught.value))


def test_a_follower_takes_epochs_from_the_batches(log: klog.Log) -> None:
    """UL36: the follower has epoch 42 of the batches; one append may have several epochs; an old message ends all."""
    follow(log, batch(2, base_offset=0, leader_epoch=42))
    assert log.leader_epochs == [(42, 0)]
    follow(
        log,
        batch(1, base_offset=2, leader_epoch=42),
        batch(1, base_offset=5, leader_epoch=43),
        batch(1, base_offset=6, leader_epoch=43),
        batch(1, base_offset=7, leader_epoch=50),
    )
    assert log.leader_epochs == [(42, 0), (43, 5), (50, 7)]
    follow(log, batch(1, base_offset=8, leader_epoch=51), batch(1, base_offset=9))
    assert log.leader_epochs == [(42, 0), (43, 5), (50, 7), (51, 8)]  # a batch without an epoch adds none
    follow(log, old(1, 10, 10))
    assert log.leader_epochs == []
    follow(log, old(1, 11, 11), batch(1, base_offset=12, leader_epoch=51))
    assert log.leader_epochs == [(51, 12)]


def test_batches_of_a_later_leader_are_ignored(log: klog.Log) -> None:
    sent = [batch(1, base_offset=n, leader_epoch=epoch) for n, epoch in enumerate((4, 4, 5, 4))]
    assert follow(log, *sent, leader_epoch=4).last_offset == 1
    assert log.log_end_offset == 2 and log.leader_epochs == [(4, 0)]
    assert follow(log, *sent[2:3], leader_epoch=4).count == 0


def test_a_follower_does_not_check_sequences(log: klog.Log) -> None:
    """UL34: it also accepts the same sequences again at higher offsets, in one append and in two, and an older
    epoch."""
    follow(log, produced(1, 0, 0, 2, base_offset=0))
    follow(log, produced(1, 0, 0, 2, base_offset=2))
    assert log.log_end_offset == 4
    follow(log, produced(1, 0, 9, 1, base_offset=4), produced(1, 0, 9, 1, base_offset=5))
    assert log.log_end_offset == 6
    follow(log, produced(1, 3, 9, 1, base_offset=6), produced(1, 2, 0, 1, base_offset=7))
    assert log.producers[1].epoch == 2


def test_the_time_index_of_a_follower(tmp_path: Path) -> None:
    """UL35: 100 batches, interval 1: 99 entries, the last of the greatest time."""
    with opened(tmp_path, index_interval_bytes=1) as log:
        follow(log, *(batch(1, base_offset=n, at=NOW + n) for n in range(100)))
        index = log.segments[0].index
        assert index.time_entries == 99 and index.time_entry(98) == (NOW + 99, 99)
        assert index.entries == 99


def test_sparse_offsets(tmp_path: Path) -> None:
    """UL13: offsets 0 to 49, then every seventh: a read from any offset begins with the first record at or above it."""
    with opened(tmp_path, segment_bytes=2000) as log:
        offsets = [*range(50), *range(50, 200, 7)]
        for offset in offsets:
            follow(log, batch([b"%d" % offset], base_offset=offset))
        assert len(log.segments) > 2
        for start in range(offsets[-1] + 1):
            expected = next(offset for offset in offsets if offset >= start)
            assert next(iter(log.read(start))).offset == expected
            for size in (1, 100, 100_000):
                fetched = log.fetch(start, size)
                assert next(decode(fetched.memory())).last_offset == expected


def test_offsets_too_far_from_the_segments_base_begin_a_new_segment(tmp_path: Path) -> None:
    """LC14: offsets 0, then 2^31 + 1: a new segment with the second base offset and a snapshot; later batches go
    there."""
    far = 2**31 + 1
    with opened(tmp_path) as log:
        follow(log, batch(1, base_offset=0))
        follow(log, batch(1, base_offset=far))
        follow(log, batch(1, base_offset=far + 1), batch(1, base_offset=far + 5))
        assert bases(log) == [0, far]
        assert (tmp_path / "t-0" / f"{far:020}.snapshot").exists()
        with pytest.raises(SegmentOffsetOverflow):
            follow(log, batch(1, base_offset=2 * far + 10), batch(1, base_offset=4 * far))
        assert log.log_end_offset == far + 6 and bases(log) == [0, far]
        log.append_batches(batch(1))
        assert log.log_end_offset == far + 7


def test_old_messages_far_from_the_segments_base_begin_a_new_segment(tmp_path: Path) -> None:
    """LC14: a compressed set has only its last offset; the segment begins 2^31-1 before that, or at the log end."""
    far = 2**31
    with opened(tmp_path) as log:
        for first in (0, far, 2 * far, 4 * far):
            follow(log, old(1, first, first + 2, "lz4"))
        assert bases(log) == [0, 3, far + 3, 3 * far + 3]
        assert [record.offset for record in log.read("earliest")][-3:] == [4 * far, 4 * far + 1, 4 * far + 2]


def test_a_refused_append_removes_the_segment_rolled_for_its_gap(tmp_path: Path) -> None:
    """A segment made only for the refused batches is removed again."""
    with opened(tmp_path) as log:
        log.append_batches(transactional(1, 0, 0))
        with pytest.raises(klog.errors.InvalidTxnState):
            follow(log, produced(1, 0, 1, base_offset=2**31 + 9))
        assert bases(log) == [0] and log.log_end_offset == 1
        log.append_batches(transactional(1, 0, 1))
        assert log.log_end_offset == 2


# ---- idempotence ---------------------------------------------------------------------------------------------------


def test_a_missing_sequence_is_refused(log: klog.Log) -> None:
    """UL37: sequence 2 directly after 0 is refused."""
    log.append_batches(produced(1, 0, 0))
    with pytest.raises(OutOfOrderSequence) as caught:
        log.append_batches(produced(1, 0, 2))
    assert caught.value.code == 45
    assert log.log_end_offset == 1 and log.producers[1].last_sequence == 0


def test_a_duplicate_batch_returns_its_first_offsets(log: klog.Log) -> None:
    """UL38: it returns the first append's offsets, and the log does not grow."""
    log.append_batches(produced(1, 0, 0))
    first = log.append_batches(produced(1, 0, 1, 3, at=NOW + 3))
    size = log.size
    again = log.append_batches(produced(1, 0, 1, 3, at=NOW + 3))
    assert (again.first_offset, again.last_offset, again.count) == (1, 3, 3) == (first.first_offset, 3, 3)
    assert again.is_duplicate and again.log_append_time == NOW + 3 and "is_duplicate=True" in repr(again)
    assert (log.size, log.log_end_offset) == (size, 4)


def test_a_part_of_an_earlier_batch_is_refused(log: klog.Log) -> None:
    """UL39: a batch with two of the three records again has sequences out of order."""
    log.append_batches(produced(1, 0, 0, 3))
    for sequence, count in ((1, 2), (0, 2)):
        with pytest.raises(OutOfOrderSequence):
            log.append_batches(produced(1, 0, sequence, count))


def test_the_last_five_batches_are_recognized_as_duplicates(log: klog.Log) -> None:
    """UL40: the fifth batch from the end is a duplicate, the one before it out of order."""
    for sequence in range(6):
        log.append_batches(produced(1, 0, sequence))
    assert log.append_batches(produced(1, 0, 1)).first_offset == 1
    with pytest.raises(OutOfOrderSequence):
        log.append_batches(produced(1, 0, 0))


def test_an_older_producer_epoch_is_refused(log: klog.Log) -> None:
    """UL41: a batch with it is refused."""
    log.append_batches(produced(1, 5, 0))
    with pytest.raises(InvalidProducerEpoch) as caught:
        log.append_batches(produced(1, 4, 0))
    assert caught.value.code == 47 and log.log_end_offset == 1


def test_an_unknown_producer_may_begin_at_any_sequence(log: klog.Log) -> None:
    """UL42: this holds for any epoch."""
    log.append_batches(produced(1, 4, 17))
    assert (log.producers[1].epoch, log.producers[1].last_sequence) == (4, 17)


def test_producers_expire_on_schedule(tmp_path: Path) -> None:
    """UL43: expiration 200 ms, checked every 100 ms: present after 100, gone after 200."""
    clock = ManualClock(NOW)
    config = {"producer.id.expiration.ms": 200, "producer.id.expiration.check.interval.ms": 100}
    with klog.open(tmp_path, create=True, clock=clock, config=config) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        log.append_batches(produced(1, 0, 0))
        clock.advance(100)
        assert list(log.producers) == [1] and log.metrics()["ProducerIdCount"] == 1
        clock.advance(100)
        assert not log.producers and log.metrics()["ProducerIdCount"] == 0


def test_the_state_of_producers_is_reported(log: klog.Log) -> None:
    """UL44: last sequence, start of the open transaction, coordinator epoch; each only once it has a value."""
    log.append_batches(produced(1, 0, 0, 2))
    state = log.producers[1]
    assert (state.last_sequence, state.current_txn_first_offset, state.coordinator_epoch) == (1, None, -1)
    log.append_batches(transactional(2, 0, 5))
    assert log.producers[2].current_txn_first_offset == 2
    log.append_batches(marker(2, 0, "commit", coordinator=15), origin="coordinator")
    state = log.producers[2]
    assert (state.last_sequence, state.current_txn_first_offset, state.coordinator_epoch) == (5, None, 15)


def test_a_roll_that_a_refused_batch_needed_stays(tmp_path: Path) -> None:
    """Kafka's order: the roll comes before the check of producers, and after the epochs are assigned."""
    with opened(tmp_path, segment_bytes=200) as log:
        log.append_batches(produced(1, 0, 0, 5))
        with pytest.raises(OutOfOrderSequence):
            log.append_batches(produced(1, 0, 9, 5), leader_epoch=3)
        assert bases(log) == [0, 5] and log.log_end_offset == 5 and log.leader_epochs[-1] == (3, 5)
        log.append_batches(produced(1, 0, 5, 5))
        assert log.log_end_offset == 10 and bases(log) == [0, 5]


@pytest.mark.parametrize("hand_made", [False, True])
def test_compacted_batches_keep_their_last_sequence(tmp_path: Path, hand_made: bool) -> None:
    """UL56: records 0 and 2 of 4 are left, or none of 2: the last sequence is that of the original batch."""
    gaps = klog.record.encode(
        [(b"k", b"0", NOW), (b"k", b"1", NOW), (b"k", b"2", NOW), (b"k", b"3", NOW)],
        producer_id=1, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    kept = [record for record in klog.record.iter_records(gaps) if record.offset in (0, 2)]
    gaps = klog.record.encode(
        kept, producer_id=1, producer_epoch=0, base_sequence=0, last_offset_delta=3, keep_offsets=True
    )
    emptied = klog.record.encode(
        [], base_offset=4, producer_id=2, producer_epoch=0, base_sequence=0, last_offset_delta=1, max_timestamp=NOW
    )
    with opened(tmp_path) as log:
        follow(log, gaps, emptied)
        log.append_batches(batch(1))
        assert (log.producers[1].last_sequence, log.producers[2].last_sequence) == (3, 1)
        if hand_made:
            for path in (tmp_path / "t-0").glob("*.snapshot"):
                path.unlink()
        log.truncate_to(6)
        assert (log.producers[1].last_sequence, log.producers[2].last_sequence) == (3, 1)


def test_metrics_count_appends(log: klog.Log) -> None:
    first = batch(3)
    log.append_batches(first)
    log.append([(b"k", b"v")])
    counts = log.metrics()
    assert counts["MessagesInPerSec"] == 4 and counts["BytesInPerSec"] == log.size == counts["Size"]
    assert (counts["LogStartOffset"], counts["LogEndOffset"], counts["NumLogSegments"]) == (0, 4, 1)
    for bad, name in (
        (produced(1, 0, -1), "InvalidOffsetOrSequenceRecordsPerSec"),
        (old(0, 0, 0) + old(1, 1, 1), "InvalidMagicNumberRecordsPerSec"),
    ):
        with pytest.raises(InvalidRecord):
            log.append_batches(bad)
        assert log.metrics()[name] == 1


def test_append_and_append_batches_alternate(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=500) as log:
        expected = []
        for number in range(40):
            value = b"%d" % number
            expected.append(value)
            if number % 3 == 0:
                log.append([(b"k", value)])
            elif number % 3 == 1:
                log.append_batches(batch([value]))
            else:
                follow(log, batch([value], base_offset=number))
        assert values(log) == expected and len(log.segments) > 3
        assert not log.verify().problems
    with opened(tmp_path) as log:
        assert values(log) == expected


def test_records_get_the_epoch_that_another_append_has_just_raised(log: klog.Log) -> None:
    """A4: every append uses the latest epoch."""
    log.append([(b"k", b"a")])
    log.append_batches(batch(1), leader_epoch=3)
    log.append([(b"k", b"b")])
    follow(log, batch(1, base_offset=log.log_end_offset, leader_epoch=5))
    log.append([(b"k", b"c")])
    assert [record.leader_epoch for record in log.read()] == [0, 3, 3, 5, 5]


def test_a_new_epoch_is_on_disk_when_its_first_append_returns(log: klog.Log) -> None:
    """E2"""
    for epoch in (3, 4):
        log.append_batches(batch(1), leader_epoch=epoch)
        assert (
            checkpoint.parse_epochs((Path(log.path) / "leader-epoch-checkpoint").read_bytes(), "") == log.leader_epochs
        )


def test_a_refused_batch_of_a_leader_leaves_no_epoch(log: klog.Log) -> None:
    """A4: otherwise the next append would get an epoch that no record has."""
    follow(log, transactional(1, 0, 0, 1, base_offset=0, leader_epoch=1))
    with pytest.raises(InvalidTxnState):
        follow(log, produced(1, 0, 1, 1, base_offset=1, leader_epoch=2))
    assert log.leader_epochs == [(1, 0)]
    stored = (Path(log.path) / "leader-epoch-checkpoint").read_bytes()
    assert checkpoint.parse_epochs(stored, "") == [(1, 0)]


def test_sequence_numbers_wrap_inside_a_batch(log: klog.Log) -> None:
    """PS: the sequence after 2^31-1 is 0."""
    log.append_batches(produced(7, 0, 2**31 - 2))
    log.append_batches(produced(7, 0, 2**31 - 1, 2))
    assert log.producers[7].last_sequence == 0
    assert log.append_batches(produced(7, 0, 1)).first_offset == 3
    assert log.append_batches(produced(7, 0, 2**31 - 1, 2)).is_duplicate
