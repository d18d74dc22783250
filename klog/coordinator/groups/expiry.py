"""Expiry: deletes committed offsets after offsets.retention.minutes, and groups that have neither offsets nor members.

The minutes count from the commit, or from the time when the group became empty. A commit with a retention time of its
own expires at its end. Offsets of a partition with a pending one stay. Kafka: GroupCoordinatorShard
.cleanupGroupMetadata, OffsetMetadataManager.cleanupExpiredOffsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups.admin import forget
from klog.coordinator.groups.offset_records import offset_key
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.logger import logger_of
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klog.coordinator.groups.group import Group
    from klog.coordinator.groups.offset_records import Committed

_MINUTE_MS = 60_000
_log = logger_of("coordinator")


class Expiry:
    """Deletes offsets and groups of a table without a request."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._retention_ms = table.config.offsets_retention_minutes * _MINUTE_MS

    def expire(self) -> None:
        """Delete what has expired. Takes the lock for each group."""
        table = self._table
        with table.lock:
            groups = table.groups()
        for group in groups:
            with table.lock:
                if table.unavailable is ErrorCode.NONE and table.get(group.group_id) is group:
                    self._expire_locked(group)

    def _expire_locked(self, group: Group) -> None:
        table, group_id = self._table, group.group_id
        now = table.clock.wall_ms()
        expired, left = [], table.offsets.has_open(group_id)
        for topic, partitions in table.offsets.topics(group_id).items():
            subscribed = group.subscribes(topic)
            for partition, committed in partitions.items():
                if (
                    subscribed
                    or not self._is_expired(group, committed, now)
                    or table.offsets.is_pending(group_id, topic, partition)
                ):
                    left = True
                else:
                    expired.append((topic, partition))
        ends = not left and group.is_empty and group.kind != "share"  # those have a state of their own
        if not expired and not ends:
            return
        records = [(offset_key(group_id, *place), None) for place in expired]
        try:
            table.append(group_id, [*records, *(group.tombstones() if ends else ())])
        except AppendFailed:
            return  # logged; the next round tries again
        for place in expired:
            table.offsets.remove(group_id, *place)
        if ends:
            forget(table, group)
        _log.info("event=expired group=%r offsets=%d group_deleted=%s", group_id, len(expired), ends)

    def _is_expired(self, group: Group, committed: Committed, now: int) -> bool:
        since = group.expires_since(committed.commit_timestamp)
        if since is None:
            return False
        if committed.expire_timestamp >= 0:
            return now >= committed.expire_timestamp
        return now - since >= self._retention_ms

    def partitions_deleted(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Delete the offsets of partitions that exist no more."""
        table = self._table
        deleted = set(partitions)
        with table.lock:
            found = [
                (group_id, *place)
                for group_id in list(table.offsets.groups())
                for place in table.offsets.partitions_of(group_id)
                if place in deleted
            ]
            if not found:
                return
            try:
                table.append_tombstones((table.log.partition_for(each[0]), offset_key(*each)) for each in found)
            except AppendFailed:
                return  # logged; the offsets expire
            for each in found:
                table.offsets.remove(*each)
