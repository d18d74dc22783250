"""One pass over a partition directory: which files it holds, by kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.log.directory._listing import Listing
from klog.segment import names


def make(directory: Path, *found: str | bytes) -> Listing:
    directory.mkdir(exist_ok=True)
    for name in found:
        with open(os.path.join(os.fsencode(directory), os.fsencode(name)), "wb"):
            pass
    return Listing(str(directory))


def test_live_files_are_listed_by_kind(tmp_path: Path) -> None:
    offsets = (7, 0, 2**63 - 1)
    listing = make(
        tmp_path,
        *(names.file_name(offset, suffix) for offset in offsets for suffix in (*names.SEGMENT_SUFFIXES, ".snapshot")),
    )
    assert listing.directory == str(tmp_path)
    assert listing.logs == listing.snapshots == sorted(offsets)
    for found in (listing.indexes, listing.time_indexes, listing.txn_indexes):
        assert sorted(found) == sorted(offsets)
    assert (listing.unfinished, listing.foreign_logs) == ([], [])


def test_other_names_are_not_taken_for_live_files(tmp_path: Path) -> None:
    ours = [f"{7:020d}.log.deleted", f"{7:020d}.index.cleaned", f"{7:020d}.log.swap", f"{7:020d}.snapshot.tmp"]
    foreign = ["x.log", "\u0660" * 20 + ".log", f"{2**63:020d}.log", os.fsdecode(b"\xff\xfe.log")]
    more = [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "x.tmp",
        "tmp",
        ".log.d",
        b"\xff" * 200,
        "n" * 255,
        "-1.index",
    ]
    listing = make(tmp_path, *ours, *foreign, *more)
    assert listing.unfinished == sorted(ours)
    assert sorted(listing.foreign_logs) == sorted(foreign)
    assert listing.logs == listing.snapshots == listing.indexes == listing.time_indexes == listing.txn_indexes == []


def test_a_large_directory_is_listed_whole(tmp_path: Path) -> None:
    """More names than one buffer of the pass holds."""
    listing = make(tmp_path, *(names.file_name(offset, ".log") for offset in range(3000, 0, -1)))
    assert listing.logs == list(range(1, 3001))


def test_a_directory_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    for path, error in ((tmp_path / "none", FileNotFoundError), (tmp_path / "file", NotADirectoryError)):
        (tmp_path / "file").touch()
        with pytest.raises(error) as caught:
            Listing(str(path))
        assert caught.value.filename == str(path)
    with pytest.raises(ValueError, match="null"):
        Listing(str(tmp_path) + "\0")
