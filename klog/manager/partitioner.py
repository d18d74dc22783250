"""Kafka's default partitioner over Arrow columns, for callers that stage records: murmur2 of the key.

shares      the rows of each partition, without a copy
targets     the partition of each row
"""

from __future__ import annotations

from typing import Any

from klog.manager._partition import split_rows
from klog.manager._partition import targets as _targets
from klog.record import Rows, RowSource


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
