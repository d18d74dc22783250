"""ShareKind: the share groups of a coordinator, whose modules are loaded when the first one is needed.

A broker whose clients use consumer groups alone never needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.locks import OwnLock
from klog.protocol import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.coordinator.groups.group import Handler
    from klog.coordinator.groups.table import GroupTable
    from klog.coordinator.share.config import ShareGroupConfig
    from klog.coordinator.share.offsets import ShareOffsets
    from klog.coordinator.share.partitions import SharePartitions
    from klog.coordinator.share.share_groups import ShareGroups
    from klog.coordinator.share.state_log import ShareKey
    from klog.record import Record


class _Loaded:
    """The parts, once they are loaded."""

    def __init__(self, kind: ShareKind, table: GroupTable, available: Callable[[ShareKey], object]) -> None:
        from klog.coordinator.share.offsets import ShareOffsets
        from klog.coordinator.share.partitions import SharePartitions
        from klog.coordinator.share.share_groups import ShareGroups

        self.partitions: SharePartitions = SharePartitions(
            table.topics,
            table.deadlines.scheduler,
            table.clock,
            kind.config.snapshot_update_records,
            kind.config_of,
            available,
        )
        self.groups: ShareGroups = ShareGroups(table, self.partitions, kind.config_of, kind.left)
        self.offsets: ShareOffsets = ShareOffsets(table, self.groups, self.partitions)


class ShareKind:
    """A GroupKind. config: of groups that have none of their own. available: called, under a lock, with a partition of
    a group that has available records again; it must not wait."""

    record_types = frozenset((10, 11, 12, 13, 14, 15))

    def __init__(self, table: GroupTable, config: ShareGroupConfig, available: Callable[[ShareKey], object]) -> None:
        self.config = config
        self._table = table
        self._available = available
        self._own: dict[str, ShareGroupConfig] = {}
        self._left: list[Callable[[str, str], object]] = []
        self._loading = OwnLock()  # never held while another one is taken
        self._parts: _Loaded | None = None

    @property
    def _loaded(self) -> _Loaded:
        parts = self._parts
        if parts is None:
            with self._loading:
                parts = self._parts
                if parts is None:
                    parts = self._parts = _Loaded(self, self._table, self._available)
        return parts

    @property
    def partitions(self) -> SharePartitions:
        """The partitions of share groups. Any thread."""
        return self._loaded.partitions

    def config_of(self, group_id: str) -> ShareGroupConfig:
        """The configuration of a group, which need not exist. Any thread."""
        return self._own.get(group_id, self.config)

    def configure(self, group_id: str, config: ShareGroupConfig | None) -> None:
        """Give a group, which need not exist, a configuration of its own; None takes it back. Takes the lock of the
        table."""
        with self._table.lock:
            if config is None:
                self._own.pop(group_id, None)
            else:
                self._own[group_id] = config
            if self._parts is not None:
                self._parts.groups.configured(group_id)

    def on_left(self, callback: Callable[[str, str], object]) -> None:
        """Call back with the group and the id of a member that has left, under the lock of the
        table."""
        self._left.append(callback)

    def left(self, group_id: str, member_id: str) -> None:
        """A member has left."""
        for callback in self._left:
            callback(group_id, member_id)

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.SHARE_GROUP_HEARTBEAT: lambda context, request: self._loaded.groups.heartbeat(context, request),
            ApiKey.SHARE_GROUP_DESCRIBE: lambda context, request: self._loaded.groups.describe(context, request),
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda context, request: self._loaded.offsets.describe(
                context, request
            ),
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda context, request: self._loaded.offsets.alter(context, request),
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda context, request: self._loaded.offsets.delete(context, request),
        }

    def replay(self, record: Record) -> None:
        self._loaded.groups.replay(record)

    def loaded(self) -> None:
        if self._parts is not None:
            self._parts.groups.loaded()

    def closed(self) -> None:
        """Stop the timers of acquisitions."""
        if self._parts is not None:
            self._parts.partitions.close()

    def topics_changed(self) -> None:
        """Topics were created or deleted, or have more partitions. Takes the lock of the table."""
        if self._parts is not None:
            self._parts.groups.topics_changed()
