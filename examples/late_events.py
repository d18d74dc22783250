"""How many late events does a watermark drop? One stream reads a topic, counts by hour, and writes another topic.

Usage: python examples/late_events.py DIR, a directory that does not exist yet.

The events of a flight are sent when the flight has ended. So its departure is sent hours after later departures of
other flights. For each watermark the script compares the counts of the stream with the exact ones.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import flights
import pandas as pd
import pyarrow as pa
from pyspark.sql.functions import window

import klog
import klog.spark

WEEK = 6_099  # flights, the first of the year
BATCH = 500  # events


@dataclass(frozen=True)
class Run:
    """The hours that a stream has closed: how many events each had, and how many of them were counted."""

    watermark: str
    hours: pd.DataFrame  # index: the hour; columns exact, counted

    @property
    def dropped(self) -> int:
        return int((self.hours.exact - self.hours.counted).sum())


def load(directory: Path, count: int) -> pd.Series:
    """Append the events in the order in which they are sent. Returns their times."""
    rows = flights.table(count)
    ended = rows.arrived.fillna(rows.departed).fillna(rows.scheduled)
    events = flights.events(rows)
    events["sent"] = events.row.map(ended)
    events = events.sort_values(["sent", "row", "time"], ignore_index=True)
    with klog.open(directory, create=True) as logs:
        logs.create_topic("events", config={"retention.ms": -1})
        logs.append("events", pa.table({"value": events.event, "timestamp": events.time}))
    return events.time


def count_by_hour(directory: Path, watermark: str, batch: int) -> str:
    """Count the events of each hour in a stream, until it has read all of them. Returns the topic with the counts."""
    topic = f"counted-{watermark.replace(' ', '-')}"
    spark = klog.spark.session({"spark.sql.shuffle.partitions": 1})  # for a week; 200 by default
    events = (
        spark.readStream.format("klog")
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")
        .option("columns", "timestamp")
        .option("maxOffsetsPerTrigger", batch)
        .load(str(directory / "log"))
    )
    counts = events.withWatermark("timestamp", watermark).groupBy(window("timestamp", "1 hour")).count()
    query = (
        counts.selectExpr("CAST(count AS STRING) AS value", "window.start AS timestamp")
        .writeStream.format("klog")
        .option("topic", topic)
        .option("checkpointLocation", str(directory / f"checkpoint-{topic}"))
        .outputMode("append")  # one record for each hour, once the watermark has passed its end
        .trigger(availableNow=True)
        .start(str(directory / "log"))
    )
    query.awaitTermination()
    return topic


def compare(directory: Path, times: pd.Series, watermark: str, topic: str) -> Run:
    """Compare the stream's counts with those of all events, for the hours that the stream has closed."""
    with klog.open(directory / "log", read_only=True) as logs:
        found = {pd.Timestamp(record.timestamp, unit="ms", tz="UTC"): int(record.value) for record in logs.read(topic)}
    counted = pd.Series(found, name="counted")
    exact = times.dt.floor("h").value_counts().rename("exact")
    return Run(watermark, pd.concat([exact, counted], axis=1, join="inner").sort_index())


def draw(run: Run, path: Path) -> None:
    from matplotlib.dates import DateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2))
    axes = figure.subplots()
    hours = run.hours
    axes.fill_between(hours.index, hours.exact, step="post", color="#d9534f", label="dropped", linewidth=0)
    axes.fill_between(hours.index, hours.counted, step="post", color="#3b6ea5", label="counted", linewidth=0)
    axes.set(ylabel=f"events an hour, watermark {run.watermark}")
    axes.xaxis.set_major_formatter(DateFormatter("%d %b"))
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    flights.save(figure, path)


def main(
    directory: str | Path,
    count: int = WEEK,
    watermarks: tuple[str, ...] = ("1 hour", "2 hours", "4 hours"),
    batch: int = BATCH,
) -> list[Run]:
    """Run the example in a new directory, with the first `count` flights of the year, `batch` events in each batch.

    Returns a Run for each watermark.
    """
    directory = Path(directory)
    times = load(directory / "log", count)
    late = times < times.cummax()
    print(f"{len(times):,} events, {late.mean():.0%} of them later than an event that was sent before")
    print("watermark  hours closed  events in them  dropped")
    runs = []
    for watermark in watermarks:
        topic = count_by_hour(directory, watermark, batch)
        run = compare(directory, times, watermark, topic)
        print(f"{watermark:9}  {len(run.hours):12,}  {run.hours.exact.sum():14,}  {run.dropped:7,}")
        runs.append(run)
    draw(runs[0], directory / "late-events.svg")
    return runs


if __name__ == "__main__":
    main(sys.argv[1])
