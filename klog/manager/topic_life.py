"""Creates and deletes topics: whole or not at all, also if the process dies meanwhile.

    create   note "creating"   make the directories               remove the note
    delete   note "deleting"   rename them to -delete, one by one  forget the topic, remove the directories later

A start undoes interrupted creations and finishes interrupted deletions. Other directories are handled as Kafka does:
-delete is queued for removal, -stray is kept, -future belongs to moving.py. A live directory is renamed -stray if its
topic was deleted while the directory was offline, or if another directory has the partition with the topic's own id. A
directory that only has another id than klog-topics.json is left as it is, since a broker may have created the topic
again; log() raises InconsistentTopicId for it. Kafka: LogManager.getOrCreateLog, asyncDelete, loadLog,
isStrayKraftReplica."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.arguments import whole
from klog.config import LogConfig, check_tiering, config_values
from klog.disk import Files, naming_the_next_step
from klog.errors import DuplicateLog, StorageOffline, TopicExists
from klog.log.directory import checkpoint
from klog.log.directory.checkpoint import Partition
from klog.log.directory.partition_names import DELETE, FUTURE, STRAY, suffixed_name
from klog.manager import moving
from klog.manager.directories import RESERVED_IDS, LogDirectory
from klog.manager.topics import TopicEntry, check_topic_name
from klog.segment import names

if TYPE_CHECKING:
    from klog.log.log import Log
    from klog.manager.manager import LogManager

_log = logging.getLogger("klog.manager")
PARTITIONS_MAX = 10_000  # Kafka: QuorumController.MAX_RECORDS_PER_USER_OP, the limit of one request
Directory = str | os.PathLike[str] | uuid.UUID | None


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as stored in JSON: lists as Kafka's comma-separated text."""
    return {name: ",".join(value) if isinstance(value, tuple) else value for name, value in config.items()}


# ---- create ----------------------------------------------------------------------------------------------------------


def create(
    manager: LogManager,
    name: str,
    partitions: int,
    config: LogConfig | Mapping[str, Any] | None,
    topic_id: uuid.UUID | str | None,
    directory: Directory,
) -> None:
    """Create a topic; see LogManager.create_topic."""
    name = check_topic_name(name)
    partitions = whole("partitions", partitions, 1, PARTITIONS_MAX)
    chosen = config if isinstance(config, LogConfig) else LogConfig(config_values("config", config))
    wanted_id = checkpoint.as_uuid(topic_id)
    check_tiering(None, manager._config.topic_config(chosen.given), manager._config)
    with manager._lock:
        manager._lock.begins(manager, "a creation")
        preferred = _preferred(manager, directory)
        if name in manager.topics():
            raise TopicExists(f"topic {name!r} exists already; logs.log({name!r}, 0) opens it")
        given_id = wanted_id or uuid.uuid4()
        entry = TopicEntry(given_id, partitions, plain(chosen.given))
        topics = manager._topic_file
        topics.put(name, TopicEntry(given_id, partitions, entry.config, "creating"))
        try:
            counts = count_logs(manager) if preferred is None else {preferred: 0}
            for partition in range(partitions):
                _make_anywhere(manager, name, partition, given_id, counts)
            for home in manager._online():
                with home.guarded():
                    manager._files.fsync_dir(home.path)
            topics.put(name, entry)
        except BaseException:
            _undo_creation(manager, name)
            raise


def _preferred(manager: LogManager, wanted: Directory) -> LogDirectory | None:
    """Return the directory that the caller wants; None for no choice. Raises ValueError, StorageOffline."""
    if wanted is None or (isinstance(wanted, uuid.UUID) and wanted.int < RESERVED_IDS):
        return None
    path = None if isinstance(wanted, uuid.UUID) else os.path.abspath(arguments.path("directory", wanted))
    for directory in manager._directories:
        if directory.path == path or (directory.directory_id is not None and directory.directory_id == wanted):
            if directory.offline is not None:
                raise StorageOffline(f"{directory.path} is offline: {directory.offline}")
            return directory
    paths = ", ".join(manager.paths)
    raise ValueError(f"directory={wanted!r} is not a log.dir of this LogManager: choose from {paths}")


def count_logs(manager: LogManager) -> dict[LogDirectory, int]:
    """Return the number of logs in each online directory, in the order they were given; copies of moves count, too."""
    counts = {}
    for directory in manager._online():
        entries = directory.entries()
        counts[directory] = len(entries.live) + sum(way.suffix == FUTURE for way in entries.suffixed_names.values())
    return counts


