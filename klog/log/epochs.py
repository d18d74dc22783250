"""Leader epoch -> first offset written in it: the cache behind `leader-epoch-checkpoint`.

  E1  epochs and start offsets rise strictly from entry to entry
  E2  the file holds a new epoch before the first batch of it is acknowledged

Under the log's lock. Kafka: LeaderEpochFileCache.
"""

from __future__ import annotations

import bisect
import logging
import os

from klog.disk import Files, read_whole
from klog.errors import CorruptCheckpoint
from klog.log.checkpoint import format_epochs, parse_epochs
from klog.segment import names

_log = logging.getLogger("klog.log")


class LeaderEpochs:
    """The epochs of one partition, in memory and, through flush(), on disk."""

    def __init__(self, directory: str, files: Files) -> None:
        self.path = os.path.join(directory, names.EPOCHS)
        self._files = files
        self._entries: list[tuple[int, int]] = []
        self._stored: list[tuple[int, int]] | None = None
        self.problem: CorruptCheckpoint | None = None

    def load(self) -> None:
        """Read the file. One that cannot be read counts as empty; `problem` then says why."""
        try:
            entries = parse_epochs(read_whole(self.path), self.path)
        except FileNotFoundError:
            return
        except CorruptCheckpoint as error:
            _log.warning("event=epochs_unreadable path=%s reason=%s", self.path, error)
            self.problem = error
            return
        self._stored = entries
        for epoch, start in entries:
            self._put(epoch, start)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """[(epoch, start offset), ...]"""
        return list(self._entries)

    @property
    def latest(self) -> int | None:
        """The newest epoch, None if there is none."""
        return self._entries[-1][0] if self._entries else None

    def _put(self, epoch: int, start: int) -> None:
        """Add an entry; those that it contradicts go (truncation: a later entry that starts earlier wins)."""
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start):
            self._entries.pop()
        self._entries.append((epoch, start))

    def assign(self, epoch: int, start: int) -> bool:
        """A batch of this epoch begins at start. True if that is news."""
        if self._entries:
            latest, latest_start = self._entries[-1]
            if epoch == latest and start >= latest_start:
                return False
        self._put(epoch, start)
        return True

    def learn(self, epoch: int, start: int) -> None:
        """What recovery sees in a batch: only an epoch above the latest is news."""
        if epoch >= 0 and (not self._entries or epoch > self._entries[-1][0]):
            self._put(epoch, start)

    def truncate_from_end(self, offset: int) -> None:
        """Drop the entries that start at or above offset."""
        while self._entries and self._entries[-1][1] >= offset:
            self._entries.pop()

    def truncate_from_start(self, offset: int) -> None:
        """Drop the entries below offset, save that the last of them now starts there."""
        below = [entry for entry in self._entries if entry[1] <= offset]
        if below:
            self._entries = [(below[-1][0], offset), *(entry for entry in self._entries if entry[1] > offset)]

    def clear(self) -> None:
        """No epochs."""
        self._entries = []

    def epoch_at(self, offset: int) -> int:
        """The epoch of an offset, -1 if unknown."""
        at = bisect.bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[at - 1][0] if at else -1

    def flush(self) -> None:
        """Write the file if it says something else, or is not there."""
        if self._stored != self._entries or self.problem is not None:
            self._files.replace(self.path, format_epochs(self._entries))
            self._stored = list(self._entries)
            self.problem = None
