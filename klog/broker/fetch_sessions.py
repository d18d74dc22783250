"""Fetch sessions: a consumer names its partitions once, and then only what changes (KIP-227).

    (id, epoch)     of the request       response
    (0, 0)          a new session        all partitions, and the session's id; 0: no session, as every slot is taken
    (0, -1)         no session           all partitions
    (n, -1)         close n              all partitions
    (n, 0)          close n, then (0, 0)
    (n, k >= 1)     changes of session n partitions with data, an error, or another high watermark or log start

Kafka: FetchSession, FullFetchContext, IncrementalFetchContext, FetchSessionCache.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any

from klog.broker.partitions import NO_ID
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable

    from klog.clock import Clock

_FINAL_EPOCH = -1
_INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
_EVICTION_SECONDS = 120.0


class FetchedPartition:
    """A partition as a consumer asks for it, and what it was last sent of it.

    topic: its name, "" while the id is unknown. key: (topic id or name, partition).
    """

    __slots__ = (
        "current_leader_epoch", "fetch_offset", "high_watermark", "last_fetched_epoch", "log_start_offset",
        "partition", "partition_max_bytes", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: uuid.UUID, asked: Any) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition: int = asked.partition
        self.high_watermark = self.log_start_offset = -1
        self.ask(asked)

    def ask(self, asked: Any) -> None:
        """Take over what the consumer asks for now."""
        self.fetch_offset: int = asked.fetch_offset
        self.partition_max_bytes: int = asked.partition_max_bytes
        self.current_leader_epoch: int = asked.current_leader_epoch
        self.last_fetched_epoch: int = asked.last_fetched_epoch

    @property
    def key(self) -> tuple[uuid.UUID | str, int]:
        return (self.topic if self.topic_id == NO_ID else self.topic_id), self.partition


class FetchSession:
    """The partitions of one consumer, in the order in which they are served. Guarded by `lock`."""

    def __init__(self, number: int, uses_ids: bool, partitions: Iterable[FetchedPartition], now: float) -> None:
        self.lock = threading.Lock()
        self.number = number
        self.uses_ids = uses_ids
        self.epoch = 1
        self.created = self.last_used = now
        self.partitions = {each.key: each for each in partitions}

    def change(self, asked: Iterable[FetchedPartition], forgotten: Iterable[tuple[uuid.UUID | str, int]]) -> None:
        """Add, change and drop partitions."""
        for each in asked:
            known = self.partitions.get(each.key)
            if known is None:
                self.partitions[each.key] = each
            else:
                known.fetch_offset = each.fetch_offset
                known.partition_max_bytes = each.partition_max_bytes
                known.current_leader_epoch = each.current_leader_epoch
                known.last_fetched_epoch = each.last_fetched_epoch
        for key in forgotten:
            self.partitions.pop(key, None)

    def to_the_end(self, partitions: Iterable[FetchedPartition]) -> None:
        """Serve these last the next time, so that a busy partition does not starve the others."""
        for each in partitions:
            found = self.partitions.pop(each.key, None)
            if found is not None:
                self.partitions[each.key] = found


class FetchSessions:
    """The sessions of a broker, up to a number of slots. Any thread; the lock guards the map and each `last_used`."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[int, FetchSession] = {}
        self._evictions = 0

    def metrics(self) -> dict[str, float]:
        """Under Kafka's names."""
        with self._lock:
            count = sum(len(each.partitions) for each in self._sessions.values())
            return {
                "NumIncrementalFetchSessions": len(self._sessions),
                "NumIncrementalFetchPartitionsCached": count,
                "IncrementalFetchSessionEvictionsPerSecCount": self._evictions,
            }

    def create(self, uses_ids: bool, partitions: list[FetchedPartition]) -> FetchSession | None:
        """A new session; None without partitions or if every slot is taken."""
        now = self._clock.monotonic()
        with self._lock:
            if not partitions or not self._has_room(len(partitions), now):
                return None
            number = 0
            while number == 0 or number in self._sessions:
                number = secrets.randbelow(_EPOCH_MAX) + 1
            session = self._sessions[number] = FetchSession(number, uses_ids, partitions, now)
            return session

    def _has_room(self, size: int, now: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda each: each.last_used)
        smallest = min(self._sessions.values(), key=lambda each: len(each.partitions))
        if now - oldest.last_used > _EVICTION_SECONDS:
            evicted = oldest
        elif len(smallest.partitions) < size and now - smallest.created > _EVICTION_SECONDS:
            evicted = smallest
        else:
            return False
        del self._sessions[evicted.number]
        self._evictions += 1
        return True

    def close(self, number: int) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(number, None)

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
            session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
            session.last_used = self._clock.monotonic()
            return session


def is_incremental(session_epoch: int) -> bool:
    """Does a request with this epoch continue a session?"""
    return session_epoch not in (_INITIAL_EPOCH, _FINAL_EPOCH)


def is_final(session_epoch: int) -> bool:
    """Does a request with this epoch want no session?"""
    return session_epoch == _FINAL_EPOCH
