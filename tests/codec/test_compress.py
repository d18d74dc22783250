"""klog compresses as Kafka does, decompresses everything that Kafka decompresses, and never exceeds the size limit."""

import contextlib
import gzip
import random
import struct
import subprocess
import sys
import threading
import zlib

import cramjam
import lz4.block
import lz4.frame
import numpy
import pytest
import zstandard

from klog.codec import (
    CODECS,
    compress,
    decompress,
    decompressed_bytes_max,
    lz4_with_header_checksum,
    parse_compression,
)
from klog.codec.compress import _lz4_header_checksum
from klog.errors import CorruptBatch, DecompressionLimit, InvalidConfig, UnsupportedCompression
from tests.support.damage import flip
from tests.support.memory import peak_bytes

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MANY = 1 << 26
RECORDS = bytes.fromhex("22000000046b310476310402680278026e0116000a02010a68656c6c6f00")
TEXT = b"".join(
    b"flight %d from EWR to %s;" % (n * 7919 % 1000, (b"ORD", b"LAX", b"SFO")[n % 3]) for n in range(20_000)
)
XERIAL = bytes.fromhex("82534e41505059000000000100000001")


# Worked examples of the format ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        (
            GZIP,
            "1f8b08000000000000ff 5362606060c9366429336461ca60aa60ca631463e06262e4ca48cdc9c9670000 e4e4532e 1e000000",
        ),
        (SNAPPY, "82534e4150505900 00000001 00000001 00000020 1e74" + RECORDS.hex()),
        (LZ4, "04224d18604082 1e000080" + RECORDS.hex() + "00000000"),
    ],
)
def test_bytes_that_kafka_writes(codec: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert decompress(codec, data, MANY) == RECORDS
    # zlib and zlib-ng may choose other matches; the frame around them is ours.
    assert codec == GZIP or bytes(compress(codec, RECORDS)) == data
    if codec == GZIP:
        assert compress(codec, RECORDS)[:10] == data[:10]
        assert compress(codec, RECORDS)[-8:] == data[-8:]


def test_zstd_stream_that_kafka_writes() -> None:
    data = bytes.fromhex("28b52ffd0058f00000") + RECORDS + bytes.fromhex("010000")
    assert decompress(ZSTD, data, MANY) == RECORDS


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
@pytest.mark.parametrize("size", [0, 1, 100, 32_767, 32_768, 65_536, 65_537, 300_000])
def test_round_trip(codec: int, size: int) -> None:
    for data in (random.Random(size).randbytes(size), bytes(size), TEXT[:size]):
        payload = compress(codec, data)
        assert bytes(decompress(codec, payload, max(size, 1))) == data
        assert bytes(decompress(codec, memoryview(bytearray(payload)), MANY)) == data


def test_lz4_blocks_are_independent_and_of_64_kib() -> None:
    payload = compress(LZ4, TEXT)
    assert payload[:7].hex() == "04224d18604082"
    at, plain = 7, b""
    while word := int.from_bytes(payload[at : at + 4], "little"):
        size = word & 0x7FFFFFFF
        plain += lz4.block.decompress(payload[at + 4 : at + 4 + size], uncompressed_size=65536)
        at += 4 + size
    assert plain == TEXT
    assert at + 4 == len(payload)


def test_snappy_blocks_are_of_32_kib() -> None:
    payload = bytes(compress(SNAPPY, TEXT))
    assert payload[:16] == XERIAL
    at, sizes = 16, []
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        sizes.append(cramjam.snappy.decompress_raw_len(payload[at + 4 : at + 4 + size]))
        at += 4 + size
    assert set(sizes[:-1]) == {32_768}
    assert sum(sizes) == len(TEXT)


# Names and levels -----------------------------------------------------------------------------------------------------


def test_parse_compression() -> None:
    assert parse_compression(None) == parse_compression("none") == parse_compression("uncompressed") == (NONE, None)
    assert parse_compression("lz4") == (LZ4, None)
    assert parse_compression(("zstd", 19)) == (ZSTD, 19)
    assert parse_compression(("zstd", -131072)) == (ZSTD, -131072)
    assert parse_compression(("gzip", -1)) == (GZIP, -1)
    assert parse_compression(("zstd", numpy.int64(3))) == (ZSTD, 3)


@pytest.mark.parametrize("compression", ["brotli", "", 3, b"lz4", ("lz4", 9, 9), "producer"])
def test_unknown_compression(compression) -> None:
    with pytest.raises(UnsupportedCompression):
        parse_compression(compression)


@pytest.mark.parametrize(
    "compression",
    [("gzip", 0), ("gzip", 10), ("lz4", 0), ("lz4", 18), ("zstd", 23), ("snappy", 1), ("gzip", "9"), ("gzip", True)],
)
def test_level_out_of_range(compression) -> None:
    with pytest.raises(InvalidConfig):
        parse_compression(compression)


def test_level_9_of_lz4_is_the_fast_compressor() -> None:
    fast = compress(LZ4, TEXT)
    assert compress(LZ4, TEXT, 9) == fast
    for level in (1, 8, 10, 17):
        assert len(compress(LZ4, TEXT, level)) < len(fast), level


def test_levels_reach_the_codec() -> None:
    assert len(compress(GZIP, TEXT, 9)) < len(compress(GZIP, TEXT, 1))
    assert compress(GZIP, TEXT) == compress(GZIP, TEXT, -1) == compress(GZIP, TEXT, 6)
    assert len(compress(ZSTD, TEXT, 19)) < len(compress(ZSTD, TEXT, -50))
    assert compress(ZSTD, TEXT) == compress(ZSTD, TEXT, 3)


@pytest.mark.parametrize("codec", [LZ4, ZSTD], ids=["lz4", "zstd"])
def test_contexts_serve_many_threads(codec: int) -> None:
    failures = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(30):
            data = TEXT[rng.randrange(1000) :][: rng.randrange(1, 100_000)]
            if decompress(codec, compress(codec, data), MANY) != data:
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# Other forms that Kafka reads -----------------------------------------------------------------------------------------


def test_gzip_members_and_what_follows_them() -> None:
    named = b"\x1f\x8b\x08\x08" + gzip.compress(b"two", mtime=5)[4:10] + b"a name\0" + gzip.compress(b"two")[10:]
    members = gzip.compress(b"one,") + named
    assert decompress(GZIP, members, MANY) == b"one,two"
    for junk in (b"\0", b"junk", b"\x1f", b"\x1f\x8b", bytes(30)):
        assert decompress(GZIP, members + junk, MANY) == b"one,two"


def test_gzip_refuses() -> None:
    payload = compress(GZIP, TEXT)
    for bad in (b"", payload[:9], payload[:-1], payload[:-8], flip(payload, len(payload) - 5), flip(payload, 0)):
        with pytest.raises(CorruptBatch):
            decompress(GZIP, bad, MANY)
    with pytest.raises(CorruptBatch, match="inside a member"):
        decompress(GZIP, payload + payload[:-1], MANY)


def test_tiny_gzip_members_do_not_cost_what_lies_behind_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every member, zlib returns a copy of all the input after it: once this took 3 GB for these 200 KB."""
    given = []

    class Watched:
        def __init__(self, wbits: int) -> None:
            self.real = real(wbits)

        def decompress(self, data: memoryview, bytes_max: int) -> bytes:
            given.append(len(data))
            return self.real.decompress(data, bytes_max)

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

    real = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Watched)
    members = gzip.compress(b"x", mtime=0) * 5_000 + gzip.compress(TEXT) + gzip.compress(b"end")
    assert decompress(GZIP, members, MANY) == b"x" * 5_000 + TEXT + b"end"
    assert sum(given) < 100 * len(members)


def test_snappy_forms() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    stream = bytes(compress(SNAPPY, b"one,"))
    assert decompress(SNAPPY, raw, MANY) == TEXT
    assert decompress(SNAPPY, stream + stream + stream[16:], MANY) == b"one,one,one,"
    other_version = stream[:8] + struct.pack(">ii", 7, 7) + stream[16:]
    assert decompress(SNAPPY, other_version, MANY) == b"one,"


def test_snappy_refuses() -> None:
    stream = bytes(compress(SNAPPY, TEXT))
    google = bytes(cramjam.snappy.compress(b"framed by Google"))
    too_long = struct.pack(">i", len(stream)) + stream[20:]
    for bad in (b"", stream[:-1], stream + b"\0\0", google, XERIAL + b"\xff\xff\xff\xff", XERIAL + too_long):
        with pytest.raises(CorruptBatch):
            decompress(SNAPPY, bad, MANY)


def test_snappy_length_that_lies_is_refused_before_anything_is_allocated() -> None:
    lies = b"\xff\xff\xff\xff\x0f" + b"\x00a"  # 2^32-1 bytes out of one
    with pytest.raises(CorruptBatch, match="claims 4294967295"):
        decompress(SNAPPY, lies, 2**33)


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("block_checksum", [False, True])
def test_lz4_frames_of_others(store_size: bool, content_checksum: bool, block_checksum: bool) -> None:
    options = {"store_size": store_size, "content_checksum": content_checksum, "block_checksum": block_checksum}
    for block_size in range(4, 8):
        frame = lz4.frame.compress(TEXT, block_linked=False, block_size=block_size, **options)
        assert decompress(LZ4, frame, MANY) == TEXT
        assert decompress(LZ4, frame + b"what follows is not read", MANY) == TEXT
        if content_checksum:  # read, but not checked
            assert decompress(LZ4, flip(frame, len(frame) - 1), MANY) == TEXT
        if block_checksum:
            at = (15 if store_size else 7) + 20
            with pytest.raises(CorruptBatch):
                decompress(LZ4, flip(frame, at), MANY)


def test_lz4_takes_the_next_frame_after_one_that_failed() -> None:
    """The context that is reused for the next frame does not keep its position."""
    frame = compress(LZ4, TEXT)
    stored = 7 + 4 + int.from_bytes(frame[7:11], "little")
    for _ in range(3):
        with pytest.raises(CorruptBatch):
            decompress(LZ4, frame[:11] + bytes(stored - 11) + frame[stored:], MANY)
        assert decompress(LZ4, frame, MANY) == TEXT
        with pytest.raises(DecompressionLimit):
            decompress(LZ4, frame, 100_000)
        assert decompress(LZ4, frame, MANY) == TEXT


def test_lz4_stores_what_does_not_shrink() -> None:
    for size in (1, 12, 65_536):
        data = random.Random(size).randbytes(size)
        frame = bytes(compress(LZ4, data))
        assert frame == bytes.fromhex("04224d18604082") + struct.pack("<I", size | 1 << 31) + data + bytes(4)
        assert decompress(LZ4, frame, size) == data
    assert len(bytes(compress(LZ4, TEXT[:65_536]))) < 65_536 // 2


def test_lz4_content_size_is_skipped() -> None:
    frame = lz4.frame.compress(TEXT, block_linked=False, store_size=True)
    lying = frame[:6] + struct.pack("<Q", 5)
    lying += bytes((_lz4_header_checksum(lying[4:]),)) + frame[15:]
    assert decompress(LZ4, lying, MANY) == TEXT


def test_lz4_reads_the_first_frame_only() -> None:
    assert decompress(LZ4, compress(LZ4, b"one") + compress(LZ4, b"two"), MANY) == b"one"


def test_lz4_refuses() -> None:
    frame = compress(LZ4, TEXT)
    with pytest.raises(CorruptBatch, match="linked"):
        decompress(LZ4, lz4.frame.compress(TEXT, block_linked=True), MANY)
    sized = lz4.frame.compress(TEXT, block_linked=False, store_size=True)
    for bad in (b"", frame[:6], frame[:-1], frame[:-4], frame[:100], flip(frame, 6), flip(frame, 0), flip(frame, 4)):
        with pytest.raises(CorruptBatch):
            decompress(LZ4, bad, MANY)
    with pytest.raises(CorruptBatch, match="checksum"):
        decompress(LZ4, flip(sized, 14), MANY)


def test_zstd_frames_of_others() -> None:
    def one(**options) -> bytes:
        return zstandard.ZstdCompressor(**options).compress(b"one,")

    skippable = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    for frame in (one(), one(write_checksum=True), one(write_content_size=False), one(level=19)):
        assert decompress(ZSTD, skippable + frame + skippable + frame, MANY) == b"one,one,"
    stream = zstandard.ZstdCompressor(level=22).compressobj()
    assert decompress(ZSTD, stream.compress(TEXT) + stream.flush(), MANY) == TEXT
    assert decompress(ZSTD, b"", MANY) == b""


def test_zstd_refuses() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    for bad in (
        frame[:3],
        frame[:-1],
        frame[:-5],
        frame[:100],
        frame + b"junk",
        frame + b"eight or more",
        flip(frame, -1),
    ):
        with pytest.raises(CorruptBatch):
            decompress(ZSTD, bad, MANY)
    with pytest.raises(CorruptBatch, match="window"):
        decompress(ZSTD, bytes.fromhex("28b52ffd00a8f00000") + RECORDS + bytes.fromhex("010000"), MANY)


def test_zstd_content_size_that_lies_is_refused_before_anything_is_allocated() -> None:
    one_block = bytes.fromhex("f10000") + RECORDS  # raw, last
    frame = bytes.fromhex("28b52ffd e0") + struct.pack("<Q", 1 << 40) + one_block
    with pytest.raises(CorruptBatch, match="claims 1099511627776"):
        decompress(ZSTD, frame, 2**41)


def test_codec_bits_without_a_codec() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CorruptBatch, match="not a known codec"):
            decompress(codec, b"", MANY)


# Bounds ---------------------------------------------------------------------------------------------------------------


def test_bound() -> None:
    assert decompressed_bytes_max(100) == 64 * 1024 * 1024
    assert decompressed_bytes_max(100 * 1024 * 1024) == 800 * 1024 * 1024


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODECS[1:])
def test_the_bound_holds_to_the_byte(codec: int) -> None:
    payload = bytes(compress(codec, TEXT))
    assert bytes(decompress(codec, payload, len(TEXT))) == TEXT
    for short in (1, len(TEXT) // 2, len(TEXT) - 1):
        with pytest.raises(DecompressionLimit, match=str(short)):
            decompress(codec, payload, short)


def test_the_bound_holds_over_many_frames() -> None:
    for codec, frame in ((GZIP, gzip.compress(bytes(1000))), (ZSTD, zstandard.ZstdCompressor().compress(bytes(1000)))):
        assert len(decompress(codec, frame * 10, 10_000)) == 10_000
        with pytest.raises(DecompressionLimit):
            decompress(codec, frame * 10, 9_999)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODECS[1:])
def test_a_small_payload_takes_little_memory_under_a_large_bound(codec: int) -> None:
    payload = bytes(compress(codec, RECORDS))
    decompress(codec, payload, MANY)
    assert peak_bytes(lambda: decompress(codec, payload, MANY)) < 1 << 18


BOMBS = """
import resource, sys, zlib
import zstandard, lz4.frame, cramjam
from klog.codec import decompress
from klog.errors import DecompressionLimit

mib = bytes(1 << 20)
gzip = zlib.compressobj(9, zlib.DEFLATED, 31)
zstd = zstandard.ZstdCompressor(level=1).compressobj()
lz4_ = lz4.frame.LZ4FrameCompressor(block_linked=False)
bombs = {
    1: b"".join([*(gzip.compress(mib) for _ in range(400)), gzip.flush()]),
    2: bytes.fromhex("82534e41505059000000000100000001")
    + (lambda block: (len(block).to_bytes(4, "big") + block) * 400)(bytes(cramjam.snappy.compress_raw(mib))),
    3: b"".join([lz4_.begin(), *(lz4_.compress(mib) for _ in range(400)), lz4_.flush()]),
    4: b"".join([*(zstd.compress(mib) for _ in range(400)), zstd.flush()]),
}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, bomb in bombs.items():
    try:
        decompress(codec, bomb, 64 << 20)
    except DecompressionLimit:
        pass
    else:
        sys.exit(f"codec {codec} gave more than its bound")
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
sys.exit(0 if grown < 200 << 10 else f"grew by {grown} KiB")
"""


def test_bombs_end_at_the_bound() -> None:
    """400 MiB of zeros in each codec, in a process of its own, so that its peak memory is that of this call."""
    run = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODECS[1:])
def test_hostile_payloads(codec: int) -> None:
    """With any cut and any flipped bit, the result is plain bytes or CorruptBatch, never an exception of the library."""
    plain = TEXT[:300] + random.Random(4).randbytes(100)
    payload = bytes(compress(codec, plain))
    # A stream of blocks or frames may end between two of them.
    good_ends = {SNAPPY: 16, ZSTD: 0}
    for at in range(len(payload)):
        if at == good_ends.get(codec):
            assert decompress(codec, payload[:at], 10_000) == b""
        else:
            with pytest.raises(CorruptBatch):
                decompress(codec, payload[:at], 10_000)
        for bit in range(8):
            with contextlib.suppress(CorruptBatch):
                decompress(codec, flip(payload, at, bit), 10_000)


@pytest.mark.parametrize("size", [False, True])
def test_the_header_checksum_of_an_lz4_frame_is_put_right(size: bool) -> None:
    """Nothing else is replaced: bytes that are not a frame, or that end inside its header, cause the same error as
    unchanged bytes."""
    good = lz4.frame.compress(TEXT, block_linked=False, store_size=size)
    at = 14 if size else 6
    assert bytes(lz4_with_header_checksum(good)) == good
    assert bytes(lz4_with_header_checksum(flip(good, at, 5))) == good
    for data in (b"", good[:4], good[:at], b"x" + good):
        assert bytes(lz4_with_header_checksum(data)) == data
        with pytest.raises(CorruptBatch, match="lz4"):
            decompress(LZ4, lz4_with_header_checksum(data), MANY)
