"""The note of a move between log.dirs, klog-future.json in the copy; and which of two live directories is left over.

    {"version": 1, "topic": t, "partition": p, "from": log.dir, "ready": bool, "end": log end offset}

  N1  it is written before the copy; "ready", with "end", after all of the copy is on disk
  N2  a live directory with a ready note is a finished copy. If a crash has left the original live, too, that is left
      over unless something was appended to it since: its last segment begins at "end" and is empty

A broker's loader ignores the file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klog.disk import Files, exists, is_directory, read_whole
from klog.errors import CorruptCheckpoint
from klog.log.directory import checkpoint, versioned
from klog.logger import logger_of
from klog.segment import names
from klog.values import NamedTuple

if TYPE_CHECKING:
    from klog.log.directory.checkpoint import Partition

_log = logger_of("manager")
NOTE = "klog-future.json"
VERSION = 1


class MoveNote(NamedTuple):
    """source: the log.dir that the partition comes from. end: the log end of a ready copy; -1 before."""

    key: Partition
    source: str
    ready: bool
    end: int


UNREADY = MoveNote(("", -1), "", False, -1)


def write(files: Files, path: str, note: MoveNote) -> None:
    """Write the note of the copy in a directory, durably."""
    topic, partition = note.key
    document = {"version": VERSION, "topic": topic, "partition": partition, "from": note.source}
    files.replace(os.path.join(path, NOTE), versioned.encode({**document, "ready": note.ready, "end": note.end}))


def read(path: str) -> MoveNote | None:
    """Return the note in a directory; None if there is none. An invalid one counts as not ready. Raises NewerFormat,
    OSError."""
    note = os.path.join(path, NOTE)
    if not exists(note):
        return None
    try:
        document = versioned.parse(read_whole(note), note, VERSION)
        key = str(document["topic"]), int(document["partition"])
        return MoveNote(key, str(document["from"]), document["ready"] is True, int(document.get("end", -1)))
    except FileNotFoundError:  # removed meanwhile, by another process
        return None
    except versioned.MALFORMED:
        _log.warning("event=note_unreadable reason=%s", CorruptCheckpoint("not a move's note", path=note))
        return UNREADY


def left_over(paths: Sequence[str]) -> list[str]:
    """Return those of the live directories of a partition, in several log.dirs, that a move has left over (N2), or that
    have gone meanwhile. Raises NewerFormat, OSError."""
    for path in paths:
        note = read(path)
        if note is not None and note.ready:
            topic_id = checkpoint.read_topic_id(path)
            found = [
                other
                for other in paths
                if other != path and _ends_at(other, note.end) and checkpoint.read_topic_id(other) == topic_id
            ]
            if found:
                return found
    return [path for path in paths if not is_directory(path)]


def _ends_at(path: str, end: int) -> bool:
    """True if the last segment of a log begins at an offset, and is empty or only preallocated."""
    try:
        segments = filter(None, map(names.parse_name, os.listdir(path)))
        last = max((base for base, suffix in segments if suffix == names.LOG), default=-1)
        return last == end and not any(read_whole(names.file_path(path, end, names.LOG), 1))
    except FileNotFoundError:  # renamed meanwhile, by another process
        return False
