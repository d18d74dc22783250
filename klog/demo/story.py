"""The order of the steps, and the text between them."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import time
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

import klog
from klog.demo import analytics, counting, crash, events, load, status, storm
from klog.demo.demo_directory import FLIGHT_STATUS, FLIGHTS, TELEMETRY, prepare
from klog.demo.failure import DemoFailed
from klog.demo.narrator import Narrator, duration
from klog.manager import LogManager
from klog.progress import Event, Progress
from klog.values import asdict, dataclass


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Every number of the demo. `spark` is None if that step was left out; `spark_missing` then gives the reason."""

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
        """Return plain dicts and lists, for JSON."""
        return asdict(self)


def run(
    dir: str | PathLike[str] = "klog-demo",
    *,
    spark: bool = True,
    progress: Progress | None = None,
    out: TextIO | None = None,
) -> DemoResult:
    """Run the whole demo in `dir`, which is new, empty, or left by an earlier run (and then replaced).

    spark=False leaves out step 6. `progress` is called during long stages; `out` gets the text (None: standard output).
    Raises NotADemoDirectory, DemoDataMissing, AlreadyLocked; DemoFailed for a result that klog must never give.
    """
    started = time.perf_counter()
    directory = Path(dir)
    to = Narrator(sys.stdout if out is None else out)
    prepare(directory)
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
    to.say(f"Done in {duration(seconds)}. No process is left running; remove the directory whenever you like.")
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
        "Every flight that was to leave New York in 2013 has up to three events: scheduled, departed, arrived. They go "
        f"into the topic {FLIGHTS} in the order in which they happened. The key is the aircraft, the value is "
        "the flight as JSON. Kafka's default partitioner picks the partition."
    )
    if progress is not None:
        progress(Event("read table", 0, None, "rows"))
    table = events.load()
    result = load.load_flights(logs, table, progress)
    load.show(result, to)
    return table, result


def _kill(directory: Path, to: Narrator, progress: Progress | None) -> crash.Kill:
    to.chapter(2, "A writer is killed")
    to.say(
        f"Another process opens the directory, appends to the topic {TELEMETRY} and reports each acknowledged "
        "offset. In the middle of an append it gets SIGKILL: no warning, no clean-up. Then the directory is opened "
        "again."
    )
    return crash.kill_writer(directory, progress)


def _reopened(logs: LogManager, kill: crash.Kill, to: Narrator) -> crash.CrashResult:
    result = crash.check(logs, kill)
    crash.show(result, to)
    return result


def _seek(logs: LogManager, loaded: load.LoadResult, to: Narrator) -> storm.StormResult:
    to.chapter(3, "The storm of 8 and 9 February")
    to.say(
        "A blizzard closed the airports of New York. The time index finds those two days, and only their records are "
        "read."
    )
    result = storm.seek(logs)
    storm.show(result, loaded.facts.events, to)
    return result


def _compact(
    logs: LogManager, table: events.FlightEvents, to: Narrator, progress: Progress | None
) -> status.StatusResult:
    to.chapter(4, "The latest state of every flight")
    to.say(
        f"The same events go into the topic {FLIGHT_STATUS}, now with the flight as the key: carrier, number, "
        "origin and day. Compaction keeps the latest record of each key. A cancelled flight gets a tombstone, a record "
        "without a value, which removes its key."
    )
    result = status.compact_states(logs, table, progress)
    status.show(result, to)
    return result


def _count(logs: LogManager, loaded: load.LoadResult, to: Narrator) -> counting.CountResult:
    to.chapter(5, "How many are there?")
    to.say("The header of each batch states how many records it holds, so an exact count need not read the records.")
    result = counting.count(logs)
    counting.show(result, to)
    wanted = loaded.facts.events
    if (result.by_headers, result.by_reading) != (wanted, wanted):
        raise DemoFailed(f"{wanted} events were appended; headers: {result.by_headers}, reading: {result.by_reading}")
    return result


def _ask(
    directory: Path, loaded: load.LoadResult, wanted: bool, to: Narrator, progress: Progress | None
) -> tuple[analytics.SparkResult | None, str | None]:
    to.chapter(6, "A question for Spark")
    missing = analytics.missing() if wanted else "--no-spark"
    if missing is not None:
        to.say(missing if wanted else "Left out, as asked.")
        if wanted:
            to.say("Everything else in the demo works without it; this step is left out.")
        return None, missing
    analytics.introduce(to)
    if progress is not None:
        progress(Event("spark", 0, None, "rows", "starting a session"))
    result = analytics.ask(directory)
    if progress is not None:
        progress(Event("spark", result.rows, result.rows, "rows"))
    if result.rows != loaded.facts.events:
        raise DemoFailed(f"{loaded.facts.events} events were appended, Spark counts {result.rows}")
    analytics.show(result, to)
    return result, None


def _where(directory: Path, to: Narrator) -> tuple[str, ...]:
    to.chapter(7, "Where the files are, and what to try next")
    to.say(
        f"The directory {directory} is a Kafka log.dir: {FLIGHTS}-0 to {FLIGHTS}-{load.PARTITIONS - 1}, "
        f"{FLIGHT_STATUS}-0 and {TELEMETRY}-0. A broker's own tools can read their .log, .index and "
        f".timeindex files, too."
    )
    first = min((directory / f"{FLIGHTS}-0").glob("*.log"))
    where, klog_command = shlex.quote(str(directory)), _command()
    commands = (
        f"{klog_command} ls {where}",
        f"{klog_command} cat --dir {where} --topic {FLIGHTS} --partition 0 --from 2013-02-08T05:00:00Z | head",
        f"{klog_command} dump {shlex.quote(str(first))} | head",
        f"{klog_command} compact {where} --dry-run",
    )
    to.code("\n".join(commands))
    return commands


def _command() -> str:
    """Return how to call `klog` here: just `klog` if the shell finds it, else the one next to this Python."""
    beside = Path(sys.prefix) / "bin" / "klog"
    if shutil.which("klog") or not beside.exists():
        return "klog"
    with contextlib.suppress(ValueError):
        beside = beside.relative_to(Path.cwd())
    return shlex.quote(str(beside))
