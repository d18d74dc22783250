"""A race: contestants that do the same work in one run, turn by turn.

B1  check() compares the answers before anything is timed; a fast wrong number is not a result.
B2  contestants take turns within each round, and what is reported is the ratio of medians over the rounds: whatever
    slows the machine for a while slows them all.
B3  a round in which the hypervisor took the processor away (steal) or another process did (run-queue wait) is void and
    run again, at most as often again as asked for.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROUNDS = 7
_TURN_SECONDS = 0.05
_WAIT_SHARE = 0.05  # of a round spent waiting for a processor: more makes it void


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Contestant:
    """run() does the work once. before() makes it possible again (a fresh directory) and is not timed; contestants with
    a before() run once per turn."""

    name: str
    run: Callable[[], object]
    before: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """klog's contestants and their peer, the last one, against which ratios are taken."""

    name: str
    records: int
    bytes: int
    contestants: tuple[Contestant, ...]
    check: Callable[[], None]
    close: Callable[[], None] = _nothing

    @property
    def peer(self) -> Contestant:
        return self.contestants[-1]


Factory = Callable[[bool, Path], Contest]


@dataclass(slots=True)
class Score:
    """Seconds of one run() in each round that counted."""

    contestant: str
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


@dataclass(frozen=True, slots=True)
class Result:
    contest: Contest
    scores: tuple[Score, ...]
    void_rounds: int

    def ratio(self, score: Score) -> float:
        """How many times as fast as the peer."""
        return self.scores[-1].median / score.median


def race(contest: Contest, *, rounds: int = ROUNDS, turn_seconds: float = _TURN_SECONDS) -> Result:
    """Check, then let the contestants take turns."""
    contest.check()
    repeats = [_repeats(contestant, turn_seconds) for contestant in contest.contestants]
    scores = tuple(Score(contestant.name) for contestant in contest.contestants)
    counted = void = 0
    while counted < rounds:
        disturbed = disturbance()
        turns = [_turn(who, count) for who, count in zip(contest.contestants, repeats, strict=True)]
        if next(disturbed) and void < rounds:
            void += 1
            continue
        counted += 1
        for score, seconds in zip(scores, turns, strict=True):
            score.seconds.append(seconds)
    return Result(contest, scores, void)


def _repeats(contestant: Contestant, turn_seconds: float) -> int:
    """How often run() fits into a turn; this is the warm-up too."""
    first = min(_turn(contestant, 1) for _ in range(2))
    return 1 if contestant.before is not None else max(1, int(turn_seconds / max(first, 1e-9)))


def _turn(contestant: Contestant, repeats: int) -> float:
    """Seconds of one run(), the collector resting, as timeit does it."""
    if contestant.before is not None:
        contestant.before()
    run, turns = contestant.run, range(repeats)
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in turns:
            run()
        return (time.perf_counter() - started) / repeats
    finally:
        gc.enable()


def disturbance() -> Iterator[bool]:
    """Started by the call, asked by next(): was the processor taken away since?"""
    steal, waited, started = _steal(), _run_queue_wait(), time.perf_counter_ns()

    def verdicts() -> Iterator[bool]:
        while True:
            share = (_run_queue_wait() - waited) / max(1, time.perf_counter_ns() - started)
            yield _steal() > steal or share > _WAIT_SHARE

    return verdicts()


def _steal() -> int:
    """Ticks the hypervisor gave to others, all processors together."""
    try:
        return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
    except (OSError, IndexError, ValueError):
        return 0


def _run_queue_wait() -> int:
    """Nanoseconds this process was ready and did not run."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
