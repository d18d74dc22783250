"""The throttle's arithmetic, with a manual clock."""

from __future__ import annotations

import pytest

from klog.manager.throttle import Throttle


class Time:
    """A clock in seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_caller_waits_after_exceeding_the_rate() -> None:
    """1000 bytes in half a second at 1000 B/s: the throttle waits for the rest of the second."""
    time = Time()
    throttle = Throttle(1000, time)
    time.now += 0.25
    assert throttle.count(600) == 0  # within the window
    time.now += 0.25
    assert throttle.count(400) == pytest.approx(0.5)
    time.now += 0.5
    assert throttle.count(1) == 0  # another window has begun
    time.now += 0.5
    assert throttle.count(99) == 0  # slow enough


def test_every_caller_waits() -> None:
    time = Time()
    throttle = Throttle(1000, time)
    time.now += 0.5
    assert throttle.count(2000) == pytest.approx(1.5)
    time.now += 0.5
    assert throttle.count(10) == pytest.approx(1.0)  # another thread makes this change


def test_the_mean_rate_is_the_configured_rate() -> None:
    time = Time()
    throttle, total, began = Throttle(10_000, time), 0, time.now
    for _ in range(10_000):
        time.now += 0.001
        total += 333
        time.now += throttle.count(333)
    assert total / (time.now - began) == pytest.approx(10_000, rel=0.05)


def test_a_new_rate_applies_at_once() -> None:
    """CL41: the rate changes from 10 M to 20 M while callers use it: no caller waits because of the old rate."""
    time = Time()
    throttle = Throttle(10e6, time)
    time.now += 0.5
    assert throttle.count(10_000_000) == pytest.approx(0.5)
    throttle.rate = 20e6
    assert throttle.rate == 20e6
    assert throttle.count(0) == 0
    time.now += 0.5
    assert throttle.count(20_000_000) == pytest.approx(0.5)


def test_infinite_rate_and_no_bytes() -> None:
    time = Time()
    throttle = Throttle(float("inf"), time)
    time.now += 1
    assert throttle.count(1 << 40) == 0
    throttle.rate = 0
    time.now += 1
    assert throttle.count(1) == float("inf")
