"""Direct calls of lz4 have the same result as its Python package, or leave the payload to the package."""

from __future__ import annotations

import gc
import random
import resource
import subprocess
import sys
import threading

import lz4.frame
import pytest

from klog.codec import CODECS, compress, decompress
from klog.codec._direct import pack, unpack
from tests.support.damage import flip

LZ4 = CODECS.index("lz4")
MANY = 1 << 26
TEXT = b"".join(b"flight %d from EWR to %s;" % (n * 7919 % 1000, (b"ORD", b"LAX")[n % 2]) for n in range(40_000))
SIZES = [1, 12, 13, 100, 4096, 65_535, 65_536, 65_537, 131_072, 300_000]


def by_package(payload: bytes) -> bytes | None:
    """The result of the package's Python API for a payload; None if it refuses the payload."""
    try:
        return lz4.frame.decompress(payload)
    except RuntimeError:
        return None


def test_the_libraries_are_found() -> None:
    """This holds on every machine that runs these tests. If a package hides its functions, klog works without them."""
    assert pack(TEXT) is not None


@pytest.mark.parametrize("size", SIZES)
def test_the_result_is_the_same(size: int) -> None:
    for data in (TEXT[:size], random.Random(size).randbytes(size), bytes(size)):
        payload = bytes(compress(LZ4, data))
        assert unpack(payload, size + 65_536) == data == by_package(payload)
        assert decompress(LZ4, payload, MANY) == data


@pytest.mark.parametrize("size", SIZES)
def test_lz4_is_packed_as_by_the_package(size: int) -> None:
    for data in (TEXT[:size], random.Random(size).randbytes(size), bytes(size)):
        packed = pack(data)
        assert packed is not None and by_package(packed) == data
        assert unpack(packed + b"bytes after the frame", MANY) == data
        assert packed[:7] == bytes(compress(LZ4, data)[:7])
        assert len(packed) <= len(compress(LZ4, data)) + size // 100


def test_other_frames_are_left_to_the_package() -> None:
    for more in ({"store_size": True}, {"content_checksum": True}, {"block_checksum": True}, {"block_linked": True}):
        assert unpack(lz4.frame.compress(TEXT, **({"store_size": False} | more)), MANY) is None
    payload = bytes(compress(LZ4, TEXT))
    for bad in (b"", b"\x04\x22\x4d\x18", payload[:-1], payload[:-4], b"\0" * 40):
        assert unpack(bad, MANY) is None
    assert unpack(payload[:7] + b"\x01\x00\x01\x80" + bytes(65_537) + bytes(4), MANY) is None  # more than 64 KiB


def test_a_bound_holds() -> None:
    payload = bytes(compress(LZ4, TEXT))
    assert unpack(payload, len(TEXT) - 1) is None
    assert unpack(payload, len(TEXT) + 65_536) == TEXT


def test_damage_gives_the_packages_result_or_none() -> None:
    chance = random.Random(1)
    taken = 0
    for number in range(1500):
        payload = bytearray(compress(LZ4, TEXT[: chance.randrange(1, 3000)] if number % 10 else TEXT))
        for _ in range(chance.randrange(1, 4)):
            payload = bytearray(flip(bytes(payload), chance.randrange(7, len(payload)), chance.randrange(8)))
        if number % 3 == 0:
            del payload[chance.randrange(7, len(payload)) :]
        found = unpack(bytes(payload), 1 << 22)
        if found is not None:
            taken += 1
            assert found == by_package(bytes(payload))
    assert 0 < taken < 1500


def test_memory_is_kept_from_call_to_call() -> None:
    """New memory would cause a page fault for each of the 256 pages of a result."""
    data = TEXT[: 1 << 20]
    payload = bytes(compress(LZ4, data))
    for _ in range(20):
        assert decompress(LZ4, payload, MANY) == data
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(100):
        decompress(LZ4, payload, MANY)
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 100


def test_a_result_stays_as_it_is_while_it_is_held() -> None:
    """Also beside threads that take and give memory back."""
    texts = [TEXT[n * 1000 :][:100_000] for n in range(20)]
    payloads = [bytes(compress(LZ4, text)) for text in texts]

    def work() -> None:
        for _ in range(20):
            held = [decompress(LZ4, payload, MANY) for payload in payloads]
            wrong.extend(n for n, result in enumerate(held) if result != texts[n])

    wrong: list[int] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_result_that_fills_little_of_its_memory_is_a_copy() -> None:
    """A list of records from many small batches must not hold 64 KiB for each."""
    assert type(decompress(LZ4, compress(LZ4, TEXT[:1000]), MANY)) is bytes
    assert type(decompress(LZ4, compress(LZ4, TEXT[: 1 << 20]), MANY)) is memoryview


def test_klog_works_where_the_package_hides_its_functions() -> None:
    program = """
import sys, types, lz4.block
hidden = types.ModuleType("lz4.block")
hidden.compress, hidden.decompress = lz4.block.compress, lz4.block.decompress
lz4.block = sys.modules["lz4.block"] = hidden
sys.modules["lz4.block._block"] = None
from klog.codec import compress, decompress
from klog.codec._direct import pack, unpack
assert pack(b"abc") is unpack(compress(3, b"abc"), 100) is None
assert decompress(3, compress(3, b"abc" * 9), 100) == b"abc" * 9
"""
    subprocess.run([sys.executable, "-c", program], check=True)
