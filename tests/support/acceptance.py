"""The batches that readers accept and refuse: one or a few for each row of the format's acceptance matrix, and for each
row about the scan of a file.

The rows state the observed behaviour of Kafka's classes. tests/record/test_acceptance.py compares klog with them,
tests/interop/test_acceptance.py compares Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from klog.codec import compress, crc32c
from tests.support.reference import encode_varint as V  # noqa: N812

T = 1_700_000_000_000


def record(
    *,
    attributes: int = 0,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    key: bytes = V(1) + b"k",
    value: bytes = V(1) + b"v",
    headers: bytes = V(0),
    slack: bytes = b"",
) -> bytes:
    body = bytes((attributes,)) + V(timestamp_delta) + V(offset_delta) + key + value + headers + slack
    return V(len(body)) + body


def batch(
    payload: bytes,
    count: int,
    codec: int = 0,
    *,
    base_offset: int = 0,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = T,
    magic: int = 2,
) -> bytes:
    last = max(count - 1, 0) if last_offset_delta is None else last_offset_delta
    tail = struct.pack(">HiqqqhiI", attributes | codec, last, base_timestamp, T, -1, -1, -1, count & 0xFFFFFFFF)
    tail += bytes(compress(codec, payload))
    return struct.pack(">qiibI", base_offset, len(tail) + 9, 0, magic, crc32c(tail)) + tail


def two() -> bytes:
    return record() + record(offset_delta=1)


GOOD = batch(two(), 2)


@dataclass(frozen=True)
class Row:
    """records: how many a file reader returns; None is an error, after `before` records."""

    name: str
    data: Callable[[int], bytes]  # by codec
    records: int | None
    before: int = 0
    sound: bool = True  # whether validate() accepts it; never if a reader refuses it
    partial: bool = False  # ends inside a batch
    in_memory: bool = True  # whether the result is the same in memory

    def __str__(self) -> str:
        return self.name


def _broken(codec: int) -> bytes:
    data = batch(two(), 2, codec)
    return data[:17] + bytes((data[17] ^ 1,)) + data[18:]


MATRIX = [
    Row("bytes after the last record", lambda codec: batch(two() + b"\0", 2, codec), None),
    Row("a record more than the count", lambda codec: batch(two() + record(offset_delta=2), 2, codec), None),
    Row("a record less than the count", lambda codec: batch(two(), 3, codec), None),
    Row("count 0, last offset delta above 0", lambda codec: batch(b"", 0, codec, last_offset_delta=5), 0),
    Row("count 0, payload present", lambda codec: batch(two(), 0, codec, last_offset_delta=1), 0),
    Row("a negative count", lambda codec: batch(two(), -1, codec), None),
    Row("record attributes that are not 0", lambda codec: batch(record(attributes=0x7F), 1, codec), 1),
    Row("attribute bits 7 to 15", lambda codec: batch(two(), 2, codec, attributes=0xFF80), 2),
    Row("an over-long varint", lambda codec: batch(record(key=b"\x82\x80\x00k"), 1, codec), 1),
    Row("a key of length -7", lambda codec: batch(record(key=V(-7)), 1, codec), 1),
    Row("a value of length -7", lambda codec: batch(record(value=V(-7)), 1, codec), 1),
    Row("a header count below 0", lambda codec: batch(record(headers=V(-1)), 1, codec), None),
    Row("a header key of length -1", lambda codec: batch(record(headers=V(1) + V(-1) + V(0)), 1, codec), None),
    Row("slack inside a record", lambda codec: batch(record(slack=b"\0"), 1, codec), None),
    Row(
        "falling offset deltas",
        lambda codec: batch(record(offset_delta=1) + record(), 2, codec),
        2,
        sound=False,
    ),
    Row(
        "an offset delta above last_offset_delta",
        lambda codec: batch(record() + record(offset_delta=9), 2, codec),
        2,
        sound=False,
    ),
    Row("negative timestamps", lambda codec: batch(record(timestamp_delta=-7), 1, codec, base_timestamp=-5), 1),
    Row("magic 3", lambda codec: batch(two(), 2, codec, magic=3), 2, in_memory=False),
    Row("a negative magic", lambda codec: batch(two(), 2, codec, magic=-1), None),
    Row("a trailing partial batch", lambda codec: GOOD + batch(two(), 2, codec)[:-1], 2, before=2, partial=True),
    Row("a checksum that does not match", _broken, None),
]


def _left(size: int) -> Callable[[int], bytes]:
    """After a valid batch, this many bytes, whose length field is 0."""
    return lambda codec: GOOD + bytes(size)


SCANNER = [
    Row("17 bytes left", _left(17), 2, before=2, partial=True),
    Row("18 bytes left, a length of 0", _left(18), None, before=2),
    Row(
        "a batch that is longer than the file",
        lambda codec: GOOD + batch(two(), 2, codec)[:-40] if codec == 0 else GOOD + batch(two(), 2, codec)[:70],
        2,
        before=2,
        partial=True,
    ),
    Row("a length of 13", lambda codec: GOOD + _with_length(13, codec), None, before=2),
    Row("a length of 48 in magic 2", lambda codec: GOOD + _with_length(48, codec), None, before=2),
    Row("a negative length", lambda codec: GOOD + _with_length(-1, codec), None, before=2),
]


def _with_length(length: int, codec: int) -> bytes:
    data = batch(two(), 2, codec)
    return data[:8] + struct.pack(">i", length) + data[12:]
