import ctypes
import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from klog.errors import CorruptBatch
from klog.record import FIELDS, ArrowStream, Columns, columns, decode, encode, iter_records
from klog.record.control import marker
from tests.support.reference import seal

T = 1_700_000_000_000
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def batches(n: int = 6, per_batch: int = 50) -> bytes:
    """n batches of different codecs, including nulls, headers and records without a timestamp."""
    out = []
    for i in range(n):
        records = []
        for j in range(per_batch):
            headers = [(f"h{k}", None if k == 1 else b"x" * k) for k in range(j % 4)]
            key = None if j % 3 == 0 else b"key %d" % j
            value = None if j % 7 == 0 else b"value" * (j % 11)
            records.append((key, value, -1 if j % 5 == 0 else T + i * 1000 + j, headers))
        compression = (None, None, "zstd", "lz4", None, "gzip")[i % 6]
        out.append(encode(records, base_offset=i * 100, leader_epoch=i, compression=compression))
    return b"".join(out)


def rows(data: bytes, **options) -> list[tuple]:
    return [
        (r.offset, r.timestamp, int(r.timestamp_type), r.key, r.value, r.headers, r.leader_epoch)
        for r in iter_records(data, **options)
    ]


def table_rows(source) -> list[tuple]:
    table = pa.table(pa.record_batch(source)) if isinstance(source, Columns) else pa.table(source)
    table.validate(full=True)
    out = []
    for row in table.to_pylist():
        stamp = -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
        headers = tuple((header["key"], header["value"]) for header in row["headers"])
        out.append(
            (row["offset"], stamp, row["timestamp_type"], row["key"], row["value"], headers, row["leader_epoch"])
        )
    return out


ALL = [*FIELDS, "leader_epoch"]


def test_rows_are_the_records() -> None:
    data = batches()
    result = columns(data, fields=ALL)
    assert result.num_rows == len(result) == 300
    assert result.fields == tuple(ALL)
    assert table_rows(result) == rows(data)


def test_schema() -> None:
    result = columns(batches())
    assert pa.schema(result) == SCHEMA
    assert pa.record_batch(result).schema == SCHEMA
    assert pa.table(ArrowStream([result])).schema == SCHEMA
    assert pa.schema(ArrowStream([])) == SCHEMA


@pytest.mark.parametrize("fields", [["value"], ["headers", "offset"], ["leader_epoch", "key"], ["timestamp_type"]])
def test_fields_in_their_order(fields: list[str]) -> None:
    data = batches()
    whole = pa.table(pa.record_batch(columns(data, fields=ALL)))
    assert pa.table(pa.record_batch(columns(data, fields=fields))) == whole.select(fields)


@pytest.mark.parametrize("fields", [[], ["value", "value"], ["values"], "value"])
def test_wrong_fields(fields) -> None:
    kind = TypeError if isinstance(fields, str) else ValueError
    with pytest.raises(kind, match="field"):
        columns(b"", fields=fields)
    with pytest.raises(kind, match="field"):
        ArrowStream([], fields)


SPARKS = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
        ("leaderEpoch", pa.int32()),
    ]
)


def test_columns_for_spark_have_its_types_and_names() -> None:
    data = batches()
    plain = pa.table(pa.record_batch(columns(data, fields=ALL)))
    table = pa.table(pa.record_batch(columns(data, fields=ALL, spark=True)))
    table.validate(full=True)
    assert table.schema == SPARKS
    casts = [column.cast(kind) for column, kind in zip(plain.columns, SPARKS.types, strict=True)]
    for name, column in zip(SPARKS.names, casts, strict=True):
        wanted = [item or None for item in column.to_pylist()] if name == "headers" else column.to_pylist()
        assert table[name].to_pylist() == wanted
    empty = pa.record_batch(columns(b"", fields=ALL, spark=True))
    empty.validate(full=True)
    assert (empty.num_rows, empty.schema) == (0, SPARKS)


