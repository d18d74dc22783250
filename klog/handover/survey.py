"""The content of the log.dirs that are to be handed over: topics, their partitions, and the highest producer id.

V1  every partition of a topic is in exactly one log.dir, and the topic has one id or none
V2  the configuration of each topic is known, because a broker deletes records by it. For Kafka's own topics there is
    a default
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from klog.coordinator.transactions.producer_ids import is_plausible
from klog.disk import Files, read_whole
from klog.errors import ConfigUnknown, HandoverRefused, InconsistentTopicId
from klog.handover.internal_configs import INTERNAL_CONFIGS
from klog.handover.refusals import check_directory, check_topics, open_directories
from klog.inspect.coordinator_log import replay
from klog.inspect.partition_files import Located
from klog.internal_topics.names import TRANSACTION_STATE
from klog.log.directory import checkpoint
from klog.log.directory.checkpoint import encode_uuid
from klog.log.log import Log
from klog.log.state.snapshots import parse_snapshot
from klog.manager.catalog import duplicate
from klog.manager.directories import LogDirectory
from klog.manager.topics import TopicEntry, TopicFile
from klog.progress import Event, Progress
from klog.shown import first_few
from klog.values import dataclass, field

_SNAPSHOT: Final = re.compile(r"\d{20}\.snapshot")
_TRANSACTION_IDS: Final = ("producer_id", "previous_producer_id", "next_producer_id")


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition's directory in a log.dir. leader_epoch: its newest. stored_id: of partition.metadata.
    first_segment_ms: the largest timestamp of the oldest segment, -1 if there is none."""

    path: str
    log_dir: str
    leader_epoch: int
    stored_id: uuid.UUID | None
    first_segment_ms: int


@dataclass(slots=True)
class FoundTopic:
    """A topic. topic_id: None if it has none yet."""

    topic_id: uuid.UUID | None
    config: Mapping[str, Any]
    partitions: dict[int, FoundPartition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. directory_ids: by log.dir; None where meta.properties has none. broker_epoch: of the
    clean-shutdown markers; None if they have none, or differ. producer_id: the highest that was seen; -1: none."""

    topics: Mapping[str, FoundTopic]
    directory_ids: Mapping[str, uuid.UUID | None]
    broker_epoch: int | None
    producer_id: int


def survey(paths: Sequence[str], files: Files, progress: Progress | None = None) -> Survey:
    """Examine log.dirs whose locks the caller holds. Returns what they have. progress: called with events in
    partitions.

    Raises HandoverRefused, ConfigUnknown, InconsistentTopicId, DuplicateLog, CorruptData, OSError.
    """
    directories = open_directories(paths, files)
    file = TopicFile(paths, files, lambda path, error: None)
    file.load()
    check_topics(file)
    locations: dict[checkpoint.Partition, tuple[LogDirectory, str]] = {}
    for directory in directories:
        for key, name in check_directory(directory).items():
            if key in locations:
                raise duplicate(*key, (locations[key][0], directory))
            locations[key] = directory, os.path.join(directory.path, name)
    topics = {name: FoundTopic(entry.topic_id, entry.config) for name, entry in file.entries.items()}
    highest = _transactional_producer_id(Located(*key, path) for key, (_, path) in locations.items())
    for done, (key, (directory, path)) in enumerate(sorted(locations.items(), key=lambda item: item[0]), 1):
        topic, partition = key
        if topic not in topics:
            topics[topic] = FoundTopic(None, _assumed_config(topic, file))
        topics[topic].partitions[partition], seen = _partition(path, directory.path)
        highest = max(highest, seen)
        if progress is not None:
            progress(Event("survey", done, len(locations), "partitions", f"{topic}-{partition}"))
    for name, found in topics.items():
        _check(name, found, file.entries.get(name))
    epochs = {directory.broker_epoch for directory in directories}
    return Survey(
        dict(sorted(topics.items())),
        {directory.path: directory.directory_id for directory in directories},
        epochs.pop() if len(epochs) == 1 else None,
        highest,
    )


def _assumed_config(topic: str, file: TopicFile) -> Mapping[str, Any]:
    """Return the configuration of a topic that klog-topics.json does not have."""
    if topic in INTERNAL_CONFIGS:
        return {}
    raise ConfigUnknown(
        f"{file.path} has no topic {topic!r}, so its configuration is not known, and a broker deletes and compacts by "
        f"it: set it with klog.open(...).alter_topic({topic!r}, {{...}}), then hand over"
    )


def _partition(path: str, log_dir: str) -> tuple[FoundPartition, int]:
    """Return the partition, and the highest producer id that its log or a snapshot has."""
    with Log.open(path, read_only=True) as log:
        segments, producers = log.segments, set(log.producers)
        found = FoundPartition(
            path,
            log_dir,
            log.leader_epoch,
            checkpoint.read_topic_id(path),
            segments[0].max_timestamp if segments else -1,
        )
    for name in os.listdir(path):
        if _SNAPSHOT.fullmatch(name):
            whole = os.path.join(path, name)
            producers.update(parse_snapshot(read_whole(whole), whole))
    return found, max(filter(is_plausible, producers), default=-1)


def _transactional_producer_id(located: Any) -> int:
    """Return the highest producer id of a transactional id, -1 if there is none."""
    found = replay(located, TRANSACTION_STATE)
    if found.problems:
        raise HandoverRefused(f"a record of {TRANSACTION_STATE} cannot be read: {found.problems[0]}")
    values = [latest.record.value or {} for latest in found.latest.values()]
    ids = (value.get(name, -1) for value in values for name in _TRANSACTION_IDS)
    return max(filter(is_plausible, ids), default=-1)


def _check(name: str, topic: FoundTopic, entry: TopicEntry | None) -> None:
    """Raise for partitions that are missing, and for ids that differ. Sets the id that the partitions have."""
    total = max([*(number + 1 for number in topic.partitions), 0 if entry is None else entry.partitions])
    missing = [number for number in range(total) if number not in topic.partitions]
    if missing:
        raise HandoverRefused(
            f"topic {name!r}: of its {total} partitions {first_few(missing)} are not in these log.dirs: name all "
            "log.dirs of the topic in one call"
        )
    for number, partition in topic.partitions.items():
        if topic.topic_id is None:
            topic.topic_id = partition.stored_id
        elif partition.stored_id not in (None, topic.topic_id):
            raise InconsistentTopicId(
                f"{partition.path} has topic id {encode_uuid(partition.stored_id)}, and topic {name!r} has "
                f"{encode_uuid(topic.topic_id)}: partition {number} is of another topic of this name; move it away"
            )
