"""Ten thousand times over, nothing grows."""

import contextlib

import pytest

from klog.errors import CorruptBatch
from klog.record import Encoder, columns, decode, encode, iter_records, validate
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
        (build_broken, 3_000),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nothing_grows(work, times: int) -> None:
    resident, blocks = growth(work, times)
    # A leak of 64 bytes a time would show in either.
    assert resident < 1 << 20, resident
    assert blocks < 500, blocks
