"""Many jobs on a few threads: all of them are done, whatever becomes of each. Kafka:
LogManager.waitForAllToComplete."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence


def run_all(jobs: Sequence[Callable[[], object]], threads: int) -> list[BaseException]:
    """Run every job, on at most so many threads beside this one's waiting; what failed, in the order of the jobs.

    With one thread, or one job, it is this thread that works.
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
            except BaseException as error:  # the others are done all the same
                failures[number] = error

    helpers = min(threads, len(jobs))
    if helpers <= 1:
        work()
    else:
        pool = [threading.Thread(target=work, name=f"klog-pool-{number}") for number in range(helpers)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
    return [failures[number] for number in sorted(failures)]
