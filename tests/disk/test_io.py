"""LogFile and AlignedBuffer: short reads, lifetimes of buffers, paths that are not regular files."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.disk import AlignedBuffer, LogFile, RealFiles
from klog.disk._direct import DirectFile
from klog.disk._directory import DirectoryPass
from tests.support.child import in_child


def address(buffer: AlignedBuffer) -> int:
    """The address of its bytes: the first field of a Py_buffer."""
    raw = (ctypes.c_ssize_t * 32)()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes = [ctypes.c_void_p]
    get(buffer, ctypes.byref(raw), 0)
    start = raw[0]
    release(ctypes.byref(raw))
    return start


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 100_000, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_buffer_begins_on_a_page(size: int) -> None:
    buffer = AlignedBuffer(size)
    assert len(buffer) == size
    assert memoryview(buffer).nbytes == size
    assert address(buffer) % 4096 == 0


def test_a_buffer_that_is_one_of_many_is_not_reused_as_a_page() -> None:
    """It begins at a multiple of 64: direct I/O would refuse it, and fall back for good."""
    size = 1 << 20
    kept = [AlignedBuffer(size) for _ in range(20)]  # all that are kept for reuse
    many = [AlignedBuffer(size, True) for _ in range(20)]
    assert any(address(buffer) % 4096 for buffer in many)
    del many
    kept += [AlignedBuffer(size) for _ in range(20)]
    assert not any(address(buffer) % 4096 for buffer in kept)


def test_buffer_is_read_only_and_has_no_negative_size() -> None:
    view = memoryview(AlignedBuffer(10))
    assert view.readonly
    with pytest.raises(ValueError, match="negative"):
        AlignedBuffer(-1)


def test_a_view_keeps_its_buffer(tmp_path: Path) -> None:
    """Freed buffers are reused by the next read: a view of the old one must not see its bytes."""
    path = tmp_path / "f"
    path.write_bytes(b"a" * 5000 + b"b" * 5000)
    file = RealFiles().open(str(path))
    view = memoryview(file.read(0, 5000))
    others = [bytes(file.read(5000, 5000)) for _ in range(20)]
    assert bytes(view) == b"a" * 5000
    assert set(others) == {b"b" * 5000}


def test_a_pooled_buffer_has_the_requested_length(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 9000)
    file = RealFiles().open(str(path))
    for size in (9000, 7, 4096, 1, 8192) * 4:
        assert len(file.read(0, size)) == size


@pytest.mark.parametrize("size", [10, 20_000, 200_000])
def test_short_read_at_the_end_of_the_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    data = os.urandom(size)
    path.write_bytes(data)
    file = RealFiles().open(str(path))
    assert bytes(file.read(0, size)) == data
    assert bytes(file.read(0, size + 100)) == data
    assert bytes(file.read(size - 3, 100)) == data[-3:]
    assert bytes(file.read(size, 100)) == b""
    assert bytes(file.read(size + 5, 100)) == b""


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000])
def test_write_writes_all_bytes_at_a_position(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    file = RealFiles().open(str(path), write=True, create=True)
    data = os.urandom(size)
    file.write(b"....", 0)
    file.write(data, 2)
    assert path.read_bytes() == (b".." + data).ljust(4, b".")


def test_writing_to_a_read_only_file_raises_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"data")
    file = RealFiles().open(str(path))
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        file.write(b"x", 0)
    assert caught.value.filename == str(path)


def test_closing_twice_is_allowed_and_later_use_raises_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"data")
    file = RealFiles().open(str(path), write=True)
    fd = file.fileno()
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    for use in (lambda: file.read(0, 1), lambda: file.write(b"x", 0), file.fileno):
        with pytest.raises(ValueError, match="f is closed"):
            use()


def test_a_forgotten_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"data")
    file: LogFile | None = RealFiles().open(str(path))
    assert file is not None
    fd = file.fileno()
    file = None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_preallocation_allocates_blocks_and_keeps_the_length(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = RealFiles().open(str(path), write=True, create=True)
    file.write(b"data", 0)
    file.preallocate(4, 1 << 20)
    assert path.stat().st_size == 4
    assert path.stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("write", [False, True])
def test_only_regular_files_are_opened(tmp_path: Path, write: bool) -> None:
    """Opening a FIFO would block forever; a symbolic link could lead out of the log.dir."""
    files = RealFiles()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for name in ("fifo", "directory", "link", "socket"):
            with pytest.raises(OSError) as caught:
                files.open(str(tmp_path / name), write=write)
            assert caught.value.filename == str(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        files.open(str(tmp_path / "nothing"), write=write)


@pytest.mark.parametrize(
    "construct",
    [
        lambda: LogFile("0", "f"),  # type: ignore[arg-type]
        lambda: LogFile(-1, 5),  # type: ignore[arg-type]
        lambda: LogFile(-1),  # type: ignore[call-arg]
        lambda: DirectFile(-1, "f", direct="0"),  # type: ignore[arg-type]
        lambda: DirectFile("0", "f"),  # type: ignore[arg-type]
        lambda: DirectoryPass("a\0b"),
        lambda: DirectoryPass(b"a"),  # type: ignore[arg-type]
        lambda: DirectoryPass("/nothing/of/this/name"),
    ],
)
def test_a_failed_construction_closes_no_descriptor(construct: Callable[[], object]) -> None:
    """The fields of a native object are zero until it is constructed, and 0 is a descriptor."""

    def descriptors() -> tuple[bool, bool]:
        before = os.dup(0)
        with pytest.raises((TypeError, ValueError, OSError)):
            construct()
        return before >= 0, os.fstat(0) == os.fstat(before)

    assert in_child(descriptors) == (True, True)
