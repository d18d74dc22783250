"""verify: checks every invariant of a log directory, offline and read-only.

Takes a log.dir or one partition directory. The invariants, by name: partition_check (L), index_checks (I, T), replay
(E, X, P); here those of the files at the root:

  R1  the checkpoints, meta.properties, klog's own files and the clean-shutdown marker can be parsed
  R2  the partitions in a checkpoint are in the log.dir, unless they are of no topic: a broker ignores those, a note
  R3  a sub-directory is a partition's (Kafka refuses to start with any other)

verify cannot find damage in bytes that no checksum or other copy covers. Every byte of .log, .index, .timeindex,
.txnindex, .snapshot and klog's own JSON files is covered, except:

    - a number in a checkpoint that stays plausible (but after a clean stop the recovery point must be the log end), and
      a partition's name, if no topic has it then
    - ids that keep their form: topic_id (unless klog-topics.json holds it), cluster, node and directory; comments;
      .lock
    - the leader epoch in bootstrap.checkpoint; in .log, of batches below the first entry of leader-epoch-checkpoint, as
      long as it does not fall; the start of that first entry
    - an entry of a .timeindex, moved to the first record of its batch that has its time (Kafka up to 3.7 wrote such)
    - the only entry of an .index, moved to the end of a later batch (Kafka up to 3.9.0 wrote such entries)
    - entries missing at the end of the indexes of a segment that is still active
    - in a partition directory without its log.dir: the end of the log, cut off between two batches together with its
      snapshot and index entries
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from klog import arguments, values
from klog.config import LogConfig
from klog.disk import FileState, check_directory, exists, file_state, is_directory
from klog.errors import CorruptData, InvalidConfig, NewerFormat
from klog.inspect.batches import Examined
from klog.inspect.files import (
    BROKER_FILES,
    ROOT_CHECKPOINTS,
    FileName,
    check_log_dir,
    classify,
    is_partition_directory,
    moved_name,
    names_in,
    partition_name,
    read_small,
)
from klog.inspect.partition_check import Facts, PartitionCheck, check_snapshot
from klog.inspect.partition_files import settled
from klog.inspect.texts import parse_audit, parse_checkpoint, parse_clean_shutdown, parse_properties, parse_versioned
from klog.log.core import LogCore
from klog.log.directory import reader_positions
from klog.log.directory.checkpoint import encode_uuid
from klog.log.staged import layout, manifest, streams, writers
from klog.manager import topics
from klog.progress import Event, Progress
from klog.report import Report

EVENT_BYTES = 8 << 20
_LOOKS_MAX = 3
Positions = dict[tuple[str, int], int]
TopicFacts = tuple[dict[str, str], set[str], dict[str, int]]
"""{topic: id}, the compacted topics, and {topic: number of partitions}."""


def verify(path: str | os.PathLike[str], progress: Progress | None = None) -> Report:
    """Check a log.dir or one partition directory and report all problems. Changes nothing, takes no lock.

    A partition of a log.dir that is deleted meanwhile is left out. Raises OSError if the directory, or that of a
    partition in it, cannot be read, or if it is neither a log.dir nor a partition; everything else is a problem in the
    report.
    """
    where = arguments.path("path", path)
    arguments.function("progress", progress)
    found = verify_root(where)
    _partitions(found.report, found.root, found.partitions, progress)
    found.report.problems = [  # a writer replaces its checkpoints every few seconds
        one for one in found.report.problems if one.kind != "leftover" or exists(one.path, follow_symlinks=False)
    ]
    return found.report


@values.dataclass(frozen=True, slots=True)
class RootCheck:
    """The check of a log.dir's own files. partitions: the paths of the partitions that are still to be checked."""

    report: Report
    root: _Root
    partitions: list[str]


def verify_root(where: str) -> RootCheck:
    """Check the files of a log.dir outside its partitions, and return the partitions that remain to be checked. In a
    partition directory nothing is checked yet. Raises OSError."""
    check_directory(where)  # its errors are the caller's mistake, not a problem of the directory
    for _ in range(_LOOKS_MAX):
        names = names_in(where)
        found = _root_check(where, names)
        if not found.report.problems or names_in(where) == names:  # else a writer has perhaps deleted a topic
            break
    return found


