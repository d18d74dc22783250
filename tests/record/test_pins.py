"""A view into a buffer keeps a reference to it exactly as long as the view exists: iterators, batches, raw views, Arrow
views, a record being encoded. (test_views.py tests the references of Arrow's consumers.)"""

from __future__ import annotations

import contextlib
import gc
import mmap
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from klog.errors import CorruptBatch
from klog.record import (
    BatchBuilder,
    Encoder,
    Lists,
    Record,
    columns,
    decode,
    encode,
    iter_records,
    validate,
)
from tests.support.child import in_child
from tests.support.resources import held

T = 1_700_000_000_000
RECORDS = [(b"key", b"a value that does not fit into a view", T, [("h", b"1")]), (None, b"", T)]
PLAIN = encode(RECORDS, base_offset=5)
PACKED = encode(RECORDS * 20, base_offset=7, compression="zstd")
DATA = PLAIN + PACKED
BROKEN = DATA[:-1] + bytes((DATA[-1] ^ 1,))

Buffer = bytes | bytearray | memoryview | mmap.mmap


def begun(iterator: Iterator[object]) -> Iterator[object]:
    next(iterator)
    return iterator


HOLDERS: dict[str, Callable[[Buffer], object]] = {
    "batch iterator": decode,
    "batch iterator, begun": lambda data: begun(decode(data)),
    "batch": lambda data: next(decode(data)),
    "raw": lambda data: next(decode(data)).raw,
    "part of raw": lambda data: next(decode(data)).raw[5:9],
    "record iterator": iter_records,
    "record iterator, begun": lambda data: begun(iter_records(data)),
    "record iterator in a codec": lambda data: begun(iter_records(data, start=10)),
    "records of a batch": lambda data: iter(next(decode(data))),
    "records of a batch, begun": lambda data: begun(iter(next(decode(data)))),
    "views": lambda data: columns(data, views=True),
    "capsules": lambda data: columns(data, views=True).__arrow_c_array__(),
    "array of views": lambda data: pa.record_batch(columns(data, views=True))["value"],
}
every_holder = pytest.mark.parametrize("name", HOLDERS)


@every_holder
def test_a_buffer_is_held_while_a_pointer_into_it_exists(name: str) -> None:
    source = bytearray(DATA)
    holder = HOLDERS[name](source)
    assert held(source)
    del holder
    assert not held(source)


