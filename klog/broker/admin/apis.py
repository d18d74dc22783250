"""AdminApis: the components of this package for one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.admin.alter_configs import AlterConfigs
from klog.broker.admin.cluster import Cluster
from klog.broker.admin.config_entries import ConfigView
from klog.broker.admin.create_partitions import CreatePartitions
from klog.broker.admin.create_topics import CreateTopics
from klog.broker.admin.delete_records import DeleteRecords
from klog.broker.admin.delete_topics import DeleteTopics
from klog.broker.admin.describe_configs import DescribeConfigs
from klog.broker.admin.dynamic_configs import DynamicConfigs
from klog.broker.admin.epoch_ends import EpochEnds
from klog.broker.admin.group_configs import GroupConfigs, OfGroups
from klog.broker.admin.leaders import Leaders
from klog.broker.admin.log_dirs import LogDirs
from klog.broker.admin.mutations import unlimited
from klog.broker.admin.replica_moves import ReplicaMoves
from klog.broker.admin.topic_pages import TopicPages
from klog.broker.metadata import Placement
from klog.broker.settings import BrokerSettings
from klog.config import BROKER_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from klog.broker.admin.mutations import Charge
    from klog.broker.catalog import TopicCatalogView
    from klog.broker.listeners import Certificates
    from klog.broker.metadata import Node
    from klog.disk import Files
    from klog.manager import LogManager
    from klog.protocol import ApiKey, Message


class AdminApis:
    """Any thread. It is made before clients' changes are applied to `logs`, which start() does.

    config: the broker's properties by Kafka's names. effective: {name: value} of properties that neither klog's tables
    nor BrokerSettings have, given or default, for DescribeConfigs. features: {name: its version}, as ApiVersions shows
    them. brokers, placement: of several brokers in one process. groups: the configurations of groups. certificates:
    of the listeners. charge: counts the partitions that clients create and delete. Raises CorruptCheckpoint,
    NewerFormat, OSError.
    """

    def __init__(
        self,
        logs: LogManager,
        topics: TopicCatalogView,
        *,
        node_id: int,
        cluster_id: str,
        nodes: Callable[[str], list[Node]],
        config: Mapping[str, Any] | None = None,
        effective: Mapping[str, Any] | None = None,
        features: Mapping[str, int] | None = None,
        delete_topic_enable: bool = True,
        files: Files | None = None,
        brokers: tuple[int, ...] | None = None,
        placement: Callable[[str, int], Placement] | None = None,
        groups: Sequence[OfGroups] = (),
        certificates: Certificates | None = None,
        charge: Charge = unlimited,
    ) -> None:
        brokers = (node_id,) if brokers is None else brokers
        self.dynamic = DynamicConfigs(logs, files, certificates)
        self._groups = GroupConfigs(self.dynamic, groups)
        self.moves = ReplicaMoves(logs)
        settings = BrokerSettings.of(config or {}).by_name()
        for name in ("advertised.listeners", "inter.broker.listener.name"):
            settings[name] = settings[name] or None
        own = {name: value for name, value in settings.items() if name not in BROKER_KEYS}
        view = ConfigView(logs, self.dynamic, config or {}, {**own, **(effective or {})})
        self._components = (
            CreateTopics(logs, topics, view, brokers, charge),
            DeleteTopics(topics, enabled=delete_topic_enable, charge=charge),
            CreatePartitions(topics, brokers, charge),
            DescribeConfigs(topics, view, self._groups, brokers),
            AlterConfigs(logs, topics, self.dynamic, self._groups, brokers),
            DeleteRecords(topics),
            LogDirs(logs, topics, self.moves),
            Leaders(topics, brokers),
            Cluster(nodes, cluster_id, features),
            EpochEnds(topics),
            TopicPages(topics, placement or _only(node_id)),
        )

    def handlers(self) -> dict[ApiKey, Callable[[Any, Any], Message | None]]:
        """The APIs of all components."""
        found: dict[ApiKey, Callable[[Any, Any], Message | None]] = {}
        for component in self._components:
            found |= component.handlers()
        return found

    def start(self) -> None:
        """Apply the configuration that clients have set in earlier runs."""
        self.dynamic.apply()
        self._groups.apply()

    def close(self) -> None:
        """Give up moves that are under way. Before the directory is closed."""
        self.moves.close()


def _only(node_id: int) -> Callable[[str, int], Placement]:
    """The placement of all partitions at one broker."""
    place = Placement(node_id, [node_id], [node_id])
    return lambda topic, partition: place
