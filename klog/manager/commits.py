"""Commits: staged jobs of a log.dir become records, all of them or none.

    1  check every staged file; flush every log of the job; its end is the base offset         nothing has changed
    2  write the manifest, durably                                                             committed
    3  create the job's topics, append to each log, flush it                                   readers see none of it
    4  replace the manifest by one that states "applied"                                       readers see all of it
    5  delete what was overwritten, note the stream's batch, remove the staging, then the manifest

A start does what is left of 3 to 5, and then removes what jobs without a manifest have left, if they are over. The
manager must be alone in its directory: it holds the lock, and no other thread uses it yet. klog/log/staged has the
files and the rules.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klog.codec import crc32c
from klog.disk import Files, directory_lock, exists
from klog.errors import InvalidTopic, PolicyViolation, StagingLost, TopicExists
from klog.log import core
from klog.log.directory import checkpoint
from klog.log.staged import layout, streams, writers
from klog.log.staged.manifest import AssignedFile, Manifest, NewTopic, Part, StagedFile, read_all
from klog.logger import logger_of
from klog.manager.topics import TopicEntry, check_collision, check_topic_name, plain
from klog.segment import names
from klog.values import dataclass, field

if TYPE_CHECKING:
    from klog.clock import Clock
    from klog.log.log import Log
    from klog.manager.catalog import TopicCatalog
    from klog.manager.directories import LogDirectory
    from klog.manager.directory_set import DirectorySet
    from klog.manager.registry import LogRegistry

_log = logger_of("manager")
_READ_BYTES = 1 << 20
Committed = dict[str, dict[int, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as the job's tasks have seen it. topic_id: None for one that was not there, which the commit creates, or
    whose id the directory does not state."""

    partitions: int
    topic_id: uuid.UUID | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class StagedJob:
    """What one commit appends. topics: every topic of the files. overwrite: the topics whose records are deleted.
    stream: (query id, batch id) of a stream's batch."""

    token: str
    files: Sequence[StagedFile]
    topics: Mapping[str, TopicPlan]
    overwrite: frozenset[str] = frozenset()
    stream: tuple[str, int] | None = None


