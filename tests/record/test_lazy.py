"""A lazy record leaves key, value and headers in the buffer until they are read. Only its references and its cost show
that."""

import gc
import mmap
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from klog import Log, Record
from klog.record import TimestampType, decode, encode, iter_records
from tests.support.strategies import record_lists

T = 1_700_000_000_000
TUPLES = [
    (b"key", b"value", T, []),
    (None, b"", T + 1, []),
    (b"", None, T + 2, [("h", b"1"), ("h", None), ("", b"")]),
    (b"k" * 300, b"v" * 70_000, T - 5, [("é", b"x" * 200)] * 70),
]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]

LOOKS: list[Callable[[Record], object]] = [
    lambda record: record.key,
    lambda record: record.value,
    lambda record: record.headers,
    lambda record: getattr(record, "".join(["k", "ey"])),  # a name that is not interned
    repr,
    hash,
    pickle.dumps,
    lambda record: record == record,
]


def batch(compression: str | None = None) -> bytes:
    return encode(TUPLES, base_offset=10, compression=compression)


@given(record_lists)
def test_lazy_and_copied_records_are_equal(tuples: list[tuple[bytes | None, bytes | None, int, object]]) -> None:
    data = encode(tuples)
    assert list(iter_records(data, lazy=True)) == list(iter_records(data, lazy=False))
    fields = [(r.key, r.value, r.timestamp, r.headers) for r in iter_records(data, lazy=True)]
    assert fields == [(r.key, r.value, r.timestamp, r.headers) for r in iter_records(data, lazy=False)]


@pytest.mark.parametrize("compression", CODECS)
def test_every_field_of_a_lazy_record(compression: str | None) -> None:
    lazy = list(iter_records(batch(compression), lazy=True))
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in lazy] == TUPLES
    assert [r.offset for r in lazy] == [10, 11, 12, 13]
    assert {r.timestamp_type for r in lazy} == {TimestampType.CREATE_TIME}
    assert [r.is_control for r in lazy] == [False] * 4


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_record_outlives_its_reader_and_releases_the_buffer_when_read(
    look: Callable[[Record], object], compression: str | None
) -> None:
    data = bytearray(batch(compression))
    record = next(iter_records(data, lazy=True))
    if compression is None:
        with pytest.raises(BufferError):
            data.append(0)
    look(record)
    data.append(0)  # no reference is left
    data[:] = bytes(len(data))
    assert (record.key, record.value, record.headers) == (b"key", b"value", ())


def test_an_unread_record_releases_the_buffer_when_deleted() -> None:
    data = batch()
    before = sys.getrefcount(data)
    held = list(iter_records(data, lazy=True))
    assert sys.getrefcount(data) == before + 1  # all records share one reference
    del held
    assert sys.getrefcount(data) == before


def test_reading_offset_and_timestamp_keeps_the_record_lazy() -> None:
    data = batch()
    before = sys.getrefcount(data)
    record = next(iter_records(data, lazy=True))
    assert (record.offset, record.timestamp, record.producer_id, record.sequence) == (10, T, -1, -1)
    assert sys.getrefcount(data) == before + 1
    assert record.key == b"key"
    assert sys.getrefcount(data) == before


def test_without_it_no_record_keeps_its_source(tmp_path: Path) -> None:
    file = tmp_path / "batch"
    file.write_bytes(batch())
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    for buffer in (mapped, bytearray(batch()), memoryview(batch())):
        records = [*iter_records(buffer), *(r for found in decode(buffer) for r in found)]
        if isinstance(buffer, bytearray):
            buffer.append(0)
        elif isinstance(buffer, mmap.mmap):
            buffer.close()
        else:
            buffer.release()
        assert [r.value for r in records] == [t[1] for t in TUPLES] * 2


def test_a_mapped_file_cannot_be_closed_while_a_lazy_record_exists(tmp_path: Path) -> None:
    file = tmp_path / "batch"
    file.write_bytes(batch())
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    records = list(iter_records(mapped, lazy=True))
    with pytest.raises(BufferError):
        mapped.close()
    assert [r.value for r in records] == [t[1] for t in TUPLES]
    mapped.close()


def test_a_view_of_bytes_cannot_be_released_while_a_lazy_record_exists() -> None:
    view = memoryview(batch())
    record = next(iter_records(view, lazy=True))
    with pytest.raises(BufferError):
        view.release()
    assert record.value == b"value"
    view.release()


@pytest.mark.parametrize("compression", CODECS)
def test_lazy_records_can_be_appended(compression: str | None, tmp_path: Path) -> None:
    data = batch(compression)
    assert encode(list(iter_records(data, lazy=True)), base_offset=10, compression=compression) == data
    with Log.open(tmp_path / "a-0") as log:
        log.append(TUPLES, compression=compression)
        log.append(iter_records(data, lazy=True))
        assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in log.read()] == TUPLES * 2


def test_a_lazy_record_is_a_record() -> None:
    lazy, copied = (list(iter_records(batch(), lazy=lazy)) for lazy in (True, False))
    assert all(isinstance(record, Record) for record in lazy)
    for one, two in zip(lazy, copied, strict=True):
        assert (repr(one), hash(one), one) == (repr(two), hash(two), two)
        assert not one != two  # noqa: SIM202
        assert type(pickle.loads(pickle.dumps(one))) is Record
        for name in ("key", "value", "headers", "timestamp", "offset", "other"):
            with pytest.raises(AttributeError):
                setattr(one, name, None)
    with pytest.raises(TypeError, match="lazy=True"):
        type(lazy[0])()


def test_a_slot_that_is_not_filled_is_never_read() -> None:
    record = next(iter_records(batch(), lazy=True))
    with pytest.raises(AttributeError):
        Record.key.__get__(record)  # type: ignore[attr-defined]
    assert (record.key, Record.key.__get__(record)) == (b"key", b"key")  # type: ignore[attr-defined]


def test_a_log_may_close_while_its_records_exist(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a-0") as log:
        log.append(TUPLES)
        records = list(log.read())
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in records] == TUPLES


def test_a_record_may_be_read_while_it_is_being_read() -> None:
    """Creating headers can run the garbage collector, which may run any code, even a read of this record."""
    headers = [(f"h{n}", b"x") for n in range(40)]
    data = bytearray(encode([(b"key", b"value", T, headers)]))
    record = next(iter_records(data, lazy=True))
    seen: list[object] = []

    def collector_runs(phase: str, info: object) -> None:
        if not seen:
            seen.append(None)
            assert list(record.headers) == headers
            try:
                data.append(0)
            except BufferError:
                seen.append("still held for the first read")

    threshold = gc.get_threshold()
    gc.callbacks.append(collector_runs)
    gc.set_threshold(1)
    try:
        assert list(record.headers) == headers
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collector_runs)
    assert seen == [None, "still held for the first read"]
    data.append(0)
