"""bytes ↔ numbers: varints, CRC-32C and the compression codecs. Knows no record and no file.

Takes bytes from anybody; gives `record` plain payloads and checksums.

    compress, decompress, parse_compression    the one door to gzip, snappy, lz4 and zstd
    crc32c                                     Castagnoli's checksum, as Kafka uses it
    CODECS                                     their names, by the codec bits of a batch
    decompressed_bytes_max                     how far a payload may grow
    lz4_with_header_checksum                   for frames of magic 0, which have a wrong one
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

__all__ = [
    "CODECS",
    "compress",
    "crc32c",
    "decompress",
    "decompressed_bytes_max",
    "lz4_with_header_checksum",
    "parse_compression",
]
