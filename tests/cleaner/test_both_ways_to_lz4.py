"""The cleaner's native lz4 path leaves the same batches as the Python path."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import google_crc32c
import pytest

from klog.codec import decompress
from klog.errors import CorruptBatch
from tests.cleaner.logs import NOW, latest, open_log

TEXT = b"".join(b"flight %d from EWR to %s;" % (n * 7919 % 1000, (b"ORD", b"LAX")[n % 2]) for n in range(10_000))


def cleaned(directory: Path) -> list[tuple[bytes, bytes]]:
    """Clean an lz4 log with large batches. Returns the fields of its batches that do not depend on the compressor."""
    config = {"segment.bytes": 1 << 22, "max.message.bytes": 1 << 20}
    with open_log(directory, config=config) as log:
        for start in range(0, 3000, 300):
            keys = [b"key-%d" % ((start + i) * 7 % 1000) for i in range(300)]
            log.append([(key, key * 30 if i % 9 else None, NOW) for i, key in enumerate(keys)], compression="lz4")
        log.append([(b"zeros-%d" % i, bytes(300_000), NOW) for i in (1, 2, 3, 1)], compression="lz4")
        log.append([(b"last", TEXT[:200_000], NOW), (b"key-1", b"v", NOW)], compression="lz4")
        log.compact(roll=True)
        raws = [bytes(batch.raw) for batch in log.read(isolation="log_end").batches()]
        assert sum(int.from_bytes(raw[57:61], "big") for raw in raws) == 1000 + 4
        return [(raw[:8] + raw[21:61], bytes(decompress(3, raw[61:], 1 << 24))) for raw in raws]


def broken(directory: Path) -> str:
    """Clean a log with a broken payload under a valid checksum. Returns the error."""
    with open_log(directory, config={"max.message.bytes": 1 << 16}) as log:
        log.append([(b"key-%d" % i, b"v" * 40, NOW) for i in range(50)], compression="lz4")
        log.roll()
        path = Path(log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[72:92] = bytes(20 * [255])  # a run of literals that never ends
    data[17:21] = google_crc32c.value(bytes(data[21:])).to_bytes(4, "big")
    path.write_bytes(data)
    with open_log(directory, clean_shutdown=True) as log, pytest.raises(CorruptBatch, match="lz4 payload") as raised:
        log.compact(roll=True)
    return raised.value.reason


def test_both_paths_leave_the_same_batches_and_raise_the_same_error(tmp_path: Path) -> None:
    """In another process the lz4 package hides its functions, as a later version may."""
    program = f"""
from pathlib import Path
import lz4.block
lz4.block._block = None
from klog.codec._direct import pack
from tests.cleaner.test_both_ways_to_lz4 import broken, cleaned
assert pack(b"") is None
print([*cleaned(Path({str(tmp_path / "other-0")!r})), broken(Path({str(tmp_path / "bad-0")!r}))])
"""
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert literal_eval(printed) == [*cleaned(tmp_path / "direct-0"), broken(tmp_path / "broken-0")]


def test_a_batch_that_outgrows_the_buffer_takes_the_python_path(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", config={"segment.bytes": 1 << 24, "max.message.bytes": 1 << 24}) as log:
        log.append([(b"key", bytes(6 << 20), NOW), (b"other", b"v", NOW)], compression="lz4")
        log.append([(b"key", b"v", NOW)], compression="lz4")
        log.compact(roll=True)
        assert {key: len(value or b"") for key, value in latest(log).items()} == {b"key": 1, b"other": 1}
