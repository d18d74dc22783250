"""durability="sync": appends that wait together share a write and an fdatasync, and each has its own outcome (P2)."""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles
from klog.errors import KlogError, OutOfOrderSequence, StorageOffline
from klog.log.write._append import encoded_whole
from klog.log.write._commit import Ticket
from klog.log.write.append_batches import follow_locked
from klog.log.write.commit import commit_locked
from klog.record import EncodedBatches
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch, marker, produced, transactional
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.faulty_io import FaultyIo
from tests.support.logs import values
from tests.support.patience import PATIENCE, until


class Gated(RealFiles):
    """While the gate is closed, an fdatasync does not return."""

    def __init__(self, table: int = 0) -> None:
        super().__init__(table)
        self.entered, self.gate = threading.Semaphore(0), threading.Event()
        self.gate.set()
        self.syncs = 0

    def fdatasync(self, file: LogFile) -> None:
        self.syncs += 1
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        super().fdatasync(file)

    def close(self) -> None:
        """Close the gate, and forget earlier arrivals."""
        while self.entered.acquire(blocking=False):
            pass
        self.syncs = 0
        self.gate.clear()

    def arrival(self, of: Appender) -> None:
        """Wait until an fdatasync has begun. Fails at once if the append ends without one."""
        until(lambda: self.entered.acquire(blocking=False) or not of.is_alive())
        assert of.is_alive(), "it has ended without an fdatasync"


