"""A slow and simple model of the leader's validator, over the models of the formats. It shares no line with the fast
code, except the codecs other than gzip. It is written from the rules: Kafka's LogValidator, and klog's stricter checks.
"""

from __future__ import annotations

import collections
import zlib
from dataclasses import dataclass, field

from klog.codec import decompress, lz4_with_header_checksum
from klog.errors import CorruptBatch
from tests.support import reference
from tests.support.produced import Produced
from tests.support.reference import Header, Malformed, Reader

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORD, TIMESTAMP, CORRUPT = "InvalidRecord", "InvalidTimestamp", "CorruptBatch"
OFFSETS, MAGICS = "InvalidOffsetOrSequenceRecordsPerSec", "InvalidMagicNumberRecordsPerSec"
NO_KEY, CRCS = "NoKeyCompactedTopicRecordsPerSec", "InvalidMessageCrcRecordsPerSec"


class Refusal(Exception):
    def __init__(self, kind: str, *meters: str, numbers: tuple[int, ...] = ()) -> None:
        super().__init__(kind)
        self.kind, self.meters, self.numbers = kind, dict(collections.Counter(meters)), numbers


@dataclass
class Row:
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...] = ()
    delta: int = 0
    foreign: bool = False  # its magic differs from its wrapper's


@dataclass
class Taken:
    codec: str
    rows: list[Row]
    max_timestamp: int
    first_timestamp: int
    changed: bool
    attributes: int
    producer: tuple[int, int, int] = (-1, -1, -1)
    payload: bytes | None = field(default=None, repr=False)  # if it stays unchanged


def take(case: Produced) -> Taken:
    """The validated batches. Raises Refusal."""
    batches = _split(case.data)
    codecs = [batch[22] & 7 if batch[16] == 2 else batch[17] & 7 for batch in batches]
    source = next((codec for codec in reversed(codecs) if codec), 0)
    if len(batches) > 1 and (batches[0][16] == 2 or source):
        raise Refusal(RECORD)
    target = {"producer": source, "uncompressed": 0}.get(case.compression)
    if target is None:
        target = CODECS.index(case.compression)
    return _magic_2(case, batches[0], target) if batches[0][16] == 2 else _legacy(case, batches, source, target)


def _split(data: bytes) -> list[bytes]:
    batches: list[bytes] = []
    at = 0
    while len(data) - at >= 17:
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if size < 14 or size > 2**31 - 13 or data[at + 16] > 2:
            raise Refusal(CORRUPT)
        if size > len(data) - at - 12:
            break
        batch = data[at : at + 12 + size]
        if batch[16] == 2:
            if size < 49:
                raise Refusal(CORRUPT)
            stored, crc = batch[17:21], reference.crc32c(batch[21:])
        else:
            stored, crc = batch[12:16], zlib.crc32(batch[16:])
        if int.from_bytes(stored, "big") != crc:
            raise Refusal(CORRUPT, CRCS)
        if (batch[22] if batch[16] == 2 else batch[17]) & 7 > 4:
            raise Refusal(CORRUPT)
        batches.append(batch)
        at += len(batch)
    if not batches:
        raise Refusal(CORRUPT if data else RECORD)
    return batches


def _unpack(codec: int, payload: bytes) -> bytes:
    try:
        if codec == 1 and payload:
            return zlib.decompress(payload, 31)
        return bytes(decompress(codec, payload, 64 << 20))
    except (zlib.error, CorruptBatch):
        raise Refusal(CORRUPT) from None


def _magic_2(case: Produced, data: bytes, target: int) -> Taken:
    reader = Reader(data[21:61])
    attributes, last_delta = reader.integer(2) & 0xFFFF, reader.integer(4)
    base, largest, producer_id = reader.integer(8), reader.integer(8), reader.integer(8)
    epoch, sequence, count = reader.integer(2), reader.integer(4), reader.integer(4)
    if last_delta < 0 or count <= 0 or last_delta + 1 != count:
        raise Refusal(RECORD, OFFSETS)
    if case.origin == "client" and (attributes & 32 or (producer_id >= 0 and sequence < 0)):
        raise Refusal(RECORD, OFFSETS)
    codec = attributes & 7
    rows = _records(_unpack(codec, data[61:]), count, base)
    if any(row.delta != n for n, row in enumerate(rows)):
        raise Refusal(RECORD, OFFSETS)
    stays = codec == target or bool(attributes & 32)
    _check_rules(case, rows, stamped=bool(attributes & 8), written=not stays)
    new = _summary(case, codec if stays else target, rows, attributes & (0x70 if stays else 0x10), changed=not stays)
    new.producer = (producer_id, epoch, sequence)
    if stays:
        new.payload = data[61:]
        new.first_timestamp = base
        if (attributes & 8, largest) == (new.attributes & 8, new.max_timestamp):
            new.attributes = attributes
    return new


