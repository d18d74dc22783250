"""Readers: the named readers and tails of one manager, and what is committed in its log.dir."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from klog.arguments import INT_MAX, chosen, optional_whole, text
from klog.disk import Files, Leases
from klog.log import core
from klog.log.directory.reader_positions import PositionFile, reader_name, reader_names, stored_positions
from klog.log.read.optional_decoding import optional_decoding
from klog.log.read.positions import checked_position
from klog.manager.topic_positions import TopicPosition, check_positions
from klog.manager.topic_source import MissingTopic, TopicSource
from klog.manager.topics import check_topic_name, same_but_for_case
from klog.values import dataclass, field

if TYPE_CHECKING:
    from klog.clock import Clock
    from klog.decode import Decode
    from klog.log.read.decoding import DeadLetter, OnBad
    from klog.log.read.isolation import Isolation
    from klog.manager.catalog import TopicCatalog
    from klog.manager.directory_set import DirectorySet
    from klog.manager.named_reader import NamedReader
    from klog.manager.open_state import OpenState
    from klog.manager.registry import LogRegistry
    from klog.manager.topic_cursor import Missing


@dataclass(eq=False)
class Readers:
    """Any thread. Their files are in the first log.dir."""

    _state: OpenState
    _directories: DirectorySet
    _catalog: TopicCatalog
    _registry: LogRegistry
    _files: Files
    _clock: Clock
    _open: weakref.WeakSet[NamedReader] = field(default_factory=weakref.WeakSet, init=False)

    def source(self, topic: str, partition: int | None, missing_topic: MissingTopic) -> TopicSource:
        """Return a topic's partitions, or one of them. Raises UnknownTopicOrPartition, InvalidTopic, ValueError."""
        self._state.check_open()
        chosen("missing_topic", missing_topic, get_args(MissingTopic))
        topic = check_topic_name(topic) if missing_topic == "wait" else text("topic", topic)
        partition = optional_whole("partition", partition, 0, INT_MAX)
        source = TopicSource(
            self._state,
            self._catalog,
            self._registry,
            self._clock,
            self._directories.paths,
            topic,
            partition,
            missing_topic,
        )
        source.partitions()
        return source

    def open(
        self,
        topic: str,
        name: str,
        *,
        group: str | None,
        partition: int | None,
        start: TopicPosition,
        missing: Missing,
        missing_topic: MissingTopic,
        isolation: Isolation,
        commit_every: int | None,
        decode: Decode | None,
        on_bad: OnBad,
        dead_letter: DeadLetter | None,
    ) -> NamedReader:
        """Return a named reader; see LogManager.reader."""
        from klog.manager.named_reader import NamedReader, ReaderOptions  # few programs need it at their start
        from klog.manager.reader_share import GroupShare, exclusive, lock_file_name
        from klog.manager.topic_cursor import Missing

        name = reader_name("name", name)
        group = None if group is None else reader_name("group", group)
        if group is not None and partition is not None:
            raise ValueError(f"partition={partition!r}, group={group!r}: a group shares out all partitions; omit one")
        chosen("missing", missing, get_args(Missing))
        chosen("isolation", isolation, core.ISOLATIONS)
        commit_every = optional_whole("commit_every", commit_every, 1)
        if not isinstance(start, Mapping):
            start = checked_position("start", start)
        source = self.source(topic, partition, missing_topic)
        present = source.partitions()
        if present:  # else the topic does not exist yet
            check_positions("start", start, source.topic, present)
        decoding = optional_decoding(source.topic, decode, on_bad, dead_letter)
        options = ReaderOptions(start, missing, isolation, commit_every, decoding)
        directory = self._directories.paths[0]
        self._check_case(directory, group or name)
        file = PositionFile(directory, group or name, self._files)
        if group is None:
            leases, share = exclusive(directory, name, source.topic, source.partition), None
        else:
            leases = Leases(directory, lock_file_name(group, source.topic), name)
            share = GroupShare(leases)
        reader = NamedReader(source, leases, share, file, name, options)
        self._open.add(reader)
        return reader

    def _check_case(self, directory: str, name: str) -> None:
        """Raise ValueError if the file of another reader would be that of this one."""
        if self._directories.case_ignored is None:
            return
        other = same_but_for_case(name, reader_names(directory))
        if other is not None:
            raise ValueError(
                f"the reader {name!r} differs from {other!r} only by case, which the file system of {directory} "
                "does not distinguish: choose another name"
            )

    def committed(self) -> dict[str, dict[str, dict[int, int]]]:
        """Return all committed positions; see LogManager.readers."""
        self._state.check_open()
        found, problems = stored_positions(self._directories.paths[0])
        for error in problems.values():
            raise error
        return {name: {topic: entry.positions for topic, entry in topics.items()} for name, topics in found.items()}

    def close(self) -> None:
        """Release the names of all readers, without a commit."""
        for reader in list(self._open):
            reader.close()
