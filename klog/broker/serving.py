"""What a broker's requests need, made for one start of it: the handlers of all APIs over one LogManager."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from klog.broker import late_apis
from klog.broker.api_versions import ApiVersions
from klog.broker.catalog import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog.broker.dispatch import Dispatcher
from klog.broker.fetch import Fetch
from klog.broker.late import Late
from klog.broker.list_offsets import ListOffsets
from klog.broker.metadata import Metadata
from klog.broker.mutation_quota import STRICT, limited
from klog.broker.produce import Produce
from klog.broker.protection import SLOW as SLOW_PROTECTION
from klog.broker.protection import Protection
from klog.broker.purgatory import Purgatory
from klog.broker.request_metrics import RequestMetrics
from klog.broker.transaction_check import TransactionCheck
from klog.clock import ManualClock, SystemClock
from klog.coordinator import FindCoordinator
from klog.coordinator.groups.config import GroupConfig
from klog.coordinator.groups.consumer_config import GROUP_DOCS as CONSUMER_DOCS
from klog.coordinator.groups.consumer_config import GROUP_KEYS as CONSUMER_KEYS
from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.coordinator.share import ShareGroupConfig, ShareKind
from klog.coordinator.share.config import GROUP_DOCS as SHARE_DOCS
from klog.coordinator.share.config import GROUP_KEYS as SHARE_KEYS
from klog.coordinator.transactions.config import TransactionConfig
from klog.protocol import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from klog.broker.admin import AdminApis
    from klog.broker.api_versions import Release
    from klog.broker.catalog import TopicCatalogView, TopicChange
    from klog.broker.context import RequestContext
    from klog.broker.dispatch import Gate
    from klog.broker.nodes import Nodes
    from klog.broker.properties import Properties
    from klog.broker.share_fetch import ShareFetch
    from klog.clock import Clock
    from klog.coordinator.groups import GroupCoordinator
    from klog.coordinator.transactions import TransactionCoordinator
    from klog.manager import LogManager
    from klog.protocol import Message
    from klog.scheduler import Scheduler
    from klog.security import Topics

# Levels of features that steer clients: (lowest, highest, finalized).
_FEATURES = {"group.version": (0, 1, 1), "share.version": (0, 1, 1), "transaction.version": (0, 2, 2)}
# A new block of producer ids, and markers in many partitions, may wait for the disk.
_SLOW_TRANSACTIONS = frozenset((ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS))
_BROKER_FILE = "klog-broker.json"
_NO_SHARES = {"ShareSessionsCount": 0.0, "SharePartitionsCount": 0.0}
_OF_LEADER = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.LIST_OFFSETS)
_JOIN_DELAY_MS = 100
_APPENDING = frozenset(
    (
        ApiKey.PRODUCE,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    )
)


class Serving:
    """The components, and a dispatcher over their handlers for each broker of `nodes`. syncs: appends wait for the
    disk, so the requests that append are not handled in a network thread. waits: the scheduler of requests that wait,
    in real time."""

    def __init__(
        self,
        logs: LogManager,
        topics: TopicCatalogView,
        properties: Properties,
        scheduler: Scheduler,
        waits: Scheduler,
        clock: Clock,
        *,
        nodes: Nodes,
        cluster_id: str,
        syncs: bool,
        authenticates: bool,
        gates: tuple[Gate, ...] = (),
        release: Release | None = None,
    ) -> None:
        settings = properties.settings
        self.purgatory = purgatory = Purgatory(waits)
        self._protection = protection = Protection(
            properties.security, logs.path, SystemClock(), authenticates=authenticates
        )
        # A delay for the metadata that the first member asks for at the same time: without it kafka-python 3.0 may
        # assign nothing, and then fetch nothing. A clock that stands still would never end it.
        delay = {"group.initial.rebalance.delay.ms": 0 if isinstance(clock, ManualClock) else _JOIN_DELAY_MS}
        group_config = GroupConfig.of(delay | properties.all)
        consumers = ConsumerGroupConfig.of(properties.all)
        shares = ShareGroupConfig.of(properties.all)
        transaction_config = TransactionConfig.of(properties.all)

        self._serves = False  # between load() and close_coordinators()
        self._shares: ShareKind | None = None  # of the groups

        def make_transactions() -> TransactionCoordinator:
            from klog.coordinator.transactions import TransactionCoordinator

            made = TransactionCoordinator(
                topics,
                scheduler,
                clock,
                transaction_config,
                node_id=settings.node_id,
                directory=logs.path,
                on_marker=self._transaction_completed,
                appended=lambda topic, partition: purgatory.check((topic, partition)),
            )
            if self._serves:
                made.load()
            return made

        self._transactions = Late(late_apis.TRANSACTIONS, make_transactions)
        check = TransactionCheck(self._transactions.get)

        def make_groups() -> GroupCoordinator:
            from klog.coordinator.groups import GroupCoordinator

            made = GroupCoordinator(topics, scheduler, clock, group_config, consumers=consumers, transactions=check)
            self._shares = ShareKind(
                made.table,
                shares,
                lambda key: waits.schedule("share records available", lambda: purgatory.check(key), delay_ms=1),
            )
            made.plug(self._shares)
            if self._serves:
                made.load()
            return made

        def make_admin() -> AdminApis:
            from klog.broker.admin import AdminApis
            from klog.broker.admin.group_configs import OfGroups

            return AdminApis(
                logs,
                topics,
                node_id=settings.node_id,
                cluster_id=cluster_id,
                nodes=nodes.of,
                brokers=nodes.ids,
                placement=nodes.placement,
                groups=(
                    OfGroups(consumers, CONSUMER_KEYS, CONSUMER_DOCS, lambda *own: self.groups.configure(*own)),
                    OfGroups(shares, SHARE_KEYS, SHARE_DOCS, lambda *own: self._share_kind().configure(*own)),
                ),
                config=properties.all,
                effective={**group_config.by_name(), **consumers.by_name(), **shares.by_name()},
                features={name: level for name, (_, _, level) in _FEATURES.items()},
                delete_topic_enable=settings.delete_topic_enable,
            )

        self._groups = Late(late_apis.GROUPS, make_groups)
        self._admin = Late(late_apis.ADMIN, make_admin)
        self._fetches: list[Fetch] = []
        self._share_fetches: list[Late[ShareFetch]] = []

        def of_leader(led: Topics) -> list[Any]:
            """The components whose requests go to the leader of a partition."""
            fetch = Fetch(
                led,
                purgatory,
                SystemClock(),
                max_bytes=settings.fetch_max_bytes,
                session_slots=settings.max_incremental_fetch_session_cache_slots,
                throttle=protection.throttle_fetched,
                quota_bytes=protection.fetch_bytes_max,
            )
            self._fetches.append(fetch)

            def make_share_fetch() -> ShareFetch:
                from klog.broker.share_fetch import ShareFetch

                return ShareFetch(
                    led,
                    purgatory,
                    waits,
                    self._share_kind(),
                    max_bytes=settings.fetch_max_bytes,
                    throttle=protection.throttle_fetched,
                )

            share_fetch = Late(late_apis.SHARE_FETCHES, make_share_fetch)
            self._share_fetches.append(share_fetch)
            return [Produce(led, purgatory, check, protection.throttle_produced), fetch, share_fetch, ListOffsets(led)]

        def create(name: str) -> None:
            topics.create(name, logs.config.num_partitions)

        components: list[Any] = [
            Metadata(
                topics, nodes.of, cluster_id, create if settings.auto_create_topics_enable else None, nodes.placement
            ),
            FindCoordinator(topics, nodes.coordinator),
            self._groups,
            self._transactions,
            self._admin,
            protection,
        ]
        authentication = protection.authentication()
        if authentication is not None:
            components.append(authentication)
            gates = (authentication, *gates)
        handlers = _handlers(components)
        for api in STRICT:
            handlers[api] = limited(handlers[api], protection, topics, api)
        handlers[ApiKey.TXN_OFFSET_COMMIT] = _held(check, handlers[ApiKey.TXN_OFFSET_COMMIT])
        handlers |= ApiVersions({*handlers, *_OF_LEADER}, _FEATURES, release).handlers()
        slow = late_apis.ADMIN_SLOW | SLOW_PROTECTION | _SLOW_TRANSACTIONS | (_APPENDING if syncs else frozenset())
        self._metrics = RequestMetrics()

        def dispatcher(own: dict[ApiKey, Any]) -> Dispatcher:
            return Dispatcher(
                handlers | own,
                slow=slow,
                clock=SystemClock(),
                authorize=protection.authorize(),
                throttle=protection.throttle_handled,
                gates=gates,
                metrics=self._metrics,
                release=release,
            )

        if len(nodes.ids) == 1:
            self._dispatchers = {nodes.ids[0]: dispatcher(_handlers(of_leader(topics)))}
        else:
            from klog.broker.admin.delete_records import DeleteRecords
            from klog.broker.admin.epoch_ends import EpochEnds
            from klog.broker.routing import Coordinated, LedTopics

            self._dispatchers = {}
            for node_id in nodes.ids:
                led = LedTopics(topics, nodes, node_id)
                own = _handlers([*of_leader(led), DeleteRecords(led), EpochEnds(led)])
                own |= Coordinated(topics, nodes, node_id).handlers(handlers)
                self._dispatchers[node_id] = dispatcher(own)
        self._topics = topics
        self._has_config = os.path.exists(os.path.join(logs.path, _BROKER_FILE))
        topics.on_change(self._topics_changed)

    def load(self) -> None:
        """Load the configurations that clients have set, and the state that the coordinators have in the internal
        topics. Before the first request."""
        if self._has_config:
            self._admin.get().start()  # before the groups are loaded, whose sessions it configures
        for topic, coordinator in ((CONSUMER_OFFSETS, self._groups), (TRANSACTION_STATE, self._transactions)):
            if coordinator.made is not None or self._topics.partitions(topic) is not None:
                coordinator.get().load()
        self._serves = True

    @property
    def groups(self) -> GroupCoordinator:
        """The groups of consumers."""
        return self._groups.get()

    def _share_kind(self) -> ShareKind:
        self._groups.get()
        assert self._shares is not None
        return self._shares

    def _transaction_completed(self, partition: int, producer_id: int, committed: bool) -> None:
        if self._groups.made is not None:  # else it will read the marker
            self._groups.made.transaction_completed(partition, producer_id, committed)

    def _topics_changed(self, change: TopicChange) -> None:
        gone = [(info.name, partition) for info in change.deleted for partition in range(info.partitions)]
        groups = self._groups.made
        if groups is not None:
            if gone:
                groups.partitions_deleted(gone)
            if change.created or change.deleted or change.extended:
                groups.topics_changed()
                self._share_kind().topics_changed()
        for info in (*change.deleted, *change.created):
            for partition in range(info.partitions):
                self.purgatory.check((info.name, partition))

    def dispatcher_of(self, node_id: int) -> Dispatcher:
        """The handler of the requests of a broker."""
        return self._dispatchers[node_id]

    def session_partitions(self, session_id: int) -> list[tuple[str, int]]:
        """(topic, partition) of all that a fetch session has, at whichever broker."""
        return [pair for each in self._fetches for pair in each.session_partitions(session_id)]

    def leaders_changed(self) -> None:
        """Retry the requests that wait for their partitions."""
        for info in self._topics.infos():
            for partition in range(info.partitions):
                self.purgatory.check((info.name, partition))

    @property
    def requests(self) -> RequestMetrics:
        """What the requests of each API cost."""
        return self._metrics

    def metrics(self) -> dict[str, float]:
        """Of the requests, under Kafka's names."""
        return {
            **self._metrics.metrics(),
            **_summed([each.metrics() for each in self._fetches]),
            **_summed([_NO_SHARES if each.made is None else each.made.metrics() for each in self._share_fetches]),
            "PurgatorySize.Fetch": self.purgatory.size,
        }

    def close_coordinators(self) -> None:
        """Respond to what waits in groups. Before the server stops."""
        self._serves = False
        for each in (self._groups.made_now(), self._transactions.made_now()):
            if each is not None:
                each.close()

    def close(self) -> None:
        """Give up moves of partitions. The server has stopped."""
        if self._admin.made is not None:
            self._admin.made.close()


def _handlers(components: Iterable[Any]) -> dict[ApiKey, Any]:
    found: dict[ApiKey, Any] = {}
    for component in components:
        found |= component.handlers()
    return found


def _summed(metrics: list[dict[str, float]]) -> dict[str, float]:
    """The sums of values of the same name."""
    return {name: sum(each[name] for each in metrics) for name in metrics[0]}


def _held(check: TransactionCheck, handle: Callable[[RequestContext, Any], Message | None]) -> Any:
    """A handler that keeps the transaction of its request from ending: an append after the marker would begin a
    transaction that nothing ends."""

    def handle_held(context: RequestContext, request: Any) -> Message | None:
        with check.hold(request.transactional_id):
            return handle(context, request)

    return handle_held
