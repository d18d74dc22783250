"""TopicCatalog: the topics of a LogManager, their partitions, directories and configurations.

Partitions are those of the directory names; ids and configurations are those of klog-topics.json.
Kafka: MetadataCache, ConfigRepository; LogManager.fetchLogConfig.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klog.arguments import shown
from klog.config import LogConfig, ManagerConfig, check_tiering
from klog.disk import Files, Notifier
from klog.errors import DuplicateLog, InvalidConfig, StorageOffline, UnknownTopicOrPartition
from klog.log.directory import checkpoint
from klog.log.directory.partition_names import is_partition
from klog.log.options import Durability, settled
from klog.log.staged.layout import holds_only_staging
from klog.manager.move_note import left_over
from klog.manager.topics import FollowedTopicFile, TopicEntry, TopicFile, partition_count, plain
from klog.values import replace

if TYPE_CHECKING:
    from klog.log.directory.checkpoint import Partition
    from klog.manager.broker_config import BrokerConfig
    from klog.manager.directories import Entries, LogDirectory
    from klog.manager.directory_set import DirectorySet


class TopicCatalog:
    """Any thread reads; changes are made under the manager's lock. file: klog-topics.json. shown: notifies when new
    partitions can be used, which is after the last change in a log.dir."""

    def __init__(
        self,
        directories: DirectorySet,
        broker: BrokerConfig,
        files: Files,
        durability: Durability,
        *,
        read_only: bool = False,
    ) -> None:
        self._directories = directories
        self._broker = broker
        self._durability = durability
        # Topics of the same configuration share a LogConfig: there may be thousands of partitions, at kilobytes each.
        self._configs: tuple[ManagerConfig, dict[str, LogConfig]] = broker.current, {}
        self._sticky: dict[str, int] = {}
        # {topic: its first partition that is being made}. Each change makes a new dict.
        self._hidden: dict[str, int] = {}
        self._shows = 0
        self._made: tuple[dict[str, int], list[Entries], dict[str, list[int]]] | None = None  # of these hidden, listed
        self.shown = Notifier()
        online = [directory.path for directory in directories.online()]
        self.file = (FollowedTopicFile if read_only else TopicFile)(online, files, directories.write_failed)
        self.file.load()

    def topics(self) -> dict[str, list[int]]:
        """Return the partitions of each topic; see LogManager.topics."""
        return {topic: list(partitions) for topic, partitions in self._topics().items()}

    def _topics(self) -> dict[str, list[int]]:
        """Return the same, not to be changed: made once for the same directories."""
        online = self._directories.online()
        # All but the last twice: meanwhile a partition may move from one that comes later to one that was listed.
        entries = [directory.entries() for directory in (*online, *online[:-1])]
        made, hidden = self._made, self._hidden
        if self._directories.offline:
            return self._merged(entries, hidden)
        if made is None or made[0] is not hidden or list(map(id, made[1])) != list(map(id, entries)):
            self._made = made = hidden, entries, self._merged(entries, hidden)
        return made[2]

    def _merged(self, listed: list[Entries], hidden: dict[str, int]) -> dict[str, list[int]]:
        found: set[Partition] = set()
        for entries in listed:
            found.update(entries.live)
        if self._directories.offline:
            for name, entry in self.file.entries.items():
                if entry.state in ("", "adding"):
                    found.update((name, partition) for partition in range(entry.partitions))
        for name, first in hidden.items():
            found = {key for key in found if key[0] != name or key[1] < first}
        topics: dict[str, list[int]] = {}
        for name, partition in sorted(found):
            topics.setdefault(name, []).append(partition)
        return topics

    def hide(self, topic: str, first: int) -> None:
        """Hide the partitions from `first` on while they are made: an append must not use some before all are there."""
        self._hidden = {**self._hidden, topic: first}

    def show(self, topic: str) -> None:
        """Hide no partition of a topic any more."""
        self._hidden = {name: first for name, first in self._hidden.items() if name != topic}
        self._shows += 1
        self.shown.notify()

    @property
    def generation(self) -> int:
        """A number that differs after each change of what is read here. It rises after the change itself: what was read
        between two equal numbers is what they stand for."""
        return self.file.changes + self._shows

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions. Raises UnknownTopicOrPartition."""
        partitions = self._topics().get(topic)
        if partitions is None:
            raise self.unknown(topic)
        return list(partitions)

    def missing(self, topic: str, partitions: list[int]) -> list[int]:
        """Return the partitions that a topic with these must have, too: a key's partition depends on their number."""
        count = partition_count(partitions, self.entry(topic))
        return [] if count == len(partitions) else sorted(set(range(count)).difference(partitions))

    def incomplete(self, topic: str, missing: list[int]) -> UnknownTopicOrPartition:
        """Return the error for a topic of which these partitions are missing."""
        names = ", ".join(f"{topic}-{partition}" for partition in missing)
        return UnknownTopicOrPartition(
            f"topic {topic!r} lacks {names} in {', '.join(self._directories.paths)}, so its keys would go to other "
            f"partitions than before: restore the directory, or make an empty one to go on without its records. "
            f"logs.log({topic!r}, number).append() appends to one partition"
        )

    def unknown(self, topic: str, partition: int | None = None, hint: str = "") -> UnknownTopicOrPartition:
        """Return the error for a topic, or a partition of it, that is not there. hint: a further next step."""
        topics = self._topics()
        if topic in topics:
            present = ", ".join(map(str, topics[topic]))
            return UnknownTopicOrPartition(
                f"topic {topic!r} has no partition {shown(partition)}; it has {present}{hint}"
            )
        known = ", ".join(topics) or "none yet: logs.create_topic(name) creates one"
        return UnknownTopicOrPartition(
            f"no topic {topic!r} in {', '.join(self._directories.paths)}; topics there: {known}{hint}"
        )

    def locate(self, topic: str, partition: int) -> tuple[LogDirectory, tuple[int, int]]:
        """Return the directory that holds a partition, and the identity of the partition's directory.

        Raises UnknownTopicOrPartition, DuplicateLog, StorageOffline, NewerFormat.
        """
        # `t--1` is partition 1 of `t-`
        if not is_partition(topic, partition) or partition >= self._hidden.get(topic, partition + 1):
            raise self.unknown(topic, partition)
        found: list[tuple[LogDirectory, tuple[int, int]]] = []
        for _ in range(2):  # as in topics()
            for directory in self._directories:
                identity = directory.identity(topic, partition)
                if identity is not None:
                    found.append((directory, identity))
            if found:
                break
        if len(found) > 1:
            found = [each for each in found if not holds_only_staging(each[0].partition_path(topic, partition))]
        if len(found) > 1:  # a reader beside a move of another process, or after its crash
            left = left_over([directory.partition_path(topic, partition) for directory, _ in found])
            found = [each for each in found if each[0].partition_path(topic, partition) not in left]
        if len(found) > 1:
            raise duplicate(topic, partition, [directory for directory, _ in found])
        if found:
            return found[0]
        if self._directories.offline and partition in self._topics().get(topic, ()):
            gone = ", ".join(self._directories.offline)
            raise StorageOffline(
                f"{topic}-{partition} is in none of the online directories; offline: {gone}. Repair or mount "
                "the disk, then close and open the directories again"
            )
        raise self.unknown(topic, partition)

    def entry(self, topic: str) -> TopicEntry | None:
        """Return what klog-topics.json states about a topic."""
        return self.file.entries.get(topic)

    def entry_of(self, topic: str, partitions: list[int]) -> TopicEntry:
        """Return the same, or an entry for a topic of a broker's directory, with its id or a new one, and an unknown
        configuration."""
        entry = self.entry(topic)
        if entry is not None:
            return entry
        topic_id = self.topic_id(topic, partitions) or uuid.uuid4()
        return TopicEntry(topic_id, partition_count(partitions, None), known=False)

    def knows_config(self, topic: str) -> bool:
        """Return whether klog-topics.json has the configuration of a topic."""
        entry = self.entry(topic)
        return entry is not None and entry.known

    def topic_id(self, topic: str, partitions: list[int]) -> uuid.UUID | None:
        """Return a topic's id, of klog-topics.json or else of one of its directories; None if none has one."""
        entry = self.entry(topic)
        if entry is not None:
            return entry.topic_id
        paths = (home.partition_path(topic, each) for each in partitions for home in self._directories.online())
        return next((found for path in paths if (found := checkpoint.read_topic_id(path)) is not None), None)

    def config(self, topic: str) -> LogConfig:
        """Return the configuration of a topic's logs. Raises InvalidConfig."""
        entry, broker = self.file.entries.get(topic), self._broker.current
        own = entry.config if entry else {}
        made = self._configs
        if made[0] is not broker:
            made = self._configs = broker, {}
        same = repr(sorted(own.items()))
        try:
            if same not in made[1]:
                made[1][same] = settled(broker.topic_config(own), self._durability)
            return made[1][same]
        except InvalidConfig as error:
            raise InvalidConfig(f"{self.file.path}: topic {topic}: {error}") from None

    def check(self, broker: ManagerConfig) -> None:
        """Raise InvalidConfig if another configuration of the directory excludes that of a topic which is valid now."""
        for name, entry in self.file.entries.items():
            if entry.config and _refusal(self._broker.current, entry) is None:
                refusal = _refusal(broker, entry)
                if refusal is not None:
                    raise InvalidConfig(f"topic {name} has set {entry.config}: {refusal}")

    def alter(self, topic: str, config: Mapping[str, Any]) -> None:
        """Set keys of a topic's configuration; see LogManager.alter_topic."""
        partitions, entry, broker = self.partitions(topic), self.entry(topic), self._broker.current
        before = LogConfig(entry.config) if entry else None
        altered = (before or LogConfig()).replace(config)
        check_tiering(before, broker.topic_config(altered.given), broker)
        self.file.put(topic, replace(self.entry_of(topic, partitions), config=plain(altered.given), known=True))

    def remove(self, topic: str) -> None:
        """Remove a topic, durably. Its id is kept while a directory is offline, which may hold logs of it."""
        self.file.remove(topic, remember=bool(self._directories.offline))
        self._sticky.pop(topic, None)
        self.show(topic)

    def next_sticky(self, topic: str, partitions: int) -> int:
        """Return which partition gets the next keyless records, in turn."""
        sticky = self._sticky.get(topic, 0) % partitions
        self._sticky[topic] = sticky + 1
        return sticky


def _refusal(broker: ManagerConfig, entry: TopicEntry) -> InvalidConfig | None:
    """Return why a topic's own configuration is invalid with this one of the directory; None if it is valid."""
    try:
        broker.topic_config(entry.config)
    except InvalidConfig as error:
        return error
    return None


def duplicate(topic: str, partition: int, homes: Iterable[LogDirectory]) -> DuplicateLog:
    """Return the error for a partition that is in more than one directory."""
    where = " and ".join(home.partition_path(topic, partition) for home in homes)
    return DuplicateLog(f"{topic}-{partition} is there twice: {where}; move away the one that is not needed")
