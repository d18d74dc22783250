"""Classifies the files of a log directory and reads their bytes without changing anything.

No byte, name or time is changed: files are opened read-only, without following a link in the last path component and
without waiting for a FIFO; with O_NOATIME if the kernel allows it. No file is mapped, since a running broker may
truncate it. Memory: a window of WINDOW bytes for .log; whole files of the other kinds, which are at most
SMALL_BYTES_MAX.

    root of a log.dir   meta.properties  *-checkpoint  .kafka_cleanshutdown  .lock  klog-topics.json
                        klog-reader.<name>.json  klog-reader.<name>@<topic>.lock  klog-audit.jsonl
                        bootstrap.checkpoint  the files of klog.Broker
    partition           <20 digits>.log .index .timeindex .txnindex .snapshot   leader-epoch-checkpoint
                        partition.metadata  klog-gaps  klog-future.json
    leftover            any of them with the suffix .deleted .cleaned .swap .tmp;  <topic>-<n>.<32 hex>-delete -future
                        -stray
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from klog.disk import LogFile, naming_the_next_step, os_error
from klog.disk.drop_behind import DropBehind
from klog.errors import CorruptData
from klog.internal_topics.names import CLUSTER_METADATA
from klog.log.directory.partition_names import parse_directory_name as partition_name
from klog.values import dataclass

__all__ = [
    "BROKER_FILES",
    "KINDS_BY_NAME",
    "ROOT_CHECKPOINTS",
    "WINDOW",
    "FileName",
    "ReadOnlyFile",
    "check_log_dir",
    "classify",
    "is_partition_directory",
    "moved_name",
    "partition_name",
    "read_small",
    "topic_of",
]

WINDOW = 4 << 20
SMALL_BYTES_MAX = 1 << 30
_NOT_REGULAR = "not a regular file; a log directory holds only files"

_SEGMENT = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)")
_LOOSE = re.compile(r".*\.(log|index|timeindex|txnindex|snapshot)")
_METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint(\.part)?")
_READER = re.compile(r"klog-reader\.[a-zA-Z0-9._-]{1,200}\.json")
_READER_LOCK = re.compile(r"klog-reader\.[a-zA-Z0-9._@-]{1,250}\.lock")
_STAGED = re.compile(r"klog-(commit|staging|stream)-[a-zA-Z0-9-]{1,120}\.json")
_MOVED = re.compile(r"(\S+)-(\S+)\.(\S+)-(delete|future|stray)")
LEFTOVERS = (".deleted", ".cleaned", ".swap")
# What klog.Broker keeps in its first log.dir, by name: whether only the owner may read it.
BROKER_FILES = {
    "klog-producer-ids.json": False,
    "klog-broker.json": False,
    "klog-users.json": True,
    "klog-acls.json": True,
    "klog-quotas.json": True,
}

ROOT_CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
KINDS_BY_NAME = {
    **dict.fromkeys(ROOT_CHECKPOINTS, "checkpoint"),
    "leader-epoch-checkpoint": "epochs",
    "partition.metadata": "partition_metadata",
    "meta.properties": "properties",
    ".kafka_cleanshutdown": "clean_shutdown",
    ".kafka_cleanshutdown.aside": "clean_shutdown",
    "klog-topics.json": "topics",
    "klog-audit.jsonl": "audit",
    "klog-gaps": "gaps",
    "klog-future.json": "move",
    **dict.fromkeys(BROKER_FILES, "broker"),
    "quorum-state": "quorum_state",
    "bootstrap.checkpoint": "log",
    ".lock": "lock",
}
_ROOT_FILES = KINDS_BY_NAME.keys() - {
    *("leader-epoch-checkpoint", "partition.metadata", "quorum-state", "klog-gaps", "klog-future.json"),
}


@dataclass(frozen=True, slots=True)
class FileName:
    """The meaning of a file name. kind: log, index, timeindex, txnindex, snapshot, checkpoint, epochs, ..., or unknown.

    base_offset: of a segment's file (of a snapshot: its end offset). leftover: deleted, cleaned,
    swap or tmp.
    """

    kind: str
    base_offset: int | None = None
    leftover: str | None = None


def classify(name: str) -> FileName:
    """Classify a file by its name alone."""
    for suffix in (*LEFTOVERS, ".tmp"):
        if name.endswith(suffix) and len(name) > len(suffix):
            inner = classify(name[: -len(suffix)])
            return FileName(inner.kind, inner.base_offset, suffix[1:])
    found = _SEGMENT.fullmatch(name)
    if found and int(found[1]) < 2**63:
        return FileName(found[2], int(found[1]))
    if name in KINDS_BY_NAME:
        return FileName(KINDS_BY_NAME[name])
    if _READER.fullmatch(name):
        return FileName("positions")
    if _READER_LOCK.fullmatch(name):
        return FileName("lock")
    if _STAGED.fullmatch(name):
        return FileName("staged")
    found = _METADATA_SNAPSHOT.fullmatch(name)
    if found:
        return FileName("log", int(found[1]), "part" if found[3] else None)
    if _LOOSE.fullmatch(name):
        return FileName("misnamed")
    return FileName("unknown")


def moved_name(name: str) -> str | None:
    """Return delete, future or stray for the renamed directory of a partition, else None."""
    found = _MOVED.fullmatch(name)
    return found[4] if found else None


def topic_of(path: str) -> str | None:
    """Return the topic of a file with records, from the name of its directory, also of a renamed one; None if it is not
    a partition's directory."""
    if os.path.basename(path) == "bootstrap.checkpoint":
        return CLUSTER_METADATA
    name = os.path.basename(os.path.dirname(os.path.abspath(path)))
    moved = _MOVED.fullmatch(name)
    parsed = partition_name(name)
    return moved[1] if moved else None if parsed is None else parsed[0]


