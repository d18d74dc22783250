"""A histogram of durations: count, mean, percentiles and maximum, in fixed memory.

Each class is 10 % wider than the one before, so a percentile is right within 10 %. Count, mean and maximum are exact.
Histograms can be added up: a manager reports the sum of all its logs. Kafka: the Timer of KafkaMetricsGroup.
"""

from __future__ import annotations

import math
from typing import Self

_FIRST_SECONDS = 1e-6
_STEP = math.log(1.1)
_CLASSES = 220  # up to 1,200 seconds


class Histogram:
    """Durations of one operation. Written under the lock of the timed object; read by any thread."""

    count = 0
    total = 0.0
    longest = 0.0
    _classes: list[int] | None = None  # made with the first duration: few of thousands of logs are ever flushed

    def note(self, seconds: float) -> None:
        """Add one duration."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        classes = self._classes = self._classes or [0] * _CLASSES
        number = math.ceil(math.log(seconds / _FIRST_SECONDS) / _STEP) if seconds > _FIRST_SECONDS else 0
        classes[min(number, _CLASSES - 1)] += 1

    def add(self, other: Self) -> None:
        """Add all durations of another histogram."""
        if other._classes is None:
            return
        self.count += other.count
        self.total += other.total
        self.longest = max(self.longest, other.longest)
        mine = self._classes or [0] * _CLASSES
        self._classes = [one + another for one, another in zip(mine, other._classes, strict=True)]

    def percentile(self, percent: float) -> float:
        """The seconds that `percent` of the durations do not exceed; 0 without durations."""
        wanted = self.count * percent / 100
        passed = 0
        for number, count in enumerate(self._classes or ()):
            passed += count
            if count and passed >= wanted:
                return min(_FIRST_SECONDS * math.exp(number * _STEP), self.longest)
        return self.longest

    def metrics(self, name: str) -> dict[str, float]:
        """The values in milliseconds, under the attribute names of Kafka's timers."""
        return {
            f"{name}Count": self.count,
            f"{name}Mean": self.total / self.count * 1000 if self.count else 0.0,
            f"{name}50thPercentile": self.percentile(50) * 1000,
            f"{name}99thPercentile": self.percentile(99) * 1000,
            f"{name}Max": self.longest * 1000,
        }
