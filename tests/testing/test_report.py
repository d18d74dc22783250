"""What a failed test reports of its broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klog.testing import TestBroker


def notes(broker: TestBroker, act: Callable[[TestBroker], object]) -> str:
    """Return the notes of the exception that leaves a broker's `with` statement."""

    def fail() -> None:
        with broker as b:
            act(b)
            raise AssertionError("the test's own")

    with pytest.raises(AssertionError, match="the test's own") as caught:
        fail()
    return "\n".join(caught.value.__notes__)


def test_an_exception_gets_the_records_groups_and_faults() -> None:
    def act(b: TestBroker) -> None:
        b.topic("orders").append([(b"k", b"what was there")])
        b.inject("produce", topic="orders", drop=True)

    found = notes(TestBroker(topics=["orders", "empty"]), act)
    assert "topic empty: 0 records" in found
    assert "0/0 b'k': b'what was there'" in found
    assert "<Fault api='produce' topic='orders' drop=True: 0 hits>" in found


def test_the_report_has_a_limited_size() -> None:
    def act(b: TestBroker) -> None:
        for number in range(20):
            b.topic(f"topic-{number}").append([(b"k", b"v" * 1000)] * 100)

    found = notes(TestBroker(), act)
    assert len(found) < 9000
    assert found.endswith("characters more")
    assert "topic topic-0: 20 records, after 80 offsets that are left out" in found


def test_a_killed_broker_is_reported_as_stopped() -> None:
    assert "the broker is stopped" in notes(TestBroker(topics=["orders"]), TestBroker.kill)
