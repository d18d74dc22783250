"""ProducerIds: numbers for producers, each given out once in the life of a log.dir.

    klog-producer-ids.json := {"version": 1, "next": N, "adopted": TEXT, "crc32c": C}

adopted: only in a directory of Kafka, the end of the metadata log that klog has taken over (klog.broker.adopted).

  P1  every id that was given out is below the `next` of the file: a block is reserved in the file, durably, before
      its first id is given out. A crash loses the rest of a block
  P2  ids begin above those that the logs hold already: `in_use` is asked once, before the first block. A directory of
      Kafka has no file: Kafka has its blocks in the metadata log

Kafka ignores the file. A program may write any id into its batches, so ids from 2^53 on are not counted as in use: the
next ids after a forged one would soon be the last ones. Kafka: ProducerIdManager, ProducerIdControlManager.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from klog.disk import Files, read_whole
from klog.errors import CorruptCheckpoint
from klog.log.directory import versioned
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILE: Final = "klog-producer-ids.json"
VERSION: Final = 1
BLOCK: Final = 1000
PLAUSIBLE: Final = 1 << 53
ID_MAX: Final = (1 << 63) - 1
OF_KAFKA: Final = 1 << 40  # ids that are left to the Kafka broker of a directory that klog has taken over


class Stored(NamedTuple):
    """The content of the file."""

    next: int = 0
    adopted: str = ""

    def encoded(self) -> bytes:
        """Return the bytes of the file."""
        more = {"adopted": self.adopted} if self.adopted else {}
        return versioned.encode({"version": VERSION, "next": self.next, **more})


class ProducerIds:
    """Any thread. in_use: the producer ids in the logs of the directory."""

    def __init__(self, files: Files, directory: str, in_use: Callable[[], Iterable[int]]) -> None:
        self._files = files
        self._directory = directory
        self._path = os.path.join(directory, FILE)
        self._in_use = in_use
        self._lock = threading.Lock()
        self._next = 0
        self._adopted = ""
        self._end: int | None = None  # of the block; None before the first one

    def next(self) -> int:
        """A new id. Raises OSError, CorruptCheckpoint, NewerFormat; OverflowError after 2^63 ids."""
        with self._lock:
            if self._end is None:
                before = stored(self._directory)
                self._next = max(before.next, 1 + max(filter(is_plausible, self._in_use()), default=-1))
                self._adopted = before.adopted
            if self._end is None or self._next == self._end:
                self._reserve()
            found = self._next
            self._next += 1
            return found

    def _reserve(self) -> None:
        end = self._next + BLOCK
        if end > ID_MAX:
            raise OverflowError(f"{self._path}: no producer id after {self._next}")
        self._files.replace(self._path, Stored(end, self._adopted).encoded())
        self._end = end


def stored(directory: str) -> Stored:
    """The content of a log.dir's file; without one, of an empty directory. Raises OSError, CorruptCheckpoint,
    NewerFormat."""
    path = os.path.join(directory, FILE)
    try:
        data = read_whole(path)
    except FileNotFoundError:
        return Stored()
    try:
        document = versioned.parse(data, path, VERSION)
        found = Stored(document["next"], document.get("adopted", ""))
        if type(found.next) is not int or not 0 <= found.next <= ID_MAX or type(found.adopted) is not str:
            raise ValueError(f"next={found.next!r} adopted={found.adopted!r}")
    except versioned.MALFORMED as error:
        raise CorruptCheckpoint(
            f"invalid: {error}. If no producer of this broker runs, remove the file: ids then begin above those "
            f"in the logs",
            path=path,
        ) from None
    return found


def stored_next(directory: str) -> int:
    """The `next` of a log.dir's file; 0 without one. Raises what stored() raises."""
    return stored(directory).next


def raise_next(files: Files, directory: str, least: int) -> None:
    """Let no id below `least` be given out, durably, in a log.dir that no broker serves. Raises OSError,
    CorruptCheckpoint, NewerFormat."""
    before = stored(directory)
    if before.next < least:
        files.replace(os.path.join(directory, FILE), before._replace(next=least).encoded())


def note_adopted(files: Files, directory: str, end: str) -> None:
    """Note which metadata log klog has taken over, durably, in a log.dir that no broker serves. Raises OSError,
    CorruptCheckpoint, NewerFormat."""
    before = stored(directory)
    if before.adopted != end:
        files.replace(os.path.join(directory, FILE), before._replace(adopted=end).encoded())


def is_plausible(producer_id: int) -> bool:
    """Can a broker have given out this id?"""
    return 0 <= producer_id < PLAUSIBLE
