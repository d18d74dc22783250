"""The state that a cleaning must leave if it is stopped at any moment, and the result of the next cleaning.

The log is written once, and cleaned once without a stop. The directory of a stopped cleaning must open. Then each key
has the same value, every record that a cleaning keeps is at its offset, and producers and transactions are the same.
There are no leftovers, no change outside the cleaned range, and verify finds no problem. The next cleaning must have
the same result as the one without a stop.
"""

from __future__ import annotations

import dataclasses
import pickle
import random
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.errors import KlogError
from klog.log.options import Policy
from klog.spark.compacting import Compaction, build_one
from klog.spark.jobs import clear_staging
from tests.crash.opening import PartitionOpener
from tests.crash.staged import as_after_a_restart
from tests.support.abandon import abandon
from tests.support.batches import NOW, marker, produced, transactional
from tests.support.crash_files import CrashFiles, until_done
from tests.support.crash_states import State
from tests.support.numbered_names import numbered_names
from tests.support.power_cuts import PowerCuts, Tally, cut_while

TOPIC = "t"
LATER = NOW + 10_000  # time of the cleaning under test: the delete horizons set by the first cleaning have passed
CONFIG: dict[str, Any] = {
    "cleanup.policy": "compact",
    "segment.bytes": 16_384,
    "segment.index.bytes": 1024,
    "index.interval.bytes": 256,
    "max.message.bytes": 4096,
    "delete.retention.ms": 1000,
    "file.delete.delay.ms": 60_000,
}
CHECKPOINT = "cleaner-offset-checkpoint"
TEMPORARY = (".cleaned", ".swap", ".deleted", ".tmp")


@dataclass(frozen=True)
class Setup:
    """How a log is opened and cleaned: by itself, or under a manager."""

    managed: bool
    config: Mapping[str, Any]  # of the topic
    broker: Mapping[str, Any]
    roll: bool = False
    at: int = LATER  # wall time of the cleaning, in milliseconds

    def directory(self, root: Path) -> Path:
        return root / f"{TOPIC}-0"

    def open(self, root: Path, at: int | None = None, files: Any = None) -> klog.LogManager | klog.Log:
        clock = ManualClock(self.at if at is None else at)
        if self.managed:
            return klog.open(root, create=True, clock=clock, config=self.broker, files=files)
        config = {**self.config, **self.broker}
        return klog.Log.open(
            self.directory(root), config=config, clock=clock, **({} if files is None else {"files": files})
        )

    def log(self, opened: klog.LogManager | klog.Log) -> klog.Log:
        if isinstance(opened, klog.Log):
            return opened
        if TOPIC not in opened.topics():
            opened.create_topic(TOPIC, config=self.config)
        return opened.log(TOPIC)

    def clean(
        self,
        root: Path,
        armed: Callable[[], None] = lambda: None,
        files: Any = None,
        abandoned: bool = False,
    ) -> None:
        """Open, compact, close. armed() is called before a manager is opened, or after a single log was opened.
        abandoned: after an exception the log is abandoned instead of closed."""
        if self.managed:
            armed()
        opened = self.open(root, files=files)
        try:
            if not self.managed:
                armed()
            self.log(opened).compact(roll=self.roll)
            opened.close()
        except BaseException:
            if abandoned:
                abandon(opened)
            raise
        finally:
            if not abandoned:
                opened.close()


@dataclass(frozen=True)
class TaskSetup(Setup):
    """Compacts a log as klog.spark.compact does: tasks clean parts of it, and the driver does the rest. abandoned has
    no effect here."""

    def clean(
        self, root: Path, armed: Callable[[], None] = lambda: None, files: Any = None, abandoned: bool = False
    ) -> None:
        clock = ManualClock(self.at)
        armed()
        with (
            numbered_names(getattr(files, "steps", 0)),
            klog.open(root, clock=clock, config=self.broker, files=files) as logs,
        ):
            compaction = Compaction(logs, str(root), [TOPIC], clock)
            try:
                while items := compaction.items():
                    for item in items:
                        work = pickle.loads(pickle.dumps(item.value))
                        outcome = pickle.loads(pickle.dumps(build_one(work, clock, files)))
                        compaction.take(outcome)
                for row in compaction.rows():
                    if row[-1] is not None:
                        raise KlogError(row[-1])
            finally:
                clear_staging(str(root), compaction.token, files)


@dataclass(frozen=True)
class Found:
    """The content of a log."""

    records: dict[int, tuple[bytes | None, bytes | None, int]]
    committed: dict[int, tuple[bytes | None, bytes | None, int]]
    bytes: bytes
    bases: list[int]
    untouched: bytes  # bytes of the segments from dirty_end on
    producers: Any
    aborted: list[tuple[int, int]]  # producer, last offset: its first offset may legally differ
    epochs: Any
    span: tuple[int, int]

    @property
    def values(self) -> dict[bytes, bytes]:
        """The last committed value of each key, with tombstones applied; records without a key are not included."""
        last = {key: value for key, value, _ in self.committed.values()}
        return {key: value for key, value in last.items() if key is not None and value is not None}


