"""Gathered writes, zeros and writeback of a LogFile: all bytes or an error, whatever the kernel returns."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.disk import LogFile, RealFiles
from tests.support.faulty_io import FaultyIo


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def new_file(tmp_path: Path, kernel: FaultyIo) -> LogFile:
    return RealFiles(kernel.table).open(str(tmp_path / "a"), write=True, create=True)


@pytest.mark.parametrize("size", [1, 3000, 40_000])
@pytest.mark.parametrize("count", [0, 1, 3, 1500])
def test_parts_are_written_in_sequence(tmp_path: Path, kernel: FaultyIo, size: int, count: int) -> None:
    """Also more parts than one call accepts; empty parts do not end it."""
    parts = [os.urandom(size if number % 3 else 0) for number in range(count)]
    file = new_file(tmp_path, kernel)
    assert file.write_parts([bytearray(part) for part in parts], 5) == sum(map(len, parts))
    assert (tmp_path / "a").read_bytes()[5:] == b"".join(parts)
    assert kernel.calls("pwrite") == 0
    assert kernel.calls("pwritev2") <= 2


def test_interrupted_and_short_gathered_writes_continue(tmp_path: Path, kernel: FaultyIo) -> None:
    kernel.rule("pwritev2", error=errno.EINTR, times=1)
    kernel.rule("pwritev2", at_most=7, nth=2)
    parts = [bytes(range(100)), b"", bytes(range(100, 150))]
    assert new_file(tmp_path, kernel).write_parts(parts, 0) == 150
    assert (tmp_path / "a").read_bytes() == bytes(range(150))


@pytest.mark.parametrize("refusal", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_flags_that_are_refused_after_some_bytes_lose_none(tmp_path: Path, kernel: FaultyIo, refusal: int) -> None:
    kernel.rule("pwritev2", at_most=7, times=1)
    kernel.rule("pwritev2", error=refusal, nth=2, times=1)
    file = new_file(tmp_path, kernel)
    file.dont_cache()
    assert file.write_parts([bytes(range(100)), bytes(range(100, 150))], 0) == 150
    assert (tmp_path / "a").read_bytes() == bytes(range(150))
    assert file.fallback and kernel.calls("pwritev2") == 3
    file.write_parts([b"more"], 150)
    assert (tmp_path / "a").read_bytes() == bytes(range(150)) + b"more"


def test_a_full_disk_during_a_gathered_write_raises_with_the_path(tmp_path: Path, kernel: FaultyIo) -> None:
    """F15: the first part is written, the second is not; the caller knows the position."""
    kernel.rule("pwritev2", at_most=10, times=1)
    kernel.rule("pwritev2", error=errno.ENOSPC, nth=2)
    with pytest.raises(OSError, match="No space") as caught:
        new_file(tmp_path, kernel).write_parts([b"a" * 10, b"b" * 10], 0)
    assert caught.value.filename == str(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"a" * 10


def test_a_non_buffer_raises_and_writes_nothing(tmp_path: Path, kernel: FaultyIo) -> None:
    good = bytearray(b"good")
    with pytest.raises(TypeError):
        new_file(tmp_path, kernel).write_parts([good, "text"], 0)  # type: ignore[list-item]
    good.clear()  # no view of it remains
    assert (tmp_path / "a").read_bytes() == b""


@pytest.mark.parametrize("size", [0, 1, 16 << 10, (16 << 10) + 1, (3 << 20) + 7])
def test_zeros_are_written_and_extend_the_file(tmp_path: Path, kernel: FaultyIo, size: int) -> None:
    file = new_file(tmp_path, kernel)
    file.write(b"data", 0)
    file.preallocate(4, size, zeros=True)
    assert (tmp_path / "a").read_bytes() == b"data" + bytes(size)
    assert kernel.calls("fallocate") == 0


def test_zeros_that_do_not_fit_raise(tmp_path: Path, kernel: FaultyIo) -> None:
    """F15."""
    kernel.rule("pwritev2", error=errno.ENOSPC, nth=2)
    with pytest.raises(OSError, match="No space"):
        new_file(tmp_path, kernel).preallocate(0, 3 << 20, zeros=True)


def test_writeback_raises_errors(tmp_path: Path, kernel: FaultyIo) -> None:
    """F19."""
    file = new_file(tmp_path, kernel)
    file.write(b"x" * 10_000, 0)
    file.write_behind(0, 8192)
    file.write_behind(0, 8192, wait=True)
    assert kernel.calls("sync_file_range") == 2
    kernel.rule("sync_file_range", error=errno.EIO, times=1)
    with pytest.raises(OSError, match="Input/output") as caught:
        file.write_behind(0, 8192, wait=True)
    assert caught.value.filename == str(tmp_path / "a")
    assert kernel.calls("sync_file_range") == 3  # S4: asked once


def test_refused_advice_does_not_raise(tmp_path: Path, kernel: FaultyIo) -> None:
    file = new_file(tmp_path, kernel)
    kernel.rule("fadvise", error=errno.EINVAL)
    file.advise(0, 0, os.POSIX_FADV_DONTNEED)
    assert kernel.calls("fadvise") == 1


def test_a_closed_file_refuses_every_call(tmp_path: Path, kernel: FaultyIo) -> None:
    file = new_file(tmp_path, kernel)
    file.close()
    with pytest.raises(ValueError, match="is closed"):
        file.write_parts([b"x"], 0)
