"""The latency of the slowest durable appends: python -m bench.tails [DIR] [--tiny] [--rate R] [--save FILE] [--docs]

The load is an open loop: arrival i is due at start + i / rate, whatever happened to earlier ones, and its latency is
measured from then until its record is on disk. So a stall of 100 ms at 100 a second makes ten slow appends, not one.
An arrival that is due while all threads of a contestant are busy waits for a thread.

    alone       a new store and no other work; then ten times the rate, for contestants that share syncs between threads
    cleaning    during a cleaning of another store, and of the same store; each cleaning gets a new copy of 1 GiB of
                mostly old records, and the load ends when the cleaning ends
    8 GiB       a store that has just been filled with 8 GiB, which fill the page cache; klog begins a new segment,
                and RocksDB flushes a memtable, each MiB

Contestants alternate within each round with the lower bound, pwrite and fdatasync of the same bytes: latency beyond
that of the lower bound comes from the contestant. After each run the store is reopened and every record looked up.

A full run takes about 40 minutes, 30 GB of disk at DIR, and a quiet machine. --docs runs nothing: it writes the table
of bench/results/tails.json into docs/performance.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import table
from bench.figures import machine, save
from bench.tail_stores import VALUE_BYTES, Klog, Lmdb, PlainFile, Rocks, Sqlite, Store, copy_store, remove
from klog.cli.output import progress_bar
from klog.progress import Event, Progress

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "tails.json"
PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- written by python -m bench.tails --docs, from bench/results/tails.json -->"
_RATE, _SECONDS, _ROUNDS = 100.0, 60.0, 3
_THREADS = 16
_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
_HEAD = ("load", "store", *(f"{name} ms" for name in _PERCENTILES), "samples", "a second")
_WIDTHS = (30, 24, 9, 9, 9, 9, 9, 9)


@dataclass(frozen=True)
class Contestant:
    store: type[Store]
    threads: int = 1

    @property
    def name(self) -> str:
        return self.store.name if self.threads == 1 else f"{self.store.name}, {self.threads} threads"


CONTESTANTS = tuple(
    itertools.starmap(
        Contestant, [(PlainFile, 1), (Klog, 1), (Klog, _THREADS), (Sqlite, 1), (Lmdb, 1), (Rocks, 1), (Rocks, _THREADS)]
    )
)
NO_CLEANER = "sqlite3 and LMDB have no cleaning in the background: theirs is part of a commit, in every row"


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run; the defaults are those of a full run. Stored with the rows."""

    rate: float = _RATE
    seconds: float = _SECONDS  # of each row
    rounds: int = _ROUNDS
    dirty_bytes: int = 1 << 30
    filled_bytes: int = 8 << 30
    piece_bytes: int = 1 << 20


@dataclass
class Row:
    """The latencies of one contestant in one scenario, all rounds together."""

    scenario: str
    contestant: str
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def figures(self) -> dict[str, Any]:
        ordered = sorted(self.latencies)
        percentiles = {name: percentile(ordered, part) * 1e3 for name, part in _PERCENTILES.items()}
        rate = len(ordered) / self.seconds
        return {
            "scenario": self.scenario,
            "contestant": self.contestant,
            **percentiles,
            "samples": len(ordered),
            "rate": rate,
        }


def percentile(ordered: list[float], part: float) -> float:
    """Return the smallest value that at least this part of the values do not exceed."""
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)]


# ---- load ------------------------------------------------------------------------------------------------------------


def load(
    put: Callable[[int], object], threads: int, rate: float, seconds: float, running: Callable[[], bool] = lambda: True
) -> tuple[dict[int, float], float]:
    """Call put() for arrivals 0, 1, ... at `rate` a second, for `seconds` or while running() is true; at least one.
    Returns the latency of each, in seconds from when it was due, and the seconds of the whole load."""
    arrivals, count, start = itertools.count(), max(round(rate * seconds), 1), time.perf_counter()

    def work() -> dict[int, float]:
        taken: dict[int, float] = {}
        while (number := next(arrivals)) < count and (number == 0 or running()):
            due = start + number / rate
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            put(number)
            taken[number] = time.perf_counter() - due
        return taken

    with ThreadPoolExecutor(threads) as pool:
        parts = [pool.submit(work) for _ in range(threads)]
        latencies = {number: latency for part in parts for number, latency in part.result().items()}
    return latencies, time.perf_counter() - start