@dataclass(eq=False)
class Commits:
    """The commits of one manager."""

    _directories: DirectorySet
    _catalog: TopicCatalog
    _registry: LogRegistry
    _files: Files
    _clock: Clock

    # ---- start -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Finish what a crash has interrupted, then sweep. Raises UnexplainedLogEnd, CorruptCheckpoint, NewerFormat,
        OSError."""
        for directory in self._directories.online():
            found = os.listdir(directory.path)
            for manifest in read_all(directory.path, found):
                _log.warning("event=commit_rolled_forward token=%s state=%s", manifest.token, manifest.state)
                self._finish(directory, manifest)
            self._remove_temporaries(directory.path, found)
            for token in writers.sweep(directory.path, found, self._clock.wall_ms(), self._files):
                _log.warning("event=staging_removed path=%s token=%s", directory.path, token)

    def _remove_temporaries(self, path: str, found: list[str]) -> None:
        left = layout.temporaries_in(found)
        if left:
            with directory_lock(path):  # a job may be writing one now
                for name in left:
                    self._files.unlink(os.path.join(path, name))

    # ---- commit ------------------------------------------------------------------------------------------------------

    def commit(self, job: StagedJob) -> Committed | None:
        """Append the files of a job. Returns {topic: {partition: (first, last offset)}}; None for a stream's batch that
        is committed already: its staging is removed.

        Raises StagingLost, TopicExists, InvalidTopic, PolicyViolation, OSError: nothing is committed. An error after
        the manifest is written, and before readers see the records, is raised, too; the next start then finishes the
        commit. A later OSError, of step 5, is logged: what it leaves is removed by the next start.
        """
        directory = self._directories.online()[0]
        layout.check_token(job.token)
        if job.stream is not None and (last := streams.last_batch(directory.path, job.stream[0])) >= job.stream[1]:
            if last > job.stream[1]:  # a query repeats only its last batch
                _log.warning("event=batch_left_out query=%s batch=%d last_committed=%d", *job.stream, last)
            writers.remove_staging(directory.path, job.token, self._files, again=True)
            return None
        new = self._check_topics(job)
        for file in job.files:
            self._check_file(directory, job.token, file)
        for name, topic in new.items():
            directory.forget_before(name, range(topic.partitions))
        manifest = Manifest(job.token, self._place(job), new, job.stream)
        with directory_lock(directory.path):  # an abort that was first has removed files since (W6)
            for file in job.files:
                if not exists(path := _staged_path(directory, job.token, file)):
                    raise _gone(path)
            self._files.replace(layout.commit_path(directory.path, job.token), manifest.encode())
        with directory.guarded():
            self._create_topics(directory, manifest)
            applied = self._apply(directory, manifest)
        try:
            with directory.guarded():
                self._clean_up(directory, applied, again=False)
        except OSError as error:
            _log.warning("event=commit_not_cleaned_up token=%s error=%s", job.token, error)
        result: Committed = {}
        for part in manifest.parts:
            if part.files:
                result.setdefault(part.topic, {})[part.partition] = part.base_offset, part.next_offset - 1
        return result

    def _check_topics(self, job: StagedJob) -> dict[str, NewTopic]:
        """Compare the topics with those of the tasks. Returns the topics to create."""
        new: dict[str, NewTopic] = {}
        present = self._catalog.topics()
        for name, plan in job.topics.items():
            if name not in present:
                if not plan.is_new:
                    raise StagingLost(f"topic {name!r} was deleted while records for it were staged; write them again")
                check_collision(check_topic_name(name), (*present, *new), self._directories.case_ignored)
                if self._catalog.entry(name) is not None:
                    raise InvalidTopic(
                        f"topic {name!r} has no partition in {', '.join(self._directories.paths)}, but "
                        "klog-topics.json there lists it: write to the log directory that has them; or, if their "
                        "directories were removed, create the topic here first"
                    )
                new[name] = NewTopic(uuid.uuid4(), plan.partitions, plan.config)
                continue
            if plan.is_new and len(present[name]) != plan.partitions:
                raise TopicExists(
                    f"topic {name!r} was created meanwhile with {len(present[name])} partitions; the records are "
                    f"staged for {plan.partitions}: write them again"
                )
            stored = self._catalog.topic_id(name, present[name])
            if plan.topic_id is not None and stored is not None and stored != plan.topic_id:
                raise StagingLost(
                    f"topic {name!r} was created again while records for it were staged; write them again"
                )
            if name in job.overwrite and "delete" not in self._catalog.config(name).cleanup_policy:
                raise PolicyViolation(
                    f"topic {name!r} has cleanup.policy=compact, without delete: its records cannot be overwritten; "
                    "append instead, or alter the topic"
                )
        return new

    def _check_file(self, directory: LogDirectory, token: str, file: StagedFile) -> None:
        """Raise StagingLost unless the file is as its task has left it."""
        path = _staged_path(directory, token, file)
        if not layout.is_file_name(file.name):
            raise _changed(path, "its name is not that of a staged file")
        try:
            staged = self._files.open(path)
        except FileNotFoundError:
            raise _gone(path) from None
        crc = at = 0
        with staged:
            while at < file.bytes and len(data := staged.read(at, min(_READ_BYTES, file.bytes - at))):
                crc, at = crc32c(data, crc), at + len(data)
            size = staged.length()
        if size != file.bytes or crc != file.crc:
            raise _changed(path, f"{file.bytes} bytes of checksum {file.crc:08x} expected, found {size} of {crc:08x}")

    def _place(self, job: StagedJob) -> tuple[Part, ...]:
        """Give the files their offsets, in the order of their tasks. The logs are flushed up to there: after a power
        cut no log may end below its base offset."""
        files: dict[tuple[str, int], list[StagedFile]] = {}
        present = self._catalog.topics()
        for topic in sorted(job.overwrite):
            for partition in present.get(topic, ()):
                files[topic, partition] = []
        for file in sorted(job.files, key=lambda file: (file.topic, file.partition, _order(file.name))):
            if file.partition >= job.topics[file.topic].partitions:
                raise ValueError(f"{file.topic!r} has {job.topics[file.topic].partitions} partitions: {file}")
            files.setdefault((file.topic, file.partition), []).append(file)
        now, parts = self._clock.wall_ms(), []
        for (topic, partition), staged in files.items():
            config, base_offset = self._catalog.config(topic), 0
            if not job.topics[topic].is_new or topic in present:
                log = self._registry.get(topic, partition)
                log.flush()
                base_offset = log.log_end_offset
            else:
                config = config.replace(job.topics[topic].config)
            assigned, at = [], base_offset
            for file in staged:
                assigned.append(AssignedFile(file.name, at, file.records, file.bytes, file.crc))
                at += file.records
            stamp = now if config.message_timestamp_type == "LogAppendTime" else -1
            parts.append(Part(topic, partition, base_offset, tuple(assigned), topic in job.overwrite, stamp))
        return tuple(parts)

    # ---- apply -------------------------------------------------------------------------------------------------------

    def _finish(self, directory: LogDirectory, manifest: Manifest) -> None:
        """Do what a crash has left of a commit, if all of it can be done."""
        with directory.guarded():
            if manifest.state == "committed":
                self._create_topics(directory, manifest)
                from klog.log.staged.roll_forward import check

                for log in self._logs(manifest.parts):
                    check(log._core, manifest)
                manifest = self._apply(directory, manifest)
            self._clean_up(directory, manifest, again=True)

    def _apply(self, directory: LogDirectory, manifest: Manifest) -> Manifest:
        """Steps 3, without the topics, and 4. Returns the manifest that then is there."""
        _roll_forward(self._logs(manifest.parts), manifest)
        applied = manifest.applied()
        self._files.replace(layout.commit_path(directory.path, manifest.token), applied.encode())
        return applied

    def _clean_up(self, directory: LogDirectory, manifest: Manifest, *, again: bool) -> None:
        """Step 5. again: the process that has committed may have been killed in it."""
        overwritten = self._logs(part for part in manifest.parts if part.overwrite)
        _roll_forward(overwritten, manifest)
        if overwritten:
            directory.write_starts([log._core for log in overwritten])
            for log in overwritten:
                core.retention.remove_below_start(log._core)
        if manifest.stream is not None:
            streams.committed(directory.path, *manifest.stream, self._files)
            self._remove_earlier(directory, *manifest.stream)
        writers.remove_staging(directory.path, manifest.token, self._files, again=again)
        self._files.unlink(layout.commit_path(directory.path, manifest.token))
        self._files.fsync_dir(directory.path)

    def _remove_earlier(self, directory: LogDirectory, query: str, batch: int) -> None:
        """Remove what earlier batches of a stream have left: none of them can be committed any more."""
        for token in layout.writers_in(os.listdir(directory.path)):
            before, _, number = token.rpartition("-")
            if before == query and number.isdecimal() and int(number) < batch:
                writers.remove_staging(directory.path, token, self._files, again=True)

    def _logs(self, parts: Iterable[Part]) -> list[Log]:
        return [self._registry.get(*part.key) for part in parts]

    def _create_topics(self, directory: LogDirectory, manifest: Manifest) -> None:
        for name, topic in manifest.topics.items():
            self._create(directory, name, topic)

    def _create(self, directory: LogDirectory, name: str, topic: NewTopic) -> None:
        """Create a topic, or what is missing of it."""
        for partition in range(topic.partitions):
            path = directory.partition_path(name, partition)
            with contextlib.suppress(FileExistsError):
                self._files.mkdir(path)
            if checkpoint.read_topic_id(path) is None:
                self._files.replace(os.path.join(path, names.METADATA), checkpoint.format_metadata(topic.topic_id))
        self._files.fsync_dir(directory.path)
        if self._catalog.entry(name) is None:
            self._catalog.file.put(name, TopicEntry(topic.topic_id, topic.partitions, plain(topic.config)))


def _roll_forward(logs: Iterable[Log], manifest: Manifest) -> None:
    from klog.log.staged.roll_forward import roll_forward  # few processes commit

    for log in logs:
        roll_forward(log._core, manifest)


def _staged_path(directory: LogDirectory, token: str, file: StagedFile) -> str:
    return os.path.join(layout.staging_path(directory.path, file.topic, file.partition, token), file.name)


def _gone(path: str) -> StagingLost:
    return StagingLost(f"{path} is gone, so nothing was committed; write the records again")


def _changed(path: str, how: str) -> StagingLost:
    return StagingLost(f"{path} has changed ({how}), so nothing was committed; write the records again")


def _order(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split("-")))
