"""TxnOffsetCommit: offsets are pending until the marker of their transaction is written."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klog.coordinator.transactions import TransactionConfig, TransactionCoordinator
from klog.protocol import ApiKey, ErrorCode, messages
from tests.coordinator.harness import TOPIC, Call, Groups, groups
from tests.coordinator.test_offsets import fetch

T0, T1 = ("t", 0), ("t", 1)
OK = ErrorCode.NONE
PENDING = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize("version", range(6))
def test_pending_offsets_apply_after_the_transaction_is_committed(g: Groups, version: int) -> None:
    g.commit("g", {T0: 1})
    assert g.txn_commit("g", {T0: 5, T1: 6}, version=version) == {T0: OK, T1: OK}
    assert g.offsets("g") == {T0: 1}
    assert g.offsets("g", stable=True) == {T0: PENDING}
    found = fetch(g, 9, "g", {"t": [0, 1, 2]}, require_stable=True)
    assert [each.error_code for each in found.topics[0].partitions] == [PENDING, PENDING, 0]
    g.end("g", True)
    assert g.offsets("g", stable=True) == {T0: 5, T1: 6}


def test_an_abort_drops_pending_offsets(g: Groups) -> None:
    g.commit("g", {T0: 1})
    g.txn_commit("g", {T0: 5})
    g.end("g", False)
    assert g.offsets("g", stable=True) == {T0: 1}


def test_pending_offsets_are_a_transactional_batch_of_the_producer(g: Groups) -> None:
    g.txn_commit("g", {T0: 5, T1: 6}, producer=(9, 4))
    log = g.topics.log(TOPIC, 0)
    assert log is not None
    *_, batch = log.read().batches()
    assert (batch.producer_id, batch.producer_epoch, batch.is_transactional, batch.count) == (9, 4, True, 2)
    assert log.last_stable_offset == batch.base_offset
    g.end("g", True, producer=(9, 4))
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("committed", [True, False])
def test_pending_offsets_survive_a_restart(g: Groups, committed: bool) -> None:
    g.commit("g", {T0: 1})
    g.txn_commit("g", {T0: 5})
    before = g.coordinator.table.offsets
    g.restart()
    assert g.coordinator.table.offsets == before
    assert g.offsets("g", stable=True) == {T0: PENDING}
    g.end("g", committed)
    assert g.offsets("g", stable=True) == {T0: 5 if committed else 1}
    before = g.coordinator.table.offsets
    g.restart()
    assert g.coordinator.table.offsets == before


def test_a_later_commit_overrides_a_transaction_that_ends_after_it(g: Groups) -> None:
    g.txn_commit("g", {T0: 5, T1: 5})
    g.commit("g", {T0: 2})
    g.end("g", True)
    assert g.offsets("g") == {T0: 2, T1: 5}
    g.restart()
    assert g.offsets("g") == {T0: 2, T1: 5}


def test_transactions_of_two_producers(g: Groups) -> None:
    g.txn_commit("g", {T0: 5}, producer=(7, 0))
    g.txn_commit("g", {T0: 6, T1: 6}, producer=(8, 0))
    g.end("g", True, producer=(8, 0))
    assert g.offsets("g") == {T0: 6, T1: 6}
    assert g.offsets("g", stable=True) == {T0: PENDING, T1: 6}
    g.end("g", True, producer=(7, 0))
    assert g.offsets("g", stable=True) == {T0: 6, T1: 6}


def test_a_transaction_of_several_groups_has_a_marker_in_each_partition(tmp_path: Path) -> None:
    with groups(tmp_path, partitions=5) as g:
        log = g.coordinator.table.log
        one, other = "a", next(name for name in "bcdefgh" if log.partition_for(name) != log.partition_for("a"))
        g.txn_commit(one, {T0: 1})
        g.txn_commit(other, {T0: 2})
        g.end(one, True)
        assert g.offsets(one) == {T0: 1}
        assert g.offsets(other) == {}
        g.restart()
        assert g.offsets(one) == {T0: 1}
        g.end(other, True)
        assert g.offsets(other) == {T0: 2}


def test_a_fenced_producer(g: Groups) -> None:
    g.txn_commit("g", {T0: 5}, producer=(7, 3))
    g.end("g", True, producer=(7, 3))
    assert g.txn_commit("g", {T0: 6}, producer=(7, 2)) == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert g.txn_commit("g", {T0: 6}, producer=(-1, 0)) == {T0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert g.offsets("g", stable=True) == {T0: 5}


def test_a_member_commits_with_its_generation(g: Groups) -> None:
    (one,) = g.stable("g")
    good = {"member_id": one.member_id, "generation_id": 1}
    assert g.txn_commit("g", {T0: 5}, **good) == {T0: OK}
    assert g.txn_commit("g", {T0: 5}, **good | {"generation_id": 2}) == {T0: ErrorCode.ILLEGAL_GENERATION}
    assert g.txn_commit("g", {T0: 5}, **good | {"member_id": "unknown"}) == {T0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert g.txn_commit("g", {T0: 5}, **good | {"group_instance_id": "i"}) == {T0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert g.txn_commit("g", {T0: 5}, version=2) == {T0: OK}  # older versions have no member id
    assert g.txn_commit("none", {T0: 5}, **good) == {T0: ErrorCode.ILLEGAL_GENERATION}
    assert g.txn_commit("", {T0: 5}) == {T0: ErrorCode.INVALID_GROUP_ID}
    g.join("g", one.member_id)
    # The group waits for the assignment.
    assert g.txn_commit("g", {T0: 5}, **good | {"generation_id": 2}) == {T0: OK}


def test_each_partition_has_its_error(g: Groups) -> None:
    codes = g.txn_commit("g", {T0: 5, ("t", 9): 1, ("nothing", 0): 1})
    assert list(codes.values()) == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for kind, code in (
        ("TRANSACTIONAL_ID", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("GROUP", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("TOPIC", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        g.allowed = lambda operation, asked, name, kind=kind: asked != kind  # type: ignore[misc]
        assert g.txn_commit("h", {T0: 5}) == {T0: code}
    assert g.txn_commit("h", {T0: 5}) == {T0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    g.allowed = lambda operation, kind, name: True
    assert g.state("h") == "Dead"


def test_offset_commits_are_checked_by_the_transaction_coordinator(tmp_path: Path) -> None:
    asked: list[object] = []

    class Transactions:
        code = ErrorCode.INVALID_TXN_STATE

        def check(self, *arguments: object, adds: bool) -> ErrorCode:
            g.coordinator.complete_transaction(0, 1, True, lambda: None)  # it may call back, since no lock is held
            asked.append((*arguments, adds))
            return self.code

    transactions = Transactions()
    with groups(tmp_path, transactions=transactions) as g:
        assert g.txn_commit("g", {T0: 5}, version=4) == {T0: ErrorCode.INVALID_TXN_STATE}
        transactions.code = OK
        assert g.txn_commit("g", {T0: 5}, version=5, producer=(7, 2)) == {T0: OK}
        assert asked == [("txn", 7, 0, TOPIC, 0, False), ("txn", 7, 2, TOPIC, 0, True)]


@pytest.mark.parametrize(
    ("of_coordinator", "version", "expected"),
    [
        ("PRODUCER_FENCED", 5, "INVALID_PRODUCER_EPOCH"),
        ("TRANSACTION_ABORTABLE", 3, "INVALID_TXN_STATE"),
        ("TRANSACTION_ABORTABLE", 4, "TRANSACTION_ABORTABLE"),
        ("COORDINATOR_LOAD_IN_PROGRESS", 1, "COORDINATOR_NOT_AVAILABLE"),
        ("COORDINATOR_LOAD_IN_PROGRESS", 2, "COORDINATOR_LOAD_IN_PROGRESS"),
        ("CONCURRENT_TRANSACTIONS", 3, "CONCURRENT_TRANSACTIONS"),
    ],
)
def test_a_producer_gets_a_code_that_its_version_knows(
    tmp_path: Path, of_coordinator: str, version: int, expected: str
) -> None:
    class Transactions:
        def check(self, *_: object, adds: bool) -> ErrorCode:
            return ErrorCode[of_coordinator]

    with groups(tmp_path, transactions=Transactions()) as g:
        assert g.txn_commit("g", {T0: 5}, version=version) == {T0: ErrorCode[expected]}


def test_deleting_offsets_deletes_pending_ones(g: Groups) -> None:
    g.txn_commit("g", {T0: 5, T1: 6})
    Request = messages.OffsetDelete.Request
    topic = Request.Topic(name="t", partitions=[Request.Partition(partition_index=0)])
    g.call(ApiKey.OFFSET_DELETE, group_id="g", topics=[topic])
    g.end("g", True)
    assert g.offsets("g") == {T1: 6}
    g.restart()
    assert g.offsets("g") == {T1: 6}


def test_offsets_after_a_marker_are_of_the_next_transaction(tmp_path: Path) -> None:
    """An administrator writes a marker (WriteTxnMarkers). The producer's next offsets come as soon as it is in the log."""
    threads: list[threading.Thread] = []

    class Topics:
        """Those of the groups; each append of encoded batches has offsets of a producer after it."""

        def __init__(self, of: Groups) -> None:
            self._of = of

        def __getattr__(self, name: str) -> Any:
            return getattr(self._of.topics, name)

        def log(self, topic: str, partition: int) -> Any:
            log = self._of.topics.log(topic, partition)
            assert log is not None

            def append_batches(*batches: Any, **more: Any) -> Any:
                info = log.append_batches(*batches, **more)
                thread = threading.Thread(target=lambda: self._of.txn_commit("g", {T0: 7}))
                threads.append(thread)
                thread.start()
                thread.join(0.1)
                return info

            return SimpleNamespace(clock=log.clock, append_batches=append_batches)

    with groups(tmp_path / "data") as g:
        transactions = TransactionCoordinator(
            Topics(g),
            g.scheduler,
            g.clock,
            TransactionConfig(),
            node_id=1,
            directory=str(tmp_path),
            on_marker=g.coordinator.complete_transaction,
        )
        g.txn_commit("g", {T0: 5})
        kind = messages.WriteTxnMarkers.Request
        topic = kind.Topic(name=TOPIC, partition_indexes=[0])
        marker = kind.Marker(producer_id=7, producer_epoch=0, transaction_result=False, topics=[topic])
        call = Call(ApiKey.WRITE_TXN_MARKERS, 1, "admin", g.allowed)
        response = transactions.handlers()[ApiKey.WRITE_TXN_MARKERS](call, kind(markers=[marker]))
        threads[0].join()
        assert response.markers[0].topics[0].partitions[0].error_code == 0
        assert g.offsets("g", stable=True) == {}
        g.end("g", True)
        assert g.offsets("g", stable=True) == {T0: 7}
        before = g.coordinator.table.offsets
        g.restart()
        assert g.coordinator.table.offsets == before
