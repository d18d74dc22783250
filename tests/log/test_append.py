"""Log.append: the records that it accepts and refuses; a refused append leaves the log unchanged."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import (
    InvalidConfig,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedCompression,
)
from tests.support.logs import NOW, bases, one_log, rows, values

MiB = 1 << 20


def test_records_are_read_back_as_appended(tmp_path: Path) -> None:
    records = [
        (b"k", b"v"),
        (None, b"only a value", 5),
        (b"tombstone", None, -1),
        (b"", b"", 7, [("a", b"1"), ("a", None), ("\u00fc", b"")]),
        klog.Record(b"r", b"ecord", timestamp=9, headers=[("h", b"x")]),
        klog.Record(b"now", None),
        [b"a list", b"is a tuple too", None, None],
    ]
    with one_log(tmp_path) as log:
        info = log.append(records)
        assert info == klog.AppendInfo(0, 6, 7, NOW, -1)
        got = [(r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in log.read()]
    assert got == [
        (0, b"k", b"v", NOW, ()),
        (1, None, b"only a value", 5, ()),
        (2, b"tombstone", None, -1, ()),
        (3, b"", b"", 7, (("a", b"1"), ("a", None), ("\u00fc", b""))),
        (4, b"r", b"ecord", 9, (("h", b"x"),)),
        (5, b"now", None, NOW, ()),
        (6, b"a list", b"is a tuple too", NOW, ()),
    ]


def test_offsets_and_appendinfo_continue_across_rolls(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        assert log.append([(None, b"x")] * 3).first_offset == 0
        assert log.append([(None, b"x")] * 3).first_offset == 3
        log.roll()
        info = log.append([(None, b"x", 5)] * 3)
        assert (info.first_offset, info.last_offset, info.count, info.max_timestamp) == (6, 8, 3, 5)
        assert log.log_end_offset == log.high_watermark == log.last_stable_offset == 9


def test_an_append_of_no_records_changes_nothing(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x")])
        for empty in ([], (), iter([])):
            assert log.append(empty) == klog.AppendInfo(1, 0, 0, -1, -1)
        assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("records", "match"),
    [
        ([("key", b"v")], r"record 0: the key is str, not bytes; use .encode\(\)"),
        ([(b"k", b"v"), (b"k", "value")], r"record 1: the value is str, not bytes; use .encode\(\)"),
        ([(b"k", 5)], "record 0: the value must be bytes or None, not int"),
        ([(b"k",)], "1 fields"),
        ([(b"k", b"v", 1, (), 5)], "5 fields"),
        ([b"kv"], "record 0 must be a klog.Record or a tuple"),
        ([None], "record 0 must be a klog.Record or a tuple"),
        (b"kv", "not bytes"),
        ("kv", "not str"),
        ({b"k": b"v"}, "not dict|record 0"),
        (None, "an iterable of"),
        (5, "an iterable of"),
        ([(b"k", b"v", 1.5)], "int of milliseconds"),
        ([(b"k", b"v", "now")], "int of milliseconds"),
        ([(b"k", b"v", None, [(b"h", b"v")])], "header key must be str, not bytes"),
        ([(b"k", b"v", None, [("h", "v")])], "header"),
        ([(b"k", b"v", None, [("h",)])], "header"),
    ],
)
def test_wrong_types_are_named_and_append_nothing(tmp_path: Path, records: object, match: str) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"before")])
        with pytest.raises(TypeError, match=match):
            log.append(records)  # type: ignore[arg-type]
        log.append([(None, b"after")])
        assert rows(log) == [(0, None, b"before", NOW), (1, None, b"after", NOW)]


def test_a_record_object_refuses_text_at_once() -> None:
    for arguments in (("k", b"v"), (b"k", "v")):
        with pytest.raises(TypeError, match=r"\.encode\(\)"):
            klog.Record(*arguments)  # type: ignore[arg-type]


def test_an_exception_in_a_generator_drops_its_whole_group(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[None, bytes]]:
        yield None, b"a"
        yield None, b"b"
        raise RuntimeError("the source is gone")

    with one_log(tmp_path) as log:
        with pytest.raises(RuntimeError, match="the source is gone"):
            log.append(broken())
        assert (log.log_end_offset, log.size) == (0, 0)
        log.append([(None, b"c")])
        assert values(log) == [b"c"]


def test_groups_of_a_generator_stay_when_a_later_one_fails(tmp_path: Path) -> None:
    """Memory is bounded: the groups written before the exception stay, each of them whole."""
    payload = b"x" * (MiB // 2)

    def broken() -> Iterator[tuple[None, bytes]]:
        for _ in range(40):
            yield None, payload
        raise RuntimeError("the source is gone")

    with one_log(tmp_path) as log:
        with pytest.raises(RuntimeError):
            log.append(broken())
        first = log.log_end_offset
        assert 0 < first < 40
        assert len(values(log)) == first


def test_a_list_is_appended_whole_or_not_at_all(tmp_path: Path) -> None:
    payload = b"x" * (MiB // 2)
    with one_log(tmp_path, segment_bytes=2 * MiB) as log:
        with pytest.raises(TypeError):
            log.append([*[(None, payload)] * 40, (None, "text")])  # type: ignore[list-item]
        assert (log.log_end_offset, log.size, bases(log)) == (0, 0, [0])


def test_a_generator_is_consumed_as_it_is_written(tmp_path: Path) -> None:
    payload = b"x" * (MiB // 2)
    seen: list[int] = []

    with one_log(tmp_path) as log:

        def source() -> Iterator[tuple[None, bytes]]:
            for _ in range(40):
                seen.append(log.log_end_offset)
                yield None, payload

        info = log.append(source())
        assert (info.first_offset, info.last_offset, info.count) == (0, 39, 40)
    assert seen[0] == 0
    assert 0 < seen[-1] < 40


def test_a_source_that_appends_to_the_same_log_does_not_deadlock(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:

        def source() -> Iterator[tuple[None, bytes]]:
            log.append([(None, b"inner")])
            yield None, b"outer"

        assert log.append(source()).first_offset == 1
        assert values(log) == [b"inner", b"outer"]


# ---- compression ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compression", ["none", "gzip", "snappy", "lz4", "zstd", ("zstd", 19), ("gzip", 1), ("lz4", 12)]
)
def test_each_codec_reads_back(tmp_path: Path, compression: str | tuple[str, int]) -> None:
    with one_log(tmp_path) as log:
        log.append([(b"k%d" % i, b"value" * 20) for i in range(100)], compression=compression)
        name = compression if isinstance(compression, str) else compression[0]
        assert [batch.compression for batch in log.read().batches()] == [name]
        assert [record.key for record in log.read()] == [b"k%d" % i for i in range(100)]


@pytest.mark.parametrize(
    ("kind", "given", "stored"),
    [
        ("producer", None, "none"),
        ("uncompressed", None, "none"),
        ("zstd", None, "zstd"),
        ("gzip", None, "gzip"),
        ("snappy", None, "snappy"),
        ("zstd", "none", "none"),
        ("zstd", "lz4", "lz4"),
    ],
)
def test_the_topic_s_codec_is_used_when_none_is_given(
    tmp_path: Path, kind: str, given: str | None, stored: str
) -> None:
    with one_log(tmp_path, compression_type=kind) as log:
        log.append([(b"k", b"value" * 50)], compression=given)
        assert [batch.compression for batch in log.read().batches()] == [stored]


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        with pytest.raises(UnsupportedCompression, match="none, gzip, snappy, lz4, zstd"):
            log.append([(b"k", b"v")], compression="brotli")
        with pytest.raises(InvalidConfig, match="level 99 of zstd is out of range"):
            log.append([(b"k", b"v")], compression=("zstd", 99))
        assert log.log_end_offset == 0


# ---- sizes ----------------------------------------------------------------------------------------------------------


def test_batches_are_at_most_256_kib_or_max_message_bytes(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x" * 10_000)] * 100)
        sizes = [batch.size for batch in log.read().batches()]
        assert max(sizes) <= 256 << 10
        assert len(sizes) == 4
    with one_log(tmp_path, topic="small", max_message_bytes=1000) as log:
        log.append([(None, b"x" * 100)] * 100)
        sizes = [batch.size for batch in log.read().batches()]
        assert max(sizes) <= 1000
        assert len(values(log)) == 100


def test_a_record_above_256_kib_is_a_batch_of_its_own(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a"), (None, b"x" * 500_000), (None, b"b")])
        assert [batch.count for batch in log.read().batches()] == [1, 1, 1]


def test_max_message_bytes_is_the_size_of_the_stored_batch(tmp_path: Path) -> None:
    with one_log(tmp_path, max_message_bytes=200) as log:
        overhead = 200 - 61 - 7 - 2  # header, record fields, a longer length of record and value
        log.append([(None, b"x" * overhead)])
        (batch,) = log.read().batches()
        assert batch.size == 200
        with pytest.raises(RecordTooLarge, match="201 bytes, more than max.message.bytes = 200") as caught:
            log.append([(None, b"fits"), (None, b"x" * (overhead + 1))])
        assert caught.value.code == 10
        assert log.log_end_offset == 1
        log.append([(None, b"x" * 10_000)], compression="lz4")  # small enough as it is stored
        assert log.log_end_offset == 2


def test_a_record_that_no_reader_would_decompress_is_refused(tmp_path: Path) -> None:
    """Readers take a batch of a few KiB that expands to more than 64 MiB for a bomb."""
    with one_log(tmp_path) as log:
        log.append([(None, bytes(60 << 20))], compression="zstd")
        with pytest.raises(RecordTooLarge, match="a batch of 1 records makes 681.* bytes"):
            log.append([(None, b"fits"), (None, bytes(65 << 20))], compression="zstd")
        assert [len(record.value or b"") for record in log.read()] == [60 << 20]


def test_a_batch_above_segment_bytes_is_refused(tmp_path: Path) -> None:
    with one_log(tmp_path, segment_bytes=200) as log:
        log.append([(None, b"before")])
        with pytest.raises(RecordBatchTooLarge, match="segment.bytes"):
            log.append([(None, b"fits"), (None, b"x" * 300)])
        assert (values(log), bases(log)) == ([b"before"], [0])


def test_a_list_larger_than_a_segment_is_cut_into_batches_that_fit(tmp_path: Path) -> None:
    with one_log(tmp_path, segment_bytes=300) as log:
        info = log.append([(None, b"%03d" % i) for i in range(100)])
        assert info.count == 100
        assert all(segment.size <= 300 for segment in log.segments)
        assert values(log) == [b"%03d" % i for i in range(100)]


def test_offsets_end_before_63_bits(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", log_start_offset=2**63 - 5) as log:
        with pytest.raises(ValueError, match="do not fit into 63 bits"):
            log.append([(None, b"x")] * 10)
        assert log.log_end_offset == 2**63 - 5
        log.append([(None, b"x")] * 2)
        assert [record.offset for record in log.read()] == [2**63 - 5, 2**63 - 4]


# ---- timestamps -----------------------------------------------------------------------------------------------------


def test_timestamps_within_the_topics_bounds_are_accepted(tmp_path: Path) -> None:
    bounds = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 500}
    with one_log(tmp_path, **bounds) as log:
        log.append([(None, b"x", NOW - 1000), (None, b"x", NOW + 500), (None, b"x", -1), (None, b"x", None)])
        for timestamp in (NOW - 1001, NOW + 501):
            with pytest.raises(InvalidTimestamp, match="message.timestamp.before.max.ms") as caught:
                log.append([(None, b"x", NOW), (None, b"x", timestamp)])
            assert caught.value.code == 32
        assert log.log_end_offset == 4


def test_an_hour_ahead_is_the_default_bound(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x", NOW + 3_600_000), (None, b"x", 0)])
        with pytest.raises(InvalidTimestamp):
            log.append([(None, b"x", NOW + 3_600_001)])


def test_minus_one_is_no_timestamp_and_less_is_refused(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        with pytest.raises(InvalidTimestamp, match="use -1 for no timestamp"):
            log.append([(None, b"x", -2)])
        assert log.append([(None, b"x", -1)]).max_timestamp == -1


def test_log_append_time_is_the_clocks_time_for_every_record(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, message_timestamp_type="LogAppendTime") as log:
        info = log.append([(None, b"a", 5), (None, b"b", NOW + 10**9), (None, b"c")])
        assert (info.log_append_time, info.max_timestamp) == (NOW, NOW)
        clock.advance(10)
        assert log.append([(None, b"d")]).log_append_time == NOW + 10
        assert [row[3] for row in rows(log)] == [NOW, NOW, NOW, NOW + 10]
        assert {record.timestamp_type for record in log.read()} == {klog.TimestampType.LOG_APPEND_TIME}
        assert log.offset_for_timestamp(NOW + 1) == (NOW + 10, 3)


def test_log_append_time_is_the_time_when_a_group_is_appended(tmp_path: Path) -> None:
    """As in Kafka. The time at which the generator started would be earlier than the times of other appends that were
    made while it ran."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, message_timestamp_type="LogAppendTime") as log:

        def generator() -> Iterator[tuple[None, bytes, int]]:
            for number in range(20):
                if number == 12:
                    clock.advance(5000)
                    log.append([(None, b"between")])
                yield None, b"%d" % number + bytes(1_000_000), 77
            clock.advance(5000)

        info = log.append(generator())
        stamps = [record.timestamp for record in log.read()]
        assert stamps == sorted(stamps) and stamps[0] == NOW and stamps[-1] == info.log_append_time == NOW + 10_000
        assert NOW + 5000 in stamps and info.max_timestamp == NOW + 10_000
        assert log.list_offset("max_timestamp").timestamp == NOW + 10_000
        assert not log.verify().problems


