"""At which hour do flights leave late? Batch SQL over a topic.

Usage: python examples/flights_by_delay.py DIR, a directory that does not exist yet.
"""

from __future__ import annotations

import sys
from pathlib import Path

import flights
import pyarrow as pa
from pyspark.sql import Row

import klog
import klog.spark

QUESTION = """
    SELECT flight.hour,
           count(*) AS flights,
           avg(flight.dep_delay) AS minutes,
           avg(CAST(flight.dep_delay > 60 AS INT)) AS over_an_hour
    FROM (SELECT from_json(CAST(value AS STRING), 'hour INT, dep_delay DOUBLE') AS flight FROM flights)
    WHERE flight.dep_delay IS NOT NULL
    GROUP BY flight.hour
    ORDER BY flight.hour
"""


def load(directory: Path, count: int | None) -> None:
    """Append each flight as JSON. The key is its aircraft, the timestamp is the planned departure."""
    rows = flights.table(count)
    values = rows.drop(columns=["scheduled", "departed", "arrived"]).to_json(orient="records", lines=True)
    with klog.open(directory, create=True) as logs:
        logs.create_topic("flights", partitions=4, config={"retention.ms": -1, "compression.type": "lz4"})
        records = {"key": rows.tailnum, "value": values.splitlines(), "timestamp": rows.scheduled}
        logs.append("flights", pa.table(records))


def ask(directory: Path) -> list[Row]:
    """Run the query in Spark and return its rows. Only the column that the query needs is decoded."""
    spark = klog.spark.session()
    topic = spark.read.format("klog").option("subscribe", "flights").option("columns", "value")
    topic.load(str(directory)).createOrReplaceTempView("flights")
    return spark.sql(QUESTION).collect()


def draw(answer: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2))
    axes = figure.subplots()
    hours = [row.hour for row in answer]
    axes.bar(hours, [row.minutes for row in answer], color="#3b6ea5")
    axes.set(xlabel="hour of the planned departure", ylabel="mean delay, minutes", xticks=hours)
    flights.save(figure, path)


def main(directory: str | Path, count: int | None = None) -> list[Row]:
    """Run the example in a new directory, with the first `count` flights of the year or all of them.

    Returns a row for each hour of the day.
    """
    directory = Path(directory)
    load(directory / "log", count)
    answer = ask(directory / "log")
    print("hour  flights  minutes late  over an hour late")
    for row in answer:
        print(f"{row.hour:4}  {row.flights:7,}  {row.minutes:12.1f}  {row.over_an_hour:17.1%}")
    draw(answer, directory / "flights-by-delay.svg")
    return answer


if __name__ == "__main__":
    main(sys.argv[1])
