import random
from collections.abc import Callable
from typing import Any

import pytest

from klog.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge, UnsupportedCompression
from klog.record import BatchGroup, Encoder, Record, TimestampType, decode, encode, iter_records, validate

T = 1_700_000_000_000
NOW = T + 1000


def encoder(records, **options) -> Encoder:
    settings = {
        "batch_bytes_max": 1000,
        "message_bytes_max": 1_048_588,
        "timestamp_default": NOW,
        "timestamp_min": 0,
        "timestamp_max": NOW + 3_600_000,
    }
    return Encoder(records, **(settings | options))


def groups(source: Encoder, bytes_max: int = 4000) -> list[BatchGroup]:
    out = []
    while (group := source.next_group(bytes_max)) is not None:
        out.append(group)
    return out


def all_records(found: list[BatchGroup]) -> list[Record]:
    return [record for group in found for record in iter_records(group)]


# Groups ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd", ("zstd", 9)])
def test_records_are_encoded_in_order(compression) -> None:
    rng = random.Random(5)
    records = [(b"%d" % n, rng.randbytes(rng.randrange(300)), T + n, [("n", b"%d" % n)]) for n in range(2000)]
    found = groups(encoder(iter(records), compression=compression))
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in all_records(found)] == records
    assert sum(group.count for group in found) == 2000
    for group in found:
        assert group.nbytes == len(bytes(group)) == memoryview(group).nbytes
        assert group.n == len(group) == len(list(decode(group)))
        assert validate(group) == group.count
        assert group.max_timestamp == max(record.timestamp for record in iter_records(group))
        offsets = [record.offset for record in iter_records(group)]
        assert offsets == list(range(group.count))


def plain(n: int) -> tuple[bytes | None, bytes | None, int | None]:
    """Records of all sizes up to 200, including empty and null values."""
    key = None if n % 41 == 40 else bytes([n % 251]) * (n % 41)
    value = None if n % 201 == 200 else bytes([n % 241]) * (n % 201)
    return key, value, None if n % 7 == 6 else T + n * n * n


def test_plain_tuples_encode_as_other_forms() -> None:
    """Exact tuples of bytes and ints take the builder's fast path."""
    forms = [plain(n) for n in range(9000)]
    expected = encode([Record(*form) for form in forms])
    assert encode(forms) == expected
    assert encode([list(form) for form in forms]) == expected
    assert encode([(*form, None) for form in forms]) == expected
    assert encode([(*form, []) for form in forms]) == expected
    assert encode(forms[n][: 2 if forms[n][2] is None else 3] for n in range(9000)) == expected


def generated(count: int):
    return ((*plain(n)[:2], T + n) for n in range(count))


def zipped(count: int):
    """zip reuses its tuple if no other reference exists."""
    return zip(
        (plain(n)[0] for n in range(count)), (plain(n)[1] for n in range(count)), range(T, T + count), strict=True
    )


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("source", [generated, zipped])
def test_the_builder_holds_a_tuple_until_it_is_written(source, compression) -> None:
    """Also a record that waits for the next group."""
    expected = list(generated(3000))
    found = []
    waiting = encoder(source(3000), compression=compression)
    while (group := waiting.next_group(1)) is not None:
        found.append(group)
        assert len([b"x" * size for size in range(201) for _ in range(3)]) == 603  # reuses any freed memory
    assert [(r.key, r.value, r.timestamp) for r in all_records(found)] == expected
    assert [(r.key, r.value, r.timestamp) for r in iter_records(encode(source(3000)))] == expected


def test_other_tuples_take_the_slow_path() -> None:
    class Stamp(int):
        def __index__(self) -> int:
            return T + 5

    class Key(bytes):
        pass

    class Row(tuple):
        pass

    rows = [
        (Key(b"k"), b"v", T),
        (b"k", bytearray(b"v"), T),
        Row((b"k", b"v", T)),
        (b"k", b"v", Stamp(3)),
    ]
    made = list(iter_records(encode(rows)))
    assert [(r.key, r.value) for r in made] == [(b"k", b"v")] * 4
    assert [r.timestamp for r in made] == [T, T, T, 3]


def test_batches_stay_within_their_size() -> None:
    found = groups(encoder([(None, bytes(90), T)] * 500))
    sizes = [batch.size for group in found for batch in decode(group)]
    assert max(sizes) <= 1000
    assert min(sizes[:-1]) > 1000 - 110  # full batches
    assert all(4000 <= group.nbytes < 5000 for group in found[:-1])


