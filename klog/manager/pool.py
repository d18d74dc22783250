"""Runs many jobs on a few threads; a failed job does not stop the others. Kafka:
LogManager.waitForAllToComplete."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence


def run_all(jobs: Sequence[Callable[[], object]], threads: int) -> list[BaseException]:
    """Run every job, on at most `threads` threads, and wait for all. Returns the errors, in the order of the jobs.

    With one thread or one job the calling thread runs them.
    """
    failures: dict[int, BaseException] = {}
    waiting = deque(enumerate(jobs))

    def work() -> None:
        while True:
            try:
                number, job = waiting.popleft()
            except IndexError:
                return
            try:
                job()
            except BaseException as error:  # the other jobs still run
                failures[number] = error

    size = min(threads, len(jobs))
    if size <= 1:
        work()
    else:
        pool = [threading.Thread(target=work, name=f"klog-pool-{number}") for number in range(size)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
    return [failures[number] for number in sorted(failures)]
