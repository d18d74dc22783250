"""Two threads against one: batches to columns, each thread its own half of them.

Decoding releases the GIL for each batch, so two cores should do nearly twice the work of one. That needs two free
cores: a round in which one of the threads waited in a run queue is void, like one with steal (bench.contest, B3). On a
busy machine all rounds are void: ignore the figure then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from bench.codec_contests import aiokafka_encode
from bench.contest import Contest, Contestant, Factory, Unavailable
from bench.workloads import workload
from klog import record

_BATCHES = 1  # of a MiB for each thread: larger data would measure the caches and memory that both share
_REPEATS = 64  # at least ten milliseconds in all, so that the time to wake up is negligible


class Helper:
    """A thread that does one piece of work on request, and waits in between."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._start, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._closing = False
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    @property
    def schedstat(self) -> Path:
        """Return the file in which the kernel counts how long this thread waited in a run queue."""
        return Path(f"/proc/self/task/{self._thread.native_id}/schedstat")

    def start(self) -> None:
        self._start.release()

    def wait(self) -> None:
        self._done.acquire()

    def close(self) -> None:
        self._closing = True
        self._start.release()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            self._start.acquire()
            if self._closing:
                return
            self._work()
            self._done.release()


def _two_threads(tiny: bool, folder: Path) -> Contest:
    if len(os.sched_getaffinity(0)) < 2:
        raise Unavailable("two processors")
    load, each, repeats = workload("100B", tiny=tiny), _BATCHES, 1 if tiny else _REPEATS
    tuples = load.tuples()
    mine, theirs = ([aiokafka_encode(tuples) for _ in range(each)] for _ in range(2))  # no two share memory
    rows = [0, 0]

    def decode(batches: list[bytes], index: int) -> None:
        rows[index] = sum(record.columns(batch).num_rows for _ in range(repeats) for batch in batches)

    def one() -> None:
        decode(mine, 0)
        decode(theirs, 1)

    helper = Helper(lambda: decode(theirs, 1))

    def two() -> None:
        helper.start()
        decode(mine, 0)
        helper.wait()

    def check() -> None:
        for run in (one, two):
            rows[:] = 0, 0
            run()
            assert rows == [repeats * each * load.count] * 2

    return Contest(
        "decode threads 100B",
        2 * repeats * each * load.count,
        2 * repeats * each * load.bytes,
        (Contestant("klog.record.columns, two threads", two, goal=1.8), Contestant("one thread", one)),
        check,
        helper.close,
        threads=(helper.schedstat,),
    )


FACTORIES: dict[str, Factory] = {"decode threads 100B": _two_threads}
