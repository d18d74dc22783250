"""The same queries over one topic by four libraries in one process: klog.polars.scan, Polars, DuckDB, Spark.

    python -m bench.tables [--rows N] [--save]    runs; --save writes the figures and the table of docs/tables.md
    python -m bench.tables --docs                 runs nothing: writes the table from the stored figures

Spark is the peer: local[2] with klog.spark.recommended_conf(); its start is not measured. The results are compared
first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import klog
import klog.polars
from bench import table
from bench.contest import ROUNDS, Contest, Contestant, race
from bench.figures import Figures, figures, save
from klog.spark import session

if TYPE_CHECKING:
    import polars as pl

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "tables.json"
PAGE = ROOT / "docs" / "tables.md"
BEGIN = "<!-- written by python -m bench.tables --docs, from bench/results/tables.json -->"
START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
KEYS = 10_000
SLICE = 100_000
VALUE = bytes(100)

Answer = Callable[[], object]


def fill(path: Path, rows: int) -> None:
    """Write a topic of four partitions: values of 100 bytes, timestamps a millisecond apart."""
    first = round(START.timestamp() * 1000)
    with klog.open(path, create=True) as logs:
        logs.create_topic("t", partitions=4, config={"retention.ms": -1, "segment.bytes": 64 << 20})
        for start in range(0, rows, SLICE):
            part = range(start, min(start + SLICE, rows))
            logs.append("t", [(b"key-%05d" % (n * 7919 % KEYS), VALUE, first + n) for n in part])


def questions(path: Path, rows: int, logs: klog.LogManager, spark: Any) -> Iterator[tuple[str, dict[str, Answer]]]:
    """Yield each query, and for each library a function that runs it; Spark is last."""
    import duckdb
    import polars as pl

    scan = klog.polars.scan(path, "t")
    since = START + timedelta(milliseconds=rows - rows // 100)

    def duck(sql: str) -> tuple[Any, ...]:
        reader = logs.read("t")  # DuckDB finds it by its name
        return duckdb.execute(sql, [since] if "?" in sql else []).fetchone() if reader else ()

    def source(columns: str) -> Any:
        return spark.read.format("klog").option("columns", columns).option("pushdown", "true").load(str(path))

    def polars(query: Callable[[pl.LazyFrame], pl.LazyFrame]) -> dict[str, Answer]:
        return {
            "klog.polars.scan": lambda: query(scan).collect().row(0),
            "to_polars": lambda: query(logs.read("t").to_polars().lazy()).collect().row(0),
        }

    by_key = "SELECT count(*), max(n) FROM (SELECT count(*) AS n FROM {} GROUP BY key)"
    yield (
        "count by key",
        {
            **polars(lambda frame: frame.group_by("key").len().select(pl.len(), n=pl.col("len").max())),
            "DuckDB": lambda: duck(by_key.format("reader")),
            "Spark": lambda: tuple(spark.sql(by_key.format("{t}"), t=source("key")).first()),
        },
    )
    yield (
        "bytes of all values",
        {
            **polars(lambda frame: frame.select(pl.col("value").bin.size().cast(pl.Int64).sum())),
            "DuckDB": lambda: duck("SELECT sum(octet_length(value))::BIGINT FROM reader"),
            "Spark": lambda: tuple(source("value").selectExpr("sum(octet_length(value))").first()),
        },
    )
    yield (
        "the newest hundredth, by time",
        {
            **polars(lambda frame: frame.filter(pl.col("timestamp") >= since).select(pl.len(), pl.col("offset").max())),
            "DuckDB": lambda: duck('SELECT count(*), max("offset") FROM reader WHERE timestamp >= ?'),
            "Spark": lambda: tuple(
                source("offset,timestamp")
                .where(f"timestamp >= TIMESTAMP_MILLIS({round(since.timestamp() * 1000)})")
                .selectExpr("count(*)", "max(offset)")
                .first()
            ),
        },
    )


def contests(path: Path, rows: int, logs: klog.LogManager, spark: Any) -> Iterator[Contest]:
    for question, answers in questions(path, rows, logs, spark):

        def check(answers: dict[str, Answer] = answers) -> None:
            found = {name: answer() for name, answer in answers.items()}
            assert len(set(found.values())) == 1, found

        yield Contest(question, rows, 0, tuple(Contestant(*each) for each in answers.items()), check)


def markdown(run: Figures) -> str:
    machine = run["machine"]
    names = [each["name"] for each in run["results"][0]["contestants"]]
    head = (
        f"{run['results'][0]['records']:,} records of 100 bytes in four partitions, in the page cache; medians of "
        f"{run['rounds']} rounds on {machine['cpu']}, {machine['cores']} cores; in brackets, times as fast as Spark:"
    )
    body = [
        [
            result["contest"],
            *(
                f"{each['median'] * 1000:,.0f} ms" + (f" ({each['ratio']:.1f})" if each["name"] != names[-1] else "")
                for each in result["contestants"]
            ),
        ]
        for result in run["results"]
    ]
    return "\n".join([head, "", *table.rows(["", *names], body)])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--docs", action="store_true")
    asked = parser.parse_args(arguments)
    if not asked.docs:
        made = measured(asked.rows, asked.rounds)
        print(markdown(made))
        if not asked.save:
            return
        save(made, RESULTS)
    PAGE.write_text(table.between(PAGE.read_text(), BEGIN, markdown(json.loads(RESULTS.read_text()))))


def measured(rows: int, rounds: int) -> Figures:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "data"
        fill(path, rows)
        spark = session({"spark.master": "local[2]", "spark.ui.enabled": False, "spark.local.dir": home})
        spark.sparkContext.setLogLevel("OFF")
        try:
            with klog.open(path, read_only=True) as logs:
                results = [race(contest, rounds=rounds) for contest in contests(path, rows, logs, spark)]
        finally:
            spark.stop()
    return figures(results, rounds, {})


if __name__ == "__main__":
    main()
