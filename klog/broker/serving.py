"""What a broker's requests need, made for one start of it: the handlers of all APIs over one LogManager."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from klog.broker import late_apis
from klog.broker.adopted import is_of_kafka
from klog.broker.api_versions import ApiVersions
from klog.broker.coordinators import Coordinators
from klog.broker.dispatch import Dispatcher
from klog.broker.late import Late
from klog.broker.leading import APIS as LEADER_APIS
from klog.broker.leading import Leading
from klog.broker.metadata import Metadata
from klog.broker.protection import SLOW as SLOW_PROTECTION
from klog.broker.protection import Protection
from klog.broker.purgatory import Purgatory
from klog.broker.request_metrics import RequestMetrics
from klog.broker.settings import BROKER_FILE
from klog.clock import SystemClock
from klog.coordinator import FindCoordinator
from klog.coordinator.groups.consumer_config import GROUP_KEYS as CONSUMER_KEYS
from klog.coordinator.share.config import GROUP_KEYS as SHARE_KEYS
from klog.disk import exists
from klog.manager.topics import check_topic_name
from klog.protocol import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from klog.broker.admin import AdminApis
    from klog.broker.api_versions import Release
    from klog.broker.catalog import TopicCatalogView, TopicChange, TopicInfo
    from klog.broker.context import RequestContext
    from klog.broker.dispatch import Gate
    from klog.broker.leader_epochs import LeaderEpochs
    from klog.broker.listeners import Certificates
    from klog.broker.nodes import Nodes
    from klog.broker.properties import Properties
    from klog.broker.transaction_check import TransactionCheck
    from klog.clock import Clock
    from klog.coordinator.groups import GroupCoordinator
    from klog.manager import LogManager
    from klog.protocol import Message
    from klog.scheduler import Scheduler

# Levels of features that steer clients: (lowest, highest, finalized).
_FEATURES = {"group.version": (0, 1, 1), "share.version": (0, 1, 1), "transaction.version": (0, 2, 2)}
# A new block of producer ids, and markers in many partitions, may wait for the disk.
_SLOW_TRANSACTIONS = frozenset((ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS))
_OWN_DEFAULTS = ("num.network.threads", "socket.request.max.bytes")  # not those of klog.config
_OFFSETS = (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_FETCH)
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
        certificates: Certificates,
        epochs: LeaderEpochs,
    ) -> None:
        settings = properties.settings
        self._logs, self._topics, self._properties, self._nodes = logs, topics, properties, nodes
        self._cluster_id, self._release, self._certificates = cluster_id, release, certificates
        self.purgatory = Purgatory(waits)
        self._protection = Protection(properties.security, logs.path, SystemClock(), authenticates=authenticates)
        self._coordinators = Coordinators(topics, properties, scheduler, clock, self.purgatory, waits, logs.path)
        self._admin = Late(late_apis.ADMIN, self._make_admin)
        placement = nodes.placement if len(nodes.ids) > 1 else None
        self._leading = Leading(settings, self._coordinators, self._protection, self.purgatory, waits, placement)
        self._epochs = epochs
        self._metrics = RequestMetrics()
        authentication = self._protection.authentication()
        self._admits = None if authentication is None else authentication.admits
        self._gates = gates if authentication is None else (authentication, *gates)
        self._slow = late_apis.ADMIN_SLOW | SLOW_PROTECTION | _SLOW_TRANSACTIONS
        if syncs:
            self._slow |= _APPENDING
        self._dispatchers = self._make_dispatchers(self._shared_handlers(authentication))
        topics.on_change(self._topics_changed)

    def _make_admin(self) -> AdminApis:
        from klog.broker.admin import AdminApis
        from klog.broker.admin.group_configs import OfGroups

        coordinators, settings = self._coordinators, self._properties.settings
        consumers, shares = coordinators.consumers, coordinators.shares
        return AdminApis(
            self._logs,
            self._topics,
            node_id=settings.node_id,
            cluster_id=self._cluster_id,
            nodes=self._nodes.of,
            brokers=self._nodes.ids,
            placement=self._nodes.placement,
            groups=(
                OfGroups(consumers, CONSUMER_KEYS, lambda *own: coordinators.groups.get().configure(*own)),
                OfGroups(shares, SHARE_KEYS, lambda *own: coordinators.share_kind().configure(*own)),
            ),
            config=self._properties.all,
            effective={
                **coordinators.config.by_name(),
                **consumers.by_name(),
                **shares.by_name(),
                **{name: value for name, value in self._properties.network.by_name().items() if name in _OWN_DEFAULTS},
            },
            features={name: level for name, (_, _, level) in _FEATURES.items()},
            delete_topic_enable=settings.delete_topic_enable,
            certificates=self._certificates,
            charge=self._protection.throttle_changed,
        )

    def _shared_handlers(self, authentication: Any) -> dict[ApiKey, Any]:
        """The handlers of the requests that each broker handles alike."""
        topics, nodes, check = self._topics, self._nodes, self._coordinators.check

        def create(context: RequestContext, name: str) -> bool:
            partitions = self._logs.config.num_partitions
            check_topic_name(name)  # what cannot be created has no quota
            if self._protection.throttle_changed(context, partitions, strict=True):
                return False
            topics.create(name, partitions)
            return True

        creates = create if self._properties.settings.auto_create_topics_enable else None
        components: list[Any] = [
            Metadata(topics, nodes.of, self._cluster_id, creates, nodes.placement),
            FindCoordinator(topics, nodes.coordinator),
            self._coordinators.groups,
            self._coordinators.transactions,
            self._admin,
            self._protection,
        ]
        handlers = _handlers(components if authentication is None else [*components, authentication])
        for api in late_apis.TOPIC_CHANGES:
            handlers[api] = _throttled(handlers[api])
        handlers[ApiKey.TXN_OFFSET_COMMIT] = _held(check, handlers[ApiKey.TXN_OFFSET_COMMIT])
        for api in _OFFSETS:
            handlers[api] = _after_reports(topics, handlers[api])
        return handlers | ApiVersions({*handlers, *LEADER_APIS}, _FEATURES, self._release).handlers()

    def _make_dispatchers(self, handlers: dict[ApiKey, Any]) -> dict[int, Dispatcher]:
        """{node id: its dispatcher}."""
        topics, nodes = self._topics, self._nodes
        if len(nodes.ids) == 1:
            own = _handlers(self._leading.components(nodes.ids[0], topics))
            return {nodes.ids[0]: self._dispatcher(handlers | own)}
        from klog.broker.admin.delete_records import DeleteRecords
        from klog.broker.admin.epoch_ends import EpochEnds
        from klog.broker.leader_hints import LeaderHints
        from klog.broker.routing import Coordinated, LedTopics

        made = {}
        for node_id in nodes.ids:
            led = LedTopics(topics, nodes, node_id)
            own = _handlers([*self._leading.components(node_id, led), DeleteRecords(led), EpochEnds(led)])
            own |= LeaderHints(topics, nodes, node_id).handlers(own)
            own |= Coordinated(topics, nodes, node_id).handlers(handlers)
            made[node_id] = self._dispatcher(handlers | own)
        return made

    def _dispatcher(self, handlers: dict[ApiKey, Any]) -> Dispatcher:
        return Dispatcher(
            handlers,
            slow=self._slow,
            clock=SystemClock(),
            authorize=self._protection.authorize(),
            throttle=self._protection.throttle_handled,
            connection_delay=self._protection.throttle_connection,
            admits=self._admits,
            gates=self._gates,
            metrics=self._metrics,
            release=self._release,
        )

    def load(self) -> None:
        """Begin the leader epochs of this start. Load the configurations that clients have set, and the state that the
        coordinators have in the internal topics. Before the first request."""
        self._epochs.start(self._topics, after_crash=not is_of_kafka(self._logs.paths))
        if exists(os.path.join(self._logs.path, BROKER_FILE)):
            self._admin.get().start()  # before the groups are loaded, whose sessions it configures
        self._coordinators.load()

    @property
    def groups(self) -> GroupCoordinator:
        """The groups of consumers."""
        return self._coordinators.groups.get()

    def _topics_changed(self, change: TopicChange) -> None:
        self._coordinators.topics_changed(change)
        self._retry((*change.deleted, *change.created))

    def _retry(self, infos: Iterable[TopicInfo]) -> None:
        """Retry the requests that wait for partitions of these topics."""
        for info in infos:
            for partition in range(info.partitions):
                self.purgatory.check((info.name, partition))

    def dispatcher_of(self, node_id: int) -> Dispatcher:
        """The handler of the requests of a broker."""
        return self._dispatchers[node_id]

    def session_partitions(self, node_id: int, session_id: int) -> list[tuple[str, int]]:
        """(topic, partition) of all that a fetch session at a broker has; empty for an unknown one."""
        return self._leading.session_partitions(node_id, session_id)

    def share_session_partitions(self, node_id: int, group_id: str, member_id: str) -> list[tuple[str, int]]:
        """(topic, partition) of all that the share session of a member at a broker has; empty without one."""
        return self._leading.share_session_partitions(node_id, group_id, member_id)

    @contextmanager
    def leaders_move(self) -> Iterator[None]:
        """Leaders move within the block: then leader epochs rise, and the requests that wait for partitions are
        retried."""
        try:
            with self._epochs.move(self._topics):
                yield
        finally:
            self._retry(self._topics.infos())

    @property
    def requests(self) -> RequestMetrics:
        """What the requests of each API cost."""
        return self._metrics

    def metrics(self) -> dict[str, float]:
        """Of the requests, under Kafka's names."""
        return {
            **self._metrics.metrics(),
            **self._leading.metrics(),
            "PurgatorySize.Fetch": self.purgatory.size,
        }

    def close_coordinators(self) -> None:
        """Respond to what waits in groups. Before the server stops."""
        self._coordinators.close()

    def close(self) -> None:
        """Give up moves of partitions. The server has stopped."""
        self._epochs.stop(self._topics)
        if self._admin.made is not None:
            self._admin.made.close()


