"""Fetch sessions: a consumer names its partitions once, and then only what changes (KIP-227).

    (id, epoch)     of the request       response
    (0, 0)          a new session        all partitions, and the session's id; 0: no session, as every slot is taken
    (0, -1)         no session           all partitions
    (n, -1)         close n              all partitions
    (n, 0)          close n, then (0, 0)
    (n, k >= 1)     changes of session n partitions with data, an error, or another high watermark or log start

An incremental fetch costs what has changed, not what the session has:

    S1  a partition is `due` until a response has sent all of it: no error, no records left, watched since before it was
        read. The purgatory's changes make it due again
    S2  what nothing announces (retention, access rights, records of a program that does not call Broker.check()) is
        noticed when a fetch times out, and at least once in _REVIEW_SECONDS of fetches: all partitions are checked
    S3  partitions are served in rising `order`; one that has sent records comes last

Kafka: FetchSession, FullFetchContext, IncrementalFetchContext, FetchSessionCache.
"""

from __future__ import annotations

import os
import threading
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from klog.protocol import ErrorCode

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable

    from klog.broker.purgatory import Purgatory
    from klog.clock import Clock
    from klog.log import Log

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = 2**31 - 1
_EVICTION_SECONDS = 120.0
_REVIEW_SECONDS = 1.0
_order_of = attrgetter("order")


class FetchedPartition:
    """A partition as a consumer asks for it, and what it was last sent of it.

    topic: its name, "" while the id is unknown. key: (topic id or name, partition); the id as an int, whose hash costs
    less than that of a UUID. log: the one last read. session: the one that it belongs to, and order: by which that one
    sorts it; is_watched: does the session notice changes?
    """

    __slots__ = (
        "current_leader_epoch", "fetch_offset", "high_watermark", "is_watched", "key", "last_fetched_epoch", "log",
        "log_start_offset", "order", "partition", "partition_max_bytes", "session", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: uuid.UUID, asked: Any) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition: int = asked.partition
        self.key: tuple[int | str, int] = (topic_id.int or topic), self.partition
        self.high_watermark = self.log_start_offset = -1
        self.log: Log | None = None
        self.session: FetchSession | None = None
        self.order = 0
        self.is_watched = False
        self.ask(asked)

    def ask(self, asked: Any) -> None:
        """Take over what the consumer asks for now."""
        self.fetch_offset: int = asked.fetch_offset
        self.partition_max_bytes: int = asked.partition_max_bytes
        self.current_leader_epoch: int = asked.current_leader_epoch
        self.last_fetched_epoch: int = asked.last_fetched_epoch

    def is_news(self, result: Any) -> bool:
        """Is a result anything that the consumer does not know?"""
        return (
            bool(result.records)
            or result.error_code != 0
            or result.diverging_epoch.end_offset >= 0
            or self.high_watermark != result.high_watermark
            or self.log_start_offset != result.log_start_offset
        )

    def is_settled(self, result: Any) -> bool:
        """Does a result have all that there is (S1)?"""
        return (
            self.is_watched
            and not result.records
            and result.error_code == 0
            and result.diverging_epoch.end_offset < 0
            and self.fetch_offset >= result.high_watermark
        )

    def has_nothing_new(self) -> bool:
        """Is the log as the consumer knows it? Cheaper than a read."""
        log = self.log
        return (
            log is not None
            and not log.closed
            and log.offline is None
            and log.high_watermark == self.high_watermark
            and log.log_start_offset == self.log_start_offset
        )

    def note(self, result: Any) -> None:
        """Note what the consumer is sent. After an error the next response has the partition in any case."""
        self.high_watermark = -1 if result.error_code else result.high_watermark
        self.log_start_offset = -1 if result.error_code else result.log_start_offset

    def changed(self) -> None:
        """The purgatory notifies of a change."""
        session = self.session
        if session is not None:
            session.changed(self)


