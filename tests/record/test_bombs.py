"""Compressed payloads that expand enormously: every reader stops at the size limit and uses little memory.

Each is read in a child process with a limited address space, whose peak resident memory is read afterwards, so that
the memory of codec libraries counts too.
"""

from __future__ import annotations

import gzip
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import cramjam
import lz4.block
import lz4.frame
import zstandard

from klog.codec import CODECS, compress, decompressed_bytes_max
from klog.errors import CorruptBatch
from klog.record import columns, decode, encode, iter_records, validate
from tests.support.child import in_child, in_new_process
from tests.support.reseal import reseal
from tests.support.resources import memory_limit

MIB = 1 << 20
T = 1_700_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
XERIAL = bytes.fromhex("82534e41505059000000000100000001")
COUNT = 1_000_000  # records, by the header

READERS: dict[str, Callable[[bytes], object]] = {
    "decode": lambda data: [list(batch) for batch in decode(data)],
    "iter_records": lambda data: list(iter_records(data)),
    "columns": columns,
    "views": lambda data: columns(data, views=True),
    "validate": validate,
}


def batch_of(codec: int, payload: bytes, count: int = COUNT) -> bytes:
    """Header and payload as a batch, with the length set."""
    head = encode([(b"k", b"v", T)], base_offset=77)[:61]
    tail = struct.pack(">hi", codec, count - 1) + head[27:57] + struct.pack(">i", count) + payload
    return reseal(head[:8] + bytes(4) + head[12:21] + tail)


# gzip -----------------------------------------------------------------------------------------------------------------


