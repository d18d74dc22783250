"""A leader's validation of produced batches. Names with lv… refer to the statements of Kafka's LogValidatorTest."""

from __future__ import annotations

import gc
import pickle
import random
import sys
import threading

import pytest

from klog import LogConfig
from klog.codec import compress, decompress
from klog.errors import CorruptBatch, DecompressionLimit, InvalidRecord, InvalidTimestamp, UnsupportedCompression
from klog.record import Record, TimestampType, ValidatedBatch, decode, encode, iter_records, validate, validate_append
from klog.record.control import marker
from tests.support import legacy_reference as legacy
from tests.support.legacy_reference import Message
from tests.support.memory import peak_bytes
from tests.support.produced import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    COUNT,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    batch_of,
    override,
)
from tests.support.reference import ReferenceRecord

NOW = 1_700_000_000_000
OFFSET = 1_234_567
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TARGETS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
OFFSETS, MAGICS = "InvalidOffsetOrSequenceRecordsPerSec", "InvalidMagicNumberRecordsPerSec"
NO_KEY, CRCS = "NoKeyCompactedTopicRecordsPerSec", "InvalidMessageCrcRecordsPerSec"

every_codec = pytest.mark.parametrize("codec", CODECS)
every_pair = pytest.mark.parametrize(("codec", "target"), [(codec, target) for codec in CODECS for target in TARGETS])


def take(data: bytes, config: dict | LogConfig | None = None, **options) -> ValidatedBatch:
    return validate_append(data, config or {}, **({"offset": OFFSET, "now": NOW} | options))


def refused(data: bytes, config: dict | None = None, **options) -> InvalidRecord | InvalidTimestamp:
    with pytest.raises((InvalidRecord, InvalidTimestamp)) as caught:
        take(data, config, **options)
    return caught.value


def rows(data) -> list[tuple]:
    return [(r.offset, r.key, r.value, r.timestamp, r.headers) for r in iter_records(data, include_control=True)]


def records(count: int, *, timestamp: int = NOW, key: bytes | None = b"k") -> list[tuple]:
    return [(key, b"value %d" % n, timestamp + n if timestamp >= 0 else -1, [("h", b"%d" % n)]) for n in range(count)]


def expected(count: int, **options) -> list[tuple]:
    made = records(count, **options)
    return [(OFFSET + n, key, value, at, tuple(headers)) for n, (key, value, at, headers) in enumerate(made)]


def batch(count: int, codec: str = "none", *, timestamp: int = NOW, key: bytes | None = b"k", **fields) -> bytes:
    return encode(records(count, timestamp=timestamp, key=key), compression=codec, **fields)


def messages(
    magic: int, count: int, *, offsets: list[int] | None = None, timestamp: int = NOW, key: bytes | None = b"k"
):
    return [
        legacy.encode_message(
            Message(magic, n, key, b"value %d" % i, timestamp + i if magic and timestamp >= 0 else -1)
        )
        for i, n in enumerate(offsets or range(count))
    ]


def wrapper(magic: int, codec: str, inner: list[bytes], *, offset: int | None = None, attributes: int = 0) -> bytes:
    number = CODECS.index(codec)
    last = int.from_bytes(inner[-1][:8], "big") if offset is None else offset
    payload = bytes(compress(number, b"".join(inner)))
    return legacy.encode_message(Message(magic, last, None, payload, NOW if magic else -1, number | attributes))


def legacy_rows(count: int, magic: int) -> list[tuple]:
    return [(OFFSET + n, b"k", b"value %d" % n, NOW + n if magic else -1, ()) for n in range(count)]


# Structure ------------------------------------------------------------------------------------------------------------