class Appender(threading.Thread):
    """Runs one call in a thread, and keeps its result or error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.info: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.info = self.call()
        except BaseException as error:
            self.error = error

    def outcome(self) -> Any:
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.info


@pytest.fixture
def files() -> Gated:
    return Gated()


@pytest.fixture
def log(tmp_path: Path, files: Gated) -> Iterator[klog.Log]:
    with opened(tmp_path, files) as log:
        log.append([(None, b"first")])
        yield log
        files.gate.set()


def opened(path: Path, files: Any, **config: Any) -> klog.Log:
    return klog.Log.open(path / "t-0", config=config, clock=ManualClock(NOW), files=files, durability="sync")


def together(log: klog.Log, files: Gated, *calls: Callable[[], Any]) -> list[Appender]:
    """Run the calls as one group, in this order, after a group of one record. Then the gate is open again."""
    files.close()
    leader = Appender(lambda: log.append([(None, b"leads")]))
    files.arrival(leader)
    started = []
    for number, call in enumerate(calls):
        started.append(Appender(call))
        until(lambda number=number: len(log._core.commits) == number + 1)
    files.gate.set()
    leader.outcome()
    for one in started:
        one.join(PATIENCE)
    return started


def put(log: klog.Log, value: bytes) -> Callable[[], Any]:
    return lambda: log.append([(None, value)])


def test_no_append_returns_and_no_record_is_readable_before_the_fdatasync(log: klog.Log, files: Gated) -> None:
    """F24, P2: a stalled fdatasync holds back every append of its group."""
    files.close()
    first = Appender(put(log, b"a"))
    files.arrival(first)
    others = [Appender(put(log, b"b")), Appender(lambda: log.append_batches(batch([b"c"])))]
    until(lambda: len(log._core.commits) == 2)
    assert log.log_end_offset == log.high_watermark == log.last_stable_offset == 1
    assert values(log) == [b"first"] and bytes(log.fetch(0, isolation="log_end").memory()).find(b"a") < 0
    assert all(each.is_alive() for each in (first, *others))
    files.gate.set()
    assert first.outcome().first_offset == 1
    assert {each.outcome().first_offset for each in others} == {2, 3}
    assert len(values(log)) == log.log_end_offset == 4


def test_no_append_succeeds_if_the_disk_has_failed_for_another_log_meanwhile(log: klog.Log, files: Gated) -> None:
    files.close()
    first = Appender(put(log, b"a"))
    files.arrival(first)
    log._core.health.fail("a disk error of another log")
    files.gate.set()
    with pytest.raises(StorageOffline, match="a disk error of another log"):
        first.outcome()
    assert log.log_end_offset == 1


def test_other_partitions_go_on_while_one_waits_for_its_disk(tmp_path: Path) -> None:
    """F24: only the log that syncs waits."""

    class OneStalls(Gated):
        def fdatasync(self, file: LogFile) -> None:
            if "a-0" in file.path:
                super().fdatasync(file)
            else:
                RealFiles.fdatasync(self, file)

    files = OneStalls()
    with klog.open(tmp_path, create=True, durability="sync", files=files, clock=ManualClock(NOW)) as logs:
        for topic in ("a", "b"):
            logs.create_topic(topic)
            logs.append(topic, [(None, b"0")])
        files.close()
        waiting = Appender(lambda: logs.append("a", [(None, b"1")]))
        files.arrival(waiting)
        assert logs.append("b", [(None, b"1")])[0].first_offset == 1
        assert waiting.is_alive() and logs.log("a").log_end_offset == 1
        files.gate.set()
        assert waiting.outcome()[0].first_offset == 1


def test_appends_that_wait_share_one_write_and_one_fdatasync(tmp_path: Path) -> None:
    with FaultyIo() as io:
        files = Gated(io.table)
        with opened(tmp_path, files) as log:
            log.append([(None, b"first")])
            writes = io.calls("pwrite")
            group = together(log, files, *[put(log, b"%d" % number) for number in range(5)])
            assert [one.outcome().first_offset for one in group] == [2, 3, 4, 5, 6]
            assert files.syncs == 2 and io.calls("pwrite") - writes == 2
            assert values(log) == [b"first", b"leads", b"0", b"1", b"2", b"3", b"4"]
            sizes = [log.metrics()[f"CommitGroupSize{each}"] for each in ("Count", "Mean", "Max")]
            assert sizes == [3, 7 / 3, 5]
            assert not log.verify().problems


def test_every_kind_of_append_is_in_the_group(tmp_path: Path, log: klog.Log, files: Gated) -> None:
    """Batches of clients, of coordinators and of replication, and lists."""
    end = log.log_end_offset + 1
    group = together(
        log,
        files,
        lambda: log.append_batches(batch([b"client"])),
        put(log, b"list"),
        lambda: log.append_batches(batch([b"coordinator"]), origin="coordinator"),
        lambda: log.append_batches(klog.record.encode([(None, b"followed")], base_offset=end + 3, leader_epoch=0),
                                   origin="replication"),
    )  # fmt: skip
    assert [one.outcome().first_offset for one in group] == [end, end + 1, end + 2, end + 3]
    assert values(log, end) == [b"client", b"list", b"coordinator", b"followed"]
    assert files.syncs == 2


def test_a_refused_append_in_a_group_affects_no_other(log: klog.Log, files: Gated) -> None:
    log.append_batches(produced(7, 0, 0))
    group = together(
        log,
        files,
        put(log, b"before"),
        lambda: log.append_batches(produced(7, 0, 1)),
        lambda: log.append_batches(produced(7, 0, 1)),
        lambda: log.append_batches(produced(7, 0, 7)),
        lambda: log.append_batches(produced(7, 0, 2)),
        put(log, b"last"),
    )
    before, once, twice, wrong, after, last = group
    assert before.outcome().first_offset == 3
    assert once.outcome().first_offset == twice.outcome().first_offset == 4
    assert twice.outcome().is_duplicate and not once.outcome().is_duplicate
    with pytest.raises(OutOfOrderSequence):
        wrong.outcome()
    assert after.outcome().first_offset == 5 and last.outcome().first_offset == 6
    assert values(log, 3) == [b"before", b"v0", b"v0", b"last"]
    assert [state.last_sequence for state in log.producers.values()] == [2]


def test_a_full_disk_refuses_only_the_appends_that_do_not_fit(tmp_path: Path) -> None:
    """A write of the whole group that fails is rolled back, and each append is tried alone: those that fit succeed."""
    with FaultyIo() as io:
        files = Gated(io.table)
        with opened(tmp_path, files) as log:
            log.append([(None, b"first")])
            files.close()
            leader = Appender(put(log, b"leads"))
            files.arrival(leader)
            group = []
            for number in range(3):
                group.append(Appender(put(log, b"%d" % number)))
                until(lambda number=number: len(log._core.commits) == number + 1)
            io.rule("pwrite", error=errno.ENOSPC, nth=1, times=1)  # the joined one
            io.rule("pwrite", error=errno.ENOSPC, nth=3, times=1)  # the second of three alone
            files.gate.set()
            leader.outcome()
            assert group[0].outcome().first_offset == 2
            with pytest.raises(OSError, match="No space"):
                group[1].outcome()
            assert group[2].outcome().first_offset == 3
            assert log.offline is None and values(log) == [b"first", b"leads", b"0", b"2"]
            assert not log.verify().problems


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failed_fdatasync_fails_its_whole_group_and_is_final(tmp_path: Path, failing: int) -> None:
    """F19, S2: nothing is retried, and records that were acknowledged before are there."""
    acked: list[bytes] = []
    with FaultyIo() as io:
        log = opened(tmp_path, RealFiles(io.table))
        log.append([(None, b"first")])
        io.rule("fdatasync", error=errno.EIO, nth=failing, delay_ms=5)  # the first matching rule applies
        io.rule("fdatasync", delay_ms=5)
        errors: list[BaseException] = []

        def work(worker: int) -> None:
            for number in range(6):
                value = b"%d:%d" % (worker, number)
                try:
                    log.append([(None, value)])
                except (OSError, KlogError) as error:
                    errors.append(error)
                    return
                acked.append(value)

        before = io.calls("fdatasync")
        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert io.calls("fdatasync") - before == failing
        assert len(errors) == 4 and len({id(error) for error in errors}) == 4
        assert any(isinstance(error, OSError) and error.errno == errno.EIO for error in errors)
        assert log.offline is not None and log.log_end_offset == 1 + len(acked)
        assert sorted(values(log, 1)) == sorted(acked)
        with pytest.raises(StorageOffline):
            log.append([(None, b"later")])
        log.close()
        assert io.calls("fdatasync") - before == failing


def test_a_failed_fdatasync_fails_every_append_of_its_group(tmp_path: Path) -> None:
    with FaultyIo() as io:
        files = Gated(io.table)
        log = opened(tmp_path, files)
        io.rule("fdatasync", error=errno.EIO, nth=2)  # the first is that of the append which leads
        group = together(log, files, put(log, b"a"), put(log, b"b"), put(log, b"c"))
        assert [one.info for one in group] == [None] * 3
        assert all(isinstance(one.error, OSError | StorageOffline) for one in group)
        assert values(log) == [b"leads"] and log.offline is not None
        log.close()


@pytest.mark.parametrize("epochs", [(4, 5, 6), (None, None, None)], ids=["new epochs", "the same epoch"])
def test_a_failed_group_leaves_producers_and_transactions_as_they_were(
    tmp_path: Path, epochs: tuple[int | None, ...]
) -> None:
    with FaultyIo() as io:
        log = opened(tmp_path, RealFiles(io.table))
        log.append_batches(produced(7, 0, 0))
        log.append_batches(transactional(9, 0, 0))
        before, stable, known = log.producers, log.last_stable_offset, log.leader_epochs
        io.rule("fdatasync", error=errno.EIO)
        tickets = [
            Ticket(action=lambda: log_append(log, produced(7, 0, 1), epochs[0])),
            Ticket(action=lambda: log_append(log, transactional(9, 0, 1), epochs[1])),
            Ticket(action=lambda: log_append(log, produced(7, 0, 2), epochs[2])),
        ]
        with log._core.lock:
            commit_locked(log._core, tickets)
        assert [type(ticket.error) for ticket in tickets] == [OSError] * 3
        assert log.producers == before and log.last_stable_offset == stable and log.leader_epochs == known
        assert log.log_end_offset == 2 and log.metrics()["MessagesInPerSec"] == 2
        log.close()


def log_append(log: klog.Log, sent: bytes, epoch: int | None = None) -> Any:
    from klog.log.write._append import lead_alone

    return lead_alone(log._core, sent, "client", epoch)


def appends_share(path: Path, sync_ms: int, threads: int, each: int, work: Callable[[klog.Log, int], object]) -> None:
    """Check that, in at least one of five rounds, on average 0.8 of the threads share an fdatasync; each thread appends
    `each` times. On a busy machine, a thread may get no CPU for longer than the others wait for it, so one round is not
    enough."""
    for number in range(5):
        with (
            FaultyIo() as io,
            klog.Log.open(path / f"t-{number}", durability="sync", files=RealFiles(io.table)) as log,
        ):
            log.append([(None, b"first")])
            io.rule("fdatasync", delay_ms=sync_ms)
            before = io.calls("fdatasync")
            together = threading.Barrier(threads)

            def run(worker: int, log: klog.Log = log, together: threading.Barrier = together) -> None:
                together.wait(PATIENCE)
                work(log, worker)

            running = [threading.Thread(target=run, args=(worker,)) for worker in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join(PATIENCE)
            syncs = io.calls("fdatasync") - before
            io.heal()
            assert log.log_end_offset == log._core.commits.appends == 1 + threads * each
            for worker in range(threads):
                mine = [record.value for record in log.read(1) if record.key == b"%d" % worker]
                assert mine == [b"%d" % number for number in range(each)]
        if syncs <= each / 0.8:
            return
    pytest.fail(f"{threads * each / syncs:.1f} appends per fdatasync")


def test_a_group_of_many_threads_is_nearly_all_of_them(tmp_path: Path) -> None:
    """Each thread's records are in order."""

    def work(log: klog.Log, worker: int) -> None:
        for number in range(15):
            log.append([(b"%d" % worker, b"%d" % number)])

    appends_share(tmp_path, 5, 8, 15, work)


