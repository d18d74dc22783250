"""A stream whose rows are ready, for bench.spark: the shortest trigger of a source in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

from bench.spark_data import PARTITIONS, READY, TABLE, VALUE_BYTES
from klog.spark.rows import PLAIN, arrow_schema, full_schema

_BATCH = 10_000  # rows


class ReadyStream(DataSource):  # type: ignore[misc]
    """A stream in Python with as many rows and tasks a trigger as klog's, and no work for them: its time is Spark's own
    work for any source in Python."""

    @classmethod
    def name(cls) -> str:
        return READY

    def schema(self) -> Any:
        return full_schema()[: len(PLAIN)]

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        return _ReadyReader(int(self.options["maxOffsetsPerTrigger"]), int(self.options["rows"]), schema)


class _ReadyReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, each: int, total: int, schema: Any) -> None:
        self._each, self._total, self._schema = each, total, schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's names, here and below
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
        return {"rows": min(start["rows"] + self._each, self._total)}

    def getDefaultReadLimit(self) -> ReadMaxRows:  # noqa: N802
        return ReadMaxRows(self._each)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        count = end["rows"] - start["rows"]
        parts = PARTITIONS
        return [InputPartition(count * (part + 1) // parts - count * part // parts) for part in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        count = min(partition.value, _BATCH)
        one: dict[str, Any] = {"key": b"k" * 9, "value": b"v" * VALUE_BYTES, "topic": TABLE}
        whole = pa.RecordBatch.from_arrays(
            [pa.repeat(pa.scalar(one.get(field.name, 0), field.type), count) for field in schema], schema=schema
        )
        for first in range(0, partition.value, _BATCH):
            yield whole.slice(0, partition.value - first)
