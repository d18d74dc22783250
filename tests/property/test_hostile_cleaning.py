"""Modified segments, with recomputed lengths and checksums, in both passes of a compaction.

The test changes one to four fields or bytes of Kafka's own segments: in batch headers, in records, and inside compressed
payloads. Each segment is cleaned completely or raises CorruptBatch. compact_target lists the other checks.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.cleaner._clean import KeySurvey
from klog.cleaner._keymap import KeyMap
from klog.cleaner.transactions import CleanedTransactions
from klog.codec import compress
from klog.codec.compress import decompress
from klog.disk import LogFile
from klog.errors import CorruptBatch, UnsupportedCompression
from klog.record import encode
from tests.fuzz.face import compact_target
from tests.fuzz.seeds import batches
from tests.support import golden
from tests.support.reseal import reseal
from tests.support.resources import memory_limit

SEGMENT_BYTES_MAX = 20_000
# Fields of a batch header: base offset, leader epoch, attributes, last offset delta, both timestamps, producer, count.
FIELDS = (("q", 0), ("i", 12), ("h", 21), ("i", 23), ("q", 27), ("q", 35), ("q", 43), ("h", 51), ("i", 53), ("i", 57))
EXTREMES = (0, 1, 2, 127, 128, -1, -2, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**31, 2**62)
VARINTS = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80" * 10,
    b"\x80\x01",
)


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    cases = golden.unpack_cleaner_cases(tmp_path_factory.mktemp("cleaner"))
    paths = sorted(path for case in cases.values() for path in case.root.glob("**/*.log"))
    found = [path.read_bytes()[:SEGMENT_BYTES_MAX] for path in paths]
    return [data for data in found if len(data) > 61]


def opened(batch: bytes) -> tuple[int, bytes]:
    """Return the codec and the decompressed records; or the raw payload, if an earlier change made it invalid."""
    codec = batch[22] & 7
    with contextlib.suppress(CorruptBatch, UnsupportedCompression):
        return codec, bytes(decompress(codec, batch[61:], 1 << 22)) if codec else batch[61:]
    return 0, batch[61:]


def changed(batch: bytes, rng: random.Random) -> bytes:
    header, rest = bytearray(batch[:61]), batch[61:]
    if rng.random() < 0.5:
        kind, at = rng.choice(FIELDS)
        bits = 8 * struct.calcsize(kind)
        value = rng.choice(EXTREMES) + rng.randrange(-2, 3)
        struct.pack_into(f">{kind}", header, at, (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))
    elif rest and header[16] == 2:
        codec, records = opened(batch)
        plain = bytearray(records or b"\0")
        at = rng.randrange(len(plain))
        match rng.randrange(4):
            case 0:
                plain[at] ^= 1 << rng.randrange(8)
            case 1:
                plain[at : at + 1] = rng.choice(VARINTS)
            case 2:
                del plain[at : at + rng.randrange(1, 9)]
            case 3:
                plain += plain[at : at + 40]
        rest = bytes(compress(codec, bytes(plain))) if codec else bytes(plain)
    header[8:12] = struct.pack(">i", len(rest) + 49)
    return reseal(bytes(header) + rest) if header[16] == 2 else bytes(header) + rest


def mutants(segments: list[bytes], rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        parts = list(batches(rng.choice(segments)))
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(parts))
            match rng.randrange(8):
                case 0:
                    parts.insert(at, rng.choice(parts))
                case 1:
                    parts[at] = parts[at][: rng.randrange(len(parts[at]) + 1)]
                case _ if len(parts[at]) > 61:
                    parts[at] = changed(parts[at], rng)
        yield bytes((rng.choice((0xFC, 0xFE, 0x10)), rng.choice((0, 0, 7, 200)))) + b"".join(parts)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_a_modified_segment_is_cleaned_or_raises_corrupt_batch(seed: int, segments: list[bytes]) -> None:
    """P1, P2. A few times the memory of the largest decompression bomb is enough."""
    count = int(os.environ.get("KLOG_HOSTILE_CLEANINGS", "150" if seed == 1 else "20000"))
    for number, data in enumerate(mutants(segments, random.Random(seed), count)):
        try:
            with memory_limit(512 << 20):
                compact_target(data)
        except BaseException:
            print(f"seed {seed}, segment {number}: {data.hex()}")
            raise


def test_a_cleaning_can_be_stopped_between_two_bombs(tmp_path: Path) -> None:
    """A few kilobytes of a segment may decompress to gigabytes of zeros. The stop hook runs between batches."""
    value, path, ticks = bytes(16 << 20), tmp_path / "bombs", []
    bombs = [encode([(b"k", value)], base_offset=number, compression="zstd", leader_epoch=0) for number in range(10)]
    path.write_bytes(b"".join(bombs))
    size = path.stat().st_size
    assert size < 1 << 20
    file = LogFile(os.open(path, os.O_RDONLY), str(path))
    survey = KeySurvey(KeyMap(1 << 10), 0, CleanedTransactions())
    assert not survey.note(file, 0, size, 0, 10, ticks.append)
    file.close()
    assert len(ticks) == 3
    assert sum(ticks) == size
    assert survey.records_read == 10
