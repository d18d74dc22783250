"""A materialized table that several calls write, some of which die, and the states that a power cut may leave.

When a call has returned, its commit is on disk, and the target shows it. Before that the table is the old one or the
new one. Once it is the new one, every reader sees at least the rows of the old one (A1 to A4 of
klog/spark/table_store.py).
"""

from __future__ import annotations

import contextlib
import functools
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import klog
from klog.clock import ManualClock
from klog.log.options import Policy
from klog.spark.table_manifest import from_bytes
from tests.crash.repaired import on_disk
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles, dying
from tests.support.crash_states import State
from tests.support.numbered_names import numbered_names
from tests.support.power_cuts import PowerCuts, Tally, cut_while
from tests.support.tables import Row, check_seen, in_log, latest_of, materialize, rows_of

TARGET = "out/table"
OWN = f"{TARGET}/_klog"
CALLS = 4


@dataclass(frozen=True)
class Found:
    """number: of the last commit; 0 if there is none. seen: the rows that a reader of Parquet sees."""

    number: int
    stored: list[Row]
    seen: list[Row]


def found_in(files: Mapping[str, bytes]) -> Found:
    """Read the table in the target."""
    shown = [path for path in files if path.startswith(f"{TARGET}/klog-")]
    seen = sorted(row for path in shown for row in _parquet(files[path]))
    data = files.get(f"{OWN}/manifest.json")
    if data is None:
        return Found(0, [], seen)
    manifest = from_bytes(data, "manifest.json")
    stored = [row for file in manifest.files for row in _parquet(files[f"{OWN}/files/{file.name}"])]
    return Found(manifest.number, sorted(stored), seen)


@functools.lru_cache(maxsize=512)
def _parquet(data: bytes) -> list[Row]:
    return rows_of(pq.read_table(pa.BufferReader(data)))


class Tables:
    """Runs the calls. expected: the rows of the table after each commit. done: the number of commits that have
    returned. under_way: one more commit may be there."""

    def __init__(self, place: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.latest = self.rng.random() < 0.5
        self.expected: list[list[Row]] = [[]]
        self.done = 0
        self.under_way = False
        self.calls: list[str] = []
        self._data = place / "data"
        self._serial = 0
        with self._opened() as logs:
            logs.create_topic("t", partitions=2, config={"segment.bytes": 4096})

    def _opened(self) -> klog.LogManager:
        return klog.open(self._data, create=True, clock=ManualClock(NOW))

    def run(self, root: Path, files: CrashFiles) -> None:
        root.mkdir()
        files.keep(root)
        while self.done < CALLS:
            self._append()
            self.under_way = True
            while self.rng.random() < 0.5:
                self._call(root, files, dies=True)
            self._call(root, files)
            self.done, self.under_way = self.done + 1, False

    def _append(self) -> None:
        with self._opened() as logs:
            logs.append("t", [self._record() for _ in range(self.rng.choice([1, 5, 60]))])
        rows = in_log(self._data)
        self.expected.append(latest_of(rows) if self.latest else sorted(rows))

    def _record(self) -> tuple[bytes, bytes | None]:
        self._serial += 1
        value = None if self.rng.random() < 0.15 else b"%d." % self._serial + self.rng.randbytes(60)
        return b"k%d" % self.rng.randrange(40), value

    def _call(self, root: Path, files: CrashFiles, *, dies: bool = False) -> None:
        """A process that dies does so after one of the first changes of names, if there are so many: they are not yet
        on disk."""
        self.calls.append("dies" if dies else "returns")
        with numbered_names(100 * len(self.calls)), contextlib.ExitStack() as stack:
            if dies:
                stack.enter_context(garbage_may_fail())
                stack.enter_context(dying(files, self.rng.randrange(1, 13), ("mkdir", "link", "rename", "unlink")))
            self.materialize(root, files)

    def materialize(self, root: Path, files: CrashFiles | None = None) -> None:
        materialize(self._data, root / TARGET, latest=self.latest, target_bytes=2000, files=files)

    def check_found(self, found: Found) -> None:
        assert found.number in {self.done, self.done + self.under_way}, f"commit {found.number} after {self.done}"
        assert found.stored == self.expected[found.number], f"commit {found.number} has other rows"
        if found.number == self.done:
            assert found.seen == found.stored, f"commit {found.number} is not shown"
        else:
            check_seen(found.seen, self.expected[self.done], found.stored, self.latest)

    def complete(self, root: Path) -> None:
        """Make the next call: it completes the interrupted commit, and adds the new records."""
        with numbered_names(1 << 50):  # not the files of the workload, which still runs
            self.materialize(root)
        files = on_disk(root)
        found = found_in(files)
        assert found.stored == found.seen == self.expected[-1]
        manifest = from_bytes(files[f"{OWN}/manifest.json"], "manifest.json")
        named = {*(file.name for file in manifest.files), *manifest.kept}
        assert named == {path.rpartition("/")[2] for path in files if path.startswith(f"{OWN}/files/")}


def garbage_may_fail() -> contextlib.AbstractContextManager[object]:
    """Objects that a dead process leaves, such as Parquet's writers, still try to write when they are collected as
    garbage: that this fails is ignored."""
    return mock.patch.object(sys, "unraisablehook")


class TableOpener:
    """Reads the table and the target. A full check also makes the next call."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def __call__(self, root: Path, recovery: Policy) -> Found:
        found = found_in(on_disk(root))
        self._tables.complete(root)
        return found

    def quick(self, state: State, root: Path, recovery: Policy) -> Found:
        return found_in(state.files)

    def interrupted(self, root: Path, recovery: Policy, rng: random.Random) -> State:
        with numbered_names(rng.randrange(1 << 40)), garbage_may_fail():
            return cut_while(root, rng, 60, lambda files: self._tables.materialize(root, files))


def cut_tables(
    place: Path,
    *,
    seed: int,
    randoms: int,
    stride: int = 1,
    share: int = 1,
    rig: type[PowerCuts[Found]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th operation of the disk."""
    tables = Tables(place, seed)
    cuts = rig(
        place,
        TableOpener(tables),
        lambda found, _only_died: tables.check_found(found),
        stride=stride,
        first=seed % stride,
        randoms=randoms,
        seed=seed,
        share=share,
        promised=lambda: (tables.done, tables.under_way, tables.calls),
    )
    return cuts.run(tables.run)
