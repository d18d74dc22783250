"""Configuration under Kafka's names: LogConfig for one log, ManagerConfig for a log.dir.

IoPolicy is the type of LogConfig.io.
Both are frozen, and take Kafka's property names ("segment.bytes") as well as snake_case ("segment_bytes"). An unknown
key raises InvalidConfig, which names the nearest known one. Kafka: LogConfig, TopicConfig, ServerLogConfigs.
"""

from klog.config.broker_table import BROKER_KEYS
from klog.config.explain import Explanation, explain
from klog.config.io_policy import IoPolicy
from klog.config.model import LogConfig, ManagerConfig, check_tiering, config_values, split_config
from klog.config.table import TOPIC_KEYS, Key

__all__ = [
    "BROKER_KEYS",
    "TOPIC_KEYS",
    "Explanation",
    "IoPolicy",
    "Key",
    "LogConfig",
    "ManagerConfig",
    "check_tiering",
    "config_values",
    "explain",
    "split_config",
]


def __dir__() -> list[str]:
    return sorted(__all__)
