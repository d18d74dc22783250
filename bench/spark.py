"""klog's Spark source and sink beside Spark's Kafka connector and Parquet: python -m bench.spark [DIR] [--rows N]

Everything runs in one session, local[2] with klog.spark.recommended_conf(). A broker serves the same files that klog
reads. In each round all contestants run one after the other, and each result is checked. The time of the same query on
an empty topic is measured for each contestant and subtracted. Processor time is that of the processes: the JVM with
Spark, its Python workers, and the broker.

    rows ready    a source that yields one decoded batch again and again: the cost of the transfer from Python, and so
                  the speed that a source in Python cannot exceed

Use the ratios: absolute figures belong to the machine. --docs runs nothing: it writes the tables of
bench/results/spark.json into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench import spark_contestants, spark_data, table
from bench.contest import Unavailable
from bench.figures import machine, save
from bench.spark_data import EMPTY, FULL, READY, Data, Sizes
from bench.spark_goals import CONNECTOR, SOURCE, STREAM, Verdict, verdicts
from klog.spark import session
from tools import kafka_jars, snappy_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "spark.json"
PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- written by python -m bench.spark --docs, from bench/results/spark.json -->"
_TICK = os.sysconf("SC_CLK_TCK")
_TRIGGERS = (1_000, 200_000)


@dataclass(frozen=True)
class Spent:
    """Elapsed seconds (wall), and processor seconds of the JVM, of Python and of the broker."""

    wall: float
    jvm: float
    python: float
    broker: float

    def __sub__(self, other: Spent) -> Spent:
        return Spent(*(mine - theirs for mine, theirs in zip(_parts(self), _parts(other), strict=True)))

    @property
    def processor(self) -> float:
        return self.jvm + self.python + self.broker


def _parts(spent: Spent) -> tuple[float, float, float, float]:
    return spent.wall, spent.jvm, spent.python, spent.broker


class Meter:
    """Measures the time that the processes of this benchmark use."""

    def __init__(self, spark: SparkSession, broker: int | None) -> None:
        self._spark, self._jvm, self._broker = spark, spark.sparkContext._gateway.proc.pid, broker

    def spent(self, work: Callable[[], object]) -> Spent:
        """Return the time of a call. The JVM collects its garbage before."""
        self._spark.sparkContext._jvm.System.gc()
        before = self._now()
        work()
        return self._now() - before

    def _now(self) -> Spent:
        jvm, ended = _seconds(self._jvm)
        python = ended + sum(sum(_seconds(pid)) for pid in _descendants(self._jvm))
        return Spent(perf_counter(), jvm, python, _seconds(self._broker)[0] if self._broker else 0.0)


def _seconds(pid: int) -> tuple[float, float]:
    """Return the processor seconds of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    return own / _TICK, ended / _TICK


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


# ---- rows of the table -----------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One contestant of one test: the time of each round."""

    test: str
    contestant: str
    rows: int
    spent: list[Spent] = field(default_factory=list)
    empty: list[Spent] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        fixed = _median(self.empty) if self.empty else Spent(0, 0, 0, 0)
        net = [each - fixed for each in self.spent]
        middle = _median(net)
        return {
            "test": self.test,
            "contestant": self.contestant,
            "rows": self.rows,
            "rounds": len(self.spent),
            "fixed": asdict(fixed),
            "seconds": asdict(middle),
            "processor": statistics.median(each.processor for each in net),
            "spread": [min(each.wall for each in net), max(each.wall for each in net)],
        }


def _median(spent: list[Spent]) -> Spent:
    return Spent(*(statistics.median(values) for values in zip(*map(_parts, spent), strict=True)))


def reads(meter: Meter, spark: SparkSession, data: Data, rounds: int) -> Iterator[list[Row]]:
    spark_contestants.materialize(spark, data)
    for query in spark_contestants.QUERIES:
        found = spark_contestants.contestants(spark, data, query)
        made = [Row(query.name, contestant.name, data.sizes.full) for contestant in found]
        for contestant in found:  # warm-up
            contestant.run(query, FULL, data.sizes.full)
        for _ in range(rounds):
            for contestant, row in zip(found, made, strict=True):
                row.empty.append(meter.spent(lambda: contestant.run(query, EMPTY, 0)))  # noqa: B023  called at once
                row.spent.append(meter.spent(lambda: contestant.run(query, FULL, data.sizes.full)))  # noqa: B023
        yield made


