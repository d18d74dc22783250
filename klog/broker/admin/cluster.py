"""DescribeCluster, DescribeQuorum and UpdateFeatures. Kafka: KafkaApis.handleDescribeCluster, KafkaRaftClient,
FeatureControlManager.

This broker has no metadata log. As a quorum it is that of one voter, which leads an empty log in its first epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klog.broker.admin.failures import Refused, outcome, repeated
from klog.broker.metadata import NOT_ASKED, cluster_operations
from klog.internal_topics.names import CLUSTER_METADATA
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klog.broker.metadata import Node
    from klog.protocol import Message

_BROKERS, _CONTROLLERS = 1, 2  # endpoint types
_UPGRADE, _UNSAFE_DOWNGRADE = 1, 3
_RESULTS_UP_TO = 1  # versions of UpdateFeatures with a result for each feature
_FIRST_EPOCH: Final = 1
_NODES_SINCE: Final = 2  # version of DescribeQuorum


class Cluster:
    """Any thread. nodes: the brokers as the clients of a listener see them. features: {name: its version}, those that
    ApiVersions shows as finalized."""

    def __init__(
        self, nodes: Callable[[str], list[Node]], cluster_id: str, features: Mapping[str, int] | None = None
    ) -> None:
        self._nodes = nodes
        self._cluster_id = cluster_id
        self._features = dict(features or {})

    def handlers(self) -> dict[ApiKey, Callable[[Any, Any], Message | None]]:
        """The APIs of this component."""
        return {
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.DESCRIBE_QUORUM: self.describe_quorum,
            ApiKey.UPDATE_FEATURES: self.update_features,
        }

    def describe_cluster(self, context: Any, request: Any) -> Message:
        """The brokers, and which of them is the controller."""
        Response = messages.DescribeCluster.Response
        kind = request.endpoint_type
        if kind != _BROKERS:
            known = kind == _CONTROLLERS
            return Response(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="this is an endpoint of a broker" if known else f"there is no endpoint type {kind}",
                cluster_id=self._cluster_id,
            )
        nodes = self._nodes(context.listener)
        return Response(
            endpoint_type=_BROKERS,
            cluster_id=self._cluster_id,
            controller_id=nodes[0].node_id,
            brokers=[Response.Broker(broker_id=node.node_id, host=node.host, port=node.port) for node in nodes],
            cluster_authorized_operations=cluster_operations(context.authorized)
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
        )

    def describe_quorum(self, context: Any, request: Any) -> Message:
        """The voters of the metadata log: the first broker."""
        Response = messages.DescribeQuorum.Response
        if not cluster_authorized(context.authorized, "DESCRIBE"):
            return Response(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not allowed for this cluster"
            )
        node = self._nodes(context.listener)[0]

        def partition(topic: str, index: int) -> Any:
            if (topic, index) != (CLUSTER_METADATA, 0):
                return Response.Partition(
                    partition_index=index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=f"{CLUSTER_METADATA}-0 has the quorum",
                )
            voter = Response.ReplicaState(replica_id=node.node_id, log_end_offset=0)
            return Response.Partition(
                leader_id=node.node_id, leader_epoch=_FIRST_EPOCH, error_message=None, current_voters=[voter]
            )

        listener = Response.Listener(name=context.listener, host=node.host, port=node.port)
        return Response(
            topics=[
                Response.Topic(
                    topic_name=each.topic_name,
                    partitions=[partition(each.topic_name, one.partition_index) for one in each.partitions],
                )
                for each in request.topics
            ],
            nodes=[Response.Node(node_id=node.node_id, listeners=[listener])]
            if context.version >= _NODES_SINCE
            else [],
        )

    def update_features(self, context: Any, request: Any) -> Message:
        """The versions are those that this klog has: an update to another one fails."""
        Response = messages.UpdateFeatures.Response

        def work() -> None:
            if not cluster_authorized(context.authorized, "ALTER"):
                raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed for this cluster")
            if repeated([update.feature for update in request.feature_updates]):
                raise Refused(ErrorCode.INVALID_REQUEST, "a feature is in the request twice")
            for update in request.feature_updates:
                self._check(update)

        code, text = outcome(work, "UpdateFeatures")
        results = []
        if context.version <= _RESULTS_UP_TO and code is ErrorCode.NONE:
            results = [
                Response.Result(feature=update.feature, error_message=None) for update in request.feature_updates
            ]
        return Response(error_code=code, error_message=text, results=results)

    def _check(self, update: Any) -> None:
        """Raise Refused unless the feature has this version already."""
        if not _UPGRADE <= update.upgrade_type <= _UNSAFE_DOWNGRADE:
            raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"there is no upgrade type {update.upgrade_type}")
        version = self._features.get(update.feature)
        if version is None:
            raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"there is no feature {update.feature!r} here")
        if update.max_version_level != version:
            raise Refused(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{update.feature} is {version} in this version of klog and cannot become {update.max_version_level}",
            )
