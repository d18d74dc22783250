"""The threads that handle requests which are not cheap. Kafka: KafkaRequestHandler, KafkaRequestHandlerPool."""

from __future__ import annotations

import threading
from collections.abc import Callable

from klog.clock import Clock, SystemClock
from klog.histogram import Histogram
from klog.network._connection import Request
from klog.network._queue import RequestQueue


class Handlers:
    """num.io.threads threads, each handling one request at a time. An exception closes the request's connection."""

    def __init__(self, count: int, queue: RequestQueue, handler: Callable[[Request], object], clock: Clock) -> None:
        self._queue = queue
        self._handler = handler
        self._clock = clock
        self._began = clock.monotonic()
        self._times = [Histogram() for _ in range(count)]  # each written by its thread
        self._waited = [0.0] * count
        self._waits_since: list[float | None] = [None] * count
        self._ending = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads. Raises RuntimeError if the machine has none left; stop() ends those that run."""
        for number in range(len(self._times)):
            name = f"klog-request-handler-{number}"
            thread = threading.Thread(target=self._run, args=(number,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, seconds: float) -> bool:
        """End the threads after the requests that they handle; those that wait are dropped. Returns whether all have
        ended in time."""
        self._ending = True
        for _ in self._threads:
            self._queue.end_one()
        clock = SystemClock()  # a manual one would stand still
        deadline = clock.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - clock.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, number: int) -> None:
        times, clock = self._times[number], self._clock
        while True:
            self._waits_since[number] = before = clock.monotonic()
            request = self._queue.take()
            self._waits_since[number] = None
            now = clock.monotonic()
            self._waited[number] += now - before
            if request is None:
                return
            if self._ending:
                request.close()
                continue
            times.note(now - request.received)
            try:
                self._handler(request)
            except Exception as error:
                request.failed(error)
            del request  # the next one may come late: do not keep this one's frame until then

    def queue_times(self) -> Histogram:
        """How long requests have waited for a thread."""
        total = Histogram()
        for each in self._times:
            total.add(each)
        return total

    @property
    def idle_ratio(self) -> float:
        """The share of time in which the threads waited, since they began."""
        now = self._clock.monotonic()
        passed = (now - self._began) * len(self._times)
        waited = sum(self._waited) + sum(now - since for since in self._waits_since if since is not None)
        return min(1.0, waited / passed) if passed > 0 else 1.0
