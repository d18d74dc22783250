"""Producers whose transactions interleave over partitions, with restarts at any step, and crashes between the record of
a decision and its markers.

A model has the values that each transaction wrote. A read_committed reader always sees only values of committed
transactions, and in the end all of them. Producer epochs never decrease. After enough time no transaction is open.
"""

from __future__ import annotations

import errno
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klog.errors import KlogError
from klog.protocol import ErrorCode
from tests.support.examples import examples
from tests.support.in_memory import memory
from tests.support.transactions import OFFSETS, TOPIC, Cluster, Killed, Producer

PARTITIONS = 3
NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
partitions = st.integers(0, PARTITIONS - 1)
Value = tuple[int, bytes]  # partition, value

# Errors of a client whose transaction was ended by another producer or by a timeout.
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory(dir=memory())
        self.cluster = Cluster(Path(self.home.name), partitions=PARTITIONS, transactional_id_expiration_ms=2**62)
        self.producers: dict[str, Producer] = {}
        self.zombies: list[Producer] = []
        self.written: dict[str, list[Value]] = defaultdict(list)  # of the open transaction
        self.committed: set[Value] = set()
        self.uncommitted: set[Value] = set()
        self.epochs: dict[str, tuple[int, int]] = {}
        self.count = 0

    @initialize(versions=st.tuples(*[st.sampled_from([1, 2]) for _ in NAMES]))
    def begin(self, versions: tuple[int, ...]) -> None:
        for name, version in zip(NAMES, versions, strict=True):
            self.producers[name] = Producer(self.cluster, name, version)
            assert self.producers[name].init() is ErrorCode.NONE

    # ---- clients ---------------------------------------------------------------------------------------------------

    @rule(name=names, partition=partitions)
    def send(self, name: str, partition: int) -> None:
        self.count += 1
        value = b"%s%d" % (name.encode(), self.count)
        error = self.try_to_send(self.producers[name], partition, value)
        if error is ErrorCode.NONE:
            self.written[name].append((partition, value))
        else:
            assert error in FENCED
            self.uncommitted.add((partition, value))

    def try_to_send(self, producer: Producer, partition: int, value: bytes) -> ErrorCode:
        try:
            return producer.send(partition, value)
        except KlogError as error:
            return next(each for each in ErrorCode if each == error.code)

    @rule(name=names)
    def send_offsets(self, name: str) -> None:
        assert self.producers[name].add_offsets() in {ErrorCode.NONE, *FENCED}

    @rule(name=names, committed=st.booleans())
    def end(self, name: str, committed: bool) -> None:
        producer = self.producers[name]
        error = producer.end(committed)
        if error is ErrorCode.NONE:
            self.decided(name, committed)
        else:
            assert error in FENCED

    @rule(name=names, committed=st.booleans())
    def repeat_the_end(self, name: str, committed: bool) -> None:
        """The response was lost, so the client sends the request again. The result must be the same."""
        producer = self.producers[name]
        known = producer.id, producer.epoch
        error = producer.end(committed)
        if error is not ErrorCode.NONE:
            return
        self.decided(name, committed)
        now = producer.id, producer.epoch
        producer.id, producer.epoch = known
        assert producer.end(committed) in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
        producer.id, producer.epoch = known
        assert producer.end(not committed) in (ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS)
        producer.id, producer.epoch = now

    @rule(name=names)
    def init(self, name: str) -> None:
        """Start another instance of the application. It fences the old one, and aborts its open transaction."""
        old = self.producers[name]
        new = Producer(self.cluster, name, old.version)
        error = new.init()
        assert error in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
        if error is ErrorCode.NONE:
            self.decided(name, False)
            self.producers[name] = new
            self.zombies.append(old)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), committed=st.booleans())
    def zombie(self, data: st.DataObject, committed: bool) -> None:
        producer = data.draw(st.sampled_from(self.zombies))
        value = b"zombie%d" % self.count
        error = self.try_to_send(producer, 0, value)
        assert error in {*FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}, error
        assert producer.end(committed) in FENCED

    # ---- the broker ------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.cluster.start()

    @rule(name=names, committed=st.booleans(), where=st.sampled_from([*range(PARTITIONS), None]))
    def crash_in_the_end(self, name: str, committed: bool, where: int | None) -> None:
        """The process dies before a marker is written, and the client sends the request again after the restart."""
        partition = (OFFSETS, 0) if where is None else (TOPIC, where)
        self.cluster.topics.faults[partition] = Killed()
        producer = self.producers[name]
        try:
            error = producer.end(committed)
            died = False
        except Killed:
            died = True
        self.cluster.topics.faults.clear()
        if died:
            self.cluster.start()
            error = producer.end(committed)
            assert error is ErrorCode.NONE
        if error is ErrorCode.NONE:
            self.decided(name, committed)
        else:
            assert error in FENCED

    @rule(name=names, where=partitions)
    def crash_in_an_init(self, name: str, where: int) -> None:
        self.cluster.topics.faults[TOPIC, where] = Killed()
        try:
            self.init(name)
        except Killed:
            self.cluster.topics.faults.clear()
            self.cluster.start()
            self.init(name)
        self.cluster.topics.faults.clear()

    @rule(partition=partitions)
    def a_disk_fails(self, partition: int) -> None:
        self.cluster.topics.faults[TOPIC, partition] = OSError(errno.EIO, "bad")

    @rule()
    def disks_are_repaired(self) -> None:
        self.cluster.topics.faults.clear()

    @rule(seconds=st.sampled_from([1, 15, 100]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.clock.advance(seconds * 1000)
        for name in NAMES:
            if self.cluster.state(name) in ("CompleteAbort", "PrepareAbort") and self.written[name]:
                self.decided(name, False)

    # ---- invariants ------------------------------------------------------------------------------------------------

    def decided(self, name: str, committed: bool) -> None:
        (self.committed if committed else self.uncommitted).update(self.written.pop(name, []))

    def read(self) -> set[Value]:
        found = [(number, value) for number in range(PARTITIONS) for value in self.cluster.values(number)]
        assert len(set(found)) == len(found)
        return {(number, value) for number, value in found if value is not None}

    @invariant()
    def readers_see_only_what_is_committed(self) -> None:
        assert self.read() <= self.committed

    @invariant()
    def epochs_never_go_back(self) -> None:
        for metadata in self.cluster.registry.all():
            now = metadata.producer_id, metadata.producer_epoch
            assert now >= self.epochs.get(metadata.transactional_id, now)
            self.epochs[metadata.transactional_id] = now

    def teardown(self) -> None:
        try:
            self.cluster.topics.faults.clear()
            self.time_passes(100)
            for number in range(PARTITIONS):
                assert not self.cluster.is_hanging(number)
            assert not self.cluster.is_hanging(0, OFFSETS)
            assert self.read() == self.committed
            for metadata in self.cluster.registry.all():
                assert metadata.state in ("Empty", "CompleteCommit", "CompleteAbort")
        finally:
            self.cluster.close()
            self.home.cleanup()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=examples(deep=500, most=30), stateful_step_count=40)