def _make_anywhere(
    manager: LogManager, topic: str, partition: int, topic_id: uuid.UUID, counts: dict[LogDirectory, int]
) -> None:
    """Make a partition's directory in the first log.dir that works, those with the fewest logs first; ties by order."""
    failures: list[OSError] = []
    for directory in sorted(counts, key=counts.__getitem__):
        if directory.offline is not None:
            continue
        path = directory.partition_path(topic, partition)
        try:
            with directory.guarded():
                with naming_the_next_step(path):
                    os.mkdir(path, 0o750)
                manager._files.replace(os.path.join(path, names.METADATA), checkpoint.format_metadata(topic_id))
            counts[directory] += 1
            return
        except OSError as error:
            failures.append(error)
            _log.error("event=creation_failed path=%s reason=%s", path, error)
            remove_tree(manager._files, path)
    if len(manager._directories) == 1:
        raise failures[0]
    reasons = "; ".join(map(str, failures)) or "all are offline"
    raise StorageOffline(f"{topic}-{partition} cannot be created in any log directory: {reasons}") from (
        failures[-1] if failures else None
    )


def _undo_creation(manager: LogManager, name: str) -> None:
    """Remove what a creation has made. If that fails too, the next start tries again."""
    entry = manager._topic_file.entries.get(name)
    if entry is None or entry.state != "creating" or not manager._online():
        return
    try:
        for directory in manager._online():
            for partition in range(entry.partitions):
                path = directory.partition_path(name, partition)
                if os.path.isdir(path) and checkpoint.read_topic_id(path) in (None, entry.topic_id):
                    remove_tree(manager._files, path)
            manager._files.fsync_dir(directory.path)
        manager._topic_file.remove(name, remember=bool(manager.offline_directories))
    except OSError as error:
        _log.error("event=creation_not_undone topic=%s reason=%s", name, error)


# ---- delete ----------------------------------------------------------------------------------------------------------


def delete(manager: LogManager, name: str) -> None:
    """Delete a topic; see LogManager.delete_topic."""
    while True:
        loaded = _loaded(manager, name)
        with contextlib.ExitStack() as stack:
            for log in loaded:  # the checkpoint forgets them after the last write of a cleaning
                stack.enter_context(log._no_cleaning())
            with manager._lock:
                manager._lock.begins(manager, "a deletion")
                partitions = manager._partitions(name)
                manager._loading.wait_until_loaded({(name, partition) for partition in partitions})
                if set(_loaded(manager, name)) <= set(loaded):
                    _delete(manager, name, partitions)
                    return


def _loaded(manager: LogManager, name: str) -> list[Log]:
    """Return the logs of a topic that are in use."""
    return [log for key, log in list(manager._logs.items()) if key[0] == name]


def _delete(manager: LogManager, name: str, partitions: list[int]) -> None:
    """Delete a topic while none of its logs is being cleaned. Manager's lock held."""
    moving.give_up(manager, name)
    entry = manager._topic_file.entries.get(name)
    delay_ms = manager._topic_config(name).file_delete_delay_ms
    if entry is None:
        entry = TopicEntry(_id_on_disk(manager, name, partitions) or uuid.uuid4(), max(partitions) + 1)
    manager._topic_file.put(name, TopicEntry(entry.topic_id, entry.partitions, entry.config, "deleting"))
    _finish_deletion(manager, name, delay_ms)


def _id_on_disk(manager: LogManager, name: str, partitions: list[int]) -> uuid.UUID | None:
    for partition in partitions:
        for directory in manager._online():
            found = checkpoint.read_topic_id(directory.partition_path(name, partition))
            if found is not None:
                return found
    return None


def _finish_deletion(manager: LogManager, name: str, delay_ms: int) -> None:
    for directory in manager._online():
        with directory.guarded():
            for key in [key for key in directory.entries().live if key[0] == name]:
                mark_for_deletion(manager, directory, key, delay_ms)
            directory.forget_topic(name)
    manager._topic_file.remove(name, remember=bool(manager.offline_directories))
    manager._sticky.pop(name, None)


def mark_for_deletion(manager: LogManager, directory: LogDirectory, key: Partition, delay_ms: int) -> None:
    """Rename a partition's directory to -delete, durably, and remove it after delay_ms. The checkpoints still hold
    it."""
    target = os.path.join(directory.path, suffixed_name(*key, DELETE))
    log = manager._logs.pop(key, None)
    if log is not None and log.closed:
        log = None
    if log is not None:
        log._mark_for_deletion(os.path.basename(target))
        manager._marked_for_deletion.append(log)
    else:
        manager._files.rename(directory.partition_path(*key), target)
        manager._files.fsync_dir(directory.path)
    _log.info("event=partition_deleted path=%s delay_ms=%d", target, delay_ms)
    remove_later(manager, directory, target, delay_ms, log)


