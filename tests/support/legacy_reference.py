"""A slow and simple model of magic 0 and 1, the record formats before Kafka 0.11. It shares no line with the fast code.

It is written from the format only, with ints and slices. Codecs: none and gzip.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from tests.support.reference import Malformed, Reader

CREATE, APPEND, NO_TIME = 0, 1, -1


@dataclass(frozen=True)
class Message:
    """offset: as stored. attributes: codec, and 8 for LogAppendTime."""

    magic: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = -1
    attributes: int = 0


@dataclass(frozen=True)
class Row:
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


def encode_message(message: Message) -> bytes:
    def sized(value: bytes | None) -> bytes:
        return b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value

    body = bytes((message.magic & 0xFF, message.attributes))
    if message.magic == 1:
        body += message.timestamp.to_bytes(8, "big", signed=True)
    return seal(message.offset, body + sized(message.key) + sized(message.value))


def seal(offset: int, body: bytes) -> bytes:
    """body: magic to end. Offset, size and checksum are prepended."""
    return (
        offset.to_bytes(8, "big", signed=True)
        + (len(body) + 4).to_bytes(4, "big")
        + zlib.crc32(body).to_bytes(4, "big")
        + body
    )


def reseal(data: bytes) -> bytes:
    """One message, with a checksum that matches its bytes."""
    return data[:12] + zlib.crc32(data[16:]).to_bytes(4, "big") + data[16:]


def wrap(magic: int, offset: int, messages: Iterable[bytes], *, timestamp: int = -1, attributes: int = 1) -> bytes:
    value = gzip.compress(b"".join(messages), mtime=0)
    return encode_message(Message(magic, offset, None, value, timestamp, attributes))


def take_message(reader: Reader) -> Message:
    offset, body = reader.integer(8), Reader(reader.take(reader.integer(4)))
    if len(body.data) < 14:
        raise Malformed("size")
    crc = body.integer(4) & 0xFFFFFFFF
    if crc != zlib.crc32(body.data[4:]):
        raise Malformed("checksum")
    magic, attributes = body.integer(1), body.integer(1) & 0xFF
    if magic not in (0, 1):
        raise Malformed("magic")
    timestamp = body.integer(8) if magic == 1 else -1
    fields = []
    for _ in range(2):
        size = body.integer(4)
        fields.append(None if size < 0 else body.take(size))
    return Message(magic, offset, *fields, timestamp, attributes)  # bytes after the value are skipped


def inner_messages(plain: bytes, wrapper: Message) -> list[Message]:
    reader, messages = Reader(plain), []
    while reader.left >= 12:
        size = int.from_bytes(plain[reader.at + 8 : reader.at + 12], "big", signed=True)
        if size < 14:
            raise Malformed("size")
        if size > reader.left - 12:
            break
        message = take_message(reader)
        if message.attributes & 7:
            raise Malformed("a message that cannot be inside another")
        messages.append(message)
    if not messages:
        raise Malformed("an empty wrapper")
    return messages


def rows_of(outer: Message) -> list[Row]:
    stamp = outer.magic == 1 and outer.attributes & 8
    kind = NO_TIME if outer.magic == 0 else APPEND if stamp else CREATE
    if outer.attributes & 7 == 0:
        messages, shift, last = [outer], 0, outer.offset
    elif outer.attributes & 7 == 1 and outer.value is not None:
        try:
            inside = zlib.decompress(outer.value, 31)
        except zlib.error:
            raise Malformed("gzip") from None
        messages = inner_messages(inside, outer)
        shift, last = 0, outer.offset
        if outer.offset == 0:
            last = messages[-1].offset
        elif outer.magic == 1:
            shift = outer.offset - messages[-1].offset
            if shift < 0:
                raise Malformed("the wrapper stands before its messages")
    else:
        raise Malformed("codec")
    base = messages[0].offset + shift
    if not 0 <= base <= last < 2**63 - 1 or last - base > 2**31 - 1:
        raise Malformed("offsets")
    rows = []
    for message in messages:
        if not -(2**31) <= message.offset + shift - base < 2**31 or message.offset + shift >= 2**63:
            raise Malformed("offsets far apart")
        timestamp = outer.timestamp if stamp else message.timestamp
        rows.append(Row(message.offset + shift, timestamp, kind, message.key, message.value))
    return rows


def decode(data: bytes) -> list[Row]:
    """The records of all messages of data. Raises Malformed."""
    reader, rows = Reader(data), []
    while reader.left:
        rows += rows_of(take_message(reader))
    return rows
