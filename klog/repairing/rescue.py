"""rescue: writes every readable batch of a damaged directory into a new log.dir.

  G1  the source is only read, without its lock
  G2  a batch keeps its bytes: offsets, leader epoch, producer, codec. A wrong base offset or leader epoch is restored
      if the batches around it show the right one. Offsets that cannot be read become gaps. A lost marker of a
      transaction is written anew where a .txnindex shows it: else the next one would decide about its records
  G3  the result has its own indexes, snapshots, epochs and checkpoints, and ends with a clean shutdown
  G4  what is missing is reported with file, position and reason. Damage without missing offsets is reported, too,
      and so is each small file that is needed and cannot be read. An error of the target is raised

Topic ids, configurations (klog-topics.json), positions of named readers, the last batches of streams, the files of
klog.Broker, meta.properties, and snapshots of the metadata log are copied if they can be read. Messages of magic 0 and
1 are reported and left out.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from klog import arguments
from klog.clock import Clock, SystemClock
from klog.disk import Files, RealFiles, check_directory, exists, is_directory, make_directories
from klog.errors import CorruptData, KlogError, NewerFormat, TopicExists
from klog.inspect.batches import check_batches
from klog.inspect.files import BROKER_FILES, ReadOnlyFile, classify, is_partition_directory, read_small
from klog.inspect.partition_files import Located, bases, partitions, segment_path
from klog.inspect.texts import (
    parse_checkpoint,
    parse_epochs,
    parse_partition_metadata,
    parse_properties,
    parse_versioned,
)
from klog.inspect.verify import verify, verify_root
from klog.log import Log
from klog.log.directory import checkpoint, gaps
from klog.log.options import check_tools
from klog.log.staged import layout, manifest
from klog.progress import Event, Progress
from klog.repairing.lost_markers import LostMarkers
from klog.repairing.sound_batches import Batch, Damage, Segment, read_segment, restore_epochs
from klog.segment.names import EPOCHS

Entry = dict[str, Any]
APPEND_BYTES = 1 << 20


def rescue(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Entry:
    """Write every readable batch of a log.dir, or of one partition directory, into a new log.dir.

    Returns {"path", "to", "partitions", "files", "missing_files", "problems"}. A partition: topic, partition, path, to,
    error (why it is not there, or None), batches, records, bytes, log_start_offset, log_end_offset, and missing:
    first_offset, last_offset (None: unknown; both None: no offset is missing), path, position, reason. files: what was
    copied besides the partitions. missing_files: path and reason, as text, of what could not be read besides them.
    problems: what verify finds in the result. progress: called with Events, in bytes of the source.

    to: a directory that does not exist or is empty, and is not inside the log.dir. Raises TopicExists if it is not
    empty, ValueError, OSError.
    """
    where = check_directory(os.path.abspath(arguments.path("path", path)))
    target = os.path.abspath(arguments.path("to", to))
    arguments.function("progress", progress)
    check_tools(clock, None)
    files = RealFiles()
    located = partitions([where])
    log_dir = os.path.dirname(where) if is_partition_directory(where) else where
    if os.path.realpath(log_dir) in map(str, Path(os.path.realpath(target)).parents):
        raise ValueError(f"to={target!r} is inside {log_dir}, which is only read: name a directory elsewhere")
    if exists(target) and os.listdir(target):
        raise TopicExists(f"to={target!r} is not empty: name a directory that does not exist yet")
    make_directories(target, files)
    unread: list[str] = []
    starts, root = _log_starts(log_dir, unread), verify_root(where).root
    step = _stepper(progress, located)
    found = []
    for each in located:
        compacts = root.facts(os.path.basename(each.path)).compacts
        found.append(_Partition(each, target, starts, compacts, clock or SystemClock(), files).run(step))
    copied, missing = _copy_small_files(files, log_dir, target)  # last: a new log lowers the positions of its readers
    missing += unread
    if found:
        files.replace(checkpoint.clean_shutdown_path(target), checkpoint.CLEAN_SHUTDOWN_TEXT)
    problems = [str(problem) for problem in verify(target).problems] if os.listdir(target) else []
    return {
        "path": where,
        "to": target,
        "partitions": found,
        "files": copied,
        "missing_files": missing,
        "problems": problems,
    }


def _stepper(progress: Progress | None, located: list[Located]) -> Callable[[int], None]:
    total = 0
    for each in located if progress is not None else ():
        with contextlib.suppress(OSError):  # reported, if no writer has removed it
            for base in bases(each.path):
                total += os.lstat(segment_path(each.path, base)).st_size
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(Event("rescue", done, total, "bytes"))

    return step


def _copy_small_files(files: Files, log_dir: str, target: str) -> tuple[list[str], list[str]]:
    """Copy the files of the log.dir that are needed and belong to no partition. Returns their names, and the errors of
    those that could not be read."""
    copied, missing = [], []
    for name in sorted(os.listdir(log_dir)):
        try:
            data = _small(log_dir, name)
        except (CorruptData, NewerFormat, OSError) as error:
            missing.append(str(error))
        else:
            if data is not None:
                files.replace(os.path.join(target, name), data, private=BROKER_FILES.get(name, False))
                copied.append(name)
    return copied, missing


def _small(log_dir: str, name: str) -> bytes | None:
    """Return the bytes of a file of the log.dir that belongs to no partition; None if it is not needed. Raises
    CorruptData, NewerFormat, OSError."""
    path = os.path.join(log_dir, name)
    kind = classify(name)
    if kind.leftover is not None:
        return None
    if layout.commits_in([name]):
        if manifest.decode(read_small(path), path).state == "committed":
            raise CorruptData(
                "a commit of a job that has not ended: of its records only those are here that it had appended; to "
                "have all, let klog.open() end the commit before the rescue",
                path=path,
            )
        return None
    if kind.kind in ("topics", "positions", "broker") or layout.streams_in([name]):
        parse_versioned(data := read_small(path), path)
        return data
    if kind.kind == "properties":
        parse_properties(data := read_small(path), path)
        return data
    return _sound(path) if name == "bootstrap.checkpoint" else None


def _sound(path: str) -> bytes:
    """Return the bytes of a file of batches. Raises CorruptData, OSError."""
    with ReadOnlyFile(path) as file:
        for error in check_batches(file):
            raise error
    return read_small(path)


def _log_starts(log_dir: str, missing: list[str]) -> dict[tuple[str, int], int]:
    """Return the checkpoint of the log starts. An error is added to `missing`."""
    path = os.path.join(log_dir, checkpoint.LOG_START)
    try:
        return {(topic, number): offset for topic, number, offset in parse_checkpoint(read_small(path), path)}
    except FileNotFoundError:
        pass
    except (CorruptData, OSError) as error:
        missing.append(str(error))
    return {}


class _Partition:
    """The rescue of one partition."""

    def __init__(
        self,
        located: Located,
        target: str,
        starts: dict[tuple[str, int], int],
        compacts: bool | None,
        clock: Clock,
        files: Files,
    ) -> None:
        self._located, self._clock, self._files = located, clock, files
        self._to = os.path.join(target, f"{located.topic}-{located.partition}")
        self._start = starts.get((located.topic, located.partition), 0)
        self._compacts = compacts  # None: not known
        self._bases: list[int] = []
        self._entry: Entry = {
            "topic": located.topic,
            "partition": located.partition,
            "path": located.path,
            "to": self._to,
            "error": None,
            "batches": 0,
            "records": 0,
            "bytes": 0,
            "log_start_offset": None,
            "log_end_offset": None,
            "missing": [],
        }

    def run(self, step: Callable[[int], None]) -> Entry:
        """Write the partition. Returns its entry."""
        try:
            self._bases = self._listed()
            with Log.open(self._to, topic_id=self._topic_id(), clean_shutdown=True, clock=self._clock) as log:
                self._write(log, LostMarkers(self._located.path), step)
                self._keep_leader_epoch(log)
            # A load takes the base of an empty last segment as the log end, also after a gap.
            with Log.open(self._to, clean_shutdown=True, recovery_point=0, clock=self._clock) as log:
                self._entry["log_start_offset"] = log.log_start_offset
                self._entry["log_end_offset"] = log.log_end_offset
            self._copy_metadata_snapshots()
        except KlogError as error:
            self._entry["error"] = str(error)
        except FileNotFoundError:
            if is_directory(self._located.path):
                raise
            self._entry["error"] = f"{self._located.path} is gone: its topic was deleted, or the partition moved"
        return self._entry

    def _listed(self) -> list[int]:
        """Return the base offsets of the segments. Raises FileNotFoundError, CorruptData for a directory that cannot be
        read: the other partitions go on."""
        try:
            return bases(self._located.path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CorruptData(f"cannot be read: {error.strerror}", path=self._located.path) from None

    def _topic_id(self) -> str | None:
        path = os.path.join(self._located.path, "partition.metadata")
        try:
            return parse_partition_metadata(read_small(path), path)[1]
        except FileNotFoundError:
            return None
        except (CorruptData, OSError) as error:
            self._add_missing(None, None, path, 0, str(error))
            return None

    def _keep_leader_epoch(self, log: Log) -> None:
        """Begin the source's last leader epoch, of which no record may be left: clients ignore a leader of an earlier
        one."""
        path = os.path.join(self._located.path, EPOCHS)
        with contextlib.suppress(CorruptData, OSError):  # those of the batches are there
            epochs = parse_epochs(read_small(path), path)
            if epochs and epochs[-1][0] > log.leader_epoch:
                log.begin_leader_epoch(epochs[-1][0])

    def _segments(self) -> Iterator[tuple[Segment, Segment | None]]:
        """Yield each segment with the next one."""
        waiting: Segment | None = None
        for base, next_base in zip_longest(self._bases, self._bases[1:]):
            segment = read_segment(segment_path(self._located.path, base), base, next_base)
            if waiting is not None:
                yield waiting, segment
            waiting = segment
        if waiting is not None:
            yield waiting, None

    def _write(self, log: Log, markers: LostMarkers, step: Callable[[int], None]) -> None:
        epoch, begun = -1, False
        for segment, after in self._segments():
            restore_epochs(segment, epoch, after)
            self._report_missing(segment)
            self._report_lost_segments(segment)
            if segment.batches and self._copy(log, segment, after, markers, begun):
                epoch, begun = segment.batches[-1].leader_epoch, True
            elif not segment.batches and not segment.damage:
                self._end_transactions(log, markers, segment.base, [] if after is None else after.batches)
                _begin_segment(log, segment.base, begun)
                begun = True
            step(segment.size)
        self._end_transactions(log, markers, None, [])
        start = min(self._start, log.log_end_offset)
        if start > log.log_start_offset:
            log.delete_records(start)

    def _copy(self, log: Log, segment: Segment, after: Segment | None, markers: LostMarkers, begun: bool) -> bool:
        """Append the batches of a segment, one or more. Returns False if its file is gone: a writer has removed it."""
        try:
            source = ReadOnlyFile(segment.path, scan=True)
        except FileNotFoundError as error:
            where = segment.path, 0, f"cannot be opened: {error.strerror}"
            self._add_missing(segment.batches[0].base_offset, segment.batches[-1].next_offset - 1, *where)
            return False
        with source as file:
            end = 0  # position after the last batch that was kept
            for group in _groups(segment.batches):
                first = group[0]
                if begun and first.base_offset > log.log_end_offset:
                    batches = [*segment.batches, *(after.batches if after is not None else ())]
                    self._end_transactions(log, markers, first.base_offset, batches)
                if first.position > end:
                    _begin_segment(log, first.base_offset, begun)  # after a gap: a new segment shows it
                elif end == 0:
                    _begin_segment(log, segment.base, begun)
                begun = True
                self._append(log, file, group, segment)
                end = group[-1].position + group[-1].size
        return True

    def _end_transactions(self, log: Log, markers: LostMarkers, end: int | None, batches: list[Batch]) -> None:
        """Write the markers that are lost between the log end and an offset, None: after it. batches: those from there
        on, and others."""
        start = max(log.log_end_offset, log.segments[-1].base_offset)
        if not markers or (end is not None and end <= start):
            return
        following = [] if end is None else [batch for batch in batches if batch.base_offset >= end]
        for marker in markers.between(log.producers, start, end, following):
            if marker.offset > log.log_end_offset:
                _begin_segment(log, marker.offset, True)
            log.append_batches(marker.encoded(log.leader_epoch), origin="replication")
            reason = f"the marker of a transaction is lost: producer {marker.producer_id} has another {marker.kind} at "
            self._add_missing(None, None, self._located.path, 0, f"{reason}{marker.offset} now")

    def _append(self, log: Log, file: ReadOnlyFile, group: list[Batch], segment: Segment) -> None:
        """Append adjacent batches; if the log refuses them, one by one."""
        position, size = group[0].position, sum(batch.size for batch in group)
        try:
            data = bytearray(file.read_at(position, size))
            for field in segment.restored:
                field.put(data, position)
            log.append_batches(data, origin="replication")
        except (KlogError, ValueError) as error:
            if len(group) > 1:
                for batch in group:
                    self._append(log, file, [batch], segment)
                return
            self._add_missing(group[0].base_offset, group[0].next_offset - 1, file.path, position, str(error))
            return
        self._entry["batches"] += len(group)
        self._entry["records"] += sum(batch.count for batch in group)
        self._entry["bytes"] += size

    def _report_missing(self, segment: Segment) -> None:
        """Report the damage of a segment, with the offsets between the batches around it (G4)."""
        for field in segment.restored:
            self._add_missing(None, None, segment.path, field.position, field.reason)
        positions = [batch.position for batch in segment.batches]
        by_hole: dict[int, list[Damage]] = {}
        for damage in segment.damage:
            by_hole.setdefault(bisect.bisect(positions, damage.position), []).append(damage)
        for hole, found in by_hole.items():
            first = segment.batches[hole - 1].next_offset if hole else segment.base
            end = segment.batches[hole].base_offset if hole < len(segment.batches) else segment.next_base
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            where = segment.path, found[0].position, found[0].reason + more
            if end is not None and end <= first:
                self._add_missing(None, None, *where)
            else:
                self._add_missing(first, None if end is None else end - 1, *where)

    def _report_lost_segments(self, segment: Segment) -> None:
        """Report the offsets between a segment and the next one, unless a compaction may have removed them, or the
        segment's end is damaged, which was reported."""
        last = segment.batches[-1] if segment.batches else None
        end, base = segment.base if last is None else last.next_offset, segment.next_base
        if self._compacts is not False or base is None or base <= end:
            return
        damaged = any(last is None or each.position > last.position for each in segment.damage)
        if not damaged and (end, base) not in gaps.read(self._located.path):
            path = segment_path(self._located.path, base)
            self._add_missing(end, base - 1, path, 0, "no segment has these offsets, and this log was not compacted")

    def _add_missing(self, first: int | None, last: int | None, path: str, position: int, reason: str) -> None:
        self._entry["missing"].append(
            {"first_offset": first, "last_offset": last, "path": path, "position": position, "reason": reason}
        )

    def _copy_metadata_snapshots(self) -> None:
        """Copy the snapshots of the metadata log, and the state of its quorum."""
        for name in sorted(os.listdir(self._located.path)):
            path = os.path.join(self._located.path, name)
            kind = classify(name)
            if kind.leftover is None and (kind.kind == "quorum_state" or name.endswith(".checkpoint")):
                try:
                    data = read_small(path) if kind.kind == "quorum_state" else _sound(path)
                except (CorruptData, OSError) as error:
                    self._add_missing(None, None, path, 0, str(error))
                    continue
                self._files.replace(os.path.join(self._to, name), data)


def _begin_segment(log: Log, base: int, begun: bool) -> None:
    if not begun:
        if base:
            log.truncate_fully_and_start_at(base)
    elif base > log.segments[-1].base_offset:
        log.roll(base)


def _groups(batches: list[Batch]) -> Iterator[list[Batch]]:
    """Yield runs of adjacent batches of at most APPEND_BYTES, or of one batch."""
    group: list[Batch] = []
    size = 0
    for batch in batches:
        adjacent = group and group[-1].position + group[-1].size == batch.position
        if group and (not adjacent or size + batch.size > APPEND_BYTES):
            yield group
            group, size = [], 0
        group.append(batch)
        size += batch.size
    if group:
        yield group