def gzip_of_zeros(mib: int) -> bytes:
    """A MiB of zeros, deflated once; after a full flush the same bytes repeat."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    one = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return bytes.fromhex("1f8b08000000000000ff") + one * mib + b"\3\0" + bytes(8)


# lz4: blocks of 4 MiB, each expands 255 times
# --------------------------------------------------------------------------


def lz4_header(flags: int, content_size: bytes = b"") -> bytes:
    """A frame header; its checksum is the second byte of XXH32, computed by the library."""
    head = bytes((flags, 0x70)) + content_size
    for guess in range(256):
        frame = b"\x04\x22\x4d\x18" + head + bytes((guess,))
        try:
            lz4.frame.get_frame_info(frame)
        except RuntimeError:
            continue
        return frame
    raise AssertionError("no checksum fits")


def lz4_blocks(count: int) -> bytes:
    block = lz4.block.compress(bytes(4 * MIB), store_size=False)
    return (struct.pack("<I", len(block)) + block) * count + bytes(4)


# zstd: built by hand, because no compressor writes such frames
# ---------------------------------------------------------


def zstd_frame(blocks: int, *, window: bytes = b"\x58", content_size: int | None = None, plain: bytes = b"") -> bytes:
    """RLE blocks of 128 KiB of zeros, four bytes each, after the plain bytes; window 0x58 is 2 MiB."""
    descriptor = 0x00 if content_size is None else 0xC0
    size = b"" if content_size is None else struct.pack("<Q", content_size)
    raw = (len(plain) << 3).to_bytes(3, "little") + plain if plain else b""
    rle = (128 * 1024 << 3 | 2).to_bytes(3, "little") + b"\0"
    last = (1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd" + bytes((descriptor,)) + window + size + raw + rle * blocks + last


# Payloads that exceed the limit ---------------------------------------------------------------------------------------

GIB_OF_BLOCKS = 8 * 1024


def bombs() -> dict[str, tuple[int, bytes]]:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    zstd_mib = zstandard.ZstdCompressor().compress(bytes(MIB))
    return {
        "gzip": (GZIP, gzip_of_zeros(1024)),
        "gzip, many members": (GZIP, gzip.compress(bytes(MIB), 9) * 1024),
        "snappy": (SNAPPY, XERIAL + (struct.pack(">i", len(block)) + block) * 200),
        "snappy, many streams": (SNAPPY, (XERIAL + struct.pack(">i", len(block)) + block) * 200),
        "snappy, one raw block": (SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(200 * MIB)))),
        "lz4": (LZ4, lz4_header(0x60) + lz4_blocks(256)),
        "lz4, content size 1": (LZ4, lz4_header(0x68, struct.pack("<Q", 1)) + lz4_blocks(256)),
        "lz4, content size 2^62": (LZ4, lz4_header(0x68, struct.pack("<Q", 1 << 62)) + lz4_blocks(256)),
        "zstd": (ZSTD, zstandard.ZstdCompressor().compress(bytes(256 * MIB))),
        "zstd without content size": (ZSTD, zstd_frame(GIB_OF_BLOCKS)),
        "zstd with content size": (ZSTD, zstd_frame(GIB_OF_BLOCKS, content_size=GIB_OF_BLOCKS * 128 * 1024)),
        "zstd, a window of 128 MiB": (ZSTD, zstd_frame(GIB_OF_BLOCKS, window=b"\x88")),
        "zstd, many frames": (ZSTD, zstd_mib * 1024),
    }


def test_decompression_stops_at_the_limit() -> None:
    batches, limits = {}, {}
    for name, (codec, payload) in bombs().items():
        batches[name] = batch_of(codec, payload)
        limits[name] = decompressed_bytes_max(len(payload))
        assert limits[name] < 100 * MIB
    grown = measured("DecompressionLimit", batches, {name: limit * 4 for name, limit in limits.items()})
    # The output up to the limit, once more while pieces are joined or a buffer grows; far less than the whole.
    assert [name for name in batches if grown[name] >= limits[name] * 3] == []


# Invalid sizes, and millions of tiny blocks ---------------------------------------------------------------------------


def invalid_sizes() -> dict[str, tuple[int, bytes]]:
    window_31, window_41 = bytes((31 - 10 << 3,)), bytes((41 - 10 << 3,))
    return {
        "snappy, a length of 4 GiB": (SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(100)),
        "snappy, a block of 2 GiB": (SNAPPY, XERIAL + b"\x7f\xff\xff\xff" + bytes(100)),
        "snappy, a million empty blocks": (SNAPPY, XERIAL + bytes(4 * MIB)),
        "lz4, content size 2^62, no blocks": (LZ4, lz4_header(0x68, struct.pack("<Q", 1 << 62)) + bytes(4)),
        "lz4, a block of 2 GiB": (LZ4, lz4_header(0x60) + b"\xff\xff\xff\x7f" + bytes(100)),
        "zstd, a window of 2 GiB": (ZSTD, zstd_frame(1, window=window_31)),
        "zstd, a window of 2 TiB": (ZSTD, zstd_frame(1, window=window_41, content_size=128 * 1024)),
        "zstd, content size 2^40": (ZSTD, zstd_frame(1, content_size=1 << 40)),
        "zstd, content size 2^64-1": (ZSTD, zstd_frame(1, content_size=(1 << 64) - 1)),
        "zstd, content size 1": (ZSTD, zstd_frame(GIB_OF_BLOCKS, content_size=1)),
        "zstd, a needless window of 128 MiB": (ZSTD, zstd_frame(0, window=b"\x88", plain=bytes(100))),
        "gzip, empty members": (GZIP, gzip.compress(b"", mtime=0) * 20_000),
        "snappy, empty blocks": (SNAPPY, XERIAL + b"\0\0\0\1\0" * 50_000),
        "zstd, empty frames": (ZSTD, zstandard.ZstdCompressor().compress(b"") * 100_000),
        "zstd, empty skippable frames": (ZSTD, (struct.pack("<II", 0x184D2A50, 0)) * 100_000),
    }


def test_claimed_sizes_allocate_no_memory() -> None:
    batches = {name: batch_of(codec, payload) for name, (codec, payload) in invalid_sizes().items()}
    grown = measured("CorruptBatch", batches, dict.fromkeys(batches, 192 * MIB))
    assert [name for name in batches if grown[name] >= 24 * MIB] == []


def test_an_invalid_record_count_allocates_no_memory() -> None:
    """list() calls len() of the batch and preallocates that much."""
    records = encode([(b"k", b"v", T)])[61:]
    batches = {name: batch_of(codec, bytes(compress(codec, records)), 2**31 - 1) for codec, name in enumerate(CODECS)}
    grown = measured("CorruptBatch", batches, dict.fromkeys(batches, 192 * MIB))
    assert [name for name in batches if grown[name] >= 24 * MIB] == []


def test_out_of_memory_is_not_corruption() -> None:
    """A frame may need a window of 128 MiB; without that memory the error is not CorruptBatch: a log would be
    truncated."""
    data = batch_of(ZSTD, zstd_frame(0, window=b"\x88", plain=bytes(100)))
    # A process of its own: the heap of a test process may have so much memory to reuse.
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY, data.hex()], capture_output=True, text=True, check=True
    )
    assert done.stdout == "MemoryError True\n"


WITHOUT_MEMORY = """
import resource, sys
from klog.record import encode, validate
validate(encode([(b"k", b"v" * 100, 0)] * 10, compression="zstd"))
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (32 << 20), resource.RLIM_INFINITY))
try:
    validate(bytes.fromhex(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, "memory" in str(error))
"""


def measured(error: str, batches: dict[str, bytes], mapped_bytes_max: dict[str, int]) -> dict[str, int]:
    """By how much the peak of resident memory rose while every reader refused a batch with this error.

    In forks of a process that has imported klog alone: forks of a test process also count what the libraries of other
    tests touch, in a garbage collection for one.
    """
    results = in_new_process(read_each, batches, mapped_bytes_max)
    ended = {name: result[0] for name, result in results.items()}
    assert ended == dict.fromkeys(batches, dict.fromkeys(READERS, (error, 0, 77)))
    return {name: result[1] for name, result in results.items()}


def read_each(batches: dict[str, bytes], mapped_bytes_max: dict[str, int]) -> dict[str, Any]:
    return {name: in_child(partial(read, data, mapped_bytes_max[name])) for name, data in batches.items()}


def read(data: bytes, mapped_bytes_max: int) -> tuple[dict[str, tuple[str, int, int] | None], int]:
    small = encode([(b"k", b"v" * 100, T)] * 10, compression=("zstd", 1))
    for reader in READERS.values():
        reader(small)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended: dict[str, tuple[str, int, int] | None] = {}
    with memory_limit(mapped_bytes_max):
        for name, reader in READERS.items():
            ended[name] = None
            try:
                reader(data)
            except CorruptBatch as error:
                ended[name] = type(error).__name__, error.position, error.offset
    return ended, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