@every_codec
def test_lv1_inner_offsets_with_gaps_are_refused(codec: str) -> None:
    gaps = [Record(b"k", b"v", NOW), Record(b"k", b"w", NOW)]
    data = encode(gaps, compression=codec, last_offset_delta=2)  # 0, 1 … 2
    assert refused(data).meters == {OFFSETS: 1}
    for deltas in ([0, 2], [1, 0], [0, 0], [1, 2]):
        made = [ReferenceRecord(b"k", b"v", NOW, (), delta) for delta in deltas]
        mismatched = batch_of(made, codec=CODECS.index(codec))  # a header with offsets 0 and 1
        for target in TARGETS:
            error = refused(mismatched, {"compression.type": target})
            assert type(error) is InvalidRecord and error.meters == {OFFSETS: 1} and not error.record_errors
            assert f"record {next(n for n in range(2) if deltas[n] != n)} of 2" in str(error)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_lv1_inner_offsets_of_older_formats_are_reassigned(magic: int, codec: str) -> None:
    data = wrapper(magic, codec, messages(magic, 3, offsets=[0, 7, 3]), offset=9)
    assert rows(take(data)) == legacy_rows(3, magic)


@every_codec
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip"])
def test_lv2_a_request_has_one_batch(codec: str, target: str) -> None:
    two = batch(2, codec) + batch(2, codec)
    assert refused(two, {"compression.type": target}).meters == {}
    if codec in ("gzip", "snappy", "lz4"):
        wrapped = wrapper(1, codec, messages(1, 2))
        refused(wrapped + wrapped, {"compression.type": target})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("magic", [0, 1])
def test_lv2_a_request_may_have_many_plain_messages_of_older_formats(magic: int, target: str) -> None:
    batches = take(b"".join(messages(magic, 5)), {"compression.type": target})
    assert rows(batches) == legacy_rows(5, magic)
    (header,) = decode(batches)
    assert header.compression == ("none" if target in ("producer", "uncompressed") else target)
    assert (header.count, header.magic, header.producer_id) == (5, 2, -1)


@every_pair
def test_lv3_a_batch_without_records(codec: str, target: str) -> None:
    empty = override(batch_of([], codec=CODECS.index(codec)), (LAST_OFFSET_DELTA, 0))
    assert refused(empty, {"compression.type": target}).meters == {OFFSETS: 1}


@every_codec
@pytest.mark.parametrize(
    ("delta", "count", "meters"),
    [(0, 3, {OFFSETS: 1}), (15, 3, {OFFSETS: 1}), (-3, 3, {OFFSETS: 1}), (5, 6, {}), (0, 1, {}), (1, 2, {})],
)
def test_lv4_a_record_count_that_does_not_match(codec: str, delta: int, count: int, meters: dict) -> None:
    data = override(batch(3, codec), (LAST_OFFSET_DELTA, delta), (COUNT, count))
    error = refused(data)
    assert type(error) is InvalidRecord and error.meters == meters


@every_codec
def test_lv4_a_record_count_that_matches(codec: str) -> None:
    assert take(override(batch(3, codec), (LAST_OFFSET_DELTA, 2), (COUNT, 3))).count == 3


@every_codec
def test_lv5_negative_sequences_and_falling_offsets(codec: str) -> None:
    data = batch(2, codec)
    assert refused(override(data, (PRODUCER_ID, 7), (BASE_SEQUENCE, -2))).meters == {OFFSETS: 1}
    assert take(override(data, (BASE_SEQUENCE, -2))).count == 2  # not checked without a producer id
    assert refused(override(data, (LAST_OFFSET_DELTA, -1))).meters == {OFFSETS: 1}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_lv6_lv20_messages_of_another_magic(codec: str) -> None:
    error = refused(wrapper(1, codec, messages(0, 20)))
    assert type(error) is InvalidRecord and error.meters == {MAGICS: 20}
    assert [it.batch_index for it in error.record_errors] == list(range(20))
    assert str(error).count("magic") == 3 and str(error).endswith("and 17 more")
    mixed = messages(1, 3) + messages(0, 1)
    assert [it.batch_index for it in refused(wrapper(1, codec, mixed)).record_errors] == [3]


