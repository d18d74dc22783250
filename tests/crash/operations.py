"""Everything that the engine does with files, as operations that may fail or be killed at any point, and the checks of
the directories that they leave.

An operation runs in a process of its own, from `run` to its end. It writes notes to a Book, which is outside the
directory: each note describes what a stop after it may leave. Then `check` opens the directory with a healthy disk.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pickle
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.broker.admin.dynamic_configs import DynamicConfigs
from klog.cleaner import read_audit
from klog.clock import ManualClock
from klog.coordinator.transactions.producer_ids import ProducerIds
from klog.disk import DirectReader, DirectWriter, Files, FileSink, NewFile, RealFiles
from klog.errors import CorruptLog, KlogError
from klog.handover import handover, metadata
from klog.log.load import reindex
from klog.log.staged import layout
from klog.manager.by_hand import compact_directory, purge_directory
from klog.manager.staging import abort_staged
from klog.metrics import snapshot
from klog.repairing import repair
from klog.security import Authorizer, ClientQuotas, SecurityConfig, Users
from klog.security.acl_types import Acl, AclFilter, PatternType, Permission, ResourceType
from klog.security.acl_types import Operation as AclOperation
from klog.security.config import AUTHORIZER
from klog.spark.jobs import clear_staging
from klog.spark.reindexing import Reindexing, locked, rebuild
from klog.spark.table_manifest import DataFile, Manifest
from klog.spark.table_store import TableStore
from tests.cleaner import test_overflow as overflow
from tests.crash import staged
from tests.crash.compaction import CONFIG as COMPACTED
from tests.crash.compaction import Cleaning, Setup, TaskSetup
from tests.crash.life import Life, check_found, open_state, steps
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch, marker, transactional
from tests.support.numbered_names import numbered_names
from tests.support.own_json import unchecked_in
from tests.support.rounds import checkpoint_round, flush_round, retention_round

Content = dict[str, list[bytes]]


class Book:
    """The notes of an operation, in memory that forked processes share. Writing a note makes no system call, so no kill
    can interrupt it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1 << 28)  # pages that are never written take no memory
        self._length = memoryview(self._memory).cast("Q")

    def note(self, what: object) -> None:
        data, end = pickle.dumps(what), 8 + self._length[0]
        self._memory[end : end + len(data)] = data
        self._length[0] += len(data)

    def notes(self) -> list[Any]:
        found, end = [], 8 + self._length[0]
        self._memory.seek(8)
        while self._memory.tell() < end:
            found.append(pickle.load(self._memory))
        return found


@dataclass(frozen=True)
class Operation:
    """prepare fills an empty directory. run works on a copy of it. check raises if the directory that is left breaks a
    promise. run_on: the same as run, on given Files, which may lose power (jobs.py); None if not everything that run
    has noted is durable."""

    prepare: Callable[[Path], object]
    run: Callable[[Path, Book], object]
    check: Callable[[Path, list[Any]], object]
    run_on: Callable[[Path, Book, Files], object] | None = None


OPERATIONS: dict[str, Operation] = {}


def operation(prepare: Callable[[Path], object], check: Callable[[Path, list[Any]], object]) -> Any:
    def add(run: Callable[[Path, Book], object]) -> Callable[[Path, Book], object]:
        OPERATIONS[run.__name__] = Operation(prepare, run, check)
        return run

    return add


def durable_operation(prepare: Callable[[Path], object], check: Callable[[Path, list[Any]], object]) -> Any:
    """Register an operation whose notes also hold after a power cut. The operation gets the Files as an argument."""

    def add(run: Callable[[Path, Book, Files], object]) -> Callable[[Path, Book, Files], object]:
        def on_the_real_disk(root: Path, book: Book) -> None:
            run(root, book, RealFiles())

        OPERATIONS[run.__name__] = Operation(prepare, on_the_real_disk, check, run)
        return run

    return add


def nothing(_root: Path) -> None:
    pass


@contextlib.contextmanager
def opened(root: Path, **options: Any) -> Iterator[klog.LogManager]:
    """An open manager: closed at the end of the block, or abandoned after an exception."""
    logs = klog.open(root, create=True, **{"clock": ManualClock(NOW), **options})
    try:
        yield logs
        logs.close()
    finally:
        abandon(logs)


def content(root: Path, **options: Any) -> Content:
    """The values of all logs. It also checks that the engine opens the directory, appends, and closes cleanly."""
    with opened(root, **options) as logs:
        found = {log.name: [record.value or b"" for record in log.read()] for log in logs.logs()}
        for log in logs.logs():
            assert [p for p in log.verify().problems if p.kind not in ("leftover", "gap")] == []
            end = log.log_end_offset
            assert log.append([(b"after", b"after", NOW)]).first_offset == end
    return found


def one_of(root: Path, notes: list[Any]) -> None:
    """Check that the log.dir has one of the contents of the last note. b"..." in a content: the values after it may be
    missing."""
    found = content(root)
    assert any(_fits(found, legal) for legal in notes[-1]), (
        f"illegal: { ({name: len(values) for name, values in found.items()}) }"
    )


def _fits(found: Content, legal: Content) -> bool:
    if found.keys() != legal.keys():
        return False
    for name, values in legal.items():
        least = values.index(b"...") if b"..." in values else len(values)
        most = [value for value in values if value != b"..."]
        if found[name] != most[: len(found[name])] or len(found[name]) < least:
            return False
    return True


# ---- repair ----------------------------------------------------------------------------------------------------------


