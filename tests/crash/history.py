"""A log's history: operations that a seed chooses from one list, and the states that a crash at each moment may leave.

The expected state is kept outside the engine. An `Outcome` is a sequence of batches with bounds for the start and the
end of the log. While an operation runs, several outcomes may be legal. The records, producers, leader epochs and
aborted transactions of a log follow from the batches between its start and its end (P3, P4).

Every history stops and starts a few times: by a stop, or by the death of the process, mostly with unflushed appends.
With `deaths` the process may also die inside an operation, a stop or a start, and the next one goes on with what it finds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import klog
from klog.clock import ManualClock
from klog.codec import CODECS
from klog.disk import Files, LogFile
from klog.errors import KlogError
from tests.crash.opening import Found, LogOpener, Row, View, open_logs, view_of
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch, marker, produced, transactional
from tests.support.crash_files import CrashFiles, dying
from tests.support.crash_states import State
from tests.support.patience import PATIENCE, until
from tests.support.power_cuts import PowerCuts, Tally

TOPIC = "history"
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"klog.io.preallocate": "zeros", "klog.io.preallocate.step.bytes": 4096},
    {"klog.io.preallocate": "none"},
    {"klog.io.write": "dontcache"},
    {"klog.io.write.behind.bytes": 4096},
)


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """A batch as it is in the log. kind: "commit" or "abort" if it is a transaction marker. Equal only to itself, so
    that a tuple of batches is a cheap key."""

    rows: tuple[Row, ...]
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    last_sequence: int = -1
    transactional: bool = False
    kind: str | None = None

    @property
    def base(self) -> int:
        return self.rows[0][0]

    @property
    def next(self) -> int:
        return self.rows[-1][0] + 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A legal state. batches: all batches that were appended, in order. The log begins at or below start, and at or
    above deleted, below which a call has deleted the records. It ends at or below end, and at or above acknowledged if
    the process died, or at or above durable if the power was cut."""

    batches: tuple[Batch, ...] = ()
    start: int = 0
    end: int = 0
    acknowledged: int = 0
    durable: int = 0
    deleted: int = 0

    @functools.cached_property
    def ends(self) -> frozenset[int]:
        """The log ends that are possible at a batch boundary, without regard to the promises."""
        return frozenset({self.batches[0].base if self.batches else self.end, *(one.next for one in self.batches)})

    def between(self, start: int, end: int) -> list[Batch]:
        return [one for one in self.batches if one.next > start and one.next <= end]


def against(one: Outcome, view: View, least: int) -> str | None:
    """Describe how a log contradicts an outcome. None if it does not."""
    if not least <= view.end <= one.end:
        return f"ends at {view.end}, legal is {least} to {one.end}"
    # A truncation that was stopped after the last record at or above the log start leaves an empty log at the stored
    # log start, which may be lower than the one in memory.
    if view.end not in one.ends and view.end != one.end and not view.start == view.end <= one.start:
        return f"ends at {view.end}, inside a batch"
    if view.start > one.start:
        return f"begins at {view.start}, above {one.start}"
    if view.start < one.deleted:
        return f"begins at {view.start}, below {one.deleted}, where records were deleted"
    rows = tuple(row for batch in one.between(view.start, view.end) for row in batch.rows if row[0] >= view.start)
    if view.rows != rows:
        return f"records: {_difference(view.rows, rows)}"
    kept = max(view.start, min(one.start, view.end))  # what is below may be deleted, and then only files remember it
    return (
        _against_epochs(one.between(kept, view.end), view, kept)
        or _against_producers(one, view, kept)
        or _against_aborted(one, view, kept)
    )


def _difference(found: tuple[Row, ...], expected: tuple[Row, ...]) -> str:
    return f"found {sorted(set(found) - set(expected))[:3]}, missing {sorted(set(expected) - set(found))[:3]}"


def _against_epochs(batches: list[Batch], view: View, kept: int) -> str | None:
    if not batches:
        return None  # an epoch without records may remain
    expected: dict[int, int] = {}
    for one in batches:
        expected.setdefault(one.leader_epoch, max(one.base, kept))
    found = {epoch: max(start, kept) for epoch, start in view.epochs}
    least = min(expected)
    found = {epoch: start for epoch, start in found.items() if epoch >= least}
    return None if found == expected else f"epochs {view.epochs}, expected {expected}"


