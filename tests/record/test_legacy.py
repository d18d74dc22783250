"""Magic 0 and 1: any bytes are read as Kafka's iterators read them."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from pathlib import Path

import lz4.frame
import pyarrow as pa
import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from klog.codec import compress
from klog.errors import CorruptBatch, DecompressionLimit
from klog.record import TimestampType, columns, decode, encode, iter_records, validate
from tests.support import golden
from tests.support import legacy_reference as reference
from tests.support.damage import INT32_HUGE, Step, flip, mutate, mutations
from tests.support.legacy_reference import Message, Row, encode_message, reseal, seal, wrap
from tests.support.memory import peak_bytes
from tests.support.reference import Malformed

T = 1_700_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def rows(data: bytes, **options) -> list[Row]:
    return [Row(r.offset, r.timestamp, int(r.timestamp_type), r.key, r.value) for r in iter_records(data, **options)]


def messages(magic: int, offsets: range | list[int]) -> list[bytes]:
    made = []
    for n in offsets:
        timestamp = T + n if magic else -1
        key, value = None if n % 3 == 0 else b"k%d" % n, None if n % 4 == 1 else b"v" * (n % 7)
        made.append(encode_message(Message(magic, n, key, value, timestamp)))
    return made


def wrapped(magic: int, codec: int, payload: bytes | None, *, offset: int = 9) -> bytes:
    return encode_message(Message(magic, offset, None, payload, T if magic else -1, codec))


# What Kafka wrote, and what it read --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loader_cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, golden.LoaderCase]:
    return golden.unpack_loader_cases(tmp_path_factory.mktemp("loader"))


@pytest.mark.parametrize("name", ["v1-tail-clean", "v1-tail-unclean"])
def test_a_log_that_ends_in_magic_1(name: str, loader_cases: dict[str, golden.LoaderCase]) -> None:
    case = loader_cases[name]
    logs = [path.read_bytes() for path in sorted((case.root / "before").glob("*/*.log"))]
    got = [golden.record_tuple(record) for data in logs for record in iter_records(data, include_control=True)]
    assert got == case.records
    assert [batch.magic for batch in decode(logs[-1])][-3:] == [2, 1, 1]
    assert sum(validate(data) for data in logs) == len(got)


def test_compacting_magic_1_leaves_what_kafkas_cleaner_leaves() -> None:
    """Kafka's outcome holds the latest record of each key, from plain messages and from gzip wrappers with gaps."""
    case = golden.HOME / "cleaner" / "legacy-v1"
    logs = [path.read_bytes() for path in sorted((case / "before").glob("*/*.log"))]
    records = [record for data in logs for record in iter_records(data)]
    assert [record.offset for record in records] == list(range(91))
    newest = {record.key: record for record in records}
    left = sorted(newest.values(), key=lambda record: record.offset)
    assert [golden.record_tuple(record) for record in left] == golden.read_records(case / "records.jsonl.gz")
    assert sum(validate(data) for data in logs) == 91
    assert {batch.compression for data in logs for batch in decode(data)} == {"none", "gzip"}


@pytest.mark.parametrize(
    ("magic", "text"),
    [
        (0, "1fecd70a 00 00 00000001 6b 00000001 76"),
        (1, "39268c33 01 00 0000018bcfe56800 00000001 6b 00000001 76"),
    ],
)
def test_the_examples_of_the_format_docs(magic: int, text: str) -> None:
    body = bytes.fromhex(text)
    data = (7).to_bytes(8, "big") + len(body).to_bytes(4, "big") + body
    assert rows(data) == [Row(7, T if magic else -1, 0 if magic else -1, b"k", b"v")]
    assert data == encode_message(Message(magic, 7, b"k", b"v", T))
    (batch,) = decode(data, path="x.log", file_position=100)
    assert (batch.magic, batch.base_offset, batch.last_offset, batch.next_offset, batch.count) == (magic, 7, 7, 8, 1)
    assert (batch.position, batch.size, bytes(batch.raw), batch.attributes) == (100, len(data), data, 0)
    assert (batch.crc, batch.compression) == (int.from_bytes(body[:4], "big"), "none")
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1, -1)
    assert batch.max_timestamp == batch.base_timestamp == (T if magic else -1)
    assert batch.timestamp_type is (TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP)
    assert (batch.is_control, batch.is_transactional, batch.delete_horizon_ms) == (False, False, None)
    (record,) = batch
    assert (record.headers, record.leader_epoch, record.producer_id, record.sequence) == ((), -1, -1, -1)


