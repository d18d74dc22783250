"""Compression and decompression: gzip, snappy, lz4 and zstd by the codec bits of a record batch.

    gzip    RFC 1952 members, `1f 8b 08 00 00000000 00 ff` first
    snappy  xerial's stream: a 16-byte header, then blocks of n:i32 and n bytes, each 32 KiB of plain bytes
    lz4     an LZ4 frame of independent 64 KiB blocks without checksums or sizes: `04224d18 60 40 82` first
    zstd    zstd frames

klog writes what Kafka writes, and reads what Kafka reads (each `reads:` below). For reading:

  B1  a payload decompresses to at most bytes_max bytes, whatever its frames claim: DecompressionLimit.
  B2  the memory allocated depends on the blocks that are there, never on a length that a frame claims.
  B3  bytes that break the codec's format raise CorruptBatch, never the library's own exception.

The errors have no position: the caller knows the file and the batch, and adds them.
"""

from __future__ import annotations

import operator
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from klog.arguments import shown
from klog.codec import libraries
from klog.codec._direct import unpack
from klog.codec._frames import lz4_frame, zstd_frame
from klog.codec._kept import decompressed_bytes_max, finished, memory_for
from klog.errors import CorruptBatch, DecompressionLimit, InvalidConfig, UnsupportedCompression

__all__ = [
    "CODECS",
    "compress",
    "decompress",
    "decompressed_bytes_max",
    "lz4_with_header_checksum",
    "parse_compression",
]

Buffer = bytes | bytearray | memoryview

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

# Kafka's ranges of compression.<codec>.level (CompressionType, 4.x).
_LEVELS: Final[dict[int, tuple[int, int]]] = {GZIP: (-1, 9), LZ4: (1, 17), ZSTD: (-131072, 22)}


def parse_compression(compression: str | tuple[str, int] | None) -> tuple[int, int | None]:
    """Parse `"lz4"`, `("zstd", 19)`, `None`, `"none"` or Kafka's `"uncompressed"` to (codec bits, level or None)."""
    level: int | None = None
    name: object = compression
    if isinstance(compression, tuple):
        if len(compression) != 2:
            raise UnsupportedCompression(f"compression must be a name or (name, level), not {shown(compression)}")
        name, level = compression
    if name is None or (isinstance(name, str) and name == "uncompressed"):
        name = "none"
    if not isinstance(name, str) or name not in CODECS:
        raise UnsupportedCompression(f"unknown compression {shown(name)}; use one of {', '.join(CODECS)}, or None")
    codec = CODECS.index(name)
    if level is not None:
        if codec not in _LEVELS:
            raise InvalidConfig(f"{name} has no levels; use compression={name!r}")
        low, high = _LEVELS[codec]
        if isinstance(level, bool) or not hasattr(type(level), "__index__"):
            raise InvalidConfig(
                f"compression=({name!r}, {shown(level)}): the level must be an int from {low} to {high}"
            )
        level = operator.index(level)
        if not low <= level <= high or (codec == GZIP and level == 0):
            raise InvalidConfig(f"level {level} of {name} is out of range; use {low} to {high}")
    return codec, level


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress plain record bytes to one codec stream. level None is Kafka's default for that codec."""
    if codec == NONE:
        return data
    return _COMPRESS[codec](data, level)


def decompress(codec: int, payload: Buffer, bytes_max: int) -> Buffer:
    """Decompress one codec stream to plain record bytes; B1 to B3."""
    if codec == NONE:
        return payload
    function = _DECOMPRESS.get(codec)
    if function is None:
        raise CorruptBatch(f"codec bits {codec} are not a known codec")
    return function(memoryview(payload), bytes_max)


def _over(codec: str, bytes_max: int) -> DecompressionLimit:
    return DecompressionLimit(f"{codec} payload exceeds {bytes_max} bytes when decompressed")


class _Contexts(threading.local):
    """Codec contexts kept from one payload to the next, because making them is expensive (up to half the time of a
    16 KiB batch). Each serves one thread."""

    def __init__(self) -> None:
        self.compressors: dict[int, libraries.zstandard.ZstdCompressor] = {}
        self._decompressor: libraries.zstandard.ZstdDecompressor | None = None
        self.lz4: object = None

    @property
    def decompressor(self) -> libraries.zstandard.ZstdDecompressor:
        made = self._decompressor
        if made is None:
            made = self._decompressor = libraries.zstandard.ZstdDecompressor()
        return made


_contexts = _Contexts()


# gzip -----------------------------------------------------------------------------------------------------------------