def _against_producers(one: Outcome, view: View, kept: int) -> str | None:
    found = {
        pid: (it.epoch, it.last_sequence, it.last_offset, it.current_txn_first_offset) for pid, it in view.producers
    }
    whole = producers(one.batches, view.end)
    if found == whole.states:
        return None
    for pid in found.keys() | whole.states.keys():
        if pid not in found:
            if whole.last[pid] >= kept:
                return f"producer {pid} is missing"
        elif found[pid] not in _possible(one, pid, view.end, kept):
            return f"producer {pid}: {found[pid]}, expected {whole.states.get(pid)}"
    return None


def _possible(one: Outcome, pid: int, end: int, kept: int) -> list[State4 | None]:
    """The states of a producer that a replay may give, if it begins at any offset up to `kept`."""
    starts = [at for at, batch in enumerate(one.batches) if at == 0 or batch.base <= kept]
    return [producers(one.batches[at:], end).states.get(pid) for at in starts]


def _against_aborted(one: Outcome, view: View, kept: int) -> str | None:
    whole = producers(one.batches, view.end).aborted
    found = {it[:3] for it in view.aborted}
    required = {it for it in whole if it[1] >= kept}
    allowed = {(pid, last) for pid, _, last in whole}
    if required <= found and {(pid, last) for pid, _, last in found} <= allowed:
        return None
    return f"aborted {sorted(found)}, expected {whole}"


State4 = tuple[int, int, int, int | None]
"""Epoch, last sequence, last offset, first offset of the running transaction."""


class Produced(NamedTuple):
    """State that follows from a sequence of batches: the state of each producer, the aborted transactions (producer,
    first and last offset), and the base offset of each producer's last batch."""

    states: dict[int, State4]
    aborted: list[tuple[int, int, int]]
    last: dict[int, int]


@functools.lru_cache(maxsize=4096)
def producers(batches: tuple[Batch, ...], end: int) -> Produced:
    """The state that follows from the batches below `end`."""
    made = Produced({}, [], {})
    for one in batches:
        pid = one.producer_id
        if pid < 0 or one.next > end:
            continue
        made.last[pid] = one.base
        _, sequence, offset, first = made.states.get(pid, (0, -1, -1, None))
        if one.kind is None:
            first = one.base if one.transactional and first is None else first
            made.states[pid] = (one.producer_epoch, one.last_sequence, one.next - 1, first)
        else:
            if one.kind == "abort" and first is not None:
                made.aborted.append((pid, first, one.base))
            made.states[pid] = (one.producer_epoch, sequence, offset, None)
    return made


