"""ls: topics, partitions, offsets, sizes, segments and time spans of a log.dir or of one partition, read-only.

It reads only a little of each partition: the first record, the last entry of each time index, and the last segment from
its last index entry on. So the time span is not checked here: `verify` does that.
"""

from __future__ import annotations

import bisect
import os
from typing import Any

from klog import arguments
from klog.disk import FileState, check_directory, exists, file_state, is_directory, naming_the_next_step
from klog.errors import CorruptBatch, CorruptData
from klog.inspect.batches import HEADER, Broken, Found, plausible, scan
from klog.inspect.entries import parse_offset_index, parse_time_index
from klog.inspect.files import (
    ReadOnlyFile,
    check_log_dir,
    classify,
    is_partition_directory,
    moved_name,
    names_in,
    partition_name,
    read_small,
)
from klog.inspect.partition_files import LOOKS_MAX
from klog.inspect.texts import parse_checkpoint, parse_partition_metadata
from klog.log.staged.layout import holds_only_staging

Entry = dict[str, Any]


def ls(path: str | os.PathLike[str]) -> Entry:
    """Return {"path", "clean_shutdown", "topics": [{"topic", "partitions": [...], ...}], "other": [...]}.

    A partition: topic, partition, path, topic_id, log_start_offset, log_end_offset, high_watermark, size (.log bytes),
    files_size, segments, first_timestamp (of the first record that has one; batch headers do not store the smallest),
    max_timestamp (ms; None: no records with a timestamp), problem (why a number is missing). A topic's first_timestamp
    is the smallest of its partitions.

    Raises OSError, also FileNotFoundError if it is neither a log.dir nor a partition. A log.dir without topics
    is a log.dir.
    """
    where = check_directory(arguments.path("path", path))
    names = names_in(where)
    check_log_dir(where)
    if is_partition_directory(where):
        parent = os.path.dirname(os.path.abspath(where))
        clean = exists(os.path.join(parent, ".kafka_cleanshutdown"))
        return _result(where, clean, [_partition(where, _Points(parent))], [])
    points = _Points(where)
    found, other = [], []
    for name in names:
        whole = os.path.join(where, name)
        if not is_directory(whole, follow_symlinks=False):
            continue
        moved = moved_name(name)
        if moved is None and partition_name(name) is not None and holds_only_staging(whole):
            other.append({"path": whole, "state": "staged"})
        elif moved is None and partition_name(name) is not None:
            entry = _partition(whole, points)
            if entry["problem"] is None or is_directory(whole):  # else it was deleted, or moved, meanwhile
                found.append(entry)
        else:
            other.append({"path": whole, "state": moved or "foreign"})
    return _result(where, ".kafka_cleanshutdown" in names, found, other)


def _result(path: str, clean: bool, partitions: list[Entry], other: list[Entry]) -> Entry:
    topics: dict[str, Entry] = {}
    for entry in sorted(partitions, key=lambda found: (found["topic"], found["partition"])):
        topic = topics.setdefault(
            entry["topic"],
            {
                "topic": entry["topic"],
                "topic_id": entry["topic_id"],
                "size": 0,
                "segments": 0,
                "offsets": 0,
                "partitions": [],
            },
        )
        topic["partitions"].append(entry)
        topic["size"] += entry["size"]
        topic["segments"] += entry["segments"]
        topic["offsets"] += (entry["log_end_offset"] or 0) - (entry["log_start_offset"] or 0)
    for topic in topics.values():
        for name, pick in (("first_timestamp", min), ("max_timestamp", max)):
            times = [entry[name] for entry in topic["partitions"] if entry[name] is not None]
            topic[name] = pick(times) if times else None
    return {"path": path, "clean_shutdown": clean, "topics": list(topics.values()), "other": other}


class _Points:
    """Offsets from the checkpoints of a log.dir; an unreadable file counts as empty."""

    def __init__(self, path: str) -> None:
        names = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")
        self._paths = [os.path.join(path, name) for name in names]
        self._states: list[FileState | None] = []
        self.follow()

    def follow(self) -> bool:
        """Read the files again if a writer has replaced one of them. Returns whether it has."""
        states = [self._state(path) for path in self._paths]
        if states == self._states:
            return False
        self._states = states
        self.log_start, self.recovery, self.high_watermark = map(self._read, self._paths)
        return True

    def _state(self, whole: str) -> FileState | None:
        try:
            return file_state(whole)
        except OSError:
            return None

    def _read(self, whole: str) -> dict[tuple[str, int], int]:
        try:
            return {
                (topic, partition): offset for topic, partition, offset in parse_checkpoint(read_small(whole), whole)
            }
        except (CorruptData, OSError):
            return {}


def _partition(path: str, points: _Points, looks: int = LOOKS_MAX) -> Entry:
    """Return the entry of a partition. It looks again if a file is gone, since a writer removes some, or if there is a
    problem and the checkpoints have changed: they were perhaps those of a deleted topic of this name."""
    points.follow()
    name = os.path.basename(os.path.abspath(path))
    key = partition_name(name) or (name, 0)
    result: Entry = {
        "topic": key[0],
        "partition": key[1],
        "path": path,
        "topic_id": _topic_id(path),
        "log_start_offset": None,
        "log_end_offset": None,
        "high_watermark": points.high_watermark.get(key),
        "size": 0,
        "files_size": 0,
        "segments": 0,
        "first_timestamp": None,
        "max_timestamp": None,
        "problem": None,
    }
    try:
        with naming_the_next_step(path, reading=True):
            _read_files(result, path, points.log_start.get(key, 0), points.recovery.get(key, 0))
    except CorruptData as error:
        result["problem"] = str(error)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and looks > 1:
            return _partition(path, points, looks - 1)
        result["problem"] = f"{os.path.basename(os.fsdecode(error.filename or path))}: {error.strerror}"
    if result["problem"] is not None and looks > 1 and points.follow():
        return _partition(path, points, looks - 1)
    return result


