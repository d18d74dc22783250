"""Unexpected files, one test for each row of the fault table: a log opens with its valid records or reports the damage.
Nothing hangs, no allocation has a size that was read from disk unchecked, no durable record is cut."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptData, CorruptLog
from klog.record import encode
from tests.support.resources import memory_limit

T = 1_700_000_000_000
CONFIG = {"index.interval.bytes": 100, "segment.index.bytes": 4096, "retention.ms": -1}
COUNT = 8


def batch(offset: int) -> bytes:
    return encode([(b"key", b"value %d" % offset, T + offset)], base_offset=offset, leader_epoch=0)


BATCHES = [batch(offset) for offset in range(COUNT)]
SIZE = len(BATCHES[0])


def make(root: Path, data: bytes = b"".join(BATCHES), base: int = 0) -> Path:
    directory = root / "t-0"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{base:020d}.log").write_bytes(data)
    return directory


def open_log(directory: Path, **options: object) -> klog.Log:
    options = {"clean_shutdown": False, **options}
    return klog.Log.open(directory, config=CONFIG, clock=ManualClock(T + 1000), **options)  # type: ignore[arg-type]


def offsets(log: klog.Log) -> list[int]:
    return [record.offset for record in log.read()]


@pytest.mark.parametrize("policy", ["strict", "kafka"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("length", [0x7FFFFFFF, 0x7FFFFFF3, -1, -(2**31), 13, 0, 1 << 30])
def test_a_tail_with_an_invalid_length_is_cut(tmp_path: Path, length: int, clean: bool, policy: str) -> None:
    """Fault 3: the tail is cut, and its length field is not trusted."""
    tail = COUNT.to_bytes(8) + length.to_bytes(4, "big", signed=True) + BATCHES[0][12:]
    directory = make(tmp_path, b"".join(BATCHES) + tail)
    with memory_limit(512 << 20), open_log(directory, clean_shutdown=clean, recovery=policy) as log:
        assert offsets(log) == list(range(COUNT))
        assert log.append([(b"k", b"v")]).first_offset == COUNT


@pytest.mark.parametrize("policy", ["strict", "kafka"])
@pytest.mark.parametrize("zeros", [1, 17, 61, 4096, 100_000])
def test_zeros_at_the_tail_are_cut(tmp_path: Path, zeros: int, policy: str) -> None:
    """Fault 5: preallocated or never written zeros are not a batch of length zero."""
    directory = make(tmp_path, b"".join(BATCHES) + bytes(zeros))
    with open_log(directory, recovery=policy) as log:
        assert offsets(log) == list(range(COUNT))
        assert log.recovery.bytes_truncated == zeros


@pytest.mark.parametrize("size", [2**31 - 1, 2**31])
def test_a_segment_may_have_two_gigabytes(tmp_path: Path, size: int) -> None:
    """An index entry has no room for a greater position."""
    directory = make(tmp_path)
    os.truncate(directory / f"{0:020d}.log", size)  # it has no blocks
    if size == 2**31:
        for options in ({}, {"read_only": True}, {"clean_shutdown": True}):
            with pytest.raises(CorruptLog, match=f"{size} bytes, more than the maximum"):
                open_log(directory, **options)
        return
    with open_log(directory) as log:
        assert (log.log_end_offset, log.recovery.bytes_truncated) == (COUNT, size - COUNT * SIZE)


def test_a_reader_finds_the_log_end_without_an_index(tmp_path: Path) -> None:
    """Something else has its name: the reader cannot read it, nor make another."""
    directory = make(tmp_path)
    (directory / f"{0:020d}.index").mkdir()
    with open_log(directory, read_only=True) as log:
        assert log.log_end_offset == COUNT


@pytest.mark.parametrize("at", range(3, COUNT * SIZE, 11))
def test_a_flipped_bit_above_the_recovery_point(tmp_path: Path, at: int) -> None:
    """Fault 7: strict refuses, or cuts only the last batch; kafka ends the log at the batch. No record is invented,
    except where the bit lies outside the checksum."""
    data = bytearray(b"".join(BATCHES))
    data[at] ^= 1 << at % 8
    damaged, outside = at // SIZE, at % SIZE < 21
    try:
        with open_log(make(tmp_path / "strict", bytes(data)), recovery="strict") as log:
            got = [record.value for record in log.read()]
        assert got == [b"value %d" % n for n in range(len(got))]
        assert len(got) >= COUNT - 1 if damaged == COUNT - 1 else outside
    except CorruptData:
        assert (tmp_path / "strict" / "t-0" / f"{0:020d}.log").read_bytes() == data
    with open_log(make(tmp_path / "kafka", bytes(data)), recovery="kafka") as log:
        got = [record.value for record in log.read()]
        assert got == [b"value %d" % n for n in range(len(got))]
        assert len(got) >= damaged


@pytest.mark.parametrize("at", range(5, COUNT * SIZE, 37))
def test_a_flipped_bit_below_the_recovery_point(tmp_path: Path, at: int) -> None:
    """Fault 8: the load does not see it and cuts nothing; readers of it raise."""
    data = bytearray(b"".join(BATCHES))
    data[at] ^= 1 << at % 8
    for policy in ("strict", "kafka"):
        directory = make(tmp_path / policy, bytes(data))
        (directory / f"{COUNT:020d}.log").write_bytes(batch(COUNT))
        with open_log(directory, recovery=policy, recovery_point=COUNT) as log:
            assert log.log_end_offset == COUNT + 1
            got: list[bytes | None] = []
            try:
                for record in log.read():
                    got.append(record.value)
                assert at % SIZE < 21, "a reader that meets a wrong checksum says so"
            except CorruptBatch:
                assert len(got) == at // SIZE
            else:
                assert len(got) == COUNT + 1
            assert got == [b"value %d" % number for number in range(len(got))]
            assert offsets_from(log, COUNT) == [COUNT]
        assert (directory / f"{0:020d}.log").read_bytes() == data


def offsets_from(log: klog.Log, start: int) -> list[int]:
    return [record.offset for record in log.read(start)]


@pytest.mark.parametrize("at", range(21))
@pytest.mark.parametrize("number", [3, COUNT - 1])
def test_a_flipped_bit_outside_the_checksum(tmp_path: Path, at: int, number: int) -> None:
    """Fault 9: base offset, length, leader epoch, magic, or the checksum itself. The records are correct, or an error
    is raised."""
    for bit in (0, 3, 7):
        data = bytearray(b"".join(BATCHES))
        data[number * SIZE + at] ^= 1 << bit
        for policy in ("strict", "kafka"):
            directory = make(tmp_path / f"{bit}-{policy}", bytes(data))
            try:
                with open_log(directory, recovery=policy) as log:
                    got = [(record.offset, record.value) for record in log.read()]
            except CorruptData:
                continue
            whole = [(n, b"value %d" % n) for n in range(COUNT)]
            if number < COUNT - 1 or at >= 8:
                assert got == whole[: len(got)], (bit, policy)
                assert len(got) >= number
            else:  # no later batch contradicts the offset of the last one
                assert got[:number] == whole[:number]


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
                                  "replication-offset-checkpoint", "cleaner-offset-checkpoint"])  # fmt: skip
def test_a_log_opens_with_any_checkpoint_content(tmp_path: Path, name: str) -> None:
    """Fault 11: with any content of the checkpoint the log opens with all its records."""
    rng = random.Random(name)
    words = [
        "0",
        "1",
        "t",
        "-1",
        "99",
        "9" * 30,
        " ",
        "\n",
        "\n",
        "\t",
        "\r\n",
        "\0",
        "é",
        "t 0 3",
        "t 0 9999",
        "1e3",
        "0x1",
    ]
    directory = make(tmp_path)
    for _ in range(40):
        text = "".join(rng.choice(words) for _ in range(rng.randrange(12))).encode()
        (tmp_path / name).write_bytes(text if rng.random() < 0.8 else rng.randbytes(rng.randrange(60)))
        with open_log(directory, clean_shutdown=None, recovery="strict", read_only=rng.random() < 0.5) as log:
            assert (log.log_start_offset, log.log_end_offset) == (0, COUNT), text
    for line in ("t 0 3", "t 0 9999", "t 0 -5"):
        (tmp_path / name).write_text(f"0\n1\n{line}\n")
        if (name, line) == ("log-start-offset-checkpoint", "t 0 9999"):
            with pytest.raises(CorruptLog, match="log start in the checkpoint, 9999"):
                open_log(directory, clean_shutdown=None)
            continue
        with open_log(directory, clean_shutdown=None, recovery="strict") as log:
            start = 3 if (name, line) == ("log-start-offset-checkpoint", "t 0 3") else 0
            assert (log.log_start_offset, log.log_end_offset) == (start, COUNT)


def three(root: Path) -> Path:
    directory = make(root, b"".join(BATCHES[:3]))
    (directory / f"{3:020d}.log").write_bytes(b"".join(BATCHES[3:6]))
    (directory / f"{6:020d}.log").write_bytes(b"".join(BATCHES[6:]))
    open_log(directory).close()
    return directory


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_segment(tmp_path: Path, clean: bool) -> None:
    """Fault 13: without the first the log begins later, without the last it ends earlier; without one in the middle
    strict refuses, and kafka reads on at the next. Indexes of a missing segment are deleted."""
    directory = three(tmp_path / "first")
    (directory / f"{0:020d}.log").unlink()
    with open_log(directory, clean_shutdown=clean) as log:
        assert (log.log_start_offset, offsets(log)) == (3, [3, 4, 5, 6, 7])
    assert not list(directory.glob(f"{0:020d}.*index"))
    directory = three(tmp_path / "last")
    (directory / f"{6:020d}.log").unlink()
    with open_log(directory, clean_shutdown=clean) as log:
        assert offsets(log) == [0, 1, 2, 3, 4, 5]
    directory = three(tmp_path / "middle")
    (directory / f"{3:020d}.log").unlink()
    with pytest.raises(CorruptLog, match="the segment that begins at 3 is missing, between others"):
        open_log(directory, clean_shutdown=clean, recovery_point=0)
    with open_log(directory, clean_shutdown=clean, recovery="kafka") as log:
        assert offsets(log) == [0, 1, 2, 6, 7]
    assert not list(directory.glob(f"{3:020d}.*index"))


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory"])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_directory_link_or_fifo_in_place_of_a_file(tmp_path: Path, suffix: str, kind: str) -> None:
    """Fault 28: no link leads out of the directory, nothing waits for a FIFO; the load fails or ignores the file."""
    directory = three(tmp_path)
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    path = directory / f"{6:020d}{suffix}"
    path.unlink(missing_ok=True)
    if kind == "symlink":
        path.symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    try:
        with open_log(directory) as log:
            assert offsets(log)[:6] == [0, 1, 2, 3, 4, 5]
    except (OSError, CorruptData):
        pass
    assert outside.read_bytes() == b"precious"


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "name", ["3.index", "3.timeindex", "3.txnindex", "6.index", "6.timeindex", "3.snapshot", "8.snapshot"]
)
def test_a_file_of_a_hole_of_64_gib(tmp_path: Path, name: str, read_only: bool) -> None:
    """Such a file counts as damaged. It is neither read nor mapped whole."""
    directory = three(tmp_path)
    base, _, suffix = name.partition(".")
    path = directory / f"{int(base):020d}.{suffix}"
    path.touch()
    os.truncate(path, 64 << 30)
    with memory_limit(1 << 30), open_log(directory, clean_shutdown=True, read_only=read_only) as log:
        assert offsets(log) == list(range(COUNT))
        assert [record.offset for record in log.read(isolation="read_committed")] == list(range(COUNT))
        assert [log.offset_for_timestamp(T + n) for n in range(COUNT)] == [(T + n, n) for n in range(COUNT)]
        assert log.producers == {}
        assert log.leader_epochs == [(0, 0)]
        if not read_only:
            log.append([(b"k", b"value", T + COUNT)])
            assert offsets(log) == list(range(COUNT + 1))


@pytest.mark.parametrize("base", [2**63 - 2, 2**62, 2**31 - 1])
def test_a_segment_may_begin_near_the_largest_offset(tmp_path: Path, base: int) -> None:
    """Fault 31: a segment may begin at the largest offset; nothing wraps."""
    data = batch(base) if base < 2**63 - 2 else encode([(b"k", b"value", T)], base_offset=base)
    directory = make(tmp_path, data, base)
    for clean in (False, True):
        with open_log(directory, clean_shutdown=clean) as log:
            assert (log.log_start_offset, log.log_end_offset) == (base, base + 1)
            assert offsets(log) == [base]
            assert log.offset_for_timestamp(2**63 - 1) is None
            assert log.count() == 1


@pytest.mark.parametrize("policy", ["strict", "kafka"])
def test_a_segment_with_positions_beyond_31_bits_is_refused(tmp_path: Path, policy: str) -> None:
    directory = make(tmp_path)
    path = directory / "00000000000000000000.log"
    os.truncate(path, 2**31)
    with pytest.raises(CorruptLog, match="more than the maximum"):
        open_log(directory, recovery=policy)
    assert path.stat().st_size == 2**31
