"""Counters of bytes and records in and out, their rates as Kafka's meters compute them, and histograms of durations."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import KlogError, OffsetOutOfRange
from klog.histogram import Histogram
from klog.record import encode


def test_rates_are_those_of_kafkas_meters(tmp_path: Path) -> None:
    clock = ManualClock()
    with klog.open(tmp_path, create=True, clock=clock) as logs:
        logs.create_topic("t")
        log, expected, total = logs.log("t", 0), [0.0, 0.0, 0.0], 0
        for step, count in enumerate([100, 0, 7, 50, 0, 0, 1]):
            log.append([(None, b"v")] * count)
            total += count
            clock.advance(5000)
            rate = count / 5
            for place, minutes in enumerate((1, 5, 15)):  # com.yammer.metrics.stats.EWMA
                alpha = 1 - math.exp(-5 / 60 / minutes)
                expected[place] = rate if step == 0 else expected[place] + alpha * (rate - expected[place])
            found = logs.rates()["MessagesInPerSec"]["t"]
            assert found.count == total and found.mean == pytest.approx(total / (5 * step + 5))
            assert [found.one_minute, found.five_minutes, found.fifteen_minutes] == pytest.approx(expected)
        log.append([(None, b"v")])
        clock.advance(4999)
        assert logs.rates()["MessagesInPerSec"]["t"].one_minute == found.one_minute  # no step yet
        clock.advance(3_600_000)
        log.append([(None, b"v")])
        assert logs.rates()["MessagesInPerSec"][""].one_minute == pytest.approx(2 / 3600, rel=0.01)


def test_the_rates_of_a_new_topic_begin_after_the_last_reading(tmp_path: Path) -> None:
    clock = ManualClock()
    with klog.open(tmp_path, create=True, clock=clock) as logs:
        clock.advance(3_600_000)
        logs.rates()
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")] * 100)
        clock.advance(5000)
        for topic in ("t", ""):
            found = logs.rates()["MessagesInPerSec"][topic]
            assert (found.one_minute, found.mean) == (20, pytest.approx(100 / 3605))


def test_sums_never_decrease(tmp_path: Path) -> None:
    """A deleted topic has no rates. Its counts stay in the sums, as do the counts of a log that is reopened."""
    with klog.open(tmp_path, create=True) as logs:
        for topic in ("a", "b"):
            logs.create_topic(topic)
            logs.log(topic, 0).append([(b"k", b"v")] * 3)
        logs.log("b", 0).flush()
        logs.log("b", 0).close()
        logs.log("b", 0).append([(b"k", b"v")])
        logs.delete_topic("a")
        found = logs.rates()["MessagesInPerSec"]
        assert {topic: rate.count for topic, rate in found.items()} == {"": 7, "b": 4}
        metrics = logs.metrics()
        assert metrics["MessagesInPerSec"] == {"": 7, "b-0": 1}
        assert metrics["LogFlushRateAndTimeMsCount"][""] == logs.rates()["LogFlushRateAndTimeMs"][""].count == 2
        logs.create_topic("a")
        logs.log("a", 0).append([(b"k", b"v")])
        assert logs.rates()["MessagesInPerSec"]["a"].count == 1
        logs.delete_topic("a")
        logs.create_topic("a")  # nobody has asked for rates in between
        logs.log("a", 0).append([(b"k", b"v")] * 2)
        found = logs.rates()["MessagesInPerSec"]
        assert {topic: rate.count for topic, rate in found.items()} == {"": 10, "a": 2, "b": 4}


def test_every_call_is_counted_and_one_in_sixteen_is_timed(tmp_path: Path) -> None:
    clock = ManualClock()
    with klog.Log.open(tmp_path / "t-0", clock=clock) as log:
        for _ in range(10):
            log.append([(b"k", b"v")])
            log.append_batches(encode([(b"k", b"v")]))
        with pytest.raises(KlogError):
            log.append_batches(b"\0" * 100)
        log.roll()
        sizes = [log.fetch(offset % 20, 1).size for offset in range(17)]
        read = sum(len(chunk.buffer) for chunk in log.chunks(0, 20))
        with pytest.raises(OffsetOutOfRange):
            log.fetch(99)
        metrics = log.metrics()
        names = ("TotalProduceRequestsPerSec", "FailedProduceRequestsPerSec", "LogAppendTimeMsCount")
        assert [metrics[name] for name in names] == [21, 1, 2]
        names = ("TotalFetchRequestsPerSec", "FailedFetchRequestsPerSec", "LogFetchTimeMsCount")
        assert [metrics[name] for name in names] == [18, 1, 2]
        assert metrics["BytesOutPerSec"] == sum(sizes) + read and metrics["LogRollRateAndTimeMsCount"] == 1
    with klog.Log.open(tmp_path / "t-0", read_only=True) as log:
        size = log.fetch(3).size
        assert log.metrics()["BytesOutPerSec"] == size and "BytesInPerSec" not in log.metrics()


def test_appends_that_share_a_commit_are_counted(tmp_path: Path) -> None:
    async def append(log: klog.Log) -> None:
        await asyncio.gather(*(log.append_async([(b"k", b"v")]) for _ in range(3)))

    with klog.Log.open(tmp_path / "t-0", durability="sync") as log:
        asyncio.run(append(log))
        log.append([(b"k", b"v")])
        metrics = log.metrics()
        assert (metrics["TotalProduceRequestsPerSec"], metrics["LogAppendTimeMsCount"]) == (4, 1)
        assert metrics["LogAppendTimeMsMax"] > 0


def test_durations_have_exact_sums_and_near_percentiles() -> None:
    histogram, other = Histogram(), Histogram()
    durations = [number**3 * 1e-6 for number in range(1, 101)]
    for seconds in durations[:50]:
        histogram.note(seconds)
    for seconds in durations[50:]:
        other.note(seconds)
    histogram.add(other)
    assert (histogram.count, histogram.longest) == (100, pytest.approx(1.0))
    assert histogram.total == pytest.approx(sum(durations), abs=1e-6)
    for percent in (1, 50, 90, 99, 100):
        exact = durations[percent - 1]
        assert exact * 0.999 <= histogram.percentile(percent) <= exact * 1.13
    assert Histogram().percentile(50) == 0
    for extreme in (-1.0, 0.0, 1e9):
        histogram.note(extreme)
    assert histogram.longest == 1e9 and histogram.percentile(100) < 1e9