def test_lv6_batches_of_another_magic() -> None:
    assert refused(b"".join(messages(1, 2) + messages(0, 1))).meters == {MAGICS: 1}
    assert refused(b"".join(messages(1, 2)) + batch(1)).meters == {MAGICS: 1}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_lv7_checksums_of_inner_messages(magic: int, codec: str) -> None:
    inner = messages(magic, 3)
    inner[1] = inner[1][:12] + b"\0\1\2\3" + inner[1][16:]
    with pytest.raises(CorruptBatch, match="message 1 in a wrapper") as caught:
        take(wrapper(magic, codec, inner))
    assert caught.value.kind == "crc" and caught.value.meters == {CRCS: 1}


@pytest.mark.parametrize("data", [batch(2), batch(2, "lz4"), *messages(0, 1), *messages(1, 1)], ids=len)
def test_checksums_of_whole_batches(data: bytes) -> None:
    for at in range(21 if data[16] == 2 else 17, len(data)):
        broken = data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :]
        with pytest.raises(CorruptBatch) as caught:
            take(broken)
        assert caught.value.kind == "crc" and caught.value.meters == {CRCS: 1}


@every_pair
def test_lv8_keys_on_a_compacted_topic(codec: str, target: str) -> None:
    config = {"cleanup.policy": "compact,delete", "compression.type": target}
    data = encode([(b"k", b"v", NOW), (None, b"w", NOW), (b"", b"", NOW), (None, None, NOW)], compression=codec)
    error = refused(data, config)
    assert type(error) is InvalidRecord and error.meters == {NO_KEY: 2}
    assert [it.batch_index for it in error.record_errors] == [1, 3]
    assert error.record_errors[0].message.startswith("Compacted topic cannot accept message without key")
    assert take(batch(3, codec), config).count == 3
    assert take(data, {"compression.type": target}).count == 4


@pytest.mark.parametrize("magic", [0, 1])
def test_lv8_lv22_in_the_older_formats(magic: int) -> None:
    config = {"cleanup.policy": "compact"}
    keyless = messages(magic, 1, key=None)[0]
    inside = refused(wrapper(magic, "gzip", [*messages(magic, 2), keyless, keyless]), config)
    assert [it.batch_index for it in inside.record_errors] == [2, 3] and inside.meters == {NO_KEY: 2}
    alone = refused(b"".join([*messages(magic, 2), keyless, keyless]), config)
    assert [it.batch_index for it in alone.record_errors] == [0] and alone.meters == {NO_KEY: 1}


@pytest.mark.parametrize("target", TARGETS)
def test_lv9_control_batches(target: str) -> None:
    data = encode(
        [(*marker("commit", 3), NOW)], is_control=True, is_transactional=True, producer_id=1, producer_epoch=0
    )
    config = {"compression.type": target}
    assert refused(data, config).meters == {OFFSETS: 1}
    taken = take(data, config, origin="coordinator")
    (header,) = decode(taken)
    assert (header.compression, header.control_type, header.base_offset) == ("none", "commit", OFFSET)
    assert bytes(taken)[21:] == data[21:] and not taken.message_size_maybe_changed


def test_lv10_zstd_for_older_peers() -> None:
    for data, config in ((batch(1), {"compression.type": "zstd"}), (batch(1, "zstd"), {})):
        with pytest.raises(UnsupportedCompression):
            take(data, config, takes_zstd=False)
        assert take(data, config).compression == "zstd"
    assert take(batch(1, "lz4"), takes_zstd=False).compression == "lz4"


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_requires_magic_2(magic: int) -> None:
    assert "zstd" in str(refused(wrapper(magic, "zstd", messages(magic, 1))))


# Timestamps -----------------------------------------------------------------------------------------------------------


@every_pair
def test_lv11_log_append_time(codec: str, target: str) -> None:
    config = {"message.timestamp.type": "LogAppendTime", "compression.type": target}
    taken = take(batch(3, codec, timestamp=NOW - 10**11), config, now=NOW + 5)  # not range-checked
    (header,) = decode(taken)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert taken.max_timestamp == taken.log_append_time == header.max_timestamp == NOW + 5
    assert taken.shallow_offset_of_max_timestamp == OFFSET + 2
    assert [record.timestamp for record in header] == [NOW + 5] * 3
    same = target in ("producer", codec if codec != "none" else "uncompressed")
    assert header.compression == (codec if same else target.replace("uncompressed", "none"))
    assert taken.message_size_maybe_changed is not same
    assert validate(taken) == 3


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_lv11_log_append_time_of_the_older_formats(magic: int, codec: str | None) -> None:
    inner = messages(magic, 3)
    data = wrapper(magic, codec, inner) if codec else b"".join(inner)
    taken = take(data, {"message.timestamp.type": "LogAppendTime"}, now=NOW + 5)
    assert [row[3] for row in rows(taken)] == [NOW + 5] * 3
    assert taken.max_timestamp == NOW + 5 and taken.compression == (codec or "none")


