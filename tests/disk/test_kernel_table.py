"""System calls that are interrupted, cut short or refused, through the function table that Files carries."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.disk import RealFiles
from tests.support.faulty_io import FaultyIo
from tests.support.patience import PATIENCE


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def test_interrupted_and_short_writes_continue(tmp_path: Path, kernel: FaultyIo) -> None:
    files = RealFiles(kernel.table)
    file = files.open(str(tmp_path / "a"), write=True, create=True)
    interrupted = kernel.rule("pwrite", error=errno.EINTR, times=2)
    kernel.rule("pwrite", at_most=7, nth=3)
    data = bytes(range(100))
    file.write(data, 3)
    assert (tmp_path / "a").read_bytes() == bytes(3) + data
    assert kernel.hits(interrupted) == 2
    assert kernel.calls("pwrite") == 2 + 15


def test_interrupted_and_short_reads_continue(tmp_path: Path, kernel: FaultyIo) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    file = RealFiles(kernel.table).open(str(tmp_path / "a"))
    kernel.rule("preadv2", error=errno.EINTR, times=1)
    kernel.rule("preadv2", at_most=11, nth=2)
    kernel.rule("pread", error=errno.EINTR, times=1)
    kernel.rule("pread", at_most=9, nth=2)
    assert bytes(file.read(10, 80)) == bytes(range(10, 90))
    assert kernel.calls("preadv2") == 2
    assert kernel.calls("pread") == 1 + 8


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.EOPNOTSUPP, errno.EIO])
def test_an_uncached_read_goes_to_the_disk(tmp_path: Path, kernel: FaultyIo, error: int) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    file = RealFiles(kernel.table).open(str(tmp_path / "a"))
    kernel.rule("preadv2", error=error)
    for _ in range(3):
        assert bytes(file.read(10, 80)) == bytes(range(10, 90))
    assert kernel.calls("preadv2") == (1 if error == errno.EOPNOTSUPP else 3)


def test_a_short_cached_read_is_one_call(tmp_path: Path, kernel: FaultyIo) -> None:
    (tmp_path / "a").write_bytes(bytes(300_000))
    file = RealFiles(kernel.table).open(str(tmp_path / "a"))
    assert len(file.read(0, 262_144)) == 262_144
    assert (kernel.calls("preadv2"), kernel.calls("pread")) == (1, 0)
    assert len(file.read(0, 262_145)) == 262_145
    assert (kernel.calls("preadv2"), kernel.calls("pread")) == (1, 1)


def test_other_threads_run_during_an_uncached_read(tmp_path: Path, kernel: FaultyIo) -> None:
    """D6: uncached bytes are read without the GIL, however few they are."""
    (tmp_path / "a").write_bytes(bytes(100))
    file = RealFiles(kernel.table).open(str(tmp_path / "a"))
    kernel.rule("preadv2", error=errno.EAGAIN)
    rule = kernel.rule("pread", delay_ms=PATIENCE * 1000)
    reader = threading.Thread(target=file.read, args=(0, 61))
    reader.start()
    while kernel.hits(rule) == 0:
        time.sleep(0.001)
    assert reader.is_alive()  # it waits while this thread runs
    kernel.release(rule)
    reader.join()


def test_a_failed_sync_is_not_retried_and_names_its_file(tmp_path: Path, kernel: FaultyIo) -> None:
    files = RealFiles(kernel.table)
    file = files.open(str(tmp_path / "a"), write=True, create=True)
    kernel.rule("fdatasync", error=errno.EIO, times=1)
    with pytest.raises(OSError, match="Input/output") as caught:
        files.fdatasync(file)
    assert caught.value.filename == str(tmp_path / "a")
    assert kernel.calls("fdatasync") == 1


def test_a_file_system_without_preallocation_is_accepted(tmp_path: Path, kernel: FaultyIo) -> None:
    file = RealFiles(kernel.table).open(str(tmp_path / "a"), write=True, create=True)
    kernel.rule("fallocate", error=errno.EOPNOTSUPP)
    file.preallocate(0, 1 << 20)
    file.write(b"x", 0)
    assert (tmp_path / "a").read_bytes() == b"x"
