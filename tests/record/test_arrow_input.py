"""Arrow columns of every supported type and layout encode to the same bytes as the same tuples."""

import ctypes
import datetime
import gc
import os
import shlex
import struct
import subprocess
import threading
import time
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge
from klog.record import Encoder, RowSource, columns, encode, iter_records
from tests.support.strategies import maybe_bytes

T = 1_700_000_000_000
ITEM = pa.struct([("key", pa.string()), ("value", pa.binary())])
ROWS = [
    (
        None if n % 5 == 0 else b"key %d" % n,
        None if n % 7 == 0 else b"value %d " % n * (n % 50),
        None if n % 11 == 0 else T + n * 13 % 100,
        [(f"h{k}", b"x" * k if k else None) for k in range(n % 4)],
    )
    for n in range(1000)
]


def headers_array(rows, kind=None) -> pa.Array:
    lists = [None if row[3] is None else [{"key": k, "value": v} for k, v in row[3]] for row in rows]
    return pa.array(lists, kind or pa.list_(ITEM))


def table(rows=ROWS, *, bytes_type=None, unit="ms", zone="UTC") -> pa.Table:
    key, value, stamp, _ = zip(*rows, strict=True)
    made = {
        "key": pa.array(key, pa.binary()),
        "value": pa.array(value, pa.binary()),
        "timestamp": pa.array(stamp, pa.timestamp("ms", zone)).cast(pa.timestamp(unit, zone)),
        "headers": headers_array(rows),
    }
    if bytes_type is not None:
        plain = pa.string() if "string" in str(bytes_type) else pa.binary()
        for name in ("key", "value"):
            made[name] = made[name].cast(plain).cast(bytes_type)
    return pa.table(made)


def groups(records, **options) -> list[bytes]:
    settings = {
        "batch_bytes_max": 1000,
        "message_bytes_max": 1_048_588,
        "timestamp_default": T,
        "timestamp_min": 0,
        "timestamp_max": T + 1_000_000,
    }
    source = Encoder(records, **(settings | options))
    out = []
    while (group := source.next_group(4000)) is not None:
        assert group.count == sum(1 for _ in iter_records(group))
        assert group.max_timestamp == max(record.timestamp for record in iter_records(group))
        out.append(bytes(group))
    return out


BYTES = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
]


@pytest.mark.parametrize("kind", BYTES, ids=str)
def test_every_type_of_bytes(kind) -> None:
    given = table(bytes_type=kind)
    assert given.schema.field("key").type == given.schema.field("value").type == kind
    assert encode(given) == encode(ROWS)
    assert encode(given.slice(13, 500)) == encode(ROWS[13:513])


def test_fixed_size_bytes_and_nothing_but_nulls() -> None:
    rows = [(b"%04d" % n if n % 3 else None, None) for n in range(100)]
    given = pa.table({"key": pa.array([key for key, _ in rows], pa.binary(4)), "value": pa.nulls(100)})
    assert encode(given) == encode(rows)
    assert encode(given.slice(7)) == encode(rows[7:])
    nothing = pa.table({"value": pa.array([b""] * 3, pa.binary(0)), "timestamp": pa.nulls(3), "headers": pa.nulls(3)})
    assert encode(nothing) == encode([(None, b"")] * 3)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Vienna"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_every_unit_and_zone(unit, zone) -> None:
    assert encode(table(unit=unit, zone=zone)) == encode(ROWS)


