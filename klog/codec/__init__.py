"""codec: CRC-32C and the compression codecs, on bytes. Knows neither records nor files.

Takes bytes from any caller; gives `record` plain payloads and checksums.

    compress, decompress, parse_compression    gzip, snappy, lz4 and zstd
    crc32c                                     Castagnoli's checksum, as Kafka uses it
    CODECS                                     their names, by the codec bits of a batch
    decompressed_bytes_max                     the limit on a decompressed payload
    load_libraries                             imports those of the codecs now, not at their first use
    lz4_with_header_checksum                   corrects frames of magic 0, whose checksum is wrong
"""

from klog.codec.compress import (
    CODECS,
    compress,
    decompress,
    decompressed_bytes_max,
    lz4_with_header_checksum,
    parse_compression,
)
from klog.codec.crc32c import crc32c
from klog.codec.libraries import load as load_libraries

__all__ = [
    "CODECS",
    "compress",
    "crc32c",
    "decompress",
    "decompressed_bytes_max",
    "load_libraries",
    "lz4_with_header_checksum",
    "parse_compression",
]


def __dir__() -> list[str]:
    return sorted(__all__)
