"""Ten thousand times over, nothing grows; and what is pooled is nobody else's while somebody can see it."""

import array
import contextlib
import ctypes
import resource
import threading

import pyarrow as pa
import pytest

from klog.errors import CorruptBatch
from klog.record import BatchBuilder, Encoder, Lists, columns, decode, encode, iter_records, validate
from tests.support.resources import growth

T = 1_700_000_000_000
RECORDS = [(b"key %d" % n, bytes(100), T + n, [("h", b"1")]) for n in range(20)]
DATA = b"".join(encode(RECORDS, base_offset=20 * i, compression=c) for i, c in enumerate((None, "lz4", "zstd")))
BROKEN = DATA[:-1] + b"\xff"


def parse() -> None:
    for batch in decode(DATA):
        for record in batch:
            assert record.value


def parse_broken() -> None:
    for function in (validate, lambda data: list(iter_records(data)), columns):
        with contextlib.suppress(CorruptBatch):
            function(BROKEN)


def parse_half() -> None:
    iterator = iter_records(DATA)
    next(iterator)
    for _ in zip(range(30), iter_records(DATA), strict=False):
        pass


def to_columns() -> None:
    columns(DATA).__arrow_c_array__()
    columns(DATA, fields=["headers"])
    columns(DATA, views=True).__arrow_c_array__()


def build() -> None:
    encode(RECORDS, compression="gzip")
    encoder = Encoder(
        iter(RECORDS),
        batch_bytes_max=500,
        message_bytes_max=10_000,
        timestamp_default=T,
        timestamp_min=0,
        timestamp_max=T + 100,
    )
    while encoder.next_group(1000) is not None:
        pass


COLUMNS = columns(DATA)


def build_from_columns() -> None:
    encode(COLUMNS)
    encode(Lists([b"k"] * 9, [b"v"] * 9, array.array("q", [T] * 9)))
    with contextlib.suppress(ValueError):
        encode(columns(DATA, fields=["key"]))
    builder = BatchBuilder()
    builder.append(b"k", b"v", T, [("h", b"1")])
    with contextlib.suppress(TypeError):
        builder.append(b"k", "text")
    builder.build()


def build_broken() -> None:
    for bad in ((b"k", "text"), (b"k", b"v", T, [("h", 5)]), (b"k", b"v", -5)):
        with contextlib.suppress(TypeError, ValueError):
            encode([*RECORDS, bad])


@pytest.mark.parametrize(
    ("work", "times"),
    [
        (parse, 10_000),
        (parse_broken, 4_000),
        (parse_half, 4_000),
        (to_columns, 6_000),
        (build, 3_000),
        (build_from_columns, 3_000),
        (build_broken, 3_000),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nothing_grows(work, times: int) -> None:
    resident, blocks = growth(work, times)
    # A leak of 64 bytes a time would show in either.
    assert resident < 1 << 20, resident
    assert blocks < 500, blocks


def group_of(fill: bytes, count: int = 2_000):
    encoder = Encoder(
        [(b"key", fill * 500, T)] * count,
        batch_bytes_max=16_384,
        message_bytes_max=1 << 20,
        timestamp_default=T,
        timestamp_min=0,
        timestamp_max=T + 100,
    )
    return encoder.next_group(1 << 30)


def test_a_view_pins_the_bytes_of_its_group() -> None:
    view = memoryview(group_of(b"a"))
    expected = bytes(view)
    for _ in range(3):
        group_of(b"b")
        encode([(b"key", b"c" * 500, T)] * 2_000)
    assert view == expected
    assert validate(view) == 2_000


def test_groups_side_by_side_share_nothing() -> None:
    groups = [group_of(bytes([65 + n])) for n in range(8)]
    for n, group in enumerate(groups):
        assert {record.value for record in iter_records(group)} == {bytes([65 + n]) * 500}


def test_arrays_in_a_consumers_hands_keep_their_buffers() -> None:
    data = encode([(b"key %d" % n, b"a" * 500, T + n) for n in range(2_000)])
    other = encode([(b"another %d" % n, b"b" * 500, T - n) for n in range(2_000)])
    first = pa.record_batch(columns(data))
    values = first.column("value").slice(100, 50)
    expected = first.to_pydict()
    for _ in range(3):
        columns(other).__arrow_c_array__()
        pa.record_batch(columns(other))
    assert first.to_pydict() == expected
    del first
    pa.record_batch(columns(other))
    assert values.to_pylist() == [b"a" * 500] * 50


def test_threads_give_buffers_back_while_others_take_them() -> None:
    """Columns are decoded without the GIL, and pyarrow releases them on whatever thread lets go last."""
    data = [encode([(b"key", bytes([n]) * 200, T)] * 1_000) for n in range(4)]
    held: list[pa.RecordBatch | None] = [None] * 4
    wrong = []

    def work(n: int) -> None:
        for turn in range(100):
            batch = pa.record_batch(columns(data[n]))
            if set(batch.column("value").to_pylist()) != {bytes([n]) * 200}:
                wrong.append((n, turn))
            held[(n + turn) % 4] = batch  # and so lets go of another thread's

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_megabytes_are_built_in_memory_that_was_touched_before() -> None:
    data = bytes(memoryview(group_of(b"a")))
    # What malloc does by itself when it feels like it: memory that was freed goes back to the kernel.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)

    def faults_of(work) -> int:
        before = 0
        for turn in range(13):
            work()
            trim(0)
            if turn == 2:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10

    # A MiB of fresh memory would be 256 of them.
    assert faults_of(lambda: group_of(b"a")) < 100
    assert faults_of(lambda: columns(data)) < 100