def test_a_batch_may_reach_the_limit_exactly() -> None:
    one = len(encode([(None, bytes(90), T)])) - 61
    exact = groups(encoder([(None, bytes(90), T)] * 8, batch_bytes_max=61 + 4 * one))
    assert [batch.count for group in exact for batch in decode(group)] == [4, 4]
    below = groups(encoder([(None, bytes(90), T)] * 8, batch_bytes_max=61 + 4 * one - 1))
    assert [batch.count for group in below for batch in decode(group)] == [3, 3, 2]


def test_a_single_larger_record_gets_a_batch_of_its_own() -> None:
    (group,) = groups(encoder([(None, b"a", T), (None, bytes(5000), T), (None, b"b", T)]), 10_000)
    assert [batch.count for batch in decode(group)] == [1, 1, 1]


def test_no_records() -> None:
    source = encoder([])
    assert source.next_group(1000) is None
    assert source.next_group(1000) is None


def test_assign_sets_offsets_and_epoch_outside_the_checksum() -> None:
    (group,) = groups(encoder([(None, bytes(90), T)] * 30), 1 << 20)
    before = [batch.crc for batch in decode(group)]
    for first_offset, leader_epoch in ((5000, 7), (12, 0), (2**63 - 31, 2**31 - 1)):
        group.assign(first_offset, leader_epoch)
        assert [batch.crc for batch in decode(group)] == before
        assert validate(group) == 30
        records = list(iter_records(group))
        assert [record.offset for record in records] == list(range(first_offset, first_offset + 30))
        assert {record.leader_epoch for record in records} == {leader_epoch}
    for first_offset in (-1, 2**63 - 30):
        with pytest.raises(ValueError, match="63 bits"):
            group.assign(first_offset, 0)


def test_groups_are_read_only_and_cannot_be_constructed() -> None:
    (group,) = groups(encoder([(None, b"v", T)]))
    with pytest.raises(TypeError):
        memoryview(group)[0] = 1
    with pytest.raises(TypeError, match="next_group"):
        BatchGroup()


def test_a_generator_is_read_only_as_far_as_needed() -> None:
    taken = 0

    def generate():
        nonlocal taken
        while True:
            taken += 1
            yield (None, bytes(90), T)

    source = encoder(generate())
    group = source.next_group(4000)
    assert taken == group.count + 1  # the record that did not fit waits for the next batch
    source.next_group(4000)
    assert taken < 2 * group.count + 3


def test_an_exhausted_iterable_is_not_called_again() -> None:
    class Odd:
        calls = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.calls += 1
            if self.calls not in (1, 3):
                raise StopIteration
            return (None, b"v", T)

    odd = Odd()
    assert sum(group.count for group in groups(encoder(odd))) == 1
    assert odd.calls == 2


def test_an_exception_of_the_iterable_propagates_and_ends_the_encoder() -> None:
    def generate():
        yield (None, bytes(90), T)
        raise RuntimeError("no more")

    source = encoder(generate())
    with pytest.raises(RuntimeError, match="no more"):
        source.next_group(1000)
    assert source.next_group(1000) is None


def test_an_encoder_is_not_reentrant() -> None:
    holder = []

    def generate():
        yield (None, b"v", T)
        with pytest.raises(ValueError, match="already executing"):
            holder[0].next_group(10)
        yield (None, b"w", T)

    holder.append(encoder(generate()))
    assert sum(group.count for group in groups(holder[0])) == 2


# Records in -----------------------------------------------------------------------------------------------------------


