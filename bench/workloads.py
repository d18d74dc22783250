"""Named, seeded data: the same bytes on every machine and in every run.

A key is 9 bytes, as in the figures that klog's goals come from. Values are made of words, so that codecs find
something to do and do not find too much.

Every call works on about one MiB, and calls take STREAM sources in turn, so that no source is still in the caches of
one core when its turn comes again: the unit in which klog's goals count a memcpy too.
"""

from __future__ import annotations

import itertools
import mmap
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

FIRST_TIMESTAMP = 1_357_035_300_000
_WORDS = [b"gate", b"runway", b"taxi", b"delay", b"JFK", b"LGA", b"EWR", b"tailwind", b"boarding", b"pushback"]

STREAM = 24
Tuple = tuple[bytes, bytes, int]
Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Workload:
    """`count` records with values of `value_bytes`; together about one MiB at full scale, the unit of every call."""

    name: str
    value_bytes: int
    count: int

    def tiny(self) -> Workload:
        """The same shape, a few records: for the test suite."""
        return Workload(self.name, self.value_bytes, min(self.count, 16))

    def tuples(self) -> list[Tuple]:
        """(key, value, timestamp), keys repeating, timestamps rising by a few milliseconds."""
        chance = random.Random(f"{self.name}/{self.value_bytes}/{self.count}")
        stock = b" ".join(chance.choices(_WORDS, k=self.value_bytes // 4 + 4096))
        timestamp, made = FIRST_TIMESTAMP, []
        for _ in range(self.count):
            timestamp += chance.randrange(8)
            start = chance.randrange(len(stock) - self.value_bytes)
            made.append((b"key-%05d" % chance.randrange(5_000), stock[start : start + self.value_bytes], timestamp))
        return made

    @property
    def bytes(self) -> int:
        """Keys and values together: what the rates count."""
        return self.count * (self.value_bytes + 9)


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


def noise(size: int) -> bytes:
    """Bytes without structure, for checksums."""
    return random.Random(size).randbytes(size)


def copies(data: bytes) -> list[bytes]:
    """STREAM times the same bytes, each in memory of its own."""
    return [bytes(bytearray(data)) for _ in range(STREAM)]


def in_turn(work: Callable[[Source], object], sources: Sequence[Source]) -> Callable[[], object]:
    """A run(): the work on the next of the sources."""
    following = itertools.cycle(sources).__next__
    return lambda: work(following())


def memcpy(size: int) -> Callable[[bytes], None]:
    """Copies `size` bytes to the same place again and again, a place aligned as a page is."""
    target = memoryview(mmap.mmap(-1, size))

    def copy(data: bytes) -> None:
        target[:] = data

    return copy
