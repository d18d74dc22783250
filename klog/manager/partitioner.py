"""Kafka's default partitioner: murmur2 of the key.

partition_for  the partition of one key
shares         the rows of each partition, without a copy: for callers that stage records of Arrow columns
targets        the partition of each row
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.arguments import INT_MAX, whole, wrong_type
from klog.manager._partition import murmur2, split_rows
from klog.manager._partition import targets as _targets
from klog.record import Rows, RowSource

if TYPE_CHECKING:
    from typing_extensions import Buffer


def partition_for(key: Buffer, partitions: int) -> int:
    """Return the partition that a key belongs to in a topic of this many partitions, as LogManager.append and Kafka's
    producers choose it. Raises TypeError, also for None: records without a key have no partition of their own.

    Kafka: BuiltInPartitioner.partitionForKey.
    """
    if key is None:
        raise wrong_type("key", key, "bytes", ": null keys are sticky, records without a key stay together in turn")
    try:
        hashed = murmur2(key)
    except (TypeError, BufferError):
        hint = "; use .encode()" if isinstance(key, str) else ""
        raise wrong_type("key", key, "bytes", hint) from None
    return int((hashed & 0x7FFFFFFF) % whole("partitions", partitions, 1, INT_MAX))


def shares(columns: Any, partitions: int, sticky: int) -> list[Rows | None]:
    """Rows per partition of one Arrow array of records, None for a partition without; each fits into an Encoder.
    Records without a key go to partition `sticky`."""
    for rows in RowSource(columns):
        return split_rows(rows, 0, len(rows), partitions, sticky)
    return [None] * partitions


def targets(columns: Any, partitions: int, sticky: int) -> bytearray:
    """The partition of each record of one Arrow array, as int32."""
    for rows in RowSource(columns):
        return _targets(rows, partitions, sticky)
    return bytearray()
