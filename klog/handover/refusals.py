"""Refuses log directories that a broker would not load in their present state, or whose content it would not know.

Each error ends with what to do. Nothing is changed here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from klog.disk import Files, is_directory
from klog.errors import HandoverRefused
from klog.handover.metadata import METADATA_LOG, has_metadata_log
from klog.internal_topics.names import CLUSTER_METADATA
from klog.log.directory.checkpoint import Partition
from klog.log.directory.partition_names import FUTURE, parse_directory_name
from klog.log.staged import layout
from klog.manager.directories import LogDirectory
from klog.manager.topics import TopicFile

_AGAIN: Final = "open it with klog.open() and close it, which completes that, then hand over"


def open_directories(paths: Sequence[str], files: Files) -> list[LogDirectory]:
    """Read the root files of log.dirs whose locks the caller holds. Raises HandoverRefused, OSError."""
    for path in paths:
        if has_metadata_log(path):
            log = os.path.join(path, METADATA_LOG)
            raise HandoverRefused(
                f"{path} has the metadata log of a KRaft node, whose broker can start on it now. Topics that "
                "klog has created meanwhile are not in it: to hand over anew, call klog.handover.adopt(), move "
                f"{log} away, and hand over again"
            )
    directories = [LogDirectory(path, files, read_only=True) for path in paths]
    for directory in directories:
        directory.open()
    return directories


def check_topics(file: TopicFile) -> None:
    """Raise HandoverRefused if a topic is being created, extended or deleted."""
    for name, entry in file.entries.items():
        if entry.state:
            raise HandoverRefused(f"{file.path}: topic {name!r} was left in the state {entry.state!r}: {_AGAIN}")


def check_directory(directory: LogDirectory) -> dict[Partition, str]:
    """Return the names of the partition directories. Raises HandoverRefused, OSError."""
    path, names = directory.path, sorted(os.listdir(directory.path))
    if layout.commits_in(names):
        raise HandoverRefused(f"{path}: the commit {layout.commits_in(names)[0]} has not ended: {_AGAIN}")
    entries = directory.entries()
    live = {key: name for key, name in entries.live.items() if key[0] != CLUSTER_METADATA}
    if live and not directory.was_clean:
        raise HandoverRefused(
            f"{path} was not closed cleanly, so a broker would have to recover its logs: open it with klog.open(), "
            "call load_all() and close it, then hand over"
        )
    if entries.foreign:
        raise HandoverRefused(
            f"{os.path.join(path, entries.foreign[0])} is not a partition, and a broker does not start with such a "
            "directory: move it away"
        )
    for name, parts in entries.suffixed_names.items():
        if parts.suffix == FUTURE:
            raise HandoverRefused(f"{os.path.join(path, name)}: a move between directories has not ended: {_AGAIN}")
    check_links(path, names)
    for name in names:
        key, whole = parse_directory_name(name), os.path.join(path, name)
        if not is_directory(whole):
            continue  # a broker ignores it, too
        if key is not None and key[0] != CLUSTER_METADATA and (key not in live or layout.holds_only_staging(whole)):
            raise HandoverRefused(f"{whole} holds only the staged files of a job: commit or abort the job first")
    return live


def check_links(path: str, names: Iterable[str]) -> None:
    """Raise HandoverRefused for a symbolic link to a directory among the names in a log.dir: a broker and klog would
    have different partitions there."""
    for name in sorted(names):
        whole = os.path.join(path, name)
        if is_directory(whole) and os.path.islink(whole):
            raise HandoverRefused(
                f"{whole} is a symbolic link, which a broker follows and klog does not: move it away, and move the "
                "directory that it leads to here"
            )