def damaged(root: Path) -> None:
    two_topics(root / "data")
    log = max((root / "data" / "t-0").glob("*.log"), key=lambda path: (path.stat().st_size > 0, path.name))
    with log.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")


def is_there_or_repaired(root: Path, _notes: list[Any]) -> None:
    """F2 of klog/repairing/repair.py. The copy has the original bytes: no check may have changed them."""
    found = repair(root / "data", clock=ManualClock(NOW + 1))
    assert all(entry["error"] is None for entry in found["partitions"])
    values = content(root / "data")["t-0"]
    assert values == TWELVE[: len(values)] and len(values) >= 1


@operation(damaged, is_there_or_repaired)
def repair_a_partition(root: Path, _book: Book) -> None:
    repair(root / "data", clock=ManualClock(NOW))


def far_base_offset(root: Path) -> None:
    two_topics(root / "data")
    log = max((root / "data" / "t-0").glob("*.log"), key=lambda path: (path.stat().st_size > 0, path.name))
    content = bytearray(log.read_bytes())
    *_, last = klog.record.decode(bytes(content))
    content[last.position + 1] ^= 0x20
    log.write_bytes(content)


def is_restored(root: Path, _notes: list[Any]) -> None:
    found = repair(root / "data", clock=ManualClock(NOW + 1))
    assert all(entry["error"] is None for entry in found["partitions"])
    assert content(root / "data")["t-0"] == TWELVE


@operation(far_base_offset, is_restored)
def repair_a_base_offset(root: Path, _book: Book) -> None:
    repair(root / "data", clock=ManualClock(NOW))


# ---- the life of a log -----------------------------------------------------------------------------------------------


class KeptLife(Life):
    """A Life that notes its legal states in a Book."""

    def __init__(self, book: Book) -> None:
        self.book = book
        super().__init__()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name in ("legal", "stops") and hasattr(self, "stops"):
            self.book.note((self.legal, self.stops))

    def stop(self, logs: klog.LogManager) -> None:
        self.stops = [*self.stops, self.now.end]
        super().stop(logs)


def is_legal_life(root: Path, notes: list[Any]) -> None:
    life = Life()
    if notes:
        life.legal, life.stops = notes[-1]
    if root.exists() and any(root.iterdir()):
        check_found(open_state(root), life, power=False)


@operation(nothing, is_legal_life)
def append_roll_flush_truncate_delete_records(root: Path, book: Book) -> None:
    for _ in steps(root, RealFiles(), KeptLife(book)):
        pass


SMALL = {"segment.bytes": 700, "segment.index.bytes": 200, "index.interval.bytes": 100, "cleanup.policy": "delete"}
WRITE_CONFIGS: dict[str, dict[str, Any]] = {
    "default": {},
    "zeros": {"klog.io.preallocate": "zeros", "klog.io.preallocate.step.bytes": 4096},
    "whole": {"preallocate": True},
    "none": {"klog.io.preallocate": "none"},
    "behind": {"segment.bytes": 60_000, "klog.io.write.behind.bytes": 4096},
    "dontcache": {"klog.io.write": "dontcache"},
    "direct": {"klog.io.write": "direct", "segment.bytes": 400_000},
    "direct_read": {"klog.io.read": "direct", "segment.bytes": 400_000},
}


def is_prefix(root: Path, notes: list[Any]) -> None:
    values: list[bytes] = []
    least = 0
    for kind, some in notes:
        if kind == "appending":
            values += some
        elif kind == "undone":  # the last ones
            del values[-len(some) :]
        else:
            least += len(some)
    found = content(root)
    assert set(found) <= {"t-0"} and (found or not least)
    there = found.get("t-0", [])
    assert there == values[: len(there)], f"not a prefix: {len(there)} of {len(values)}"
    assert len(there) >= least, f"{len(there)} left of {least}"


def appends(root: Path, book: Book, config: dict[str, Any], durability: str, value_bytes: int) -> None:
    with opened(root, durability=durability) as logs:
        logs.create_topic("t", config={**SMALL, **config})
        log = logs.log("t")
        for number in range(9):
            values = [b"%d.%d" % (number, i) + b"y" * value_bytes for i in range(1 + number % 4)]
            book.note(("appending", values))
            info = log.append([(None, value) for value in values], compression="lz4" if number == 5 else None)
            assert info.last_offset + 1 == log.log_end_offset
            book.note(("appended", values))
            if number % 3 == 2:
                log.flush()
            assert next(iter(log.read(info.first_offset))).value == values[0]


def _writer(name: str, durability: str) -> None:
    def run(root: Path, book: Book) -> None:
        size = {"direct": 70_000, "direct_read": 70_000, "behind": 5000}.get(name, 90)
        appends(root, book, WRITE_CONFIGS[name], durability, size)

    run.__name__ = f"append_{name}_{durability}"
    operation(nothing, is_prefix)(run)


for _name in WRITE_CONFIGS:
    _writer(_name, "os")
_writer("default", "sync")
_writer("direct", "sync")


# ---- transactions, snapshots, checkpoints ----------------------------------------------------------------------------


def committed(root: Path, notes: list[Any]) -> None:
    is_prefix(root, notes)
    with opened(root) as logs:
        for log in logs.logs():
            assert b"v1" not in [record.value for record in log.read(isolation="read_committed")]


