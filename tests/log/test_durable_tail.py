"""recovery="strict" never shortens a log below its recovery point, nor treats a valid batch as a torn tail, whichever
field of the last batch is wrong, after a clean stop and after a crash. recovery="kafka" recovers as a broker does."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from klog.record import decode
from tests.support.damage import flip
from tests.support.logs import NOW, one_log, tree, values

COUNT = 8  # batches of a log with a wrong length
CLOSED, END = 6, 9  # log ends without the last batch, and with it
FIELDS = {"base offset": (0, 8), "length": (8, 12), "epoch": (12, 16), "magic": (16, 17), "crc": (17, 21),
          "attributes": (21, 23), "last offset delta": (23, 27), "timestamps": (27, 43), "producer": (43, 57),
          "count": (57, 61), "records": (61, 70)}  # fmt: skip


class Tail:
    """A log of two segments, the last of which holds two batches of three records."""

    def __init__(self, path: Path) -> None:
        self.path = path / "events-0"
        with one_log(path, segment_bytes=300, index_interval_bytes=1) as log:
            for number in range(3):
                log.append([(b"k", b"%d" % number * 20, NOW)] * 3)
            self.file = Path(log.segments[-1].path)
            assert len(log.segments) == 2
        self.files = {file.name: file.read_bytes() for file in self.path.iterdir()}
        self.data = self.file.read_bytes()
        self.last = [batch.position for batch in decode(self.data)][-1]

    def damaged(self, field: str) -> Iterator[bytes]:
        """The last segment's file with each bit of a field of its last batch flipped."""
        for at in range(*FIELDS[field]):
            for bit in range(8):
                data = bytearray(self.data)
                data[self.last + at] ^= 1 << bit
                yield bytes(data)

    def lay_out(self, data: bytes) -> None:
        shutil.rmtree(self.path)
        self.path.mkdir()
        for name, content in self.files.items():
            (self.path / name).write_bytes(data if name == self.file.name else content)

    def open(self, *, clean: bool, point: int, **options: Any) -> klog.Log:
        return klog.Log.open(self.path, clock=ManualClock(NOW), clean_shutdown=clean, recovery_point=point, **options)


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail(tmp_path)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_nothing_below_the_recovery_point_is_cut(tail: Tail, clean: bool, field: str) -> None:
    for data in tail.damaged(field):
        tail.lay_out(data)
        error = None
        try:
            with tail.open(clean=clean, point=END) as log:
                assert log.log_end_offset == END
                with contextlib.suppress(CorruptBatch):
                    assert values(log, CLOSED) == [b"2" * 20] * 3
        except CorruptLog as caught:
            error = caught
        if error is not None:
            assert (error.path, error.position) == (str(tail.file), tail.last)
            assert error.offset is not None
            assert "Nothing was changed" in error.reason
            assert 'recovery="kafka"' in error.reason or "Rename the files" in error.reason
        assert tail.file.read_bytes() == data


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_above_the_recovery_point_a_valid_batch_is_not_a_torn_tail(tail: Tail, clean: bool, field: str) -> None:
    """A valid checksum shows that the batch is whole. A crash leaves an invalid checksum and a wrong length, but not a
    batch that is shorter than its bytes."""
    unprotected = field in ("base offset", "epoch", "magic")
    for data in tail.damaged(field):
        tail.lay_out(data)
        try:
            with tail.open(clean=clean, point=CLOSED) as log:
                cut = log.recovery.bytes_truncated
                assert cut == len(data) - log.segments[-1].size and cut in (0, len(data) - tail.last)
                assert not (cut and unprotected)
        except CorruptLog:
            assert tail.file.read_bytes() == data


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_missing_bytes_below_the_recovery_point(tail: Tail, clean: bool) -> None:
    for size in range(tail.last + 1, len(tail.data)):
        tail.lay_out(tail.data[:size])
        with pytest.raises(CorruptLog, match=f"recovery point {END}"):
            tail.open(clean=clean, point=END)
        assert tail.file.read_bytes() == tail.data[:size]
        with tail.open(clean=clean, point=CLOSED) as log:
            assert (log.log_end_offset, log.segments[-1].size) == (CLOSED, tail.last)


@pytest.mark.parametrize("kept", [0, 1], ids=["no batch left", "one batch left"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_missing_batches_below_the_recovery_point(tail: Tail, clean: bool, kept: int) -> None:
    """The file ends between two batches, so that no torn one shows the loss. The entries of its index do."""
    tail.lay_out(tail.data[: tail.last * kept])
    base = int(tail.file.stem)
    end = CLOSED if kept else base
    before = tree(tail.path)
    for _ in range(2):  # the first open does not hide it from the second
        with pytest.raises(CorruptLog, match=f"the recovery point is {END}") as caught:
            tail.open(clean=clean, point=END)
        assert (caught.value.path, caught.value.position, caught.value.offset) == (
            str(tail.file),
            tail.last * kept,
            end,
        )
        assert tree(tail.path) == before
    with tail.open(clean=clean, point=end) as log:
        assert (log.log_end_offset, log.recovery.details) == (end, ())
    tail.lay_out(tail.data[: tail.last * kept])
    with tail.open(clean=clean, point=END, recovery="kafka") as log:
        assert log.log_end_offset == end
        assert f"offset {end}, below the recovery point {END}" in log.recovery.reason


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_shorter_log_without_further_evidence_is_reported(tail: Tail, clean: bool) -> None:
    """As where the whole last segment is missing: nothing but the recovery point shows that there were more records."""
    for name in list(tail.files):
        if name.startswith(tail.file.stem):
            (tail.path / name).unlink()
    for read_only in (True, False):
        with tail.open(clean=clean, point=END, read_only=read_only) as log:
            assert log.log_end_offset == int(tail.file.stem)
            assert f"offset {log.log_end_offset}, below the recovery point {END}" in log.recovery.reason


@pytest.mark.parametrize("point", [0, 2 * COUNT], ids=["unknown", "at the end"])
def test_a_wrong_length_after_a_clean_stop_cuts_no_valid_batches(tmp_path: Path, point: int) -> None:
    """The length leads into the middle of a later batch, where bytes look like a batch with a huge offset: the valid
    batches after it are below the offsets of the scan."""
    path = tmp_path / "events-0"
    with one_log(tmp_path) as log:
        for number in range(COUNT):
            log.append([(b"k", b"%d" % number, 1000 * number)] * 2)
        file = Path(log.segments[-1].path)
    data = file.read_bytes()
    for bit in range(32):
        damaged = flip(data, 11 - bit // 8, bit % 8)
        file.write_bytes(damaged)
        with pytest.raises(CorruptLog) as caught:
            klog.Log.open(path, clock=ManualClock(NOW), clean_shutdown=True, recovery_point=point)
        assert (caught.value.path, caught.value.position) == (str(file), 0), bit
        assert file.read_bytes() == damaged
