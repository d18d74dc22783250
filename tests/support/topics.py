"""The topics of a broker, as its components use them, stored in a LogManager."""

from __future__ import annotations

import uuid

import klog
from klog.errors import UnknownTopicOrPartition
from klog.log import Log


class ManagerTopics:
    """klog.security.context.Topics over a LogManager. internal_partitions: of the internal topics that it creates."""

    def __init__(self, manager: klog.LogManager, *, internal_partitions: int = 1) -> None:
        self._manager = manager
        self._internal_partitions = internal_partitions

    def log(self, topic: str, partition: int) -> Log | None:
        try:
            return self._manager.log(topic, partition)
        except UnknownTopicOrPartition:
            return None

    def partitions(self, topic: str) -> int | None:
        found = self._manager.topics().get(topic)
        return None if found is None else max(found) + 1

    def topic_id(self, topic: str) -> uuid.UUID | None:
        log = self.log(topic, 0)
        return None if log is None else log.topic_id

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name in self.names() if self.topic_id(name) == topic_id), None)

    def names(self) -> list[str]:
        return sorted(self._manager.topics())

    def ensure_internal(self, topic: str) -> None:
        if self.partitions(topic) is None:
            self._manager.create_topic(topic, self._internal_partitions, config={"cleanup.policy": "compact"})
