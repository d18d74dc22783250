"""The rounds of a trial. A contest compares several ways; they alternate in rounds, so that noise affects all of them.

A contest runs for its share of the time and of the bytes, and for one round at least.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klog.clock import Clock, SystemClock
from klog.progress import Event, Progress
from klog.trial.report import Result, summed_up

ROUNDS_MAX = 5  # the median of fewer would show the noise of one
Figures = dict[str, float]
Ways = Mapping[str, Callable[[], Figures]]


class Rounds:
    """Runs `total` contests. name: that of the trial, for progress. One thread."""

    def __init__(
        self, name: str, total: int, size: int, seconds: float, clock: Clock | None, progress: Progress | None
    ) -> None:
        self.clock = clock or SystemClock()
        self.written = 0
        self._name, self._total, self._size, self._seconds = name, total, size, seconds
        self._progress, self._done = progress, 0

    def wrote(self, size: int) -> None:
        """Count bytes against the size of the trial."""
        self.written += size

    def contest(
        self,
        name: str,
        ways: Ways,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        *,
        share: float,
        less_is_better: bool = False,
    ) -> list[Result]:
        """Run a contest. share: the part of the trial's size that it may write."""
        deadline = self.clock.monotonic() + self._seconds / self._total
        before, most = self.written, int(self._size * share)
        rounds: list[dict[str, Figures]] = []
        order = list(ways)
        while not rounds or (
            len(rounds) < ROUNDS_MAX
            and self.clock.monotonic() < deadline
            and (self.written - before) * (len(rounds) + 1) <= most * len(rounds)
        ):
            first = len(rounds) % len(order)
            found: dict[str, Figures] = {}
            for way in (*order[first:], *order[:first]):
                self._report(f"{name}: {way}")
                found[way] = ways[way]()
            rounds.append({way: found[way] for way in order})
        self._done += 1
        self._report(name)
        return summed_up(name, rounds, settings or {}, less_is_better=less_is_better)

    def _report(self, note: str) -> None:
        if self._progress is not None:
            self._progress(Event(self._name, self._done, self._total, "contests", note))


def rate(count: float, seconds: float) -> float:
    """Return a count in a second."""
    return count / max(seconds, 1e-9)


def waits(seconds: list[float]) -> Figures:
    """Return the latencies of calls."""
    ordered = sorted(seconds)
    return {
        "p50 ms": ordered[len(ordered) // 2] * 1e3,
        "p99 ms": ordered[len(ordered) * 99 // 100] * 1e3,
        "max ms": ordered[-1] * 1e3,
    }