def names_in(path: str) -> list[str]:
    """Return the names in a directory, in order. Raises OSError with the next step."""
    with naming_the_next_step(path, reading=True):
        return sorted(os.listdir(path))


def is_partition_directory(path: str) -> bool:
    """Return whether a directory is that of a partition: by its files, else by its name. A directory with files of a
    log.dir is not one, because a log.dir may be named data-1."""
    entries = names_in(path)
    if any(classify(entry).base_offset is not None for entry in entries):
        return True
    name = os.path.basename(os.path.abspath(path))
    return _is_partitions(name) and not _is_log_dir(entries)


def check_log_dir(path: str) -> None:
    """Raise FileNotFoundError if a directory is empty, or neither a log.dir nor that of a partition: a wrong path, or a
    disk that is not mounted. A log.dir without topics passes, because klog or a broker has files of its own there."""
    entries = names_in(path)
    if not entries or not (_is_log_dir(entries) or is_partition_directory(path)):
        text = "no partitions here; expected directories named <topic>-<n>: is this the log.dir, and mounted?"
        raise FileNotFoundError(errno.ENOENT, text, path)


def _is_partitions(name: str) -> bool:
    return partition_name(name) is not None or moved_name(name) is not None


def _is_log_dir(entries: Iterable[str]) -> bool:
    return any(entry in _ROOT_FILES or _is_partitions(entry) for entry in entries)


class ReadOnlyFile:
    """One regular file, opened for reading. Any thread; a context manager. identity: it changes with the content.

    scan: pages that it loads into the page cache are dropped again, after passed() and at the end (drop_behind.py).
    """

    def __init__(self, path: str, *, scan: bool = False) -> None:
        self.path = path
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with naming_the_next_step(path, reading=True):
            try:
                self._fd = os.open(path, flags | os.O_NOATIME)
            except PermissionError:  # O_NOATIME is only for the owner
                self._fd = os.open(path, flags)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise CorruptData("a symbolic link; a log directory holds only files", path=path) from None
                if error.errno == errno.ENXIO:  # a socket
                    raise CorruptData(_NOT_REGULAR, path=path) from None
                raise
            self._file = LogFile(self._fd, path)  # closes it
            info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode):
            self._file.close()
            raise CorruptData(_NOT_REGULAR, path=path)
        self.size = info.st_size
        self.identity = info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns
        self._behind = DropBehind(self._file, 0, self.size) if scan else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._behind is not None:
            self._behind.finish()
        self._file.close()

    def length(self) -> int:
        """Return the size now: it grows while a writer appends. Raises OSError."""
        return self._file.length()

    def passed(self, position: int) -> None:
        """Report that a sequential reader no longer needs the bytes before this position."""
        if self._behind is not None:
            self._behind.passed(position)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to size bytes from position; fewer only at the end of the file. Raises CorruptData for a read
        error."""
        parts = []
        while size > 0:
            try:
                part = os.pread(self._fd, size, position)
            except OSError as error:
                raise CorruptData(
                    f"cannot be read: {os_error(error.errno or 0, None).strerror}", path=self.path, position=position
                ) from error
            if not part:
                break
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def read_small(path: str, *, scan: bool = False) -> bytes:
    """Return a whole file other than a .log. Raises CorruptData if it is not a regular file, or too large for its
    kind."""
    with ReadOnlyFile(path, scan=scan) as file:
        if file.size > SMALL_BYTES_MAX:
            raise CorruptData(f"{file.size} bytes, too large for a file of this kind", path=path)
        return file.read_at(0, file.size)