@every_codec
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_lv11_a_producer_cannot_send_log_append_time(codec: str, kind: str) -> None:
    data = batch(3, codec, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=NOW)
    error = refused(data, {"message.timestamp.type": kind})
    assert type(error) is InvalidTimestamp and len(error.record_errors) == 3
    if codec in ("gzip", "snappy", "lz4"):
        wrapped = wrapper(1, codec, messages(1, 2), attributes=8)
        assert type(refused(wrapped, {"message.timestamp.type": kind})) is InvalidTimestamp


@every_pair
def test_lv12_create_time(codec: str, target: str) -> None:
    data = encode([(b"k", b"v", at) for at in (NOW + 3, NOW - 1, NOW + 8, -1, NOW)], compression=codec)
    for given in (data, override(data, (MAX_TIMESTAMP, NOW + 77)), override(data, (MAX_TIMESTAMP, -1))):
        taken = take(given, {"compression.type": target})
        (header,) = decode(taken)
        assert taken.max_timestamp == header.max_timestamp == NOW + 8
        assert taken.shallow_offset_of_max_timestamp == taken.last_offset == OFFSET + 4
        assert taken.log_append_time == -1
        assert [record.timestamp for record in header] == [NOW + 3, NOW - 1, NOW + 8, -1, NOW]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("target", TARGETS)
def test_lv13_the_older_formats_become_magic_2(codec: str | None, target: str) -> None:
    for magic in (0, 1):
        inner = messages(magic, 4)
        data = wrapper(magic, codec, inner) if codec else b"".join(inner)
        taken = take(data, {"compression.type": target}, leader_epoch=9)
        assert rows(taken) == legacy_rows(4, magic)
        assert taken.max_timestamp == (NOW + 3 if magic else -1)
        assert taken.shallow_offset_of_max_timestamp == (OFFSET + 3 if magic else -1)
        assert taken.message_size_maybe_changed and taken.conversion_count == 4
        assert taken.compression == (
            codec or "none" if target == "producer" else target.replace("uncompressed", "none")
        )
        (header,) = decode(taken)
        assert (header.leader_epoch, header.base_timestamp) == (9, NOW if magic else -1)


@every_codec
def test_lv14_recompression_keeps_the_producer(codec: str) -> None:
    producer = {"producer_id": 1324, "producer_epoch": 10, "base_sequence": 984, "is_transactional": True}
    target = "gzip" if codec != "gzip" else "zstd"
    data = encode([(None, b"a", NOW), (None, b"b", NOW + 1), (None, b"c", NOW)], compression=codec, **producer)
    taken = take(data, {"compression.type": target}, leader_epoch=5)
    (header,) = decode(taken)
    assert {name: getattr(header, name) for name in producer} == producer
    assert (header.leader_epoch, header.compression, header.base_timestamp) == (5, target, NOW)
    assert (taken.max_timestamp, taken.shallow_offset_of_max_timestamp) == (NOW + 1, OFFSET + 2)
    assert taken.message_size_maybe_changed and taken.conversion_count == 3
    assert [record.sequence for record in header] == [984, 985, 986]


