"""Every reader of the record package reads a valid batch, and then a batch of Kafka that is cut at any byte or has any bit
flipped.

    reader      a batch that is cut            a flipped bit under the checksum     outside it
    iter_records, columns, views
                the records before it          the records before it, CorruptBatch  see check_outside
    decode, validate
                CorruptBatch, where it begins  CorruptBatch, where it begins

The header bytes outside the checksum that only a log can check (offsets inside the segment's span, rising epochs) are
checked by `klog.verify`: tests/inspect/test_verify_flips.py.

`make test` takes every cut and every flip of two batches of each kind, and samples the others; the tests marked deep
try every cut and every flip of all batches of up to 4 KiB.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from klog.codec import crc32c
from klog.errors import CorruptBatch
from klog.record import Record, columns, decode, encode, iter_records, validate
from tests.fuzz.seeds import golden_batches
from tests.support import golden

SMALL = 4096  # bytes
SHARDS = 8
EVERYTHING = {"start": -(2**63), "include_control": True}
FRONT = encode([(b"k", b"v" * 20, 1_700_000_000_000), (None, None, -1, [("h", None)])], base_offset=7)
AT = len(FRONT)
PREFIX = list(iter_records(FRONT))
INT32_MAX = 2**31 - 1


def rows(data: bytearray | memoryview, **options: object) -> tuple[list[Record], CorruptBatch | None]:
    """Return the records that iter_records returns, and the error that ends it."""
    got: list[Record] = []
    try:
        got.extend(iter_records(data, **EVERYTHING, **options))  # records before an error stay
    except CorruptBatch as error:
        return got, error
    return got, None


def batches(data: bytearray | memoryview, **options: object) -> tuple[list[Record], CorruptBatch | None]:
    got: list[Record] = []
    try:
        for batch in decode(data, **options):
            got.extend(batch)
    except CorruptBatch as error:
        return got, error
    return got, None


def columns_of(data: bytearray | memoryview) -> int | None:
    """Return the number of rows, which is the same for copies and for views; or None for CorruptBatch."""
    return attempt(
        lambda: columns(data, **EVERYTHING).num_rows, lambda: columns(data, **EVERYTHING, views=True).num_rows
    )


def validated(data: bytearray | memoryview) -> int | None:
    return attempt(lambda: validate(data))


def attempt(*functions: Callable[[], int]) -> int | None:
    """Return the common result of all functions, or None if all raise CorruptBatch at the position after the valid batch."""
    results: set[int | None] = set()
    for function in functions:
        position = AT
        try:
            results.add(function())
        except CorruptBatch as error:
            results.add(None)
            position = error.position
        assert position == AT
    (result,) = results
    return result


class Sweep:
    """A valid batch, followed by a batch that is damaged in place repeatedly."""

    def __init__(self, batch: bytes) -> None:
        self.batch = batch
        self.data = bytearray(FRONT + batch)
        self.magic = batch[16]
        self.first_checked = 12 if self.magic < 2 else 17  # header bytes before it are outside the checksum
        records, error = rows(self.data)
        assert error is None
        self.records = records[len(PREFIX) :]
        self.count = len(self.records)

    def cut(self, size: int) -> None:
        data = memoryview(self.data)[: AT + size]
        got, error = rows(data)
        assert error is None
        assert got == PREFIX
        assert columns_of(data) == len(PREFIX)
        assert batches(data, allow_partial=True) == (PREFIX, None)
        if size != 0:
            got, error = batches(data)
            assert error is not None
            assert (got, error.position, error.kind) == (PREFIX, AT, "length")
            assert validated(data) is None

    def flip(self, at: int, bit: int) -> None:
        self.data[AT + at] ^= 1 << bit
        try:
            if at < self.first_checked:
                self.check_outside(at, bit)
            else:
                self.check_refused()
        finally:
            self.data[AT + at] ^= 1 << bit

    def check_refused(self) -> None:
        """Every reader returns the exact prefix and raises at the batch."""
        for got, error in (rows(self.data), batches(self.data)):
            assert got == PREFIX
            assert error is not None
            assert type(error) is CorruptBatch
            assert error.position == AT
        assert columns_of(self.data) is None
        assert validated(self.data) is None

    def check_outside(self, at: int, bit: int) -> None:
        """Base offset, length, leader epoch and magic are outside the checksum."""
        if at < 8:
            if at == 0 and bit == 7:
                self.check_refused()
            else:
                moved = struct.unpack_from(">q", self.data, AT)[0] - struct.unpack_from(">q", self.batch)[0]
                self.check_same_except(offset=moved)
        elif at < 12:
            (length,) = struct.unpack_from(">i", self.data, AT + 8)
            if 0 <= length <= INT32_MAX - 12 and length + 12 > len(self.batch):
                self.cut(len(self.batch))  # read as a partial batch
            else:
                self.check_refused()
        elif at < 16:
            self.check_same_except(leader_epoch=struct.unpack_from(">i", self.data, AT + 12)[0])
        else:
            self.check_refused()
            if self.data[AT + 16] < 128 and self.data[AT + 16] > 2:
                self.check_magic_above_2_in_a_file()

    def check_same_except(self, *, offset: int = 0, leader_epoch: int | None = None) -> None:
        got, error = rows(self.data)
        if self.magic < 2 and error is not None:
            # The inner messages of a wrapper allow only some offsets.
            assert error.kind == "offset_order"
            assert got == PREFIX
            assert columns_of(self.data) is None
            assert validated(self.data) is None
            return
        assert error is None
        assert batches(self.data) == (got, None)
        assert got[: len(PREFIX)] == PREFIX
        assert len(got) == len(PREFIX) + self.count
        for mine, was in zip(got[len(PREFIX) :], self.records, strict=True):
            assert mine.offset == was.offset + offset
            assert mine.leader_epoch == (was.leader_epoch if leader_epoch is None else leader_epoch)
            assert without_offset(mine) == without_offset(was)
        assert columns_of(self.data) == len(got)
        assert validated(self.data) == len(got)

    def check_magic_above_2_in_a_file(self) -> None:
        """Kafka's file reader reads a magic above 2 as 2. The checksum must still match."""
        got, error = rows(self.data, path="x.log")
        assert error is None
        assert got == PREFIX + self.records

    def every_damage(self) -> None:
        for size in range(len(self.batch)):
            self.cut(size)
        for at in range(len(self.batch)):
            for bit in range(8):
                self.flip(at, bit)

    def change_under_a_valid_checksum(self, at: int, bits: int) -> None:
        """Change bits and recompute the checksum. All readers must agree on the result."""
        was = self.data[AT + 17 : AT + 21]
        self.data[AT + at] ^= bits
        struct.pack_into(">I", self.data, AT + 17, crc32c(memoryview(self.data)[AT + 21 :]))
        try:
            got, error = rows(self.data)
            assert got[: len(PREFIX)] == PREFIX
            received, how = batches(self.data)
            assert (received == got) and ((how is None) == (error is None))
            if error is None:
                assert columns_of(self.data) == len(got)
                assert validated(self.data) in (len(got), None)
                for views in (False, True):
                    pa.record_batch(columns(self.data, **EVERYTHING, views=views)).validate(full=True)
            else:
                assert error.position == AT
                assert columns_of(self.data) is None
                assert validated(self.data) is None
        finally:
            self.data[AT + at] ^= bits
            self.data[AT + 17 : AT + 21] = was


