"""TopicCatalogView: the topics of a LogManager as a broker's requests see them: names, ids, numbers of partitions.

  V1  a lookup is a dict hit: what it needs is in one immutable picture, which is replaced as a whole
  V2  a lookup after a change sees it, also a change that was made through the LogManager: the picture has the number
      of LogManager.topics_generation, and another number makes a new picture
  V3  a topic that is being created or deleted is not there; one that gets more partitions has the earlier number
  V4  callbacks are called after the change, never inside a lookup, and one change at a time: when a change that is made
      here returns, or report(), those of all changes before it have returned

A topic of a broker's directory without an id (Kafka before 2.8) gets one that follows from its name, so that it is the
same after a restart although nothing is written. Kafka: MetadataCache, MetadataImage, TopicsImage.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any, Final

from klog.broker.settings import BrokerSettings
from klog.errors import TopicExists, UnknownTopicOrPartition
from klog.internal_topics.names import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from klog.manager.topics import partition_count
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klog.log import Log
    from klog.manager import LogManager
    from klog.scheduler import Scheduler

_NO_ID: Final = uuid.UUID("6b1c63ea-7c1f-4b6e-9a53-5c7b3a7d1f10")  # the name space of ids made from names


class TopicInfo(NamedTuple):
    """One topic. partitions: the number of them; config: its own values, as klog-topics.json has them."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    config: Mapping[str, Any]


class TopicChange(NamedTuple):
    """What has changed between two pictures; a topic that was deleted and created again is in both."""

    created: tuple[TopicInfo, ...] = ()
    deleted: tuple[TopicInfo, ...] = ()
    extended: tuple[TopicInfo, ...] = ()
    altered: tuple[TopicInfo, ...] = ()


class _Picture(NamedTuple):
    generation: int
    topics: dict[str, TopicInfo]
    by_id: dict[int, TopicInfo]  # an int has a faster hash than a UUID
    logs: dict[tuple[str, int], Log]  # those that have been asked for, while they are open


