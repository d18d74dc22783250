"""Leader epoch -> first offset written in it: the cache of the file `leader-epoch-checkpoint`.

  E1  epochs and start offsets rise strictly from entry to entry
  E2  the file holds a new epoch before the first batch of it is acknowledged
  E3  the file also has the epoch of a leader without a record, as its last line. Kafka's leader writes that line, too,
      and a load drops it from the entries and the file. No controller knows the epoch here, so the line stays until a
      batch is appended

Changed under the log's lock, read by any thread. Kafka: LeaderEpochFileCache.
"""

from __future__ import annotations

import bisect

from klog.disk import Files, read_whole
from klog.errors import CorruptCheckpoint
from klog.log.directory.checkpoint import format_epochs, parse_epochs
from klog.log.state._fields import EpochFields
from klog.logger import logger_of
from klog.segment import names

_log = logger_of("log")
UNDEFINED = (-1, -1)


class LeaderEpochCache(EpochFields):
    """The leader epochs of one partition, in memory and, by flush(), on disk.

    entries: [(epoch, start offset), ...]. Each change makes a new list, because readers hold no lock.
    """

    def __init__(self, directory: str, files: Files) -> None:
        self.path = f"{directory}/{names.EPOCHS}"
        self._files = files
        self.entries = []
        self._stored: list[tuple[int, int]] | None = None
        self._detached = False
        self.problem: CorruptCheckpoint | None = None
        self.fell = False  # did the file break E1?
        self.default = 0  # the least epoch of an append that names none
        self._begins: int | None = None  # E3: where the epoch `default` begins, if it is above the latest

    def load(self) -> None:
        """Read the file. An unreadable file counts as empty; `problem` then has the error."""
        try:
            entries = parse_epochs(read_whole(self.path), self.path)
        except FileNotFoundError:
            return
        except CorruptCheckpoint as error:
            _log.warning("event=epochs_unreadable path=%s reason=%s", self.path, error)
            self.problem = error
            return
        self._stored = entries
        rising: list[tuple[int, int]] = []
        for entry in entries:
            if rising and (rising[-1][0] >= entry[0] or rising[-1][1] >= entry[1]):
                _drop_contradicting(rising, *entry)
            rising.append(entry)
        self.entries, self.fell = rising, rising != entries

    # ---- queries ---------------------------------------------------------------------------------------------------

    @property
    def stored(self) -> bool:
        """Has the file been read or written?"""
        return self._stored is not None

    @property
    def latest(self) -> int | None:
        """The newest epoch, None if there is none."""
        return self.entries[-1][0] if self.entries else None

    @property
    def current(self) -> int:
        """The epoch of the leader and of an append that names none: the newest one, also if it has no entry (E3)."""
        return max(self.entries[-1][0], self.default) if self.entries else self.default

    def _at(self, epoch: int) -> int:
        """Index of the first entry whose epoch is not below this one."""
        return bisect.bisect_left(self.entries, epoch, key=_epoch_of)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch at or below this one, its end offset): the offset up to which two replicas can agree.

        The latest epoch ends at the log end. For an epoch below the first entry: that epoch and the start offset of
        the first entry. (-1, -1) for -1, for an epoch above the latest, and if the cache is empty.
        """
        if epoch == -1 or not self.entries or epoch > self.entries[-1][0]:
            return UNDEFINED
        if epoch == self.entries[-1][0]:
            return epoch, log_end_offset
        above = self._at(epoch + 1)
        floor = epoch if above == 0 else self.entries[above - 1][0]
        return floor, self.entries[above][1]

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which an offset was written, None if unknown."""
        at = bisect.bisect_right(self.entries, offset, key=_start_of)
        return self.entries[at - 1][0] if at else None

    # ---- changes ---------------------------------------------------------------------------------------------------

    def _put(self, epoch: int, start: int) -> None:
        """Add an entry and drop those that contradict it: the later call wins."""
        entries = list(self.entries)
        _drop_contradicting(entries, epoch, start)
        entries.append((epoch, start))
        self.entries = entries

    def assign(self, epoch: int, start: int) -> bool:
        """Note that a batch of this epoch begins at start. True: the cache changed, and flush() must come before the
        batch is acknowledged (E2)."""
        if epoch < 0 or start < 0:
            raise ValueError(f"epoch {epoch} from offset {start}: neither may be negative")
        leads, self._begins = self._begins is not None, None
        if self.entries:
            latest, latest_start = self.entries[-1]
            if epoch == latest and start >= latest_start:
                return leads
        self._put(epoch, start)
        return True

    def learn(self, epoch: int, start: int) -> None:
        """Note the epoch of a batch that recovery reads. Only an epoch above the latest changes the cache."""
        if epoch >= 0 and (not self.entries or epoch > self.entries[-1][0]):
            self._put(epoch, start)

    def put_back(self, entries: list[tuple[int, int]]) -> None:
        """Replace all entries in memory: by earlier ones after an append that was undone, by none if batches contradict
        them."""
        self.entries = entries

    def truncate_from_end(self, offset: int) -> None:
        """Drop the entries that start at or above offset; none if it is negative. The epoch of the leader stays."""
        if offset >= 0 and self.entries and self.entries[-1][1] >= offset:
            self.default = self.current
            self.entries = self.entries[: bisect.bisect_left(self.entries, offset, key=_start_of)]

    def truncate_from_start(self, offset: int) -> None:
        """Drop the entries below offset, except the last of them, which now starts at offset."""
        kept = bisect.bisect_right(self.entries, offset, key=_start_of)
        if kept and offset > self.entries[0][1]:
            self.entries = [(self.entries[kept - 1][0], offset), *self.entries[kept:]]

    def clear(self) -> None:
        """Drop all entries in memory. The epoch of the leader stays."""
        self.default = self.current
        self.entries = []
        self._begins = None

    def begin_at(self, epoch: int, end: int) -> None:
        """The epoch of the leader: that of an append that names none, unless an entry has a later one. end: that of the
        last batch, where the file has it then (E3)."""
        self.default, self._begins = epoch, end

    # ---- the file --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the file if it differs from the cache."""
        entries = list(self.entries)
        if self._begins is not None and self.default > (self.latest or 0):
            _drop_contradicting(entries, self.default, self._begins)
            entries.append((self.default, self._begins))
        if not self._detached and (self._stored != entries or self.problem is not None):
            self._files.replace(self.path, format_epochs(entries))
            self._stored = entries
            self.problem = None

    def move_to(self, directory: str) -> None:
        """Use the new path of the log's directory, which has been renamed."""
        self.path = f"{directory}/{names.EPOCHS}"

    def detach(self) -> None:
        """Never write the file again: its directory is marked for deletion."""
        self._detached = True


def _drop_contradicting(entries: list[tuple[int, int]], epoch: int, start: int) -> None:
    """Drop the entries that must not be before this one (E1)."""
    while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start):
        entries.pop()


def _epoch_of(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_of(entry: tuple[int, int]) -> int:
    return entry[1]