@every_pair
@pytest.mark.parametrize("at", [NOW - 1001, NOW + 2001])
def test_lv15_timestamps_too_old_or_too_new(codec: str, target: str, at: int) -> None:
    config = {
        "message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 2000, "compression.type": target,
    }  # fmt: skip
    error = refused(encode([(b"k", b"v", at)] * 3, compression=codec), config)
    assert type(error) is InvalidTimestamp and error.meters == {}
    assert [it.batch_index for it in error.record_errors] == [0, 1, 2]
    assert f"timestamp {at} is outside [{NOW - 1000}, {NOW + 2000}]" in error.record_errors[2].message
    edges = [(b"k", b"v", NOW - 1000), (b"k", b"v", NOW + 2000)]
    assert take(encode(edges, compression=codec), config).max_timestamp == NOW + 2000
    if codec in ("gzip", "snappy", "lz4"):
        wrapped = wrapper(1, codec, messages(1, 3, timestamp=at + 10 if at > NOW else at - 10))
        assert len(refused(wrapped, config).record_errors) == 3


@every_pair
def test_lv16_no_timestamp_is_always_accepted(codec: str, target: str) -> None:
    config = {"message.timestamp.before.max.ms": 0, "message.timestamp.after.max.ms": 0, "compression.type": target}
    taken = take(batch(3, codec, timestamp=-1), config)
    assert (taken.max_timestamp, taken.shallow_offset_of_max_timestamp) == (-1, -1)
    assert [record.timestamp for record in iter_records(taken)] == [-1] * 3


@pytest.mark.parametrize("before", [0, 2**63 - 1])
@pytest.mark.parametrize("after", [0, 2**63 - 1])
def test_bounds_at_the_end_of_64_bits(before: int, after: int) -> None:
    config = {"message.timestamp.before.max.ms": before, "message.timestamp.after.max.ms": after}
    for at in (0, 1, NOW - 1, NOW, NOW + 1, 2**63 - 1):
        good = NOW - before <= at <= NOW + after
        data = encode([(b"k", b"v", at)])
        if good:
            assert take(data, config).max_timestamp == at
        else:
            assert type(refused(data, config)) is InvalidTimestamp


def test_negative_timestamps_are_kept_but_not_written() -> None:
    data = batch_of([ReferenceRecord(b"k", b"v", -5, (), 0), ReferenceRecord(b"k", b"v", NOW, (), 1)])
    assert [record.timestamp for record in iter_records(take(data))] == [-5, NOW]
    error = refused(data, {"compression.type": "lz4"})
    assert type(error) is InvalidTimestamp and [it.batch_index for it in error.record_errors] == [0]


# Offsets and policies -------------------------------------------------------------------------------------------------


@every_pair
@pytest.mark.parametrize("base_offset", [0, 77])
def test_lv17_offsets_from_a_cursor(codec: str, target: str, base_offset: int) -> None:
    cursor = OFFSET
    for count in (1, 3, 200):
        taken = take(batch(count, codec, base_offset=base_offset), {"compression.type": target}, offset=cursor)
        assert [record.offset for record in iter_records(taken)] == list(range(cursor, cursor + count))
        assert (taken.first_offset, taken.last_offset, taken.count) == (cursor, cursor + count - 1, count)
        cursor = taken.last_offset + 1
        assert validate(taken) == count
    assert cursor == OFFSET + 204


@every_pair
def test_lv18_the_payload_stays_unchanged(codec: str, target: str) -> None:
    data = batch(50, codec)
    taken = take(data, {"compression.type": target}, leader_epoch=4)
    same = target in ("producer", codec if codec != "none" else "uncompressed")
    assert taken.message_size_maybe_changed is not same
    assert taken.conversion_count == (0 if same else 50)
    if same:
        patched = OFFSET.to_bytes(8, "big") + data[8:12] + (4).to_bytes(4, "big") + data[16:]
        assert bytes(taken) == patched  # not even the checksum changes
    assert rows(taken) == expected(50)


def test_rewritten_batches_equal_those_of_encode() -> None:
    for codec in CODECS[1:]:
        taken = take(batch(50, codec), {"compression.type": "uncompressed"}, leader_epoch=4)
        assert bytes(taken) == batch(50, base_offset=OFFSET, leader_epoch=4)


