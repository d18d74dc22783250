"""A slow and simple model of record batches, magic 2. The fast code must agree with it, and shares no line with it.

It is written from the format only, field by field, with ints and slices. Codecs: none and gzip.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

Header = tuple[str, bytes | None]


class Malformed(Exception):
    """The bytes are not a valid batch."""


@dataclass(frozen=True)
class ReferenceRecord:
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...]
    offset: int


@dataclass
class ReferenceBatch:
    base_offset: int = 0
    leader_epoch: int = -1
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    records: list[ReferenceRecord] = field(default_factory=list)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def encode_varint(value: int) -> bytes:
    """Zigzag: 2n, for negative n: -2n - 1."""
    number = 2 * value if value >= 0 else -2 * value - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise Malformed(f"{size} bytes where {self.left} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self, bits: int) -> int:
        number = 0
        for i in range((bits + 6) // 7):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                number &= (1 << bits) - 1
                return number // 2 if number % 2 == 0 else -(number // 2) - 1
        raise Malformed("varint without end")

    def sized(self) -> bytes | None:
        size = self.varint(32)
        return None if size < 0 else self.take(size)


def encode_record(record: ReferenceRecord, base_offset: int, base_timestamp: int) -> bytes:
    def sized(value: bytes | None) -> bytes:
        return encode_varint(-1) if value is None else encode_varint(len(value)) + value

    body = b"\0" + encode_varint(signed(record.timestamp - base_timestamp, 64))
    body += encode_varint(record.offset - base_offset)
    body += sized(record.key) + sized(record.value) + encode_varint(len(record.headers))
    for key, value in record.headers:
        body += sized(key.encode("utf-8", "surrogateescape")) + sized(value)
    return encode_varint(len(body)) + body


def seal(head: bytes, tail: bytes) -> bytes:
    """head: base offset and leader epoch; tail: attributes to end. Length, magic and checksum are inserted between."""
    return head[:8] + (len(tail) + 9).to_bytes(4, "big") + head[8:] + b"\x02" + crc32c(tail).to_bytes(4, "big") + tail


def encode(batch: ReferenceBatch) -> bytes:
    payload = b"".join(encode_record(record, batch.base_offset, batch.base_timestamp) for record in batch.records)
    if batch.attributes & 7 == 1:
        payload = gzip.compress(payload)
    elif batch.attributes & 7:
        raise ValueError("the reference model supports no codec except gzip")

    def integer(value: int, size: int) -> bytes:
        return value.to_bytes(size, "big", signed=True)

    tail = integer(batch.attributes, 2) + integer(batch.last_offset_delta, 4)
    tail += integer(batch.base_timestamp, 8) + integer(batch.max_timestamp, 8)
    tail += integer(batch.producer_id, 8) + integer(batch.producer_epoch, 2) + integer(batch.base_sequence, 4)
    tail += integer(len(batch.records), 4) + payload
    return seal(integer(batch.base_offset, 8) + integer(batch.leader_epoch, 4), tail)


def decode_record(reader: Reader, batch: ReferenceBatch) -> ReferenceRecord:
    body = Reader(reader.take(reader.varint(32)))
    body.take(1)
    timestamp_delta = body.varint(64)
    offset_delta = body.varint(32)
    key, value = body.sized(), body.sized()
    count = body.varint(32)
    if count < 0:
        raise Malformed("negative count of headers")
    headers = []
    for _ in range(count):
        name = body.sized()
        if name is None:
            raise Malformed("header without key")
        headers.append((name.decode("utf-8", "surrogateescape"), body.sized()))
    if body.left:
        raise Malformed("bytes after the last header")
    timestamp = batch.max_timestamp if batch.attributes & 8 else signed(batch.base_timestamp + timestamp_delta, 64)
    return ReferenceRecord(key, value, timestamp, tuple(headers), signed(batch.base_offset + offset_delta, 64))


def decode(data: bytes) -> list[ReferenceBatch]:
    """All batches of data. Raises Malformed."""
    reader = Reader(data)
    batches = []
    while reader.left:
        batch = ReferenceBatch()
        batch.base_offset = reader.integer(8)
        whole = Reader(reader.take(reader.integer(4)))
        batch.leader_epoch = whole.integer(4)
        if whole.integer(1) != 2:
            raise Malformed("magic")
        crc = whole.integer(4) & 0xFFFFFFFF
        if crc != crc32c(whole.data[whole.at :]):
            raise Malformed("checksum")
        batch.attributes = whole.integer(2)
        batch.last_offset_delta = whole.integer(4)
        batch.base_timestamp, batch.max_timestamp, batch.producer_id = (whole.integer(8) for _ in range(3))
        batch.producer_epoch, batch.base_sequence, count = whole.integer(2), whole.integer(4), whole.integer(4)
        if count < 0 or batch.last_offset_delta < 0 or batch.base_offset < 0:
            raise Malformed("negative field")
        if batch.base_offset + batch.last_offset_delta + 1 > 2**63 - 1:
            raise Malformed("offsets past 63 bits")
        payload = whole.take(whole.left)
        if batch.attributes & 7 == 1 and count:
            try:
                payload = zlib.decompress(payload, 31)
            except zlib.error as error:
                raise Malformed("gzip") from error
        elif batch.attributes & 7 > 1:
            raise Malformed("codec")
        if count:
            records = Reader(payload)
            if count > records.left:
                raise Malformed("count")
            batch.records = [decode_record(records, batch) for _ in range(count)]
            if records.left:
                raise Malformed("bytes after the last record")
        batches.append(batch)
    return batches


def all_records(batches: Iterable[ReferenceBatch]) -> list[ReferenceRecord]:
    return [record for batch in batches for record in batch.records]
