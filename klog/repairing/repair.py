"""repair: cuts and rebuilds a copy as a broker's load does after a crash, and replaces the original by the copy.

Each partition in which `verify` finds a problem is copied, and the copy is loaded with recovery="kafka", as after a
crash and from its first byte on. A dry run ends here, with the report that the repair would have. The repair then
replaces the original by the copy. One thing is restored that a broker's load leaves or cuts: a wrong base offset, if
the batches around it show the right one. What verify only notes, such as files marked for deletion, is not damage: the
next start removes it.

    DIR/../NAME.before-repair-TIME/          checkpoints of DIR as they were
        t-0/                                 the repaired copy, then the original partition: they exchange their names
        repaired/t-0/                        the copy while it is repaired

  F1  the repaired copy and the checkpoints are on disk before the original is moved
  F2  the names are exchanged in one step, so DIR always has the partition. If the file system cannot do that, there are
      three renames, through original/t-0. A crash between them may leave DIR without the partition; the next repair of
      DIR completes them. It also makes durable what a killed one has exchanged
  F3  no byte of an original is changed: it is renamed

Partitions in which verify finds no problem are left alone, and so are the clean-shutdown marker, moved directories and
the other files of the log.dir. A checkpoint that cannot be parsed counts as empty, as in a load: it is replaced if a
repaired partition has an offset there.
Kafka: LogLoader, LogSegment.recover.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from klog import arguments
from klog.clock import Clock, SystemClock
from klog.disk import (
    DirectoryLock,
    Files,
    RealFiles,
    check_directory,
    directory_lock,
    exists,
    is_directory,
    remove_tree,
)
from klog.errors import CorruptData, KlogError
from klog.inspect.batches import Found
from klog.inspect.files import ROOT_CHECKPOINTS, check_log_dir, is_partition_directory
from klog.inspect.listing import ls
from klog.inspect.partition_files import Located, bases, items, partitions, segment_path
from klog.inspect.verify import verify, verify_each, verify_root
from klog.log import Log
from klog.log.directory import checkpoint
from klog.log.options import check_tools
from klog.manager.moving import copy_file
from klog.progress import Event, Progress
from klog.repairing.copies import changes, copy_files, make_durable, others, regular_files
from klog.repairing.sound_batches import read_segment
from klog.report import Report
from klog.scratch import scratch_directory

Entry = dict[str, Any]
REPAIRED, ORIGINAL = "repaired", "original"
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_COPIES_THERE = "a dry run makes copies there: name another directory (scratch=, klog repair --scratch)"
_NOT_COPIED = (".lock", checkpoint.CLEAN_SHUTDOWN, checkpoint.CLEAN_SHUTDOWN_RENAMED)


def repair(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    scratch: str | os.PathLike[str] | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
    progress: Progress | None = None,
) -> Entry:
    """Repair a log.dir or one partition directory, or report what a repair would do.

    Returns {"path", "dry_run", "copy", "partitions", "problems"}. copy: the directory with the originals; None if
    nothing was changed. problems: those that verify finds outside the partitions, which stay. A partition, of those in
    which verify finds a problem: topic, partition, path, error (why it cannot be repaired, or None), log_end_before,
    log_end_after, bytes_cut, intact_batches_cut and intact_records_cut (after the damage; `rescue` keeps them), files
    (name, change, size_before, size_after), details (lines of the load), problems (that verify found) and remaining
    (that it finds afterwards).

    scratch: a directory for the copies of a dry run, if the parent of the log.dir has too little space or is read-only.
    A repair needs space there for the partitions that it repairs. progress: called with Events, in partitions. Raises
    AlreadyLocked if a broker or another writer has the log.dir, OSError.
    """
    where = check_directory(os.path.abspath(arguments.path("path", path)))
    dry_run = arguments.flag("dry_run", dry_run)
    arguments.function("progress", progress)
    check_tools(clock, files)
    check_log_dir(where)
    log_dir = os.path.dirname(where) if is_partition_directory(where) else where
    if scratch is not None:
        scratch = os.path.abspath(arguments.path("scratch", scratch))
        if not dry_run:
            raise ValueError(f"scratch={scratch!r}: only for a dry run; a repair needs the file system of the log.dir")
    work = _Repair(where, log_dir, clock or SystemClock(), files or RealFiles())
    with _locked(log_dir, dry_run):
        if dry_run:
            home, advice = (scratch, None) if scratch else (os.path.dirname(log_dir), _COPIES_THERE)
            with scratch_directory(".klog-repair-", home, advice) as trial:
                return work.report(work.attempt(trial, progress), None)
        return work.run(progress)


@contextlib.contextmanager
def _locked(log_dir: str, dry_run: bool) -> Iterator[None]:
    """Hold the lock of the log.dir. A dry run on a read-only disk needs no lock: no process writes there."""
    lock = None
    try:
        lock = DirectoryLock(log_dir)
    except OSError:
        if not dry_run or os.access(log_dir, os.W_OK):
            raise
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


class _Repair:
    """One call of repair()."""

    def __init__(self, where: str, log_dir: str, clock: Clock, files: Files) -> None:
        self._where, self._log_dir, self._clock, self._files = where, log_dir, clock, files

    def report(self, found: list[Entry], copy: str | None) -> Entry:
        """Return the result of repair()."""
        problems = [str(problem) for problem in verify_root(self._where).report.problems]
        return {"path": self._where, "dry_run": copy is None, "copy": copy, "partitions": found, "problems": problems}

    def run(self, progress: Progress | None) -> Entry:
        """Repair, and keep the originals. The lock is held."""
        self._finish_earlier()
        copy = self._make_copy(self._clock.wall_ms())
        for name in regular_files(self._log_dir):
            if name != ".lock":
                copy_file(self._files, os.path.join(self._log_dir, name), os.path.join(copy, name))
        trial = os.path.join(copy, REPAIRED)
        self._files.mkdir(trial)
        self._files.fsync_dir(copy)
        self._files.fsync_dir(os.path.dirname(copy))
        found = self.attempt(trial, progress)
        changed = False
        for entry in found:
            if entry["error"] is None and entry["files"]:
                self._put_in_place(entry, copy, trial)
                changed = True
        self._remove(copy)
        if not changed:
            remove_tree(copy, self._files)
        self._files.fsync_dir(os.path.dirname(copy))
        return {**self.report(found, copy if changed else None), "dry_run": False}

    def _make_copy(self, now_ms: int) -> str:
        """Make the directory for the originals, named by the time; by a later time if that name exists."""
        now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        copy = f"{self._log_dir}.before-repair-{now:%Y%m%dT%H%M%S%f}"
        try:
            self._files.mkdir(copy)
        except FileExistsError:
            return self._make_copy(now_ms + 1)
        return copy

    def attempt(self, trial: str, progress: Progress | None) -> list[Entry]:
        """Load copies of the damaged partitions in the directory `trial`. Returns the entries of the report."""
        for name in regular_files(self._log_dir):
            if name not in _NOT_COPIED:
                copy_file(self._files, os.path.join(self._log_dir, name), os.path.join(trial, name))
        found = []
        listed = partitions([self._where])
        for number, located in enumerate(listed, 1):
            (report,) = verify_each([located.path], {}, lambda _: None)  # also of one without a file
            if report.problems:
                found.append(self._partition(located, report, os.path.join(trial, os.path.basename(located.path))))
            if progress is not None:
                progress(Event("repair", number, len(listed), "partitions", os.path.basename(located.path)))
        return found

    def _partition(self, located: Located, report: Report, copy: str) -> Entry:
        end_before = None
        if os.listdir(located.path):
            end_before = ls(located.path)["topics"][0]["partitions"][0]["log_end_offset"]
        entry: Entry = {
            "topic": located.topic,
            "partition": located.partition,
            "path": located.path,
            "error": None,
            "log_end_before": end_before,
            "log_end_after": end_before,
            "bytes_cut": 0,
            "intact_batches_cut": 0,
            "intact_records_cut": 0,
            "files": [],
            "details": [],
            "problems": [str(problem) for problem in report.problems],
            "remaining": [],
        }
        copy_files(self._files, located.path, copy)
        try:
            restored = self._restore_offsets(copy)
            with self._load(copy) as log:
                entry["log_end_after"], start = log.log_end_offset, log.log_start_offset
                entry["details"] = [line.replace(copy, located.path) for line in (*restored, *log.recovery.details)]
        except (KlogError, OSError) as error:
            return {**entry, "error": str(error).replace(copy, located.path)}
        for name in regular_files(copy):  # marked for deletion by the load: the original has them
            if name.endswith(".deleted"):
                self._files.unlink(os.path.join(copy, name))
        entry["details"] += [
            f"{os.path.join(located.path, name)} is not a file: it stays with the originals"
            for name in others(located.path)
        ]
        entry["files"] = changed = changes(located.path, copy)
        logs = [each for each in changed if str(each["name"]).endswith(".log")]
        entry["bytes_cut"] = sum((each["size_before"] or 0) - (each["size_after"] or 0) for each in logs)  # type: ignore[operator]
        first = min((int(str(each["name"])[:-4]) for each in logs if each["size_before"] is not None), default=None)
        for records in () if first is None else _intact_cut(located.path, copy, first, start):
            entry["intact_batches_cut"] += 1
            entry["intact_records_cut"] += records
        entry["remaining"] = [str(problem).replace(copy, located.path) for problem in verify(copy).problems]
        return entry

    def _restore_offsets(self, copy: str) -> list[str]:
        """Restore wrong base offsets: a load cuts such a batch and those after it, or keeps it far out of range.
        Returns a line of the report for each."""
        lines = []
        found = bases(copy)
        for base, next_base in zip_longest(found, found[1:]):
            path = segment_path(copy, base)
            restored = [field for field in read_segment(path, base, next_base).restored if field.at == 0]
            if not restored:
                continue
            with self._files.open(path, write=True) as file:
                for field in restored:
                    file.write(field.data, field.position + field.at)
                    lines.append(f"{path}: at byte {field.position}, {field.reason}")
        return lines

    def _load(self, copy: str) -> Log:
        """Load a copy as after a crash, from its first byte on."""
        return Log.open(
            copy, recovery="kafka", clean_shutdown=False, recovery_point=0, clock=self._clock, files=self._files
        )

    def _put_in_place(self, entry: Entry, copy: str, trial: str) -> None:
        """Exchange a partition and its repaired copy (F1, F2)."""
        files, path, name = self._files, entry["path"], os.path.basename(entry["path"])
        repaired = os.path.join(trial, name)
        make_durable(files, repaired, path)
        files.fsync_dir(trial)
        self._take_checkpoints((entry["topic"], entry["partition"]), trial)
        moved = os.path.join(copy, name)
        files.rename(repaired, moved)
        files.fsync_dir(copy)
        try:
            files.exchange(path, moved)
        except OSError as error:
            if error.errno not in _NO_EXCHANGE:
                raise
            aside = os.path.join(copy, ORIGINAL)
            with contextlib.suppress(FileExistsError):
                files.mkdir(aside)
            files.fsync_dir(copy)  # before the only copy of the original is in it
            files.rename(path, os.path.join(aside, name))
            self._complete(copy, name)
        files.fsync_dir(self._log_dir)
        files.fsync_dir(copy)

    def _complete(self, copy: str, name: str) -> None:
        """Complete an exchange by three renames. The first is done: the original is in original/. The repaired copy is
        in `copy`, or already in DIR."""
        files, aside = self._files, os.path.join(copy, ORIGINAL)
        files.fsync_dir(aside)
        files.fsync_dir(copy)
        path, moved = os.path.join(self._log_dir, name), os.path.join(copy, name)
        if not exists(path):
            files.rename(moved, path)
        files.fsync_dir(self._log_dir)
        files.rename(os.path.join(aside, name), moved)
        files.fsync_dir(copy)

    def _remove(self, copy: str) -> None:
        """Remove the directories that are needed only during a repair."""
        if is_directory(os.path.join(copy, ORIGINAL)):
            self._files.rmdir(os.path.join(copy, ORIGINAL))
        if is_directory(os.path.join(copy, REPAIRED)):
            remove_tree(os.path.join(copy, REPAIRED), self._files)

    def _take_checkpoints(self, key: checkpoint.Partition, trial: str) -> None:
        """Copy the offsets of a repaired partition from the checkpoints in `trial` into those of the log.dir."""
        with directory_lock(self._log_dir):
            for name in ROOT_CHECKPOINTS:
                path, found = os.path.join(self._log_dir, name), os.path.join(trial, name)
                offsets, repaired = checkpoint.known_offsets(path), checkpoint.known_offsets(found)
                if offsets.get(key) != repaired.get(key):
                    without = {other: offset for other, offset in offsets.items() if other != key}
                    checkpoint.write_offsets(
                        self._files, path, without | ({key: repaired[key]} if key in repaired else {})
                    )

    def _finish_earlier(self) -> None:
        """Complete exchanges that a crash has interrupted (F2), and remove copies that have replaced no original."""
        parent, name = os.path.split(self._log_dir)
        for other in sorted(os.listdir(parent)):
            copy = os.path.join(parent, other)
            if not re.fullmatch(rf"{re.escape(name)}\.before-repair-[0-9T]+", other):
                continue
            for directory in (parent, copy, self._log_dir):  # names that a killed repair has exchanged or made
                self._files.fsync_dir(directory)
            if is_directory(os.path.join(copy, ORIGINAL)):
                for partition in os.listdir(os.path.join(copy, ORIGINAL)):
                    self._complete(copy, partition)
            self._remove(copy)


def _intact_cut(path: str, copy: str, first: int, start: int) -> Iterator[int]:
    """Yield the number of records of each intact batch that is not in the repaired copy, from the segment of the offset
    `first` on. Records below the log start do not count."""
    with contextlib.suppress(CorruptData):  # of what is not a file
        kept = {_identity(item) for _, item in items(copy, first) if isinstance(item, Found)}
        for _, item in items(path, first):
            if not isinstance(item, Found) or item.error is not None or _identity(item) in kept:
                continue
            whole = item.batch.base_offset >= start
            count = item.batch.count if whole else sum(record.offset >= start for record in item.batch)
            if count:
                yield count


def _identity(item: Found) -> tuple[int, ...]:
    """What a repair does not change of a batch."""
    batch = item.batch
    return batch.crc, batch.size, batch.count, batch.max_timestamp
