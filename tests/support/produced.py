"""Buffers as producers send them, valid, unusual and damaged, with the config of their topic: all made from one
seed."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import Any

from klog.codec import CODECS, compress
from tests.support import legacy_reference as legacy
from tests.support import reference
from tests.support.legacy_reference import Message
from tests.support.reference import ReferenceBatch, ReferenceRecord

NOW = 1_700_000_000_000
LONG_MAX = 2**63 - 1
LAST_OFFSET_DELTA, COUNT, BASE_SEQUENCE, PRODUCER_ID, ATTRIBUTES, MAX_TIMESTAMP = (
    (23, ">i"), (57, ">i"), (53, ">i"), (43, ">q"), (21, ">h"), (35, ">q"),
)  # fmt: skip
Field = tuple[int, str]


@dataclass(frozen=True)
class Produced:
    data: bytes
    compression: str = "producer"
    level: int | None = None
    compacted: bool = False
    stamped: bool = False
    before_max: int = LONG_MAX
    after_max: int = 3_600_000
    offset: int = 1_234_567
    now: int = NOW
    leader_epoch: int = 3
    origin: str = "client"

    @property
    def config(self) -> dict[str, Any]:
        config = {
            "compression.type": self.compression,
            "cleanup.policy": "compact" if self.compacted else "delete",
            "message.timestamp.type": "LogAppendTime" if self.stamped else "CreateTime",
            "message.timestamp.before.max.ms": self.before_max,
            "message.timestamp.after.max.ms": self.after_max,
        }
        if self.level is not None:
            config[f"compression.{self.compression}.level"] = self.level
        return config

    @property
    def options(self) -> dict[str, Any]:
        return {"offset": self.offset, "now": self.now, "leader_epoch": self.leader_epoch, "origin": self.origin}


def reseal(data: bytes) -> bytes:
    """One batch of magic 2 with a length and checksum that match its bytes."""
    return reference.seal(data[:8] + data[12:16], data[21:])


def override(data: bytes, *fields: tuple[Field, int]) -> bytes:
    """The batch with other header fields and a matching checksum."""
    out = bytearray(data)
    for (at, form), value in fields:
        struct.pack_into(form, out, at, value)
    return reseal(bytes(out))


def batch_of(
    records: list[ReferenceRecord],
    *,
    codec: int = 0,
    base_timestamp: int | None = None,
    loose: bool = False,
    **fields: int,
) -> bytes:
    """A batch of magic 2 with any codec. loose: overlong varints and a record attribute, which Kafka accepts."""
    batch = ReferenceBatch(last_offset_delta=len(records) - 1, **fields)
    batch.base_timestamp = (records[0].timestamp if records else -1) if base_timestamp is None else base_timestamp
    times = [record.timestamp for record in records]
    batch.max_timestamp = max(times, default=-1) if "max_timestamp" not in fields else fields["max_timestamp"]
    made = [reference.encode_record(record, batch.base_offset, batch.base_timestamp) for record in records]
    payload = b"".join(loosened(record) if loose else record for record in made)
    head = reference.encode(batch)
    tail = bytearray(head[21:61])
    tail[1] |= codec
    struct.pack_into(">i", tail, 36, len(records))
    return reference.seal(head[:8] + head[12:16], bytes(tail) + bytes(compress(codec, payload)))


def loosened(record: bytes) -> bytes:
    reader = reference.Reader(record)
    reader.varint(32)
    body = bytearray(record[reader.at :])
    body[0] = 0x55
    size = len(body)
    number = 2 * size
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F)) + bytes(body)


def _records(rng: random.Random, count: int, *, tame: bool) -> list[ReferenceRecord]:
    out = []
    for n in range(count):
        key = None if rng.random() < (0.02 if tame else 0.3) else rng.randbytes(rng.choice((0, 3, 9, 70)))
        value = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 10, 100, 100, 300)))
        times = (
            (NOW, NOW + n, NOW - 50 * n, NOW) if tame else (NOW, -1, NOW - 10**9, NOW + 10**9, NOW + n, -5, 0, 2**62)
        )
        headers = tuple(
            (f"h{i}", None if rng.random() < 0.2 else rng.randbytes(4)) for i in range(rng.choice((0, 0, 0, 2)))
        )
        out.append(ReferenceRecord(key, value, rng.choice(times), headers, n))
    return out


def _magic_2(rng: random.Random, tame: bool) -> bytes:
    records = _records(rng, rng.choice((1, 2, 3, 20)), tame=tame)
    fields: dict[str, int] = {"attributes": 0}
    if rng.random() < 0.3:
        fields |= {"producer_id": 900, "producer_epoch": 2, "base_sequence": rng.choice((0, 7, 2**31 - 1))}
        fields["attributes"] |= rng.choice((0, 16))
    if not tame and rng.random() < 0.1:
        fields["attributes"] |= rng.choice((8, 32, 64, 0x400))
    if rng.random() < 0.2:
        fields["max_timestamp"] = NOW + 77
    if not tame and rng.random() < 0.2:
        fields["base_offset"] = rng.choice((5, 2**40))
        records = [
            ReferenceRecord(r.key, r.value, r.timestamp, r.headers, r.offset + fields["base_offset"]) for r in records
        ]
    base = rng.choice((None, None, NOW - 1000)) if not tame else None
    data = batch_of(records, codec=rng.randrange(5), base_timestamp=base, loose=rng.random() < 0.2, **fields)
    if not tame and rng.random() < 0.3:
        changes = [
            ((LAST_OFFSET_DELTA, 0),), ((LAST_OFFSET_DELTA, 15),), ((LAST_OFFSET_DELTA, -3),), ((COUNT, 0),), ((COUNT,
            -1),), ((LAST_OFFSET_DELTA, 5), (COUNT, 6)), ((LAST_OFFSET_DELTA, 0), (COUNT, 1)), ((PRODUCER_ID, 5),
            (BASE_SEQUENCE, -2)),
        ]  # fmt: skip
        data = override(data, *rng.choice(changes))
    return data


def _messages(rng: random.Random, magic: int, offsets: list[int], *, tame: bool, foreign: float = 0.0) -> list[bytes]:
    out = []
    for n, record in zip(offsets, _records(rng, len(offsets), tame=tame), strict=True):
        own = 1 - magic if rng.random() < foreign else magic
        timestamp = record.timestamp if own else -1
        out.append(legacy.encode_message(Message(own, n, record.key, record.value, timestamp)))
    return out


def _legacy(rng: random.Random, tame: bool) -> bytes:
    magic = rng.randrange(2)
    count = rng.choice((1, 2, 5, 12))
    offsets = list(range(count)) if tame or rng.random() < 0.7 else [rng.randrange(40) for _ in range(count)]
    if rng.random() < 0.4:
        parts = _messages(rng, magic, offsets, tame=tame)
        if not tame and rng.random() < 0.15:
            parts += _messages(rng, 1 - magic, [7], tame=tame)
        if not tame and rng.random() < 0.1:
            parts.append(_magic_2(rng, True))
        return b"".join(parts)
    inner = _messages(rng, magic, offsets, tame=tame, foreign=0.0 if tame or rng.random() < 0.7 else 0.4)
    if not tame and rng.random() < 0.1:
        n = rng.randrange(count)
        inner[n] = inner[n][:12] + rng.randbytes(4) + inner[n][16:]
    if not tame and rng.random() < 0.1:
        inner[rng.randrange(count)] = legacy.encode_message(Message(magic, 0, None, b"x", NOW if magic else -1, 1))
    codec = rng.randrange(1, 4)
    payload = bytes(compress(codec, b"".join(inner)))
    attributes = codec | (8 if not tame and rng.random() < 0.1 else 0)
    offset = rng.choice((0, max(offsets), 100, 3))
    return legacy.encode_message(Message(magic, offset, None, payload, NOW if magic else -1, attributes))


def produced(seed: int) -> Produced:
    rng = random.Random(seed)
    tame = rng.random() < 0.6
    data = _magic_2(rng, tame) if rng.random() < 0.7 else _legacy(rng, tame)
    if not tame and rng.random() < 0.1:
        data += _magic_2(rng, True)
    if rng.random() < 0.1:
        data += data[: rng.randrange(40)]
    if not tame and rng.random() < 0.15:
        at = rng.randrange(len(data))
        data = data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
    compression = rng.choice(("producer", "producer", "uncompressed", *CODECS[1:]))
    level = rng.choice((None, {"gzip": 3, "lz4": 12, "zstd": 7}.get(compression)))
    return Produced(
        data,
        compression,
        level,
        compacted=rng.random() < 0.25,
        stamped=rng.random() < 0.25,
        before_max=rng.choice((LONG_MAX, LONG_MAX, 86_400_000, 0)),
        after_max=rng.choice((3_600_000, LONG_MAX, 86_400_000)),
        offset=rng.choice((0, 1_234_567, 2**40)),
        leader_epoch=rng.choice((-1, 0, 12)),
        origin="client" if rng.random() < 0.85 else "coordinator",
    )