# No name, no time, no flags, unknown system: what Java's GZIPOutputStream writes since JDK 16.
_GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_GZIP_TRAILER: Final = struct.Struct("<II")  # CRC-32 and size
_GZIP_RATIO_MAX: Final = 1032  # of deflate
_GZIP_KEPT_MIN: Final = 64 * 1024  # malloc keeps smaller results
_GZIP_PIECE: Final = 1024
_GZIP_PIECE_MAX: Final = 1024 * 1024


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data)
    trailer = _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((_GZIP_HEADER, body, deflate.flush(), trailer))


def _gzip_kept(payload: memoryview, bytes_max: int) -> Buffer | None:
    """Decompress one member without extra fields into kept memory, which zlib does not offer. None for any other
    payload, a small one, for which zlib is faster, and an invalid one."""
    if len(payload) < len(_GZIP_HEADER) + _GZIP_TRAILER.size or bytes(payload[:4]) != _GZIP_HEADER[:4]:
        return None
    size = _GZIP_TRAILER.unpack_from(payload, len(payload) - _GZIP_TRAILER.size)[1]
    if not _GZIP_KEPT_MIN <= size <= min(bytes_max, _GZIP_RATIO_MAX * len(payload)):
        return None
    memory = memory_for(size)
    try:
        # Reads all members, so that size, that of the last one, fits only if it is the only one.
        if libraries.cramjam.gzip.decompress_into(payload, memoryview(memory)) != size:
            return None
    except libraries.cramjam.DecompressionError:
        return None
    return finished(memory, size)


def _gzip_decompress(payload: memoryview, bytes_max: int) -> Buffer:
    """reads: any standard header, several members; ignores bytes after the last member that begin no other one."""
    kept = _gzip_kept(payload, bytes_max)
    if kept is not None:
        return kept
    parts: list[bytes] = []
    left = bytes_max
    at, size = 0, len(payload)
    while at == 0 or bytes(payload[at : at + 3]) == _GZIP_MAGIC:
        member = zlib.decompressobj(_GZIP_WBITS)
        # unused_data is a copy of all that follows a member. The first member gets all bytes, because usually there is
        # only one; later ones get pieces, or a payload of tiny members would be copied once for each.
        piece = _GZIP_PIECE if at else size
        while not member.eof:
            if at == size:
                raise CorruptBatch("gzip payload ends inside a member")
            given = payload[at : at + piece]
            try:
                part = member.decompress(given, left + 1)
            except zlib.error as error:
                raise CorruptBatch(f"gzip payload: {error}") from None
            if len(part) > left:
                raise _over("gzip", bytes_max)
            at += len(given) - len(member.unused_data)
            left -= len(part)
            piece = min(4 * piece, _GZIP_PIECE_MAX)
            if part:
                parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


# snappy ---------------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_XERIAL_BLOCK_MAX: Final = 512 * 1024 * 1024
_SNAPPY_RATIO_MAX: Final = 22  # the best snappy tag is 64 bytes from 3


def _snappy_compress(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts: list[Buffer | libraries.cramjam.Buffer] = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = libraries.cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK])
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_blocks(payload: memoryview) -> Iterator[memoryview]:
    """Iterate the raw blocks of a payload; a payload that is not a xerial stream is one raw block.

    An iterator, because a list of tiny blocks would be many times larger than they are.
    """
    if len(payload) < len(_XERIAL_HEADER) or bytes(payload[:8]) != _XERIAL_MAGIC:
        yield payload
        return
    at = len(_XERIAL_HEADER)
    while at < len(payload):
        if bytes(payload[at : at + 8]) == _XERIAL_MAGIC and len(payload) - at >= len(_XERIAL_HEADER):
            at += len(_XERIAL_HEADER)  # streams written one after the other
            continue
        if len(payload) - at < 4:
            raise CorruptBatch("snappy payload ends inside a block length")
        (size,) = struct.unpack_from(">i", payload, at)
        at += 4
        if not 0 <= size <= _XERIAL_BLOCK_MAX or size > len(payload) - at:
            raise CorruptBatch(f"snappy block of {size} bytes, but only {len(payload) - at} are left")
        yield payload[at : at + size]
        at += size


def _snappy_size(block: memoryview) -> int:
    """Return the decompressed size that a raw block claims, if it is possible."""
    if not block:
        raise CorruptBatch("snappy block without its length")
    size = libraries.cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CorruptBatch(f"snappy block of {len(block)} bytes claims {size} bytes")
    return size