# Peers --------------------------------------------------------------------------------------------------------------

PEERS = [
    *(pytest.param(AioBuilder, m, c, id=f"aiokafka-{m}-{c}") for m in (0, 1) for c in range(4) if (m, c) != (0, LZ4)),
    *(
        pytest.param(KafkaPythonBuilder, m, c, id=f"kafka-python-{m}-{c}")
        for m, c in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 3))
    ),
]


@pytest.mark.parametrize(("builder", "magic", "codec"), PEERS)
def test_batches_of_other_clients_are_read(builder, magic: int, codec: int) -> None:
    """Their wrappers have offset 0. lz4 in magic 0 has a separate test: one client refuses it, the other needs a
    library for it."""
    made = builder(magic, codec, 1 << 30)
    want = []
    for n in range(2000):
        key, value = None if n % 5 == 0 else b"k%d" % n, None if n % 7 == 0 else b"value %d " % n * (n % 50)
        made.append(n, T + n * 13 % 100 if magic else None, key, value)
        want.append(Row(n, T + n * 13 % 100 if magic else -1, 0 if magic else -1, key, value))
    data = bytes(made.build())
    assert rows(data) == want
    assert rows(data, start=1990, stop=1995) == want[1990:1995]
    assert validate(data) == 2000
    assert columns(data).num_rows == 2000


# The format's own rules ---------------------------------------------------------------------------------------------


def test_offsets_of_magic_0_are_absolute() -> None:
    (batch,) = decode(wrap(0, 107, messages(0, [100, 103, 107])))
    assert [record.offset for record in batch] == [100, 103, 107]
    assert (batch.base_offset, batch.last_offset, batch.count) == (100, 107, 3)


@pytest.mark.parametrize("inner", [[0, 1, 2], [4, 5, 6], [0, 5, 6]])
def test_in_magic_1_the_wrapper_has_the_last_offset(inner: list[int]) -> None:
    (batch,) = decode(wrap(1, 1000, messages(1, inner), timestamp=T))
    assert [record.offset for record in batch] == [1000 - inner[-1] + n for n in inner]
    assert batch.last_offset == 1000


def test_a_wrapper_at_offset_0_has_no_offsets_assigned() -> None:
    for magic in (0, 1):
        (batch,) = decode(wrap(magic, 0, messages(magic, range(5))))
        assert [record.offset for record in batch] == list(range(5))
        assert batch.last_offset == 4


def test_log_append_time_comes_from_the_wrapper() -> None:
    inner = messages(1, range(3))
    data = wrap(1, 12, inner, timestamp=T + 77, attributes=GZIP | 8)
    assert [(row.timestamp, row.timestamp_type) for row in rows(data)] == [(T + 77, 1)] * 3
    (batch,) = decode(data)
    assert (batch.timestamp_type, batch.max_timestamp) == (1, T + 77)
    plain = encode_message(Message(1, 3, b"k", None, T + 5, 8))
    assert rows(plain) == [Row(3, T + 5, 1, b"k", None)]
    # The bit of an inner message has no meaning; magic 0 does not have it.
    marked = encode_message(Message(1, 0, None, b"v", T, 8))
    assert rows(wrap(1, 12, [marked], timestamp=T + 77)) == [Row(12, T, 0, None, b"v")]
    assert rows(encode_message(Message(0, 3, b"k", b"v", attributes=8))) == [Row(3, -1, -1, b"k", b"v")]


