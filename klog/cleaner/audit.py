"""The audit of removals on demand: `klog-audit.jsonl` in the log.dir, which Kafka ignores.

    line := {"version": 1, "time": ISO text, "action": "purge_key", "outcome": ..., "id": ..., ...} "\\n"

A purge that rewrites files writes a line `begun` before its first byte, and one with the same id after its last:
`done`, or `failed` with the error. A purge that finds nothing writes only `done`.

  A1  a line is on disk when append() returns; writers exclude each other by an flock of the log.dir
  A2  a crash leaves a complete last line or a torn one: its beginning, or a line with sectors that were not stored and
      read as zeros. Readers ignore a torn line, and the next append truncates it. Nothing else is ever removed
  A3  `done` is written when the old bytes are gone: after a crash there may be `begun` without it, never the reverse
  A4  the file holds the key's SHA-256, not the key: the record of a removal must not keep what was removed. With the
      key its lines can be found; but a key of few possible values, such as a telephone number, can be guessed from its
      hash
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from klog.disk import Files, LogFile, directory_lock, is_directory, read_whole
from klog.errors import CorruptAudit, NewerFormat

FILE = "klog-audit.jsonl"
VERSION = 1
_TAIL = 1 << 20  # bytes; no line is longer


def append(files: Files, directory: str, entry: Mapping[str, Any]) -> None:
    """Append a line (A1, A2). Raises what check() raises, OSError."""
    path = os.path.join(directory, FILE)
    line = (json.dumps({"version": VERSION, **entry}, separators=(",", ":")) + "\n").encode()
    with directory_lock(directory):
        end = check(directory)
        with files.open(path, write=True, create=True) as file:
            if file.length() > end:
                files.truncate(file, end)
            file.write(line, end)
            files.fsync(file)
        files.fsync_dir(directory)  # a process that was killed may have created it


def check(directory: str) -> int:
    """Return the position of the next line; 0 for a missing file. Raises NewerFormat if a newer klog has written the
    last line, CorruptAudit if that is not a line of an audit."""
    path = os.path.join(directory, FILE)
    try:
        with LogFile.open(path) as file:
            size = file.length()
            start = max(0, size - _TAIL)
            tail = bytes(file.read(start, size - start))
    except FileNotFoundError:
        return 0
    except OSError:
        if is_directory(path):
            raise _corrupt("a directory", path, 0) from None
        raise
    end = tail.rfind(b"\n") + 1
    rest = tail[end:]
    if (end == 0 and start > 0) or (rest and not _torn(rest)):
        raise _corrupt("incomplete", path, start + end)
    if end == 0:
        return 0
    first = tail.rfind(b"\n", 0, end - 1) + 1
    last = tail[first:end]
    if not rest and _torn(last):
        return start + first
    _parsed(last, path, start + first)
    return start + end


def read(directory: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return every line of a log.dir's audit, oldest first; [] if there is no file. Raises CorruptAudit,
    NewerFormat."""
    path = os.path.join(os.fspath(directory), FILE)
    try:
        data = read_whole(path, sys.maxsize)  # it grows by a line with every purge, and keeps them all
    except FileNotFoundError:
        return []
    except IsADirectoryError:
        raise _corrupt("a directory", path, 0) from None
    return parse(data, path)


def parse(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return the lines in a file's bytes, without a torn one at the end (A2)."""
    entries, position = [], 0
    for line in data.splitlines(keepends=True):
        if position + len(line) == len(data) and _torn(line):
            break
        entries.append(_parsed(line, path, position))
        position += len(line)
    return entries


def _torn(line: bytes) -> bool:
    """True if this can be a last line that was not stored whole (A2): json.dumps() writes no zero byte."""
    return b"\0" in line or (line.startswith(b"{") and not line.endswith(b"\n"))


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
        f"not a line of an audit ({reason}); move the file away, and keep it, to begin a new one",
        path=path,
        position=position,
    )
