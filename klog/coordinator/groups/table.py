"""GroupTable: what the requests of all kinds of groups share: the groups by id, their offsets, log, lock and deadlines.

T1  every call needs the lock, except where it says otherwise. It is one lock for all groups
T2  a record is appended before the state changes. An append that fails has changed nothing: AppendFailed
T3  a request that waits is answered when its group changes, by a deadline, or by close()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.coordinator_log import CoordinatorLog
from klog.coordinator.groups.deadlines import Deadlines
from klog.coordinator.groups.offsets import OffsetStore
from klog.errors import KlogError
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.locks import OwnLock
from klog.logger import logger_of
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from klog.clock import Clock
    from klog.coordinator.groups.config import GroupConfig
    from klog.coordinator.groups.group import Group
    from klog.scheduler import Scheduler
    from klog.security.context import Topics

_log = logger_of("coordinator")
_AS_RESPONSE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
_BY_NUMBER = {int(code): code for code in ErrorCode}


class AppendFailed(Exception):
    """The log did not take the records. code: for the response."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class GroupTable:
    """The groups of a broker."""

    def __init__(self, topics: Topics, scheduler: Scheduler, clock: Clock, config: GroupConfig) -> None:
        self.topics = topics
        self.clock = clock
        self.config = config
        self.lock = OwnLock()
        self.deadlines = Deadlines(scheduler, self.lock)
        self.log = CoordinatorLog(topics, CONSUMER_OFFSETS)
        self.offsets = OffsetStore()
        self.unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._groups: dict[str, Group] = {}
        self.get = self._groups.get

    # ---- groups: under the lock --------------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        """All groups, as of now."""
        return list(self._groups.values())

    def put(self, group: Group) -> None:
        """Add a group, or replace one of another kind."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> None:
        """Forget a group."""
        self._groups.pop(group_id, None)

    # ---- life --------------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """The groups are loaded: `unavailable` is NONE from now on."""
        self.unavailable = ErrorCode.NONE

    def stop(self) -> None:
        """Refuse requests, and run no deadline any more."""
        self.unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.deadlines.close()

    # ---- records -----------------------------------------------------------------------------------------------------

    def append(
        self,
        group_id: str,
        records: Sequence[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Append records of a group, all or none. Returns the offset of the first. producer: (id, epoch) of the
        transaction that they are part of. Raises AppendFailed (T2)."""
        try:
            partition = self.log.partition_for(group_id)
            return self.log.append(partition, records, producer=producer).first_offset
        except (KlogError, OSError) as error:
            raise _failed(error) from error

    def append_tombstones(self, keys: Iterable[tuple[int, bytes]]) -> None:
        """Append tombstones for keys in partitions of the topic. Raises AppendFailed; then some partitions may have
        theirs."""
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for partition, key in keys:
            by_partition.setdefault(partition, []).append((key, None))
        try:
            for partition, records in by_partition.items():
                self.log.append(partition, records)
        except (KlogError, OSError) as error:
            raise _failed(error) from error


def _failed(error: Exception) -> AppendFailed:
    code = _BY_NUMBER[error.code] if isinstance(error, KlogError) else ErrorCode.KAFKA_STORAGE_ERROR
    if code is not ErrorCode.INVALID_PRODUCER_EPOCH:
        _log.warning("event=append_failed topic=%s error=%s", CONSUMER_OFFSETS, error)
    return AppendFailed(_AS_RESPONSE.get(code, code))
