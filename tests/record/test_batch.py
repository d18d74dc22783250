import mmap
import struct
import zlib

import pytest

from klog.errors import CorruptBatch, UnsupportedBatch
from klog.record import RecordBatch, columns, decode, encode, iter_records, validate
from klog.record.control import marker
from tests.support.reference import encode_varint, seal

T = 1_700_000_000_000


def records(n: int, size: int = 10) -> list[tuple[bytes, bytes, int]]:
    return [(b"key %d" % i, bytes([i % 256]) * size, T + i) for i in range(n)]


def three_batches() -> bytes:
    return b"".join(
        (
            encode(records(3), base_offset=10),
            encode(records(4), base_offset=13, compression="zstd"),
            encode(records(5), base_offset=20),
        )
    )


def with_count(data: bytes, count: int) -> bytes:
    """The same batch with another record count and a matching checksum."""
    return seal(data[:8] + data[12:16], data[21:57] + struct.pack(">i", count) + data[61:])


def with_payload(payload: bytes, count: int, attributes: int = 0) -> bytes:
    head = struct.pack(">hiqqqhii", attributes, max(count - 1, 0), T, T, -1, -1, -1, count)
    return seal(bytes(12), head + payload)


# Decode ---------------------------------------------------------------------------------------------------------------


def test_batches_have_their_position() -> None:
    data = three_batches()
    batches = list(decode(data, file_position=4096))
    assert [batch.base_offset for batch in batches] == [10, 13, 20]
    position = 4096
    for batch in batches:
        assert batch.position == position
        assert bytes(batch.raw) == data[position - 4096 :][: batch.size]
        position += batch.size
    assert position == 4096 + len(data)


def test_empty_input() -> None:
    assert list(decode(b"")) == list(iter_records(b"")) == []
    assert validate(b"") == 0


def test_batches_cannot_be_constructed() -> None:
    with pytest.raises(TypeError, match="decode"):
        RecordBatch()


def test_a_partial_batch_at_the_end() -> None:
    data = three_batches()
    whole = [record.offset for record in iter_records(data)][:-5]
    for cut in (len(data) - 1, len(data) - 100, len(data) - 150):
        with pytest.raises(CorruptBatch, match="less than a batch") as caught:
            list(decode(data[:cut], path="/log", file_position=100))
        assert (caught.value.kind, caught.value.path) == ("length", "/log")
        assert caught.value.position == 100 + sum(batch.size for batch in list(decode(data))[:2])
        assert [batch.base_offset for batch in decode(data[:cut], allow_partial=True)] == [10, 13]
        assert [record.offset for record in iter_records(data[:cut])] == whole


def test_checksum() -> None:
    data = bytearray(three_batches())
    position = list(decode(data))[1].position
    data[position + 80] ^= 1
    batches = decode(data, path="some.log", file_position=1000)
    assert next(batches).base_offset == 10
    with pytest.raises(CorruptBatch, match="checksum") as caught:
        next(batches)
    assert (caught.value.kind, caught.value.path) == ("crc", "some.log")
    assert (caught.value.position, caught.value.offset) == (1000 + position, 13)
    assert list(batches) == []
    assert len(list(decode(data, verify_crc=False))) == 3
    with pytest.raises(CorruptBatch, match="checksum"):
        list(iter_records(data))


def test_records_before_a_bad_batch_are_returned_first() -> None:
    data = bytearray(three_batches())
    data[-1] ^= 1
    iterator = iter_records(data)
    assert [next(iterator).offset for _ in range(7)] == [10, 11, 12, 13, 14, 15, 16]
    with pytest.raises(CorruptBatch):
        next(iterator)
    assert list(iterator) == []


@pytest.mark.parametrize("length", [-1, 0, 13, 48, 2**31 - 1])
def test_impossible_lengths(length: int) -> None:
    data = encode(records(2))
    with pytest.raises(CorruptBatch) as caught:
        list(decode(data[:8] + struct.pack(">i", length) + data[12:]))
    assert (caught.value.kind, caught.value.position) == ("length", 0)


@pytest.mark.parametrize(("at", "value"), [(0, -1), (23, -1), (57, -1)])
def test_negative_offset_delta_or_count(at: int, value: int) -> None:
    data = encode(records(2))
    broken = data[:at] + struct.pack(">i", value) + data[at + 4 :]
    with pytest.raises(CorruptBatch):
        list(decode(seal(broken[:8] + broken[12:16], broken[21:])))


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_an_impossible_count_raises_before_the_first_record(compression: str | None) -> None:
    data = encode(records(10), compression=compression)
    for count in (2**31 - 1, 10_000):
        (batch,) = decode(with_count(data, count))
        with pytest.raises(CorruptBatch, match=f"{count} records cannot be in"):
            next(iter(batch))
        with pytest.raises(CorruptBatch, match="cannot be in"):
            validate(with_count(data, count))