def test_appenders_that_work_for_a_tenth_of_an_fdatasync_share_the_next_one(tmp_path: Path) -> None:
    """The first of them that appends again waits for the others, but only until no further append arrives for a
    moment."""

    def work(log: klog.Log, worker: int) -> None:
        for number in range(12):
            log.append([(b"%d" % worker, b"%d" % number)])
            time.sleep(0.004)

    appends_share(tmp_path, 40, 6, 12, work)


def test_a_lone_append_never_waits_for_others(log: klog.Log, files: Gated) -> None:
    for number in range(5):
        log.append([(None, b"%d" % number)])
    assert log._core.commits.groups == log._core.commits.appends == 6 and log._core.commits.largest == 1


def test_ctrl_c_takes_a_waiting_append_out_of_the_queue(log: klog.Log, files: Gated) -> None:
    files.close()
    leader = Appender(put(log, b"leads"))
    files.arrival(leader)
    Appender(lambda: (until(lambda: len(log._core.commits) == 1), os.kill(os.getpid(), signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        log.append([(None, b"never")])
    assert len(log._core.commits) == 0
    files.gate.set()
    leader.outcome()
    log.append([(None, b"last")])
    assert values(log) == [b"first", b"leads", b"last"]


def test_ctrl_c_in_the_leader_leaves_the_other_appends_to_the_next_leader(tmp_path: Path) -> None:
    """The group that was being synced is rolled back, durably; its appends that are not interrupted go in later."""

    class Interrupting(Gated):
        def fdatasync(self, file: LogFile) -> None:
            super().fdatasync(file)
            if threading.current_thread() is threading.main_thread() and len(others) == 3 and not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt

    files, others, interrupted = Interrupting(), list[Appender](), list[bool]()
    with opened(tmp_path, files) as log:
        log.append([(None, b"first")])
        files.close()
        first = Appender(put(log, b"holds"))
        files.arrival(first)

        def open_while_the_main_thread_waits() -> None:
            until(lambda: len(log._core.commits) == 1)  # it waits, so it leads the next group
            for number in range(3):
                others.append(Appender(put(log, b"%d" % number)))
                until(lambda number=number: len(log._core.commits) == number + 2)
            files.gate.set()

        helper = Appender(open_while_the_main_thread_waits)
        with pytest.raises(KeyboardInterrupt):
            log.append([(None, b"interrupted")])
        helper.outcome()
        assert first.outcome().first_offset == 1
        assert [other.outcome().first_offset for other in others] == [2, 3, 4]
        assert log.offline is None and not log.verify().problems
        assert values(log) == [b"first", b"holds", b"0", b"1", b"2"]
        assert log.metrics()["MessagesInPerSec"] == 5


def test_an_append_in_a_listener_commits_alone(log: klog.Log) -> None:
    """It runs under the log's lock, in the leader's own thread."""
    notified: list[int] = []

    def listen(offset: int) -> None:
        notified.append(offset)
        if len(notified) == 1:
            log.append([(None, b"from the listener")])

    log.set_offsets_listener(listen)
    log.append([(None, b"a")])
    log.set_offsets_listener(None)
    assert values(log) == [b"first", b"a", b"from the listener"] and notified == [2, 3]


def test_the_newest_record_is_a_readable_one(log: klog.Log, files: Gated) -> None:
    """An append that waits for its fdatasync is not readable yet, and hides no readable record."""
    log.append([(None, b"old", NOW - 50), (None, b"young", NOW - 10)])
    files.close()
    waits = Appender(lambda: log.append([(None, b"youngest", NOW + 50)]))
    files.arrival(waits)
    before = log.list_offset("max_timestamp")
    files.gate.set()
    assert waits.outcome().first_offset == 3
    assert before is not None and (before.timestamp, before.offset) == (NOW, 0)
    assert log.list_offset("max_timestamp").offset == 3


def random_calls(rng: random.Random, round_number: int) -> list[Callable[[klog.Log], Any]]:
    """Appends of every kind, some of them refused."""
    sequences = {1: 0, 2: 0}
    calls: list[Callable[[klog.Log], Any]] = []
    for number in range(rng.randrange(1, 9)):
        kind = rng.choice(["list", "list", "large", "client", "producer", "producer", "wrong", "again", "epoch", "bad"])
        value = b"%d" % number + b"x" * rng.choice([0, 10, 300])
        producer = rng.choice([1, 2])
        if kind == "list":
            calls.append(lambda log, value=value: ticket_of(log, [(None, value)] * rng_count(value)))
        elif kind == "large":
            calls.append(lambda log, value=value: ticket_of(log, [(None, value * 2)]))
        elif kind in ("producer", "again"):
            sequence = max(0, sequences[producer] - (kind == "again"))
            sequences[producer] = max(sequences[producer], sequence + 1)
            sent = produced(producer, 0, sequence)
            calls.append(lambda log, sent=sent: Ticket(action=lambda: log_append(log, sent)))
        elif kind == "wrong":
            sent = produced(producer, 0, sequences[producer] + 5)
            calls.append(lambda log, sent=sent: Ticket(action=lambda: log_append(log, sent)))
        elif kind == "epoch":
            sent, epoch = batch([value]), 10 * round_number + number
            calls.append(lambda log, sent=sent, epoch=epoch: Ticket(action=lambda: log_append(log, sent, epoch)))
        elif kind == "bad":
            sent = batch([value])[:-1] + b"?"
            calls.append(lambda log, sent=sent: Ticket(action=lambda: log_append(log, sent)))
        else:
            sent = batch([value])
            calls.append(lambda log, sent=sent: Ticket(action=lambda: log_append(log, sent)))
    return calls


def rng_count(value: bytes) -> int:
    return 1 + len(value) % 3


def ticket_of(log: klog.Log, records: list[Any]) -> Ticket:
    group, now = encoded_whole(log._core, records, None)
    return Ticket(group, now)


@pytest.mark.parametrize("seed", range(25))
def test_a_group_has_the_same_effect_as_its_appends_one_by_one(tmp_path: Path, seed: int) -> None:
    """The same results, refusals, bytes, producers, epochs and segments."""
    config = {"segment.bytes": 1000, "segment.index.bytes": 200, "index.interval.bytes": 100}
    (tmp_path / "one").mkdir()
    (tmp_path / "all").mkdir()
    with opened(tmp_path / "one", RealFiles(), **config) as alone, opened(
        tmp_path / "all", RealFiles(), **config
    ) as grouped:  # fmt: skip
        rng = random.Random(seed)
        for round_number in range(3):
            calls = random_calls(rng, round_number)
            expected = [call(alone) for call in calls]
            got = [call(grouped) for call in calls]
            for ticket in expected:
                with alone._core.lock:
                    commit_locked(alone._core, [ticket])
            with grouped._core.lock:
                commit_locked(grouped._core, got)
            for one, other in zip(expected, got, strict=True):
                assert (one.info, type(one.error), str(one.error)) == (other.info, type(other.error), str(other.error))
        assert [s.base_offset for s in alone.segments] == [s.base_offset for s in grouped.segments]
        assert [Path(s.path).read_bytes() for s in alone.segments] == [
            Path(s.path).read_bytes() for s in grouped.segments
        ]
        assert alone.producers == grouped.producers and alone.leader_epochs == grouped.leader_epochs
        assert alone.log_end_offset == grouped.log_end_offset and not grouped.verify().problems


@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_appends_of_threads_survive_a_power_cut(tmp_path: Path, seed: int) -> None:
    """P2: the power is cut at an operation of a run of four threads; every acknowledged append is on disk."""
    rng = random.Random(seed)
    for round_number in range(6):
        path = tmp_path / f"run-{round_number}"
        path.mkdir()
        files = CrashFiles(None)
        log = opened(path, files, **{"segment.bytes": 700, "segment.index.bytes": 200, "index.interval.bytes": 100})
        log.append([(b"-", b"first")])
        acked: list[tuple[bytes, bytes]] = []
        files.stop_at = files.steps + rng.randrange(1, 60)

        def work(worker: int) -> None:
            for number in range(8):
                row = b"%d" % worker, b"%d" % number + b"x" * 40
                try:
                    log.append([row])  # noqa: B023
                except (PowerCut, OSError, KlogError):
                    return
                acked.append(row)  # noqa: B023

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert log.log_end_offset == 1 + len(acked) or log.offline is not None
        abandon(log)
        files.stop_at = None
        for name, state in files.states(path, tmp_path / f"states-{round_number}", seed + round_number, 2):
            with klog.Log.open(state / "t-0", clock=ManualClock(NOW)) as found:
                rows = [(record.key, record.value) for record in found.read(1)]
                missing = [row for row in acked if row not in rows]
                assert not missing, f"seed={seed} round_number={round_number} state={name} last ops: {files.log[-6:]}"
                for worker in range(4):
                    mine = [int(value.rstrip(b"x")) for key, value in rows if key == b"%d" % worker]
                    assert mine == list(range(len(mine)))


@pytest.mark.parametrize("begins", [False, True])
def test_an_interrupted_group_leaves_no_transaction_and_no_entry(tmp_path: Path, begins: bool) -> None:
    """C4. begins: the transaction that the group aborts begins in the same append, as a follower's may."""
    with klog.Log.open(tmp_path / "t-0", durability="sync", clock=ManualClock(NOW)) as log:
        log.append([(None, b"a")])
        sent = transactional(9, 0, 0, base_offset=1)
        if not begins:
            log.append_batches(sent, origin="replication")
        stable, end, before = log.last_stable_offset, log.log_end_offset, log.producers
        sent = (sent if begins else b"") + marker(9, 0, "abort", base_offset=2)

        def interrupt() -> None:
            raise KeyboardInterrupt

        abort = Ticket(action=lambda: follow_locked(log._core, EncodedBatches(sent), "replication", NOW))
        with log._core.lock, pytest.raises(KeyboardInterrupt):
            commit_locked(log._core, [abort, Ticket(action=interrupt)])
        assert (log.last_stable_offset, log.log_end_offset, log.producers) == (stable, end, before)
        path = tmp_path / "t-0" / "00000000000000000000.txnindex"
        assert not path.exists() or path.read_bytes() == b""
        if begins:
            log.append([(None, b"b")])
        else:
            log.append_batches(sent, origin="replication")
            assert [each.last_offset for each in log.aborted_transactions()] == [2]
        assert log.last_stable_offset == log.log_end_offset