def test_a_time_that_microseconds_do_not_hold_is_null_for_spark() -> None:
    most = (2**63 - 1) // 1000
    times = [0, -1, most, most + 1, 2**63 - 1, 5]
    data = b"".join(encode([(None, b"", time)], base_offset=i) for i, time in enumerate(times))
    found = pa.record_batch(columns(data, fields=["timestamp"], spark=True)).column(0).cast(pa.int64())
    assert found.to_pylist() == [0, None, most * 1000, None, None, 5000]


def test_no_rows() -> None:
    for data, options in ((b"", {}), (batches(), {"start": 10_000}), (batches(), {"stop": 0})):
        result = columns(data, **options)
        assert (result.num_rows, len(result)) == (0, 0)
        batch = pa.record_batch(result)
        batch.validate(full=True)
        assert (batch.num_rows, batch.schema) == (0, SCHEMA)


def test_start_and_stop() -> None:
    data = batches()
    for start, stop in ((0, 10), (49, 101), (120, 130), (145, 148), (201, 549), (530, 10_000)):
        got = table_rows(columns(data, start=start, stop=stop, fields=ALL))
        assert got == rows(data, start=start, stop=stop)


def test_control_records_and_aborted_transactions() -> None:
    producer = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    data = b"".join(
        (
            encode([(None, b"gone", T)] * 2, base_offset=0, base_sequence=0, **producer),
            encode([(*marker("abort", 1), T)], base_offset=2, is_control=True, **producer),
            encode([(None, b"stays", T)], base_offset=3, base_sequence=2, **producer),
            encode([(*marker("commit", 1), T)], base_offset=4, is_control=True, **producer),
        )
    )
    for options in ({}, {"include_control": True}, {"aborted": [(1, 0, 2)]}):
        assert table_rows(columns(data, fields=ALL, **options)) == rows(data, **options)


def test_log_append_time() -> None:
    data = encode([(None, b"v", 5), (None, b"w", 6)], timestamp_type=1, log_append_time=T)
    assert table_rows(columns(data, fields=ALL)) == rows(data)
    assert rows(data)[1][1:3] == (T, 1)


def test_invalid_utf8_in_header_keys_is_replaced_as_in_kafkas_consumers() -> None:
    keys = [b"\xff", b"a\xe2\x82z", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"", b"\xc0\x80", b"\xf4\x90\x80\x80"]
    data = encode([(None, b"v", T, [(key.decode("utf-8", "surrogateescape"), None) for key in keys])])
    batch = pa.record_batch(columns(data))
    batch.validate(full=True)
    assert [header["key"] for header in batch["headers"][0].as_py()] == [key.decode("utf-8", "replace") for key in keys]


# Errors ---------------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_the_record_iterator() -> None:
    data = batches()
    positions = [batch.position for batch in decode(data)]
    for at in (positions[1] + 70, positions[2] + 70, positions[5] + 64):
        broken = bytearray(data)
        broken[at] ^= 4
        with pytest.raises(CorruptBatch) as one:
            list(iter_records(broken, path="x", file_position=50))
        with pytest.raises(CorruptBatch) as other:
            columns(broken, path="x", file_position=50)
        assert str(other.value) == str(one.value)
        assert (other.value.kind, other.value.position) == (one.value.kind, one.value.position)


def test_invalid_records_under_a_valid_checksum() -> None:
    data = encode([(b"k", b"v", T)] * 3, base_offset=9)
    for tail in (data[21:] + b"\0", data[21:-1], data[21:57] + bytes((0, 0, 0, 9)) + data[61:]):
        broken = seal(data[:8] + data[12:16], tail)
        with pytest.raises(CorruptBatch) as caught:
            columns(batches(2) + broken, path="x", file_position=50)
        assert (caught.value.path, caught.value.position, caught.value.offset) == ("x", 50 + len(batches(2)), 9)


