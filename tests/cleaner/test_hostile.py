"""Batches with a valid checksum and invalid content raise CorruptBatch at once. tests/property/test_hostile_cleaning.py
generates thousands of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import google_crc32c
import pytest

from klog import record
from klog.errors import CorruptBatch
from tests.cleaner.logs import NOW, append, open_log


@pytest.mark.parametrize("purge", [False, True], ids=["compact", "purge"])
def test_a_record_longer_than_its_batch_raises_without_reading_past_it(tmp_path: Path, purge: bool) -> None:
    bad = bytearray(record.encode([(b"key", b"v" * 50, NOW)], base_offset=0))
    bad[61:63] = b"\xfe\x7f"  # its length field: 8191 bytes
    bad[17:21] = google_crc32c.value(bytes(bad[21:])).to_bytes(4, "big")
    good = [record.encode([(b"key", bytes(4000), NOW)], base_offset=1 + number) for number in range(1000)]
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join([bytes(bad), *good]))
    steps: list[int] = []
    config = {"segment.bytes": 1 << 30, "max.message.bytes": 1 << 20}
    with open_log(directory, config=config, clean_shutdown=True) as log:
        log.roll()
        append(log, [(b"key", b"last")])
        work = partial(log.purge_key, b"key") if purge else partial(log.compact)
        with pytest.raises(CorruptBatch, match="record 0 of 1") as error:
            work(progress=lambda event: steps.append(event.done))
        assert (error.value.position, error.value.offset, steps) == (0, 0, [])
