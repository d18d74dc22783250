"""adopt(path): copies topics and the next producer id from a stopped broker's metadata log into klog's files.

A1  a topic of the metadata log that has a partition in the log.dirs, or in another one of the same broker, gets its
    id, number of partitions and own configuration
A2  a topic that only klog-topics.json has is kept if a partition of it has that id, or none; otherwise the broker has
    deleted the topic
A3  the id in klog-producer-ids.json is raised, then klog-topics.json is replaced, then the former notes what was taken
    over. No file of the broker is changed, so it can start again
A4  klog's broker assigns producer ids far above those of the Kafka broker, which continues with its own when it starts
    again. If both assigned the same id, the log would drop batches of one producer as duplicates of the other's
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from klog import arguments
from klog.broker.adopted import metadata_end
from klog.config import LogConfig
from klog.config.table import TOPIC_KEYS
from klog.coordinator.transactions.producer_ids import OF_KAFKA, note_adopted, raise_next, stored_next
from klog.disk import DirectoryLock, Files, RealFiles, check_directory
from klog.errors import HandoverRefused, InvalidConfig
from klog.handover.cluster import ClusterMetadata, TopicMetadata
from klog.handover.metadata import metadata
from klog.handover.refusals import check_links
from klog.internal_topics.names import CLUSTER_METADATA
from klog.log.directory import checkpoint
from klog.log.directory.checkpoint import encode_uuid
from klog.log.options import check_tools
from klog.manager.directories import LogDirectory
from klog.manager.directory_set import Paths, as_paths
from klog.manager.topics import TopicEntry, TopicFile, plain
from klog.values import dataclass

Ids = dict[str, set[uuid.UUID | None]]


def adopt(path: Paths, *, dry_run: bool = False, files: Files | None = None) -> dict[str, Any]:
    """Take over the topics of a stopped KRaft broker's log.dir, or of all its log.dirs, so that klog.open knows their
    ids and configurations. Call it after each run of the broker.

    klog's broker will assign no producer id that the Kafka broker has assigned or will assign. Configurations of topics
    are taken over; users, access rules and quotas are not: metadata(path) returns them. For defaults from the broker's
    server.properties, open the directory with config=ManagerConfig.from_properties(path); those that were set
    dynamically are in "broker_config", those of groups in "group_configs".

    Returns {"path", "dry_run", "changed", "offset" (end of the metadata log), "next_producer_id", "broker_config",
    "group_configs", "topics" (topic, topic_id, partitions, config, change: "added", "changed", "same" or "kept"),
    "removed" (names), "warnings"}. Raises HandoverRefused if there is no metadata, or if a partition is a link;
    AlreadyLocked, CorruptData, OSError.
    """
    paths = [check_directory(each) for each in as_paths(path)]
    dry_run = arguments.flag("dry_run", dry_run)
    check_tools(None, files)
    files = files or RealFiles()
    with ExitStack() as stack:
        for each in paths:
            stack.callback(DirectoryLock(each).release)
            check_links(each, os.listdir(each))
        found = metadata(paths)
        file = TopicFile(paths, files, _raise)
        file.load()
        if found.offset is None and file.entries:
            raise HandoverRefused(
                f"{paths[0]}: no controller has run here, so its metadata is what klog has handed over, and "
                f"{file.path} is newer: there is nothing to adopt"
            )
        warnings: list[str] = []
        broker = _Broker.of(found, paths)
        ids = _ids_here(paths, files)
        if elsewhere := broker.topics_elsewhere(found):
            warnings.append(
                f"{', '.join(elsewhere)}: partitions of these topics are in other log.dirs of the broker: name all of "
                "them, here and in klog.open"
            )
            for name in elsewhere:
                ids.setdefault(name, {found.topics[name].topic_id})
        entries, changes = _merged(found, file.entries, ids, warnings)
        removed = sorted(file.entries.keys() - entries.keys())
        changed = entries != file.entries or bool(file.stale)
        least = found.next_producer_id + OF_KAFKA
        ids_change = stored_next(paths[0]) < least - OF_KAFKA // 2
        if not dry_run:
            if ids_change:
                raise_next(files, paths[0], least)
            if changed:
                file.replace_all(entries)
            note_adopted(files, paths[0], metadata_end(paths))
        if left := len(list(found.security_records())):
            warnings.append(
                f"{left} access rules, SCRAM credentials, quotas and tokens are not taken over: klog's broker has its "
                "own"
            )
    return {
        "path": paths[0],
        "dry_run": dry_run,
        "changed": changed or ids_change,
        "offset": found.offset,
        "next_producer_id": found.next_producer_id,
        "broker_config": broker.config(found),
        "group_configs": {name: dict(own) for (kind, name), own in found.configs.items() if kind == "group" and own},
        "topics": [
            {
                "topic": name,
                "topic_id": encode_uuid(entry.topic_id),
                "partitions": entry.partitions,
                "config": entry.config,
                "change": changes[name],
            }
            for name, entry in sorted(entries.items())
        ],
        "removed": removed,
        "warnings": warnings,
    }


def _raise(path: str, error: OSError) -> None:
    raise error


def _ids_here(paths: list[str], files: Files) -> Ids:
    """Return the ids in the partition.metadata of each topic's partitions; None stands for a missing file."""
    found: Ids = {}
    for path in paths:
        directory = LogDirectory(path, files, read_only=True)
        for topic, partition in directory.entries().live:
            if topic != CLUSTER_METADATA:
                stored = checkpoint.read_topic_id(directory.partition_path(topic, partition))
                found.setdefault(topic, set()).add(stored)
    return found


