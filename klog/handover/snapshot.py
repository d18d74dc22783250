"""The file bootstrap.checkpoint, a snapshot of KRaft's metadata log: its bytes, and the records in it.

    file := batch(SnapshotHeader) batch(record*)* batch(SnapshotFooter)          offsets from 0, leader epoch 0

A snapshot without its footer is incomplete. Kafka: RecordsSnapshotWriter, BatchFileWriter, BootstrapDirectory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from klog.handover.records import MetadataRecord
from klog.record import encode
from klog.record.kraft import SnapshotFooter, SnapshotHeader

BATCH_RECORDS: Final = 1000


def snapshot_bytes(records: Iterable[MetadataRecord], now_ms: int) -> bytes:
    """Return the bytes of a snapshot with these records. now_ms: the timestamp of its batches."""
    parts = [_control(SnapshotHeader(0).record(), 0, now_ms)]
    offset = 1
    values = (record.value() for record in records)
    while batch := list(islice(values, BATCH_RECORDS)):
        parts.append(_data(batch, offset, now_ms))
        offset += len(batch)
    parts.append(_control(SnapshotFooter().record(), offset, now_ms))
    return b"".join(parts)


def _data(values: Sequence[bytes], offset: int, now_ms: int) -> bytes:
    return encode([(None, value, now_ms) for value in values], base_offset=offset, leader_epoch=0)


def _control(record: tuple[bytes, bytes], offset: int, now_ms: int) -> bytes:
    return encode([(*record, now_ms)], base_offset=offset, leader_epoch=0, is_control=True)
