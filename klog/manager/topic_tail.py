"""TopicTail: the records of a topic's partitions as they arrive, for `for` and `async for`.

It sleeps until one of the logs changes, a partition or the topic appears, or a group's member comes or goes: all are
changes in the log.dirs. Kafka has no such call: KafkaConsumer.poll is the nearest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Self

from klog.clock import SystemClock
from klog.disk import Waiter
from klog.log.log import Log, waiter_for
from klog.log.read.isolation import Isolation
from klog.log.read.positions import Position
from klog.manager.in_thread import in_thread
from klog.manager.topic_cursor import TopicCursor, offset_of
from klog.manager.topic_source import TopicSource
from klog.record import Record

_PAUSE_SECONDS = 0.05  # with a clock other than SystemClock nothing can wake a sleeper


class TopicTail:
    """Ends `timeout` seconds after the last record. One iteration at a time; next() goes on with one.

    Raises OffsetOutOfRange if the next record was deleted before it was read, LogClosed once the manager is closed.
    """

    def __init__(
        self,
        source: TopicSource,
        look: Callable[[], list[Log]],
        records: Callable[[list[Log]], Iterator[Record]],
        records_async: Callable[[list[Log]], AsyncIterator[Record]],
        timeout: float | None,
    ) -> None:
        self._source = source
        self._look = look
        self._records = records
        self._records_async = records_async
        self._timeout = timeout
        self._begun: Iterator[Record] | None = None

    def __next__(self) -> Record:
        if self._begun is None:
            self._begun = iter(self)
        return next(self._begun)

    def __iter__(self) -> Iterator[Record]:
        clock = self._source.clock
        with _Watch(self._source) as watch:
            quiet_since = clock.monotonic()
            while True:
                logs = watch.of(self._look)
                for record in self._records(logs):
                    yield record
                    quiet_since = clock.monotonic()
                left = self._left(quiet_since)
                if left is not None and left <= 0:
                    return
                if isinstance(clock, SystemClock):
                    watch.waiter.wait(left)
                else:
                    clock.sleep(_PAUSE_SECONDS)

    async def __aiter__(self) -> AsyncIterator[Record]:
        import asyncio  # takes a fifth of the time of `import klog`, and few callers need it

        clock = self._source.clock
        with _Watch(self._source) as watch:
            quiet_since = clock.monotonic()
            while True:
                logs = await in_thread(partial(watch.of, self._look))
                async for record in self._records_async(logs):
                    yield record
                    quiet_since = clock.monotonic()
                left = self._left(quiet_since)
                if left is not None and left <= 0:
                    return
                if isinstance(clock, SystemClock):
                    await watch.waiter.wait_async(left)
                else:
                    await asyncio.sleep(_PAUSE_SECONDS)

    def _left(self, quiet_since: float) -> float | None:
        """Seconds until the timeout: None for never, 0 or less for now."""
        return None if self._timeout is None else self._timeout - (self._source.clock.monotonic() - quiet_since)


class _Watch:
    """The Waiter of the current logs. It is replaced before they are read if they are others than before."""

    def __init__(self, source: TopicSource) -> None:
        self._directories = source.directories
        self._logs: list[Log] = []
        self.waiter: Waiter = waiter_for([], self._directories)

    def of(self, look: Callable[[], list[Log]]) -> list[Log]:
        """Return the logs that look() returns, once they are watched."""
        while (logs := look()) != self._logs:
            self.waiter.close()
            self.waiter = waiter_for(logs, self._directories)
            self._logs = logs
        return logs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.waiter.close()


def tail_of(source: TopicSource, start: Position, isolation: Isolation, timeout: float | None) -> TopicTail:
    """Tail a topic from a position on. Partitions that appear later are read from their first record.

    Raises OffsetOutOfRange, ValueError.
    """
    cursor = TopicCursor("tail", "error", isolation)
    for log in source.logs(source.partitions()):
        cursor.place(log.partition, offset_of(log, start, "start"))

    def look() -> list[Log]:
        logs = source.logs(source.partitions())
        for log in logs:
            if log.partition not in cursor.position:
                cursor.place(log.partition, log.log_start_offset)
        return logs

    return TopicTail(source, look, cursor.records, cursor.records_async, timeout)