@pytest.mark.parametrize("first_null", [0, 1, 255, 256, 257, 511, 512, 700])
def test_nulls_after_many_values(first_null: int) -> None:
    """Bitmaps begin with the first null, in whichever C block it is, and continue after it."""
    records = [
        (None, None, -1, [("k", None)]) if i in (first_null, 801) else (b"k" * (i % 70), b"v" * i, T, [("k", b"x")])
        for i in range(900)
    ]
    data = encode(records)
    assert table_rows(columns(data, fields=ALL)) == rows(data)
    cut = max(first_null, 1)
    data = encode(records[:cut]) + encode(records[cut:], base_offset=cut)
    assert table_rows(columns(data, fields=ALL)) == rows(data)


def test_values_of_every_size() -> None:
    """The sizes are around the strides of the copy loop, and the bytes are near the end of the payload."""
    records = [(b"k" * i, bytes(range(256)) * 3, T) for i in range(100)]
    records = [(key, value[: i * 7], stamp) for i, (key, value, stamp) in enumerate(records)]
    data = encode(records)
    assert table_rows(columns(data, fields=ALL)) == rows(data)
    for key, value, stamp in records:
        one = encode([(key, value, stamp)])
        assert table_rows(columns(one, fields=ALL)) == rows(one)


def test_records_too_large_for_the_fast_path() -> None:
    data = encode(
        [(bytes(1 << 20), b"v", T), (b"k", bytes(3 << 20), T), (b"k", None, T + (1 << 40), [("h" * 200, b"")])]
    )
    assert table_rows(columns(data, fields=ALL)) == rows(data)


def test_a_partial_batch_at_the_end_is_ignored() -> None:
    data = batches(3)
    assert table_rows(columns(data[:-1], fields=ALL)) == rows(data[:-1])
    assert columns(data[:-1]).num_rows == 100
    assert columns(data[:10]).num_rows == 0


# Ownership ------------------------------------------------------------------------------------------------------------


def test_columns_cannot_be_constructed() -> None:
    with pytest.raises(TypeError, match="columns"):
        Columns()


def test_arrays_outlive_their_source_and_their_columns() -> None:
    source = bytearray(batches())
    want = rows(bytes(source))
    result = columns(source, fields=ALL)
    source.clear()  # BufferError if columns held a reference
    table = pa.table(pa.record_batch(result))
    value = table["value"].chunk(0)
    del result
    gc.collect()
    assert table_rows(table) == want
    del table
    gc.collect()
    assert value.to_pylist() == [row[4] for row in want]


def test_columns_can_be_exported_twice_and_capsules_dropped() -> None:
    result = columns(batches(), fields=ALL)
    for _ in range(3):
        result.__arrow_c_array__()
        result.__arrow_c_schema__()
    first, second = pa.record_batch(result), pa.record_batch(result)
    assert first == second
    assert first["value"].buffers()[2].address == second["value"].buffers()[2].address  # shared, not copied
    ArrowStream([result]).__arrow_c_stream__()


def test_buffers_are_aligned() -> None:
    batch = pa.record_batch(columns(batches(), fields=ALL))
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
    assert len(buffers) > 10
    assert all(buffer.address % 64 == 0 for buffer in buffers)


def test_nbytes_counts_the_buffers() -> None:
    values = 1000 * 100
    data = encode([(None, bytes(100), T)] * 1000)
    assert values + 4 * 1001 <= columns(data, fields=["value"]).nbytes <= values + 4 * 1001 + 200
    assert columns(data, fields=["offset"]).nbytes == 8000


# Streams --------------------------------------------------------------------------------------------------------------


def test_a_stream_is_read_only_as_its_consumer_reads() -> None:
    pulled = []

    def chunks():
        for start in range(0, 600, 100):
            pulled.append(start)
            yield columns(batches(), start=start, stop=start + 100, fields=ALL)

    stream = ArrowStream(chunks(), ALL)
    reader = pa.RecordBatchReader.from_stream(stream)
    assert pulled == []
    assert reader.read_next_batch().num_rows == 50
    assert pulled == [0]
    assert table_rows(reader.read_all()) == rows(batches(), start=100)
    assert pulled == list(range(0, 600, 100))
    assert stream.error is None