def test_forms_of_a_record() -> None:
    read = next(iter_records(encode([(b"read", b"before", T + 5, [("h", b"1")])], base_offset=77)))
    records = [
        (b"k", b"v"),
        (b"k", b"v", T),
        (b"k", b"v", None, [("h", None)]),
        [bytearray(b"k"), memoryview(b"xvx")[1:2], T, (("h", bytearray(b"1")),)],
        Record(b"k", b"v"),
        Record(b"k", b"v", -1),
        Record(b"k", b"v", T, [("h", b"1")]),
        read,
        (None, None, None, None),
    ]
    got = all_records(groups(encoder(records)))
    assert [(r.key, r.value, r.timestamp, r.headers) for r in got] == [
        (b"k", b"v", NOW, ()),
        (b"k", b"v", T, ()),
        (b"k", b"v", NOW, (("h", None),)),
        (b"k", b"v", T, (("h", b"1"),)),
        (b"k", b"v", NOW, ()),
        (b"k", b"v", -1, ()),
        (b"k", b"v", T, (("h", b"1"),)),
        (b"read", b"before", T + 5, (("h", b"1"),)),
        (None, None, NOW, ()),
    ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((b"k", "v"), r"record 1: the value is str, not bytes; use \.encode\(\)"),
        (("k", b"v"), r"record 1: the key is str, not bytes; use \.encode\(\)"),
        ((b"k", 5), "record 1: the value must be bytes or None, not int"),
        ((b"k", memoryview(b"vwx")[::2]), "record 1: the value must be bytes or None"),
        ((b"k",), "record 1 has 1 fields"),
        ((b"k", b"v", T, [], 5), "record 1 has 5 fields"),
        (b"kv", "record 1 must be a klog.Record or a tuple"),
        (None, "record 1 must be a klog.Record or a tuple"),
        ((b"k", b"v", 1.0), "record 1: the timestamp must be an int of milliseconds"),
        ((b"k", b"v", "now"), "record 1: the timestamp must be an int"),
        ((b"k", b"v", T, {"h": b"1"}), r"record 1: headers must be pairs .* use \.items\(\)"),
        ((b"k", b"v", T, [b"h"]), "record 1: a header must be a pair"),
        ((b"k", b"v", T, [(b"h", b"1")]), "record 1: a header key must be str, not bytes"),
        ((b"k", b"v", T, [("h", "1")]), r"record 1: the value of a header is str, not bytes; use \.encode\(\)"),
    ],
)
def test_wrong_records(record, message: str) -> None:
    for function in (lambda records: encoder(records).next_group(1000), encode):
        with pytest.raises(TypeError, match=message):
            function([(b"good", b"one"), record])


@pytest.mark.parametrize("records", ["text", b"bytes", {b"k": b"v"}, 5, None])
def test_a_non_iterable_raises(records) -> None:
    with pytest.raises(TypeError):
        encoder(records)


def test_a_list_may_change_its_length_during_encoding() -> None:
    """As when a list is iterated: records that are gone by then are not encoded, and new ones are."""

    class Changing:
        def __init__(self, change: Callable[[], object]) -> None:
            self.change = change

        def __index__(self) -> int:
            self.change()
            return T

    records: list[Any] = [(b"a", b"1", Changing(lambda: records.clear())), (b"b", b"2", T)]
    assert [got.key for got in all_records(groups(encoder(records)))] == [b"a"]
    records = [(b"a", b"1", Changing(lambda: records.append((b"c", b"3", T)))), (b"b", b"2", T)]
    assert [got.key for got in all_records(groups(encoder(records)))] == [b"a", b"b", b"c"]


def test_changes_to_a_record_during_encoding_have_no_effect() -> None:
    """Iterating over the headers runs the caller's code, which must not change the record's fields during the
    encoding."""
    record = [bytearray(b"key"), bytearray(b"value"), T]

    def headers():
        record.clear()
        yield ("h", b"1")

    record.append(headers())
    (got,) = all_records(groups(encoder([record])))
    assert (got.key, got.value, got.headers) == (b"key", b"value", (("h", b"1"),))


def test_buffers_of_records_are_released() -> None:
    value = bytearray(b"v" * 10)
    source = encoder(iter([(None, value, T), (None, b"w", T)]))
    groups(source)
    value.append(1)  # BufferError while a reference exists


# Timestamps, keys, sizes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp", [T - 1, T + 11, -2, -(2**63), 2**63 - 1])
def test_timestamps_outside_the_range_raise(timestamp: int) -> None:
    source = encoder([(None, b"v", T), (None, b"v", timestamp)], timestamp_min=T, timestamp_max=T + 10)
    with pytest.raises(InvalidTimestamp, match=f"record 1: timestamp {timestamp}"):
        source.next_group(1000)


def test_timestamps_at_the_edges_of_the_range_and_none() -> None:
    records = [(None, b"v", timestamp) for timestamp in (T, T + 10, -1)]
    assert len(all_records(groups(encoder(records, timestamp_min=T, timestamp_max=T + 10)))) == 3


def test_timestamp_past_64_bits() -> None:
    with pytest.raises(InvalidTimestamp, match="64 bits"):
        encoder([(None, b"v", 2**63)]).next_group(1000)


def test_log_append_time() -> None:
    found = groups(encoder([(None, b"v", 5), (None, b"w", None)], log_append_time=NOW, timestamp_min=T))
    (batch,) = decode(found[0])
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW)
    assert batch.base_timestamp == 5  # the deltas keep the producer's timestamps
    assert [record.timestamp for record in batch] == [NOW, NOW]
    assert found[0].max_timestamp == NOW


