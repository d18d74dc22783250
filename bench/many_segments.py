"""A partition of very many segments with few batches each, as after a clean stop, written without klog's log."""

from __future__ import annotations

import struct
from pathlib import Path

from klog import record
from klog.segment import names

TIMESTAMP = 1_700_000_000_000


def write_segments(directory: Path, count: int, records: int = 1, batches: int = 1, value: bytes = b"value") -> None:
    """Write `count` segments. Segment i has `batches` batches of `records` records each, from offset i * batches *
    records on. Each batch but the first has an entry in the offset index. Nothing is synced."""
    directory.mkdir(parents=True)
    one = record.encode([(b"k", value, TIMESTAMP)] * records, leader_epoch=0)
    content, span = bytearray(one * batches), batches * records
    entries = (struct.pack(">ii", (batch + 1) * records - 1, batch * len(one)) for batch in range(1, batches))
    offsets, times = b"".join(entries), struct.pack(">qi", TIMESTAMP, records - 1)
    for number in range(count):
        for batch in range(batches):
            struct.pack_into(">q", content, batch * len(one), number * span + batch * records)
        stem = directory / names.file_name(number * span, "")
        stem.with_name(stem.name + names.LOG).write_bytes(content)
        stem.with_name(stem.name + names.INDEX).write_bytes(offsets)
        stem.with_name(stem.name + names.TIME_INDEX).write_bytes(times)
    (directory / names.EPOCHS).write_bytes(b"0\n1\n0 0\n")
    end = names.file_name(count * span, names.SNAPSHOT)
    (directory / end).write_bytes(bytes.fromhex("000148674bc700000000"))  # no producers
