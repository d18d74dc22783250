"""Transaction index files: 34-byte entries whose last offsets rise."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from klog.disk import RealFiles
from klog.errors import CorruptIndex
from klog.segment import AbortedTransaction, parse_txn_index
from klog.segment.txn_index import TxnIndex

A = AbortedTransaction(4000, 102, 104, 105)
B = AbortedTransaction(7, 100, 110, 90)


def entry(version: int, *fields: int) -> bytes:
    return struct.pack(">hqqqq", version, *fields)


def test_kafka_s_example() -> None:
    data = bytes.fromhex("0000 0000000000000fa0 0000000000000066 0000000000000068 0000000000000069")
    assert parse_txn_index(data, "x") == [A]


def test_a_partial_entry_at_the_end_is_ignored() -> None:
    assert parse_txn_index(entry(0, *A) + b"\0" * 33, "x") == [A]
    assert parse_txn_index(b"", "x") == []


@pytest.mark.parametrize(
    ("data", "match", "position"),
    [
        (entry(0, *A) + entry(0, *A), "does not rise above 104", 34),
        (entry(0, *B) + entry(0, *A), "does not rise above 110", 34),
        (entry(0x100, *A), "version 256", 0),
    ],
)
def test_broken_files_are_told_with_their_place(data: bytes, match: str, position: int) -> None:
    with pytest.raises(CorruptIndex, match=match) as caught:
        parse_txn_index(data, "somewhere")
    assert (caught.value.path, caught.value.position, caught.value.kind) == ("somewhere", position, "txnindex")


def make(tmp_path: Path, base: int = 100) -> TxnIndex:
    index = TxnIndex(str(tmp_path / "x.txnindex"), base, RealFiles())
    index.writable = True
    return index


def test_the_file_appears_with_its_first_entry(tmp_path: Path) -> None:
    index = make(tmp_path)
    index.write([])
    assert not index.present
    assert index.entries == ()
    index.add([A])
    assert index.present
    index.sync()
    assert make(tmp_path).entries == (A,)


def test_added_entries_are_in_the_order_of_their_markers(tmp_path: Path) -> None:
    index = make(tmp_path)
    index.add([B])
    index.add([A])
    assert index.entries == (A, B)
    assert (tmp_path / "x.txnindex").read_bytes() == entry(0, *A) + entry(0, *B)


@pytest.mark.parametrize(("offset", "left"), [(111, (A, B)), (110, (A,)), (105, (A,)), (104, ()), (0, ())])
def test_truncation_drops_markers_at_and_above(
    tmp_path: Path, offset: int, left: tuple[AbortedTransaction, ...]
) -> None:
    index = make(tmp_path)
    index.write([A, B])
    index.truncate_to(offset)
    assert index.entries == left
    assert make(tmp_path).entries == left


def test_an_entry_below_the_segment_is_corrupt(tmp_path: Path) -> None:
    make(tmp_path).write([A, B])
    make(tmp_path, 104).check()
    with pytest.raises(CorruptIndex, match="ends at 104, below the segment's 105"):
        make(tmp_path, 105).check()


def test_a_reader_keeps_what_it_works_out_in_memory(tmp_path: Path) -> None:
    index = make(tmp_path)
    index.writable = False
    index.add([A])
    assert index.entries == (A,)
    assert list(tmp_path.iterdir()) == []
