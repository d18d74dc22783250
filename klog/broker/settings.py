"""The properties of a broker that concern its requests. Kafka: KafkaConfig and the parts that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klog.errors import InvalidConfig

_INT_MAX = 2**31 - 1
# name: (default, lowest value); a flag has no lowest value.
_KEYS: Final[dict[str, tuple[Any, int | None]]] = {
    "node.id": (1, 0),
    "auto.create.topics.enable": (False, None),
    "fetch.max.bytes": (57_671_680, 1024),
    "max.incremental.fetch.session.cache.slots": (1000, 0),
    "default.replication.factor": (1, 1),
    "offsets.topic.num.partitions": (1, 1),
    "transaction.state.log.num.partitions": (1, 1),
    "delete.topic.enable": (True, None),
}
_FLAGS = {"true": True, "false": False}


class BrokerSettings:
    """The values, by Kafka's names with underscores: node_id, auto_create_topics_enable, and so on.

    Not all defaults are Kafka's: topics are not created by asking for them, and the internal topics have one partition.
    Raises InvalidConfig.
    """

    node_id: int
    auto_create_topics_enable: bool
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    default_replication_factor: int
    offsets_topic_num_partitions: int
    transaction_state_log_num_partitions: int
    delete_topic_enable: bool

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        values = values or {}
        for name, (default, low) in _KEYS.items():
            value = values.get(name, default)
            setattr(self, name.replace(".", "_"), _flag(name, value) if low is None else _number(name, value, low))

    @staticmethod
    def names() -> frozenset[str]:
        """The properties that this takes."""
        return frozenset(_KEYS)


def _flag(name: str, value: Any) -> bool:
    found = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
    if found is None:
        raise InvalidConfig(f"{name}={value!r}: true or false expected")
    return found


def _number(name: str, value: Any, low: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise InvalidConfig(f"{name}={value!r}: a whole number expected") from None
    if not low <= number <= _INT_MAX or isinstance(value, bool):
        raise InvalidConfig(f"{name}={value!r}: {low} to {_INT_MAX} expected")
    return number