class TopicCatalogView:
    """Any thread. klog.security.Topics is its protocol.

    scheduler: runs callbacks for changes that a lookup noticed, or ensure_internal made; without one they run in the
    next change that is made here.
    """

    def __init__(
        self, logs: LogManager, config: Mapping[str, Any] | None = None, *, scheduler: Scheduler | None = None
    ) -> None:
        """config: the broker's properties; those of internal topics are used."""
        self._logs = logs
        self._scheduler = scheduler
        settings = BrokerSettings.of(config or {}).by_name()
        self._internal = {
            CONSUMER_OFFSETS: _internal_settings(settings, "offsets.topic."),
            TRANSACTION_STATE: _internal_settings(settings, "transaction.state.log."),
            SHARE_GROUP_STATE: _internal_settings(settings, "share.coordinator.state.topic.", compacted=False),
        }
        self._reporting = threading.RLock()  # held while callbacks are called
        self._lock = threading.Lock()  # guards the replacement of the four below
        self._picture = self._reported = self._take_picture({})
        self._reported_until = self._reported.generation  # its callbacks have returned
        self._listeners: tuple[Callable[[TopicChange], object], ...] = ()
        self._is_report_due = False  # True: a task will report

    # ---- lookups -----------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> Log | None:
        """The log of a partition; None for an unknown one. Raises what LogManager.log raises for one that cannot be
        loaded: StorageOffline, CorruptLog, OSError."""
        picture = self._current()
        log = picture.logs.get((topic, partition))
        if log is not None and not log.closed:
            return log
        info = picture.topics.get(topic)
        if info is None or not 0 <= partition < info.partitions:
            return None
        try:
            log = picture.logs[topic, partition] = self._logs.log(topic, partition)
        except UnknownTopicOrPartition:
            return None
        return log

    def partitions(self, topic: str) -> int | None:
        """The number of partitions; None for an unknown topic."""
        info = self._current().topics.get(topic)
        return None if info is None else info.partitions

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic; None for an unknown one."""
        info = self._current().topics.get(topic)
        return None if info is None else info.topic_id

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with an id; None for an unknown one."""
        info = self._current().by_id.get(topic_id.int)
        return None if info is None else info.name

    def names(self) -> list[str]:
        """All topics, sorted."""
        return list(self._current().topics)

    def get(self, topic: str) -> TopicInfo | None:
        """What is known of a topic; None for an unknown one."""
        return self._current().topics.get(topic)

    def by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        """What is known of the topic with an id; None for an unknown one."""
        return self._current().by_id.get(topic_id.int)

    def infos(self) -> list[TopicInfo]:
        """All topics, sorted by name: one picture."""
        return list(self._current().topics.values())

    # ---- changes -----------------------------------------------------------------------------------------------------

    def create(
        self, name: str, partitions: int, config: Mapping[str, Any] | None = None, topic_id: uuid.UUID | None = None
    ) -> TopicInfo:
        """Create a topic, and load its logs. Raises what LogManager.create_topic raises. May block on disks."""
        self._logs.create_topic(name, partitions, config, topic_id)
        info = self._loaded(name)
        self.report()
        return info

    def add_partitions(self, name: str, total: int) -> TopicInfo:
        """Add partitions to a topic, and load their logs. Raises what LogManager.add_partitions raises."""
        self._logs.add_partitions(name, total)
        info = self._loaded(name)
        self.report()
        return info

    def delete(self, name: str) -> None:
        """Delete a topic. Raises what LogManager.delete_topic raises."""
        self._logs.delete_topic(name)
        self.report()

    def alter(self, name: str, config: Mapping[str, Any]) -> None:
        """Set keys of a topic's configuration; None resets one. Raises what LogManager.alter_topic raises."""
        self._logs.alter_topic(name, config)
        self.report()

    def ensure_internal(self, topic: str) -> None:
        """Create an internal topic unless it exists. Raises ValueError for another topic."""
        if topic not in INTERNAL_TOPICS:
            raise ValueError(f"topic={topic!r}: {' and '.join(sorted(INTERNAL_TOPICS))} are the internal topics")
        if topic in self._current().topics:
            return
        partitions, config = self.internal_settings(topic)
        try:
            self._logs.create_topic(topic, partitions, config)
        except TopicExists:
            return
        self._loaded(topic)

    def internal_settings(self, topic: str) -> tuple[int, dict[str, Any]]:
        """Return the number of partitions and the configuration that an internal topic gets."""
        partitions, config = self._internal[topic]
        return partitions, dict(config)

    def _loaded(self, name: str) -> TopicInfo:
        """Load the logs of a topic, so that no produce or fetch has to."""
        info = self._current().topics.get(name)
        if info is None:
            raise UnknownTopicOrPartition(f"topic {name!r} was deleted meanwhile")
        for partition in range(info.partitions):
            self._logs.log(name, partition)
        return info

    # ---- callbacks ---------------------------------------------------------------------------------------------------

    def on_change(self, callback: Callable[[TopicChange], object]) -> None:
        """Call back after every change, in the thread that made it, in the scheduler's, or in that of a report()."""
        with self._lock:
            self._listeners = (*self._listeners, callback)

    def report(self) -> None:
        """Call the callbacks if anything has changed since they were called, and wait for those that another thread
        calls (V4). The caller holds no lock."""
        if self._reported_until == self._logs.topics_generation:
            return
        with self._reporting:
            picture = self._current()
            with self._lock:
                before, self._reported = self._reported, picture
                listeners = self._listeners
            change = _difference(before.topics, picture.topics)
            if any(change):
                for listener in listeners:
                    listener(change)
            with self._lock:
                self._reported_until = picture.generation

    def _report_due(self) -> None:
        with self._lock:
            self._is_report_due = False
        self.report()

    # ---- picture -----------------------------------------------------------------------------------------------------

    def _current(self) -> _Picture:
        picture = self._picture
        if picture.generation == self._logs.topics_generation:
            return picture
        made = self._take_picture(picture.topics)
        with self._lock:
            if made.generation >= self._picture.generation:
                self._picture = made
            due = self._scheduler is not None and bool(self._listeners) and not self._is_report_due
            self._is_report_due = self._is_report_due or due
        if due and self._scheduler is not None:
            self._scheduler.schedule("topics-changed", self._report_due, delay_ms=1)  # not in the caller's thread
        return made

    def _take_picture(self, before: Mapping[str, TopicInfo]) -> _Picture:
        while True:
            generation = self._logs.topics_generation
            entries = self._logs.topic_entries()
            topics: dict[str, TopicInfo] = {}
            for name, partitions in self._logs.topics().items():
                entry = entries.get(name)
                if name == CLUSTER_METADATA:
                    continue
                count = partition_count(partitions, entry)
                if entry is None:
                    topics[name] = TopicInfo(name, self._foreign_id(name, before), count, {})
                elif entry.state in ("", "adding"):
                    topics[name] = TopicInfo(name, entry.topic_id, count, entry.config)
            if generation == self._logs.topics_generation:
                return _Picture(generation, topics, {info.topic_id.int: info for info in topics.values()}, {})

    def _foreign_id(self, name: str, before: Mapping[str, TopicInfo]) -> uuid.UUID:
        """The id of a topic that klog-topics.json does not have."""
        known = before.get(name)
        if known is not None:
            return known.topic_id
        try:
            return self._logs.topic_id(name) or uuid.uuid5(_NO_ID, name)
        except UnknownTopicOrPartition:  # deleted meanwhile: the picture is taken again
            return uuid.uuid5(_NO_ID, name)


def _difference(before: Mapping[str, TopicInfo], after: Mapping[str, TopicInfo]) -> TopicChange:
    created, deleted, extended, altered = [], [], [], []
    for name, info in after.items():
        was = before.get(name)
        if was is None or was.topic_id != info.topic_id:
            created.append(info)
            continue
        if was.partitions != info.partitions:
            extended.append(info)
        if was.config != info.config:
            altered.append(info)
    for name, was in before.items():
        info_now = after.get(name)
        if info_now is None or info_now.topic_id != was.topic_id:
            deleted.append(was)
    return TopicChange(tuple(created), tuple(deleted), tuple(extended), tuple(altered))


def _internal_settings(
    settings: Mapping[str, Any], prefix: str, *, compacted: bool = True
) -> tuple[int, dict[str, Any]]:
    """The partitions and configuration of an internal topic. compacted: else its coordinator deletes what is old."""
    return settings[f"{prefix}num.partitions"], {
        **(
            {"cleanup.policy": "compact"}
            if compacted
            else {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
        ),
        "compression.type": "producer",
        "segment.bytes": settings[f"{prefix}segment.bytes"],
    }
