"""page_cache: how much of each log of a log.dir, or of one partition, is in the page cache; and the machine's memory.

It uses only names and lengths of files: it opens no log and reads no data. So it works on the directory of a running
klog or broker, and does not change the page cache.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import Any

from klog import arguments, values
from klog.disk import Files, RealFiles, check_directory, is_directory, proc
from klog.disk.residency import Residency, total
from klog.errors import UnknownTopicOrPartition
from klog.inspect.files import check_log_dir, is_partition_directory, names_in, partition_name
from klog.log.options import check_tools
from klog.log.read.page_cache import LogPageCache, listed, measure
from klog.progress import Event, Progress

Entry = dict[str, Any]
CELLS_MAX = 1 << 20


def page_cache(
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    cells: int = 32,
    progress: Progress | None = None,
    files: Files | None = None,
    proc_root: str = proc.PROC,
) -> Entry:
    """Return {"path", "source", "machine": {...}, <numbers>, "topics": [{"topic", <numbers>, "partitions": [...]}]}.

    <numbers> are the fields of klog.disk.residency.Residency, and share (0 to 1). A partition: partition, path,
    <numbers>, heat, problem, segments; a segment: base_offset, path, <numbers>, heat. heat: the share of each of at
    most `cells` equal parts, the oldest first. problem: a file that could not be examined; the others count. machine:
    memory and the limits of dirty pages, None if /proc does not have them. Raises PermissionError if the kernel
    refuses: it requires permission to write the files; FileNotFoundError if it is neither a log.dir nor a partition.
    """
    where = check_directory(arguments.path("path", path))
    topic = None if topic is None else arguments.text("topic", topic)
    cells = arguments.whole("cells", cells, 0, CELLS_MAX)
    arguments.function("progress", progress)
    check_tools(None, files)
    proc_root = arguments.text("proc_root", proc_root)
    check_log_dir(where)
    found = dict(_partitions(where, topic))
    if topic is not None and not found:
        raise _unknown(where, topic)
    seen = _Seen(progress, found)
    topics: dict[str, list[Entry]] = {}
    parts: dict[str, list[Residency]] = {}
    refused: PermissionError | None = None
    for (name, partition), directory in sorted(found.items()):
        cached, problems = _measure(files or RealFiles(), name, partition, directory, cells, seen)
        refused = refused or next((error for _, error in problems if isinstance(error, PermissionError)), None)
        if cached is None:
            continue
        problem = _summary(problems)
        parts.setdefault(name, []).append(cached.residency)
        topics.setdefault(name, []).append(_partition(cached, cells, problem))
    if refused is not None and not any(entry["segments"] for entries in topics.values() for entry in entries):
        raise refused  # the files belong to another user
    whole = total(residency for each in parts.values() for residency in each)
    return {
        "path": where,
        "source": whole.source,
        "machine": machine(proc_root),
        **whole.to_dict(),
        "topics": [
            {"topic": name, **total(parts[name]).to_dict(), "partitions": entries} for name, entries in topics.items()
        ],
    }


def machine(proc_root: str = proc.PROC) -> Entry:
    """Return the memory in bytes, and the vm.dirty_* settings with the limits that follow from them."""
    memory = {f"{name}_bytes": value for name, value in values.asdict(proc.read_memory(proc_root)).items()}
    limits = values.asdict(proc.read_dirty_limits(proc_root))
    return {
        **memory,
        "dirty_limit_bytes": limits.pop("threshold"),
        "dirty_background_limit_bytes": limits.pop("background_threshold"),
        "vm": {f"dirty_{name}": value for name, value in limits.items()},
    }


class _Seen:
    """Reports how many segments have been examined, and their total."""

    def __init__(self, progress: Progress | None, found: dict[tuple[str, int], str]) -> None:
        self.progress, self.done = progress, 0
        self.total = sum(len(_listed(directory)) for directory in found.values()) if progress is not None else None

    def __call__(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(Event("page cache", self.done, self.total, "segments"))


def _partitions(where: str, topic: str | None) -> Iterator[tuple[tuple[str, int], str]]:
    if is_partition_directory(where):
        name = os.path.basename(os.path.abspath(where))
        key = partition_name(name) or (name, 0)
        if topic in (None, key[0]):
            yield key, where
        return
    for name in names_in(where):
        whole = os.path.join(where, name)
        key_or_none = partition_name(name)
        if key_or_none is not None and topic in (None, key_or_none[0]) and is_directory(whole, follow_symlinks=False):
            yield key_or_none, whole


def _unknown(where: str, topic: str) -> UnknownTopicOrPartition:
    known = sorted({key[0] for key, _ in _partitions(where, None)})
    near = difflib.get_close_matches(topic, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"topics there: {', '.join(known) or 'none'}"
    return UnknownTopicOrPartition(f"no topic {topic!r} in {where}; {hint}")


def _listed(directory: str) -> list[tuple[int, str]]:
    try:
        return listed(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _measure(
    files: Files, topic: str, partition: int, directory: str, cells: int, seen: _Seen
) -> tuple[LogPageCache | None, list[tuple[str, OSError]]]:
    """Return the page cache use, None if the directory was removed meanwhile; and the files that could not be
    examined."""
    problems: list[tuple[str, OSError]] = []
    try:
        if not is_directory(directory):
            return None, problems
        segments = _listed(directory)
    except OSError as error:
        problems.append((directory, error))
        return LogPageCache(topic, partition, directory, Residency(), ()), problems
    cached = measure(files, topic, partition, directory, segments, cells, seen, lambda *each: problems.append(each))
    return cached, problems


def _summary(problems: list[tuple[str, OSError]]) -> str | None:
    """Return a text of the first problem, with the number of others; None if there is none."""
    if not problems:
        return None
    path, error = problems[0]
    more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{path}: {error.strerror}{more}"


def _partition(cached: LogPageCache, cells: int, problem: str | None) -> Entry:
    return {
        "partition": cached.partition,
        "path": cached.path,
        **cached.residency.to_dict(),
        "heat": _rounded(cached.picture(cells)) if cells else [],
        "problem": problem,
        "segments": [
            {
                "base_offset": segment.base_offset,
                "path": segment.path,
                **segment.residency.to_dict(),
                "heat": _rounded(segment.heat),
            }
            for segment in cached.segments
        ],
    }


def _rounded(shares: Any) -> list[float]:
    return [round(share, 4) for share in shares]
