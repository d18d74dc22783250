"""The checker itself: every anomaly is found in a history that was broken by hand, and nothing in legal ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.history.checker import check
from tests.history.operations import Commit, Committed, End, Ended, Owned, Poll, Send

P = ("t", 0)
OTHER = ("t", 1)


def sent(value: str, offset: int | None = None, at: float = 1.0, **more: Any) -> Send:
    fields: dict[str, Any] = {"outcome": "ok", "partition": P, "client": "producer", "number": offset or 0}
    return Send(value=value, offset=offset, began=at, ended=at + 0.5, **fields | more)


def ended(transaction: str, outcome: Any = "ok", at: float = 2.0) -> End:
    return End(client="producer", transaction=transaction, outcome=outcome, began=at, ended=at + 0.5)


def polled(*records: tuple[int, str], at: float = 9.0, **more: Any) -> Poll:
    fields: dict[str, Any] = {"partition": P, "client": "reader", "session": 1, "number": 1, "committed_only": False}
    return Poll(records=records, began=at, ended=at + 0.5, **fields | more)


def committed(offset: int, at: float, **more: Any) -> Commit:
    more = {"client": "c", "group": "g", "partition": P, "outcome": "ok"} | more
    return Commit(offset=offset, began=at, ended=at + 0.5, **more)


def asked(offset: int, at: float, *, committed_only: bool = False) -> Ended:
    return Ended(client="w", partition=P, offset=offset, committed_only=committed_only, began=at, ended=at + 0.5)


def owned(client: str, generation: int, *partitions: Any) -> Owned:
    return Owned(client=client, group="g", generation=generation, partitions=partitions, began=1, ended=2)


A0, B1 = sent("a", 0), sent("b", 1)
IN_T: dict[str, Any] = {"transaction": "T", "idempotent": True}

BROKEN: dict[str, tuple[str, list[Any]]] = {
    "two values read at one offset": ("inconsistent offset", [A0, sent("b"), polled((0, "a")), polled((0, "b"), client="other")]),
    "another value than the acknowledged one": ("inconsistent offset", [A0, sent("b"), polled((0, "b"), (1, "a"))]),
    "a retry that was appended again": ("duplicate", [sent("a", 0, idempotent=True), polled((0, "a"), (1, "a"))]),
    "a record in the wrong partition": ("duplicate", [A0, polled((0, "a")), polled((0, "a"), partition=OTHER)]),
    "a value out of nowhere": ("unknown value", [A0, polled((0, "a"), (1, "?"))]),
    "a refused send that is there": ("aborted read", [sent("a", outcome="fail"), polled((0, "a"))]),
    "an aborted transaction that is read": (
        "aborted read", [sent("a", 0, **IN_T), ended("T", "fail"), polled((0, "a"), committed_only=True)]),
    "a value before its commit": (
        "precommitted read", [sent("a", 0, **IN_T), ended("T", at=20), polled((0, "a"), committed_only=True)]),
    "a value of a transaction that nobody ended": (
        "precommitted read", [sent("a", 0, **IN_T), polled((0, "a"), committed_only=True)]),
    "half of a transaction": (
        "torn transaction",
        [sent("a", 0, **IN_T), sent("b", 0, partition=OTHER, **IN_T), ended("T", "unknown"),
         polled((0, "a"), committed_only=True)]),
    "half of a committed transaction": (
        "unseen",
        [sent("a", 0, **IN_T), sent("b", 0, partition=OTHER, **IN_T), ended("T"), polled((0, "a"), committed_only=True)]),
    "an acknowledged record that is gone": ("lost write", [A0, B1, polled((1, "b"))]),
    "an acknowledged record without its offset that is gone": ("unseen", [sent("a"), B1, polled((1, "b"))]),
    "a log that lost its end": ("unseen", [A0, B1, polled((0, "a"))]),
    "the newest record of a key": ("lost write", [sent("a", 0, key="k"), sent("b", 1, key="l"), polled((1, "b"))]),
    "an offset again": ("non-monotonic", [A0, B1, polled((0, "a"), (1, "b")), polled((1, "b"), at=10)]),
    "an offset of before": ("non-monotonic", [A0, B1, polled((1, "b"), (0, "a"))]),
    "sends of an idempotent producer in another order": (
        "non-monotonic",
        [sent("a", 1, idempotent=True, number=0), sent("b", 0, idempotent=True, number=1), polled((0, "b"), (1, "a"))]),
    "a record that another consumer got": (
        "skip", [A0, B1, sent("c", 2), polled((0, "a"), (2, "c")), polled((1, "b"), client="other")]),
    "a committed record under read_committed": (
        "skip",
        [A0, sent("b", 1, **IN_T), ended("T"), sent("c", 2), polled((0, "a"), (2, "c"), committed_only=True),
         polled((1, "b"), client="other", committed_only=True)]),
    "a group that committed past a record": (
        "skip", [A0, B1, polled((1, "b"), group="g"), polled((0, "a"), client="other"), committed(2, 10)]),
    "two owners": ("two owners", [owned("a", 3, P), owned("b", 3, OTHER, P)]),
    "a commit of a zombie": ("committed offset back", [committed(5, 1), committed(3, 2)]),
    "a commit that was forgotten": (
        "committed offset back",
        [committed(5, 1), Committed(client="w", group="g", partition=P, offset=4, began=2, ended=3)]),
    "an end that falls": ("stale end", [asked(5, 1), asked(4, 2)]),
    "an end below an acknowledged record": ("stale end", [A0, B1, polled((0, "a"), (1, "b")), asked(1, 5)]),
    "an end below what was read": (
        "stale end", [A0, polled((0, "a"), committed_only=True), asked(0, 12, committed_only=True)]),
    "an end above an open transaction": (
        "stale end",
        [sent("a", 0, **IN_T), ended("T", "fail", at=30), asked(2, 10, committed_only=True)]),
}  # fmt: skip

LEGAL: dict[str, list[Any]] = {
    "nothing": [],
    "gaps of markers": [sent("a", 0, **IN_T), ended("T"), sent("b", 2), polled((0, "a"), (2, "b"), committed_only=True)],
    "an aborted record under read_uncommitted": [sent("a", 0, **IN_T), ended("T", "fail"), polled((0, "a"))],
    "an aborted record that is not read": [
        sent("a", 0, **IN_T), ended("T", "fail"), sent("b", 2), polled((2, "b"), committed_only=True)],
    "an unknown send that happened": [sent("a", outcome="unknown"), polled((0, "a"))],
    "an unknown send that did not": [sent("a", outcome="unknown"), sent("b", 0), polled((0, "b"))],
    "an unknown send that happened twice": [sent("a", outcome="unknown"), polled((0, "a"), (1, "a"))],
    "an acknowledged retry without idempotence": [sent("a", 1), polled((0, "a"), (1, "a"))],
    "compaction": [
        sent("a", 0, key="k"), sent("b", 1, key="k"), sent("c", 2, key="l"), polled((1, "b"), (2, "c"))],
    "an unknown commit that happened": [sent("a", 0, **IN_T), ended("T", "unknown"), polled((0, "a"), committed_only=True)],
    "an unknown commit that did not": [sent("a", 0, **IN_T), ended("T", "unknown"), polled((0, "a"))],
    "a commit that is read while it ends": [
        sent("a", 0, **IN_T), ended("T", at=9.2), polled((0, "a"), committed_only=True)],
    "records again after a rebalance": [
        A0, B1, polled((0, "a"), (1, "b"), group="g"), polled((0, "a"), (1, "b"), session=2, group="g", at=10)],
    "a group whose first member ended before its commit": [
        A0, B1, polled((0, "a"), group="g"), polled((1, "b"), session=2, client="c2", group="g"), committed(2, 20)],
    "a consumer that begins in the middle": [A0, B1, polled((0, "a"), client="other"), polled((1, "b"))],
    "owners of different generations": [owned("a", 3, P), owned("b", 4, P), owned("b", 3, OTHER)],
    "commits at the same time": [committed(5, 1), committed(3, 1.2)],
    "a commit that failed": [committed(5, 1), committed(3, 2, outcome="fail")],
    "an end that was asked for while a record came": [
        A0, asked(0, 1.2), asked(1, 5), asked(0, 5, committed_only=True), polled((0, "a"))],
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_histories_are_found(case: str) -> None:
    name, history = BROKEN[case]
    assert {each.name for each in check(history)} == {name}


@pytest.mark.parametrize("case", LEGAL)
def test_legal_histories_are_not(case: str) -> None:
    assert check(LEGAL[case], compacted=[P] if case == "compaction" else ()) == []


def test_compaction_keeps_the_newest_of_a_key() -> None:
    _, history = BROKEN["the newest record of a key"]
    assert [each.name for each in check(history, compacted=[P])] == ["lost write"]
