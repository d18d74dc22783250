"""Rates of a counter: moving averages over one, five and fifteen minutes, as Kafka's meters compute them.

An average moves each 5 seconds towards the rate of those 5 seconds. No thread does that: a reader of the rates makes up
for the steps since the last reading, as if the events had come evenly. Kafka: com.yammer.metrics.core.Meter, EWMA.
"""

from __future__ import annotations

import math

from klog.values import dataclass

STEP_SECONDS = 5.0
_MINUTES = (1, 5, 15)
_STAY = tuple(math.exp(-STEP_SECONDS / 60 / minutes) for minutes in _MINUTES)


@dataclass(frozen=True, slots=True)
class Rate:
    """A counter and its rates per second, under the attribute names of Kafka's meters."""

    count: int
    mean: float
    one_minute: float
    five_minutes: float
    fifteen_minutes: float

    def attributes(self) -> dict[str, float]:
        """By Kafka's attribute names."""
        return {
            "Count": self.count,
            "MeanRate": self.mean,
            "OneMinuteRate": self.one_minute,
            "FiveMinuteRate": self.five_minutes,
            "FifteenMinuteRate": self.fifteen_minutes,
        }


class Meter:
    """The moving averages of one counter, in seconds of a monotonic clock. The mean is since `start`; the counter was 0
    until `began`. Under a lock of the caller."""

    def __init__(self, start: float, began: float) -> None:
        self._start, self._moved = start, began
        self._counted = 0
        self._averages: list[float] | None = None  # None until the first step, which sets them to its rate

    def read(self, count: int, now: float) -> Rate:
        """Return the rates, given the counter's value now."""
        steps = int((now - self._moved) // STEP_SECONDS)
        if steps > 0:
            rate = (count - self._counted) / (steps * STEP_SECONDS)
            if self._averages is None:
                self._averages = [rate] * len(_MINUTES)
            else:
                self._averages = [
                    rate + (old - rate) * stay**steps for old, stay in zip(self._averages, _STAY, strict=True)
                ]
            self._counted = count
            self._moved += steps * STEP_SECONDS
        passed = now - self._start
        return Rate(count, count / passed if passed > 0 else 0.0, *(self._averages or [0.0] * len(_MINUTES)))
