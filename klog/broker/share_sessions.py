"""Share sessions: a member of a share group names its partitions once, and then only what changes (KIP-932).

    epoch     of the request          effect
    0         a new session           the one that the member had is forgotten
    n >= 1    changes of the session  n is the one that the last response has asked for
    -1        the session ends        what the member has acquired is available again

A session belongs to a connection, and ends with it. Kafka: ShareSession, ShareSessionCache.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from klog.broker.fetch_sessions import EPOCH_MAX
from klog.coordinator.groups.refusal import Refused
from klog.protocol import ErrorCode
from klog.values import NamedTuple

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable

    from klog.network import Connection
    from klog.scheduler import Scheduler, Task

_SWEEP_MS = 1_000


class SessionKey(NamedTuple):
    """The member of a group."""

    group_id: str
    member_id: str


class ShareSession:
    """One session. partitions: (topic id, number) of those that the member reads, in its order."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection: Connection, partitions: Iterable[tuple[uuid.UUID, int]]) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        self.partitions = dict.fromkeys(partitions)


class ShareSessions:
    """Any thread. ended: called with a session whose connection was closed, under the lock, so that its member has no
    other one yet. scheduler: in real time."""

    def __init__(self, slots: int, scheduler: Scheduler, ended: Callable[[ShareSession], object]) -> None:
        self._slots = slots
        self._scheduler = scheduler
        self._ended = ended
        self._lock = threading.Lock()  # guards the fields below, and those of sessions
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._sweeping: Task | None = None

    def metrics(self) -> dict[str, float]:
        """Under Kafka's names."""
        with self._lock:
            count = sum(len(each.partitions) for each in self._sessions.values())
            return {"ShareSessionsCount": len(self._sessions), "SharePartitionsCount": count}

    def is_current(self, session: ShareSession) -> bool:
        """Does a session go on, with its connection open?"""
        return self._sessions.get(session.key) is session and not session.connection.closed

    def open(
        self, key: SessionKey, connection: Connection, partitions: Iterable[tuple[uuid.UUID, int]]
    ) -> ShareSession:
        """A new session. Raises Refused if there are too many."""
        made = ShareSession(key, connection, partitions)
        with self._lock:
            if key not in self._sessions and len(self._sessions) >= self._slots:
                raise Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, "The limit of share sessions has been reached.")
            before = self._sessions.get(key)
            if before is not None and before.connection.closed:
                self._ended(before)
            self._sessions[key] = made
            if self._sweeping is None:
                self._sweeping = self._scheduler.schedule("share sessions", self._sweep, _SWEEP_MS, _SWEEP_MS)
        return made

    def next(
        self,
        key: SessionKey,
        epoch: int,
        added: Iterable[tuple[uuid.UUID, int]] = (),
        forgotten: Iterable[tuple[uuid.UUID, int]] = (),
    ) -> ShareSession:
        """The session of a request, with its changes. Raises Refused."""
        with self._lock:
            session = self._find(key)
            if session.epoch != epoch:
                raise Refused(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                    f"Epoch {session.epoch} of the session expected, not {epoch}.",
                )
            session.epoch = epoch % EPOCH_MAX + 1  # Kafka: ShareRequestMetadata.nextEpoch
            session.partitions |= dict.fromkeys(added)
            for each in forgotten:
                session.partitions.pop(each, None)
            return session

    def partitions(self, key: SessionKey) -> list[tuple[uuid.UUID, int]]:
        """(topic id, number) of all that the session of a member has; empty without one."""
        with self._lock:
            session = self._sessions.get(key)
            return [] if session is None else list(session.partitions)

    def find(self, key: SessionKey) -> ShareSession:
        """The session of a member. Raises Refused."""
        with self._lock:
            return self._find(key)

    def _find(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, "The member has no share session here.")
        return session

    def close(self, key: SessionKey) -> None:
        """Forget the session of a member, if it has one."""
        with self._lock:
            self._close(key)

    def _close(self, key: SessionKey) -> None:
        self._sessions.pop(key, None)
        if not self._sessions and self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def _sweep(self) -> None:
        with self._lock:
            for session in [each for each in self._sessions.values() if each.connection.closed]:
                self._close(session.key)
                self._ended(session)