def measure(store: Store, row: Row, threads: int, rate: float, seconds: float, cleaned: Store | None = None) -> None:
    """Run the load over a closed store, if `cleaned` is given during its cleaning. Then reopen the store and look up
    every record. Adds the latencies to `row`."""
    opened = [store] if cleaned in (None, store) else [store, cleaned]
    for each in opened:
        each.open()
    first = store.next_number
    store.put(first)  # not measured: the first append creates files and checkpoints
    with ThreadPoolExecutor(1) as pool:
        cleaning = None if cleaned is None else pool.submit(cleaned.clean)

        def running() -> bool:
            return cleaning is None or not cleaning.done()

        latencies, taken = load(lambda number: store.put(first + 1 + number), threads, rate, seconds, running)
        if cleaning is not None:
            cleaning.result()
    for each in opened:
        each.close()
    wanted = [first, *(first + 1 + number for number in sorted(latencies))]
    store.open()
    found = store.numbers(first)
    store.close()
    assert found == wanted, f"{row.contestant}, {row.scenario}: {len(wanted)} records were written, {len(found)} found"
    store.next_number = wanted[-1] + 1
    row.latencies += latencies.values()
    row.seconds += taken


# ---- scenarios -------------------------------------------------------------------------------------------------------


class Tails:
    """All scenarios in one directory. `skipped` has the stores and scenarios that could not run, and what they need."""

    def __init__(self, folder: Path, sizes: Sizes, draw: Progress | None) -> None:
        self._folder, self._sizes, self._draw = folder, sizes, draw
        self._numbers = itertools.count()
        self.skipped: dict[str, str] = {}
        for store in (each.store for each in CONTESTANTS):
            if needs := store.needs():
                self.skipped[store.name] = needs
        self._contestants = [each for each in CONTESTANTS if each.store.name not in self.skipped]

    def run(self) -> Iterator[Row]:
        """Yield the rows, scenario by scenario."""
        sizes = self._sizes
        yield from self._fresh(f"alone, {sizes.rate:g} a second", sizes.rate, self._contestants)
        sharing = [each for each in self._contestants if each.threads > 1]
        yield from self._fresh(f"alone, {10 * sizes.rate:g} a second", 10 * sizes.rate, sharing)
        yield from self._cleaning()
        yield from self._filled()

    def _path(self) -> Path:
        """Return a path that no store had before, because klog's checkpoints beside a log keep its name."""
        return self._folder / f"store-{next(self._numbers)}"

    def _report(self, row: Row, seconds: float) -> None:
        if self._draw is not None:
            done, note = min(round(row.seconds), round(seconds)), f"{row.contestant}"
            self._draw(Event(row.scenario, done, round(seconds), "seconds", note))

    def _fresh(self, scenario: str, rate: float, contestants: list[Contestant]) -> list[Row]:
        """Run contestants, each with a new store for each run."""
        rows = [Row(scenario, each.name) for each in contestants]
        for _ in range(self._sizes.rounds):
            for each, row in zip(contestants, rows, strict=True):
                store = each.store(self._path())
                measure(store, row, each.threads, rate, self._sizes.seconds / self._sizes.rounds)
                remove(store.path)
                self._report(row, self._sizes.seconds)
        return rows

    def _cleaning(self) -> list[Row]:
        """Run contestants during a cleaning of another store, and of the same store. The lower bound runs during klog's
        cleaning."""
        sources: dict[type[Store], Path] = {}
        for store in dict.fromkeys(each.store for each in self._contestants if each.store.cleans):
            sources[store] = self._path()
            store(sources[store]).dirty(self._sizes.dirty_bytes)
        pairs = [
            (each, own, Row("beside its own cleaning" if own else "beside the cleaning of another", each.name))
            for own in (False, True)
            for each in self._contestants
            if each.store.cleans or (each.store is PlainFile and not own)
        ]
        while any(row.seconds < self._sizes.seconds for _, _, row in pairs):
            for each, own, row in pairs:
                if row.seconds < self._sizes.seconds:
                    self._beside(each, row, sources, own)
                    self._report(row, self._sizes.seconds)
        for source in sources.values():
            remove(source)
        return [row for _, _, row in pairs]

    def _beside(self, each: Contestant, row: Row, sources: dict[type[Store], Path], own: bool) -> None:
        cleaner = Klog if each.store is PlainFile else each.store
        dirty = cleaner(self._path())
        store = dirty if own else each.store(self._path())
        copy_store(sources[cleaner], dirty.path)
        measure(store, row, each.threads, self._sizes.rate, self._sizes.seconds, dirty)
        for path in {dirty.path, store.path}:
            remove(path)

    def _filled(self) -> list[Row]:
        """Run contestants over a store that has just been filled; one store after the other, to need less disk."""
        sizes = self._sizes
        needed, free = 3 * sizes.filled_bytes, shutil.disk_usage(self._folder).free
        title = f"over {sizes.filled_bytes / (1 << 30):.3g} GiB"
        if free < needed:
            self.skipped[title] = f"{needed >> 30} GiB of free disk, where {free >> 30} GiB are free"
            return []
        plain_file = Row(title, PlainFile.name)
        rows = [plain_file]
        for kind in dict.fromkeys(each.store for each in self._contestants if each.store is not PlainFile):
            store = kind(self._path(), sizes.piece_bytes)
            for done in store.fill(sizes.filled_bytes // VALUE_BYTES):
                if self._draw is not None:
                    self._draw(Event(f"filling {kind.name}", done, sizes.filled_bytes // VALUE_BYTES, "records"))
            contestants = [each for each in self._contestants if each.store is kind]
            of_kind = [Row(title, each.name) for each in contestants]
            for _ in range(sizes.rounds):
                plain = PlainFile(self._path())
                measure(plain, plain_file, 1, sizes.rate, sizes.seconds / sizes.rounds)
                remove(plain.path)
                for each, row in zip(contestants, of_kind, strict=True):
                    measure(store, row, each.threads, sizes.rate, sizes.seconds / sizes.rounds)
                    self._report(row, sizes.seconds)
            remove(store.path)
            rows += of_kind
        return rows


# ---- the table -------------------------------------------------------------------------------------------------------


def _cells(row: dict[str, Any]) -> list[str]:
    percentiles = [f"{row[name]:.2f}" for name in _PERCENTILES]
    return [row["scenario"], row["contestant"], *percentiles, f"{row['samples']:,}", f"{row['rate']:,.0f}"]


def text(row: dict[str, Any]) -> str:
    return _line(_cells(row))


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return table.aligned(cells, _WIDTHS, right=range(2, len(_WIDTHS)))


def markdown(run: dict[str, Any]) -> str:
    out = [
        f"{table.made_on(run['machine'])}: {run['rate']:g} records of {VALUE_BYTES:,} bytes a second, if the row "
        f"names no other rate, for {run['seconds']:g} seconds a row, in {run['rounds']} rounds. The load "
        f"average of the machine was {run['load_average']:.1f}; the run itself causes less than 1.",
        "",
        *table.rows(_HEAD, map(_cells, run["rows"]), left=2),
    ]
    out += ["", f"{NO_CLEANER}."]
    if run["skipped"]:
        out += ["", "Not run:", "", *(f"- {name} needs: {needs}" for name, needs in run["skipped"].items())]
    return "\n".join(out)


def into(page: str, run: dict[str, Any]) -> str:
    """Return the page with the table of this run between its markers."""
    return table.between(page, BEGIN, markdown(run))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tails", description="the slowest durable appends")
    parser.add_argument("directory", nargs="?", type=Path, help="on the disk to measure; by default a temporary one")
    parser.add_argument("--tiny", action="store_true", help="a few records: tests that it still works")
    parser.add_argument("--rate", type=float, default=_RATE, help="arrivals a second")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of each row")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--docs", action="store_true", help="run nothing; write the saved table into the document")
    asked = parser.parse_args(arguments)
    if asked.docs:
        PAGE.write_text(into(PAGE.read_text(), json.loads(RESULTS.read_text())))
        return 0
    sizes = Sizes(asked.rate, asked.seconds)
    if asked.tiny:
        sizes = Sizes(200.0, 0.1, 2, dirty_bytes=1 << 20, filled_bytes=2 << 20, piece_bytes=2 << 20)
    made: dict[str, Any] = {"machine": machine(), **asdict(sizes), "rows": [], "skipped": {}}
    loads: list[float] = []
    print(_line(_HEAD))
    with (
        tempfile.TemporaryDirectory(prefix="klog-bench-", dir=asked.directory) as folder,
        progress_bar(True) as draw,
    ):
        tails = Tails(Path(folder), sizes, draw)
        for row in tails.run():
            made["rows"].append(row.figures())
            loads.append(os.getloadavg()[1])
            made["load_average"] = statistics.mean(loads)
            print(text(made["rows"][-1]), flush=True)
            save(made, asked.save)  # a later row may fail
    for name, needs in tails.skipped.items():
        print(f"{name:<30} needs: {needs}")
    save({**made, "skipped": tails.skipped}, asked.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
