"""Checks the entries of .index and .timeindex against their .log, in one scan of it.

  I1  offsets and positions rise from entry to entry; after the first unused slot all bytes are zero
  I2  an entry points to the beginning of a batch, and holds its last offset. Kafka up to 3.9.0 wrote one entry per
      append, which may end some batches later: such entries are accepted, unless a log has only one of them, and
      other entries that hold the last offset of their own batch
  T1  timestamps rise, offsets do not fall; after the first unused slot all bytes are zero
  T2  an entry (t, o): t is the largest timestamp up to offset o, and o the last offset of the first batch that has it
      (Kafka up to 3.7: of the first record in it that has it)
  T3  the last entry of a closed segment has the segment's largest timestamp

One checker per segment. The caller passes every sound batch to it, in order, and then calls finish().
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from klog.inspect.entries import IndexFile, OffsetEntry, TimeEntry
from klog.record import RecordBatch
from klog.report import Kind, Report


def check_shape(report: Report, kind: Kind, path: str, parsed: IndexFile, entry_bytes: int, size: int) -> None:
    """Check the zeros at the end, and that the file ends with a complete entry."""
    if parsed.stray is not None:
        report.add(kind, path, "bytes after the first unused entry, expected zeros", position=parsed.stray)
    elif size % entry_bytes:
        report.add(
            kind,
            path,
            f"{size} bytes are not a multiple of the entry size {entry_bytes}",
            position=size // entry_bytes * entry_bytes,
        )


class OffsetIndexCheck:
    """I1, I2. exact: number of entries with the last offset of their own batch; later: entries with a later one."""

    def __init__(self, report: Report, path: str, entries: list[OffsetEntry]) -> None:
        self._report, self._path = report, path
        self._waiting: deque[OffsetEntry] = deque()
        self._open: OffsetEntry | None = None  # its position was found, its offset not yet
        self.exact = 0
        self.later: list[OffsetEntry] = []
        last: OffsetEntry | None = None
        for entry in entries:
            if last is not None and (entry.offset <= last.offset or entry.position <= last.position):
                self._bad(
                    entry,
                    f"entry ({entry.offset}, {entry.position}) does not rise above ({last.offset}, {last.position})",
                )
                continue
            last = entry
            self._waiting.append(entry)

    def _bad(self, entry: OffsetEntry, message: str) -> None:
        self._report.add("index", self._path, message, position=entry.slot, offset=entry.offset)

    def batch(self, position: int, batch: RecordBatch) -> None:
        """Check the next sound batch."""
        last_offset = batch.last_offset
        if self._waiting and self._waiting[0].position <= position:
            self._settle(None)
            while self._waiting and self._waiting[0].position < position:
                entry = self._waiting.popleft()
                self._bad(
                    entry, f"no batch begins at {entry.position}, where the entry of offset {entry.offset} points"
                )
            if self._waiting and self._waiting[0].position == position:
                entry = self._waiting.popleft()
                if entry.offset == last_offset:
                    self.exact += 1
                elif entry.offset < last_offset:
                    self._bad(
                        entry, f"the entry has offset {entry.offset}, the batch at {position} ends with {last_offset}"
                    )
                else:
                    self._open = entry
        elif self._open is not None and last_offset >= self._open.offset:
            self._settle(last_offset)

    def damaged(self, position: int, end: int) -> None:
        """Skip entries that point into [position, end), which cannot be read."""
        self._open = None
        while self._waiting and self._waiting[0].position < end:
            entry = self._waiting.popleft()
            if entry.position < position:
                self._bad(
                    entry, f"no batch begins at {entry.position}, where the entry of offset {entry.offset} points"
                )

    def _settle(self, last_offset: int | None) -> None:
        entry, self._open = self._open, None
        if entry is None:
            return
        if last_offset == entry.offset:
            self.later.append(entry)
        else:
            self._bad(entry, f"no batch near {entry.position} ends with the entry's offset {entry.offset}")

    def lone(self, entry: OffsetEntry) -> None:
        """Report an entry of `later` that is the only one of its log."""
        self._bad(
            entry,
            f"the batch at {entry.position} does not end with offset {entry.offset}, as all other entries' batches do",
        )

    def finish(self) -> None:
        """End the segment: report entries that point after its batches."""
        self._settle(None)
        for entry in self._waiting:
            self._bad(entry, f"points to {entry.position}, but no batch begins there or later")
        self._waiting.clear()


class TimeIndexCheck:
    """T1, T2, T3. has_record(position, offset, timestamp) reads one batch again, for entries of old Kafka versions."""

    def __init__(
        self, report: Report, path: str, entries: list[TimeEntry], has_record: Callable[[int, int, int], bool]
    ) -> None:
        self._report, self._path, self._has_record = report, path, has_record
        self._waiting: deque[TimeEntry] = deque()
        self._last: TimeEntry | None = None
        self._unsure = False
        self._largest: tuple[int, int, int, int] = (-1, -1, -1, -1)  # timestamp, position, first and last offset
        last: TimeEntry | None = None
        for entry in entries:
            if entry.timestamp < 0 or (
                last is not None and (entry.timestamp <= last.timestamp or entry.offset < last.offset)
            ):
                above = f"does not rise above ({last.timestamp}, {last.offset})" if last else "has no time"
                self._bad(entry, f"entry ({entry.timestamp}, {entry.offset}) {above}")
                continue
            last = entry
            self._waiting.append(entry)
        self._last = last

    def _bad(self, entry: TimeEntry, message: str) -> None:
        self._report.add("timeindex", self._path, message, position=entry.slot, offset=entry.offset)

    def batch(self, position: int, batch: RecordBatch) -> None:
        """Check the next sound batch."""
        first, last = batch.base_offset, batch.last_offset
        while self._waiting and self._waiting[0].offset < first:
            self._check_entry(self._waiting.popleft())
        if batch.max_timestamp > self._largest[0]:
            self._largest = (batch.max_timestamp, position, first, last)
        while self._waiting and self._waiting[0].offset <= last:
            self._check_entry(self._waiting.popleft())

    def damaged(self) -> None:
        """Stop checking entries: a part of the log cannot be read, so the largest time is unknown from here on."""
        while self._waiting and self._waiting[0].offset <= self._largest[3]:
            self._check_entry(self._waiting.popleft())
        self._unsure = True

    def _check_entry(self, entry: TimeEntry) -> None:
        if self._unsure:
            return
        timestamp, position, first, last = self._largest
        if timestamp != entry.timestamp:
            self._bad(
                entry,
                f"the entry has {entry.timestamp} as the largest time up to offset {entry.offset}; it is {timestamp}",
            )
        elif entry.offset != last and not (
            first <= entry.offset < last and self._has_record(position, entry.offset, timestamp)
        ):
            self._bad(entry, f"the first batch with time {timestamp} ends with offset {last}, not {entry.offset}")

    def finish(self, *, closed: bool) -> None:
        """End the segment. closed: nothing will be appended to it."""
        if self._unsure:
            return
        for entry in self._waiting:
            self._bad(entry, f"offset {entry.offset} is beyond the segment's last offset")
        self._waiting.clear()
        timestamp, _, _, last_offset = self._largest
        if closed and timestamp >= 0 and (self._last is None or self._last.timestamp < timestamp):
            found = "there is no entry" if self._last is None else f"the last entry has {self._last.timestamp}"
            self._report.add(
                "timeindex",
                self._path,
                f"the largest time of this closed segment is {timestamp}; {found}",
                offset=last_offset,
            )
