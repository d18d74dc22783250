"""A partition of very many segments of one batch each, as a clean stop would leave it, written without an engine."""

from __future__ import annotations

import struct
from pathlib import Path

from klog import record
from klog.segment import names

TIMESTAMP = 1_700_000_000_000


def write_segments(directory: Path, count: int, records: int = 1) -> None:
    """Segment i holds `records` records from offset i * records on; nothing is synced."""
    directory.mkdir(parents=True)
    batch = bytearray(record.encode([(b"k", b"value", TIMESTAMP)] * records, leader_epoch=0))
    times = struct.pack(">qi", TIMESTAMP, records - 1)
    for number in range(count):
        struct.pack_into(">q", batch, 0, number * records)
        stem = directory / names.file_name(number * records, "")
        stem.with_name(stem.name + names.LOG).write_bytes(batch)
        stem.with_name(stem.name + names.INDEX).touch()
        stem.with_name(stem.name + names.TIME_INDEX).write_bytes(times)
    (directory / names.EPOCHS).write_bytes(b"0\n1\n0 0\n")
    end = names.file_name(count * records, names.SNAPSHOT)
    (directory / end).write_bytes(bytes.fromhex("000148674bc700000000"))  # no producers