def test_timestamps_at_the_edges() -> None:
    def stamps(values, kind) -> list[int]:
        given = pa.table({"value": pa.nulls(len(values)), "timestamp": pa.array(values, kind)})
        return [record.timestamp for record in iter_records(encode(given))]

    assert stamps([1, None, 0], pa.timestamp("s")) == [1000, -1, 0]
    assert stamps([1999, 2000, None], pa.timestamp("us")) == [1, 2, -1]
    assert stamps([2**63 - 1, 999_999], pa.timestamp("ns")) == [(2**63 - 1) // 10**6, 0]
    assert stamps([2**63 - 1, -1, 5], pa.int64()) == [2**63 - 1, -1, 5]
    with pytest.raises(InvalidTimestamp, match="record 1: timestamp -2 is negative"):
        stamps([5, -2], pa.int64())
    for unit, value in (("s", -1), ("ms", -1), ("us", -1), ("us", -1000), ("ns", -1)):  # not int64: -1 is a moment
        with pytest.raises(InvalidTimestamp, match="record 2: the timestamp is before 1970; use null"):
            stamps([0, None, value], pa.timestamp(unit))
    with pytest.raises(InvalidTimestamp, match="record 1: the timestamp does not fit"):
        stamps([0, 2**62], pa.timestamp("s"))


def test_every_layout_of_headers() -> None:
    want = encode(ROWS)
    for kind in (
        pa.list_(ITEM),
        pa.large_list(ITEM),
        pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
    ):
        assert encode(table().set_column(3, "headers", headers_array(ROWS, kind))) == want
    pairs = pa.array([row[3] for row in ROWS], pa.map_(pa.string(), pa.binary()))
    given = table().set_column(3, "headers", pairs)
    assert encode(given) == want
    assert encode(given.slice(9, 300)) == encode(ROWS[9:309])


def test_a_null_list_has_no_headers_and_a_header_needs_a_key() -> None:
    rows = [(b"k", b"v", T, None), (b"k", b"v", T, [("h", None)])]
    assert encode(table(rows)) == encode(rows)
    for bad in ([None], [{"key": None, "value": b""}]):
        given = pa.table({"value": pa.array([b"", b""]), "headers": pa.array([[], bad], pa.list_(ITEM))})
        with pytest.raises(InvalidRecord, match="record 1: a header has no key"):
            encode(given)


def test_slices_and_null_parents() -> None:
    """The parent's offset adds to the children's own; under a null row every field is null."""
    parts = table().combine_chunks().to_batches()[0].slice(5)
    struct = pa.StructArray.from_arrays(
        parts.columns, names=parts.schema.names, mask=pa.array([n % 3 == 1 for n in range(len(parts))])
    )
    rows = [(None, None, None, None) if n % 3 == 1 else row for n, row in enumerate(ROWS[5:])]
    assert encode(struct) == encode(rows)
    assert encode(struct.slice(11, 400)) == encode(rows[11:411])
    assert encode(struct.slice(11).slice(3)) == encode(rows[14:])


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("rows_max", [1, 7, 10_000])
def test_batches_span_array_boundaries(rows_max, compression) -> None:
    given = pa.Table.from_batches(table().to_batches(max_chunksize=rows_max))
    assert groups(given, compression=compression) == groups(ROWS, compression=compression)
    append_time = {"log_append_time": T + 7, "compression": compression}
    assert groups(given, **append_time) == groups(ROWS, **append_time)


def test_a_large_group_has_the_same_bytes() -> None:
    """Large enough to be written without the GIL, and to grow while written."""
    rows = [(b"k%d" % n, b"v" * 1000, T) for n in range(3000)]
    given = table([(*row, []) for row in rows])
    assert encode(given) == encode(rows)
    settings = {"batch_bytes_max": 262_144, "timestamp_min": T, "timestamp_max": T}
    assert b"".join(groups(given, **settings)) != b""
    assert groups(given, **settings) == groups(rows, **settings)


def test_limits_match_those_of_tuples() -> None:
    rows = [*ROWS[1:4], (b"k", bytes(5000), T, [])]
    for options, error in (
        ({"message_bytes_max": 2000}, RecordTooLarge),
        ({"timestamp_max": T + 1}, InvalidTimestamp),
        ({"key_required": True}, InvalidRecord),
    ):
        bad = [*rows, (None, b"v", T + 50, [])]
        with pytest.raises(error) as ours:
            groups(table(bad), **options)
        with pytest.raises(error) as theirs:
            groups(bad, **options)
        assert str(ours.value) == str(theirs.value)


def test_headers_of_more_than_2_gib_are_refused_with_their_size() -> None:
    """2,100 views of one MiB."""
    view = struct.pack("<i4sii", 1 << 20, bytes(4), 0, 0)
    buffers = [None, pa.py_buffer(view * 2100), pa.py_buffer(bytes(1 << 20))]
    values = pa.Array.from_buffers(pa.binary_view(), 2100, buffers)
    items = pa.StructArray.from_arrays([pa.array([""] * 2100), values], names=["key", "value"])
    given = pa.table({"value": [b"v"], "headers": pa.ListArray.from_arrays([0, 2100], items)})
    with pytest.raises(RecordTooLarge, match=r"record 0 makes a batch of 22020\d{5} bytes"):
        groups(given)


def test_klogs_own_columns_are_accepted() -> None:
    data = encode([(*row[:2], T, row[3]) for row in ROWS])
    assert encode(columns(data)) == data


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"key": [b"a"]}, ValueError, "'value' is missing"),
        ({"value": [b"a"], "foo": [1]}, ValueError, "'foo' is none of key, value"),
        ({"value": [b"a"], "c" * 99: [1]}, ValueError, "'c{60}' is none.*ignore_other_columns=True$"),
        ({"value": [1]}, TypeError, "'value' is neither binary"),
        ({"value": [b"a"], "key": [1.5]}, TypeError, "'key' is neither binary"),
        ({"value": [b"a"], "timestamp": ["now"]}, TypeError, "'timestamp' is neither"),
        ({"value": [b"a"], "timestamp": [datetime.date(2024, 1, 1)]}, TypeError, "'timestamp' is neither"),
        ({"value": [b"a"], "headers": [[b"h"]]}, TypeError, "'headers' is neither list<struct"),
        ({"value": [b"a"], "headers": [[{"name": "h", "value": b""}]]}, TypeError, "'headers' is neither list<struct"),
        ({"value": pa.array(["a"]).dictionary_encode()}, TypeError, "'value' is dictionary-encoded"),
    ],
)
def test_invalid_columns_raise_with_their_name(given, error, message) -> None:
    with pytest.raises(error, match=message):
        encode(pa.table(given))
    with pytest.raises(error, match=message):
        encode(pa.record_batch(pa.table(given).to_batches()[0]))