class History:
    """Runs random operations on a log. legal: the states that a crash at this moment may leave. stops: log ends at
    which a clean-shutdown file may exist. done: the operations so far. unflushed: how lives have ended that had
    unflushed appends."""

    def __init__(self, seed: int, operations: int = 24, *, deaths: bool = False) -> None:
        self.now = Outcome()
        self.legal = [self.now]
        self.stops: set[int] = set()
        self.done: list[str] = []
        self.unflushed: set[str] = set()
        self.rng = random.Random(seed)
        self.durability = self.rng.choice(["os", "os", "sync"])
        self.config = {
            "segment.bytes": self.rng.choice([600, 900, 1500]),
            "segment.index.bytes": self.rng.choice([96, 200]),
            "index.interval.bytes": self.rng.choice([1, 100]),
            "retention.ms": 100_000,
            "file.delete.delay.ms": 1000,
            **self.rng.choice(POLICIES),
        }
        self.clock = ManualClock(NOW)
        self._operations = operations
        self._deaths = deaths
        self._serial = 0
        self._readers: list[Iterator[klog.Record]] = []

    # ---- the run -------------------------------------------------------------------------------------------------

    def run(self, root: Path, files: CrashFiles | None = None) -> None:
        while len(self.done) < self._operations:
            if files is not None and self._deaths and self.rng.random() < 0.3:
                with dying(files, self.rng.randrange(40)):
                    self.done.append("die while opening")
                    abandon(self._opened(root, files))
            self._live(root, files)

    def _opened(self, root: Path, files: Files | None) -> klog.LogManager:
        logs = open_logs(root, files, durability=self.durability, clock=self.clock)
        try:
            if TOPIC not in logs.topics():
                logs.create_topic(TOPIC, config=self.config)
            logs.log(TOPIC)
        except BaseException:
            abandon(logs)
            raise
        return logs

    def _live(self, root: Path, files: CrashFiles | None) -> None:
        """One life of the process: some operations, then a stop or a death."""
        logs = self._opened(root, files)
        try:
            log = logs.log(TOPIC)
            self._goes_on_from(view_of(log))
            self._check(log)
            for _ in range(self.rng.randrange(3, 12)):
                self._one_of([*OPERATIONS], log)
                self._check(log)
            if files is not None and self._deaths and self.rng.random() < 0.6:
                with dying(files, self.rng.randrange(12)):
                    self.done.append("die inside")
                    if self.rng.random() < 0.2:
                        self._stop(logs)
                    else:
                        self._one_of([name for name in OPERATIONS if name not in WITH_THREADS], log)
                return
            ending = self.rng.choice(["stop", "die"])
            if self.now.durable < self.now.end:
                self.unflushed.add(ending)
            self.done.append(ending)
            if ending == "stop":
                self._stop(logs)
        finally:
            self._readers.clear()
            abandon(logs)

    def _one_of(self, names: list[str], log: klog.Log) -> None:
        name = self.rng.choices(names, [OPERATIONS[name][0] for name in names])[0]
        self.done.append(name)
        OPERATIONS[name][1](self, log)

    def _stop(self, logs: klog.LogManager) -> None:
        self.stops.add(self.now.end)
        logs.close()
        self._is(durable=self.now.end)

    def _goes_on_from(self, view: View) -> None:
        """The outcome, of those that were legal, in which a new process has found the log; it is on disk from now on."""
        one = next((one for one in self.legal if against(one, view, one.acknowledged) is None), None)
        assert one is not None, f"a new process finds [{view.start}, {view.end}): {self.done}"
        left = tuple(batch for batch in one.batches if batch.next <= view.end)
        self.now = Outcome(left, max(one.start, view.start), view.end, view.end, view.end, one.deleted)
        self.legal = [self.now]

    def _check(self, log: klog.Log) -> None:
        """Check that the running log is as this model expects."""
        problem = against(self.now, view_of(log), self.now.end)
        assert problem is None, f"the log before any crash {problem}: {self.done}"

    def _is(self, **changes: Any) -> None:
        self.now = dataclasses.replace(self.now, **changes)
        self.legal = [self.now]

    # ---- appends -------------------------------------------------------------------------------------------------

    def _append(self, batches: list[Batch], how: Callable[[], object]) -> None:
        """Call how(), which appends these batches in this order."""
        before = self.now
        end = batches[-1].next
        after = dataclasses.replace(before, batches=(*before.batches, *batches), end=end)
        self.legal = [after]
        how()
        self.now = dataclasses.replace(
            after, acknowledged=end, durable=end if self.durability == "sync" else before.durable
        )
        self.legal = [self.now]

    def _rows(self, count: int, key: bytes | None = b"k", size: int | None = None) -> tuple[Row, ...]:
        self._serial += count
        pad = self.rng.choice([0, 20, 60, 400 // count]) if size is None else size
        return tuple(
            (self.now.end + at, key, b"%d." % (self._serial - count + at) + self.rng.randbytes(pad), NOW)
            for at in range(count)
        )

    def records(self, log: klog.Log) -> None:
        """Append records, compressed by any codec."""
        rows = self._rows(self.rng.choice([1, 1, 2, 5]))
        codec = self.rng.choice([None, *CODECS[1:]])
        one = Batch(rows, self._latest(log))
        self._append([one], lambda: log.append([row[1:] for row in rows], compression=codec))

    def many(self, log: klog.Log) -> None:
        """Append several batches in one call: a crash may keep only the first of them."""
        groups = [self._rows(1, size=30)]
        while len(groups) < self.rng.choice([2, 4]):
            first = groups[-1][-1][0] + 1
            groups.append(tuple((first + row[0] - self.now.end, *row[1:]) for row in self._rows(2, size=30)))
        epoch = self._latest(log)
        data = b"".join(batch_of(rows, leader_epoch=epoch) for rows in groups)
        self._append([Batch(rows, epoch) for rows in groups], lambda: log.append_batches(data, origin="replication"))

    def idempotent(self, log: klog.Log) -> None:
        self._produce(log, self.rng.choice([1, 2]), transaction=False)

    def in_transaction(self, log: klog.Log) -> None:
        self._produce(log, self.rng.choice([7, 8]), transaction=True)

    def _produce(self, log: klog.Log, pid: int, *, transaction: bool) -> None:
        count = self.rng.choice([1, 2, 3])
        known = log.producers.get(pid)
        sequence = 0 if known is None else known.last_sequence + 1
        data = (transactional if transaction else produced)(pid, 0, sequence, count, key=b"p")
        rows = tuple((self.now.end + at, b"p", b"v%d" % at, NOW) for at in range(count))
        one = Batch(rows, self._epoch_for(log), pid, 0, sequence + count - 1, transaction)
        self._append([one], lambda: log.append_batches(data, leader_epoch=one.leader_epoch))

    def end_transaction(self, log: klog.Log) -> None:
        running = [pid for pid, state in log.producers.items() if state.current_txn_first_offset is not None]
        if not running:
            return self.in_transaction(log)
        pid, kind = self.rng.choice(running), self.rng.choice(["commit", "abort"])
        data = marker(pid, 0, kind)
        key, value = marker_row(data)
        one = Batch(((self.now.end, key, value, NOW),), self._epoch_for(log), pid, 0, -1, True, kind)
        return self._append(
            [one], lambda: log.append_batches(data, origin="coordinator", leader_epoch=one.leader_epoch)
        )

    def _latest(self, log: klog.Log) -> int:
        return log.leader_epoch

    def _epoch_for(self, log: klog.Log) -> int:
        """The leader epoch, or sometimes a new one."""
        return self._latest(log) + (self.rng.random() < 0.2)

    def together(self, log: klog.Log) -> None:
        """Group commit: while the sync of one append runs, other appends are queued in a fixed order, and then share a
        write and a sync. Without durability="sync" they are appended one after the other."""
        if self.durability != "sync":
            return self.records(log)
        waiting = self.rng.choice([1, 2, 3])
        epoch = self._latest(log)
        rows = [self._rows(1, size=20)[0] for _ in range(1 + waiting)]
        ours = [((self.now.end + at, *row[1:]),) for at, row in enumerate(rows)]
        before = self.now
        after = dataclasses.replace(
            before, batches=(*before.batches, *(Batch(one, epoch) for one in ours)), end=before.end + len(ours)
        )
        self.legal = [after]

        def append(at: int) -> None:
            info = log.append([ours[at][0][1:]])
            assert info.first_offset == ours[at][0][0]
            with lock:
                least = max(self.legal[0].acknowledged, info.last_offset + 1)
                self.legal = [dataclasses.replace(after, acknowledged=least, durable=least)]

        threads = [threading.Thread(target=append, args=(at,), daemon=True) for at in range(len(ours))]
        lock, files = threading.Lock(), log._core.options.files
        synced = files.fdatasync

        def fdatasync(file: LogFile) -> None:
            for at, thread in enumerate(threads[1:]):
                if thread.ident is None:
                    thread.start()
                    until(lambda at=at: len(log._core.commits) > at, 0.0005)
            synced(file)

        with mock.patch.object(files, "fdatasync", fdatasync):
            append(0)
            for thread in threads[1:]:
                if thread.ident is None:
                    thread.start()
                thread.join(PATIENCE)
                assert not thread.is_alive()
        assert self.legal[0].acknowledged == after.end
        self.now = self.legal[0]
        return None

    # ---- everything else ------------------------------------------------------------------------------------------

    def flush(self, log: klog.Log) -> None:
        log.flush()
        self._is(durable=self.now.end)

    def roll(self, log: klog.Log) -> None:
        log.roll()

    def truncate(self, log: klog.Log) -> None:
        now = self.now
        offset = self.rng.choice(sorted({now.start, *(it for it in now.ends if now.start <= it <= now.end)}))
        if offset not in now.ends or offset < log.segments[0].base_offset:
            return
        deleted = min(now.deleted, offset)
        kept = dataclasses.replace(now, acknowledged=offset, durable=min(now.durable, offset), deleted=deleted)
        self.legal = [kept]
        log.truncate_to(offset)
        left = tuple(it for it in now.batches if it.next <= offset)
        self.now = dataclasses.replace(kept, batches=left, start=min(now.start, offset), end=offset)
        self.legal = [self.now]

    def restart_at(self, log: klog.Log) -> None:
        offset = self.now.end + self.rng.randrange(3)
        anew = Outcome((), offset, offset, offset, offset)
        self.legal = [dataclasses.replace(self.now, acknowledged=0, durable=0, deleted=0), anew]
        log.truncate_fully_and_start_at(offset)
        self.now = anew
        self.legal = [anew]

    def delete_records(self, log: klog.Log) -> None:
        before = self.rng.randrange(self.now.start, self.now.end + 1)
        self.legal = [dataclasses.replace(self.now, start=before)]
        log.delete_records(before)
        self._is(start=before, deleted=before)

    def retention(self, log: klog.Log) -> None:
        now = self.now
        if self.rng.random() < 0.5:
            self.clock.advance(200_000)
        self.legal = [dataclasses.replace(now, start=now.end)]
        log.apply_retention()
        self._is(start=max(now.start, log.log_start_offset), durable=now.end if log.size == 0 else now.durable)

    def time_passes(self, log: klog.Log) -> None:
        """Advance the clock, so that files that are marked for deletion are deleted."""
        self.clock.advance(2000)

    def read(self, log: klog.Log) -> None:
        """Read a snapshot, and read on with readers that earlier operations have opened."""
        with log.snapshot() as reader:
            assert view_of(reader).rows == view_of(log).rows
        self._readers.append(iter(log.read(isolation="log_end", include_control=True)))
        for one in self._readers:
            try:
                next(one, None)
            except KlogError:
                pass  # its position has been truncated or deleted

    def read_beside(self, log: klog.Log) -> None:
        """Append while a reader in another thread reads the whole log again and again: it must always get a prefix. It
        begins no read while an operation of the disk runs, since a power cut there takes long."""
        groups = [self._rows(1, size=20)[0] for _ in range(3)]
        ours = [((self.now.end + at, *row[1:]),) for at, row in enumerate(groups)]
        whole = (*view_of(log).rows, *(rows[0] for rows in ours))
        wrong: list[object] = []
        read, done = threading.Event(), threading.Event()
        files = log._core.options.files
        disk = files.lock if isinstance(files, CrashFiles) else contextlib.nullcontext()

        def reader() -> None:
            try:
                while not done.is_set() or not read.is_set():
                    found = view_of(log).rows
                    if found != whole[: len(found)]:
                        wrong.append(found)
                    read.set()
                    with disk:
                        pass
            except BaseException as error:
                wrong.append(error)
                read.set()

        thread = threading.Thread(target=reader, daemon=True)
        thread.start()
        try:
            assert read.wait(PATIENCE)
            for rows in ours:
                self._append([Batch(rows, self._latest(log))], lambda rows=rows: log.append([rows[0][1:]]))  # type: ignore[misc]
        finally:
            done.set()
            thread.join(PATIENCE)
        assert wrong == [] and not thread.is_alive()


def batch_of(rows: tuple[Row, ...], **fields: Any) -> bytes:
    """Encode the rows as a leader does."""
    return batch([row[2] or b"" for row in rows], base_offset=rows[0][0], **fields)


def marker_row(data: bytes) -> tuple[bytes | None, bytes | None]:
    record = next(iter(next(iter(klog.record.decode(data)))))
    return record.key, record.value


Operation = Callable[[History, klog.Log], None]
OPERATIONS: dict[str, tuple[int, Operation]] = {
    "append records": (6, History.records),
    "append several batches": (3, History.many),
    "append of an idempotent producer": (4, History.idempotent),
    "append in a transaction": (4, History.in_transaction),
    "end of a transaction": (3, History.end_transaction),
    "group commit": (3, History.together),
    "flush": (2, History.flush),
    "roll": (2, History.roll),
    "truncation": (2, History.truncate),
    "restart at an offset": (1, History.restart_at),
    "deletion of records": (2, History.delete_records),
    "retention": (1, History.retention),
    "time": (1, History.time_passes),
    "reads": (2, History.read),
    "reads beside appends": (1, History.read_beside),
}
"""All that a history may do, and how often. Later operations are added here."""

WITH_THREADS = ("group commit", "reads beside appends")
"""The operations with several threads. The process does not die inside them, since its other threads would go on."""


def check_found(found: Found, history: History, *, power: bool) -> None:
    """Check that the log is in one of the legal states."""
    legal = history.legal
    if found.view is None:
        assert any(max(one.acknowledged, one.durable) == 0 for one in legal), "the topic is missing"
        return
    why = [against(one, found.view, one.durable if power else one.acknowledged) for one in legal]
    assert None in why, f"{why} after {history.done}"
    if found.clean:
        assert found.view.end in history.stops, f"a clean-shutdown file, but the log ends at {found.view.end}"


def cut_history(
    place: Path,
    *,
    seed: int,
    randoms: int,
    stride: int = 1,
    share: int = 1,
    deaths: bool = False,
    opened: Callable[[State, Path], None] = lambda _state, _path: None,
    rig: type[PowerCuts[Found]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th operation of the disk. deaths: before that the process may die in any one."""
    history = History(seed, deaths=deaths)
    cuts = rig(
        place,
        LogOpener(TOPIC),
        lambda found, only_died: check_found(found, history, power=not only_died),
        stride=stride,
        first=seed % stride,
        randoms=randoms,
        seed=seed,
        share=share,
        opened=opened,
        promised=lambda: history.legal,
    )
    return cuts.run(history.run)
