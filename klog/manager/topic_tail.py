"""TopicTail: the records of a topic's partitions as they arrive, for `for` and `async for`.

It sleeps until one of the logs changes, a partition or the topic appears, or a group's member comes or goes: all are
changes in the log.dirs. Kafka has no such call: KafkaConsumer.poll is the nearest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from klog.clock import SystemClock
from klog.disk import Waiter
from klog.errors import UnknownTopicOrPartition
from klog.log.log import Log, waiter_for
from klog.log.read.in_thread import in_thread
from klog.log.read.isolation import Isolation
from klog.manager.topic_cursor import TopicCursor, offset_of
from klog.manager.topic_positions import TopicPosition, check_positions, of_partition
from klog.manager.topic_source import TopicSource
from klog.record import Record
from klog.values import NamedTuple

if TYPE_CHECKING:
    from klog.log.read.decoding import Decoded, Decoding

T = TypeVar("T")
_PAUSE_SECONDS = 0.05  # with a clock other than SystemClock nothing can wake a sleeper


class Delivery(NamedTuple, Generic[T]):
    """How the records that these logs have now are returned, to a thread and to a task."""

    now: Callable[[list[Log]], Iterator[T]]
    now_async: Callable[[list[Log]], AsyncIterator[T]]


class TopicTail(Generic[T]):
    """Ends `timeout` seconds after the last record. One iteration at a time; next() goes on with one.

    decoded() iterates tuples (record, key, value), as LogReader.decoded does. Raises OffsetOutOfRange if the next
    record was deleted before it was read, LogTruncated if the log was truncated below it; LogClosed once the manager is
    closed.
    """

    def __init__(
        self,
        source: TopicSource,
        find_logs: Callable[[], list[Log]],
        delivery: Delivery[T],
        decoded: Delivery[Decoded],
        timeout: float | None,
    ) -> None:
        self._source = source
        self._find_logs = find_logs
        self._delivery = delivery
        self._decoded = decoded
        self._timeout = timeout
        self._begun: Iterator[T] | None = None

    def __reduce__(self) -> Any:
        topic = self._source.topic
        raise TypeError(f"a tail of topic {topic!r} belongs to its process: call logs.tail({topic!r}) there")

    def decoded(self) -> TopicTail[Decoded]:
        """This tail with decoded keys and values: tuples (record, key, value), for `for` and `async for`. Needs decode=
        of tail() or reader(). Raises BadValue where LogReader.decoded would; ValueError without decode."""
        return TopicTail(self._source, self._find_logs, self._decoded, self._decoded, self._timeout)

    def __next__(self) -> T:
        if self._begun is None:
            self._begun = iter(self)
        return next(self._begun)

    def __iter__(self) -> Iterator[T]:
        clock = self._source.clock
        with _Watch(self._source) as watch:
            quiet_since = clock.monotonic()
            while True:
                logs = watch.of(self._find_logs)
                try:
                    for item in self._delivery.now(logs):
                        yield item
                        quiet_since = clock.monotonic()
                except UnknownTopicOrPartition:
                    if not self._source.has_gone(logs):
                        raise
                    continue  # where it has moved to
                left = self._left(quiet_since)
                if left is not None and left <= 0:
                    return
                if isinstance(clock, SystemClock):
                    watch.waiter.wait(left)
                else:
                    clock.sleep(_PAUSE_SECONDS)

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio  # takes a fifth of the time of `import klog`, and few callers need it

        clock = self._source.clock
        with _Watch(self._source) as watch:
            quiet_since = clock.monotonic()
            while True:
                logs = await in_thread(partial(watch.of, self._find_logs))
                try:
                    async for item in self._delivery.now_async(logs):
                        yield item
                        quiet_since = clock.monotonic()
                except UnknownTopicOrPartition:
                    if not self._source.has_gone(logs):
                        raise
                    continue
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
        self._source = source
        self._logs: list[Log] = []
        self.waiter = self._waiter()

    def _waiter(self) -> Waiter:
        return waiter_for(self._logs, self._source.directories, [self._source.shown])

    def of(self, find_logs: Callable[[], list[Log]]) -> list[Log]:
        """Return the logs that find_logs() returns, once they are watched."""
        while (logs := find_logs()) != self._logs:
            self.waiter.close()
            self._logs = logs
            self.waiter = self._waiter()
        return logs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.waiter.close()


def tail_of(
    source: TopicSource,
    start: TopicPosition,
    isolation: Isolation,
    include_control: bool,
    timeout: float | None,
    decoding: Decoding | None,
) -> TopicTail[Record]:
    """Tail a topic from a position on. Partitions that appear later, or that a mapping leaves out, are read from their
    first record.

    Raises OffsetOutOfRange, ValueError.
    """
    cursor = TopicCursor("tail", "error", isolation, decoding, include_control=include_control)
    partitions = source.partitions()
    check_positions("start", start, source.topic, partitions)
    for log in source.logs(partitions):
        cursor.place(log.partition, offset_of(log, of_partition(start, log.partition), "start"))

    def find_logs() -> list[Log]:
        logs = source.logs(source.partitions())
        for log in logs:
            if log.partition not in cursor.position:
                cursor.place(log.partition, log.log_start_offset)
        return logs

    records = Delivery(cursor.records, cursor.records_async)
    return TopicTail(source, find_logs, records, Delivery(cursor.decoded, cursor.decoded_async), timeout)
