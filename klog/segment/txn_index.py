"""Aborted transactions of one segment: `.txnindex`, beside the segment that contains the abort marker.

    entry := version:i16=0 producer_id:i64 first_offset:i64 last_offset:i64 last_stable_offset:i64     34 bytes

last_offset (the marker's) rises from entry to entry. A partial entry at the end is ignored. The file is created with
its first entry. Kafka: TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence

from klog.disk import Files, exists
from klog.errors import CorruptIndex
from klog.segment._state import TxnIndexState
from klog.values import NamedTuple

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_BYTES_MAX = 2**31 // 78 * ENTRY_BYTES  # of a segment that consists of abort markers


class AbortedTransaction(NamedTuple):
    """One aborted transaction: its data is in [first_offset, last_offset), its marker at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_txn_index(data: bytes, path: str) -> list[AbortedTransaction]:
    """Parse the entries. Raises CorruptIndex for a version above 0, or a last offset that does not rise."""
    entries: list[AbortedTransaction] = []
    whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
    for position in range(0, whole, ENTRY_BYTES):
        version, *fields = _ENTRY.unpack_from(data, position)
        if version >> 8:  # Kafka reads only the first byte, and so accepts what it wrote
            raise CorruptIndex(
                f"transaction index version {version}, 0 expected", path=path, position=position, kind="txnindex"
            )
        entry = AbortedTransaction(*fields)
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise CorruptIndex(
                f"last offset {entry.last_offset} does not rise above {entries[-1].last_offset}",
                path=path,
                position=position,
                offset=entry.last_offset,
                kind="txnindex",
            )
        entries.append(entry)
    return entries


def collect_aborted(
    entries: Sequence[AbortedTransaction], fetch_offset: int, upper_bound: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return the entries of a segment that touch [fetch_offset, upper_bound), and whether these are all: no later
    marker ends a transaction that began below upper_bound. A last stable offset beyond its marker is invalid."""
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            found.append(entry)
        if upper_bound <= entry.last_stable_offset <= entry.last_offset + 1:
            return found, True
    return found, False


class TxnIndex(TxnIndexState):
    """The file of one segment, read when first needed. Changes under the log's lock, reads from any thread."""

    _entries: tuple[AbortedTransaction, ...] | None

    def __init__(self, path: str, base_offset: int, files: Files, *, writable: bool = False) -> None:
        self.path = path
        self.writable = writable
        self.checked = False
        self._base_offset = base_offset
        self._files = files
        self._entries = None

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        """All entries, in order. Raises CorruptIndex."""
        if self._entries is None:
            try:
                file = self._files.open(self.path)  # refuses a FIFO, on which a read would block
            except FileNotFoundError:
                data = b""
            else:
                with file:
                    size = file.length()
                    if size > _BYTES_MAX:
                        raise CorruptIndex(
                            f"{size} bytes, more than the index of a segment can have", path=self.path, kind="txnindex"
                        )
                    data = bytes(file.read(0, size))
            self._entries = tuple(parse_txn_index(data, self.path))
        return self._entries

    def note_checked(self) -> None:
        """It has been compared with the markers: no entries are lost, also if the file is missing."""
        self.checked = True

    @property
    def settled(self) -> bool:
        """Has it been checked and read? Then the file is not used any more, whatever its name is by now."""
        return self.checked and self._entries is not None

    @property
    def present(self) -> bool:
        """Does a file of whole entries exist, at least one? A torn file may lack more than its last entry."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return False
        return size > 0 and size % ENTRY_BYTES == 0

    def check(self) -> None:
        """Raise CorruptIndex if an entry is below the segment."""
        for number, entry in enumerate(self.entries):
            if entry.last_offset < self._base_offset:
                raise CorruptIndex(
                    f"an entry ends at {entry.last_offset}, below the segment's {self._base_offset}",
                    path=self.path,
                    position=number * ENTRY_BYTES,
                    offset=entry.last_offset,
                    kind="txnindex",
                )

    def leave(self, path: str) -> None:
        """Its segment leaves the log while readers still use it: from now on nothing is written, and another segment's
        file may get the name."""
        with contextlib.suppress(CorruptIndex, OSError):  # the next access raises it
            self.entries  # noqa: B018  read before the file has another name
        self.path, self.writable = path, False

    def write(self, entries: list[AbortedTransaction]) -> None:
        """Replace the file's entries. A missing file stays missing if there are none."""
        if not entries and not exists(self.path):
            self._entries = ()
            return
        # Atomically: a file truncated by a crash would make aborted records look committed.
        self._files.replace(self.path, b"".join(_ENTRY.pack(0, *entry) for entry in entries))
        self._entries = tuple(entries)

    def append(self, entry: AbortedTransaction) -> None:
        """Append one entry; it is in the page cache on return. After a crash that tears it the segment is recovered,
        and this file is rewritten. OSError: any part of it may be there.

        Raises ValueError if its last offset does not rise.
        """
        entries = self.entries
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise ValueError(
                f"an aborted transaction ends at {entry.last_offset}, not above the last one, {entries[-1].last_offset}"
            )
        with self._files.open(self.path, write=True, create=True) as file:
            file.write(_ENTRY.pack(0, *entry), len(entries) * ENTRY_BYTES)
        self._entries = (*entries, entry)

    def correct(self, entries: list[AbortedTransaction]) -> None:
        """Use these entries instead of the file's, in memory: for a read-only log."""
        with contextlib.suppress(CorruptIndex):
            if list(self.entries) == entries and (self.present or not entries):
                return
        if self.writable:
            self.write(entries)
        self._entries = tuple(entries)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose marker is at or above offset."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) != len(self.entries):
            self.write(kept)

    def sync(self) -> None:
        """Sync the file to disk."""
        if exists(self.path):
            with self._files.open(self.path, write=True) as file:
                self._files.fsync(file)
