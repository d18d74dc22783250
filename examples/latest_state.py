"""What is the latest known state of each flight? A change log becomes a table, and the table a change log again.

Usage: python examples/latest_state.py DIR, a directory that does not exist yet.

Each change of a flight is a record with the flight as key. A cancellation is a record without a value: Kafka's
tombstone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import flights
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import max_by

import klog
import klog.spark

COMPACTED = {"cleanup.policy": "compact", "compression.type": "lz4"}


def load(directory: Path, count: int | None) -> tuple[int, int]:
    """Append all changes in the order of their times, and compact the topic. Returns the records before and after."""
    rows = flights.table(count)
    days = rows[["year", "month", "day"]].astype(str).agg("-".join, axis=1)
    rows["key"] = rows.carrier + "-" + rows.flight.astype(str) + "-" + rows.origin + "-" + days
    changes = flights.events(rows)
    changes.loc[changes.event == "scheduled", "time"] -= pd.Timedelta(days=1)  # flights are announced a day before
    cancelled = rows[rows.departed.isna()].reset_index(names="row").rename(columns={"scheduled": "time"})
    changes = pd.concat([changes, cancelled[["row", "time"]]]).sort_values(["time", "row"])
    changes["key"] = changes.row.map(rows.key)
    with klog.open(directory, create=True) as logs:
        logs.create_topic("flight-status", config=COMPACTED)
        log = logs.log("flight-status")
        log.append(pa.table({"key": changes.key, "value": changes.event, "timestamp": changes.time}))
        done = log.compact(roll=True)
    return done.records_before, done.records_after


def latest(directory: Path, topic: str) -> DataFrame:
    """Return the last value of each key in a topic, without the keys whose last record is a tombstone."""
    source = klog.spark.session().read.format("klog").option("subscribe", topic).option("columns", "key,value,offset")
    last = source.load(str(directory)).groupBy("key").agg(max_by("value", "offset").alias("value"))
    return last.where("value IS NOT NULL")


def draw(sizes: dict[str, int], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.8))
    axes = figure.subplots()
    bars = axes.barh(list(sizes), list(sizes.values()), color="#3b6ea5")
    axes.bar_label(bars, [f" {number:,}" for number in sizes.values()])
    axes.set(xticks=[], xlim=(0, 1.2 * max(sizes.values())))
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    flights.save(figure, path)


def main(directory: str | Path, count: int | None = None) -> dict[str, int]:
    """Run the example in a new directory, with the first `count` flights of the year or all of them.

    Returns the number of flights in each state of the table.
    """
    directory = Path(directory)
    log, table = directory / "log", str(directory / "table")
    changes, compacted = load(log, count)
    print(f"{changes:9,} changes")
    print(f"{compacted:9,} after compaction, tombstones included")

    spark = klog.spark.session()
    klog.spark.materialize(spark, log, "flight-status", table, columns="key,value,partition")
    states = spark.read.parquet(table).select("key", "value")
    counts = states.selectExpr("CAST(value AS STRING) AS state").groupBy("state").count().orderBy("state")
    known = {row["state"]: row["count"] for row in counts.collect()}
    for state, number in known.items():
        print(f"{number:9,} {state}")

    klog.spark.write(states, log, topic="restored", **COMPACTED)
    back = latest(log, "restored")
    print(f"{back.count():9,} restored, {back.exceptAll(states).count()} of them changed")
    sizes = {"changes": changes, "after compaction": compacted, "in the table": sum(known.values())}
    draw(sizes, directory / "latest-state.svg")
    return known


if __name__ == "__main__":
    main(sys.argv[1])
