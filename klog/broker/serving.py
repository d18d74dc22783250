"""What a broker's requests need, made for one start of it: the handlers of all APIs over one LogManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.api_versions import ApiVersions
from klog.broker.dispatch import Dispatcher
from klog.broker.fetch import Fetch
from klog.broker.list_offsets import ListOffsets
from klog.broker.metadata import Metadata
from klog.broker.produce import Produce
from klog.broker.purgatory import Purgatory
from klog.clock import SystemClock
from klog.protocol import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.catalog import TopicCatalogView
    from klog.broker.dispatch import Gate
    from klog.broker.metadata import Node
    from klog.broker.properties import Properties
    from klog.clock import Clock
    from klog.manager import LogManager
    from klog.scheduler import Scheduler


class Serving:
    """The components, and the dispatcher over their handlers. syncs: appends wait for the disk, so Produce is not
    handled in a network thread. waits: the scheduler of requests that wait, in real time."""

    def __init__(
        self,
        logs: LogManager,
        topics: TopicCatalogView,
        properties: Properties,
        scheduler: Scheduler,
        waits: Scheduler,
        clock: Clock,
        *,
        nodes: Callable[[str], list[Node]],
        cluster_id: str,
        syncs: bool,
        gates: tuple[Gate, ...] = (),
    ) -> None:
        settings = properties.settings
        self.purgatory = Purgatory(waits)
        self._fetch = Fetch(
            topics,
            self.purgatory,
            SystemClock(),
            max_bytes=settings.fetch_max_bytes,
            session_slots=settings.max_incremental_fetch_session_cache_slots,
        )

        def create(name: str) -> None:
            topics.create(name, logs.config.num_partitions)

        components: list[Any] = [
            Produce(topics, self.purgatory),
            self._fetch,
            ListOffsets(topics),
            Metadata(topics, nodes, cluster_id, create if settings.auto_create_topics_enable else None),
        ]
        handlers: dict[ApiKey, Any] = {}
        for component in components:
            handlers |= component.handlers()
        handlers |= ApiVersions(handlers, {}).handlers()
        slow = frozenset((ApiKey.PRODUCE,)) if syncs else frozenset[ApiKey]()
        self.dispatcher = Dispatcher(handlers, slow=slow, clock=SystemClock(), gates=gates)

    @staticmethod
    def names() -> frozenset[str]:
        """The properties that the components take."""
        return frozenset(("advertised.listeners",))

    def metrics(self) -> dict[str, float]:
        """Of the requests, under Kafka's names."""
        return {
            **self.dispatcher.metrics.metrics(),
            **self._fetch.metrics(),
            "PurgatorySize.Fetch": self.purgatory.size,
        }

    def close(self) -> None:
        """Give up what is not needed to be kept. The server has stopped."""
