"""Random scripts of producers and coordinators: a log, the same log after a crash, and a follower have the same state.

A refused append raises one of the errors that a client receives, and leaves the log unchanged.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import klog
from klog.clock import ManualClock
from klog.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence, TransactionCoordinatorFenced
from klog.record import Record
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch, marker, produced, transactional
from tests.support.in_memory import memory

REFUSALS = (InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence, TransactionCoordinatorFenced)
CONFIG = {"segment.bytes": 600, "index.interval.bytes": 100, "segment.index.bytes": 480}


class Data(NamedTuple):
    pid: int
    count: int
    txn: bool
    epoch: int  # added to the producer's epoch
    gap: int  # in the producer's sequence


class End(NamedTuple):
    pid: int
    kind: str
    epoch: int
    coordinator: int


class Plain(NamedTuple):
    count: int


class Other(NamedTuple):
    what: str


PIDS = st.integers(1, 3)
STEPS = st.one_of(
    st.builds(Data, PIDS, st.integers(1, 4), st.booleans(), st.sampled_from([0] * 12 + [1, -1]),
              st.sampled_from([0] * 12 + [1, -1, -2])),
    st.builds(Data, PIDS, st.integers(1, 3), st.just(True), st.just(0), st.just(0)),
    st.builds(End, PIDS, st.sampled_from(["commit", "abort", "abort"]), st.sampled_from([0] * 8 + [1, -1]),
              st.sampled_from([0] * 8 + [1, -1])),
    st.builds(Plain, st.integers(1, 3)),
    st.builds(Other, st.sampled_from(["roll", "reopen", "crash", "again", "epoch"])),
)  # fmt: skip


class State(NamedTuple):
    """The state that is compared."""

    end: int
    epochs: list[tuple[int, int]]
    producers: dict[int, klog.ProducerState]
    aborted: list[Any]
    stable: int
    committed: list[Record]


def state_of(log: klog.Log) -> State:
    return State(
        log.log_end_offset,
        log.leader_epochs,
        log.producers,
        log.aborted_transactions(),
        log.last_stable_offset,
        list(log.read("earliest", isolation="read_committed")),
    )


class Script:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = self.open()
        self.next: dict[int, tuple[int, int]] = {}  # pid -> epoch, sequence, of a correct producer
        self.coordinator = 0
        self.leader_epoch = 0
        self.sent: bytes | None = None

    def open(self, *, clean: bool | None = None) -> klog.Log:
        return klog.Log.open(self.path, config=CONFIG, clock=ManualClock(NOW), clean_shutdown=clean)

    def step(self, step: Any) -> None:
        if isinstance(step, Other):
            self.other(step.what)
            return
        if isinstance(step, Plain):
            self.log.append_batches(batch(step.count), leader_epoch=self.leader_epoch)
            return
        epoch, sequence = self.next.get(step.pid, (0, 0))
        if isinstance(step, End):
            ended = marker(
                step.pid, max(epoch + step.epoch, 0), step.kind, coordinator=self.coordinator + step.coordinator
            )
            self.sent = None  # a marker of a new epoch clears the remembered batches
            if self.append(ended, "coordinator"):
                self.coordinator = max(self.coordinator, self.coordinator + step.coordinator)
                if step.epoch > 0:
                    self.next[step.pid] = (epoch + step.epoch, 0)
            return
        first = 0 if step.epoch > 0 else max(sequence + step.gap, 0)
        make = transactional if step.txn else produced
        sent = make(step.pid, max(epoch + step.epoch, 0), first, step.count)
        if self.append(sent, "client"):
            self.sent = sent
            state = self.log.producers[step.pid]
            self.next[step.pid] = (state.epoch, state.last_sequence + 1)

    def append(self, sent: bytes, origin: Any) -> bool:
        before = state_of(self.log)
        try:
            self.log.append_batches(sent, origin=origin, leader_epoch=self.leader_epoch)
        except REFUSALS:
            after = state_of(self.log)
            assert after._replace(epochs=before.epochs) == before
            return False
        return True

    def other(self, what: str) -> None:
        if what == "roll":
            self.log.roll()
        elif what == "epoch":
            self.leader_epoch += 1
        elif what == "again":
            if self.sent is not None:
                before = state_of(self.log)
                info = self.log.append_batches(self.sent, leader_epoch=self.leader_epoch)
                assert info.is_duplicate and state_of(self.log)._replace(epochs=before.epochs) == before
        else:
            before = state_of(self.log)
            if what == "crash":
                abandon(self.log)
            else:
                self.log.close()
            self.log = self.open(clean=what == "reopen")
            after = state_of(self.log)
            assert after._replace(epochs=before.epochs) == before
            # An epoch without batches does not survive a crash.
            assert [entry for entry in before.epochs if entry[1] < before.end] == after.epochs
            self.sent = None  # after a reload only the last batch is known


@pytest.mark.timeout(1800)
@given(st.lists(STEPS, max_size=40), st.integers(1, 700))
def test_a_crash_and_a_follower_keep_the_logs_state(steps: list[Any], fetch_bytes: int) -> None:
    """LC6, PS24: run a script of data, markers, rolls and crashes; crash once more; copy the log to a follower by fetches."""
    folder = Path(tempfile.mkdtemp(dir=memory()))
    try:
        script = Script(folder / "t-0")
        for step in steps:
            script.step(step)
        script.other("crash")
        leader = script.log
        (folder / "follower").mkdir()
        with klog.Log.open(folder / "follower" / "t-0", config=CONFIG, clock=ManualClock(NOW)) as follower:
            while follower.log_end_offset < leader.log_end_offset:
                fetched = leader.fetch(follower.log_end_offset, fetch_bytes)
                follower.append_batches(fetched.memory(), origin="replication")
            assert state_of(follower) == state_of(leader)
            assert not follower.verify().problems
        assert not leader.verify().problems
        leader.close()
    finally:
        shutil.rmtree(folder)
