"""Finds the parts of a log that a filter can match, by Arrow's simplification of filters.

P1  A part has an expression that is true for each of its records: bounds of offset, partition, topic and timestamp.
    Arrow simplifies the filter with it; a part is left out if the filter becomes false. A filter that Arrow cannot
    simplify excludes nothing.
P2  A part is read or left out as a whole: the whole filter is applied to the records that are read.
P3  Timestamps are those of batch headers, whose checksums are not verified. A header has the greatest timestamp of its
    records. With LogAppendTime that is the timestamp of all of them; with CreateTime the others are not known. Headers
    of magic 0 and 1 are not relied on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as pc
import pyarrow.dataset
from pyarrow.fs import LocalFileSystem

from klog.log import Log, LogReader
from klog.record import TimestampType

_BLOCK_BYTES = 1 << 20  # batches that are read or left out together
_HEADERS = ("position", "base_offset", "last_offset", "max_timestamp", "timestamp_type", "magic")
_FORMAT = pyarrow.dataset.IpcFileFormat()
Range = tuple[int, int]


def matching(filter: Any, schema: pyarrow.Schema, parts: Sequence[Any]) -> list[int]:
    """Return the numbers of the parts, given as expressions (P1), whose records may match."""
    files = LocalFileSystem()
    fragments = [_FORMAT.make_fragment(str(n), files, partition_expression=part) for n, part in enumerate(parts)]
    dataset = pyarrow.dataset.FileSystemDataset(fragments, schema, _FORMAT, files)
    return sorted(int(fragment.path) for fragment in dataset.get_fragments(filter))


def of_partition(topic: str, partition: int) -> Any:
    """Return the expression that is true for the records of a partition."""
    return (pc.field("topic") == topic) & (pc.field("partition") == pyarrow.scalar(partition, pyarrow.int32()))


def ranges(filter: Any, schema: pyarrow.Schema, log: Log, reader: LogReader, known: Any) -> Iterator[Range]:
    """Yield the ranges of offsets of a partition that may match, in order: whole blocks of batches. Adjacent ones are
    one range.

    known: the expression of of_partition().
    """
    ((_, start, stop),) = reader.ranges
    segments = [
        (max(start, segment.base_offset), min(stop, segment.next_offset))
        for segment in log.segments
        if segment.base_offset < stop and segment.next_offset > start
    ]
    found: Range | None = None
    for number in matching(filter, schema, [known & _of_offsets(*each) for each in segments]):
        for low, high in _blocks(filter, schema, reader.between(*segments[number]), known):
            if found is not None and found[1] == low:
                found = found[0], high
                continue
            if found is not None:
                yield found
            found = low, high
    if found is not None:
        yield found


def _blocks(filter: Any, schema: pyarrow.Schema, reader: LogReader, known: Any) -> Iterator[Range]:
    """Yield the ranges of the blocks of one segment that may match."""
    for headers in reader.batch_headers(_HEADERS):
        batch = pyarrow.record_batch(headers)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        table = pyarrow.table(
            {
                **columns,
                "block": pc.divide(columns["position"], _BLOCK_BYTES),
                "latest": columns["max_timestamp"].cast(pyarrow.int64()),
            }
        )
        blocks = table.group_by("block", use_threads=False).aggregate(
            [
                ("base_offset", "min"),
                ("last_offset", "max"),
                ("latest", "max"),
                ("latest", "min"),
                ("timestamp_type", "min"),
                ("magic", "min"),
            ]
        )
        rows = blocks.sort_by("base_offset_min").to_pylist()
        parts = [known & _of_block(row) for row in rows]
        for number in matching(filter, schema, parts):
            yield rows[number]["base_offset_min"], rows[number]["last_offset_max"] + 1


def _of_offsets(low: int, high: int) -> Any:
    return (pc.field("offset") >= low) & (pc.field("offset") < high)


def _of_block(row: dict[str, Any]) -> Any:
    found = _of_offsets(row["base_offset_min"], row["last_offset_max"] + 1)
    if row["magic_min"] < 2 or row["latest_max"] is None:
        return found
    timestamp = pc.field("timestamp")
    found &= (timestamp <= _moment(row["latest_max"])) | timestamp.is_null()
    if row["timestamp_type_min"] == int(TimestampType.LOG_APPEND_TIME):
        found &= timestamp >= _moment(row["latest_min"])
    return found


def _moment(ms: int) -> pyarrow.Scalar:
    return pyarrow.scalar(ms, pyarrow.timestamp("ms", "UTC"))