def test_each_group_of_a_slow_generator_has_its_own_time(tmp_path: Path) -> None:
    """timestamp None means the time of the group; message.timestamp.before.max.ms and after.max.ms count from that
    time, too."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, message_timestamp_after_max_ms=1000) as log:

        def generator() -> Iterator[tuple[None, bytes, int | None]]:
            for number in range(20):
                if number == 16:
                    clock.advance(60_000)
                yield None, b"%d" % number + bytes(1_000_000), NOW + 60_000 if number == 19 else None

        log.append(generator())
        stamps = [record.timestamp for record in log.read()]
        assert stamps[0] == NOW and stamps[-2:] == [NOW + 60_000] * 2


# ---- compacted topics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_compacted_topic_needs_keys(tmp_path: Path, policy: str, compression: str) -> None:
    with one_log(tmp_path, cleanup_policy=policy) as log:
        log.append([(b"", b"an empty key is a key")], compression=compression)
        with pytest.raises(
            InvalidRecord, match="^Compacted topic cannot accept message without key: record 1"
        ) as caught:
            log.append([(b"k", b"v"), (None, b"v")], compression=compression)
        assert caught.value.code == 87
        assert log.log_end_offset == 1


# ---- leader epochs --------------------------------------------------------------------------------------------------


def test_the_first_append_begins_epoch_zero_and_later_ones_use_the_latest_epoch(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        assert log.leader_epochs == []
        log.append([(None, b"a")])
        assert log.leader_epochs == [(0, 0)]
        assert (tmp_path / "events-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    (tmp_path / "events-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 1\n")
    with one_log(tmp_path) as log:
        assert log.leader_epochs == [(0, 0)]  # an epoch that begins at the log end has no records: dropped at load
    (tmp_path / "events-0" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    with one_log(tmp_path) as log:  # the batches have another epoch, which is used
        assert log.leader_epochs == [(0, 0)]
        log.append_batches(klog.record.encode([(None, b"b")], base_offset=1, leader_epoch=7), origin="replication")
        log.append([(None, b"c")])
        assert [record.leader_epoch for record in log.read()] == [0, 7, 7]
        assert log.leader_epochs == [(0, 0), (7, 1)]


# ---- durability -----------------------------------------------------------------------------------------------------


def test_a_flush_follows_every_flush_messages_records(tmp_path: Path) -> None:
    with one_log(tmp_path, flush_messages=3) as log:
        log.append([(None, b"x")] * 2)
        assert log.recovery_point == 0
        log.append([(None, b"x")])
        assert log.recovery_point == 3


def test_flush_ms_flushes_with_the_next_append(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, flush_ms=1000) as log:
        log.append([(None, b"x")])
        clock.advance(999)
        log.append([(None, b"x")])
        assert log.recovery_point == 0
        clock.advance(1)
        log.append([(None, b"x")])
        assert log.recovery_point == 3


def test_appending_leaves_no_garbage_for_the_collector(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        records = [(b"k", b"v")]
        log.append(records)
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                log.append(records)
            assert gc.collect() == 0
        finally:
            gc.enable()