def _records(payload: bytes, count: int, base: int) -> list[Row]:
    reader, rows = Reader(payload), []
    try:
        for _ in range(count):
            body = Reader(reader.take(reader.varint(32)))
            body.take(1)
            stamp, delta = reference.signed(base + body.varint(64), 64), body.varint(32)
            key, value, headers = body.sized(), body.sized(), []
            number = body.varint(32)
            if number < 0:
                raise Malformed("headers")
            for _ in range(number):
                name = body.sized()
                if name is None:
                    raise Malformed("header key")
                headers.append((name.decode("utf-8", "surrogateescape"), body.sized()))
            if body.left:
                raise Malformed("slack")
            rows.append(Row(key, value, stamp, tuple(headers), delta))
        if reader.left:
            raise Malformed("slack")
    except Malformed:
        raise Refusal(RECORD) from None
    return rows


def _legacy(case: Produced, batches: list[bytes], source: int, target: int) -> Taken:
    first = _message(batches[0])
    magic, attributes = batches[0][16], batches[0][17]
    stamped = bool(magic == 1 and attributes & 8)
    if source:
        rows = _inner(batches[0], first.value, source)
        _check_rules(case, rows, stamped=stamped, written=True)
        return _summary(case, target, rows, 0, changed=True)
    rows = []
    for batch in batches:
        if batch[16] != magic:
            raise Refusal(RECORD, MAGICS)
        row = _message(batch)
        _check_rules(case, [row], stamped=stamped, written=True)
        rows.append(row)
    return _summary(case, target, rows, 0, changed=True)


def _message(data: bytes) -> Row:
    reader = Reader(data[18:])
    try:
        stamp = reader.integer(8) if data[16] == 1 else -1
        fields = []
        for _ in range(2):
            size = reader.integer(4)
            fields.append(None if size < 0 else reader.take(size))
    except Malformed:
        raise Refusal(CORRUPT) from None
    return Row(fields[0], fields[1], stamp)


def _inner(wrapper: bytes, value: bytes | None, codec: int) -> list[Row]:
    magic, offset = wrapper[16], int.from_bytes(wrapper[:8], "big", signed=True)
    if codec == 4 or value is None:
        raise Refusal(RECORD)
    plain = _unpack(codec, bytes(lz4_with_header_checksum(value)) if codec == 3 and magic == 0 else value)
    messages, at = [], 0
    while len(plain) - at >= 12:
        size = int.from_bytes(plain[at + 8 : at + 12], "big", signed=True)
        if size < 14:
            raise Refusal(CORRUPT)
        if size > len(plain) - at - 12:
            break
        messages.append(plain[at : at + 12 + size])
        at += 12 + size
    if not messages:
        raise Refusal(RECORD)
    if magic == 1 and offset != 0 and offset < int.from_bytes(messages[-1][:8], "big", signed=True):
        raise Refusal(RECORD)
    rows = []
    for message in messages:
        if message[17] & 7:
            raise Refusal(RECORD)
        if message[16] != magic:
            rows.append(Row(None, None, -1, foreign=True))
            continue
        if int.from_bytes(message[12:16], "big") != zlib.crc32(message[16:]):
            raise Refusal(CORRUPT, CRCS)
        rows.append(_message(message))
    return rows


def _check_rules(case: Produced, rows: list[Row], *, stamped: bool, written: bool) -> None:
    bad: dict[int, str] = {}
    for n, row in enumerate(rows):
        age = reference.signed(case.now - row.timestamp, 64)  # as Java's long, which wraps
        outside = row.timestamp != -1 and (age > case.before_max or reference.signed(-age, 64) > case.after_max)
        if row.foreign:
            bad[n] = MAGICS
        elif case.compacted and row.key is None:
            bad[n] = NO_KEY
        elif stamped or (not case.stamped and outside):
            bad[n] = TIMESTAMP
    if not bad and written:
        bad = {n: TIMESTAMP for n, row in enumerate(rows) if row.timestamp < -1}
    if bad:
        kind = TIMESTAMP if TIMESTAMP in bad.values() else RECORD
        raise Refusal(kind, *(meter for meter in bad.values() if meter != TIMESTAMP), numbers=tuple(bad))


def _summary(case: Produced, codec: int, rows: list[Row], attributes: int, *, changed: bool) -> Taken:
    largest = case.now if case.stamped else max(-1, *(row.timestamp for row in rows))
    attributes |= codec | (8 if case.stamped else 0)
    return Taken(CODECS[codec], rows, largest, rows[0].timestamp, changed, attributes)