def _merged(
    found: ClusterMetadata, known: Mapping[str, TopicEntry], here: Ids, warnings: list[str]
) -> tuple[dict[str, TopicEntry], dict[str, str]]:
    """Return the entries of klog-topics.json, and the change of each."""
    entries: dict[str, TopicEntry] = {}
    changes: dict[str, str] = {}
    for name, ids in here.items():
        topic, before = found.topics.get(name), known.get(name)
        if topic is not None and ids & {None, topic.topic_id}:
            entries[name] = TopicEntry(topic.topic_id, len(topic.partitions), _config(name, topic, before, warnings))
            changes[name] = "added" if before is None else "same" if entries[name] == before else "changed"
        elif before is not None and ids & {None, before.topic_id}:
            entries[name], changes[name] = before, "kept"
            warnings.append(
                f"topic {name} is not in the metadata log: the broker would rename its directories to *-stray"
            )
        else:
            warnings.append(f"topic {name} is neither in the metadata log nor in klog-topics.json: left as it is")
    return entries, changes


def _config(name: str, topic: TopicMetadata, before: TopicEntry | None, warnings: list[str]) -> dict[str, Any]:
    """Return the configuration for klog-topics.json; keys that only klog has are kept."""
    try:
        config = dict(LogConfig({key: value for key, value in topic.config.items() if key in TOPIC_KEYS}).given)
    except InvalidConfig as error:
        raise HandoverRefused(f"topic {name}: {error}: the metadata log has a value that klog does not take") from None
    warnings += [
        f"topic {name}: {key} is left out: klog does not know it" for key in topic.config if key not in TOPIC_KEYS
    ]
    if before is not None and before.topic_id == topic.topic_id:
        config.update({key: value for key, value in before.config.items() if key.startswith("klog.")})
    return plain(config)


@dataclass(frozen=True, slots=True)
class _Broker:
    """The brokers that are registered with one of the log.dirs, usually one, and the ids of their other log.dirs."""

    nodes: list[int]
    other_directories: set[str]

    @classmethod
    def of(cls, found: ClusterMetadata, paths: list[str]) -> _Broker:
        ours = set()
        for path in paths:
            directory = LogDirectory(path, RealFiles(), read_only=True)
            directory.open()
            if directory.directory_id is not None:
                ours.add(encode_uuid(directory.directory_id))
        registered = {node: set(fields.get("log_dirs") or ()) for node, fields in found.brokers.items()}
        nodes = [node for node, directories in registered.items() if directories & ours]
        return cls(nodes, set().union(*(registered[node] for node in nodes)) - ours)

    def config(self, found: ClusterMetadata) -> dict[str, str]:
        """Return the dynamic configuration of the broker: the default of all brokers, then its own."""
        config = dict(found.configs.get(("broker", ""), {}))
        for node in self.nodes:
            config.update(found.configs.get(("broker", str(node)), {}))
        return config

    def topics_elsewhere(self, found: ClusterMetadata) -> list[str]:
        """Return the topics that have a partition in another log.dir of the broker."""
        return sorted(
            name
            for name, topic in found.topics.items()
            if any(
                self.other_directories & set(map(encode_uuid, each.directories)) for each in topic.partitions.values()
            )
        )
