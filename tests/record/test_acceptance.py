"""Each row of the acceptance matrix, with every codec and every reader; and the rules of the file scanner."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.codec import CODECS
from klog.disk._io import LogFile
from klog.errors import CorruptBatch
from klog.record import columns, decode, iter_records, validate
from klog.segment._scan import scan_checked, scan_headers
from tests.support.acceptance import GOOD, MATRIX, SCANNER, Row

every_row = pytest.mark.parametrize("row", [*MATRIX, *SCANNER], ids=str)
every_codec = pytest.mark.parametrize("codec", range(5), ids=CODECS)
START = -(2**63)


@every_codec
@every_row
def test_readers_of_a_file(row: Row, codec: int) -> None:
    data, path = row.data(codec), "x.log"
    position = len(GOOD) if row.before else 0
    if row.records is None:
        records = iter_records(data, start=START, path=path)
        assert [next(records).offset for _ in range(row.before)] == list(range(row.before))
        readers = [
            lambda: list(records),
            lambda: columns(data, start=START, path=path),
            lambda: columns(data, start=START, path=path, views=True),
            lambda: [list(batch) for batch in decode(data, path=path)],
            lambda: validate(data, path=path),
        ]
        for reader in readers:
            with pytest.raises(CorruptBatch) as caught:
                reader()
            assert (caught.value.path, caught.value.position) == (path, position)
        return
    got = list(iter_records(data, start=START, path=path))
    assert len(got) == row.records
    for views in (False, True):
        assert columns(data, start=START, path=path, views=views).num_rows == row.records
    assert [record for batch in decode(data, path=path, allow_partial=True) for record in batch] == got
    if row.partial:
        with pytest.raises(CorruptBatch) as caught:
            list(decode(data, path=path))
        assert (caught.value.kind, caught.value.position) == ("length", position)
    if row.sound and not row.partial:
        assert validate(data, path=path) == row.records
    else:
        with pytest.raises(CorruptBatch) as caught:
            validate(data, path=path)
        assert (caught.value.kind, caught.value.position) == ("length" if row.partial else "offset_order", position)


@every_codec
@every_row
def test_readers_of_memory(row: Row, codec: int) -> None:
    """As above, except for a magic above 2."""
    data = row.data(codec)
    if row.in_memory and row.records is not None:
        assert len(list(iter_records(data, start=START))) == row.records
        assert columns(data, start=START).num_rows == row.records
        return
    for reader in (lambda: list(iter_records(data, start=START)), lambda: columns(data), lambda: validate(data)):
        with pytest.raises(CorruptBatch):
            reader()


@every_codec
def test_checking_the_checksum_is_optional(codec: int) -> None:
    """A caller that requests no check gets the batch and its records."""
    (row,) = (row for row in MATRIX if row.name == "a checksum that does not match")
    data = row.data(codec)
    (batch,) = decode(data, verify_crc=False)
    assert [record.value for record in batch] == [b"v", b"v"]
    assert len(list(iter_records(data, verify_crc=False))) == 2


@pytest.mark.parametrize("row", SCANNER, ids=str)
def test_segment_scans_stop_at_the_bad_batch(row: Row, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(row.data(0))
    file = LogFile(os.open(path, os.O_RDONLY), str(path))
    for scan in (scan_checked, scan_headers):
        assert scan(file, 0, path.stat().st_size, 0).end == len(GOOD)