def test_a_stream_of_a_list_can_be_read_twice() -> None:
    stream = ArrowStream([columns(batches())] * 2)
    assert pa.table(stream) == pa.table(stream)
    assert pa.table(stream).num_rows == 600


def test_an_error_without_a_text_does_not_end_the_stream_as_if_complete() -> None:
    class NoText(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def source() -> Iterator[Columns]:
        yield columns(batches())
        raise NoText

    stream = ArrowStream(source())
    with pytest.raises((pa.ArrowInvalid, OSError), match="without a text"):
        pa.table(stream)
    assert isinstance(stream.error, NoText)


def test_an_error_reaches_the_consumer() -> None:
    broken = bytearray(batches())
    broken[-1] ^= 1

    def chunks(data):
        yield columns(batches())
        yield columns(data, path="some.log")

    stream = ArrowStream(chunks(broken))
    with pytest.raises(OSError, match=r"some\.log"):
        pa.table(stream)
    assert isinstance(stream.error, CorruptBatch)
    with pytest.raises(ValueError, match="TypeError"):
        pa.table(ArrowStream([5]))
    with pytest.raises(ValueError, match="in a stream of"):
        pa.table(ArrowStream([columns(batches(), fields=["key"])]))


def test_dropping_a_partly_read_stream_drops_its_iterable() -> None:
    closed = []

    def chunks():
        try:
            while True:
                yield columns(batches())
        finally:
            closed.append(True)

    source = chunks()
    reader = pa.RecordBatchReader.from_stream(ArrowStream(source))
    reader.read_next_batch()
    del source, reader
    gc.collect()
    assert closed == [True]


def test_children_may_be_moved_out() -> None:
    """A consumer may move a child array out, mark its slot as released, and release the rest."""

    class Array(ctypes.Structure):
        pass

    release_type = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
    Array._fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.POINTER(ctypes.POINTER(Array))),
        ("dictionary", ctypes.POINTER(Array)),
        ("release", release_type),
        ("private_data", ctypes.c_void_p),
    ]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    _, capsule = columns(batches()).__arrow_c_array__()
    array = ctypes.cast(pointer_of(capsule, b"arrow_array"), ctypes.POINTER(Array))
    moved = Array.from_buffer_copy(array.contents.children[0].contents)
    array.contents.children[0].contents.release = release_type()
    array.contents.release(array)
    assert not array.contents.release
    offsets = ctypes.cast(moved.buffers[1], ctypes.POINTER(ctypes.c_int64))
    assert [offsets[i] for i in range(3)] == [0, 1, 2]
    moved.release(ctypes.byref(moved))
    assert not moved.release


@pytest.mark.parametrize("compression", [None, "lz4", "gzip"])
@pytest.mark.parametrize("window", [{}, {"start": 60}, {"start": 20, "stop": 70}])
def test_without_verify_crc_a_wrong_checksum_is_not_looked_at(compression: str | None, window: dict) -> None:
    """The checksum of the first batch, which `start` skips, and of the second; the records are as iter_records."""
    data = bytearray(b"".join(encode([(b"k", b"v")] * 50, base_offset=at, compression=compression) for at in (0, 50)))
    data[17] ^= 1
    data[len(data) // 2 + 17] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        columns(data, **window)
    got = table_rows(columns(data, verify_crc=False, fields=ALL, **window))
    assert got == rows(bytes(data), verify_crc=False, **window)
    assert got


def test_without_verify_crc_records_are_still_checked() -> None:
    data = bytearray(encode([(b"k", b"v")] * 3))
    data[61] ^= 0x40  # the length of the first record
    with pytest.raises(CorruptBatch):
        columns(data, verify_crc=False)
    with pytest.raises(TypeError, match="verify_crc"):
        columns(data, verify_crc="no")