def _root_check(where: str, names: list[str]) -> RootCheck:
    report = Report(where)
    check_log_dir(where)
    if is_partition_directory(where):
        return RootCheck(report, _facts_beside(where), [where])
    root = _Root(report, where)
    found = []
    for name in names:
        whole = os.path.join(where, name)
        if not is_directory(whole, follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile: a lock is, when it is released
                _check_file(report, name, whole)
            continue
        moved = moved_name(name)
        if moved == "delete":
            report.note(whole, _MOVED[moved])
        elif moved is not None:
            report.add("leftover", whole, _MOVED[moved])
        elif partition_name(name) is None:
            if name != "remote-log-index-cache":
                report.add("leftover", whole, "not a partition's directory; Kafka refuses to start with it")
        elif layout.holds_only_staging(whole):
            report.note(whole, "staged files of a job that has not committed them; no partition yet")
        else:
            found.append(whole)
    root.check_names({partition_name(os.path.basename(name)) for name in found})
    return RootCheck(report, root, found)


def _check_file(report: Report, name: str, path: str) -> None:
    """Check the name of what is not a directory in a log.dir, and what it is."""
    what = classify(name)
    if what.leftover is not None and what.kind != "unknown":
        report.add("leftover", path, "left by an unfinished replacement; the old file is valid")
    elif name == ".lock" or partition_name(name) is not None:
        kind = stat.S_IFMT(os.lstat(path).st_mode)
        if name == ".lock" and kind in (stat.S_IFLNK, stat.S_IFSOCK):
            report.add("leftover", path, "a link or a socket: no process can lock the log.dir and write; move it away")
        elif name != ".lock" and kind == stat.S_IFLNK:
            report.note(path, "a symbolic link: klog leaves it out, a broker follows it to a directory")


def verify_each(paths: Sequence[str], examined: Mapping[str, Examined], step: Callable[[int], None]) -> list[Report]:
    """Check several partitions of one log.dir. Returns a report for each. examined: .log files whose damage is known,
    by path. step: called with numbers of bytes."""
    reports: list[Report] = []
    if not paths:
        return reports
    root = _facts_beside(paths[0])
    for path in paths:
        reports.append(_settled(path, root, step, examined) or Report(path))
    return reports


def _settled(
    path: str,
    root: _Root,
    step: Callable[[int], None],
    examined: Mapping[str, Examined] | None = None,
    log_start: int = 0,
) -> Report | None:
    """Check a partition; up to twice again if there are problems and a writer has added or removed files meanwhile, or
    has replaced what is read before them. Returns None if the directory is removed meanwhile."""
    name = os.path.basename(os.path.abspath(path))

    def look() -> Report:
        known = root
        for _ in range(_LOOKS_MAX):
            facts, before = known.facts(name), _state(path)
            report = Report(path)
            PartitionCheck(report, path, values.replace(facts, deleted_to=log_start), step, examined).run()
            if not report.problems:
                break
            known = known.again()
            if known.facts(name) == facts and _state(path) == before:
                break
        return report

    found = settled(path, look, None)
    return found if is_directory(path) else None


def _state(path: str) -> tuple[list[str], FileState | None]:
    """Return the names in a partition directory, and what changes with each new leader epoch."""
    return names_in(path), file_state(os.path.join(path, "leader-epoch-checkpoint"))


def _facts_beside(path: str) -> _Root:
    """Return the log.dir of a partition, for its facts; its problems are not used."""
    parent = os.path.dirname(os.path.abspath(path))
    return _Root(Report(parent), parent)


def verify_partition(path: str, log_start: int, progress: Progress | None) -> Report:
    """Check a partition directory. log_start: records below it are deleted, also if no checkpoint has it yet."""
    report = Report(path)
    _partitions(report, _facts_beside(path), [path], progress, log_start)
    return report


def verify_log(log: LogCore, progress: Progress | None) -> Report:
    """Check the directory of an open log. Bytes after the end of its active segment are not reported: an append may be
    writing them."""
    active = None if log.read_only or not log.segments else log.segments[-1]
    end = 0 if active is None else active.size
    report = verify_partition(log.path, log.log_start_offset, progress)
    if active is not None and active.active:
        report.problems = [
            one
            for one in report.problems
            if not (one.kind == "length" and one.path == active.path and (one.position or 0) >= end)
        ]
    return report


def _partitions(report: Report, root: _Root, paths: list[str], progress: Progress | None, log_start: int = 0) -> None:
    total = sum(_log_bytes(path) for path in paths) if progress is not None else 0
    done = reported = 0

    def step(size: int) -> None:
        nonlocal done, reported
        done += size
        if progress is not None and done - reported >= EVENT_BYTES:
            reported = done
            progress(Event("verify", done, max(done, total), "bytes", os.path.basename(path)))

    for path in paths:
        found = _settled(path, root, step, log_start=log_start)
        if found is not None:
            report.include(found)
            report.partitions += 1
        elif path == report.path:
            check_directory(path)  # raises
    if progress is not None:
        progress(Event("verify", done, max(done, total), "bytes"))


def _log_bytes(path: str) -> int:
    size = 0
    with contextlib.suppress(FileNotFoundError):  # the topic was deleted meanwhile
        for name in names_in(path):
            if name.endswith(".log"):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile, by retention
                    size += os.lstat(os.path.join(path, name)).st_size
    return size


class _Root:
    """The files of a log.dir that concern all partitions. known: the directory is a log.dir."""

    def __init__(self, report: Report, path: str) -> None:
        self._report, self._path = report, path
        names = set(names_in(path))
        self.known = bool(names & {"meta.properties", "klog-topics.json", *ROOT_CHECKPOINTS})
        self.clean = ".kafka_cleanshutdown" in names
        self._points: dict[str, Positions | None] = {}
        for name in ROOT_CHECKPOINTS:
            self._points[name] = self._parse(name, _positions) if name in names else None
        properties = (
            self._parse("meta.properties", parse_properties) if "meta.properties" in names else {"version": "0"}
        )
        # A broker with ZooKeeper, whose file has version 0, writes partition.metadata where it is missing.
        self._needs_ids = properties is None or properties.get("version", "0") != "0"
        if self.clean:
            self._parse(".kafka_cleanshutdown", parse_clean_shutdown)
        if "bootstrap.checkpoint" in names:
            check_snapshot(report, os.path.join(path, "bootstrap.checkpoint"))
        facts: TopicFacts | None = self._parse("klog-topics.json", _topics) if "klog-topics.json" in names else None
        self._topic_ids, self._compacted, self._partitions = facts or ({}, set(), {})
        for name in sorted(names):
            if classify(name) == FileName("positions"):
                self._parse(name, reader_positions.decode)
        self._staged(names)
        if "klog-audit.jsonl" in names:
            self._parse("klog-audit.jsonl", parse_audit)
        for name in sorted(names & BROKER_FILES.keys()):
            self._parse(name, parse_versioned, private=BROKER_FILES[name])

    def _parse(self, name: str, parser: Any, *, private: bool = False) -> Any:
        path = os.path.join(self._path, name)
        try:
            return parser(read_small(path), path)
        except CorruptData as error:
            self._report.add("checkpoint", path, error.reason, position=error.position)
        except (NewerFormat, InvalidConfig) as error:
            self._report.add("checkpoint", path, str(error))
        except OSError as error:
            if private and error.errno == errno.EACCES:
                self._report.note(path, "only its owner may read it, so it was not checked")
            else:
                self._report.add("checkpoint", path, f"cannot be read: {error.strerror}")
        return None

    def _staged(self, names: set[str]) -> None:
        for token in layout.commits_in(names):
            path = layout.commit_path(self._path, token)
            self._report.note(path, "a commit in progress; the next start finishes it")
            self._parse(os.path.basename(path), manifest.decode)
        for token in layout.writers_in(names):
            self._parse(os.path.basename(layout.writer_path("", token)), partial(writers.decode, token=token))
        for query in layout.streams_in(names):
            self._parse(os.path.basename(layout.stream_path("", query)), partial(streams.decode, query=query))

    def again(self) -> _Root:
        """Return the facts as they are now."""
        return _Root(Report(self._path), self._path)

    def check_names(self, present: set[tuple[str, int] | None]) -> None:
        """Check R2."""
        for name, points in self._points.items():
            for topic, partition in points or ():
                if (topic, partition) in present:
                    continue
                path, text = os.path.join(self._path, name), f"names {topic}-{partition}, which is not in the directory"
                if partition < self._partitions.get(topic, 0):
                    self._report.add("checkpoint", path, text)
                else:
                    self._report.note(path, f"{text}; the next start ignores it", kind="checkpoint")

    def facts(self, name: str) -> Facts:
        """Return what is known about the partition directory with this name."""
        if not self.known:
            return Facts()
        key = partition_name(name) or ("", -1)
        recovery, start, high, cleaner = (self._points[name] for name in ROOT_CHECKPOINTS)
        return Facts(
            clean=self.clean,
            recovery_point=(recovery or {}).get(key),
            log_start=(start or {}).get(key),
            high_watermark=(high or {}).get(key),
            cleaned_to=None if cleaner is None else cleaner.get(key, 0),
            topic_id=self._topic_ids.get(key[0]),
            is_topic=self._needs_ids or key[0] in self._topic_ids,
            compacts=key[0] in self._compacted if key[0] in self._topic_ids else None,
        )


def _positions(data: bytes, path: str) -> Positions:
    return {(topic, partition): offset for topic, partition, offset in parse_checkpoint(data, path)}


def _topics(data: bytes, path: str) -> TopicFacts:
    """Return the facts of klog-topics.json. Raises what opening its topics would."""
    entries = topics.decode(data, path).entries
    partitions = {name: entry.partitions for name, entry in entries.items()}
    compacted = {name for name, entry in entries.items() if "compact" in LogConfig(entry.config).cleanup_policy}
    return {name: encode_uuid(entry.topic_id) for name, entry in entries.items()}, compacted, partitions


_MOVED = {
    "delete": "the directory of a deleted partition; the next start removes it",
    "future": "a partition being moved here from another log.dir",
    "stray": "a partition unknown to the cluster; kept, not served",
}