@operation(nothing, committed)
def transactions_and_snapshots(root: Path, book: Book) -> None:
    with opened(root) as logs:
        logs.create_topic("t", config=SMALL)
        log = logs.log("t")
        for number in range(12):
            values, data, origin = _encoded(log.log_end_offset, number)
            book.note(("appending", values))
            log.append_batches(data, origin=origin, leader_epoch=None if origin == "coordinator" else number)
            book.note(("appended", values))
        log.truncate_to(log.log_end_offset)
        log.roll()


def _encoded(end: int, number: int) -> tuple[list[bytes], bytes, Any]:
    values = [b"%d.%d" % (number, i) + b"y" * 60 for i in range(1 + number % 3)]
    if number % 4 == 0:
        return values, batch(values), "client"
    if number % 4 == 1:
        return [b"v0", b"v1"], transactional(1, number, 0, 2), "client"
    if number % 4 == 2:
        return [], marker(1, number - 1, "abort"), "coordinator"
    data = batch(values, base_offset=end, leader_epoch=number)
    end += len(values)
    data += transactional(2, number, 0, 1, base_offset=end) + marker(2, number, "abort", base_offset=end + 1)
    return [*values, b"v0"], data, "replication"


def two_topics(root: Path) -> None:
    with opened(root) as logs:
        for name in ("t", "u"):
            logs.create_topic(name, partitions=2, config={**SMALL, "file.delete.delay.ms": 1000, "retention.ms": -1})
        for log in logs.logs():
            for number in range(12):
                log.append([(b"k", b"%d" % number * 40)])


def interrupted_addition(root: Path) -> None:
    two_topics(root)
    path = root / "klog-topics.json"
    document = unchecked_in(path)
    document["topics"]["t"]["state"] = "adding"
    path.write_text(json.dumps(document))
    (root / "t-2").mkdir()


def killed_two_topics(root: Path) -> None:
    """The log.dir of a killed process: without a clean-shutdown file, and with a torn batch."""
    two_topics(root)
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").unlink()
    last = max((root / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + batch([b"torn"], base_offset=12)[:40])
    min((root / "t-1").glob("*.index")).unlink()
    max((root / "u-0").glob("*.timeindex")).write_bytes(b"\xff" * 24)
    for path in (root / "u-1").glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])
    (root / "u-1" / "partition.metadata").write_bytes(b"")


TWELVE = [b"%d" % number * 40 for number in range(12)]
TWO_TOPICS: Content = {f"{topic}-{number}": TWELVE for topic in "tu" for number in (0, 1)}


def unchanged(root: Path, _notes: list[Any]) -> None:
    assert content(root) == TWO_TOPICS


@operation(killed_two_topics, unchanged)
def recover(root: Path, _book: Book) -> None:
    for recovery in ("strict", "kafka"):
        with opened(root, recovery=recovery) as logs:
            assert all(len(list(log.read())) == 12 for log in logs.logs())


