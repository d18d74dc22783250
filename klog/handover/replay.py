"""Replay: applies the records of a metadata log in their order, and returns the state after them.

  M1  records between begin_transaction and end_transaction take effect with the latter; an abort, or the end of the
      log, drops them
  M2  a record that changes or removes something unknown is ignored
  M3  with a topic, its partitions and its configuration are removed

Kafka: MetadataDelta, MetadataBatchLoader, PartitionRegistration.merge, BrokerRegistration.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from klog.handover.cluster import RESOURCES, ClusterMetadata, Entity, PartitionMetadata, TopicMetadata
from klog.internal_topics import Decoded
from klog.log.directory.checkpoint import decode_uuid
from klog.values import replace

Fields = Mapping[str, Any]
_NO_LEADER_CHANGE: Final = -2
_TUPLES: Final = ("isr", "replicas", "removing_replicas", "adding_replicas", "eligible_leader_replicas",
                  "last_known_elr")  # fmt: skip
_FLAGS: Final = {1: True, -1: False}


class Replay:
    """One owner, one thread. Call add() with each decoded record, then state()."""

    def __init__(self) -> None:
        self._open: list[Decoded] | None = None
        self._features: dict[str, int] = {}
        self._names: dict[str, str] = {}  # topic id → name
        self._partitions: dict[str, dict[int, PartitionMetadata]] = {}  # by topic id
        self._configs: dict[tuple[str, str], dict[str, str]] = {}
        self._next_producer_id = 0
        self._acls: dict[str, Fields] = {}
        self._scram: dict[tuple[str, int], Fields] = {}
        self._quotas: dict[Entity, dict[str, float]] = {}
        self._tokens: dict[str, Fields] = {}
        self._brokers: dict[int, dict[str, Any]] = {}
        self._controllers: dict[int, Fields] = {}
        self._actions: dict[str, Callable[[Fields], object]] = {
            "feature_level_record": self._feature,
            "topic_record": self._topic,
            "remove_topic_record": self._remove_topic,
            "partition_record": self._partition,
            "partition_change_record": self._partition_change,
            "clear_elr_record": self._clear_elr,
            "config_record": self._config,
            "producer_ids_record": self._producer_ids,
            "access_control_entry_record": lambda value: self._acls.update({value["id"]: value}),
            "remove_access_control_entry_record": lambda value: self._acls.pop(value["id"], None),
            "user_scram_credential_record": lambda value: self._scram.update({_user(value): value}),
            "remove_user_scram_credential_record": lambda value: self._scram.pop(_user(value), None),
            "client_quota_record": self._quota,
            "delegation_token_record": lambda value: self._tokens.update({value["token_id"]: value}),
            "remove_delegation_token_record": lambda value: self._tokens.pop(value["token_id"], None),
            "register_broker_record": lambda value: self._brokers.update({value["broker_id"]: dict(value)}),
            "unregister_broker_record": lambda value: self._brokers.pop(value["broker_id"], None),
            "fence_broker_record": lambda value: self._change_broker(value["id"], fenced=True),
            "unfence_broker_record": lambda value: self._change_broker(value["id"], fenced=False),
            "broker_registration_change_record": self._broker_change,
            "register_controller_record": lambda value: self._controllers.update({value["controller_id"]: value}),
        }

    def add(self, decoded: Decoded) -> None:
        """Add the next record."""
        if decoded.type == "begin_transaction_record":
            self._open = []
        elif decoded.type == "abort_transaction_record":
            self._open = None
        elif decoded.type == "end_transaction_record":
            ended, self._open = self._open or [], None
            for each in ended:
                self._apply(each)
        elif self._open is not None:
            self._open.append(decoded)
        else:
            self._apply(decoded)

    def state(self, offset: int | None) -> ClusterMetadata:
        """Return the state after the records so far. offset: the one after the last of them."""
        topics = {}
        for topic_id, name in sorted(self._names.items(), key=lambda item: item[1]):
            config = self._configs.get(("topic", name), {})
            topics[name] = TopicMetadata(
                _uuid(topic_id), dict(sorted(self._partitions[topic_id].items())), dict(config)
            )
        return ClusterMetadata(
            offset,
            dict(self._features),
            topics,
            {key: dict(config) for key, config in self._configs.items() if key[0] != "topic" and config},
            self._next_producer_id,
            dict(self._acls),
            dict(self._scram),
            {entity: dict(quota) for entity, quota in self._quotas.items()},
            dict(self._tokens),
            {node: dict(fields) for node, fields in self._brokers.items()},
            dict(self._controllers),
        )

    def _apply(self, decoded: Decoded) -> None:
        action = self._actions.get(decoded.type)
        if action is not None and decoded.value is not None:
            action(decoded.value)

    # ---- features, topics --------------------------------------------------------------------------------------------

    def _feature(self, value: Fields) -> None:
        if value["feature_level"] == 0:
            self._features.pop(value["name"], None)
        else:
            self._features[value["name"]] = value["feature_level"]

    def _topic(self, value: Fields) -> None:
        self._names[value["topic_id"]] = value["name"]
        self._partitions.setdefault(value["topic_id"], {})

    def _remove_topic(self, value: Fields) -> None:
        name = self._names.pop(value["topic_id"], None)
        self._partitions.pop(value["topic_id"], None)
        if name is not None:
            self._configs.pop(("topic", name), None)

    def _partition(self, value: Fields) -> None:
        known = self._partitions.get(value["topic_id"])
        if known is None:
            return
        known[value["partition_id"]] = PartitionMetadata(
            leader=value["leader"],
            leader_epoch=value["leader_epoch"],
            partition_epoch=value["partition_epoch"],
            directories=_directories(value.get("directories")),
            leader_recovery_state=value.get("leader_recovery_state", 0),
            **{name: tuple(value.get(name) or ()) for name in _TUPLES},
        )

    def _partition_change(self, value: Fields) -> None:
        known = self._partitions.get(value["topic_id"], {})
        before = known.get(value["partition_id"])
        if before is None:
            return
        changes: dict[str, Any] = {name: tuple(value[name]) for name in _TUPLES if value.get(name) is not None}
        if value.get("directories") is not None:
            changes["directories"] = _directories(value["directories"])
        leader = value.get("leader", _NO_LEADER_CHANGE)
        if leader != _NO_LEADER_CHANGE:
            changes.update(leader=leader, leader_epoch=before.leader_epoch + 1)
        if value.get("leader_recovery_state", -1) >= 0:
            changes["leader_recovery_state"] = value["leader_recovery_state"]
        changes["partition_epoch"] = before.partition_epoch + 1
        known[value["partition_id"]] = replace(before, **changes)

    def _clear_elr(self, value: Fields) -> None:
        for topic_id, name in self._names.items():
            if value["topic_name"] in ("", name):
                self._partitions[topic_id] = {
                    number: replace(partition, eligible_leader_replicas=(), last_known_elr=())
                    for number, partition in self._partitions[topic_id].items()
                }

    # ---- configurations, producers, security -------------------------------------------------------------------------

    def _config(self, value: Fields) -> None:
        kind = RESOURCES.get(value["resource_type"])
        if kind is None:
            return
        config = self._configs.setdefault((kind, value["resource_name"]), {})
        if value["value"] is None:
            config.pop(value["name"], None)
        else:
            config[value["name"]] = value["value"]

    def _producer_ids(self, value: Fields) -> None:
        self._next_producer_id = max(self._next_producer_id, value["next_producer_id"])

    def _quota(self, value: Fields) -> None:
        entity = tuple((each["entity_type"], each["entity_name"]) for each in value["entity"])
        quota = self._quotas.setdefault(entity, {})
        if value["remove"]:
            quota.pop(value["key"], None)
        else:
            quota[value["key"]] = value["value"]
        if not quota:
            del self._quotas[entity]

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def _change_broker(self, node: int, **changes: Any) -> None:
        if node in self._brokers:
            self._brokers[node].update(changes)

    def _broker_change(self, value: Fields) -> None:
        changes: dict[str, Any] = {}
        for name in ("fenced", "in_controlled_shutdown"):
            if value.get(name, 0) in _FLAGS:
                changes[name] = _FLAGS[value[name]]
        for name in ("log_dirs", "cordoned_log_dirs"):
            if value.get(name) is not None:
                changes[name] = value[name]
        self._change_broker(value["broker_id"], **changes)


def _user(value: Fields) -> tuple[str, int]:
    return value["name"], value["mechanism"]


def _uuid(text: str) -> uuid.UUID:
    found = decode_uuid(text)
    assert found is not None  # the decoder has made the text
    return found


def _directories(texts: list[str] | None) -> tuple[uuid.UUID, ...]:
    return tuple(map(_uuid, texts or ()))