def test_more_or_fewer_records_than_the_headers_count() -> None:
    data = encode(records(10))
    for count, message in ((11, "fewer records"), (9, "left over")):
        iterator = iter_records(with_count(data, count), path="x", file_position=7)
        with pytest.raises(CorruptBatch, match=message) as caught:
            list(iterator)
        assert (caught.value.path, caught.value.position, caught.value.offset) == ("x", 7, 0)
        with pytest.raises(CorruptBatch, match=message):
            validate(with_count(data, count))


def test_count_zero_hides_the_payload() -> None:
    """As Kafka reads it."""
    data = with_count(encode(records(3)), 0)
    assert list(iter_records(data)) == []
    assert validate(data) == 0


V = encode_varint
BODY = b"\0" + V(0) + V(0)


@pytest.mark.parametrize(
    ("body", "good"),
    [
        (BODY + V(-1) + V(-1) + V(0), True),
        (b"\x7f" + V(-5) + V(0) + V(-7) + V(-7) + V(0), True),
        (BODY + V(0) + V(0) + V(1) + V(0) + V(-1), True),
        (BODY + b"\x82\x80\x00k" + V(0) + V(0), True),
        (BODY + V(-1) + V(-1) + V(0) + b"\0", False),
        (BODY + V(-1) + V(-1) + V(-1), False),
        (BODY + V(-1) + V(-1) + V(1) + V(-1) + V(0), False),
        (BODY + V(-1) + V(-1) + V(1), False),
        (BODY + V(-1) + V(2**31 - 1) + V(0), False),
        (BODY + V(2**31 - 1) + V(-1) + V(0), False),
        (BODY + V(-1) + V(-1) + V(2**31 - 1), False),
        (BODY + V(-1) + b"\xff\xff\xff\xff\xff\x0f" + V(0), False),
        (b"\0" + b"\xff" * 10 + b"\x01" + V(0) + V(-1) + V(-1) + V(0), False),
        (b"", False),
    ],
)
def test_records_that_kafka_accepts_or_rejects(body: bytes, good: bool) -> None:
    data = with_payload(V(len(body)) + body + bytes(10 if not good and not body else 0), 1)
    if good:
        assert validate(data) == 1
        assert len(list(iter_records(data))) == 1
    else:
        with pytest.raises(CorruptBatch):
            list(iter_records(data))
        with pytest.raises(CorruptBatch):
            validate(data)


def test_rising_offsets_are_required_only_by_validate() -> None:
    def record(delta: int) -> bytes:
        body = b"\0" + V(0) + V(delta) + V(-1) + V(-1) + V(0)
        return V(len(body)) + body

    for deltas in ((0, 0), (1, 0), (0, 5), (-1, 1)):
        data = with_payload(b"".join(map(record, deltas)), 2)
        assert [r.offset for r in iter_records(data, start=-(2**63))] == list(deltas)
        with pytest.raises(CorruptBatch) as caught:
            validate(data, path="x")
        assert caught.value.kind == "offset_order"


def test_unused_attribute_bits_are_ignored() -> None:
    data = with_payload(V(6) + BODY[:1] + V(0) + V(0) + V(-1) + V(-1) + V(0), 1, attributes=0x7F80)
    assert validate(data) == 1


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codec_bits_without_a_codec(codec: int) -> None:
    with pytest.raises(CorruptBatch, match="not a known codec") as caught:
        list(decode(with_payload(b"", 0, attributes=codec), path="x", file_position=5))
    assert (caught.value.path, caught.value.position) == ("x", 5)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_broken_codec_stream_raises_with_its_position(compression: str) -> None:
    data = encode(records(20), base_offset=77, compression=compression)
    broken = seal(data[:8] + data[12:16], data[21:-6])
    with pytest.raises(CorruptBatch, match=compression) as caught:
        list(iter_records(broken, path="x.log", file_position=9))
    assert (caught.value.path, caught.value.position, caught.value.offset) == ("x.log", 9, 77)


# Older formats --------------------------------------------------------------------------------------------------------


def legacy(magic: int) -> bytes:
    body = bytes((magic, 0)) + (struct.pack(">q", T) if magic else b"") + struct.pack(">i1si1s", 1, b"k", 1, b"v")
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_raise_if_not_allowed(magic: int) -> None:
    data = legacy(magic)
    with pytest.raises(UnsupportedBatch, match=f"magic {magic}") as caught:
        list(decode(data, path="old.log", file_position=3, legacy=False))
    assert (caught.value.path, caught.value.position, caught.value.code) == ("old.log", 3, 43)
    assert list(decode(data[:-1], allow_partial=True, legacy=False)) == []
    flipped = data[:-1] + b"w"
    with pytest.raises(CorruptBatch, match="checksum") as caught:
        list(decode(flipped, legacy=False))
    assert type(caught.value) is CorruptBatch
    assert caught.value.kind == "crc"


@pytest.mark.parametrize("magic", [3, 100, 255])
def test_invalid_magic(magic: int) -> None:
    data = encode(records(1))
    with pytest.raises(CorruptBatch, match="not a record format") as caught:
        list(decode(data[:16] + bytes((magic,)) + data[17:]))
    assert type(caught.value) is CorruptBatch