def test_lv19_levels() -> None:
    quick, tight = batch(300, ("gzip", 1)), batch(300, ("gzip", 9))
    assert quick[61:] != tight[61:]
    taken = take(quick, {"compression.type": "gzip", "compression.gzip.level": 9})
    assert bytes(taken)[61:] == quick[61:]
    config = {"compression.type": "lz4", "compression.lz4.level": 12}
    taken = take(quick, config)
    assert bytes(taken)[61:] == compress(LZ4, decompress(GZIP, quick[61:], 1 << 20), 12)
    assert bytes(take(batch(300), config)) == bytes(taken)


@every_codec
def test_lv21_lv22_key_and_timestamp_errors_together(codec: str) -> None:
    mixed = [(None, b"v", NOW), (b"k", b"v", NOW), (b"k", b"v", 5), (None, b"v", 5), (b"k", b"v", NOW), (b"k", b"v", 6)]
    config = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": 1000}
    error = refused(encode(mixed, compression=codec), config)
    assert type(error) is InvalidTimestamp and error.meters == {NO_KEY: 2}
    assert [it.batch_index for it in error.record_errors] == [0, 2, 3, 5]
    assert ["key" in it.message for it in error.record_errors] == [True, False, True, False]
    six = refused(encode([(None, b"v", NOW), (b"k", b"v", 5)] * 3, compression=codec), config)
    assert type(six) is InvalidTimestamp and [it.batch_index for it in six.record_errors] == list(range(6))
    assert str(six).startswith("6 of 6 records") and str(six).endswith("and 3 more")


# The call -------------------------------------------------------------------------------------------------------------


def test_the_buffer_is_neither_changed_nor_held() -> None:
    for given in (bytearray(batch(3)), bytearray(batch(3, "lz4")), bytearray(b"".join(messages(1, 3)))):
        before = bytes(given)
        for config in ({}, {"compression.type": "gzip"}, {"message.timestamp.type": "LogAppendTime"}):
            taken = take(given, config)
            assert bytes(given) == before
            given += b"x"  # no reference is left
            given[:] = before
            kept = bytes(taken)
            given[:] = bytes(len(given))
            assert bytes(taken) == kept
            given[:] = before
    assert take(memoryview(b"." + batch(2))[1:]).count == 2


def test_the_result_is_a_read_only_buffer(tmp_path) -> None:
    taken = take(batch(3))
    assert len(taken) == taken.size == taken.data.nbytes == len(bytes(taken)) == len(batch(3))
    assert taken.data.readonly and memoryview(taken).readonly
    assert "first_offset=1234567" in repr(taken)
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.write(taken)
    assert path.read_bytes() == bytes(taken)
    view = taken.data
    kept = bytes(taken)
    del taken
    for n in range(50):
        take(batch(n + 1))
    assert view == kept
    with pytest.raises(TypeError):
        ValidatedBatch()


def test_configurations() -> None:
    class Other(LogConfig):
        pass

    for config in (
        LogConfig({"compression.type": "lz4"}),
        {"compression_type": "lz4"},
        Other({"compression.type": "lz4"}),
    ):
        for _ in range(2):
            assert take(batch(1), config).compression == "lz4"
    for n in range(200):  # more than are cached
        assert take(batch(1), LogConfig({"compression.type": CODECS[1 + n % 4]})).compression == CODECS[1 + n % 4]


@pytest.mark.parametrize("origin", ["replication", "raft", "Client", ""])
def test_unsupported_origins(origin: str) -> None:
    with pytest.raises(ValueError, match="origin"):
        take(batch(1), origin=origin)


@pytest.mark.parametrize("offset", [-1, 2**63 - 1, 2**63 - 3])
def test_offsets_that_do_not_fit(offset: int) -> None:
    for data in (batch(3), batch(3, "lz4"), b"".join(messages(1, 3))):
        with pytest.raises(ValueError, match="63 bits"):
            take(data, offset=offset)
    assert take(batch(3), offset=2**63 - 4).last_offset == 2**63 - 2


def test_empty_and_truncated_requests() -> None:
    assert "no whole batch" in str(refused(b""))
    for data in (batch(2), batch(2, "zstd"), *messages(0, 1), *messages(1, 1)):
        for cut in range(1, len(data)):
            with pytest.raises(CorruptBatch):
                take(data[:cut])
        for cut in range(12, len(data)):  # a truncated batch at the end is not part of the request
            assert bytes(take(data + data[:cut])) == bytes(take(data))


