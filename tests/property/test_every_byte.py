"""One bit is flipped in a file of a small log.dir. `verify` reports it, or the flip changes no result.

Opening the directory with recovery="strict", after a clean stop and after a crash, raises a named error or returns only
records that were written.

`make test` draws a sample of all flips; the test marked deep flips one bit of each byte, another one in each run.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import KlogError
from tests.property.test_caches import results
from tests.property.test_hostile_directory import Unsynced
from tests.support.abandon import abandon
from tests.support.batches import NOW, marker, produced, transactional
from tests.support.damage import flip
from tests.support.seeds import drawn

CONFIG = {"segment.bytes": 900, "index.interval.bytes": 100, "segment.index.bytes": 240}
META = "version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"
Results = dict[str, Any]
Flip = tuple[str, int, int]


def _digits(data: bytes) -> Iterator[int]:
    return (at for at, byte in enumerate(data) if chr(byte).isdigit())


def _entries(data: bytes) -> Iterator[int]:
    """The names and numbers of a checkpoint's entries: an entry of a partition that is not there is only noted."""
    head = data.index(b"\n", data.index(b"\n") + 1) + 1
    return (at for at, byte in enumerate(data) if chr(byte).isdigit() or (at >= head and chr(byte).isalpha()))


def _everything(data: bytes) -> Iterable[int]:
    return range(len(data))


UNREPORTED: dict[str, tuple[Callable[[bytes], Iterable[int]], str]] = {
    ".kafka_cleanshutdown": (
        lambda data: [*_digits(data), data.find(b"-")],
        "klog uses only the presence of the file, not the broker's epoch",
    ),
    "meta.properties": (_everything, "ids of a broker; klog reads none of them"),
    "replication-offset-checkpoint": (_entries, "a log without replicas ends where its batches end"),
    "recovery-point-offset-checkpoint": (_entries, "it decides how much is scanned after a crash"),
    "klog-topics.json": (_everything, "white space, and the name of the checksum"),
    "klog-reader.billing.json": (_everything, "white space, and the name of the checksum"),
}
"""Flips that verify cannot find, and why they change no result."""

CHANGED: dict[str, tuple[Callable[[bytes], Iterable[int]], str, set[str]]] = {
    "log-start-offset-checkpoint": (
        _entries,
        "another log start that is inside the log, or none; Kafka's format has no checksum",
        {"bounds", "records", "committed", "aborted in fetches", "count", "times", "epochs", "reader"},
    ),
    "leader-epoch-checkpoint": (lambda data: [6], "the start of the first epoch, which moves with the log start",
                                {"epochs"}),
}  # fmt: skip
"""Flips that verify cannot find and that change results: valid numbers in Kafka's text files."""


