"""Random batches as a follower may get them, with values at the ends of their ranges: times of -1, before 1970 and far
ahead, sequences that wrap, the last producer epochs and leader epochs, empty and control batches, delete horizons, gaps
up to the end of a segment's range, the highest offsets."""

from __future__ import annotations

import random
import struct
from typing import Any

from klog.record import TimestampType, decode, encode
from klog.record.control import marker
from tests.support.batches import NOW
from tests.support.reseal import reseal

TIMES = [-1, -1, 0, 1, NOW, NOW - 5, NOW + 9, NOW - 10**9, 2**62, 2**63 - 1]
_HEADER_TIMES = [-2, -(10**12), -(2**63), *TIMES]


class _Producer:
    def __init__(self, chance: random.Random, number: int) -> None:
        self.id, self.epoch = number, chance.choice([0, 5, 32766])
        self.sequence, self.coordinator = chance.choice([0, 100, 2**31 - 3]), chance.choice([0, 3, 2**31 - 2])
        self.open = False

    def taking(self, count: int) -> dict[str, Any]:
        """The fields of its next batch of this many records."""
        first, self.sequence = self.sequence, (self.sequence + count) % 2**31
        return {"producer_id": self.id, "producer_epoch": self.epoch, "base_sequence": first}


def rare_batches(seed: int) -> list[bytes]:
    """5 to 40 of them."""
    chance = random.Random(seed)
    offset, epoch = chance.choice([0, 0, 2**62, 2**63 - 2**40]), chance.choice([0, 0, 2**31 - 3])
    producers = [_Producer(chance, number) for number in (1, 2, 3, 2**62)]
    made: list[bytes] = []
    for _ in range(chance.randint(5, 40)):
        if chance.random() < 0.15:
            offset += chance.choice([1, 1000, 2**31 - 2, 2**31 - 1, 2**31, 2**33])
        if chance.random() < 0.15:
            epoch = min(epoch + chance.choice([1, 2, 1000]), 2**31 - 1)
        data = _one(chance, chance.choice(producers), {"base_offset": offset, "leader_epoch": epoch})
        if chance.random() < 0.2:
            changed = bytearray(data)
            struct.pack_into(">qq", changed, 27, chance.choice(_HEADER_TIMES), chance.choice(_HEADER_TIMES))
            data = reseal(bytes(changed))
        made.append(data)
        offset = next(decode(data, lazy=True)).next_offset
    return made


def _one(chance: random.Random, producer: _Producer, fields: dict[str, Any]) -> bytes:
    values = [None, b"", b"k", b"v" * chance.randint(1, 100)]
    rows = [(chance.choice(values), chance.choice(values), chance.choice(TIMES)) for _ in range(chance.randint(1, 4))]
    codec = chance.choice([None, None, "gzip", "lz4", "zstd"])
    kind = chance.choice(["plain", "horizon", "stamped", "produced", "produced", "end", "empty", "empty control"])
    of_producer: dict[str, Any] = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    if kind == "end":
        if chance.random() < 0.3 and producer.coordinator < 2**31 - 1:
            producer.coordinator += 1
        if chance.random() < 0.3 and producer.epoch < 32767:  # transaction.version 2
            producer.epoch, producer.sequence = producer.epoch + 1, 0
            of_producer["producer_epoch"] = producer.epoch
        producer.open = False
        record = *marker(chance.choice(["commit", "abort"]), producer.coordinator), chance.choice(TIMES)
        return encode([record], is_control=True, is_transactional=True, **of_producer, **fields)
    if kind == "empty control":
        empty: dict[str, Any] = {"last_offset_delta": 0, "max_timestamp": chance.choice(TIMES)}
        return encode([], is_control=True, is_transactional=True, **empty, **of_producer, **fields)
    if kind == "empty":
        taken = {} if producer.open or chance.random() < 0.4 else producer.taking(3)
        return encode([], last_offset_delta=2, max_timestamp=chance.choice(TIMES), **taken, **fields)
    if kind == "produced":
        within = producer.open or chance.random() < 0.6
        producer.open = within
        fields = {**producer.taking(len(rows)), "is_transactional": within, **fields}
    elif kind == "horizon":
        fields["delete_horizon_ms"] = chance.choice([0, NOW, NOW + 10**6, 2**62])
    elif kind == "stamped":
        fields |= {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": chance.choice([0, NOW])}
    return encode(rows, compression=codec, **fields)