class FetchSession:
    """The partitions of one consumer. Any thread; the lock guards all fields but `last_used`, and the partitions'.
    It is the purgatory's key of the fetch that waits."""

    def __init__(
        self, number: int, uses_ids: bool, partitions: Iterable[FetchedPartition], now: float, purgatory: Purgatory
    ) -> None:
        self.number = number
        self.uses_ids = uses_ids
        self.epoch = 1
        self.created = self.last_used = self._reviewed = now
        self._purgatory = purgatory
        self._lock = threading.Lock()
        self._orders = count()
        self._closed = False
        self._partitions: dict[tuple[int | str, int], FetchedPartition] = {}
        self._due: set[FetchedPartition] = set()
        with self._lock:
            for each in partitions:
                self._add_locked(each)

    def __len__(self) -> int:
        return len(self._partitions)

    def names(self) -> list[tuple[str, int]]:
        """(topic, partition) of all."""
        with self._lock:
            return [(each.topic, each.partition) for each in self._partitions.values()]

    def _add_locked(self, partition: FetchedPartition) -> None:
        partition.session = self
        partition.order = next(self._orders)
        self._partitions[partition.key] = partition
        self._due.add(partition)

    def change(self, asked: Iterable[FetchedPartition], forgotten: Iterable[tuple[int | str, int]]) -> None:
        """Add, change and drop partitions."""
        with self._lock:
            for each in asked:
                known = self._partitions.get(each.key)
                if known is None:
                    self._add_locked(each)
                else:
                    known.ask(each)
                    self._due.add(known)
            for key in forgotten:
                dropped = self._partitions.pop(key, None)
                if dropped is not None:
                    self._due.discard(dropped)
                    self._unwatch_locked(dropped)

    def take(self, may_read: Callable[[str], bool], *, everything: bool) -> list[FetchedPartition]:
        """The partitions to read now: those that are due, and if it is time (S2) those that have changed unannounced.
        may_read: is there a topic, and may the consumer read it?"""
        with self._lock:
            due, self._due = self._due, set()
            if everything or self.last_used - self._reviewed >= _REVIEW_SECONDS:
                self._reviewed = self.last_used
                refused = {topic for topic in {each.topic for each in self._partitions.values()} if not may_read(topic)}
                due.update(
                    [each for each in self._partitions.values() if each.topic in refused or not each.has_nothing_new()]
                )
            for each in due:
                if not each.is_watched and each.topic and not self._closed:
                    each.is_watched = True
                    self._purgatory.subscribe(each, (each.topic, each.partition))
            return sorted(due, key=_order_of)

    def changed(self, partition: FetchedPartition) -> None:
        """A partition has changed: try the fetch that waits."""
        with self._lock:
            if not partition.is_watched:
                return
            self._due.add(partition)
        self._purgatory.check(self)

    def not_sent(self, results: Iterable[tuple[FetchedPartition, Any]]) -> None:
        """These results were read, and not sent: what they have is still due."""
        with self._lock:
            self._due.update(
                each
                for each, result in results
                if each.session is self and (each.is_news(result) or not each.is_settled(result))
            )

    def send(
        self, results: list[tuple[FetchedPartition, Any]], *, all_of_them: bool
    ) -> list[tuple[FetchedPartition, Any]]:
        """These results are about to be sent. Returns those that the consumer does not know; all_of_them: all."""
        news = []
        with self._lock:
            for pair in results:
                each, result = pair
                if all_of_them or each.is_news(result):
                    news.append(pair)
                each.note(result)
                if result.records:
                    each.order = next(self._orders)
                if each.session is self and not each.is_settled(result):
                    self._due.add(each)
        return news

    def close(self) -> None:
        """Notice no more changes."""
        with self._lock:
            self._closed = True
            for each in self._partitions.values():
                self._unwatch_locked(each)
            self._partitions.clear()
            self._due.clear()

    def _unwatch_locked(self, partition: FetchedPartition) -> None:
        partition.session = None
        if partition.is_watched:
            partition.is_watched = False
            self._purgatory.unsubscribe(partition, (partition.topic, partition.partition))


class FetchSessions:
    """The sessions of a broker, up to a number of slots. Any thread; the lock guards the map and each `last_used`."""

    def __init__(self, slots: int, clock: Clock, purgatory: Purgatory) -> None:
        self._slots = slots
        self._purgatory = purgatory
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[int, FetchSession] = {}
        self._evictions = 0

    def metrics(self) -> dict[str, float]:
        """Under Kafka's names."""
        with self._lock:
            partitions = sum(map(len, self._sessions.values()))
            return {
                "NumIncrementalFetchSessions": len(self._sessions),
                "NumIncrementalFetchPartitionsCached": partitions,
                "IncrementalFetchSessionEvictionsPerSecCount": self._evictions,
            }

    def create(self, uses_ids: bool, partitions: list[FetchedPartition]) -> FetchSession | None:
        """A new session; None without partitions or if every slot is taken."""
        now = self._clock.monotonic()
        with self._lock:
            if not partitions or not self._can_add(len(partitions), now):
                return None
            number = 0
            while number == 0 or number in self._sessions:
                number = int.from_bytes(os.urandom(4), "big") & EPOCH_MAX
            session = self._sessions[number] = FetchSession(number, uses_ids, partitions, now, self._purgatory)
            return session

    def _can_add(self, size: int, now: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda each: each.last_used)
        smallest = min(self._sessions.values(), key=len)
        if now - oldest.last_used > _EVICTION_SECONDS:
            evicted = oldest
        elif len(smallest) < size and now - smallest.created > _EVICTION_SECONDS:
            evicted = smallest
        else:
            return False
        self._sessions.pop(evicted.number).close()
        self._evictions += 1
        return True

    def partitions(self, number: int) -> list[tuple[str, int]]:
        """(topic, partition) of all that a session has; empty for an unknown one."""
        with self._lock:
            session = self._sessions.get(number)
        return [] if session is None else session.names()

    def close(self, number: int) -> None:
        """Forget a session."""
        with self._lock:
            session = self._sessions.pop(number, None)
        if session is not None:
            session.close()

    def next(self, number: int, epoch: int, uses_ids: bool) -> FetchSession | ErrorCode:
        """The session of an incremental fetch, with its epoch moved on."""
        with self._lock:
            session = self._sessions.get(number)
            if session is None:
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            if session.epoch != epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH
            if session.uses_ids != uses_ids:
                return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            session.epoch = epoch % EPOCH_MAX + 1  # Kafka: FetchMetadata.nextEpoch
            session.last_used = self._clock.monotonic()
            return session


def is_incremental(session_epoch: int) -> bool:
    """Does a request with this epoch continue a session?"""
    return session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)


def is_final(session_epoch: int) -> bool:
    """Does a request with this epoch want no session?"""
    return session_epoch == FINAL_EPOCH
