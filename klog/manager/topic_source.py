"""TopicSource: the partitions of a topic, or one of them, as they are now: also those that were added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from klog.errors import UnknownTopicOrPartition
from klog.manager.registry import has_gone
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.clock import Clock
    from klog.disk import Notifier
    from klog.log.log import Log
    from klog.manager.catalog import TopicCatalog
    from klog.manager.open_state import OpenState
    from klog.manager.registry import LogRegistry

MissingTopic = Literal["error", "wait"]


@dataclass(frozen=True)
class TopicSource:
    """partition: None for all. missing_topic: "wait" gives no partitions while the topic is not there. directories: the
    log.dirs, where a topic or a partition may appear."""

    _state: OpenState
    _catalog: TopicCatalog
    _registry: LogRegistry
    clock: Clock
    directories: tuple[str, ...]
    topic: str
    partition: int | None
    missing_topic: MissingTopic

    @property
    def shown(self) -> Notifier:
        """Notifies when a new topic or partition of this manager can be used."""
        return self._catalog.shown

    def partitions(self) -> list[int]:
        """Their numbers, sorted. Raises UnknownTopicOrPartition, LogClosed."""
        self._state.check_open()
        found = self._catalog.topics().get(self.topic)
        if self.partition is not None and found is not None:
            found = [number for number in found if number == self.partition]
        if not found and self.missing_topic == "error":
            raise self._catalog.unknown(self.topic, self.partition, "; missing_topic='wait' waits for it")
        return found or []

    def logs(self, partitions: Iterable[int]) -> list[Log]:
        """The logs of these partitions, loaded on first use, following their writer."""
        try:
            logs = [self._registry.get(self.topic, partition) for partition in partitions]
        except UnknownTopicOrPartition:  # deleted meanwhile
            if self.missing_topic == "error":
                raise
            return []
        for log in logs:
            log.refresh()
        return logs

    def has_gone(self, logs: Iterable[Log]) -> bool:
        """Has the writer, another process, deleted or moved one of these? logs() then returns those that are there."""
        return any(map(has_gone, logs))
