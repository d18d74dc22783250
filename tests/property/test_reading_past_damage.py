"""One byte in a log's .log files is wrong. Every reader that continues at error.next_offset returns all records of the
other batches."""

from __future__ import annotations

import contextlib
import logging
import pickle
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from klog.record import decode
from tests.support.logs import NOW, one_log

Row = tuple[int, bytes | None]
EXTENT = {*range(27), *range(57, 61)}  # of the header's bytes, those up to the last offset delta, and the count
CODECS = ("none", "lz4", "none", "zstd", "none", "gzip", "snappy")


def records(log: klog.Log, at: int) -> Iterator[Row]:
    for record in log.read(at):
        yield record.offset, record.value


def batches(log: klog.Log, at: int) -> Iterator[Row]:
    for batch in log.read(at).batches():
        for record in batch:
            if record.offset >= at:
                yield record.offset, record.value


def columns(log: klog.Log, at: int) -> Iterator[Row]:
    pyarrow = pytest.importorskip("pyarrow", reason="needs: pyarrow")
    for part in log.read(at).columns():
        table = pyarrow.record_batch(part)
        yield from zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)


def tailed(log: klog.Log, at: int) -> Iterator[Row]:
    for record in log.tail(at, timeout=0):
        yield record.offset, record.value


READERS: list[Callable[[klog.Log, int], Iterable[Row]]] = [records, batches, columns, tailed]


class Files:
    """A log of three segments. Batches have one or three records, and some are compressed."""

    def __init__(self, path: Path) -> None:
        self.path = path / "events-0"
        with one_log(path, segment_bytes=1000, index_interval_bytes=150) as log:
            for number in range(21):
                rows = [(b"k", b"%d" % number * 15, NOW + number)] * (3 if number % 2 else 1)
                log.append(rows, compression=CODECS[number % len(CODECS)])
            assert len(log.segments) == 3
            self.end = log.log_end_offset
        self.data = {file: file.read_bytes() for file in sorted(self.path.glob("*.log"))}
        self.batches = {
            file: [(b.position, b.size, {(r.offset, r.value) for r in b}) for b in decode(data)]
            for file, data in self.data.items()
        }

    def positions(self) -> list[tuple[Path, int]]:
        return [(file, at) for file, data in self.data.items() for at in range(len(data))]

    def others(self, file: Path, at: int) -> set[Row]:
        """Return the records of every batch except the one with this byte."""
        found: set[Row] = set()
        for path, listed in self.batches.items():
            for position, size, rows in listed:
                if path != file or not position <= at < position + size:
                    found |= rows
        return found


def read_past(log: klog.Log, reader: Callable[[klog.Log, int], Iterable[Row]]) -> set[Row]:
    got: set[Row] = set()
    at, last = log.log_start_offset, -1
    while True:
        try:
            for row in reader(log, at):
                got.add(row)
            return got
        except CorruptBatch as caught:
            error = caught
        assert error.next_offset is not None and error.next_offset > last, error
        assert pickle.loads(pickle.dumps(error)).next_offset == error.next_offset
        at = last = error.next_offset


def check(files: Files, file: Path, at: int, bits: int) -> None:
    data = bytearray(files.data[file])
    data[at] ^= bits
    file.write_bytes(data)
    try:
        with (
            contextlib.suppress(CorruptLog),  # strict raises on damage that it detects at load
            klog.Log.open(files.path, clock=ManualClock(NOW), read_only=True) as log,
        ):
            for reader in READERS:
                missing = files.others(file, at) - read_past(log, reader)
                assert not missing, f"{reader.__name__}: byte {at} of {file.name} ^ {bits}: {sorted(missing)}"
    finally:
        file.write_bytes(files.data[file])


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    logging.disable(logging.CRITICAL)
    yield Files(tmp_path)
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(3))
def test_sampled_bytes(files: Files, seed: int) -> None:
    rng = random.Random(seed)
    for file, at in rng.sample(files.positions(), 60):
        check(files, file, at, 1 << rng.randrange(8))


def test_every_header_byte_of_a_closed_segment(files: Files) -> None:
    file = sorted(files.data)[1]
    for position, _, _ in files.batches[file][:3]:
        for at in range(61):
            check(files, file, position + at, 0x41)


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_every_bit(files: Files) -> None:
    """Try every bit of the fields that say where a batch begins and ends, and one bit of each other byte: only the
    checksum covers it."""
    for file, at in files.positions():
        extent = any(at - position in EXTENT for position, _, _ in files.batches[file])
        for bit in range(8) if extent else (at % 8,):
            check(files, file, at, 1 << bit)


def test_fetch_and_topic_reads_name_the_next_offset(files: Files) -> None:
    file = sorted(files.data)[1]
    position, _, rows = files.batches[file][1]
    data = bytearray(files.data[file])
    data[position + 8] ^= 0x80  # the length
    file.write_bytes(data)
    first, last = min(rows)[0], max(rows)[0]
    with klog.open(files.path.parent, read_only=True) as logs:
        for read in (lambda: logs.log("events").fetch(first), lambda: list(logs.read("events"))):
            with pytest.raises(CorruptBatch) as caught:
                read()
            assert caught.value.next_offset == last + 1
        assert next(iter(logs.log("events").read(last + 1))).offset == last + 1
        assert logs.log("events").fetch(last + 1).size > 0


def test_damage_at_the_end_of_the_log(files: Files) -> None:
    """Reading continues with records that are appended later."""
    file = sorted(files.data)[-1]
    data = bytearray(files.data[file])
    data[-1] ^= 1
    file.write_bytes(data)
    with klog.Log.open(files.path, clock=ManualClock(NOW), clean_shutdown=True) as log:
        with pytest.raises(CorruptBatch) as caught:
            list(log.read())
        assert caught.value.next_offset == files.end
        log.append([(b"k", b"more")])
        assert [record.value for record in log.read(files.end)] == [b"more"]


def test_errors_outside_a_log_have_no_next_offset() -> None:
    with pytest.raises(CorruptBatch) as caught:
        list(decode(b"\0" * 100))
    assert caught.value.next_offset is None
