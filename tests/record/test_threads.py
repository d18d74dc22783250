"""Threads with separate batches or the same ones, while native code runs without the GIL."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

import klog.record._batch as batch_module
from klog.codec import CODECS, compress, crc32c, decompress
from klog.record import Lists, columns, decode, encode, iter_records, validate
from tests.support.legacy_reference import Message, encode_message, wrap

T = 1_700_000_000_000
THREADS = 4
CODED = range(1, 5)
BIG = 4096  # records of a KiB: 4 MiB, far above the size that releases the GIL


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], None]) -> None:
    """Run work(0), work(1), … at the same time; raise the first error."""
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def records_of(number: int, count: int, size: int) -> list[tuple]:
    return [
        (b"key %d of %d" % (n, number), bytes((number * 16 + n % 16,)) * size, T + n, [("h", b"%d" % n)])
        for n in range(count)
    ]


def rows(found) -> list[tuple]:
    return [(r.key, r.value, r.timestamp, list(r.headers)) for r in found]


def check(data: bytes, want: list[tuple]) -> None:
    """Check the batches with every reader."""
    assert validate(data) == len(want)
    assert rows(iter_records(data)) == want
    assert rows(record for batch in decode(data) for record in batch) == want
    for views in (False, True):
        table = pa.record_batch(columns(data, views=views))
        assert table["value"].to_pylist() == [value for _, value, _, _ in want]
        assert table["key"].to_pylist() == [key for key, _, _, _ in want]


@pytest.mark.parametrize("shape", [(3, 20), (500, 100), (600, 2_000)], ids=["tiny", "small", "a MiB"])
@pytest.mark.parametrize("codec", CODECS)
def test_threads_with_separate_batches(codec: str, shape: tuple[int, int], hasty: None) -> None:
    """Encode, decode and validate: threads share no codec contexts, pooled buffers or parser caches."""
    count, size = shape

    def work(number: int) -> None:
        want = records_of(number, count, size)
        for turn in range(200 if count == 3 else 10 if count == 500 else 3):
            data = encode(want, compression=codec, base_offset=turn)
            check(data, want)
            lists = Lists(*zip(*[(key, value, at) for key, value, at, _ in want], strict=True))
            assert encode(lists) == encode([record[:3] for record in want])
            assert encode(columns(data)) == encode(want)

    together(work)


@pytest.mark.parametrize("codec", CODECS)
def test_threads_with_the_same_batches(codec: str, hasty: None) -> None:
    want = records_of(1, 400, 300)
    data = bytearray(encode(want, compression=codec))
    batches = list(decode(data))

    def work(number: int) -> None:
        for _ in range(5):
            check(data, want)
            assert rows(record for batch in batches for record in batch) == want

    together(work)
    batches.clear()
    data.append(0)  # no reference is left


def test_threads_with_the_same_legacy_messages(hasty: None) -> None:
    """Reads of the same buffer share one cached wrapper."""
    wrappers = [
        wrap(1, 10 * n + 9, [encode_message(Message(1, i, b"%d" % n, bytes(3000), T + i)) for i in range(10)])
        for n in range(8)
    ]
    batches = list(decode(b"".join(wrappers)))

    def work(number: int) -> None:
        for turn in range(40):
            n = (3 * number + turn) % 8
            assert [(r.offset, r.key) for r in batches[n]] == [(10 * n + i, b"%d" % n) for i in range(10)]

    together(work)


def test_an_iterator_refuses_a_second_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that uses the iterator while another one decompresses gets an error; so does close(), which would free
    the buffer."""
    data = encode([(b"k", b"v", T)] * 3, compression="zstd") * 2
    events = []

    def decompress_slowly(codec: int, payload: memoryview, bytes_max: int) -> object:
        for intrude in (lambda: next(records), records.close):
            with pytest.raises(ValueError, match="record iterator already executing"):
                intrude()
            events.append(intrude)
        return decompress(codec, payload, bytes_max)

    monkeypatch.setattr(batch_module, "decompress", decompress_slowly)
    records = iter_records(data)
    assert len(list(records)) == 6
    assert len(events) == 4
    records.close()


def big() -> bytes:
    return encode(Lists([b"key"] * BIG, [bytes(1024)] * BIG))


WITHOUT_THE_GIL: dict[str, Callable[[], Callable[[], object]]] = {
    "crc32c": lambda: partial(crc32c, big()),
    "validate": lambda: partial(validate, big()),
    "decode": lambda: partial(next, decode(big())),
    "columns": lambda: partial(columns, big()),
    "views": lambda: partial(columns, big(), views=True),
    "encode columns": lambda: partial(encode, columns(big())),
    "encode an Arrow array": lambda: partial(encode, pa.record_batch(columns(big()))),
    **{f"compress {CODECS[codec]}": partial(lambda codec: partial(compress, codec, big()), codec) for codec in CODED},
    **{
        f"decompress {CODECS[codec]}": partial(
            lambda codec: partial(decompress, codec, bytes(compress(codec, big())), 1 << 26), codec
        )
        for codec in CODED
    },
}


@pytest.mark.parametrize("name", WITHOUT_THE_GIL)
def test_other_threads_run_during_native_code(name: str) -> None:
    """On a busy machine a call may end before the other thread wakes up, so there are a thousand calls."""
    assert any(others_ran_during(WITHOUT_THE_GIL[name]()) for _ in range(1000))


def test_holding_the_gil_would_be_noticed() -> None:
    assert not any(others_ran_during(partial(sum, range(300_000))) for _ in range(10))


def others_ran_during(work: Callable[[], object]) -> bool:
    """With an endless switch interval, this thread runs between begin and end only if the work releases the GIL."""
    before = sys.getswitchinterval()
    events: list[str] = []

    def run() -> None:
        events.append("begun")
        work()
        events.append("done")

    thread = threading.Thread(target=run)
    sleeper = threading.Event()
    sys.setswitchinterval(100.0)
    try:
        thread.start()
        while not events:
            sleeper.wait(1e-6)
        return events == ["begun"]
    finally:
        sys.setswitchinterval(before)
        thread.join()
