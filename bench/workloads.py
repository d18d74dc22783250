"""Named, seeded data: the same bytes on every machine and in every run.

A key has 9 bytes and a value is cut from lines of JSON, as in the measurements that klog's goals are based on: lz4
compresses a batch of 16 KiB to 0.46 of its size with values of 100 B, and to 0.34 with 1 KiB.

Every call works on about one MiB, and calls cycle through STREAM sources, so that no source is still in the caches of
one core when it is used again. klog's goals use a memcpy of the same unit.
"""

from __future__ import annotations

import itertools
import mmap
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

FIRST_TIMESTAMP = 1_357_035_300_000

STREAM = 24
_STOCK_BYTES = 128 << 10  # more than lz4's window of 64 KiB
Tuple = tuple[bytes, bytes, int]
Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Workload:
    """`count` records with values of `value_bytes`; together about one MiB at full scale, the unit of every call."""

    name: str
    value_bytes: int
    count: int

    def tiny(self) -> Workload:
        """Return the same workload with a few records, for the test suite."""
        return Workload(self.name, self.value_bytes, min(self.count, 16))

    def tuples(self) -> list[Tuple]:
        """Return (key, value, timestamp) of each record: keys repeat, timestamps rise by a few milliseconds."""
        chance = random.Random(f"{self.name}/{self.value_bytes}/{self.count}")
        stock = _lines(chance, self.value_bytes + _STOCK_BYTES)
        timestamp, made = FIRST_TIMESTAMP, []
        for _ in range(self.count):
            timestamp += chance.randrange(8)
            start = chance.randrange(len(stock) - self.value_bytes)
            made.append((b"key-%05d" % chance.randrange(5_000), stock[start : start + self.value_bytes], timestamp))
        return made

    @property
    def bytes(self) -> int:
        """Bytes of keys and values: the unit of the rates."""
        return self.count * (self.value_bytes + 9)


def _lines(chance: random.Random, size: int) -> bytes:
    """Return at least `size` bytes of JSON, an event of about 100 bytes in each line."""
    made, total = [], 0
    while total < size:
        made.append(
            b'{"id":"%010x","carrier":"%s","flight":%d,"origin":"%s","dest":"%s","delay":%d,"distance":%d}\n'
            % (
                chance.getrandbits(40),
                chance.choice((b"UA", b"AA", b"B6", b"DL")),
                chance.randrange(6_000),
                chance.choice((b"EWR", b"LGA", b"JFK")),
                chance.choice((b"IAH", b"MIA", b"ATL", b"ORD", b"BOS", b"SFO")),
                chance.randrange(-20, 200),
                chance.randrange(3_000),
            )
        )
        total += len(made[-1])
    return b"".join(made)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("10B", 10, 32_768),
        Workload("100B", 100, 9_216),
        Workload("1KiB", 1_024, 1_008),
        Workload("16KiB", 16_384, 64),
        Workload("100KiB", 102_400, 10),
    )
}


def workload(name: str, *, tiny: bool) -> Workload:
    return WORKLOADS[name].tiny() if tiny else WORKLOADS[name]


def arrow_table(tuples: list[Tuple]) -> pa.RecordBatch:
    """Return the same records as Arrow columns."""
    key, value, timestamp = zip(*tuples, strict=True)
    return pa.record_batch(
        {
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
            "timestamp": pa.array(timestamp, pa.timestamp("ms", "UTC")),
        }
    )


def noise(size: int) -> bytes:
    """Return random bytes, for checksums."""
    return random.Random(size).randbytes(size)


def copies(data: bytes) -> list[bytes]:
    """Return STREAM copies of the same bytes, each in its own memory."""
    return [bytes(bytearray(data)) for _ in range(STREAM)]


def cycling(work: Callable[[Source], object], sources: Sequence[Source]) -> Callable[[], object]:
    """Return a run() that does the work on the next source at each call, and begins again after the last source."""
    following = itertools.cycle(sources).__next__
    return lambda: work(following())


def memcpy(size: int) -> Callable[[bytes], None]:
    """Return a function that copies `size` bytes to the same page-aligned memory."""
    target = memoryview(mmap.mmap(-1, size))

    def copy(data: bytes) -> None:
        target[:] = data

    return copy
