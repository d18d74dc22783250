"""Ten thousand calls do not grow memory, and a pooled buffer is not reused while a view of it exists."""

import array
import contextlib
import ctypes
import resource
import threading

import pyarrow as pa
import pytest

from klog.codec import compress
from klog.errors import CorruptBatch
from klog.record import BatchBuilder, Encoder, Lists, columns, decode, encode, iter_records, validate
from klog.record.control import marker
from tests.support.legacy_reference import Message, encode_message, wrap
from tests.support.reseal import reseal
from tests.support.resources import Growth, growth

T = 1_700_000_000_000
TIMES = 10_000
TIMES_EACH = 3_000  # of several buffers in sequence
RECORDS = [(b"key %d" % n, bytes(100), T + n, [("h", b"1")]) for n in range(20)]
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
PLAIN = encode(RECORDS)
DATA = b"".join(encode(RECORDS, base_offset=20 * i, compression=c) for i, c in enumerate((None, "lz4", "zstd")))
OLD = [encode_message(Message(1, n, b"k", bytes(50), T)) for n in range(5)]
READERS = {
    "decode": lambda data: [list(batch) for batch in decode(data)],
    "iter_records": lambda data: list(iter_records(data, include_control=True)),
    "columns": lambda data: columns(data, include_control=True).__arrow_c_array__(),
    "views": lambda data: columns(data, include_control=True, views=True).__arrow_c_array__(),
    "validate": validate,
}
GOOD = {
    **{str(codec): encode(RECORDS, compression=codec) for codec in CODECS},
    "control": encode([(*marker("commit", 3), T)], is_control=True, producer_id=1, producer_epoch=0),
    "magic 1": b"".join(OLD) + wrap(1, 9, OLD),
}
BAD = {
    "checksum": PLAIN + PLAIN[:-1] + b"\xff",
    "length": PLAIN + PLAIN[:8] + b"\xff" * 4 + PLAIN[12:],
    "cut": PLAIN + PLAIN[:100],
    "record": PLAIN + reseal(PLAIN[:61] + b"\x01" + PLAIN[62:]),
    "record in a codec": PLAIN + reseal(PLAIN[:21] + b"\0\4" + PLAIN[23:61] + compress(4, b"\x01" + PLAIN[62:])),
    "count": PLAIN + reseal(PLAIN[:57] + b"\x7f\xff\xff\xff" + PLAIN[61:]),
    "header": PLAIN + reseal(PLAIN[:-5] + b"\x01" + PLAIN[-4:]),
    "control key": encode([(b"k", b"", T)], is_control=True),
    **{
        f"{codec} stream": PLAIN + reseal(data[:-20] + bytes(20)) for codec, data in GOOD.items() if codec in CODECS[1:]
    },
    "magic 1 checksum": b"".join(OLD)[:-1] + b"\xff",
    "magic 1 wrapper": b"".join(OLD) + wrap(1, 9, [*OLD, OLD[0][:-1] + b"\xff"]),
}


@pytest.mark.parametrize("reader", READERS)
def test_ten_thousand_valid_parses_leak_nothing(reader: str) -> None:
    read, buffers = READERS[reader], list(GOOD.values())
    nothing(growth(lambda: [read(data) for data in buffers], TIMES_EACH))


@pytest.mark.parametrize("reader", READERS)
def test_ten_thousand_invalid_parses_leak_nothing(reader: str) -> None:
    read, met = READERS[reader], set()

    def work() -> None:
        for name, data in BAD.items():
            try:
                read(data)
            except CorruptBatch:
                met.add(name)

    nothing(growth(work, TIMES_EACH))
    # A partial batch at the end is not an error for a reader that waits for more bytes.
    assert met == BAD.keys() - ({"cut"} if reader in ("iter_records", "columns", "views") else set())


def nothing(left: Growth) -> None:
    """Check that memory has not grown. A leak of one allocation per call would be at least TIMES_EACH blocks; a leak of
    one page per call that malloc does not count would be at least TIMES_EACH pages. Threads of other tests may take
    some memory, too: once 3.4 MB more were resident, although nothing was allocated."""
    assert left.allocated < 64 << 10, left
    assert left.blocks < TIMES_EACH // 2, left
    assert left.resident < TIMES_EACH * resource.getpagesize() // 2, left


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
        (parse_half, TIMES),
        (to_columns, TIMES),
        (build, TIMES),
        (build_from_columns, TIMES),
        (build_broken, TIMES),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_memory_does_not_grow(work, times: int) -> None:
    nothing(growth(work, times))


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


def test_concurrent_groups_share_no_buffer() -> None:
    groups = [group_of(bytes([65 + n])) for n in range(8)]
    for n, group in enumerate(groups):
        assert {record.value for record in iter_records(group)} == {bytes([65 + n]) * 500}


def test_exported_arrays_keep_their_buffers() -> None:
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


def test_threads_return_buffers_while_others_take_them() -> None:
    """Columns are decoded without the GIL, and pyarrow releases them on the thread that drops the last reference."""
    data = [encode([(b"key", bytes([n]) * 200, T)] * 1_000) for n in range(4)]
    held: list[pa.RecordBatch | None] = [None] * 4
    wrong = []

    def work(n: int) -> None:
        for turn in range(100):
            batch = pa.record_batch(columns(data[n]))
            if set(batch.column("value").to_pylist()) != {bytes([n]) * 200}:
                wrong.append((n, turn))
            held[(n + turn) % 4] = batch  # drops another thread's

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_large_groups_reuse_touched_memory() -> None:
    data = bytes(memoryview(group_of(b"a")))
    # malloc may do this by itself at any time: return freed memory to the kernel.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)

    def faults_of(work) -> int:
        before = 0
        for turn in range(13):
            work()
            trim(0)
            if turn == 2:
                before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        return (resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before) // 10

    # A MiB of fresh memory would cause 256 faults.
    assert faults_of(lambda: group_of(b"a")) < 100
    assert faults_of(lambda: columns(data)) < 100