def remove_later(
    manager: LogManager, directory: LogDirectory, path: str, delay_ms: int, log: Log | None = None
) -> None:
    """Remove a -delete directory after delay_ms. If it is still there at close(), a later start removes it."""

    files, marked = manager._files, manager._marked_for_deletion

    def remove() -> None:
        if directory.offline is None:
            with directory.guarded():
                if log is not None:
                    log._abandon()
                    if log in marked:
                        marked.remove(log)
                remove_tree(files, path)
                files.fsync_dir(directory.path)

    manager._scheduler.schedule("kafka-delete-logs", remove, delay_ms)


def remove_tree(files: Files, path: str) -> None:
    """Remove a directory with its content, if it exists; links are removed and not followed."""
    if not os.path.isdir(path) or os.path.islink(path):
        return
    with os.scandir(path) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                files.unlink(entry.path)
    os.rmdir(path)


# ---- start -----------------------------------------------------------------------------------------------------------


def take_over(manager: LogManager) -> None:
    """Start a writer: remove the markers, undo or finish interrupted operations, queue -delete directories for removal.

    Raises DuplicateLog, OSError.
    """
    for directory in manager._online():
        try:
            directory.begin()
        except OSError as error:
            if not manager._is_spare(directory):
                raise
            directory.fail(str(error))
    delay_ms = manager._config.topic_config({}).file_delete_delay_ms
    if manager._topic_file.stale:
        manager._topic_file.bring_up_to_date()
    for name, entry in list(manager._topic_file.entries.items()):
        if entry.state == "creating":
            _log.warning("event=creation_undone topic=%s", name)
            _undo_creation(manager, name)
        elif entry.state == "deleting":
            _log.warning("event=deletion_finished topic=%s", name)
            _finish_deletion(manager, name, delay_ms)
    moving.settle(manager)
    _mark_strays(manager)
    for directory in manager._online():
        entries = directory.entries()
        for name, way in entries.suffixed_names.items():
            if way.suffix == DELETE:
                remove_later(manager, directory, os.path.join(directory.path, name), delay_ms)
            else:
                _log.warning("event=%s_directory path=%s", way.suffix, os.path.join(directory.path, name))
        for name in entries.foreign:
            _log.warning("event=foreign_directory path=%s", os.path.join(directory.path, name))


def _mark_strays(manager: LogManager) -> None:
    """Rename directories that belong to no topic. Raises DuplicateLog if a partition is still there twice.

    A partition's topic id is read only if it decides: there may be thousands of partitions at a start."""
    homes: dict[Partition, list[LogDirectory]] = {}
    deleted = manager._topic_file.deleted
    for directory in manager._online():
        for key in directory.entries().live:
            if deleted and checkpoint.read_topic_id(directory.partition_path(*key)) in deleted:
                mark_stray(manager, directory, key)
            else:
                homes.setdefault(key, []).append(directory)
    for key, directories in homes.items():
        if len(directories) == 1:
            continue
        entry = manager._topic_file.entries.get(key[0])
        wanted = None if entry is None else entry.topic_id
        own = [home for home in directories if checkpoint.read_topic_id(home.partition_path(*key)) == wanted]
        if wanted is None or len(own) != 1:
            raise duplicate(*key, directories)
        for home in directories:
            if home is not own[0]:
                mark_stray(manager, home, key)
    if not manager.offline_directories:
        manager._topic_file.forget_deleted()


def mark_stray(manager: LogManager, directory: LogDirectory, key: Partition) -> None:
    """Rename a live directory to -stray: it is kept for inspection, and is not a log any more."""
    target = os.path.join(directory.path, suffixed_name(*key, STRAY))
    _log.warning("event=stray path=%s now=%s", directory.partition_path(*key), target)
    manager._files.rename(directory.partition_path(*key), target)
    manager._files.fsync_dir(directory.path)
    directory.forget_partition(key)


def duplicate(topic: str, partition: int, homes: Iterable[LogDirectory]) -> DuplicateLog:
    """Return the error for a partition that is in more than one directory."""
    where = " and ".join(home.partition_path(topic, partition) for home in homes)
    return DuplicateLog(f"{topic}-{partition} is there twice: {where}; move away the one that is not needed")