def test_unused_bits_are_cleared_when_the_checksum_is_rewritten() -> None:
    data = override(batch(2), (ATTRIBUTES, 0x7F00))
    assert bytes(take(data))[21:] == data[21:]
    assert bytes(take(override(data, (MAX_TIMESTAMP, 5)))) == bytes(take(batch(2)))


def test_overlong_varints_are_rewritten_minimally() -> None:
    made = [ReferenceRecord(b"k", b"v" * n, NOW + n, (("h", None),), n) for n in range(3)]
    loose, tight = batch_of(made, loose=True), batch_of(made)
    assert len(loose) > len(tight)
    assert bytes(take(loose))[21:] == loose[21:]
    squeezed = take(take(loose, {"compression.type": "lz4"}).data, {"compression.type": "uncompressed"})
    assert bytes(squeezed) == bytes(take(tight))


def test_a_compression_bomb_stops_at_the_limit() -> None:
    data = batch_of([ReferenceRecord(b"k", bytes(80 << 20), NOW, (), 0)], codec=ZSTD)
    inner = legacy.encode_message(Message(1, 0, b"k", bytes(80 << 20), NOW))
    for bomb in (data, wrapper(1, "gzip", [inner])):
        with pytest.raises(DecompressionLimit):
            take(bomb)


def test_a_payload_is_not_recompressed_to_one_that_readers_would_take_for_a_bomb() -> None:
    """lz4 does not find repetitions 1 MiB apart, zstd does."""
    value = random.Random(1).randbytes(1 << 20) * 9 + bytes(58 << 20)
    for data in (
        encode([(None, value, NOW)], compression="lz4"),
        wrapper(1, "lz4", [legacy.encode_message(Message(1, 0, None, value, NOW))]),
    ):
        taken = take(data, {"compression.type": "zstd", "max.message.bytes": 1 << 30})
        assert taken.compression == "none"
        assert [record.value for record in iter_records(taken.data)] == [value]


def test_a_hundred_thousand_bad_records_take_little_memory() -> None:
    data = encode([(None, None, 5)] * 100_000)
    config = {"cleanup.policy": "compact"}
    error = refused(data, config)
    assert len(error.record_errors) == 100_000 and error.meters == {NO_KEY: 100_000}
    assert error.record_errors[-1].batch_index == 99_999
    assert peak_bytes(lambda: refused(data, config)) < 12 << 20
    assert len(str(error)) < 400


def test_record_errors_are_a_sequence() -> None:
    error = refused(encode([(None, b"v", NOW)] * 3), {"cleanup.policy": "compact"})
    errors = error.record_errors
    assert errors == list(errors) and errors != list(errors)[:2] and errors != 3
    assert list(errors[1:]) == [errors[1], errors[2]] and errors[-1].batch_index == 2
    with pytest.raises(IndexError):
        errors[3]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is InvalidRecord and again.record_errors == errors and again.meters == error.meters
    assert InvalidRecord("x").record_errors == () and InvalidTimestamp("x").meters == {}


def test_validation_leaks_no_memory() -> None:
    good, bad = batch(20, "lz4"), encode([(None, b"v", NOW)] * 20)
    config = LogConfig({"cleanup.policy": "compact", "compression.type": "gzip"})

    def blocks_after(rounds: int) -> int:
        for _ in range(rounds):
            take(good, config)
            with pytest.raises(InvalidRecord):
                take(bad, config)
        gc.collect()
        return sys.getallocatedblocks()

    before = blocks_after(300)
    assert blocks_after(3000) < before + 100


def test_threads_validate_concurrently() -> None:
    given = [(batch(n, codec), n) for n in (1, 300, 6000) for codec in ("none", "lz4")]
    failures = []

    def work() -> None:
        for _ in range(5):
            for data, n in given:
                if validate(take(data)) != n or take(data, {"compression.type": "zstd"}).count != n:
                    failures.append(n)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
