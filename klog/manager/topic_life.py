"""Creates, extends and deletes topics: whole or not at all, also if the process dies meanwhile.

    create   note "creating"   make the directories               remove the note
    add      note "adding"     make the directories               remove the note, raise the number of partitions
    delete   note "deleting"   rename them to -delete, one by one  forget the topic, remove the directories later

A start undoes interrupted creations and additions, and finishes interrupted deletions. Other directories are handled as
Kafka does: -delete is queued for removal, -stray is kept, -future belongs to moving.py. A live directory is renamed
-stray if its topic was deleted while the directory was offline, or if another directory has the partition with the
topic's own id. A directory that only has another id than klog-topics.json is left as it is, since a broker may have
created the topic again; log() raises InconsistentTopicId for it. Kafka: LogManager.getOrCreateLog, asyncDelete,
loadLog, isStrayKraftReplica; ReplicationControlManager.createPartitions."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.arguments import whole
from klog.config import LogConfig, check_tiering, config_values
from klog.disk import Files, is_directory, remove_tree
from klog.errors import InvalidPartitions, StorageOffline, TopicExists
from klog.log import core
from klog.log.directory import checkpoint
from klog.log.directory.partition_names import DELETE, STRAY, suffixed_name
from klog.log.staged.layout import holds_only_staging
from klog.logger import logger_of
from klog.manager.catalog import TopicCatalog, duplicate
from klog.manager.directories import RESERVED_IDS, Entries, LogDirectory
from klog.manager.topics import TopicEntry, check_collision, check_topic_name, plain
from klog.segment import names
from klog.values import dataclass, replace

if TYPE_CHECKING:
    from klog.log.directory.checkpoint import Partition
    from klog.manager.broker_config import BrokerConfig
    from klog.manager.deletions import LogDeletions
    from klog.manager.directory_set import DirectorySet
    from klog.manager.moving import Moves
    from klog.manager.open_state import OpenState
    from klog.manager.registry import LogRegistry

_log = logger_of("manager")
PARTITIONS_MAX = 10_000  # Kafka: QuorumController.MAX_RECORDS_PER_USER_OP, the limit of one request
_UNDONE = {"creating": "creation", "adding": "addition"}  # what an interrupted operation is called in the log
Directory = str | os.PathLike[str] | uuid.UUID | None


def checked_partitions(name: str, number: object) -> int:
    """Return the number of partitions that an argument asks for. Raises TypeError, InvalidPartitions."""
    try:
        return whole(name, number, 1, PARTITIONS_MAX)
    except ValueError as error:
        raise InvalidPartitions(str(error)) from None


@dataclass(eq=False)
class TopicLife:
    """The creations, extensions and deletions of one manager. Any thread."""

    _state: OpenState
    _broker: BrokerConfig
    _directories: DirectorySet
    _catalog: TopicCatalog
    _registry: LogRegistry
    _deletions: LogDeletions
    _moves: Moves
    _files: Files

    # ---- create ------------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        partitions: int,
        config: LogConfig | Mapping[str, Any] | None,
        topic_id: uuid.UUID | str | None,
        directory: Directory,
        *,
        exist_ok: bool,
    ) -> None:
        """Create a topic; see LogManager.create_topic."""
        name = check_topic_name(name)
        partitions = checked_partitions("partitions", partitions)
        chosen = config if isinstance(config, LogConfig) else LogConfig(config_values("config", config))
        wanted_id = checkpoint.as_uuid(topic_id)
        check_tiering(None, self._broker.current.topic_config(chosen.given), self._broker.current)
        with self._state.lock:
            self._state.begins("a creation")
            preferred, topics = self._preferred(directory), self._catalog.topics()
            if (present := topics.get(name)) is not None:
                if not exist_ok:
                    raise TopicExists(
                        f"topic {name!r} exists already; exist_ok=True accepts it, logs.log({name!r}, 0) opens it"
                    )
                wanted = None if config is None else plain(chosen.given)
                self._check_equal(name, present, partitions, wanted, wanted_id)
                return
            check_collision(name, topics, self._directories.case_ignored)
            if not self._undo(name):
                raise StorageOffline(f"topic {name!r}: an earlier creation could not be undone; open again")
            self._check_free(wanted_id)
            given_id = wanted_id or uuid.uuid4()
            entry = TopicEntry(given_id, partitions, plain(chosen.given))
            self._catalog.hide(name, 0)
            try:
                self._catalog.file.put(name, replace(entry, state="creating"))
                counts = self._directories.count_logs() if preferred is None else {preferred: 0}
                self._make(name, range(partitions), given_id, counts)
                self._catalog.file.put(name, entry)
            except BaseException:
                self._undo(name)
                raise
            self._catalog.show(name)

    def _check_free(self, topic_id: uuid.UUID | None) -> None:
        """Raise ValueError for the id of another topic: what asks for a topic by its id would find the wrong one."""
        if topic_id == checkpoint.METADATA_TOPIC_ID:
            raise ValueError(f"topic_id={topic_id}: Kafka reserves this id; None chooses one")
        for name, entry in self._catalog.file.entries.items():
            if entry.topic_id == topic_id:
                raise ValueError(f"topic_id={topic_id} is the id of topic {name!r}: choose another, or None")

    def _check_equal(
        self,
        name: str,
        present: list[int],
        partitions: int,
        config: dict[str, Any] | None,
        topic_id: uuid.UUID | None,
    ) -> None:
        """Raise TopicExists if a topic is not as it was asked for. None: not asked for."""
        entry = self._catalog.entry(name)
        known_id = self._catalog.topic_id(name, present)
        found = {} if entry is None else entry.config
        differences = []
        if partitions != len(present):
            differences.append(f"{len(present)} partitions, not {partitions}")
        if topic_id not in (None, known_id):
            differences.append(f"topic_id={known_id}, not {topic_id}")
        asked = found if config is None else config
        for key in sorted(found.keys() | asked.keys()):
            if found.get(key) != asked.get(key):
                differences.append(f"{key}={found.get(key, 'unset')}, not {asked.get(key, 'unset')}")
        if differences:
            raise TopicExists(
                f"topic {name!r} exists already and differs: it has {'; '.join(differences)}; "
                "add_partitions() and alter_topic() change it"
            )

    def _make(self, name: str, partitions: range, topic_id: uuid.UUID, counts: dict[LogDirectory, int]) -> None:
        """Make the directories of partitions, durably."""
        for home in self._directories.online():
            with home.guarded():
                home.forget_before(name, partitions)
        for partition in partitions:
            self._make_anywhere(name, partition, topic_id, counts)
        for home in self._directories.online():
            with home.guarded():
                self._files.fsync_dir(home.path)

    def _preferred(self, wanted: Directory) -> LogDirectory | None:
        """Return the directory that the caller wants; None for no choice. Raises ValueError, StorageOffline."""
        if wanted is None or (isinstance(wanted, uuid.UUID) and wanted.int < RESERVED_IDS):
            return None
        if not isinstance(wanted, uuid.UUID):
            wanted = os.path.abspath(arguments.path("directory", wanted))
        return self._directories.choose(wanted)

    def _make_anywhere(self, topic: str, partition: int, topic_id: uuid.UUID, counts: dict[LogDirectory, int]) -> None:
        """Make a partition's directory in the first log.dir that works: the fewest logs first, ties by order."""
        failures: list[OSError] = []
        for directory in sorted(counts, key=counts.__getitem__):
            if directory.offline is not None:
                continue
            path, ours = directory.partition_path(topic, partition), False
            try:
                with directory.guarded():
                    ours = is_directory(path) and holds_only_staging(path)
                    if not ours:
                        self._files.mkdir(path)
                        ours = True
                    self._files.replace(os.path.join(path, names.METADATA), checkpoint.format_metadata(topic_id))
                counts[directory] += 1
                return
            except OSError as error:
                failures.append(error)
                _log.error("event=creation_failed path=%s reason=%s", path, error)
                if ours:
                    remove_tree(path, self._files)
        if len(self._directories.paths) == 1:
            raise failures[0]
        reasons = "; ".join(map(str, failures)) or "all are offline"
        raise StorageOffline(f"{topic}-{partition} cannot be created in any log directory: {reasons}") from (
            failures[-1] if failures else None
        )

    # ---- add partitions ----------------------------------------------------------------------------------------------

    def add_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic; see LogManager.add_partitions."""
        with self._state.lock:
            self._state.begins("an addition of partitions")
            entry = self._catalog.entry(name)
            if entry is not None and entry.state == "adding" and not self._undo(name):
                raise StorageOffline(
                    f"topic {name!r}: an earlier addition of partitions could not be undone; open again"
                )
            present = self._catalog.partitions(name)
            first = max(present) + 1
            if total <= first:
                raise InvalidPartitions(
                    f"total={total}: topic {name!r} has {first} partitions already; a number above that is expected"
                )
            entry = self._catalog.entry_of(name, present)
            if not entry.known and self._directories.offline:
                raise StorageOffline(
                    f"topic {name!r} is not in klog-topics.json, so it is unknown which partitions it has in "
                    f"{', '.join(self._directories.offline)}, which is offline: add partitions when it is online"
                )
            self._catalog.hide(name, first)
            try:
                self._catalog.file.put(name, replace(entry, partitions=first, state="adding"))
                self._make(name, range(first, total), entry.topic_id, self._directories.count_logs())
                self._end_addition(name, replace(entry, partitions=total))
            except BaseException:
                self._undo(name)
                raise
            self._catalog.show(name)

    def _end_addition(self, name: str, entry: TopicEntry) -> None:
        """Remove the note. What the configuration of a broker's topic is stays unknown."""
        if entry.known:
            self._catalog.file.put(name, replace(entry, state=""))
        else:
            self._catalog.file.remove(name)

    def _undo(self, name: str) -> bool:
        """Remove what a creation, or an addition of partitions, has made. Returns False if that failed: the next start
        tries again."""
        entry = self._catalog.entry(name)
        if entry is None or entry.state not in _UNDONE:
            self._catalog.show(name)
            return True
        if not self._directories.online():
            return False
        try:
            for directory in self._directories.online():
                for partition in _made(directory, name, entry):
                    path = directory.partition_path(name, partition)
                    if is_directory(path) and checkpoint.read_topic_id(path) in (None, entry.topic_id):
                        remove_tree(path, self._files)
                self._files.fsync_dir(directory.path)
            if entry.state == "creating":
                self._catalog.remove(name)
            else:
                self._end_addition(name, entry)
        except OSError as error:
            _log.error("event=%s_not_undone topic=%s reason=%s", _UNDONE[entry.state], name, error)
            return False
        self._catalog.show(name)
        return True

    # ---- delete ------------------------------------------------------------------------------------------------------

    def delete(self, name: str) -> None:
        """Delete a topic; see LogManager.delete_topic."""
        while True:
            loaded = self._registry.of_topic(name)
            with contextlib.ExitStack() as stack:
                for log in loaded:  # the checkpoint forgets them after the last write of a cleaning
                    stack.enter_context(core.without_cleaning(log._core))
                with self._state.lock:
                    self._state.begins("a deletion")
                    partitions = self._catalog.partitions(name)
                    self._registry.wait_until_loaded("a deletion", name)
                    if set(self._registry.of_topic(name)) <= set(loaded):
                        self._delete(name, partitions)
                        return

    def _delete(self, name: str, partitions: list[int]) -> None:
        """Delete a topic while none of its logs is being cleaned. Manager's lock held."""
        self._moves.give_up(name)
        delay_ms = self._catalog.config(name).file_delete_delay_ms
        self._catalog.file.put(name, replace(self._catalog.entry_of(name, partitions), state="deleting"))
        self._finish_deletion(name, delay_ms)

    def _finish_deletion(self, name: str, delay_ms: int) -> None:
        for directory in self._directories.online():
            with directory.guarded():
                for key in [key for key in directory.entries().live if key[0] == name]:
                    self._deletions.mark(directory, key, delay_ms)
                directory.forget_topic(name)
        self._catalog.remove(name)

    # ---- start -------------------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Start a writer: remove the markers, undo or finish interrupted operations, queue -delete directories.

        Raises DuplicateLog, OSError.
        """
        for directory in self._directories.online():
            try:
                directory.begin()
            except OSError as error:
                if not self._directories.is_spare(directory):
                    raise
                directory.fail(str(error))
        delay_ms = self._broker.current.topic_config({}).file_delete_delay_ms
        if self._catalog.file.stale:
            self._catalog.file.bring_up_to_date()
        for name, entry in list(self._catalog.file.entries.items()):
            if entry.state in _UNDONE:
                _log.warning("event=%s_undone topic=%s", _UNDONE[entry.state], name)
                self._catalog.hide(name, 0 if entry.state == "creating" else entry.partitions)
                self._undo(name)
            elif entry.state == "deleting":
                _log.warning("event=deletion_finished topic=%s", name)
                self._finish_deletion(name, delay_ms)
        found = self._directories.entries()
        if self._moves.settle(found):
            found = self._directories.entries()
        self._mark_strays(found)
        self._note_missing(found)
        for directory, entries in found.items():
            for name, way in entries.suffixed_names.items():
                if way.suffix == DELETE:
                    if (way.topic, way.partition) not in entries.live:
                        directory.forget_partition((way.topic, way.partition))  # moved away just before a crash
                    self._deletions.remove_later(directory, os.path.join(directory.path, name), delay_ms)
                else:
                    _log.warning("event=%s_directory path=%s", way.suffix, os.path.join(directory.path, name))
            for name in entries.foreign:
                _log.warning("event=foreign_directory path=%s", os.path.join(directory.path, name))

    def _note_missing(self, found: Mapping[LogDirectory, Entries]) -> None:
        """Warn of partitions of klog-topics.json without a directory."""
        if self._directories.offline:
            return
        live = {key for entries in found.values() for key in entries.live}
        for name, entry in self._catalog.file.entries.items():
            gone = [number for number in range(entry.partitions) if (name, number) not in live]
            if gone:
                _log.warning("event=partitions_missing topic=%s partitions=%s", name, ",".join(map(str, gone)))

    def _mark_strays(self, found: Mapping[LogDirectory, Entries]) -> None:
        """Rename directories that belong to no topic. Raises DuplicateLog if a partition is still there twice.

        A partition's topic id is read only if it decides: there may be thousands of partitions at a start."""
        homes: dict[Partition, list[LogDirectory]] = {}
        deleted = self._catalog.file.deleted
        for directory, entries in found.items():
            for key in entries.live:
                if deleted and checkpoint.read_topic_id(directory.partition_path(*key)) in deleted:
                    self._mark_stray(directory, key)
                else:
                    homes.setdefault(key, []).append(directory)
        for key, directories in homes.items():
            if len(directories) == 1:
                continue
            entry = self._catalog.entry(key[0])
            wanted = None if entry is None else entry.topic_id
            own = [home for home in directories if checkpoint.read_topic_id(home.partition_path(*key)) == wanted]
            if wanted is None or len(own) != 1:
                raise duplicate(*key, directories)
            for home in directories:
                if home is not own[0]:
                    self._mark_stray(home, key)
        if not self._directories.offline:
            self._catalog.file.forget_deleted()

    def _mark_stray(self, directory: LogDirectory, key: Partition) -> None:
        """Rename a live directory to -stray: it is kept for inspection, and is not a log any more."""
        target = os.path.join(directory.path, suffixed_name(*key, STRAY))
        _log.warning("event=stray path=%s now=%s", directory.partition_path(*key), target)
        self._files.rename(directory.partition_path(*key), target)
        self._files.fsync_dir(directory.path)
        directory.forget_partition(key)


def _made(directory: LogDirectory, name: str, entry: TopicEntry) -> Iterable[int]:
    """The partitions that an interrupted creation or addition may have made in a log.dir."""
    if entry.state == "creating":
        return range(entry.partitions)
    live = directory.entries().live
    return [partition for topic, partition in live if topic == name and partition >= entry.partitions]