@pytest.mark.parametrize("magic", [0, 1])
def test_attribute_bits_of_magic_2_are_ignored(magic: int) -> None:
    """Control batches, transactions and delete horizons do not exist there."""
    data = encode_message(Message(magic, 3, b"k", b"v", T, 0xF0))
    (record,) = iter_records(data, include_control=False)
    assert (record.is_control, record.is_transactional, record.control_type) == (False, False, None)
    (batch,) = decode(data)
    assert (batch.attributes, batch.delete_horizon_ms, batch.control_type) == (0, None, None)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_codecs(magic: int, codec: int) -> None:
    made = messages(magic, range(50))
    data = wrapped(magic, codec, bytes(compress(codec, b"".join(made))), offset=49)
    assert rows(data) == [row for message in made for row in reference.decode(message)]
    (batch,) = decode(data)
    assert batch.compression == ("none", "gzip", "snappy", "lz4")[codec]


@pytest.mark.parametrize("size", [False, True])
def test_only_magic_0_may_have_the_wrong_lz4_header_checksum(size: bool) -> None:
    for magic in (0, 1):
        frame = bytearray(lz4.frame.compress(b"".join(messages(magic, range(10))), block_linked=False, store_size=size))
        frame[14 if size else 6] ^= 0x98  # without size: 0x1a, which old clients wrote instead of 0x82
        data = wrapped(magic, LZ4, bytes(frame))
        if magic == 0:
            assert len(rows(data)) == 10
            assert validate(data) == 10
            continue
        with pytest.raises(CorruptBatch, match="lz4"):
            rows(data)


def test_columns_of_magic_0_have_no_timestamps() -> None:
    data = wrap(0, 3, messages(0, range(4))) + b"".join(messages(1, [4])) + encode([(b"k", b"v", T)], base_offset=5)
    table = pa.table(pa.record_batch(columns(data)))
    table.validate(full=True)
    assert table["offset"].to_pylist() == list(range(6))
    assert table["timestamp_type"].to_pylist() == [-1, -1, -1, -1, 0, 0]
    assert table["timestamp"].null_count == 4
    records = list(iter_records(data))
    assert table["key"].to_pylist() == [record.key for record in records]
    assert table["value"].to_pylist() == [record.value for record in records]
    assert [record.timestamp_type for record in records] == [-1, -1, -1, -1, 0, 0]
    assert columns(data, start=2, stop=5).num_rows == 3


def test_all_three_magics_in_a_row() -> None:
    data = b"".join((*messages(0, [0]), wrap(1, 4, messages(1, range(4))), encode([(b"k", b"v", T)], base_offset=5)))
    assert [row.offset for row in rows(data)] == [0, 1, 2, 3, 4, 5]
    assert [row.offset for row in rows(data, start=3, stop=5)] == [3, 4]
    batches = list(decode(data))
    assert [(batch.magic, len(batch)) for batch in batches] == [(0, 1), (1, 4), (2, 1)]
    # Batches read in any order, and again, are the same: a cached wrapper is never used for another.
    for batch in [*reversed(batches), *batches]:
        assert [record.offset for record in batch] == list(range(batch.base_offset, batch.next_offset))


