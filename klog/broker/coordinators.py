"""Coordinators: those of groups, with their share groups, and of transactions, each made when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.broker import late_apis
from klog.broker.late import Late
from klog.broker.transaction_check import TransactionCheck
from klog.clock import ManualClock
from klog.coordinator.groups.config import GroupConfig
from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.coordinator.share import ShareGroupConfig, ShareKind
from klog.coordinator.transactions.config import TransactionConfig
from klog.internal_topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.catalog import TopicCatalogView, TopicChange
    from klog.broker.properties import Properties
    from klog.broker.purgatory import Purgatory
    from klog.clock import Clock
    from klog.coordinator.groups import GroupCoordinator
    from klog.coordinator.transactions import TransactionCoordinator
    from klog.scheduler import Scheduler

JOIN_DELAY_MS = 100


class Coordinators:
    """Any thread. check: of requests that append in transactions. config, consumers, shares: of the groups."""

    def __init__(
        self,
        topics: TopicCatalogView,
        properties: Properties,
        scheduler: Scheduler,
        clock: Clock,
        purgatory: Purgatory,
        waits: Scheduler,
        directory: str,
    ) -> None:
        self._topics, self._scheduler, self._clock = topics, scheduler, clock
        self._purgatory, self._waits = purgatory, waits
        self._node_id, self._directory = properties.settings.node_id, directory
        # A delay for the metadata that the first member asks for at the same time: without it kafka-python 3.0 may
        # assign nothing, and then fetch nothing. A clock that stands still would never end it.
        delay = {"group.initial.rebalance.delay.ms": 0 if isinstance(clock, ManualClock) else JOIN_DELAY_MS}
        self.config = GroupConfig.of(delay | properties.all)
        self.consumers = ConsumerGroupConfig.of(properties.all)
        self.shares = ShareGroupConfig.of(properties.all)
        self._transaction_config = TransactionConfig.of(properties.all)
        self._serves = False  # between load() and close()
        self._share_kind: ShareKind | None = None  # of the groups
        self.transactions = Late(late_apis.TRANSACTIONS, self._make_transactions)
        self.groups = Late(late_apis.GROUPS, self._make_groups)
        self.check = TransactionCheck(self.transactions.get)

    def _make_transactions(self) -> TransactionCoordinator:
        from klog.coordinator.transactions import TransactionCoordinator

        made = TransactionCoordinator(
            self._topics,
            self._scheduler,
            self._clock,
            self._transaction_config,
            node_id=self._node_id,
            directory=self._directory,
            on_marker=self._complete_transaction,
            appended=lambda topic, partition: self._purgatory.check((topic, partition)),
        )
        if self._serves:
            made.load()
        return made

    def _make_groups(self) -> GroupCoordinator:
        from klog.coordinator.groups import GroupCoordinator

        made = GroupCoordinator(
            self._topics, self._scheduler, self._clock, self.config, consumers=self.consumers, transactions=self.check
        )
        self._share_kind = ShareKind(
            made.table,
            self.shares,
            lambda key: self._waits.schedule("share records available", lambda: self._purgatory.check(key), delay_ms=1),
        )
        made.plug(self._share_kind)
        if self._serves:
            made.load()
        return made

    def share_kind(self) -> ShareKind:
        """The share groups among the groups."""
        self.groups.get()
        assert self._share_kind is not None
        return self._share_kind

    def load(self) -> None:
        """Load the state that the coordinators have in the internal topics. Before the first request."""
        for topic, coordinator in ((CONSUMER_OFFSETS, self.groups), (TRANSACTION_STATE, self.transactions)):
            if coordinator.made is not None or self._topics.partitions(topic) is not None:
                coordinator.get().load()
        self._serves = True

    def _complete_transaction(
        self, partition: int, producer_id: int, committed: bool, append: Callable[[], object]
    ) -> None:
        if self.groups.made is not None:
            self.groups.made.complete_transaction(partition, producer_id, committed, append)
        else:  # it will read the marker
            append()

    def topics_changed(self, change: TopicChange) -> None:
        """Notify the groups, if there are any."""
        groups = self.groups.made
        if groups is None:
            return
        gone = [(info.name, partition) for info in change.deleted for partition in range(info.partitions)]
        if gone:
            groups.partitions_deleted(gone)
        if change.created or change.deleted or change.extended:
            groups.topics_changed()
            self.share_kind().topics_changed()

    def close(self) -> None:
        """Respond to what waits in groups. Before the server stops."""
        self._serves = False
        for each in (self.groups.made_now(), self.transactions.made_now()):
            if each is not None:
                each.close()