def content_of(log: klog.Log, dirty_end: int) -> Found:
    def read(isolation: Any) -> dict[int, tuple[bytes | None, bytes | None, int]]:
        found = log.read(isolation=isolation, include_control=isolation == "log_end")
        return {record.offset: (record.key, record.value, record.timestamp) for record in found}

    data = {segment.base_offset: Path(segment.path).read_bytes()[: segment.size] for segment in log.segments}
    return Found(
        read("log_end"),
        read("read_committed"),
        b"".join(data.values()),
        [*data],
        b"".join(content for base, content in data.items() if base >= dirty_end),
        log.producers,
        [(entry.producer_id, entry.last_offset) for entry in log.aborted_transactions()],
        log.leader_epochs,
        (log.log_start_offset, log.log_end_offset),
    )


def three_segments(log: klog.Log) -> None:
    """Three segments to clean and an active one: repeated keys, tombstones, aborted and committed transactions, a
    producer whose batches all go, compressed batches. A first cleaning has cleaned part of it, and has set the delete
    horizons of tombstones and markers."""
    serial = 0

    def put(count: int, compression: str | None = None) -> None:
        nonlocal serial
        for _ in range(count):
            log.append([(b"key-%d" % ((serial + i) % 7), b"value-%d" % (serial + i), NOW) for i in range(3)],
                       compression=compression)  # fmt: skip
            serial += 3

    put(4)
    log.append([(b"key-0", None, NOW), (b"gone", b"once", NOW), (b"gone", None, NOW)])
    log.append_batches(produced(5, 0, 0, 2))
    log.append_batches(transactional(7, 0, 0, 2, key=b"aborted"))
    log.append_batches(marker(7, 0, "abort"), origin="coordinator")
    log.compact(roll=True)
    put(5, "lz4")
    log.append_batches(transactional(8, 0, 0, 2, key=b"committed"))
    log.append_batches(marker(8, 0, "commit"), origin="coordinator")
    log.append_batches(produced(5, 0, 2, 3))
    log.append([(b"key-1", None, NOW)])
    log.roll()
    put(4)
    log.append_batches(transactional(7, 0, 2, 2, key=b"key-3"), leader_epoch=2)
    log.append_batches(marker(7, 0, "abort"), origin="coordinator")
    put(2)
    log.roll()
    log.append([(b"key-2", b"newest", NOW), (b"last", b"in the active segment", NOW)])


class Cleaning:
    """A log that is to be cleaned, in a directory of its own, and the checks for each cleaned copy."""

    def __init__(
        self, place: Path, setup: Setup, fill: Callable[[klog.Log], None] = three_segments, *, one_group: bool = True
    ) -> None:
        self.place, self.one_group = place, one_group
        self.original = place / "original"
        self.original.mkdir(parents=True)
        with setup.open(self.original, NOW) as opened:
            log = setup.log(opened)
            fill(log)
            self.setup = setup = dataclasses.replace(setup, at=max(setup.at, log.clock.wall_ms() + 5000))
            self.dirty_end = log.log_end_offset if setup.roll else log.segments[-1].base_offset
            self.before = content_of(log, self.dirty_end)
        root = self.copy()
        setup.clean(root)
        checkpoint, old = root / CHECKPOINT, self.original / CHECKPOINT
        self.checkpoint = checkpoint.read_text()
        with setup.open(root) as opened:
            self.after = content_of(setup.log(opened), self.dirty_end)
        checkpoint.write_bytes(old.read_bytes()) if old.exists() else checkpoint.unlink()
        setup.clean(root)
        with setup.open(root) as opened:
            self.again = content_of(setup.log(opened), self.dirty_end)
        self.changes = len(self.after.records) < len(self.before.records)
        self.check(root)

    def copy(self) -> Path:
        """Replace the copy of the uncleaned log by a new one."""
        root = self.place / "copy"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.original, root)
        return root

    def check(self, root: Path) -> None:
        """Check the directory that a stopped cleaning has left, and clean it again."""
        setup = self.setup
        with setup.open(root) as opened:
            self.check_content(content_of(setup.log(opened), self.dirty_end))
            assert left_over(root if setup.managed else setup.directory(root)) == []
        assert not list(root.rglob("*klog-staging*"))
        assert problems(root, setup) == []
        with setup.open(root) as opened:
            log = setup.log(opened)
            log.compact(roll=setup.roll)
            self.check_outcome(content_of(log, self.dirty_end))
        assert (root / CHECKPOINT).read_text() == self.checkpoint
        assert [name for name in left_over(root) if not name.endswith(".deleted")] == []

    def check_content(self, found: Found) -> None:
        before, least = self.before, self.again
        assert found.values == before.values
        assert set(least.records) <= set(found.records) <= set(before.records)
        assert set(least.committed) <= set(found.committed) <= set(before.committed)
        assert {offset: before.records[offset] for offset in found.records} == found.records
        assert (found.span, found.producers, found.epochs) == (before.span, before.producers, before.epochs)
        assert set(least.aborted) <= set(found.aborted) <= set(before.aborted)
        assert found.untouched == before.untouched

    def check_outcome(self, found: Found) -> None:
        """Check that this is the result of one cleaning, or of two if the stop came between the swap and the
        checkpoint. (The second one finds a transaction without records, and sets the delete horizon of its marker.)
        With several groups of segments, each may have been cleaned once or twice: then no record may be left that one
        cleaning removes."""
        if not self.one_group:
            assert found.values == self.before.values
            assert set(found.records) <= set(self.after.records)
            return
        after = self.after if found.bytes == self.after.bytes else self.again
        assert found.records == after.records
        assert found.committed == after.committed
        assert found.aborted == after.aborted
        assert found.bytes == after.bytes
        assert (found.span, found.producers, found.epochs) == (after.span, after.producers, after.epochs)


