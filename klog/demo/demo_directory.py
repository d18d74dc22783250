"""The directory of the demo: a new or empty one, or its own from an earlier run.

  DIR/klog-demo.json            marker of a demo directory   {"format": "klog-demo", "version": 1}
  DIR/flights-0 ... flights-3   the partitions; DIR is a plain Kafka log.dir
  DIR/telemetry-0  DIR/flight-status-0

P1  only files that the demo wrote are deleted. If there is any other file, the directory is not changed.
P2  the marker is written first and deleted last, so an interrupted run is recognised and replaced.
P3  nothing is deleted while another process holds the directory's lock.
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
    """The directory holds a file that the demo did not write, so the demo does not change it."""


def prepare(directory: Path) -> None:
    """Prepare `directory` for a run: create it, or remove the files of an earlier run. Raises NotADemoDirectory,
    NewerFormat, AlreadyLocked, OSError."""
    if directory.exists() and not directory.is_dir():
        raise NotADemoDirectory(f"{directory} is a file; name a directory with --dir")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        entries = sorted(directory.iterdir())
        if entries:
            _check_ours(directory, entries)
            _clear(directory)
        (directory / MARKER).write_text(json.dumps({"format": "klog-demo", "version": _VERSION}) + "\n")
    except OSError as error:
        if isinstance(error, KlogError):
            raise
        reason = f"{error.strerror}; name another directory with --dir"
        raise OSError(error.errno, reason, error.filename) from error


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
                f"{directory} holds {entry.name}, which klog demo did not write, so nothing was replaced; "
                "move it away or name another directory with --dir"
            )


def _check_marker(marker: Path) -> None:
    try:
        found = json.loads(marker.read_text())
        named, version = found["format"], int(found["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise NotADemoDirectory(f"{marker} cannot be read ({error}); name another directory with --dir") from error
    if named != "klog-demo":
        raise NotADemoDirectory(f"{marker} is not a marker of klog demo; name another directory with --dir")
    if version > _VERSION:
        raise NewerFormat(
            f"{marker} was written by a newer klog (version {version}); name another directory with --dir"
        )


def _clear(directory: Path) -> None:
    """Remove the files, under the directory's lock. Raises AlreadyLocked if another process holds that."""
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
