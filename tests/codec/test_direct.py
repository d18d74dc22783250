"""The native lz4 path returns the same as the public functions, or falls back to them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator

import lz4.frame
import pytest

from klog.codec import CODECS, compress, decompress
from klog.codec._direct import pack, unpack, use_direct
from tests.support.damage import flip

LZ4 = CODECS.index("lz4")
MANY = 1 << 26
TEXT = b"".join(b"flight %d from EWR to %s;" % (n * 7919 % 1000, (b"ORD", b"LAX")[n % 2]) for n in range(20_000))
SIZES = [1, 12, 13, 100, 4096, 65_535, 65_536, 65_537, 131_072, 300_000]


@pytest.fixture
def python_path() -> Iterator[None]:
    use_direct(False)
    yield
    use_direct(True)


def test_the_native_path_is_available() -> None:
    """On every machine that runs these tests; klog also works if the lz4 package hides its functions."""
    assert use_direct(True)


@pytest.mark.parametrize("size", SIZES)
def test_both_paths_give_the_same_bytes(size: int) -> None:
    for data in (TEXT[:size], random.Random(size).randbytes(size), bytes(size)):
        packed = pack(data)
        assert packed is not None
        assert bytes(decompress(LZ4, packed, MANY)) == data
        assert unpack(packed) == unpack(compress(LZ4, data)) == data
        assert unpack(packed + b"what follows is not read") == data
        assert packed[:7] == bytes(compress(LZ4, data)[:7])
        assert len(packed) <= len(compress(LZ4, data)) + size // 100


def test_frames_of_other_writers_use_the_public_function() -> None:
    for more in ({"store_size": True}, {"content_checksum": True}, {"block_checksum": True}, {"block_linked": True}):
        assert unpack(lz4.frame.compress(TEXT, **({"store_size": False} | more))) is None
    for payload in (b"", b"\x04\x22\x4d\x18", compress(LZ4, TEXT)[:-1], compress(LZ4, TEXT)[:-4], b"\0" * 40):
        assert unpack(payload) is None
    assert unpack(compress(LZ4, TEXT)[:7] + b"\x01\x00\x01\x80" + bytes(65_537) + bytes(4)) is None  # 64 KiB and 1


def test_the_native_path_accepts_nothing_that_the_public_function_refuses() -> None:
    chance = random.Random(1)
    taken = 0
    for round_ in range(1500):
        payload = bytearray(compress(LZ4, TEXT[: chance.randrange(1, 3000)] if round_ % 10 else TEXT))
        for _ in range(chance.randrange(1, 4)):
            payload = bytearray(flip(bytes(payload), chance.randrange(7, len(payload)), chance.randrange(8)))
        if round_ % 3 == 0:
            del payload[chance.randrange(7, len(payload)) :]
        out = unpack(payload)
        if out is not None:
            taken += 1
            assert out == bytes(decompress(LZ4, bytes(payload), MANY))
    assert 0 < taken < 1500


def test_klog_works_if_the_package_hides_its_functions() -> None:
    program = """
import sys, types, lz4.block
hidden = types.ModuleType("lz4.block")
hidden.compress, hidden.decompress = lz4.block.compress, lz4.block.decompress
lz4.block = sys.modules["lz4.block"] = hidden
sys.modules["lz4.block._block"] = None
from klog.codec import compress, decompress
from klog.codec._direct import use_direct
assert not use_direct(True)
assert decompress(3, compress(3, b"abc" * 9), 100) == b"abc" * 9
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_native_path_can_be_disabled(python_path: None) -> None:
    assert pack(TEXT) is None
    assert unpack(compress(LZ4, TEXT)) is None