class SmallDirectory:
    """A log.dir with every kind of file, after a clean stop and after a crash. `expected`: the results of each state."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.manager(create=True) as logs:
            logs.create_topic("t", config=CONFIG)
            self._first_life(logs)
        with self.manager() as logs:
            logs.log("t").append([(b"x", b"3" * 50, NOW + 220)])
            logs.log("t").append_batches(transactional(9, 0, 0))
            logs.log("t").append([(b"last", b"4" * 50, NOW + 230)])
            self.records |= set(results(logs.log("t"))["records"])
            (path / "meta.properties").write_text(META)
            crashed = self._files()
        self.states = {"clean": self._files(), "crashed": crashed}
        self.expected: dict[str, Results] = {}
        for state in self.states:
            self.write_files(state)
            assert klog.verify(path).problems == []
            found = self.query()
            assert isinstance(found, dict)
            self.expected[state] = found

    def _first_life(self, logs: klog.LogManager) -> None:
        log = logs.log("t")
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            at = NOW + number * 10
            log.append(
                [(b"k%d" % number, bytes(40), at), (None, b"w", at + 1, [("h", b"x")])],
                compression=codec,  # type: ignore[arg-type]
            )
        log.append_batches(produced(5, 0, 0, 2))
        log.append_batches(transactional(7, 0, 0, 2))
        log.append_batches(transactional(8, 0, 0))
        log.append_batches(marker(7, 0, "abort"), origin="coordinator")
        log.append_batches(transactional(7, 0, 2), leader_epoch=2)
        log.append_batches(marker(8, 0, "commit"), origin="coordinator")
        log.append_batches(produced(5, 0, 2))
        log.append([(b"z", b"1" * 50, NOW + 200)])
        log.append_batches(marker(7, 0, "abort"), origin="coordinator")
        self.records = set(results(log)["records"])
        log.delete_records(1)
        reader = logs.reader("t", "billing")
        next(iter(reader))
        reader.commit()

    def manager(self, **options: Any) -> klog.LogManager:
        return klog.open(self.path, clock=ManualClock(NOW), files=Unsynced(), **options)

    def _files(self) -> dict[str, bytes]:
        found = (
            path for path in self.path.rglob("*") if path.is_file() and path.suffix != ".lock" and path.name != ".lock"
        )
        return {str(path.relative_to(self.path)): path.read_bytes() for path in found}

    def write_files(self, state: str, damage: Flip | None = None) -> None:
        shutil.rmtree(self.path)
        (self.path / "t-0").mkdir(parents=True)
        for name, data in self.states[state].items():
            wanted = damage is not None and damage[0] == name
            (self.path / name).write_bytes(flip(data, *damage[1:]) if wanted and damage else data)

    def query(self) -> Results | type[KlogError]:
        """Return all results, or the class of the error that was raised."""
        try:
            logs = self.manager()
        except KlogError as error:
            return type(error)
        try:
            found = results(logs.log("t"))
            del found["positions"]  # raw bytes, with the flipped ones
            found["reader"] = [record.offset for record in logs.reader("t", "billing")]
            return found
        except KlogError as error:
            return type(error)
        finally:
            abandon(logs)

    def flips(self, state: str, seed: int) -> Iterator[Flip]:
        """Yield one flip of each byte, except in the unused part of a preallocated index."""
        for name, data in sorted(self.states[state].items()):
            for position in range(len(data)):
                if any(data[max(position - 24, 0) :]):
                    yield name, position, (position + seed) % 8

    def check(self, state: str, damage: Flip) -> bool:
        """Raise AssertionError if the flip does harm that verify does not report. Return whether verify reported it."""
        self.write_files(state, damage)
        reported = bool(klog.verify(self.path).problems)
        found = self.query()
        self.check_records(damage, found)
        if not reported:
            self.check_unreported(state, damage, found)
        return reported

    def check_records(self, damage: Flip, found: Results | type[KlogError]) -> None:
        """Check that only written records are read. A batch's base offset and leader epoch are outside its checksum."""
        if isinstance(found, dict):
            loose = damage[0].endswith(".log")
            written = {_content(record, loose) for record in self.records}
            assert {_content(record, loose) for record in found["records"]} <= written

    def check_unreported(self, state: str, damage: Flip, found: Results | type[KlogError]) -> None:
        name, position, _ = damage
        data, name = self.states[state][name], Path(name).name
        differ = isinstance(found, dict) and {key for key, value in self.expected[state].items() if found[key] != value}
        if name in CHANGED and position in CHANGED[name][0](data):
            assert differ is False or differ <= CHANGED[name][2]
            return
        assert isinstance(found, dict), f"refused with {found}, but verify reports nothing"
        assert name in UNREPORTED, "neither reported nor listed"
        assert position in UNREPORTED[name][0](data), "neither reported nor listed"
        assert not differ, "not reported, and results differ"


def _content(record: Any, loose: bool) -> Any:
    return record._replace(offset=0, leader_epoch=0) if loose else record


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDirectory]:
    logging.disable(logging.CRITICAL)
    yield SmallDirectory(tmp_path / "logs")
    logging.disable(logging.NOTSET)


def check_flips(small: SmallDirectory, state: str, flips: Iterable[Flip]) -> None:
    """Check the flips and print their count. docs/guarantees.md has the total."""
    count = reported = 0
    for damage in flips:
        try:
            reported += small.check(state, damage)
        except BaseException as problem:
            problem.add_note(f"{state}: file, byte and bit: {damage}")
            raise
        count += 1
    assert reported > count // 2
    print(f"count: {count} flipped bits in files of a log.dir, {reported} reported by verify")


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_a_sample_of_flips(small: SmallDirectory, state: str) -> None:
    seed = drawn()
    check_flips(small, state, random.Random(seed).sample(list(small.flips(state, seed)), 300))


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_a_flip_of_every_byte(small: SmallDirectory, state: str) -> None:
    check_flips(small, state, small.flips(state, drawn()))