@every_holder
def test_a_mapped_file_cannot_be_closed_meanwhile(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(DATA)
    with (tmp_path / "x.log").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    holder = HOLDERS[name](mapped)
    with pytest.raises(BufferError):
        mapped.close()
    del holder
    mapped.close()


@every_holder
def test_every_reference_is_released(name: str) -> None:
    data, broken = bytes(bytearray(DATA)), bytes(bytearray(BROKEN))
    before = sys.getrefcount(data), sys.getrefcount(broken)
    for _ in range(50):
        HOLDERS[name](data)
        with contextlib.suppress(CorruptBatch):
            HOLDERS[name](broken)
    assert (sys.getrefcount(data), sys.getrefcount(broken)) == before


def test_a_view_outlives_its_maker() -> None:
    source = bytearray(DATA)
    batches = decode(source)
    first, second = batches
    raws = [first.raw, second.raw]
    del batches, first, second
    gc.collect()
    assert held(source)
    assert [bytes(raw) for raw in raws] == [PLAIN, PACKED]
    with pytest.raises(TypeError):
        raws[0][0] = 1  # read-only
    source[0] ^= 0x40  # a view of the bytes, not a copy
    assert raws[0][0] == 0x40
    raws[0].release()
    assert held(source)
    raws[1].release()
    assert not held(source)


def test_records_and_copies_hold_nothing() -> None:
    source = bytearray(DATA)
    kept = [list(iter_records(source)), columns(source), validate(source), [list(batch) for batch in decode(source)]]
    assert not held(source)
    assert len(kept) == 4


def test_a_finished_iterator_releases_its_buffer() -> None:
    """It is released at the last record, at close() and on an error, while the iterator itself still exists."""
    source = bytearray(DATA)
    batches, records = decode(source), iter_records(source)
    batches_count, records_count = sum(1 for _ in batches), sum(1 for _ in records)
    assert (batches_count, records_count) == (2, 42)
    assert not held(source)
    half = begun(iter_records(source))
    half.close()
    assert not held(source)
    assert list(half) == []
    broken = bytearray(BROKEN)
    batches, records = decode(broken), iter_records(broken)
    for iterator in (batches, records):
        with pytest.raises(CorruptBatch):
            list(iterator)
    assert not held(broken)
    for function in (validate, columns, lambda data: columns(data, views=True)):
        with pytest.raises(CorruptBatch):
            function(broken)
        assert not held(broken)


def collected(make: Callable[[bytearray | memoryview], None], data: bytes, *, view: bool) -> list[str]:
    """Problems found after the garbage collector has freed make(source). Runs in a child process: where a memoryview is
    cleared under its users, the interpreter may crash."""

    def work() -> list[str]:
        wrong: list[str] = []
        sys.unraisablehook = lambda report: wrong.append(repr(report.exc_value))
        source = bytearray(data)
        gc.disable()
        make(memoryview(source) if view else source)
        gc.collect()
        if held(source):
            wrong.append("the source is still held")
        return wrong

    found = in_child(work)
    assert isinstance(found, list)
    return found


either_source = pytest.mark.parametrize("view", [False, True], ids=["the source itself", "a memoryview of it"])


@either_source
@every_holder
def test_the_garbage_collector_releases_buffers(name: str, view: bool) -> None:
    def in_a_cycle(data: bytearray | memoryview) -> None:
        cell = [HOLDERS[name](data), data]  # younger than these, so cleared after them
        cell.append(cell)

    assert collected(in_a_cycle, DATA, view=view) == []


@either_source
def test_an_error_that_is_kept_with_its_frames(view: bool) -> None:
    """The traceback of the error refers to the frame, and the frame to the buffer; this is a cycle if the frame refers
    to the error."""

    def read(data: bytearray | memoryview) -> None:
        kept = []
        try:
            for batch in decode(data):
                kept += [batch, batch.raw, begun(iter(batch))]
        except CorruptBatch as caught:
            kept.append(caught)
        assert len(kept) == 4

    assert collected(read, BROKEN, view=view) == []


# Encoding -------------------------------------------------------------------------------------------------------------


def encoder_of(records: object) -> Encoder:
    return Encoder(
        records,
        batch_bytes_max=200,
        message_bytes_max=10_000,
        timestamp_default=T,
        timestamp_min=0,
        timestamp_max=T + 1,
    )


def test_a_record_is_held_until_it_is_written() -> None:
    """The first record that does not fit into a group waits in the encoder for the next."""
    values = [bytearray(150) for _ in range(3)]
    encoder = encoder_of([(None, value, T) for value in values])
    assert encoder.next_group(1).count == 1
    assert [held(value) for value in values] == [False, True, False]
    assert encoder.next_group(1).count == 1
    assert [held(value) for value in values] == [False, False, True]
    del encoder
    assert not any(map(held, values))


@pytest.mark.parametrize("bad", [(b"k", "text"), (b"k", b"v", -5), (b"k", b"v", T, [("h", 5)]), 5])
def test_an_error_releases_every_record(bad: object) -> None:
    keys = [bytearray(b"key") for _ in range(3)]
    records = [(key, bytearray(b"value"), T) for key in keys]
    counts = [sys.getrefcount(key) for key in keys]
    for _ in range(10):
        builder = BatchBuilder()
        for function in (encode, builder.extend, lambda given: encoder_of(given).next_group(1 << 20)):
            with pytest.raises((TypeError, ValueError)):
                function([*records, bad])
    assert not any(map(held, keys))
    assert [sys.getrefcount(key) for key in keys] == counts


def test_encoding_releases_its_references() -> None:
    key, value, header, name = b"a key of mine", bytes(100), b"header value", "name of mine"
    record = Record(key, value, T, [(name, header)])
    items = (key, value, header, name, record)
    counts = [sys.getrefcount(item) for item in items]
    for _ in range(50):
        encode([(key, value, T, [(name, header)])] * 5 + [record])
        encode(Lists([key] * 3, [value] * 3, [T] * 3, [[(name, header)]] * 3))
        list(iter_records(encode([record], compression="lz4")))
    assert [sys.getrefcount(item) for item in items] == counts


def test_a_finalizer_cannot_end_an_iterator_that_reads() -> None:
    """The garbage collector may run one while the headers of a record are made. It runs inside an allocation up to
    Python 3.11, later only between two bytecodes."""
    headers = [(f"h{number}", b"%d" % number) for number in range(40)]
    buffer = bytearray(encode([(b"key", b"value", T, headers)] * 3))
    records = iter_records(buffer)
    next(records)

    class Owner:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            with contextlib.suppress(ValueError):  # the iterator is in use
                records.close()
                buffer[:] = bytes(len(buffer))

    thresholds = gc.get_threshold()
    gc.disable()
    try:
        Owner()
        gc.set_threshold(1)
        gc.enable()
        record = next(records)
        gc.disable()
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    assert (record.key, record.value, list(record.headers)) == (b"key", b"value", headers)
