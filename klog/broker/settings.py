"""The properties of a broker that concern its requests. Kafka: KafkaConfig and the parts that it is made of."""

from __future__ import annotations

from typing import Final

from klog.config.keyed import Keyed, key
from klog.values import dataclass

BROKER_FILE: Final = "klog-broker.json"  # what clients have set: klog.broker.admin.dynamic_configs


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(Keyed):
    """Not all defaults are Kafka's: topics are not created by asking for them, and the internal topics have one
    partition. Raises ValueError or TypeError."""

    node_id: int = key("node.id", 1, 0, doc="id of the broker")
    auto_create_topics_enable: bool = key(
        "auto.create.topics.enable", False, doc="whether a topic is created when a client asks for it; Kafka: true"
    )
    delete_topic_enable: bool = key("delete.topic.enable", True, doc="whether clients may delete topics")
    default_replication_factor: int = key("default.replication.factor", 1, 1)
    fetch_max_bytes: int = key("fetch.max.bytes", 57_671_680, 1024)
    max_incremental_fetch_session_cache_slots: int = key("max.incremental.fetch.session.cache.slots", 1000, 0)
    offsets_topic_num_partitions: int = key(
        "offsets.topic.num.partitions", 1, 1, doc="partitions of __consumer_offsets when it is created; Kafka: 50"
    )
    transaction_state_log_num_partitions: int = key(
        "transaction.state.log.num.partitions",
        1,
        1,
        doc="partitions of __transaction_state when it is created; Kafka: 50",
    )
    share_coordinator_state_topic_num_partitions: int = key(
        "share.coordinator.state.topic.num.partitions",
        1,
        1,
        doc="partitions of __share_group_state when it is created; Kafka: 50",
    )
    offsets_topic_segment_bytes: int = key(
        "offsets.topic.segment.bytes", 104_857_600, 14, doc="segment.bytes of __consumer_offsets"
    )
    transaction_state_log_segment_bytes: int = key(
        "transaction.state.log.segment.bytes", 104_857_600, 14, doc="segment.bytes of __transaction_state"
    )
    share_coordinator_state_topic_segment_bytes: int = key(
        "share.coordinator.state.topic.segment.bytes", 104_857_600, 14, doc="segment.bytes of __share_group_state"
    )
    advertised_listeners: str = key(
        "advertised.listeners", "", doc="NAME://host:port,...: the addresses that clients get, if not the listeners'"
    )
    inter_broker_listener_name: str = key(
        "inter.broker.listener.name",
        "",
        doc="of several listeners the one whose clients get in beyond max.connections, in place of idle ones of others",
    )
