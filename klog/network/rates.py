"""A rate over sample windows, and how long to wait when it is too high. Kafka: Rate, SampledStat, QuotaUtils."""

from __future__ import annotations

from collections import deque


class Rate:
    """Events per second over the last `windows` windows of `seconds` each. Under its owner's lock; `now`: seconds of
    the monotonic clock."""

    def __init__(self, bound: float, windows: int, seconds: float) -> None:
        self.bound = bound
        self._windows = windows
        self._seconds = seconds
        self._samples: deque[list[float]] = deque()  # [start, time of the last event, count]

    def record(self, now: float, count: float = 1) -> None:
        """Add events; a negative count takes back those of the current window."""
        if not self._samples or now - self._samples[-1][0] >= self._seconds:
            self._samples.append([now, now, 0])
        self._samples[-1][1] = now
        self._samples[-1][2] += count
        self._forget(now)

    def _forget(self, now: float) -> None:
        """A sample that began before the windows, and had an event in them, counts."""
        while self._samples and now - self._samples[0][1] >= self._windows * self._seconds:
            self._samples.popleft()

    def _measured(self, now: float) -> float:
        """Seconds that the rate is measured over: from the oldest sample on, but as many as all full windows have."""
        oldest = self._samples[0][0] if self._samples else now
        full, least = int((now - oldest) / self._seconds), self._windows - 1
        return now - oldest + max(0, least - full) * self._seconds

    def value(self, now: float) -> float:
        """Events per second."""
        self._forget(now)
        return sum(count for _, _, count in self._samples) / max(self._measured(now), self._seconds)

    def throttle_seconds(self, now: float) -> float:
        """How long to wait until the rate is within its bound; 0 if it is. Kafka: QuotaUtils.throttleTime."""
        rate = self.value(now)
        if rate <= self.bound:
            return 0.0
        return (rate - self.bound) / self.bound * self._measured(now)

    def excess_seconds(self, now: float) -> float:
        """The same, at most one window."""
        return min(self.throttle_seconds(now), self._seconds)

    def is_new(self, now: float) -> bool:
        """Is there no event in the windows any more?"""
        self._forget(now)
        return not self._samples