@operation(two_topics, unchanged)
def checkpoints(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        log = logs.log("t")
        flush_round(logs, log)
        log.update_high_watermark(7)
        checkpoint_round(logs)
        log.update_high_watermark(12)
        checkpoint_round(logs)


@operation(two_topics, lambda root, notes: one_of(root, notes or [[TWO_TOPICS]]))
def delete_records_and_retention(root: Path, book: Book) -> None:
    clock = ManualClock(NOW)
    with opened(root, clock=clock) as logs:
        deleted = {**TWO_TOPICS, "t-0": TWELVE[6:]}
        book.note([TWO_TOPICS, deleted])
        logs.log("t").delete_records(6)
        kept = [{**deleted, "u-1": TWELVE[n:]} for n in range(13)]
        book.note(kept)
        logs.log("u", 1).update_config(logs.log("u", 1).config.replace({"retention.bytes": 1000}))
        retention_round(logs)
        clock.advance(2000)
        more = [{name: [*v, b"x"] if name == "u-1" else v for name, v in one.items()} for one in kept]
        book.note([*kept, *more])
        logs.log("u", 1).append([(b"k", b"x")])
        book.note(more)


# ---- topics ----------------------------------------------------------------------------------------------------------


@operation(two_topics, lambda root, notes: one_of(root, notes or [[TWO_TOPICS]]))
def create_and_delete_topics(root: Path, book: Book) -> None:
    clock = ManualClock(NOW)
    with opened(root, clock=clock, config={"log.segment.delete.delay.ms": 1000}) as logs:
        new = {**TWO_TOPICS, "new-0": [], "new-1": []}
        book.note([TWO_TOPICS, new])
        logs.create_topic("new", partitions=2)
        less = {name: values for name, values in new.items() if not name.startswith("t-")}
        book.note([new, less])
        logs.delete_topic("t")
        book.note([less])
        clock.advance(600_000)
        logs.log("u", 0).append([])
    with opened(root) as logs:
        assert "t" not in logs.topics()


def in_two_directories(root: Path) -> None:
    (root / "a").mkdir()
    (root / "b").mkdir()
    with opened_two(root) as logs:
        logs.create_topic("t", config={**SMALL, "file.delete.delay.ms": 1000})
        for number in range(12):
            logs.log("t").append([(b"k", b"%d" % number * 40)])
        if Path(logs.log("t").path).parent.name == "b":
            logs.move("t", 0, root / "a")


@contextlib.contextmanager
def opened_two(root: Path) -> Iterator[klog.LogManager]:
    logs = klog.open([root / "a", root / "b"], create=True, clock=ManualClock(NOW))
    try:
        yield logs
        logs.close()
    finally:
        abandon(logs)


def in_one_place(root: Path, _notes: list[Any]) -> None:
    with opened_two(root) as logs:
        assert [record.value for record in logs.log("t").read()] == TWELVE
        assert len(list(root.glob("*/t-0"))) == 1
        assert not list(root.glob("*/*-future"))


@operation(in_two_directories, in_one_place)
def move_between_directories(root: Path, _book: Book) -> None:
    with opened_two(root) as logs:
        logs.move("t", 0, root / "b")
        assert [record.value for record in logs.log("t").read()] == TWELVE
        logs.move("t", 0, root / "a")
        retention_round(logs)


# ---- a log by itself -------------------------------------------------------------------------------------------------


def one_partition(root: Path) -> None:
    with klog.Log.open(root / "t-0", config=SMALL, clock=ManualClock(NOW)) as log:
        for number in range(12):
            log.append([(b"k", b"%d" % number * 40)])
            if number == 6:
                log.append_batches(transactional(1, 0, 0, 1))
                log.append_batches(marker(1, 0, "abort"), origin="coordinator")


def is_one_partition(root: Path, notes: list[Any]) -> None:
    if not notes and not (root / "t-0").exists():
        return
    with klog.Log.open(root / "t-0", config=SMALL, clock=ManualClock(NOW)) as log:
        found = [record.value for record in log.read(isolation="read_committed")]
        assert found == TWELVE[: len(found)] and len(found) >= (notes[-1] if notes else 12)
        assert [p for p in log.verify().problems if p.kind not in ("leftover", "gap", "checkpoint")] == []


@operation(one_partition, is_one_partition)
def log_open_and_close(root: Path, _book: Book) -> None:
    for _ in range(2):
        log = klog.Log.open(root / "t-0", config=SMALL, clock=ManualClock(NOW))
        try:
            log.append([])
            log.roll()
            log.close()
        finally:
            abandon(log)
    with klog.Log.open(root / "t-0", read_only=True, config=SMALL, clock=ManualClock(NOW)) as log:
        assert [record.value for record in log.read(isolation="read_committed")] == TWELVE


@operation(nothing, is_one_partition)
def log_create(root: Path, book: Book) -> None:
    book.note(0)
    log = klog.Log.open(root / "t-0", config=SMALL, clock=ManualClock(NOW))
    try:
        for number in range(4):
            log.append([(b"k", TWELVE[number])])
            book.note(number + 1)
        log.close()
    finally:
        abandon(log)


# ---- cleaning --------------------------------------------------------------------------------------------------------


def _cleaning(name: str, setup: Setup) -> None:
    cleanings: list[Cleaning] = []

    def prepare(root: Path) -> None:
        cleanings[:] = [Cleaning(root.parent / f"{name} cleaned", setup)]
        shutil.copytree(cleanings[0].original, root, dirs_exist_ok=True)

    def run(root: Path, _book: Book) -> None:
        cleanings[0].setup.clean(root, abandoned=True)

    def check(root: Path, _notes: list[Any]) -> None:
        for token in layout.writers_in(os.listdir(root)):
            clear_staging(str(root), token)  # if the process survives, the driver of the tasks is still alive
        cleanings[0].check(root)

    run.__name__ = name
    operation(prepare, check)(run)


_cleaning("clean", Setup(False, COMPACTED, {}))
_cleaning("clean_of_a_manager", Setup(True, COMPACTED, {}, roll=True))


def keyed(root: Path) -> None:
    with opened(root) as logs:
        logs.create_topic("t", config={**COMPACTED, "segment.bytes": 1000})
        for number in range(30):
            logs.log("t").append([(b"k%d" % (number % 5), b"%d" % number), (b"secret", b"s%d" % number)])


def keyed_check(root: Path, notes: list[Any]) -> None:
    with opened(root) as logs:
        found = {record.key: record.value for record in logs.log("t").read()}
    assert {key: value for key, value in found.items() if key != b"secret"} == {b"k%d" % (n % 5): b"%d" % n for n in range(25, 30)}  # fmt: skip
    outcomes = [line["outcome"] for line in read_audit(root)]
    if outcomes[-1:] == ["done"] or "purged" in notes:
        assert b"secret" not in found
    (_one,) = purge_directory(root, b"secret")
    assert _one.error is None
    with opened(root) as logs:
        assert b"secret" not in {record.key for record in logs.log("t").read()}


@durable_operation(keyed, keyed_check)
def purge_and_compact_by_hand(root: Path, book: Book, files: Files) -> None:
    clock = ManualClock(NOW)
    for outcome in (
        *compact_directory(root, clock=clock, files=files),
        *purge_directory(root, b"secret", clock=clock, files=files),
    ):
        if outcome.error is not None:
            raise outcome.error
    assert {line["outcome"] for line in read_audit(root)} <= {"begun", "done"}
    book.note("purged")


@durable_operation(keyed, keyed_check)
def compact_and_purge(root: Path, book: Book, files: Files) -> None:
    with opened(root, files=files) as logs:
        log = logs.log("t")
        log.compact(roll=True)
        log.purge_key(b"secret", roll=True)
        book.note("purged")


def overflowed(root: Path) -> None:
    overflow.overflowed(root / "t-0")


def overflow_check(root: Path, _notes: list[Any]) -> None:
    with overflow.opened(root / "t-0") as log:
        expected = {record.key: record.value for record in overflow_records()}
        assert {record.key: record.value for record in log.read()} == expected


def overflow_records() -> Iterator[klog.Record]:
    for data in (overflow.batches(0, 2), *(overflow.batches(s, 12 - 3 * n) for n, s in enumerate(overflow.FAR)),
                 overflow.batches(3 * overflow.BEYOND, 1)):  # fmt: skip
        for one in klog.record.decode(data):
            yield from one


@operation(overflowed, overflow_check)
def clean_of_an_overflowed_segment(root: Path, _book: Book) -> None:
    log = overflow.opened(root / "t-0")
    try:
        log.compact()
        log.close()
    finally:
        abandon(log)


@operation(overflowed, overflow_check)
def recover_an_overflowed_segment(root: Path, _book: Book) -> None:
    log = klog.Log.open(root / "t-0", config=overflow.CONFIG, clean_shutdown=False, clock=ManualClock(NOW),
                        recovery="kafka")  # fmt: skip
    try:
        log.close()
    finally:
        abandon(log)


def half_swapped(root: Path) -> None:
    from tests.log.test_leftovers import NEW, half_way

    half_way(root / "t-0", ("", ".deleted", "gone"), NEW, 24)


def swap_check(root: Path, _notes: list[Any]) -> None:
    from tests.log.test_leftovers import KEPT, read

    assert read(root / "t-0") >= KEPT
    assert not [path.name for path in (root / "t-0").iterdir() if path.suffix in (".swap", ".cleaned", ".tmp")]


@operation(half_swapped, swap_check)
def finish_a_swap(root: Path, _book: Book) -> None:
    log = klog.Log.open(root / "t-0", clean_shutdown=False, config={"cleanup.policy": "compact"})
    try:
        log.close()
    finally:
        abandon(log)


def lost_segments(root: Path) -> None:
    """t-0 has lost its first segment, t-1 one in the middle; the indexes of these segments exist."""
    for name, number in (("t-0", 0), ("t-1", 1)):
        log = klog.Log.open(
            root / name, config={"segment.bytes": 200, "index.interval.bytes": 0}, clock=ManualClock(NOW)
        )
        for value in TWELVE:
            log.append([(b"k", value)])
        log.close()
        sorted((root / name).glob("*.log"))[number].unlink()


def lost_segments_check(root: Path, _notes: list[Any]) -> None:
    with pytest.raises(CorruptLog, match="the segment that begins at"):
        klog.Log.open(root / "t-1")
    with klog.Log.open(root / "t-0") as log:
        found = [record.value for record in log.read()]
    assert found == TWELVE[-len(found) :] and len(found) > 6


@operation(lost_segments, lost_segments_check)
def start_without_segments(root: Path, _book: Book) -> None:
    lost_segments_check(root, [])


# ---- staged jobs -----------------------------------------------------------------------------------------------------


def aborted_or_committed(root: Path, notes: list[Any]) -> None:
    """Abort the job if it is not committed, as Spark does after a commit that raised."""
    abort_staged(str(root), staged.TOKEN)
    assert staged.check(root) or not notes, "committed, and gone"


@durable_operation(staged.fill, aborted_or_committed)
def stage_and_commit(root: Path, book: Book, files: Files) -> None:
    with opened(root, files=files):
        pass  # finishes or removes what an earlier process has left
    if staged.content(root, read_only=True) == staged.OLD:
        staged.commit(root, staged.stage(root, files), files)
    book.note("committed")
    assert staged.content(root, read_only=True) == staged.NEW


def committed_only(root: Path) -> None:
    staged.fill(root)
    job, files = staged.stage(root), staged.StopsAtManifest()
    with contextlib.suppress(staged.Stop):
        staged.commit(root, job, files)


def is_committed(root: Path, _notes: list[Any]) -> None:
    assert staged.check(root)


@durable_operation(committed_only, is_committed)
def finish_a_commit(root: Path, _book: Book, files: Files) -> None:
    klog.open(root, clock=ManualClock(staged.NOW), files=files).close()


@operation(committed_only, lambda root, _notes: staged.check(root))
def finish_a_commit_of_one_log(root: Path, _book: Book) -> None:
    for topic, partition in staged.TARGETS:
        klog.Log.open(root / f"{topic}-{partition}", config=staged.CONFIG, clock=ManualClock(staged.NOW)).close()


def staged_only(root: Path) -> None:
    staged.fill(root)
    staged.stage(root)


def is_aborted(root: Path, notes: list[Any]) -> None:
    if not notes:
        abort_staged(str(root), staged.TOKEN)
    assert not staged.check(root)


@durable_operation(staged_only, is_aborted)
def abort_a_staged_job(root: Path, book: Book, files: Files) -> None:
    abort_staged(str(root), staged.TOKEN, files=files)
    book.note("aborted")


def staged_elsewhere(root: Path) -> None:
    staged.fill(root)
    staged.stage(root, targets=[("appended", 1), ("overwritten", 0)])


def is_repeated(root: Path, notes: list[Any]) -> None:
    if "committed" not in notes:
        abort_staged(str(root), staged.TOKEN)
    assert staged.check(root) or "committed" not in notes


@durable_operation(staged_elsewhere, is_repeated)
def abort_a_batch_and_repeat_it_elsewhere(root: Path, book: Book, files: Files) -> None:
    """The stream begins again without the rest of the abort, and its rows go to other partitions."""
    runs = len(book.notes())
    book.note("begun")
    if not runs:
        abort_staged(str(root), staged.TOKEN, files=files)
    if staged.content(root, read_only=True) == staged.OLD:
        staged.commit(root, staged.stage(root, files, attempt=runs), files)
    book.note("committed")


# ---- reading ---------------------------------------------------------------------------------------------------------


@operation(two_topics, unchanged)
def named_readers(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        with logs.reader("t", "billing") as reader:
            assert len(list(reader)) == 24
        with logs.reader("t", "billing") as reader:
            assert not list(reader) and reader.members
            reader.delete()
        with logs.reader("t", "member", group="all") as member, logs.reader("t", "other", group="all") as other:
            assert len(list(member)) == 12
            assert len(member.members) == 2
            other.close()
            member.delete()


def later_records_are_read(root: Path, _notes: list[Any]) -> None:
    """No record that is appended later is skipped, whatever records the log has lost."""
    with opened(root) as logs:
        ends = {log.partition: log.log_end_offset for log in logs.logs() if log.topic == "t"}
        for log in logs.logs():
            log.append([(None, b"later %d" % number, NOW) for number in range(9)])
        with logs.reader("t", "billing") as reader:
            later = [record.value for record in reader if record.offset >= ends[record.partition or 0]]
        assert sorted(later) == sorted(2 * [b"later %d" % number for number in range(9)]), (
            f"{reader} from {ends}: {later}"
        )


def positions_hold(root: Path, notes: list[Any]) -> None:
    """A committed position is durable."""
    with opened(root) as logs:
        ends = {log.partition: log.log_end_offset for log in logs.logs() if log.topic == "t"}
        assert min(ends.values()) >= 12
        promised = notes[-1] if notes else {}
        committed = logs.readers()["billing"]["t"] if promised else {}
        for number, offset in promised.items():
            assert committed[number] >= min(offset, ends[number]), f"{committed}, {promised} promised"
    later_records_are_read(root, notes)


@durable_operation(two_topics, positions_hold)
def commits_of_a_named_reader(root: Path, book: Book, files: Files) -> None:
    with opened(root, files=files) as logs, logs.reader("t", "billing") as reader:
        for number in range(4):
            logs.append("t", [(b"%d" % at, b"%d" % number * 40) for at in range(6)])
            if number == 1:
                logs.log("t").flush()
            assert list(reader)
            reader.commit()
            book.note(reader.committed)


@durable_operation(two_topics, later_records_are_read)
def truncations_beside_a_named_reader(root: Path, _book: Book, files: Files) -> None:
    with opened(root, files=files) as logs, logs.reader("t", "billing") as reader:
        list(reader)
        reader.commit()
        for end in (9, 12):
            logs.log("t").truncate_to(end)
            logs.log("t").append([(b"k", b"new %d" % end)] * 9)
            assert [record.value for record in reader if record.partition == 0][-9:] == [b"new %d" % end] * 9


# ---- the broker's own files ------------------------------------------------------------------------------------------


def broker_files(root: Path) -> None:
    with opened(root) as logs:
        logs.create_topic("t", config=SMALL)
    Users(str(root)).set_password("ann", "SCRAM-SHA-256", "pencil")


NAMES = ("bob", "cid")
SECURITY = SecurityConfig.of({"authorizer.class.name": AUTHORIZER})


def rule_of(user: str) -> Acl:
    return Acl(ResourceType.TOPIC, PatternType.LITERAL, "t", f"User:{user}", "*", AclOperation.READ, Permission.ALLOW)


def broker_files_hold(root: Path, notes: list[Any]) -> None:
    """Everything that a returned call has stored is there. The call after it has stored all of its changes or none."""
    done = {
        name: max([0, *(n for kind, n in notes if kind == name)])
        for name in ("user", "rule", "quota", "config", "group")
    }
    lock, clock = str(root), ManualClock(NOW)
    with opened(root) as logs:
        dynamic = DynamicConfigs(logs)
        found = {
            "user": len(Users(lock).names()) - 1,
            "rule": len(Authorizer(lock, SECURITY).find(AclFilter())),
            "quota": len(ClientQuotas(lock, SECURITY, clock).quotas()),
            "config": int(dynamic.default.get("log.cleaner.backoff.ms", 0)),
            "group": len(dynamic.groups),
        }
        assert all(done[name] <= count <= done[name] + 1 for name, count in found.items()), (found, done)
        given = [pid for kind, pid in notes if kind == "producer id"]
        assert ProducerIds(RealFiles(), lock, list).next() > max(given, default=-1), "a producer id is given out again"
        dynamic.alter(per_broker=False, changes={"log.cleaner.backoff.ms": "9"})
    Users(lock).set_password("dan", "SCRAM-SHA-256", "pencil")


@durable_operation(broker_files, broker_files_hold)
def files_of_a_broker(root: Path, book: Book, files: Files) -> None:
    """Users, access rules, quotas, dynamic configurations and producer ids."""
    directory = str(root)
    with opened(root, files=files) as logs:
        users, rules = Users(directory, files), Authorizer(directory, SECURITY, files)
        quotas, dynamic = ClientQuotas(directory, SECURITY, ManualClock(NOW), files), DynamicConfigs(logs, files)
        for number, user in enumerate(NAMES, 1):
            users.set_password(user, "SCRAM-SHA-256", "pencil")
            book.note(("user", number))
            rules.change(add=[rule_of(user)])
            book.note(("rule", number))
            quotas.change({(("user", user),): {"producer_byte_rate": 5.0}})
            book.note(("quota", number))
            if int(dynamic.default.get("log.cleaner.backoff.ms", 0)) <= number:
                dynamic.alter(per_broker=False, changes={"log.cleaner.backoff.ms": str(number)})
            book.note(("config", number))
            dynamic.alter_group(user, {"consumer.session.timeout.ms": "50000"})
            book.note(("group", number))
            book.note(("producer id", ProducerIds(files, directory, list).next()))


def handed_over(root: Path, notes: list[Any]) -> None:
    """W1: klog opens the directory as before, and another handover finishes the work; it writes meta.properties
    last."""
    if notes:
        assert "cluster.id" in (root / "data" / "meta.properties").read_text()
    assert content(root / "data") == TWO_TOPICS
    assert handover(root / "data", clock=ManualClock(NOW), properties_out="-")["topics"]


@durable_operation(lambda root: two_topics(root / "data"), handed_over)
def hand_over(root: Path, book: Book, files: Files) -> None:
    found = handover(root / "data", clock=ManualClock(NOW), files=files)
    assert [topic["topic"] for topic in found["topics"]] == ["t", "u"]
    book.note("handed over")
    assert metadata(root / "data").topics.keys() == {"t", "u"}


# ---- a materialized table --------------------------------------------------------------------------------------------


def an_empty_log_dir(root: Path) -> None:
    with opened(root / "data"):
        pass


def table_at(root: Path, files: Files | None = None) -> TableStore:
    return TableStore(str(root / "tables" / "t"), files)


def table_after(number: int) -> Manifest:
    """The manifest after this commit: each commit writes one file, in the slot of the commit before the last one."""
    made = [DataFile(f"{at:012}", 0, at % 2, 0, 1, 1, 900) for at in range(1, number + 1)]
    return Manifest(number, "t", None, False, {}, {}, {}, tuple(made[-2:]), tuple(file.name for file in made[-3:-2]))


def is_shown(root: Path, notes: list[Any]) -> None:
    """A1 to A4 of klog/spark/table_store.py: every commit that has returned is there; the next one may be there too."""
    store, done = table_at(root), max(notes, default=0)
    with store.locked() as found:
        number = 0 if found is None else found.number
        assert number in (done, done + 1)
        names = [file.name for file in table_after(number).files]
        assert [file.name for file in (found.files if found else ())] == sorted(names, key=lambda name: int(name) % 2)
        shown = sorted(path.read_bytes() for path in Path(store.target).glob("*.parquet"))
        assert shown == sorted(name.encode() * 75 for name in names)
        assert all(Path(store.path(name)).read_bytes() == name.encode() * 75 for name in names)


@durable_operation(an_empty_log_dir, is_shown)
def commits_of_a_table(root: Path, book: Book, files: Files) -> None:
    store = table_at(root, files)
    for number in range(1, 4):
        with store.locked() as found:
            if found is not None and found.number >= number:  # an earlier process has committed it
                book.note(number)
                continue
            made = table_after(number)
            file = files.create(store.path(made.files[-1].name))
            try:
                FileSink(file).write(made.files[-1].name.encode() * 75)
                files.fsync(file)
            finally:
                file.close()
            store.commit(made)
            book.note(number)


# ---- topics and partitions -------------------------------------------------------------------------------------------


@operation(interrupted_addition, unchanged)
def undo_an_addition_of_partitions(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        assert logs.topics() == {"t": [0, 1], "u": [0, 1]}


@operation(two_topics, lambda root, _notes: None)
def add_partitions(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        logs.add_partitions("t", 4)


@operation(two_topics, unchanged)
def read_in_every_way(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        log = logs.log("t")
        _reads(log)
        log.warm_up()
        log.page_cache(cells=2)
        logs.metrics(page_cache=True)
        logs.health()
        snapshot(logs)
        shown = logs._repr_html_()
        assert "12" in shown or "Error: " in shown  # an error is shown as text
    with opened(root, read_only=True) as logs:
        log = logs.log("t")
        _reads(log)
        with opened(root):
            logs.health()
        log.refresh()
        with opened(root) as writer:
            writer.log("t").append([])
            log.refresh()
            writer.log("t").roll()
            log.refresh()  # compares the closed segments
        log.metrics(page_cache=True)


def _reads(log: klog.Log) -> None:
    assert [record.value for record in log.read()] == TWELVE
    assert log.count() == 12
    assert log.list_offset("max_timestamp") is not None
    assert log.offset_for_timestamp(0) is not None
    assert log.legacy_fetch_offsets_before(NOW * 2, 3)
    _send(log, *socket.socketpair())


def _send(log: klog.Log, here: socket.socket, there: socket.socket) -> None:
    data = log.fetch(0, 1 << 20)
    got: list[bytes] = []

    def receive() -> None:
        while piece := there.recv(1 << 16):
            got.append(piece)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        data.send_to(here)
    finally:
        here.close()
        thread.join()
        there.close()
    assert b"".join(got) == bytes(data.memory())


def large(root: Path) -> None:
    with opened(root) as logs:
        logs.create_topic("t", config={"segment.bytes": 400_000})
        for number in range(12):
            logs.log("t").append([(b"k", b"%d" % number * 40_000)])


def is_large(root: Path, _notes: list[Any]) -> None:
    with opened(root) as logs:
        assert [record.value for record in logs.log("t").read()] == [b"%d" % number * 40_000 for number in range(12)]


@operation(large, is_large)
def send_to_a_socket_and_a_pipe(root: Path, _book: Book) -> None:
    with opened(root) as logs:
        _send(logs.log("t"), *socket.socketpair())
        read, write = os.pipe()
        thread = threading.Thread(target=_drain, args=(read,))
        thread.start()
        try:
            with os.fdopen(write, "wb", buffering=0) as pipe:
                logs.log("t").fetch(0, 1 << 20).send_to(pipe)
        finally:
            thread.join()


def _drain(fd: int) -> None:
    while os.read(fd, 1 << 16):
        pass
    os.close(fd)


@operation(nothing, lambda _root, _notes: None)
def direct_files(root: Path, _book: Book) -> None:
    data = b"0123456789abcdef" * 1000
    with DirectWriter(RealFiles(), str(root / "file")) as writer:
        writer.write(data)
        writer.sync()
    with DirectReader(RealFiles(), str(root / "file")) as reader:
        assert bytes(reader.read(0, len(data))) == data


def an_old_file(root: Path) -> None:
    (root / "file").write_bytes(b"old")
    (root / "file.tmp").write_bytes(b"left by a crash")


def old_or_new(root: Path, _notes: list[Any]) -> None:
    assert (root / "file").read_bytes() in (b"old", b"new" * 1000)


@operation(an_old_file, old_or_new)
def new_files(root: Path, _book: Book) -> None:
    for commits in (False, True):
        with NewFile(str(root / "file"), RealFiles(), overwrite=True) as file:
            for _ in range(10):
                file.write(b"new" * 100)
            if commits:
                file.commit()
    with contextlib.suppress(FileExistsError):
        NewFile(str(root / "file"), RealFiles())


@operation(two_topics, lambda root, _notes: _some_are_gone(root))
def rename_and_delete_a_partition(root: Path, _book: Book) -> None:
    log = klog.Log.open(root / "t-1", config=SMALL, clock=ManualClock(NOW))
    try:
        log.rename_dir("t-1.0123456789abcdef0123456789abcdef-delete")
        log.delete()
    finally:
        abandon(log)


def _some_are_gone(root: Path) -> None:
    found = content(root)
    assert {name: values for name, values in found.items() if name != "t-1"} == {
        name: values for name, values in TWO_TOPICS.items() if name != "t-1"
    }
    assert found.get("t-1", []) in ([], TWELVE)


def damaged_indexes(root: Path) -> None:
    one_partition(root)
    first = min((root / "t-0").glob("*.index"))
    first.write_bytes(b"\xff" * 64)


@operation(damaged_indexes, is_one_partition)
def rebuild_indexes_beside(root: Path, _book: Book) -> None:
    beside = root / "beside"
    beside.mkdir()
    with klog.Log.open(root / "t-0", read_only=True, config=SMALL, clock=ManualClock(NOW)) as log:
        rebuilt = reindex.rebuild_indexes(log._core, {segment.base_offset for segment in log.segments}, str(beside))
    reindex.put_in_place(str(root / "t-0"), rebuilt, str(beside), RealFiles())


def closed_indexes(root: Path) -> dict[str, bytes]:
    """The indexes of closed segments."""
    found = {}
    for partition in root.glob("*-*"):
        bases = sorted(path.stem for path in partition.glob("*.log"))[:-1]
        paths = [partition / (base + suffix) for base in bases for suffix in (".index", ".timeindex")]
        found.update({str(path.relative_to(root)): path.read_bytes() for path in paths if path.exists()})
    return found


def two_topics_with_damaged_indexes(root: Path) -> None:
    two_topics(root)
    SOUND_INDEXES.clear()
    SOUND_INDEXES.update(closed_indexes(root))
    for number, name in enumerate(sorted(SOUND_INDEXES)):
        if number % 3 == 0:
            (root / name).unlink()
        elif number % 3 == 1:
            (root / name).write_bytes(b"\xff" + SOUND_INDEXES[name][1:])


SOUND_INDEXES: dict[str, bytes] = {}


def _reindex(root: Path, files: Files) -> None:
    """Reindex as klog.spark.reindex does: tasks build the indexes, the driver puts them in place."""
    with numbered_names(getattr(files, "steps", 0)), locked(str(root), files) as token:
        reindexing = Reindexing(str(root), None, token, files)
        for item in reindexing.items(1 << 12):
            outcomes = rebuild(pickle.loads(pickle.dumps(item.value)), files)
            reindexing.take(pickle.loads(pickle.dumps(outcomes)))
        for row in reindexing.rows():
            if row[-1] is not None:
                raise KlogError(row[-1])


def have_sound_indexes(root: Path, notes: list[Any]) -> None:
    """R2 of klog/spark/reindexing.py: what has returned stays, and the next call does the rest."""
    if notes:
        assert closed_indexes(root) == SOUND_INDEXES
    for token in layout.writers_in(os.listdir(root)):
        clear_staging(str(root), token)  # if the process survives, the driver of the tasks is still alive
    _reindex(root, RealFiles())
    assert closed_indexes(root) == SOUND_INDEXES
    assert content(root) == TWO_TOPICS
    assert not list(root.rglob("*klog-staging*"))


@durable_operation(two_topics_with_damaged_indexes, have_sound_indexes)
def reindex_by_tasks(root: Path, book: Book, files: Files) -> None:
    _reindex(root, files)
    book.note("reindexed")


@operation(nothing, is_prefix)
def create_a_log_dir_in_a_new_directory(root: Path, _book: Book) -> None:
    with opened(root / "a" / "b") as logs:
        logs.create_topic("t")


_cleaning("clean_by_tasks", TaskSetup(True, COMPACTED, {}, roll=True))
