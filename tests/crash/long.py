"""Examines many crash states: `python -m tests.crash.long --states 10000000 --jobs 2`.

Each seed is one workload with its crash states (workloads.py). The run ends after the seed that reaches the requested
number of states of different content, or at the first violation. The last line of the output has the seed with which
the next run should begin. With --file a run may be stopped, and the same command goes on where the file ends.
`tools/crash_replay.py SEED` shows one case.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.crash.workloads import SHARE, cut, name_of
from tests.support.power_cuts import Tally

MEMORY = "/dev/shm"


class Violation(Exception):
    """A crash state breaks a promise."""


def one(seed: int, share: int = SHARE) -> tuple[Tally, float]:
    """Examine the states of a seed. Returns the counts and the CPU seconds. Raises Violation."""
    began = time.process_time()
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="klog-crash-", dir=memory, ignore_cleanup_errors=True) as place:
        try:
            tally = cut(Path(place), seed, share=share)
        except Exception as error:
            notes = "\n".join(getattr(error, "__notes__", []))
            raise Violation(
                f"seed {seed}, workload {name_of(seed)}: {error!r}\n{notes}\n"
                f"Show it with: python tools/crash_replay.py {seed}"
            ) from None
    return tally, time.process_time() - began


@dataclasses.dataclass
class Run:
    """What a run has examined so far. known: the digests of its states. cpu: in seconds. after: the next seed."""

    first: int
    after: int
    tally: Tally = dataclasses.field(default_factory=Tally)
    known: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.uint64))
    cpu: float = 0.0

    def store(self, path: Path) -> None:
        counts = {field.name: getattr(self.tally, field.name) for field in _COUNTS}
        unfinished = path.with_name(f"{path.name}.tmp")
        with unfinished.open("wb") as file:
            np.savez(file, first=self.first, after=self.after, known=self.known, cpu=self.cpu, **counts)
        unfinished.replace(path)

    @classmethod
    def load(cls, path: Path) -> Run:
        with np.load(path) as stored:
            run = cls(int(stored["first"]), int(stored["after"]), Tally(), stored["known"], float(stored["cpu"]))
            for field in _COUNTS:
                setattr(run.tally, field.name, int(stored[field.name]))
            return run


_COUNTS = [field for field in dataclasses.fields(Tally) if field.name != "digests"]


def many(
    states: int,
    first: int,
    jobs: int = 1,
    report: Callable[[int, float], None] = lambda _distinct, _cpu: None,
    file: Path | None = None,
) -> tuple[Tally, int, int, float]:
    """Examine at least `states` distinct states, beginning with a seed, or where the run in `file` ended. report() is
    called with their number and the CPU seconds so far. Returns the tally without digests, the number of distinct
    states, the next seed and the CPU seconds."""
    run = Run.load(file) if file is not None and file.exists() else Run(first, first)
    if run.first != first:
        raise ValueError(f"{file} has a run that began with seed {run.first}, not {first}")
    waiting: list[np.ndarray] = []
    distinct = len(run.known)
    for tally, seconds in _results(run.after, jobs) if distinct < states else ():
        waiting.append(np.fromiter(tally.digests, np.uint64, len(tally.digests)))
        distinct += tally.distinct
        tally.digests = set()
        run.tally.add(tally)
        run.cpu += seconds
        run.after += 1
        if len(waiting) == 200 or distinct >= states:
            run.known = np.unique(np.concatenate([run.known, *waiting]))
            distinct, waiting = len(run.known), []
            if file is not None:
                run.store(file)
        report(distinct, run.cpu)
        if distinct >= states:
            break
    assert run.tally.full and run.tally.second, f"no state was opened twice: {run.tally}"
    return run.tally, distinct, run.after, run.cpu


def _results(first: int, jobs: int) -> Iterator[tuple[Tally, float]]:
    """The tallies of the seeds from the first on, in order."""
    seeds = iter(range(first, first + (1 << 40)))
    if jobs == 1:
        _quiet_collector()
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _quiet_collector) as pool:
        ahead = [pool.apply_async(one, (next(seeds),)) for _ in range(2 * jobs)]
        while True:
            yield ahead.pop(0).get()
            ahead.append(pool.apply_async(one, (next(seeds),)))


def _quiet_collector() -> None:
    """Collect garbage rarely: a state makes thousands of objects, few of them in cycles."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1_000_000, help="distinct crash states to examine")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--file", type=Path, help="keep the run here after every 200 seeds, and go on with it")
    given = parser.parse_args()
    shown = 0.0

    def progress(distinct: int, cpu: float) -> None:
        nonlocal shown
        if time.monotonic() - shown > 1 or distinct >= given.states:
            shown = time.monotonic()
            done = min(40, 40 * distinct // given.states)
            bar = f"[{'#' * done}{'.' * (40 - done)}] {distinct:,} of {given.states:,} states, {cpu:,.0f} s of CPU"
            print(f"\r{bar}", end="" if distinct < given.states else "\n", file=sys.stderr, flush=True)

    try:
        tally, distinct, after, cpu = many(given.states, given.first, given.jobs, progress, given.file)
    except Violation as violation:
        print(f"\n{violation}")
        return 1
    print(
        f"seeds {given.first} to {after - 1}: {distinct:,} distinct crash states, no violation; {cpu:,.0f} s of CPU, "
        f"{distinct / cpu * 3600 / 1e6:.2f} million per CPU-hour\n{tally}\ngo on with --first {after}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