def without_offset(record: Record) -> tuple[object, ...]:
    return (
        record.key,
        record.value,
        record.headers,
        record.timestamp,
        record.timestamp_type,
        record.producer_id,
        record.producer_epoch,
        record.sequence,
        record.is_transactional,
        record.control_type,
    )


def legacy_batches() -> Iterable[bytes]:
    """Yield messages and wrappers of magic 1."""
    for path in sorted((golden.HOME / "cleaner" / "legacy-v1" / "before").glob("*/*.log")):
        for batch in decode(path.read_bytes()):
            yield bytes(batch.raw)


@functools.cache
def small_batches() -> list[bytes]:
    return [data for data in dict.fromkeys([*golden_batches(), *legacy_batches()]) if len(data) <= SMALL]


@functools.cache
def large_batches() -> list[bytes]:
    return [data for data in dict.fromkeys(golden_batches()) if len(data) > SMALL]


def kind(data: bytes) -> tuple[object, ...]:
    (batch,) = decode(data)
    gaps = batch.count <= batch.last_offset - batch.base_offset
    return (batch.magic, batch.attributes, batch.control_type, batch.producer_id < 0, batch.count == 0, gaps)


def two_of_each_kind() -> list[bytes]:
    """Return the shortest and the median batch of each kind."""
    kinds: dict[tuple[object, ...], list[bytes]] = {}
    for data in sorted(small_batches(), key=len):
        kinds.setdefault(kind(data), []).append(data)
    return [data for found in kinds.values() for data in dict.fromkeys((found[0], found[len(found) // 2]))]


def test_there_are_many_batches() -> None:
    assert len(small_batches()) > 5_000
    assert len(large_batches()) > 50
    assert {data[16] for data in small_batches()} == {1, 2}
    assert {data[22] & 7 for data in large_batches()} == set(range(5))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_cut_and_flip_of_two_batches_of_each_kind(shard: int) -> None:
    chosen = two_of_each_kind()
    assert len(chosen) > 60
    for data in chosen[shard::SHARDS]:
        Sweep(data).every_damage()


@pytest.mark.parametrize("seed", range(4))
def test_sampled_cuts_and_flips_of_small_batches(seed: int) -> None:
    chance = random.Random(f"small {seed}")
    for data in chance.sample(small_batches(), 2_500):
        some_damage(data, chance, 20)


@pytest.mark.parametrize("seed", range(4))
def test_20_000_cuts_and_flips_of_large_batches(seed: int) -> None:
    chance = random.Random(f"large {seed}")
    times = 20_000 // 4 // len(large_batches()) + 1
    for data in large_batches():
        some_damage(data, chance, times)


def some_damage(data: bytes, chance: random.Random, times: int) -> None:
    """A quarter of the damages are cuts. A quarter of the flips are in the header, which a uniform draw would rarely select."""
    sweep = Sweep(data)
    for _ in range(times):
        if chance.random() < 0.25:
            sweep.cut(chance.randrange(len(data)))
        else:
            sweep.flip(
                chance.randrange(61 if chance.random() < 0.25 and len(data) > 61 else len(data)), chance.randrange(8)
            )


@pytest.mark.parametrize("seed", range(4))
def test_modified_batches_under_a_valid_checksum(seed: int) -> None:
    chance = random.Random(f"lies {seed}")
    good = [data for data in small_batches() if data[16] == 2]
    for data in chance.sample(good, 1_000):
        sweep = Sweep(data)
        for _ in range(10):
            sweep.change_under_a_valid_checksum(
                chance.randrange(21, len(data)), chance.choice((1 << chance.randrange(8), chance.randrange(1, 256)))
            )


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shard", range(4 * SHARDS))
def test_every_cut_and_flip_of_every_small_batch(shard: int) -> None:
    """One bit of each byte: which one differs from batch to batch. All bits of two batches of each kind: above."""
    for number, data in enumerate(small_batches()[shard :: 4 * SHARDS]):
        sweep = Sweep(data)
        for at in range(len(data)):
            sweep.cut(at)
            sweep.flip(at, (at + number) % 8)


@pytest.mark.deep
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_flip_under_a_valid_checksum(shard: int) -> None:
    for data in [data for data in two_of_each_kind() if data[16] == 2][shard::SHARDS]:
        sweep = Sweep(data)
        for at in range(21, len(data)):
            for bit in range(8):
                sweep.change_under_a_valid_checksum(at, 1 << bit)