def writes(meter: Meter, spark: SparkSession, data: Data, rounds: int) -> Iterator[list[Row]]:
    rows = data.sizes.full
    frame = spark.read.parquet(data.parquet(FULL)).select("key", "value")
    nothing = spark.read.parquet(data.parquet(EMPTY)).select("key", "value")
    found = spark_contestants.sinks(spark, data)
    made = [Row("write keys and values", sink.name, rows) for sink in found]
    for number in range(rounds + 1):
        for sink, row in zip(found, made, strict=True):
            sink.prepare()
            empty = meter.spent(lambda: sink.write(nothing))  # noqa: B023
            sink.prepare()
            spent = meter.spent(lambda: sink.write(frame))  # noqa: B023
            assert sink.rows() == rows, f"{sink.name}: {sink.rows()} rows, not {rows}"
            if number:  # the first is a warm-up
                row.empty.append(empty)
                row.spent.append(spent)
    yield made


def streams(spark: SparkSession, data: Data, folder: Path, rounds: int) -> Iterator[list[Row]]:
    from bench.spark_ready import ReadyStream  # imported here: it needs PySpark 4.2, and --docs does not

    spark.dataSource.register(ReadyStream)
    names = {SOURCE: "klog", STREAM: READY} | ({CONNECTOR: "kafka"} if data.broker else {})
    for each in _TRIGGERS:
        if each * 4 > data.sizes.full:
            continue
        made = [Row(f"trigger of {each:,} rows", name, each) for name in names]
        inner = [Row("– without checkpoint files", name, each) for name in names]
        for _ in range(max(rounds // 2, 1)):
            for row, part, source in zip(made, inner, names.values(), strict=True):
                for whole, rest in spark_contestants.trigger_seconds(spark, data, source, each, folder / "checkpoint"):
                    row.spent.append(Spent(whole, 0, 0, 0))
                    part.spent.append(Spent(rest, 0, 0, 0))
        yield made + inner


# ---- the table -------------------------------------------------------------------------------------------------------

_HEAD = (
    "test",
    "contestant",
    "M rows/s",
    "µs/row",
    "JVM",
    "Python",
    "broker",
    "fixed ms",
    "× connector",
    "× Parquet",
    "goal",
    "",
)
_WIDTHS = (26, 26, 9, 8, 7, 7, 7, 9, 12, 11, 60, 6)


def lines(run: dict[str, Any]) -> list[list[str]]:
    """Return the cells of the table: speed by elapsed time and its ratios; µs of processor time a row; goals."""
    walls = {(row["test"], row["rows"], row["contestant"]): row["seconds"]["wall"] for row in run["rows"]}
    by_contestant: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts(run["rows"]):
        by_contestant.setdefault((verdict.goal.test, verdict.goal.contestant), []).append(verdict)
    made = []
    for row in run["rows"]:
        goals = by_contestant.get((row["test"], row["contestant"]), [])
        wall, rows = row["seconds"]["wall"], row["rows"]
        peers = [walls.get((row["test"], row["rows"], peer)) for peer in ("Kafka connector", "Parquet")]
        ratios = [f"{peer / wall:.2f}" if peer and peer != wall else "" for peer in peers]
        spent = [row["processor"], *(row["seconds"][part] for part in ("jvm", "python", "broker"))]
        trigger = row["test"].startswith(("trigger", "–"))
        per_row = [""] * 4 if trigger else [f"{seconds / rows * 1e6:.3f}" for seconds in spent]
        rate = f"{wall * 1e3:.0f} ms" if trigger else f"{rows / wall / 1e6:.2f}"
        fixed = "" if trigger else f"{row['fixed']['wall'] * 1e3:.0f}"
        goal = "; ".join(str(verdict.goal) for verdict in goals)
        met = ("met" if all(verdict.met for verdict in goals) else "missed") if goals else ""
        made.append([row["test"], row["contestant"], rate, *per_row, fixed, *ratios, goal, met])
    return made


def text(cells: list[str] | tuple[str, ...]) -> str:
    return table.aligned(cells, _WIDTHS, right=range(2, len(_WIDTHS) - 2))


def markdown(run: dict[str, Any]) -> str:
    out = [
        f"{table.made_on(run['machine'])}, PySpark {run['pyspark']}: {run['full']:,} rows, medians of "
        f"{run['rounds']} rounds (of a trigger: of all in {max(run['rounds'] // 2, 1)} queries), minus the time of the "
        f"same query on an empty topic (fixed). µs/row are processor "
        f"time, by process. The load average was {run['load_average']:.1f}; the run itself causes about 2.",
        "",
        *table.rows(_HEAD, lines(run), left=2),
        "",
        "Goals missed in this run:",
        "",
        *([f"- {verdict}" for verdict in verdicts(run["rows"]) if not verdict.met] or ["- none"]),
    ]
    if run["needs"]:
        out += ["", f"Without the connector, which needs {run['needs']}."]
    return "\n".join(out)


def into(page: str, run: dict[str, Any]) -> str:
    """Return the page with the table of this run between its markers."""
    return table.between(page, BEGIN, markdown(run))


# ---- the run ---------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description="Spark over klog, Kafka and Parquet")
    parser.add_argument("directory", nargs="?", type=Path, help="on the disk to use; by default a temporary one")
    parser.add_argument("--rows", type=int, default=4_000_000, help="of the topic that is scanned")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("reads", "writes", "streams"), help="leave out the others")
    parser.add_argument("--without", choices=("connector",), help="no broker, no jars")
    parser.add_argument("--tiny", action="store_true", help="a few records: does it still work?")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--docs", action="store_true", help="run nothing; write the saved table into the document")
    asked = parser.parse_args(arguments)
    if asked.docs:
        PAGE.write_text(into(PAGE.read_text(), json.loads(RESULTS.read_text())))
        return 0
    sizes, rounds = Sizes(asked.rows, 40_000), asked.rounds
    if asked.tiny:
        sizes, rounds = Sizes(12_000, 12_000), 1
    with tempfile.TemporaryDirectory(prefix="klog-bench-", dir=asked.directory) as folder:
        home, needs = Path(folder), ""
        try:
            run(home, sizes, rounds, asked, connector=asked.without is None)
        except Unavailable as missing:
            needs = str(missing)
            print(f"without the connector, which needs {needs}")
            run(home, sizes, rounds, asked, connector=False, needs=needs)
    return 0


def run(home: Path, sizes: Sizes, rounds: int, asked: argparse.Namespace, *, connector: bool, needs: str = "") -> None:
    """Run all selected tests. The figures are saved after each, since a later one may fail."""
    import pyspark

    made: dict[str, Any] = {
        "machine": machine(), "pyspark": pyspark.__version__, **asdict(sizes), "rounds": rounds, "needs": needs,
        "load_average": 0.0, "rows": [],
    }  # fmt: skip
    loads: list[float] = []
    with spark_data.made(home, sizes, connector=connector) as data, _session(home, connector=connector) as spark:
        meter = Meter(spark, data.broker.pid if data.broker else None)
        tests = {
            "reads": lambda: reads(meter, spark, data, rounds),
            "writes": lambda: writes(meter, spark, data, rounds),
            "streams": lambda: streams(spark, data, home, rounds),
        }
        print(text(_HEAD))
        for name, test in tests.items():
            for group in test() if asked.only in (None, name) else ():
                made["rows"] += [row.figures() for row in group]
                loads.append(os.getloadavg()[1])
                made["load_average"] = statistics.mean(loads)
                save(made, asked.save)
                for cells in lines(made)[-len(group) :]:
                    print(text(cells), flush=True)


@contextmanager
def _session(home: Path, *, connector: bool) -> Iterator[SparkSession]:
    conf: dict[str, object] = {
        "spark.master": "local[2]",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": str(home / "spark"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }
    if connector:
        try:
            conf["spark.jars"] = ",".join(map(str, kafka_jars.spark_connector()))
        except kafka_jars.Unavailable as missing:
            raise Unavailable(str(missing)) from missing
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    snappy_java.use_glibc()
    spark = session(conf)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
