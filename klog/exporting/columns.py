"""The records of partitions as Arrow batches with the columns of an export.

offset, timestamp, timestamp_type, key, value, headers      of readers, key and value decoded if there are formats
topic, partition                                            added here
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klog.log import LogReader
from klog.log.read.tables import errors_of
from klog.record import FIELDS

if TYPE_CHECKING:
    import pyarrow

COLUMNS = (*FIELDS, "topic", "partition")


class Columns:
    """Makes batches of some columns, in this order, and decodes no others. readers: {partition: its reader}, one or
    more."""

    def __init__(self, topic: str, readers: dict[int, LogReader], names: Sequence[str]) -> None:
        import pyarrow

        self._topic, self._readers, self._names = topic, readers, names
        # If no column is decoded, offsets give the number of rows.
        self._fields = [name for name in names if name in FIELDS] or ["offset"]
        stream = next(iter(readers.values())).arrow_stream(self._fields)
        types = {field.name: field for field in pyarrow.schema(stream)}
        types["topic"] = pyarrow.field("topic", pyarrow.string())
        types["partition"] = pyarrow.field("partition", pyarrow.int32())
        self.schema = pyarrow.schema([types[name] for name in names])

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield the batches of all partitions. Raises the errors of the readers."""
        import pyarrow

        for partition, reader in self._readers.items():
            stream = reader.arrow_stream(self._fields)
            with errors_of(stream):
                for batch in pyarrow.RecordBatchReader.from_stream(stream):
                    found = dict(zip(batch.schema.names, batch.columns, strict=True))
                    found["topic"] = pyarrow.repeat(pyarrow.scalar(self._topic, pyarrow.string()), len(batch))
                    found["partition"] = pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), len(batch))
                    arrays = [found[name] for name in self._names]
                    yield pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)