def test_a_single_column_raises() -> None:
    with pytest.raises(TypeError, match="records need columns"):
        encode(pa.array([b"a"]))
    twice = pa.table([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with pytest.raises(ValueError, match="'value' occurs twice"):
        encode(twice)


def failing_reader(error: Exception):
    def batches():
        yield table().to_batches()[0]
        raise error

    return pa.RecordBatchReader.from_batches(table().schema, batches())


def test_a_failing_stream_raises_its_error() -> None:
    with pytest.raises(ValueError, match="the Arrow stream failed: .*no more of it"):
        encode(failing_reader(ValueError("no more of it")))
    with pytest.raises(OSError, match="disk on fire"):
        encode(failing_reader(OSError("disk on fire")))


def test_a_stream_is_read_only_as_far_as_needed() -> None:
    asked = []

    def batches():
        for n, batch in enumerate(table().to_batches(max_chunksize=100)):
            asked.append(n)
            yield batch

    source = Encoder(
        pa.RecordBatchReader.from_batches(table().schema, batches()),
        batch_bytes_max=500,
        message_bytes_max=100_000,
        timestamp_default=T,
        timestamp_min=0,
        timestamp_max=2 * T,
    )
    assert asked == []
    assert source.next_group(1000) is not None
    assert len(asked) == 1


class Counted:
    """Arrow arrays over memory whose release is recorded."""

    def __init__(self) -> None:
        gc.collect()
        self.before = pa.total_allocated_bytes()

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest) -> None:
        if kind is None:
            gc.collect()
            assert pa.total_allocated_bytes() == self.before


def test_everything_is_released_on_every_path() -> None:
    encode(table(ROWS[:3]))
    with Counted():
        assert encode(table()) == encode(table().combine_chunks().to_batches()[0])
    with Counted(), pytest.raises(ValueError, match="none of key"):
        encode(table().append_column("foo", headers_array(ROWS)).combine_chunks().to_batches()[0])
    with Counted(), pytest.raises(ValueError, match="stop"):
        encode(failing_reader(ValueError("stop")))
    with Counted():
        waiting = Encoder(
            table(),
            batch_bytes_max=100,
            message_bytes_max=100_000,
            timestamp_default=T,
            timestamp_min=0,
            timestamp_max=2 * T,
        )
        waiting.next_group(1)
        del waiting
    with Counted():
        source = RowSource(table())
        rows = next(source)
        del source
        assert encode(rows) == encode(ROWS)
        del rows


def test_a_capsule_can_be_consumed_once() -> None:
    capsules = table().to_batches()[0].__arrow_c_array__()

    class Given:
        def __arrow_c_array__(self):
            return capsules

    assert encode(Given()) == encode(ROWS)
    with pytest.raises(ValueError, match="already consumed"):
        encode(Given())


def test_polars_and_duckdb_frames() -> None:
    polars = pytest.importorskip("polars", reason="needs: polars")
    duckdb = pytest.importorskip("duckdb", reason="needs: duckdb")
    assert encode(polars.from_arrow(table())) == encode(ROWS)
    assert encode(duckdb.from_arrow(table())) == encode(ROWS)


rows_strategy = st.lists(
    st.tuples(
        maybe_bytes,
        maybe_bytes,
        st.none() | st.just(-1) | st.integers(0, 2**63 - 1),
        st.none() | st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@given(rows_strategy, st.sampled_from(BYTES[:3]), st.lists(st.integers(0, 30), max_size=3), st.integers(70, 500))
def test_random_rows_with_random_slices(rows, kind, cuts, batch_max) -> None:
    given = table(rows, bytes_type=kind).set_column(2, "timestamp", pa.array([row[2] for row in rows], pa.int64()))
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = [given.slice(start, stop - start).combine_chunks() for start, stop in pairwise(edges)]
    options = {"batch_bytes_max": batch_max, "timestamp_max": 2**63 - 1}
    assert encode(pa.concat_tables(parts)) == encode(rows)
    assert groups(pa.concat_tables(parts), **options) == groups(rows, **options)
    assert encode(given.slice(edges[1] // 2)) == encode(rows[edges[1] // 2 :])


# A stream that waits for another thread -------------------------------------------------------------------------------

WAITING = """
#include <unistd.h>

struct stream { void *get_schema, *get_next, *get_last_error; void (*release)(struct stream *); void *data; };

volatile int entered, go, alone;
void (*release)(struct stream *);

void wait_and_release(struct stream *stream) {
    entered = 1;
    for (int i = 0; i < 2000 && !go; i++)
        usleep(10000);
    alone = !go;
    release(stream);
}
"""


class _Stream(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "data")]


@pytest.mark.parametrize("ended", [True, False], ids=["at its end", "abandoned"])
def test_the_release_of_a_stream_may_wait_for_a_python_thread(tmp_path, ended: bool) -> None:
    """As that of a scanner whose threads read files by Python code."""
    (tmp_path / "waiting.c").write_text(WAITING)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-O2", "-fPIC", "-shared", "waiting.c", "-o", "waiting.so"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "waiting.so"))
    entered, go, alone = (ctypes.c_int.in_dll(library, name) for name in ("entered", "go", "alone"))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    class Waiting:
        def __arrow_c_stream__(self, requested_schema=None):
            capsule = table().__arrow_c_stream__()
            stream = _Stream.from_address(pointer(capsule, b"arrow_array_stream"))
            ctypes.c_void_p.in_dll(library, "release").value = stream.release
            stream.release = ctypes.cast(library.wait_and_release, ctypes.c_void_p).value
            return capsule

    def answer() -> None:
        while not entered.value:
            time.sleep(0.001)
        go.value = 1

    thread = threading.Thread(target=answer)
    source = RowSource(Waiting())
    thread.start()
    if ended:
        assert sum(len(rows) for rows in source) == len(ROWS)
    del source
    thread.join()
    assert alone.value == 0