def test_a_wrapper_around_messages_of_the_other_magic() -> None:
    """Cleaners of Kafka 0.10 left some (KAFKA-4298). The magic of the wrapper decides how the offsets of its messages
    are computed; the magic of each message decides whether it has a timestamp."""
    outside_1 = wrap(1, 9, messages(0, [0, 1, 2]), timestamp=T + 50)
    outside_0 = wrap(0, 9, messages(1, [7, 8, 9]))
    assert [(row.offset, row.timestamp) for row in rows(outside_1)] == [(7, -1), (8, -1), (9, -1)]
    assert [(row.offset, row.timestamp) for row in rows(outside_0)] == [(7, T + 7), (8, T + 8), (9, T + 9)]
    for data in (outside_1, outside_0):
        assert (validate(data), columns(data).num_rows) == (3, 3)
        assert rows(data) == reference.decode(data)


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(wrapped(1, ZSTD, b"x"), "zstd", id="zstd"),
        pytest.param(wrapped(1, 6, b"x"), "codec bits 6", id="codec bits"),
        pytest.param(wrapped(1, GZIP, None), "null", id="null wrapper"),
        pytest.param(wrapped(0, GZIP, b""), "gzip", id="empty value"),
        pytest.param(wrap(1, 9, []), "without messages", id="no message"),
        pytest.param(wrap(1, 9, [wrap(1, 9, messages(1, [0]))]), "inside a compressed wrapper", id="nested"),
        pytest.param(wrap(1, 3, messages(1, [4])), "offsets", id="wrapper before its last"),
        pytest.param(wrap(0, 3, messages(0, [4])), "offsets", id="wrapper before its first"),
        pytest.param(wrap(1, 9, messages(1, [-(2**63)])), "offsets", id="offset overflow"),
        pytest.param(wrap(0, 2**32, messages(0, [0, 2**32])), "offsets", id="too far apart"),
        pytest.param(encode_message(Message(1, -1, None, None)), "offsets", id="negative offset"),
        pytest.param(encode_message(Message(1, 2**63 - 1, None, None)), "offsets", id="no next offset"),
        pytest.param(seal(9, b"\x01\0" + b"\0" * 12), "magic 1: a length", id="too short for magic 1"),
        pytest.param(seal(9, b"\0\0" + b"\0\0\0\1" * 2), "magic 0: a length", id="value cut"),
        pytest.param(
            encode_message(Message(-1, 9, None, None)), "magic -1 is not a record format", id="negative magic"
        ),
    ],
)
def test_errors_have_their_position(data: bytes, words: str) -> None:
    good = messages(1, [0])[0]
    for path in (None, "old.log"):
        for function in (lambda **o: list(decode(good + data, **o)), lambda **o: rows(good + data, **o), validate_at):
            options = {"path": path, "file_position": 1000}
            with pytest.raises(CorruptBatch, match=words) as caught:
                function(good + data, **options) if function is validate_at else function(**options)
            assert (caught.value.path, caught.value.position) == (path, 1000 + len(good))
    with pytest.raises(CorruptBatch, match=words):
        columns(good + data)


def validate_at(data: bytes, **options) -> int:
    return validate(data, **options)


@pytest.mark.parametrize("magic", [0, 1])
def test_checksums_of_inner_messages_are_checked(magic: int) -> None:
    inner = messages(magic, [0, 1, 2])
    inner[1] = inner[1][:-1] + b"\x07"
    data = wrap(magic, 2, inner)
    for function in (rows, validate, columns, lambda data: list(decode(data))):
        with pytest.raises(CorruptBatch, match="checksum of message 1 of 3") as caught:
            function(data)
        assert caught.value.kind == "crc"
    assert len(rows(data, verify_crc=False)) == 3
    (batch,) = decode(data, verify_crc=False)
    assert len(list(batch)) == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_readers_ignore_extra_bytes_and_validation_does_not(magic: int) -> None:
    """Bytes after a value, and half a message after the last one: Kafka's iterators ignore them."""
    slack = seal(3, messages(magic, [3])[0][16:] + b"!!")
    cut = wrap(magic, 2, [*messages(magic, range(3)), messages(magic, [3])[0][:-1]])
    inside = wrap(magic, 3, [*messages(magic, range(3)), slack])
    for data, count in ((slack, 1), (cut, 3), (inside, 4)):
        assert len(rows(data)) == count == columns(data).num_rows
        with pytest.raises(CorruptBatch, match="left over"):
            validate(data)


def test_validation_requires_rising_offsets() -> None:
    data = wrap(1, 9, messages(1, [0, 3, 2, 4]))
    assert [row.offset for row in rows(data)] == [5, 8, 7, 9]
    with pytest.raises(CorruptBatch) as caught:
        validate(data)
    assert caught.value.kind == "offset_order"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_compression_bombs_stop(magic: int, codec: int) -> None:
    payload = bytes(compress(codec, bytes((64 << 20) + 1)))
    data = wrapped(magic, codec, payload)
    for function in (rows, columns, validate):
        with pytest.raises(DecompressionLimit) as caught:
            function(data)
        assert (caught.value.position, caught.value.offset) == (0, 9)