def left_over(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.suffix in TEMPORARY)


def problems(root: Path, setup: Setup) -> list[klog.inspect.Problem]:
    """The problems that verify finds, except offset gaps, which compaction makes, and except problems with checkpoints
    if the log is not in a log.dir."""
    fine = ("gap",) if setup.managed else ("gap", "checkpoint")
    found = klog.verify(root if setup.managed else setup.directory(root)).problems
    return [problem for problem in found if problem.kind not in fine]


# ---- a cleaning whose power is cut -----------------------------------------------------------------------------------

SMALL = {**CONFIG, "segment.bytes": 1000, "segment.index.bytes": 128}
ROUNDS = {"log.cleaner.dedupe.buffer.size": 24 * 7}
SETUPS = {
    "log": Setup(False, SMALL, ROUNDS),
    "manager": Setup(True, SMALL, ROUNDS),
    "tasks": TaskSetup(True, SMALL, ROUNDS, roll=True),
}


def long_log(log: klog.Log) -> None:
    """A log with twice as many segments; the second half rolls by itself."""
    three_segments(log)
    for number in range(30):
        log.append([(b"key-%d" % (number % 11), b"later-%d" % number * 5, None)])


def cleaning_of(place: Path, setup: str) -> Cleaning:
    cleaning = Cleaning(place, SETUPS[setup], long_log, one_group=False)
    assert cleaning.changes
    return cleaning


class CleanedOpener:
    """Opens the directory that a stopped cleaning has left. A full check also cleans it again."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning
        self._opener = PartitionOpener(TOPIC, self._content_of, lambda root, **_: cleaning.setup.open(root))

    def _content_of(self, log: klog.Log) -> Found:
        return content_of(log, self._cleaning.dirty_end)

    def __call__(self, root: Path, recovery: Policy) -> None:
        as_after_a_restart(root)
        self._cleaning.check(root)

    def quick(self, state: State, root: Path, recovery: Policy) -> None:
        cleaning = self._cleaning
        if cleaning.setup.managed:
            _, found = self._opener(state, root, recovery)
            assert found is not None, "the topic is missing"
        else:
            log = cleaning.setup.open(root)
            try:
                found = self._content_of(cleaning.setup.log(log))
            finally:
                abandon(log)
        cleaning.check_content(found)

    def interrupted(self, root: Path, recovery: Policy, rng: random.Random) -> State:
        setup = self._cleaning.setup

        def work(files: CrashFiles) -> None:
            opened = setup.open(root, files=files)
            try:
                setup.log(opened)
            finally:
                abandon(opened)

        return cut_while(root, rng, 40, work)


def cut_cleaning(
    cleaning: Cleaning,
    *,
    randoms: int,
    stride: int = 1,
    first: int = 0,
    seed: int = 0,
    share: int = 1,
    deaths: Iterable[int] = (),
    rig: type[PowerCuts[None]] = PowerCuts,
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
) -> tuple[Tally, list[str]]:
    """Clean a copy whose earlier content is durable. deaths: operations at which processes die before; the next one cleans
    again. Return the outcome, and the operations."""

    def clean(root: Path, files: CrashFiles) -> None:
        shutil.copytree(cleaning.original, root)
        files.keep(root)
        until_done(files, deaths, lambda: once(root, files))

    def once(root: Path, files: CrashFiles) -> None:
        as_after_a_restart(root)
        cleaning.setup.clean(root, files=files, abandoned=True)

    cuts = rig(
        cleaning.place,
        CleanedOpener(cleaning),
        lambda *_: None,
        stride=stride,
        first=first,
        randoms=randoms,
        seed=seed,
        share=share,
        opened=opened,
    )
    return cuts.run(clean), cuts.log
