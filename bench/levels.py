"""What each durability level costs: python -m bench.levels [DIR] [--tiny] [--docs]

One record of 1,000 bytes at a time, one thread, in rounds in which the stores alternate:

    process   on return the record survives a crash of the process: klog durability="os"; sqlite3 in WAL mode with
              synchronous=OFF; LMDB with sync=False; RocksDB without WriteOptions.sync
    power     on return it survives a power cut: durability="sync"; synchronous=FULL; LMDB's default; WriteOptions.sync

Each store is reopened and its records are counted after the last round. --docs writes the table into
docs/guarantees.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.rocksdb import RocksDb
from bench.table import between
from bench.tail_stores import Klog, Lmdb, PlainFile, Rocks, Sqlite, Store, key, value

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "guarantees.md"
BEGIN = "<!-- written by python -m bench.levels --docs -->"
LEVELS = ("process", "power")
_SETTINGS = {
    ("klog append", "process"): '`durability="os"`',
    ("klog append", "power"): '`durability="sync"`',
    ("sqlite3", "process"): "WAL, `synchronous=OFF`",
    ("sqlite3", "power"): "WAL, `synchronous=FULL`",
    ("LMDB", "process"): "`sync=False`",
    ("LMDB", "power"): "defaults",
    ("RocksDB", "process"): "defaults",
    ("RocksDB", "power"): "`WriteOptions.sync`",
    ("pwrite + fdatasync", "power"): "the same bytes into preallocated blocks: the disk's own time",
}


class _Klog(Klog):
    def open(self) -> None:
        self._log = self._opened("os")


class _Sqlite(Sqlite):
    def open(self) -> None:
        self._open("OFF")


class _Lmdb(Lmdb):
    def open(self) -> None:
        self._open(False)


class _Rocks(Rocks):
    def open(self) -> None:
        self._db: RocksDb = RocksDb(self.path)

    def put(self, number: int) -> None:
        self._db.put_all([(b"load" + key(number), value(number))])


STORES: dict[str, Sequence[type[Store]]] = {
    "process": (_Klog, _Sqlite, _Lmdb, _Rocks),
    "power": (PlainFile, Klog, Sqlite, Lmdb, Rocks),
}


def measure(folder: Path, level: str, count: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Yield (name, median microseconds of a record) of each store that this machine has. Checks the number of
    records."""
    stores = [kind(folder / f"{level}-{number}") for number, kind in enumerate(STORES[level]) if not kind.needs()]
    took: dict[str, list[float]] = {store.name: [] for store in stores}
    for number in range(rounds):
        for store in stores:
            store.open()
            for record in range(number * count, (number + 1) * count):
                began = time.perf_counter()
                store.put(record)
                took[store.name].append(time.perf_counter() - began)
            store.close()
    for store in stores:
        store.open()
        assert len(store.numbers(0)) == count * rounds, store.name
        store.close()
        yield store.name, statistics.median(took[store.name]) * 1e6


def table(folder: Path, tiny: bool) -> Iterator[str]:
    load = os.getloadavg()[0]
    yield f"Medians of one record of 1,000 bytes, one thread, stores alternate; load average at the start {load:.1f}."
    yield ""
    yield "| on return it survives | store | setting | µs a record | times klog |"
    yield "| --- | --- | --- | ---: | ---: |"
    for level in LEVELS:
        count = (5 if level == "power" else 20) if tiny else (100 if level == "power" else 2000)
        found = dict(measure(folder, level, count, 1 if tiny else 7))
        mine = found["klog append"]
        event = "a crash of the process" if level == "process" else "a power cut"
        for name, micros in found.items():
            yield f"| {event} | {name} | {_SETTINGS[name, level]} | {micros:,.0f} | {micros / mine:.2f} |"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.levels", description="what each durability level costs")
    parser.add_argument("directory", nargs="?", type=Path, help="a directory on the disk to measure")
    parser.add_argument("--tiny", action="store_true", help="a few records: tests that it still works")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/guarantees.md")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="klog-bench-", dir=asked.directory) as folder:
        lines = list(table(Path(folder), asked.tiny))
    print("\n".join(lines))
    if asked.docs:
        DOCUMENT.write_text(between(DOCUMENT.read_text(), BEGIN, "\n".join(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