def test_many_small_messages_take_little_memory() -> None:
    """The records of a set need fewer bytes than its messages; nothing is allocated by a count."""
    plain = b"".join(encode_message(Message(0, n, None, None)) for n in range(200_000))
    data = wrapped(0, GZIP, gzip.compress(plain), offset=199_999)
    counts = []
    assert peak_bytes(lambda: counts.append(sum(1 for _ in iter_records(data))), rounds=2) < 3 * len(plain)
    assert counts == [200_000] * 2


# Random bytes -------------------------------------------------------------------------------------------------------

MIXED = [
    *messages(0, [10]),
    wrap(0, 13, messages(0, [11, 12, 13])),
    *messages(1, [14]),
    wrap(1, 17, messages(1, range(3)), timestamp=T + 9, attributes=GZIP | 8),
    wrapped(1, LZ4, bytes(compress(LZ4, b"".join(messages(1, range(3))))), offset=20),
    wrapped(0, SNAPPY, bytes(compress(SNAPPY, b"".join(messages(0, [21, 22])))), offset=22),
]
COUNTS = [1, 3, 1, 3, 3, 2]


def read(data: bytes) -> tuple[list[Row], bool]:
    """The records, and whether the end was reached without an error."""
    got = []
    position = None
    try:
        for record in iter_records(data, start=-(2**63)):
            got.append(Row(record.offset, record.timestamp, int(record.timestamp_type), record.key, record.value))
    except CorruptBatch as error:
        position = error.position
    if position is None:
        return got, True
    assert 0 <= position <= len(data)
    return got, False


def without_offsets(found: list[Row]) -> list[tuple]:
    return [(row.timestamp, row.timestamp_type, row.key, row.value) for row in found]


def test_truncation_at_any_byte() -> None:
    data = b"".join(MIXED)
    whole = rows(data)
    ends, records = [0], [0]
    for piece, count in zip(MIXED, COUNTS, strict=True):
        ends.append(ends[-1] + len(piece))
        records.append(records[-1] + count)
    assert len(whole) == records[-1]
    for cut in range(len(data) + 1):
        number = max(i for i, end in enumerate(ends) if end <= cut)
        assert read(data[:cut]) == (whole[: records[number]], True)
        assert columns(data[:cut]).num_rows == records[number]
        assert sum(batch.count for batch in decode(data[:cut], allow_partial=True)) == records[number]
        if cut not in ends:
            with pytest.raises(CorruptBatch) as caught:
                validate(data[:cut])
            assert caught.value.position == ends[number]


def test_flip_any_bit() -> None:
    data = b"".join(MIXED)
    whole = rows(data)
    start = before = 0
    for piece, count in zip(MIXED, COUNTS, strict=True):
        for at in range(start, start + len(piece)):
            for bit in range(8):
                broken = flip(data, at, bit)
                got, well = read(broken)
                if well and at - start < 8:  # the offset is outside the checksum
                    assert without_offsets(got) == without_offsets(whole)
                else:
                    assert got == whole[:before]
                if well and at - start >= 8:  # a larger size, or magic 2 with a longer header: incomplete
                    assert 8 <= at - start < 12 or at - start == 16
                if at - start >= 8:
                    with pytest.raises(CorruptBatch):
                        validate(broken)
                with contextlib.suppress(CorruptBatch):
                    assert columns(broken, start=-(2**63)).num_rows == len(got)
                    assert well
        start += len(piece)
        before += count


def test_flip_any_bit_under_a_valid_checksum() -> None:
    for piece in MIXED:
        for at in range(16, len(piece)):
            for bit in range(8):
                broken = reseal(flip(piece, at, bit))
                got, well = read(broken)
                with contextlib.suppress(CorruptBatch):
                    assert columns(broken, start=-(2**63)).num_rows == len(got)
                    assert well
                with contextlib.suppress(CorruptBatch):
                    validate(broken)
                    assert well


