"""Columns about where and how a record is stored: those of its record batch, repeated for each of its rows.

  leaderEpoch int, producerId bigint, producerEpoch smallint, sequence int, isTransactional boolean, isControl boolean,
  codec string, batchBaseOffset bigint, batchPosition bigint, segment string, crcValid boolean

D1  The rows of a record batch are those with offsets below the next batch's: rows are in offset order.
D2  Values are those of Kafka: −1 for no producer, no epoch, no sequence. A sequence continues at 0 after 2³¹ − 1.
D3  crcValid says whether the checksum of the batch is right. It is false only where verifyCrc=false or onCorrupt=emit
    let such a batch pass.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from klog import record
from klog.errors import CorruptBatch
from klog.values import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from klog.record import RecordBatch

TYPES = {
    "leaderEpoch": "int",
    "producerId": "bigint",
    "producerEpoch": "smallint",
    "sequence": "int",
    "isTransactional": "boolean",
    "isControl": "boolean",
    "codec": "string",
    "batchBaseOffset": "bigint",
    "batchPosition": "bigint",
    "segment": "string",
    "crcValid": "boolean",
}
_SEQUENCE_MASK = (1 << 31) - 1


class Origin(NamedTuple):
    """Where record batches are stored, and whether their checksums were checked when they were decoded."""

    path: str
    verified: bool

    @property
    def segment(self) -> str:
        return os.path.basename(self.path)


_OF_BATCH: dict[str, Callable[[RecordBatch, Origin], Any]] = {
    "producerId": lambda batch, _: batch.producer_id,
    "producerEpoch": lambda batch, _: batch.producer_epoch,
    "isTransactional": lambda batch, _: batch.is_transactional,
    "isControl": lambda batch, _: batch.is_control,
    "codec": lambda batch, _: batch.compression,
    "batchBaseOffset": lambda batch, _: batch.base_offset,
    "batchPosition": lambda batch, _: batch.position,
    "segment": lambda _, origin: origin.segment,
    "crcValid": lambda batch, origin: origin.verified or has_valid_checksum(batch),
}


def has_valid_checksum(batch: RecordBatch) -> bool:
    """Is the checksum that a batch carries that of its bytes?"""
    try:
        return next(record.decode(batch.raw, lazy=True), None) is not None
    except CorruptBatch:
        return False


def columns(
    names: Sequence[str], batches: Sequence[RecordBatch], offsets: pa.Array, origin: Origin, schema: pa.Schema
) -> dict[str, pa.Array]:
    """Return the columns `names` for rows with these offsets, with the types of the schema."""
    ends = _row_ends(batches, offsets)
    used = [batch for batch, (start, end) in zip(batches, _pairs(ends), strict=True) if end > start]
    runs = [end for start, end in _pairs(ends) if end > start]
    found = {}
    for name in names:
        kind = schema.field(name).type
        if name == "sequence":
            found[name] = _sequences(used, runs, offsets, kind)
        else:
            found[name] = _repeated([_OF_BATCH[name](batch, origin) for batch in used], runs, kind)
    return found


def _pairs(ends: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip([0, *ends], ends, strict=False))


def _row_ends(batches: Sequence[RecordBatch], offsets: pa.Array) -> list[int]:
    """Return the number of the row after each batch's last one (D1)."""
    rows = len(offsets)
    data = memoryview(offsets.buffers()[1]).cast("q")[offsets.offset : offsets.offset + rows] if rows else ()
    ends: list[int] = []
    for batch in batches:
        ends.append(bisect_left(data, batch.next_offset, ends[-1] if ends else 0, rows))
    if ends:
        ends[-1] = rows
    return ends


def _repeated(values: list[Any], runs: list[int], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not runs:
        return pa.array([], kind)
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(runs, pa.int32()), pa.array(values, kind)))


def _sequences(batches: list[RecordBatch], runs: list[int], offsets: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    first = _repeated([batch.base_sequence for batch in batches], runs, pa.int64())
    base = _repeated([batch.base_offset for batch in batches], runs, pa.int64())
    sequences = pc.bit_wise_and(pc.add(first, pc.subtract(offsets, base)), _SEQUENCE_MASK)
    return pc.if_else(pc.less(first, 0), pa.scalar(-1, pa.int64()), sequences).cast(kind)
