"""The transaction index is replaced whole or not at all; a file with a partial entry counts as missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.disk import LogFile, RealFiles
from klog.errors import CorruptIndex
from klog.segment.txn_index import ENTRY_BYTES, AbortedTransaction, TxnIndex, collect_aborted

KAFKAS = [
    AbortedTransaction(0, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
]
FIRST = AbortedTransaction(7, 0, 3, 4)
SECOND = AbortedTransaction(8, 5, 9, 10)


class FullDisk(RealFiles):
    def fsync(self, file: LogFile) -> None:
        raise OSError(28, "no space left on device", file.path)


def test_a_failed_write_keeps_the_previous_entries(tmp_path: Path) -> None:
    path = str(tmp_path / f"{0:020d}.txnindex")
    TxnIndex(path, 0, RealFiles()).write([FIRST])
    with pytest.raises(OSError, match="no space"):
        TxnIndex(path, 0, FullDisk()).write([FIRST, SECOND])
    assert TxnIndex(path, 0, RealFiles()).entries == (FIRST,)


@pytest.mark.parametrize(("size", "present"), [(0, False), (ENTRY_BYTES - 1, False), (ENTRY_BYTES, True), (40, False)])
def test_present_needs_whole_entries(tmp_path: Path, size: int, present: bool) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    assert not TxnIndex(str(path), 0, RealFiles()).present
    TxnIndex(str(path), 0, RealFiles()).write([FIRST, SECOND])
    path.write_bytes(path.read_bytes()[:size])
    assert TxnIndex(str(path), 0, RealFiles()).present is present


def index_of(directory: Path, entries: list[AbortedTransaction], base: int = 0) -> TxnIndex:
    index = TxnIndex(str(directory / f"{base:020d}.txnindex"), base, RealFiles(), writable=True)
    index.write(entries)
    return index


def test_a_reopened_index_appends_after_its_entries(tmp_path: Path) -> None:
    """XI1: entries are read back and later ones appended; sanity fails if the base offset lies above them."""
    index_of(tmp_path, KAFKAS)
    again = TxnIndex(str(tmp_path / f"{0:020d}.txnindex"), 0, RealFiles())
    again.check()
    assert list(again.entries) == KAFKAS
    again.append(AbortedTransaction(4, 60, 70, 71))
    again.append(AbortedTransaction(5, 72, 80, 81))
    assert [entry.last_offset for entry in TxnIndex(again.path, 0, RealFiles()).entries] == [10, 15, 35, 50, 70, 80]
    with pytest.raises(CorruptIndex, match="below the segment's 100"):
        TxnIndex(again.path, 100, RealFiles()).check()


@pytest.mark.parametrize("last_offset", [10, 9])
def test_the_last_offset_rises(tmp_path: Path, last_offset: int) -> None:
    """XI2: an equal or lower offset is an error of the caller."""
    index = index_of(tmp_path, [KAFKAS[0]])
    with pytest.raises(ValueError, match=f"ends at {last_offset}"):
        index.append(AbortedTransaction(1, 5, last_offset, 13))
    assert list(index.entries) == [KAFKAS[0]]


@pytest.mark.parametrize(
    ("fetch", "upper", "found", "complete"),
    [
        (0, 100, KAFKAS, False),
        (0, 32, KAFKAS[:3], True),
        (0, 35, KAFKAS, True),
        (10, 35, KAFKAS, True),
        (11, 35, KAFKAS[1:], True),
        (20, 41, KAFKAS[2:], False),
    ],
)
def test_collecting_the_aborted_transactions_of_a_fetch(
    fetch: int, upper: int, found: list[AbortedTransaction], complete: bool
) -> None:
    """XI3: entries that overlap [fetch, upper), and whether a later segment can hold more."""
    assert collect_aborted(KAFKAS, fetch, upper) == (found, complete)


def test_truncating_and_emptying(tmp_path: Path) -> None:
    """XI4: entries whose marker is at or above the offset go; an empty index accepts entries again."""
    index = index_of(tmp_path, KAFKAS)
    index.truncate_to(51)
    assert list(index.entries) == KAFKAS
    index.truncate_to(50)
    assert list(index.entries) == KAFKAS[:3]
    assert TxnIndex(index.path, 0, RealFiles()).entries == index.entries
    index.write([])
    assert (index.entries, Path(index.path).stat().st_size) == ((), 0)
    index.append(KAFKAS[0])
    assert list(TxnIndex(index.path, 0, RealFiles()).entries) == KAFKAS[:1]


def test_a_renamed_index_keeps_its_entries(tmp_path: Path) -> None:
    """XI4: the file is renamed with its segment and appended to under its new name."""
    index = index_of(tmp_path, KAFKAS[:2])
    renamed = str(tmp_path / "renamed.txnindex")
    RealFiles().rename(index.path, renamed)
    again = TxnIndex(renamed, 0, RealFiles())
    again.append(KAFKAS[2])
    assert list(TxnIndex(renamed, 0, RealFiles()).entries) == KAFKAS[:3]


def test_an_index_without_entries_creates_no_file(tmp_path: Path) -> None:
    """XI4: flushing, truncating or emptying it does not create the file."""
    index = TxnIndex(str(tmp_path / f"{0:020d}.txnindex"), 0, RealFiles())
    index.sync()
    index.truncate_to(5)
    index.write([])
    index.check()
    assert list(tmp_path.iterdir()) == []
