"""The order of the steps, and the words between them."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

import klog
from klog.demo import analytics, counting, crash, events, load, place, status, storm
from klog.demo.failure import DemoFailed
from klog.demo.narrator import Narrator, duration
from klog.manager import LogManager
from klog.progress import Event, Progress


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Every number of the story. `spark` is None where that step was left out; `spark_missing` then says why."""

    directory: str
    load: load.LoadResult
    crash: crash.CrashResult
    storm: storm.StormResult
    status: status.StatusResult
    count: counting.CountResult
    spark: analytics.SparkResult | None
    spark_missing: str | None
    next_commands: tuple[str, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, for JSON."""
        return asdict(self)


def run(
    dir: str | PathLike[str] = "klog-demo",
    *,
    spark: bool = True,
    progress: Progress | None = None,
    out: TextIO | None = None,
) -> DemoResult:
    """Tell the whole story in `dir`, which is new, empty, or left by an earlier run (and then replaced).

    spark=False leaves step 6 out. `progress` hears of the long stages; `out` takes the text (None: standard output).
    Raises NotADemoDirectory, DemoDataMissing, AlreadyLocked, and DemoFailed should a promise be broken.
    """
    started = time.perf_counter()
    directory = Path(dir)
    to = Narrator(sys.stdout if out is None else out)
    place.prepare(directory)
    to.title("klog demo: a year of flights in a Kafka log directory")

    with klog.open(directory, create=True) as logs:
        table, loaded = _load(logs, to, progress)
        crash.create_topic(logs)
    kill = _kill(directory, to, progress)
    with klog.open(directory) as logs:
        crashed = _reopened(logs, kill, to)
        sought = _seek(logs, loaded, to)
        compacted = _compact(logs, table, to, progress)
        del table
        counted = _count(logs, loaded, to)
    answered, missing = _ask(directory, loaded, spark, to, progress)
    commands = _where(directory, to)
    seconds = time.perf_counter() - started
    to.gap()
    to.say(f"Done in {duration(seconds)}. No process stays behind; remove the directory when you like.")
    return DemoResult(
        directory=str(directory),
        load=loaded,
        crash=crashed,
        storm=sought,
        status=compacted,
        count=counted,
        spark=answered,
        spark_missing=missing,
        next_commands=commands,
        seconds=seconds,
    )


def _load(logs: LogManager, to: Narrator, progress: Progress | None) -> tuple[events.FlightEvents, load.LoadResult]:
    to.chapter(1, "A year becomes a log")
    to.say(
        "Every flight that was to leave New York in 2013 is up to three events: scheduled, departed, arrived. They go "
        f"into the topic {place.FLIGHTS} in the order in which they happened: the aircraft is the key, the flight as "
        "JSON is the value. Kafka's own partitioner spreads them."
    )
    if progress is not None:
        progress(Event("read table", 0, None, "rows"))
    table = events.load()
    result = load.load_flights(logs, table, progress)
    load.tell(result, to)
    return table, result


def _kill(directory: Path, to: Narrator, progress: Progress | None) -> crash.Kill:
    to.chapter(2, "A writer dies")
    to.say(
        f"Another process opens the directory and appends to the topic {place.TELEMETRY}, telling us each offset that "
        "was acknowledged. In the middle of an append it gets SIGKILL: no warning, no clean-up. Then we open the "
        "directory again."
    )
    return crash.kill_writer(directory, progress)


def _reopened(logs: LogManager, kill: crash.Kill, to: Narrator) -> crash.CrashResult:
    result = crash.check(logs, kill)
    crash.tell(result, to)
    return result


def _seek(logs: LogManager, loaded: load.LoadResult, to: Narrator) -> storm.StormResult:
    to.chapter(3, "The storm of 8 and 9 February")
    to.say(
        "A blizzard closed the airports of New York. The time index leads straight to those two days, and nothing but "
        "them is read."
    )
    result = storm.seek(logs)
    storm.tell(result, loaded.facts.events, to)
    return result


def _compact(
    logs: LogManager, table: events.FlightEvents, to: Narrator, progress: Progress | None
) -> status.StatusResult:
    to.chapter(4, "The latest state of every flight")
    to.say(
        f"The same events go into the topic {place.FLIGHT_STATUS}, now with the flight as the key: carrier, number, "
        "origin and day. Compaction keeps of each key the latest record. A cancelled flight gets a tombstone: a key "
        "without a value, which takes it out for good."
    )
    result = status.compact_states(logs, table, progress)
    status.tell(result, to)
    return result


def _count(logs: LogManager, loaded: load.LoadResult, to: Narrator) -> counting.CountResult:
    to.chapter(5, "How many are there?")
    to.say("Each batch of records says in its header how many it holds, so an exact count need not read records.")
    result = counting.count(logs)
    counting.tell(result, to)
    wanted = loaded.facts.events
    if (result.by_headers, result.by_reading) != (wanted, wanted):
        raise DemoFailed(f"{wanted} events went in; headers say {result.by_headers}, reading {result.by_reading}")
    return result


def _ask(
    directory: Path, loaded: load.LoadResult, wanted: bool, to: Narrator, progress: Progress | None
) -> tuple[analytics.SparkResult | None, str | None]:
    to.chapter(6, "A question for Spark")
    missing = analytics.missing() if wanted else "--no-spark"
    if missing is not None:
        to.say(missing if wanted else "Left out, as asked.")
        if wanted:
            to.say("Everything else of the demo works without it; this step is left out.")
        return None, missing
    analytics.introduce(to)
    if progress is not None:
        progress(Event("spark", 0, None, "rows", "starting a session"))
    result = analytics.ask(directory)
    if progress is not None:
        progress(Event("spark", result.rows, result.rows, "rows"))
    if result.rows != loaded.facts.events:
        raise DemoFailed(f"{loaded.facts.events} events went in, Spark counts {result.rows}")
    analytics.tell(result, to)
    return result, None


def _where(directory: Path, to: Narrator) -> tuple[str, ...]:
    to.chapter(7, "Where it lies, and what to try next")
    to.say(
        f"The directory {directory} is a Kafka log.dir: {place.FLIGHTS}-0 to {place.FLIGHTS}-{load.PARTITIONS - 1}, "
        f"{place.FLIGHT_STATUS}-0 and {place.TELEMETRY}-0, each with .log, .index and .timeindex files that a broker's "
        f"own tools read too."
    )
    first = min((directory / f"{place.FLIGHTS}-0").glob("*.log"))
    where, klog_command = shlex.quote(str(directory)), _command()
    commands = (
        f"{klog_command} ls {where}",
        f"{klog_command} cat --dir {where} --topic {place.FLIGHTS} --partition 0 --from 2013-02-08T05:00:00Z | head",
        f"{klog_command} dump {shlex.quote(str(first))} | head",
        f"{klog_command} compact {where} --dry-run",
    )
    to.code("\n".join(commands))
    return commands


def _command() -> str:
    """How to type `klog` here: bare where the shell finds it, else the one beside this Python."""
    beside = Path(sys.prefix) / "bin" / "klog"
    if shutil.which("klog") or not beside.exists():
        return "klog"
    with contextlib.suppress(ValueError):
        beside = beside.relative_to(Path.cwd())
    return shlex.quote(str(beside))
