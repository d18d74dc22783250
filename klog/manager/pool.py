"""Runs many jobs on a few threads; a failed job does not stop the others. Kafka:
LogManager.waitForAllToComplete."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence


def run_all(jobs: Sequence[Callable[[], object]], threads: int) -> list[BaseException]:
    """Run every job, on at most `threads` threads, and wait for all. Returns the errors, in the order of the jobs.

    With one thread or one job the calling thread runs them, and if the machine has no thread left. Ctrl-C is raised at
    once: no further job begins, and those that run in other threads go on.
    """
    failures: dict[int, BaseException] = {}
    waiting = deque(enumerate(jobs))

    def work(survives: type[BaseException] = Exception) -> None:
        while True:
            try:
                number, job = waiting.popleft()
            except IndexError:
                return
            try:
                job()
            except survives as error:  # the other jobs still run
                failures[number] = error

    pool: list[threading.Thread] = []
    try:
        size = min(threads, len(jobs))
        while len(pool) < size and size > 1:
            thread = threading.Thread(target=work, args=(BaseException,), name=f"klog-pool-{len(pool)}")
            try:
                thread.start()
            except RuntimeError:  # the machine has none left
                break
            pool.append(thread)
        if not pool:
            work()
        for thread in pool:
            thread.join()
    finally:
        waiting.clear()
    return [failures[number] for number in sorted(failures)]
