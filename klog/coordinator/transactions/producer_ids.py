"""ProducerIds: numbers for producers, each given out once in the life of a log.dir.

    klog-producer-ids.json := {"version": 1, "next": N, "crc32c": C}

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILE: Final = "klog-producer-ids.json"
VERSION: Final = 1
BLOCK: Final = 1000
PLAUSIBLE: Final = 1 << 53
ID_MAX: Final = (1 << 63) - 1


class ProducerIds:
    """Any thread. in_use: the producer ids in the logs of the directory."""

    def __init__(self, files: Files, directory: str, in_use: Callable[[], Iterable[int]]) -> None:
        self._files = files
        self._directory = directory
        self._path = os.path.join(directory, FILE)
        self._in_use = in_use
        self._lock = threading.Lock()
        self._next = 0
        self._end: int | None = None  # of the block; None before the first one

    def next(self) -> int:
        """A new id. Raises OSError, CorruptCheckpoint, NewerFormat; OverflowError after 2^63 ids."""
        with self._lock:
            if self._end is None:
                self._next = max(
                    stored_next(self._directory), 1 + max(filter(is_plausible, self._in_use()), default=-1)
                )
            if self._end is None or self._next == self._end:
                self._reserve()
            found = self._next
            self._next += 1
            return found

    def _reserve(self) -> None:
        end = self._next + BLOCK
        if end > ID_MAX:
            raise OverflowError(f"{self._path}: no producer id after {self._next}")
        self._files.replace(self._path, versioned.encode({"version": VERSION, "next": end}))
        self._end = end


def stored_next(directory: str) -> int:
    """The `next` of a log.dir's file; 0 without one. Raises OSError, CorruptCheckpoint, NewerFormat."""
    path = os.path.join(directory, FILE)
    try:
        data = read_whole(path)
    except FileNotFoundError:
        return 0
    try:
        found = versioned.parse(data, path, VERSION)["next"]
        if type(found) is not int or not 0 <= found <= ID_MAX:
            raise ValueError(f"next={found!r}")
    except versioned.MALFORMED as error:
        raise CorruptCheckpoint(
            f"invalid: {error}. If no producer of this broker runs, remove the file: ids then begin above those "
            f"in the logs",
            path=path,
        ) from None
    return found


def raise_next(files: Files, directory: str, least: int) -> None:
    """Let no id below `least` be given out, durably, in a log.dir that no broker serves. Raises OSError,
    CorruptCheckpoint, NewerFormat."""
    if stored_next(directory) < least:
        files.replace(os.path.join(directory, FILE), versioned.encode({"version": VERSION, "next": least}))


def is_plausible(producer_id: int) -> bool:
    """Can a broker have given out this id?"""
    return 0 <= producer_id < PLAUSIBLE
