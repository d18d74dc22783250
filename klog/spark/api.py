"""The classes of Spark's Python data source API. Spark 3.5 has none: there klog.spark.scan uses the same sources and
readers, made of these stand-ins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

__all__ = ["DataSource", "DataSourceReader", "InputPartition"]

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
else:
    try:
        from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    except ImportError:

        class DataSource:
            def __init__(self, options: Mapping[str, str]) -> None:
                self.options = options

        class DataSourceReader:
            pass

        class InputPartition:
            def __init__(self, value: Any) -> None:
                self.value = value
