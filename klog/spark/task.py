"""What a task of a batch query or of a stream gets of the reader that has planned it.

K1  Spark pickles a reader into each task, and a new worker imports the modules of all classes in the pickle. So every
    reader of records is pickled as a TaskReader. This module imports what reading a log needs, and nothing that only
    planning needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from klog.spark.api import DataSourceReader, InputPartition
from klog.spark.pushdown import Pushed
from klog.spark.read import read_ranges
from klog.spark.reading import Reading
from klog.spark.rows import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class TaskReader(DataSourceReader):  # type: ignore[misc]
    """Reads planned ranges. The value of an InputPartition is a tuple of `plan.Range`, or None for nothing.

    A subclass, too, is a TaskReader once it was pickled.
    """

    def __init__(self, schema: StructType, reading: Reading, pushed: Pushed | None = None) -> None:
        self._schema = schema
        self._reading = reading
        self._pushed = pushed or Pushed()

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return TaskReader, (self._schema, self._reading, self._pushed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_ranges(partition.value or (), arrow_schema(self._schema), self._reading, self._pushed)