def _snappy_decompress(payload: memoryview, bytes_max: int) -> Buffer:
    """reads: xerial streams, also several with a header each, and one raw snappy block without any header."""
    try:
        total = sum(map(_snappy_size, _snappy_blocks(payload)))
        if total > bytes_max:
            raise _over("snappy", bytes_max)
        memory = memory_for(total)
        view = memoryview(memory)
        at = 0
        for block in _snappy_blocks(payload):
            size = _snappy_size(block)
            if size and libraries.cramjam.snappy.decompress_raw_into(block, view[at : at + size]) != size:
                raise CorruptBatch("snappy block is shorter than it claims")
            at += size
        if at != total:  # in a shared mapping bytes may change between two reads
            raise CorruptBatch("snappy payload changed while it was read")
    except libraries.cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy payload: {error}") from None
    return finished(memory, total)


# lz4 ------------------------------------------------------------------------------------------------------------------

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FAST_LEVEL: Final = 9  # Kafka's default level selects the fast compressor; every other level is LZ4 HC
_LZ4_HC_MIN: Final = 3  # at lower levels the frame library would use the fast compressor
_LZ4_BLOCK_BYTES: Final = 1 << 16
_LZ4_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"  # version 1, independent blocks of up to 64 KiB, header checksum
_LZ4_WORD: Final = struct.Struct("<I")
_LZ4_STORED: Final = 1 << 31  # a block of plain bytes
_LZ4_END: Final = bytes(4)
_FLG_CHECKSUM, _FLG_SIZE = 4, 8


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    fast = level is None or level == _LZ4_FAST_LEVEL
    size = len(data)
    if fast and 0 < size <= _LZ4_BLOCK_BYTES:
        # One block: avoids the context that the frame library would make. Data that does not shrink is stored plain.
        block = libraries.lz4_block.compress(data, store_size=False)
        if len(block) >= size:
            return b"".join((_LZ4_HEADER, _LZ4_WORD.pack(size | _LZ4_STORED), data, _LZ4_END))
        return b"".join((_LZ4_HEADER, _LZ4_WORD.pack(len(block)), block, _LZ4_END))
    frame: bytes = libraries.lz4_frame.compress(
        data,
        compression_level=0 if fast or level is None else max(level, _LZ4_HC_MIN),
        block_size=libraries.lz4_frame.BLOCKSIZE_MAX64KB,
        # The library's default is linked blocks, which Kafka refuses; with data of one block that goes unnoticed.
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return frame


def _lz4_without_extras(payload: memoryview, end: int) -> bytes:
    """Replace the header of a frame that has a content size or checksum, so that the library does not check them, as in
    Kafka. It still checks block checksums and the header's own."""
    flags, descriptor = payload[4], payload[5]
    header_size = 15 if flags & _FLG_SIZE else 7
    if payload[header_size - 1] != _lz4_header_checksum(payload[4 : header_size - 1]):
        raise CorruptBatch("lz4 frame header does not match its checksum")
    plain = bytes((flags & ~(_FLG_SIZE | _FLG_CHECKSUM), descriptor))
    header = _LZ4_MAGIC + plain + bytes((_lz4_header_checksum(plain),))
    return b"".join((header, payload[header_size:end]))


def _lz4_header_checksum(header: Buffer) -> int:
    """Return the second byte of XXH32 with seed 0 of the 2 to 14 bytes of a frame header: below 16 bytes without
    lanes."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    size = len(header)
    digest = (prime5 + size) & mask
    words = size // 4
    for word in struct.unpack_from(f"<{words}I", header):
        digest = rotate((digest + word * prime3) & mask, 17) * prime4 & mask
    for byte in bytes(header[4 * words :]):
        digest = rotate((digest + byte * prime5) & mask, 11) * prime1 & mask
    digest = (digest ^ digest >> 15) * prime2 & mask
    digest = (digest ^ digest >> 13) * prime3 & mask
    return (digest ^ digest >> 16) >> 8 & 0xFF


def lz4_with_header_checksum(payload: Buffer) -> Buffer:
    """Return the payload with the correct header checksum in its first frame.

    The clients of magic 0 computed that byte over the frame's magic too, so Kafka does not verify it there. Bytes that
    are not a frame are returned unchanged; decompress() reports them.
    """
    view = memoryview(payload)
    if len(view) < 7 or bytes(view[:4]) != _LZ4_MAGIC:
        return payload
    at = 14 if view[4] & _FLG_SIZE else 6
    if len(view) <= at:
        return payload
    return b"".join((view[:at], bytes((_lz4_header_checksum(view[4:at]),)), view[at + 1 :]))


def _lz4_decompress(payload: memoryview, bytes_max: int) -> Buffer:
    """reads: one frame of independent blocks of any size, its block and header checksums checked; content size, content
    checksum and all bytes after the end mark are ignored."""
    direct = unpack(payload, bytes_max)
    if direct is not None:
        return direct
    end, block_max, bound = lz4_frame(payload)
    frame: Buffer = payload if end == len(payload) else payload[:end]
    if payload[4] & (_FLG_SIZE | _FLG_CHECKSUM):
        frame = _lz4_without_extras(payload, end)
    # A context is taken out, and put back only when its frame has ended: after anything else the library must not use
    # it again. It keeps the memory of one block, so those of 4 MiB, which Kafka does not write, are not kept.
    context, _contexts.lz4 = _contexts.lz4, None
    if context is None or block_max != _LZ4_BLOCK_BYTES:
        context = libraries.lz4_frame.create_decompression_context()
    try:
        out: bytes
        out, _, whole = libraries.lz4_frame.decompress_chunk(context, frame, max_length=min(bound, bytes_max) + 1)
    except RuntimeError as error:
        if "allocation_failed" in str(error):  # not an error of the bytes, which must not be truncated for it
            raise MemoryError(f"lz4 payload: {error}") from None
        raise CorruptBatch(f"lz4 payload: {error}") from None
    if len(out) > bytes_max:
        raise _over("lz4", bytes_max)
    if not whole:
        raise CorruptBatch("lz4 payload ends inside a block")
    if block_max == _LZ4_BLOCK_BYTES:
        _contexts.lz4 = context
    return out


# zstd -----------------------------------------------------------------------------------------------------------------

_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_WINDOW_MAX: Final = 8 * 1024 * 1024  # up to level 19; a stream keeps this much for its next frame


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    level = _ZSTD_DEFAULT_LEVEL if level is None else level
    compressor = _contexts.compressors.get(level)
    if compressor is None:
        compressor = _contexts.compressors[level] = libraries.zstandard.ZstdCompressor(
            level=level, write_content_size=False
        )
    return compressor.compress(data)


def _zstd_kept(frame: memoryview, bound: int) -> Buffer | None:
    """Decompress a whole frame of at most bound bytes into kept memory. None for an invalid frame."""
    memory = memory_for(bound + 1)  # with a byte that stays free the library reads on to the end, and the checksum
    try:
        with _contexts.decompressor.stream_reader(frame) as reader:
            size = reader.readinto(memory)
    except libraries.zstandard.ZstdError:
        return None
    return finished(memory, size) if size <= bound else None


def _zstd_whole(frame: memoryview, bound: int, left: int, bytes_max: int) -> bytes:
    """Decompress a frame into memory of its own, or name what is wrong with it. left: of the bytes_max."""
    try:
        # A frame that states its size gets a buffer of that size; for the others this is the limit.
        return _contexts.decompressor.decompress(frame, max_output_size=max(1, min(bound, left)))
    except libraries.zstandard.ZstdError as error:
        if bound > left and "did not decompress full frame" in str(error):
            raise _over("zstd", bytes_max) from None
        if "not enough memory" in str(error):  # for a window: not an error of the bytes, as above
            raise MemoryError(f"zstd payload: {error}") from None
        raise CorruptBatch(f"zstd payload: {error}") from None


def _zstd_decompress(payload: memoryview, bytes_max: int) -> Buffer:
    """reads: concatenated frames, with or without content size and checksum, skippable ones too; no other bytes."""
    parts: list[Buffer] = []
    left = bytes_max
    at, size = 0, len(payload)
    while at < size and (frame := zstd_frame(payload, at)) is not None:
        start, at, bound, sized, window = frame
        if sized and bound > left:
            raise _over("zstd", bytes_max)
        part: Buffer | None = None
        if bound <= left and window <= _ZSTD_WINDOW_MAX:
            part = _zstd_kept(payload[start:at], bound)
        if part is None:
            part = _zstd_whole(payload[start:at], bound, left, bytes_max)
        left -= len(part)
        if part:
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


_COMPRESS: Final[dict[int, Callable[[Buffer, int | None], Buffer]]] = {
    GZIP: _gzip_compress,
    SNAPPY: _snappy_compress,
    LZ4: _lz4_compress,
    ZSTD: _zstd_compress,
}
_DECOMPRESS: Final[dict[int, Callable[[memoryview, int], Buffer]]] = {
    GZIP: _gzip_decompress,
    SNAPPY: _snappy_decompress,
    LZ4: _lz4_decompress,
    ZSTD: _zstd_decompress,
}