def _read_files(result: Entry, path: str, log_start: int, recovery_point: int) -> None:
    """Fill in what the files of a partition contain."""
    bases = []
    with os.scandir(path) as entries:
        for entry in entries:
            what = classify(entry.name)
            try:
                length = (
                    entry.stat(follow_symlinks=False).st_blocks * 512
                    if what.kind in ("index", "timeindex")
                    else entry.stat().st_size
                )
            except FileNotFoundError:
                continue
            result["files_size"] += length
            if (
                what.kind == "log"
                and what.leftover is None
                and what.base_offset is not None
                and entry.name.endswith(".log")
            ):
                bases.append(what.base_offset)
                result["size"] += length
    bases.sort()
    result["segments"] = len(bases)
    if not bases:  # the first open for writing begins one, at the log start
        if recovery_point > log_start:
            result["problem"] = f"no segment, but records below offset {recovery_point} were flushed: they are missing"
        else:
            result["log_start_offset"] = result["log_end_offset"] = log_start
        return
    end, latest, result["problem"] = _last_segment(path, bases[-1])
    result["log_start_offset"] = start = min(max(log_start, bases[0]), end)
    result["log_end_offset"] = end
    times = [latest, *(_last_time(path, base) for base in bases[:-1])]
    result["max_timestamp"] = max((time for time in times if time is not None and time >= 0), default=None)
    if result["max_timestamp"] is not None:
        left = bases[bisect.bisect_right(bases, start) - 1 :]
        found = (_first_time(path, base, start) for base in left)
        result["first_timestamp"] = next((time for time in found if time is not None), None)


def _topic_id(path: str) -> str | None:
    whole = os.path.join(path, "partition.metadata")
    try:
        return parse_partition_metadata(read_small(whole), whole)[1]
    except (CorruptData, OSError):
        return None


def _last_segment(path: str, base: int) -> tuple[int, int | None, str | None]:
    """Return (end offset, largest timestamp, problem) of the last segment, read from its last valid index entry to the
    end.

    The end is the one that a reader sees. A torn tail is not a problem here: it may be a write in progress.
    """
    latest = _last_time(path, base)
    with ReadOnlyFile(os.path.join(path, f"{base:020d}.log")) as file:
        end = base
        problem = None
        error: CorruptBatch | None
        for item in scan(file, _position_before(file, path, base, None)):
            if isinstance(item, Found):
                batch, error = item.batch, item.error
                if batch.base_offset < end or batch.last_offset - base >= 2**31:
                    message = f"a batch of offsets {batch.base_offset} to {batch.last_offset}, expected {end} or above"
                    error = error or CorruptBatch(
                        message, path=file.path, position=item.position, offset=batch.base_offset, kind="offset_order"
                    )
                else:
                    end = batch.next_offset
                    latest = max(latest if latest is not None else -1, batch.max_timestamp)
            elif isinstance(item, Broken):
                error = None if item.torn else item.error
            else:
                problem = problem or f"batches of the old format, magic {item.magic}, from position {item.position} on"
                break
            problem = problem or (str(error) if error is not None else None)
            if isinstance(item, Broken):
                break
    return end, latest, problem


def _position_before(file: ReadOnlyFile, path: str, base: int, offset: int | None) -> int:
    """Return where a batch of a segment begins, by the last valid index entry up to an offset; None: the last one."""
    try:
        entries = parse_offset_index(read_small(os.path.join(path, f"{base:020d}.index")), base).entries
    except (CorruptData, OSError):
        return 0
    if offset is not None:
        entries = [entry for entry in entries if entry.offset <= offset]
    return entries[-1].position if entries and _begins_at(file, entries[-1].position, entries[-1].offset) else 0


def _begins_at(file: ReadOnlyFile, position: int, offset: int) -> bool:
    header = file.read_at(position, HEADER.size)
    if not plausible(header, file.size - position):
        return False
    fields = HEADER.unpack(header)
    return int(fields[0]) <= offset and int(fields[0]) + int(fields[6]) <= offset


def _last_time(path: str, base: int) -> int | None:
    try:
        entries = parse_time_index(read_small(os.path.join(path, f"{base:020d}.timeindex")), base).entries
    except (CorruptData, OSError):
        return None
    return entries[-1].timestamp if entries else None


def _first_time(path: str, base: int, start: int) -> int | None:
    """Return the time of a segment's first record from the log start on that has one; None if there is none."""
    with ReadOnlyFile(os.path.join(path, f"{base:020d}.log")) as file:
        for item in scan(file, _position_before(file, path, base, start) if start > base else 0):
            if not isinstance(item, Found) or item.error is not None:
                return None
            if item.batch.next_offset <= start or item.batch.is_control or item.batch.max_timestamp < 0:
                continue
            for record in item.batch:
                if record.offset is not None and record.offset >= start and record.timestamp >= 0:
                    return record.timestamp
    return None
