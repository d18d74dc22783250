"""The transaction index is replaced whole or not at all; a file that cannot be whole counts as none."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.disk import LogFile, RealFiles
from klog.segment.txn_index import ENTRY_BYTES, AbortedTransaction, TxnIndex

FIRST = AbortedTransaction(7, 0, 3, 4)
SECOND = AbortedTransaction(8, 5, 9, 10)


class FullDisk(RealFiles):
    def fsync(self, file: LogFile) -> None:
        raise OSError(28, "no space left on device", file.path)


def test_a_write_that_fails_leaves_the_entries_that_were_there(tmp_path: Path) -> None:
    path = str(tmp_path / f"{0:020d}.txnindex")
    TxnIndex(path, 0, RealFiles()).write([FIRST])
    with pytest.raises(OSError, match="no space"):
        TxnIndex(path, 0, FullDisk()).write([FIRST, SECOND])
    assert TxnIndex(path, 0, RealFiles()).entries == (FIRST,)


@pytest.mark.parametrize(("size", "present"), [(0, False), (ENTRY_BYTES - 1, False), (ENTRY_BYTES, True), (40, False)])
def test_present_is_what_has_whole_entries(tmp_path: Path, size: int, present: bool) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    assert not TxnIndex(str(path), 0, RealFiles()).present
    TxnIndex(str(path), 0, RealFiles()).write([FIRST, SECOND])
    path.write_bytes(path.read_bytes()[:size])
    assert TxnIndex(str(path), 0, RealFiles()).present is present
