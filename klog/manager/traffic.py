"""What is appended to and read from the topics of a manager: counters, their rates, and histograms of durations.

The logs count. A log that is closed and loaded again counts from 0, so what it had counted moves to its topic here, and
to the sum over all topics, which keeps that of a deleted one, too: sums never decrease. Kafka: BrokerTopicStats.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.histogram import Histogram
from klog.manager.rates import Meter, Rate

if TYPE_CHECKING:
    from klog.clock import Clock
    from klog.log.log import Log

ALL = ""
Rates = dict[str, dict[str, Rate]]


class Traffic:
    """Of one manager. Any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = self._read_at = clock.monotonic()
        self._lock = threading.Lock()
        self._retired: dict[str, Counter[str]] = {ALL: Counter()}  # topic: what its former logs have counted
        self._retired_times: dict[str, Histogram] = {}
        self._meters: dict[tuple[str, str], Meter] = {}

    def after_fork(self) -> None:
        """Reset in a forked child."""
        self._lock = threading.Lock()

    def retire(self, log: Log, *, deleted: bool = False) -> None:
        """Keep what a log has counted that is replaced or deleted. Of a deleted topic only the sums keep it: programs
        that make topics all the time may never ask for rates."""
        with self._lock:
            counted = counts(log)
            self._retired[ALL].update(counted)
            if deleted:
                self._retired.pop(log.topic, None)
            else:
                self._retired.setdefault(log.topic, Counter()).update(counted)
            for name, times in log._core.counters.times().items():
                self._retired_times.setdefault(name, Histogram()).add(times)

    def rates(self, logs: Iterable[Log]) -> Rates:
        """Return {metric: {topic, or "" for all: counter and rates}}. logs: all that count now.

        The flushes and rolls of all logs are counted, too, but not by topic.
        """
        logs, now = list(logs), self._clock.monotonic()
        with self._lock:
            for topic in self._retired.keys() - {ALL, *(log.topic for log in logs)}:
                del self._retired[topic]  # a deleted topic
            counted_by = {topic: Counter(retired) for topic, retired in self._retired.items()}
            for log in logs:
                found = counts(log)
                counted_by[ALL].update(found)
                counted_by.setdefault(log.topic, Counter()).update(found)
            found_rates: Rates = {}
            for topic, counted in counted_by.items():
                for name, count in counted.items():
                    found_rates.setdefault(name, {})[topic] = self._meter(name, topic).read(count, now)
            for name, times in self._times(logs).items():
                if name.endswith("RateAndTimeMs"):
                    found_rates[name] = {ALL: self._meter(name, ALL).read(times.count, now)}
            for name, topic in self._meters.keys() - {(n, t) for n, by in found_rates.items() for t in by}:
                del self._meters[name, topic]
            self._read_at = now
            return found_rates

    def _meter(self, name: str, topic: str) -> Meter:
        """The meter of a counter. One that the last reading did not find has counted since then."""
        return self._meters.setdefault((name, topic), Meter(self._start, self._read_at))

    def times(self, logs: Iterable[Log]) -> dict[str, Histogram]:
        """Return the histograms over all logs."""
        with self._lock:
            return self._times(logs)

    def _times(self, logs: Iterable[Log]) -> dict[str, Histogram]:
        found: dict[str, Histogram] = {}
        for name, times in self._retired_times.items():
            found.setdefault(name, Histogram()).add(times)
        for log in logs:
            for name, times in log._core.counters.times().items():
                found.setdefault(name, Histogram()).add(times)
        return found


def counts(log: Log) -> dict[str, int]:
    """All counters: a read-only log counts no appends."""
    counters = log._core.counters
    return counters.reads() if log.read_only else {**counters.reads(), **counters.writes()}
