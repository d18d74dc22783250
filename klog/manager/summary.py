"""What a notebook shows of a LogManager: its topics as HTML. No log is loaded for it."""

from __future__ import annotations

import os

from klog.errors import KlogError
from klog.log.directory.checkpoint import Partition
from klog.log.log import Log
from klog.manager.directory_set import DirectorySet
from klog.manager.open_state import OpenState
from klog.segment.names import LOG
from klog.shown import heading, note, size, table

TOPICS_MAX = 50


def manager_html(title: str, state: OpenState, directories: DirectorySet, logs: list[Log]) -> str:
    """Return a table of topics: partitions, size of their .log files, and how many offsets the open logs hold.

    Sizes come from the directories, or from a log if it is open. An error becomes a line of text.
    """
    try:
        state.check_open()
        return heading(title) + _topics(directories, {(log.topic, log.partition): log for log in logs})
    except (KlogError, OSError) as error:
        return heading(title) + note(f"{type(error).__name__}: {error}")


def _topics(directories: DirectorySet, logs: dict[Partition, Log]) -> str:
    found: dict[str, dict[int, str]] = {}
    for directory in directories.online():
        for (topic, partition), name in directory.entries().live.items():
            found.setdefault(topic, {})[partition] = os.path.join(directory.path, name)
    rows = []
    for topic in sorted(found)[:TOPICS_MAX]:
        opened = {partition: logs[topic, partition] for partition in found[topic] if (topic, partition) in logs}
        sizes = [
            opened[partition].size if partition in opened else _size(path) for partition, path in found[topic].items()
        ]
        offsets = sum(log.log_end_offset - log.log_start_offset for log in opened.values()) if opened else None
        rows.append((topic, len(found[topic]), size(sum(sizes)), len(opened), offsets))
    more = len(found) - len(rows)
    offline = "".join(note(f"offline: {path}: {reason}") for path, reason in directories.offline.items())
    heads = ("topic", "partitions", "size", "open logs", "offsets in open logs")
    return table(heads, rows) + (note(f"... and {more:,} more topics") if more else "") + offline


def _size(path: str) -> int:
    with os.scandir(path) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG))
