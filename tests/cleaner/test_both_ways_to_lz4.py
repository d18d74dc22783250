"""The cleaner's native lz4 path leaves the same batches as the Python path."""

from __future__ import annotations

from pathlib import Path

import google_crc32c
import pytest

from klog.codec import decompress
from klog.codec._direct import use_direct
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


def test_both_paths_leave_the_same_batches(tmp_path: Path) -> None:
    direct = cleaned(tmp_path / "direct-0")
    assert not use_direct(False)
    try:
        other = cleaned(tmp_path / "other-0")
    finally:
        use_direct(True)
    assert direct == other


@pytest.mark.parametrize("direct", [True, False])
def test_a_broken_payload_raises_the_same_error(direct: bool, tmp_path: Path) -> None:
    """A broken payload under a valid checksum raises the same error on both paths."""
    use_direct(direct)
    try:
        with open_log(tmp_path / "t-0", config={"max.message.bytes": 1 << 16}) as log:
            log.append([(b"key-%d" % i, b"v" * 40, NOW) for i in range(50)], compression="lz4")
            log.roll()
            path = Path(log.segments[0].path)
        data = bytearray(path.read_bytes())
        data[72:92] = bytes(20 * [255])  # a run of literals that never ends
        data[17:21] = google_crc32c.value(bytes(data[21:])).to_bytes(4, "big")
        path.write_bytes(data)
        with open_log(tmp_path / "t-0", clean_shutdown=True) as log, pytest.raises(CorruptBatch, match="lz4 payload"):
            log.compact(roll=True)
    finally:
        use_direct(True)


def test_a_batch_that_outgrows_the_buffer_takes_the_python_path(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", config={"segment.bytes": 1 << 24, "max.message.bytes": 1 << 24}) as log:
        log.append([(b"key", bytes(6 << 20), NOW), (b"other", b"v", NOW)], compression="lz4")
        log.append([(b"key", b"v", NOW)], compression="lz4")
        log.compact(roll=True)
        assert {key: len(value or b"") for key, value in latest(log).items()} == {b"key": 1, b"other": 1}
