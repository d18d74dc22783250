"""Where the demo may write: a directory that is new, empty, or its own from an earlier run.

  DIR/klog-demo.json            marks the directory as the demo's   {"format": "klog-demo", "version": 1}
  DIR/flights-0 ... flights-3   the partitions; DIR is a plain Kafka log.dir
  DIR/telemetry-0  DIR/flight-status-0

P1  nothing is deleted that the demo did not write: one foreign entry and the whole directory stays as it is.
P2  the marker is written first and deleted last, so a run that was cut short can still be recognised and replaced.
P3  nothing is deleted while somebody holds the directory's lock.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from klog.disk import DirectoryLock
from klog.errors import KlogError, NewerFormat

MARKER = "klog-demo.json"
FLIGHTS = "flights"
TELEMETRY = "telemetry"
FLIGHT_STATUS = "flight-status"
SPARK_LOG = "spark.log"
_VERSION = 1

_PARTITION = re.compile(rf"({FLIGHTS}|{TELEMETRY}|{FLIGHT_STATUS})-\d+")
_FILES = re.compile(
    rf"({re.escape(MARKER)}|{re.escape(SPARK_LOG)}|klog-[a-z-]+\.json|meta\.properties|[a-z-]+-checkpoint"
    r"|\.lock|\.kafka_cleanshutdown)(\.tmp)?"
)


class NotADemoDirectory(KlogError, ValueError):
    """The directory holds something that is not the demo's, so the demo will not touch it."""


def prepare(directory: Path) -> None:
    """Make `directory` ready for a fresh run: create it, or clear what an earlier run left in it."""
    if directory.exists() and not directory.is_dir():
        raise NotADemoDirectory(f"{directory} is a file; name another place with --dir")
    directory.mkdir(parents=True, exist_ok=True)
    entries = sorted(directory.iterdir())
    if entries:
        _check_ours(directory, entries)
        _clear(directory)
    (directory / MARKER).write_text(json.dumps({"format": "klog-demo", "version": _VERSION}) + "\n")


def _check_ours(directory: Path, entries: list[Path]) -> None:
    marker = directory / MARKER
    if not marker.is_file():
        raise NotADemoDirectory(
            f"{directory} is not empty and was not made by klog demo, so it stays as it is; "
            "name a new or empty directory with --dir"
        )
    _check_marker(marker)
    for entry in entries:
        if entry.is_symlink():
            ours = False
        elif entry.is_dir():
            ours = _PARTITION.fullmatch(entry.name) is not None
        else:
            ours = _FILES.fullmatch(entry.name) is not None
        if not ours:
            raise NotADemoDirectory(
                f"{directory} holds {entry.name}, which klog demo did not write, so nothing there was replaced; "
                "move it away or name another directory with --dir"
            )


def _check_marker(marker: Path) -> None:
    try:
        found = json.loads(marker.read_text())
        named, version = found["format"], int(found["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise NotADemoDirectory(f"{marker} cannot be read ({error}); name another directory with --dir") from error
    if named != "klog-demo":
        raise NotADemoDirectory(f"{marker} is not the demo's marker; name another directory with --dir")
    if version > _VERSION:
        raise NewerFormat(
            f"{marker} was written by a newer klog (version {version}); name another directory with --dir"
        )


def _clear(directory: Path) -> None:
    """Under the directory's lock: AlreadyLocked if somebody has it open for writing."""
    lock = DirectoryLock(str(directory))
    try:
        for entry in directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name not in (MARKER, ".lock"):
                entry.unlink()
        (directory / MARKER).unlink()
    finally:
        lock.release()
