"""Large payloads are decompressed into memory that is reused, with the same results and errors as by the other method."""

from __future__ import annotations

import gzip
import importlib
import random

import pytest
import zstandard

from klog.codec import compress, decompress
from klog.codec._kept import Result, finished, memory_for
from klog.errors import CorruptBatch
from tests.support.damage import flip

module = importlib.import_module("klog.codec.compress")  # the name in the package is its function
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MANY = 1 << 26
TEXT = b"".join(b"flight %d from EWR to %s;" % (n * 7919 % 1000, (b"ORD", b"LAX")[n % 2]) for n in range(8000))


def outcome(codec: int, payload: bytes) -> bytes | str:
    try:
        return bytes(decompress(codec, payload, MANY))
    except CorruptBatch as error:
        return str(error)


def by_other_method(codec: int, payload: bytes, monkeypatch: pytest.MonkeyPatch) -> bytes | str:
    with monkeypatch.context() as patch:
        patch.setattr(module, {GZIP: "_gzip_kept", ZSTD: "_zstd_kept"}[codec], lambda *_: None)
        return outcome(codec, payload)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_large_result_is_a_view_and_a_small_one_is_a_copy(codec: int) -> None:
    large, small = (decompress(codec, compress(codec, data), MANY) for data in (TEXT, TEXT[:1000]))
    assert (type(large), type(small)) == (memoryview, bytes)
    assert (large, small) == (TEXT, TEXT[:1000])
    assert large.readonly  # type: ignore[union-attr]


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_damage_has_the_same_outcome_both_ways(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(codec)
    payloads = [bytes(compress(codec, TEXT)), bytes(compress(codec, TEXT + chance.randbytes(70_000)))]
    if codec == ZSTD:
        payloads.append(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    whole = 0
    for number in range(600):
        payload = payloads[number % len(payloads)]
        if number >= len(payloads):
            for _ in range(chance.randrange(3)):
                payload = flip(
                    payload, chance.randrange(min(len(payload), (40, 1 << 30)[number % 2])), chance.randrange(8)
                )
            payload = payload[: chance.randrange(len(payload))] if number % 5 == 0 else payload
        found = outcome(codec, payload)
        assert found == by_other_method(codec, payload, monkeypatch)
        whole += type(found) is bytes
    assert 0 < whole < 600


def test_gzip_members_are_all_read() -> None:
    member, empty = bytes(compress(GZIP, TEXT)), bytes(compress(GZIP, b""))
    named = gzip.compress(TEXT)  # its header has a time
    for payload, times in (
        (member * 2, 2),
        (empty + member, 1),
        (member + empty, 1),
        (member + b"no member", 1),
        (named, 1),
        (named + member, 2),
    ):
        assert decompress(GZIP, payload, MANY) == TEXT * times


def test_a_wrong_gzip_size_is_refused() -> None:
    member = bytes(compress(GZIP, TEXT))
    for size in (0, 1, len(TEXT) - 1, len(TEXT) + 1, 1 << 25, (1 << 32) - 1):
        with pytest.raises(CorruptBatch, match="length"):
            decompress(GZIP, member[:-4] + size.to_bytes(4, "little"), MANY)


def test_zstd_checksums_and_sizes_are_checked() -> None:
    summed = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(TEXT)
    sized = zstandard.ZstdCompressor(write_content_size=True).compress(TEXT)
    assert decompress(ZSTD, summed, MANY) == decompress(ZSTD, sized, MANY) == TEXT
    with pytest.raises(CorruptBatch, match="checksum"):
        decompress(ZSTD, summed[:-1] + bytes((summed[-1] ^ 1,)), MANY)
    at = sized.index(len(TEXT).to_bytes(4, "little"))
    for size in (len(TEXT) - 70_000, len(TEXT) - 1, len(TEXT) + 1):
        with pytest.raises(CorruptBatch):
            decompress(ZSTD, sized[:at] + size.to_bytes(4, "little") + sized[at + 4 :], MANY)


@pytest.mark.parametrize("level", [-5, 1, 3, 19, 22])
def test_zstd_windows_of_every_size(level: int) -> None:
    """Those of more than 8 MiB are decompressed into memory of their own."""
    data = TEXT * 50
    for sized in (False, True):
        payload = zstandard.ZstdCompressor(level=level, write_content_size=sized).compress(data)
        assert decompress(ZSTD, payload * 2, MANY) == data * 2


def test_memory_is_filled_once() -> None:
    memory = memory_for(100_000)
    memoryview(memory)[:3] = b"abc"
    for size in (-1, 100_001):
        with pytest.raises(ValueError, match="100000"):
            finished(memory, size)
    view = finished(memory, 50_000)
    assert (view[:3], len(view)) == (b"abc", 50_000)
    with pytest.raises(TypeError, match="read-only"):
        memoryview(memory)[0] = 1
    with pytest.raises(ValueError, match="50000"):
        finished(memory, 1)
    with pytest.raises(ValueError, match="negative"):
        memory_for(-1)
    with pytest.raises(TypeError, match="memory_for"):
        Result()
