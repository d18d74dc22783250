"""What was removed on demand, for whoever has to show it: `klog-audit.jsonl` in the log.dir, which Kafka ignores.

    line := {"version": 1, "time": ISO text, "action": "purge_key", "outcome": ..., "id": ..., ...} "\\n"

A purge that rewrites files leaves a line `begun` before its first byte, and one of the same id behind its last: `done`,
or `failed` with the error. One that finds nothing leaves `done` alone.

  A1  a line is on disk when append() returns; who writes it waits for others by an flock of the log.dir
  A2  a crash leaves a whole last line or a torn one: readers leave that out, and the next append cuts it off. Nothing
      else is ever taken back
  A3  `done` is written when the old bytes are gone: after a crash there may be `begun` without it, never the reverse
  A4  the key is not in it, only its SHA-256: a record of what was to be forgotten must not keep it. Who knows the key
      finds its lines; but a key of few possibilities, such as a telephone number, can be guessed from its hash
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from klog.disk import Files, directory_lock, read_whole
from klog.errors import CorruptAudit, NewerFormat

FILE = "klog-audit.jsonl"
VERSION = 1
_TAIL = 1 << 20  # bytes; no line is longer


def append(files: Files, directory: str, entry: Mapping[str, Any]) -> None:
    """A1, A2. Raises what check() does, OSError."""
    path = os.path.join(directory, FILE)
    line = (json.dumps({"version": VERSION, **entry}, separators=(",", ":")) + "\n").encode()
    with directory_lock(directory):
        new = not os.path.exists(path)
        end = check(directory)
        file = files.open(path, write=True, create=True)
        try:
            if os.fstat(file.fileno()).st_size > end:
                files.truncate(file, end)
            file.write(line, end)
            files.fsync(file)
        finally:
            file.close()
        if new:
            files.fsync_dir(directory)


def check(directory: str) -> int:
    """Where the next line goes. NewerFormat where a newer klog has written the last one, CorruptAudit where that is no
    line of an audit; a file that is not there is an empty one."""
    path = os.path.join(directory, FILE)
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - _TAIL))
            tail = file.read()
    except FileNotFoundError:
        return 0
    except IsADirectoryError:
        raise _corrupt("a directory", path, 0) from None
    end = tail.rfind(b"\n") + 1
    if (end == 0 and start > 0) or not _torn(tail[end:]):
        raise _corrupt("the end of no line", path, start + end)
    if end == 0:
        return 0
    first = tail.rfind(b"\n", 0, end - 1) + 1
    _parsed(tail[first:end], path, start + first)
    return start + end


def read(directory: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Every line of a log.dir's audit, oldest first; none where there is no file. Raises CorruptAudit, NewerFormat."""
    path = os.path.join(os.fspath(directory), FILE)
    try:
        data = read_whole(path)
    except FileNotFoundError:
        return []
    except IsADirectoryError:
        raise _corrupt("a directory", path, 0) from None
    return parse(data, path)


def parse(data: bytes, path: str) -> list[dict[str, Any]]:
    """The lines of a file's bytes, without a torn one at the end (A2)."""
    entries, position = [], 0
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            entries.append(_parsed(line, path, position))
        elif not _torn(line):
            raise _corrupt("the end of no line", path, position)
        position += len(line)
    return entries


def _torn(line: bytes) -> bool:
    """Can this be the beginning of a line? A file system may also have left zeros where it had only the length."""
    return not line or line.startswith(b"{") or not line.strip(b"\0")


def _parsed(line: bytes, path: str, position: int) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        version = entry["version"]
        if isinstance(version, int) and version > VERSION:
            raise NewerFormat(f"{path} has a line of version {version}, this klog writes {VERSION}: upgrade klog")
        if version != VERSION or not isinstance(entry["outcome"], str):
            raise ValueError(f"version {version!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _corrupt(str(error), path, position) from None
    return dict(entry)


def _corrupt(reason: str, path: str, position: int) -> CorruptAudit:
    return CorruptAudit(
        f"not a line of an audit ({reason}); move it away, and keep it, to begin a new one",
        path=path,
        position=position,
    )
