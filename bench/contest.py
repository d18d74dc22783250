"""A contest: contestants that do the same work in one run. In each round every contestant is measured once.

B1  check() compares the results before anything is timed; a fast wrong result does not count.
B2  contestants alternate within each round, and the report is the ratio of medians over the rounds: a slowdown of the
    machine affects all of them.
B3  a round in which the hypervisor took the processor away (steal) or another process did (run-queue wait) is void and
    run again. At most as many rounds are repeated as were requested.
B4  if a contestant works in another process, it measures itself there, and all contestants do the same amount of work
    in a measurement: the time of the pipe between the processes does not count, and all warm up equally long.
B5  a limit is not a peer: it is the machine's time for the bytes alone (a copy, a write), measured like the others.
B6  before each measurement a file is written and deleted: free memory that the page cache takes next is then memory
    that the host has already provided. A page that it must provide first takes 9 us, thirteen times as long as the
    write itself, and hits whichever contestant comes first.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROUNDS = 7
_MEASUREMENT_SECONDS = 0.05
_WAIT_SHARE = 0.05  # of a round spent waiting for a processor: more makes it void
_PAGE_CACHE_BYTES = 128 << 20  # about twice what a measurement writes
_MIB = bytes(1 << 20)
_OWN_THREAD = Path("/proc/self/schedstat")


class Unavailable(Exception):
    """A contest needs something that this machine does not have; the text names it."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Contestant:
    """run() does the work once. before() prepares it (a new directory) and is not timed; a contestant with a before()
    runs once per measurement. With `own_clock`, run() returns the seconds that it took. `goal` is klog's intended speed
    as a multiple of the peer's."""

    name: str
    run: Callable[[], object]
    before: Callable[[], object] | None = None
    goal: float | None = None
    own_clock: bool = False


@dataclass(frozen=True, slots=True)
class Contest:
    """klog's contestants and, as the last one, their peer; ratios are relative to the peer. The limit may be the peer
    itself. `threads` are the schedstat files of other threads that work for a contestant."""

    name: str
    records: int
    bytes: int
    contestants: tuple[Contestant, ...]
    check: Callable[[], None]
    close: Callable[[], None] = _nothing
    limit: Contestant | None = None
    threads: tuple[Path, ...] = ()

    @property
    def peer(self) -> Contestant:
        return self.contestants[-1]


Factory = Callable[[bool, Path], Contest]


def processor_seconds(work: Callable[[], object]) -> Callable[[], float]:
    """Return a run() with its own clock: the processor time of this thread, with the garbage collector off."""

    def run() -> float:
        gc.collect()
        gc.disable()
        try:
            started = time.thread_time()
            work()
            return time.thread_time() - started
        finally:
            gc.enable()

    return run


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
    limit: Score | None
    void_rounds: int

    def ratio(self, score: Score) -> float:
        """Return how many times as fast as the peer a contestant is."""
        return self.scores[-1].median / score.median

    def fraction(self, score: Score) -> float | None:
        """Return the fraction of the limit's speed that a contestant reaches; None without a limit."""
        return self.limit.median / score.median if self.limit else None


def race(contest: Contest, *, rounds: int = ROUNDS, measurement_seconds: float = _MEASUREMENT_SECONDS) -> Result:
    """Check the results, then measure the contestants, `rounds` times. A measurement lasts `measurement_seconds`; 0:
    the figures do not count, nor do disturbances."""
    contest.check()
    gc.collect()
    gc.freeze()  # the collections before each measurement look only at what the measurements leave
    try:
        return _race(contest, rounds, measurement_seconds)
    finally:
        gc.unfreeze()


def _race(contest: Contest, rounds: int, measurement_seconds: float) -> Result:
    racers = list(contest.contestants)
    if contest.limit is not None and contest.limit not in racers:
        racers.append(contest.limit)
    repeats = _repeats(contest, racers, measurement_seconds)
    scores = tuple(Score(racer.name) for racer in racers)
    counted = void = 0
    while counted < rounds:
        disturbed = disturbance(contest.threads)
        measured = []
        for racer, count in zip(racers, repeats, strict=True):
            if measurement_seconds:
                _provide_memory()
            measured.append(_measure(racer, count))
        if measurement_seconds and next(disturbed) and void < rounds:
            void += 1
            continue
        counted += 1
        for score, seconds in zip(scores, measured, strict=True):
            score.seconds.append(seconds)
    limit = scores[racers.index(contest.limit)] if contest.limit is not None else None
    return Result(contest, scores[: len(contest.contestants)], limit, void)


def _repeats(contest: Contest, racers: list[Contestant], measurement_seconds: float) -> list[int]:
    """Return how often each run() fits into a measurement. If all must do the same amount of work (B4), all get the
    number of the fastest. This is also the warm-up."""
    repeats = [_fitting(racer, measurement_seconds) for racer in racers]
    if any(racer.own_clock for racer in racers):
        count = len(contest.contestants)
        repeats[:count] = [max(repeats[:count])] * count
    return repeats


def _fitting(contestant: Contestant, measurement_seconds: float) -> int:
    first = min(_measure(contestant, 1) for _ in range(2))
    return 1 if contestant.before is not None else max(1, int(measurement_seconds / max(first, 1e-9)))


def _measure(contestant: Contestant, repeats: int) -> float:
    """Return the mean seconds of one run(), with the garbage collector off, as timeit does it."""
    if contestant.before is not None:
        contestant.before()
    run, times = contestant.run, range(repeats)
    if contestant.own_clock:
        return sum(float(run()) for _ in times) / repeats  # type: ignore[arg-type]
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in times:
            run()
        return (time.perf_counter() - started) / repeats
    finally:
        gc.enable()


def _provide_memory() -> None:
    """B6."""
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(_PAGE_CACHE_BYTES // len(_MIB)):
            file.write(_MIB)


def disturbance(threads: tuple[Path, ...] = ()) -> Iterator[bool]:
    """The call starts the observation. next() returns whether the processor was taken away since then, from this thread
    or from `threads`."""
    steal, waited, started = _steal(), _run_queue_wait(threads), time.perf_counter_ns()

    def verdicts() -> Iterator[bool]:
        while True:
            share = (_run_queue_wait(threads) - waited) / max(1, time.perf_counter_ns() - started)
            yield _steal() > steal or share > _WAIT_SHARE

    return verdicts()


def _steal() -> int:
    """Return the ticks that the hypervisor gave to other machines, all processors together."""
    try:
        return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
    except (OSError, IndexError, ValueError):
        return 0


def _run_queue_wait(threads: tuple[Path, ...]) -> int:
    """Return the nanoseconds for which this thread and `threads` were ready but did not run."""
    return sum(map(_waited, (_OWN_THREAD, *threads)))


def _waited(schedstat: Path) -> int:
    try:
        return int(schedstat.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