def test_magic_above_2_is_read_as_2_from_a_file_only() -> None:
    """Kafka's file reader does, its memory reader does not; the magic byte lies outside the checksum."""
    data = encode(records(3))
    data = data[:16] + b"\x03" + data[17:]
    for function in (lambda **options: list(iter_records(data, **options)), lambda **options: columns(data, **options)):
        assert len(function(path="x.log")) == 3
        with pytest.raises(CorruptBatch, match="magic 3 is not a record format"):
            function()
    (batch,) = decode(data, path="x.log")
    assert batch.magic == 3
    broken = data[:-1] + b"\xff"
    with pytest.raises(CorruptBatch, match="checksum"):
        list(decode(broken, path="x.log"))


# iter_records ---------------------------------------------------------------------------------------------------------


def test_start_and_stop() -> None:
    data = three_batches()
    offsets = [*range(10, 17), *range(20, 25)]
    for start in range(8, 27):
        for stop in range(8, 27):
            got = [record.offset for record in iter_records(data, start=start, stop=stop)]
            assert got == [offset for offset in offsets if start <= offset < stop]


def test_nothing_after_stop_is_read() -> None:
    data = bytearray(three_batches())
    data[-1] ^= 1
    assert [record.offset for record in iter_records(data, start=13, stop=17)] == [13, 14, 15, 16]
    with pytest.raises(CorruptBatch):
        list(iter_records(data, start=13, stop=21))


@pytest.mark.parametrize(
    ("at", "value", "start"),
    [
        pytest.param(22, 0x20, 0, id="control"),
        pytest.param(26, 0, 53, id="last offset"),
        pytest.param(60, 0, 0, id="count"),
    ],
)
def test_a_corrupt_header_raises_even_if_the_batch_is_skipped(at: int, value: int, start: int) -> None:
    """Header fields that allow skipping a batch are checked against the checksum before they are used."""
    data = bytearray(encode(records(9), base_offset=50))
    data[at] = value
    for function in (lambda: list(iter_records(data, start=start)), lambda: columns(data, start=start)):
        with pytest.raises(CorruptBatch, match="checksum"):
            function()


def transactions() -> bytes:
    def batch(base_offset: int, producer_id: int, **options) -> bytes:
        return encode(
            [(None, b"v", T)] * 2, base_offset=base_offset, producer_id=producer_id, producer_epoch=0, **options
        )

    def end(base_offset: int, producer_id: int, name: str) -> bytes:
        options = {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": True, "is_control": True}
        return encode([(*marker(name, 1), T)], base_offset=base_offset, **options)

    return b"".join(
        (
            batch(0, 1, is_transactional=True, base_sequence=0),
            batch(2, 2, is_transactional=True, base_sequence=0),
            batch(4, 1, base_sequence=2),
            end(6, 1, "abort"),
            batch(7, 1, is_transactional=True, base_sequence=4),
            end(9, 2, "commit"),
            end(10, 1, "commit"),
        )
    )


def test_aborted_transactions_are_skipped() -> None:
    data = transactions()
    every = [record.offset for record in iter_records(data)]
    assert every == [0, 1, 2, 3, 4, 5, 7, 8]
    left = [record.offset for record in iter_records(data, aborted=[(1, 0, 6)])]
    assert left == [2, 3, 4, 5, 7, 8]
    assert [record.offset for record in iter_records(data, aborted=[(9, 0, 100)])] == every
    assert [record.offset for record in iter_records(data, aborted=[(1, 0, 6), (2, 2, 9)])] == [4, 5, 7, 8]


def test_control_records_are_returned_on_request() -> None:
    got = [(record.offset, record.control_type) for record in iter_records(transactions(), include_control=True)]
    assert got[6] == (6, "abort")
    assert [name for _, name in got if name] == ["abort", "commit", "commit"]
    assert len(got) == 11


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_control_records_need_a_control_key(key: bytes | None) -> None:
    data = encode([(key, b"", T)], is_control=True)
    with pytest.raises(CorruptBatch, match="control record"):
        list(iter_records(data, include_control=True))
    with pytest.raises(CorruptBatch, match="control record"):
        validate(data)


# Buffers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))])
def test_any_buffer(make) -> None:
    data = three_batches()
    assert list(iter_records(make(data))) == list(iter_records(data))
    with pytest.raises(TypeError):
        iter_records("text")


def test_a_buffer_is_held_while_a_view_exists(tmp_path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(three_batches())
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        iterator = iter_records(mapped)
        next(iterator)
        with pytest.raises(BufferError):
            mapped.close()
        iterator.close()
        assert list(iterator) == []
        batch = next(decode(mapped))
        with pytest.raises(BufferError):
            mapped.close()
        del batch
        exhausted = iter_records(mapped)
        assert len(list(exhausted)) == 12
        mapped.close()


def test_records_outlive_their_buffer() -> None:
    data = bytearray(three_batches())
    got = list(iter_records(data))
    data[:] = bytes(len(data))
    assert got[0].key == b"key 0"


def test_a_batch_can_be_iterated_again() -> None:
    batch = list(decode(three_batches()))[1]
    assert list(batch) == list(batch)
    assert len(list(batch)) == batch.count == 4
