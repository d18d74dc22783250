"""How long something took, many times: count, mean, percentiles and the longest, in fixed memory.

Times fall into classes that are a tenth wide, so a percentile is right within that; count, mean and maximum are exact.
Several add up to one, which is what a manager says of all its logs. Kafka: the Timer of KafkaMetricsGroup.
"""

from __future__ import annotations

import math
from typing import Self

_FIRST_SECONDS = 1e-6
_STEP = math.log(1.1)
_CLASSES = 220  # up to 1,200 seconds


class Histogram:
    """Under the lock of whatever is timed; read by any thread."""

    __slots__ = ("_classes", "count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0
        self._classes: list[int] = []  # none before the first: of thousands of logs few are ever flushed

    def note(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        if not self._classes:
            self._classes = [0] * _CLASSES
        number = math.ceil(math.log(seconds / _FIRST_SECONDS) / _STEP) if seconds > _FIRST_SECONDS else 0
        self._classes[min(number, _CLASSES - 1)] += 1

    def add(self, other: Self) -> None:
        """And all of those."""
        if not other.count:
            return
        self.count += other.count
        self.total += other.total
        self.longest = max(self.longest, other.longest)
        mine = self._classes or [0] * _CLASSES
        self._classes = [one + another for one, another in zip(mine, other._classes, strict=True)]

    def percentile(self, percent: float) -> float:
        """So many percent took at most so many seconds; 0 where nothing was timed."""
        wanted = self.count * percent / 100
        passed = 0
        for number, count in enumerate(self._classes):
            passed += count
            if count and passed >= wanted:
                return min(_FIRST_SECONDS * math.exp(number * _STEP), self.longest)
        return self.longest

    def metrics(self, name: str) -> dict[str, float]:
        """In milliseconds, under the names that Kafka's timers have for their attributes."""
        return {
            f"{name}Count": self.count,
            f"{name}Mean": self.total / self.count * 1000 if self.count else 0.0,
            f"{name}50thPercentile": self.percentile(50) * 1000,
            f"{name}99thPercentile": self.percentile(99) * 1000,
            f"{name}Max": self.longest * 1000,
        }