maybe_bytes = st.none() | st.binary(max_size=60)
timestamps = st.integers(-(2**63), 2**63 - 1)


@st.composite
def message_sets(draw: st.DrawFn) -> bytes:
    """A message set as a log may have it: a message, or a wrapper, with gaps as compaction leaves them."""
    magic = draw(st.sampled_from((0, 1)))
    attributes = draw(st.sampled_from((0, 8))) if magic else 0
    base = draw(st.integers(0, 2**40) | st.integers(2**63 - 2**33, 2**63 - 2**32))
    deltas = sorted(draw(st.sets(st.integers(0, 2**31 - 1) | st.integers(0, 50), min_size=1, max_size=8)))
    if not draw(st.booleans()):
        return encode_message(Message(magic, base, draw(maybe_bytes), draw(maybe_bytes), draw(timestamps), attributes))
    shift = draw(st.integers(0, 100)) - deltas[0] if magic else base
    inner = [
        encode_message(Message(magic, delta + shift, draw(maybe_bytes), draw(maybe_bytes), draw(timestamps)))
        for delta in deltas
    ]
    return wrap(magic, base + deltas[-1], inner, timestamp=draw(timestamps), attributes=attributes | GZIP)


@given(st.lists(message_sets(), max_size=4))
def test_the_reference_reads_the_same(sets: list[bytes]) -> None:
    data = b"".join(sets)
    try:
        want = reference.decode(data)
    except Malformed:  # a wrapper whose offset is below its messages'
        with pytest.raises(CorruptBatch):
            rows(data)
        return
    assert rows(data) == want
    assert validate(data) == len(want) == sum(batch.count for batch in decode(data))
    table = pa.table(pa.record_batch(columns(data)))
    assert table["offset"].to_pylist() == [row.offset for row in want]
    assert table["timestamp_type"].to_pylist() == [row.timestamp_type for row in want]
    assert table["key"].to_pylist() == [row.key for row in want]
    assert table["value"].to_pylist() == [row.value for row in want]


def reseal_all(plain: bytes) -> bytes:
    """Every whole message of a set, found by the sizes, with a recomputed checksum."""
    out, at = bytearray(plain), 0
    while len(out) - at >= 16:
        size = int.from_bytes(out[at + 8 : at + 12], "big", signed=True)
        if not 14 <= size <= len(out) - at - 12:
            break
        out[at + 12 : at + 16] = zlib.crc32(out[at + 16 : at + 12 + size]).to_bytes(4, "big")
        at += 12 + size
    return bytes(out)


@example(0, 1, 0, [(5174, "set", 1)], True)
@given(st.sampled_from((0, 1)), st.integers(1, 5), st.integers(0, 30), mutations(3), st.booleans())
def test_the_reference_agrees_on_validity(
    magic: int, count: int, offset: int, steps: list[Step], outside: bool
) -> None:
    plain = b"".join(messages(magic, range(count)))
    broken = reseal_all(mutate(plain, steps, huge=INT32_HUGE, replaces=4))
    data = broken if outside else wrap(magic, offset, [broken], timestamp=T)
    got, well = read(data)
    try:
        want = reference.decode(data)
    except Malformed:
        if outside:  # a truncated message, or magic 2 with a longer header: incomplete, no error to a reader
            with pytest.raises(CorruptBatch):
                validate(data)
        else:
            assert not well
    else:
        assert well
        assert got == want
        assert columns(data, start=-(2**63)).num_rows == len(want)


def test_errors_name_a_mapped_file_and_position(tmp_path: Path) -> None:
    data = b"".join(MIXED)
    at = len(data) - 1
    broken = flip(data, at)
    with pytest.raises(CorruptBatch) as caught:
        list(decode(broken, path=tmp_path / "x.log", file_position=5))
    last = len(data) - len(MIXED[-1])
    assert (caught.value.path, caught.value.position, caught.value.offset, caught.value.kind) == (
        str(tmp_path / "x.log"),
        5 + last,
        22,
        "crc",
    )
