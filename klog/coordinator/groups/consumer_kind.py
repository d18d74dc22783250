"""ConsumerKind: the consumer groups of a coordinator, whose modules are loaded when the first one is needed.

They take as long to load as all else of the coordinator, and a broker whose clients all use the classic protocol never
needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.locks import OwnLock
from klog.protocol import ApiKey

if TYPE_CHECKING:
    from klog.coordinator.groups.classic_in_consumer import ClassicInConsumer
    from klog.coordinator.groups.consumer_groups import ConsumerGroups
    from klog.coordinator.groups.group import Handler
    from klog.coordinator.groups.rebalances import Rebalances
    from klog.coordinator.groups.table import GroupTable
    from klog.record import Record


class ConsumerKind:
    """A GroupKind. config: None for the defaults."""

    record_types = frozenset((3, 4, 5, 6, 7, 8, 16))

    def __init__(self, table: GroupTable, rebalances: Rebalances, config: ConsumerGroupConfig | None) -> None:
        self._table = table
        self._rebalances = rebalances
        self._config = config or ConsumerGroupConfig()
        self._own: dict[str, ConsumerGroupConfig] = {}
        self._loading = OwnLock()  # never held while another one is taken
        self._groups: ConsumerGroups | None = None

    @property
    def groups(self) -> ConsumerGroups:
        """The consumer groups. Any thread, with and without the lock of the table."""
        groups = self._groups
        if groups is None:
            from klog.coordinator.groups.consumer_groups import ConsumerGroups

            with self._loading:
                groups = self._groups
                if groups is None:
                    groups = self._groups = ConsumerGroups(self._table, self._rebalances, self._config, self._own)
        return groups

    def configure(self, group_id: str, config: ConsumerGroupConfig | None) -> None:
        """Give a group, which need not exist, a configuration of its own; None takes it back. Takes the lock of the
        table."""
        with self._table.lock:
            if config is None:
                self._own.pop(group_id, None)
            else:
                self._own[group_id] = config
            if self._groups is not None:
                self._groups.configured(group_id)

    @property
    def classic(self) -> ClassicInConsumer:
        """The classic requests to consumer groups."""
        from klog.coordinator.groups.classic_in_consumer import ClassicInConsumer

        return ClassicInConsumer(self.groups)

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda context, request: self.groups.heartbeat(context, request),
            ApiKey.CONSUMER_GROUP_DESCRIBE: lambda context, request: self.groups.describe(context, request),
        }

    def replay(self, record: Record) -> None:
        self.groups.replay(record)

    def loaded(self) -> None:
        if self._groups is not None:
            self._groups.loaded()

    def closed(self) -> None:
        """No request waits."""

    def topics_changed(self) -> None:
        """Topics were created or deleted, or have more partitions. Takes the lock of the table."""
        if self._groups is not None:
            self._groups.topics_changed()