def test_key_required() -> None:
    source = encoder([(b"k", b"v"), (None, b"v")], key_required=True)
    with pytest.raises(InvalidRecord, match=r"^Compacted topic cannot accept message without key.* record 1"):
        source.next_group(1000)
    assert len(all_records(groups(encoder([(b"", b"v")], key_required=True)))) == 1


@pytest.mark.parametrize("compression", [None, "gzip", "lz4"])
def test_too_large(compression) -> None:
    value = random.Random(6).randbytes(5000)
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes = 4000"):
        encoder([(None, value, T)], message_bytes_max=4000, compression=compression).next_group(1000)


def test_a_batch_may_reach_max_message_bytes_exactly() -> None:
    size = len(encode([(None, bytes(500), T)]))
    assert encoder([(None, bytes(500), T)], message_bytes_max=size).next_group(1000).nbytes == size
    with pytest.raises(RecordTooLarge):
        encoder([(None, bytes(500), T)], message_bytes_max=size - 1).next_group(1000)


def test_compression_may_bring_a_record_below_the_limit() -> None:
    (group,) = groups(encoder([(None, bytes(50_000), T)], message_bytes_max=4000, compression="zstd"))
    assert next(decode(group)).compression == "zstd"


def test_a_batch_that_compression_enlarges_is_stored_plain() -> None:
    value = random.Random(7).randbytes(900)
    size = len(encode([(None, value, T)]))
    assert len(encode([(None, value, T)], compression="gzip")) > size
    (group,) = groups(encoder([(None, value, T)], message_bytes_max=size, compression="gzip"))
    (batch,) = decode(group)
    assert (batch.compression, batch.size) == ("none", size)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_readers_would_take_for_a_bomb_is_stored_plain(compression) -> None:
    (batch,) = decode(encode([(None, bytes(65 << 20), T)], compression=compression))
    (record,) = batch
    assert (batch.compression, len(record.value)) == ("none", 65 << 20)
    with pytest.raises(RecordTooLarge, match="more than max.message.bytes = 1000000"):
        groups(encoder([(None, bytes(65 << 20), T)], message_bytes_max=1_000_000, compression=compression))


def test_unknown_compression() -> None:
    with pytest.raises(UnsupportedCompression):
        encoder([], compression="brotli")


# encode() -------------------------------------------------------------------------------------------------------------


def test_encode_without_records_raises() -> None:
    with pytest.raises(ValueError, match="last_offset_delta"):
        encode([])


def test_encode_keeps_offsets_on_request() -> None:
    source = encode([(b"%d" % n, b"v", T + n) for n in range(10)], base_offset=50)
    kept = [record for record in iter_records(source) if record.offset % 3 == 0]
    data = encode(kept, base_offset=50, last_offset_delta=9, keep_offsets=True)
    (batch,) = decode(data)
    assert (batch.base_offset, batch.last_offset, batch.count) == (50, 59, 3)
    assert [record.offset for record in batch] == [51, 54, 57]
    for wrong in (reversed(kept), [kept[0], kept[0]], [(b"k", b"v")]):
        with pytest.raises(ValueError, match="does not rise"):
            encode(wrong, base_offset=50, keep_offsets=True)
    with pytest.raises(ValueError, match="below that of the last record"):
        encode(kept, base_offset=50, last_offset_delta=3, keep_offsets=True)


def test_encode_renumbers_records_by_default() -> None:
    source = list(iter_records(encode([(b"k", b"v", T)] * 5, base_offset=50)))
    assert [record.offset for record in iter_records(encode(source[2:], base_offset=7))] == [7, 8, 9]


@pytest.mark.parametrize("options", [{"base_offset": -1}, {"base_offset": 2**63 - 1}, {"last_offset_delta": -1}])
def test_encode_refuses_impossible_offsets(options) -> None:
    with pytest.raises(ValueError):
        encode([(b"k", b"v", T)], **options)


def test_encode_without_timestamps() -> None:
    (batch,) = decode(encode([(b"k", b"v"), Record(b"k", b"v")]))
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, -1)
    with pytest.raises(InvalidTimestamp):
        encode([(b"k", b"v", -2)])


def test_encode_timestamp_type() -> None:
    with pytest.raises(ValueError, match="CREATE_TIME or LOG_APPEND_TIME"):
        encode([(b"k", b"v")], timestamp_type=TimestampType.NO_TIMESTAMP)