def _handlers(components: Iterable[Any]) -> dict[ApiKey, Any]:
    found: dict[ApiKey, Any] = {}
    for component in components:
        found |= component.handlers()
    return found


def _throttled(handle: Callable[[RequestContext, Any], Message | None]) -> Any:
    """A handler after whose response the connection is not read for the throttle time that it has."""

    def handle_throttled(context: RequestContext, request: Any) -> Message | None:
        response: Any = handle(context, request)
        if response is not None and response.throttle_time_ms:
            context.respond(response, throttle_ms=response.throttle_time_ms)
            return None
        return response  # type: ignore[no-any-return]

    return handle_throttled


def _after_reports(topics: TopicCatalogView, handle: Callable[[RequestContext, Any], Message | None]) -> Any:
    """A handler that begins after the offsets of deleted topics were deleted: a topic that was created again has none,
    and keeps those that the handler stores."""

    def handle_after_reports(context: RequestContext, request: Any) -> Message | None:
        topics.report()
        return handle(context, request)

    return handle_after_reports


def _held(check: TransactionCheck, handle: Callable[[RequestContext, Any], Message | None]) -> Any:
    """A handler that keeps the transaction of its request from ending: an append after the marker would begin a
    transaction that nothing ends."""

    def handle_held(context: RequestContext, request: Any) -> Message | None:
        with check.hold(request.transactional_id):
            return handle(context, request)

    return handle_held
