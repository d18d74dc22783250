"""Reads a bin of ranges as Arrow batches, in a task. Keeps nothing between tasks, and holds only ranges (B1, S2).

A range was planned against the directory as it was; the task checks it again before it reads. If planned offsets were
removed since then (by retention, a truncation), it raises an error and never returns fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import klog
from klog.errors import KlogError
from klog.spark.plan import Range
from klog.spark.rows import RowShaper

if TYPE_CHECKING:
    import pyarrow as pa

    from klog import Log


class DataLoss(KlogError):
    """Offsets that a query planned to read no longer exist."""


def read_ranges(ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches of `schema` for the ranges, one after the other, in offset order inside each topic-partition."""
    for wanted in ranges:
        shaper = RowShaper(schema, wanted.topic, wanted.partition)
        with klog.Log.open(wanted.path, read_only=True) as log:
            check_present(wanted, log)
            # log_end: the upper bound was decided on the driver, and a checkpoint may have moved since.
            reader = log.read(wanted.start_offset, wanted.end_offset, isolation="log_end", scan=True)
            for columns in reader.columns(shaper.fields):
                yield shaper.batch(columns)


def check_present(wanted: Range, log: Log) -> None:
    """Raise DataLoss, with the planned range, the present one and the reason, unless the log still has the range."""
    present = f"[{log.log_start_offset}, {log.log_end_offset})"
    planned = f"{wanted.pair}: planned to read [{wanted.start_offset}, {wanted.end_offset})"
    if wanted.start_offset < log.log_start_offset:
        raise DataLoss(
            f"{planned}, but {wanted.path} now holds {present}: retention or a delete has removed the beginning since "
            f"the query was planned; run it again, or keep more with retention.ms and retention.bytes"
        )
    if wanted.end_offset > log.log_end_offset:
        raise DataLoss(
            f"{planned}, but {wanted.path} now holds {present}: the log was truncated, or the topic deleted and "
            f"created again, since the query was planned; check the directory with `klog verify`"
        )
