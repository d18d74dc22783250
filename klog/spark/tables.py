"""klog.spark.table: a materialized table and the records that are newer, as one DataFrame.

    Parquet files of the manifest        offsets [start, end) of each partition
    union the log                        offsets [end, readable end), read by the reader of format("klog")

The seam is the manifest's end: one manifest is read, and the log's ranges are fixed, in the same call. With
latest=true the newer records replace rows of their keys, and tombstones remove them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from klog.arguments import text
from klog.spark.bounds import DataLoss
from klog.spark.plan import Bin
from klog.spark.rows import BAD_VALUE
from klog.spark.scan import check_pyspark, option_text, parallelism_of, read_in_tasks
from klog.spark.survey import examined, plan_ranges
from klog.spark.table_manifest import Manifest
from klog.spark.table_options import Paths, Request, check_same, directory_of, read_schema, request
from klog.spark.table_plan import read_state
from klog.spark.table_store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from klog.spark.opening import Logs

_BROADCAST_BYTES = 32 << 20
_KEY = ["partition", "key"]
_GLOB, _ESCAPED = re.compile(r"([\\{}\[\]*?])"), r"\\\1"  # Spark takes these for patterns


def table(spark: SparkSession, path: Paths, topic: str, target: str | os.PathLike[str], **options: object) -> DataFrame:
    """Return a topic as a table: what klog.spark.materialize has written to target, and the records since, once each.

    path, topic: as of materialize. options: those that may differ from call to call (failOnDataLoss, upTo, onCorrupt,
    verifyCrc, parallelism, metrics); the others are the table's.

        flights = klog.spark.table(spark, "data", "flights", "tables/flights")
        flights.where("partition = 1").agg({"offset": "max"}).show()

    The offsets are fixed by this call; with latest=True it reads the newer records, too. The Parquet files stay until
    two more calls of materialize have added records: use the DataFrame before, or make it again.

    Raises FileNotFoundError before the first materialize; DataLoss (a KlogError) if records that are not in the table
    yet are gone from the log; ValueError for a wrong option; UnknownTopicOrPartition.
    """
    check_pyspark()
    given = {name: option_text(value) for name, value in options.items()}
    store = TableStore(directory_of(target))
    while True:
        manifest = store.load()
        if manifest is None:
            raise FileNotFoundError(f"no table at {store.target}: call klog.spark.materialize first")
        try:
            return _frame(spark, path, text("topic", topic), store, manifest, given)
        except DataLoss:
            # What is gone may have been added to the table just now.
            again = store.load()
            if again is not None and again.number == manifest.number:
                raise


def _frame(
    spark: SparkSession, path: Paths, topic: str, store: TableStore, manifest: Manifest, given: dict[str, str]
) -> DataFrame:
    from pyspark.sql.types import StructType

    from klog.spark.source import KlogSource

    call = request(path, topic, store.target, given, parallelism_of(spark), manifest)
    source = KlogSource(call.raw)
    schema = StructType.fromJson(manifest.schema)
    check_same(manifest, call, source.schema().jsonValue(), None)
    planned = tail_of(call, manifest)
    stored = _stored(spark, store, manifest, schema)
    if not planned:
        return stored
    columns = read_schema(schema, manifest.latest, call.options)
    tail = read_in_tasks(spark, source.reader(columns), planned, columns)
    if not manifest.latest:
        return stored.union(tail.select(schema.names))
    size = sum(each.size for ranges in planned for each in ranges)
    return _latest(stored, tail, schema.names, is_small=size < _BROADCAST_BYTES)


def tail_of(call: Request, manifest: Manifest) -> list[Bin]:
    """Plan the reading of what is newer in the log than the manifest."""

    def planned(logs: Logs) -> list[Bin]:
        return plan_ranges(logs, read_state(logs, call.options, manifest).wanted, call.options)

    return examined(call.options, planned)


def _stored(spark: SparkSession, store: TableStore, manifest: Manifest, schema: Any) -> DataFrame:
    paths = [f"file://{_GLOB.sub(_ESCAPED, store.path(file.name))}" for file in manifest.files if file.rows]
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)


def _latest(stored: DataFrame, tail: DataFrame, names: list[str], *, is_small: bool) -> DataFrame:
    """The rows of keys that are not in the tail, and the latest ones of the tail."""
    from pyspark.sql import functions as f

    rows = tail.where("key IS NOT NULL")
    # Read once, now: after a compaction the second branch would not have the keys that the first one has removed.
    newest = rows.groupBy(*_KEY).agg(f.max_by(f.struct(*tail.columns), "offset").alias("row")).localCheckpoint()
    keys = newest.select(*_KEY)
    lives = "value IS NOT NULL" if BAD_VALUE not in tail.columns else f"value IS NOT NULL OR {BAD_VALUE} IS NOT NULL"
    kept = stored.join(f.broadcast(keys) if is_small else keys, _KEY, "left_anti")
    return kept.select(names).union(newest.select("row.*").where(lives).select(names))
