"""What a task does: bin of ranges → Arrow batches. Holds nothing between tasks and nothing but ranges (style: B1, S2).

A range was planned against the directory as it was; the task looks again before it reads. Rows are promised by number:
what is gone since (retention, a truncation) is an error, never fewer rows.
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
    """Offsets that a query planned to read are no longer there."""


def read_ranges(ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of `schema` for the ranges, one after the other: offset order inside each topic-partition."""
    for wanted in ranges:
        shaper = RowShaper(schema, wanted.topic, wanted.partition)
        with klog.Log.open(wanted.path, read_only=True) as log:
            check_present(wanted, log)
            # log_end: the upper bound was settled on the driver, and a checkpoint may have moved since.
            reader = log.read(wanted.start_offset, wanted.end_offset, isolation="log_end", scan=True)
            for columns in reader.columns(shaper.fields):
                yield shaper.batch(columns)


def check_present(wanted: Range, log: Log) -> None:
    """DataLoss, with the wanted range, the present one and the reason, unless the log still holds the range."""
    present = f"[{log.log_start_offset}, {log.log_end_offset})"
    planned = f"{wanted.pair}: planned to read [{wanted.start_offset}, {wanted.end_offset})"
    if wanted.start_offset < log.log_start_offset:
        raise DataLoss(
            f"{planned}, but {wanted.path} now holds {present}: retention or a delete removed the beginning since the "
            f"query was planned; run it again, or keep more with retention.ms and retention.bytes"
        )
    if wanted.end_offset > log.log_end_offset:
        raise DataLoss(
            f"{planned}, but {wanted.path} now holds {present}: the log was truncated, or the topic deleted and made "
            f"again, since the query was planned; check the directory with `klog verify`"
        )
