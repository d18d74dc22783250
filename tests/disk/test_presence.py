"""A path that cannot be checked is not reported as missing; a file that was written or replaced has another state."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from klog.disk import DirectoryLock, exists, file_state, is_directory


def failing(*_args: object, **_options: object) -> Any:
    raise OSError(errno.EIO, "Input/output error")


def test_they_answer_as_os_path_does(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for path in (tmp_path, tmp_path / "file", tmp_path / "link", tmp_path / "gone", tmp_path / "file" / "below"):
        assert exists(str(path)) == os.path.exists(path)
        assert exists(str(path), follow_symlinks=False) == os.path.lexists(path)
        assert is_directory(str(path)) == os.path.isdir(path)
    (tmp_path / "to").symlink_to(tmp_path)
    assert is_directory(str(tmp_path / "to")) and not is_directory(str(tmp_path / "to"), follow_symlinks=False)


def test_a_disk_that_cannot_be_read_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "stat", failing)
    for ask in (exists, is_directory):
        with pytest.raises(OSError, match="dmesg") as raised:
            ask(str(tmp_path))
        assert raised.value.filename == str(tmp_path)


def test_a_lock_that_cannot_be_checked_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", failing)
        with pytest.raises(OSError, match="Input/output") as raised:
            DirectoryLock(str(tmp_path))
        assert raised.value.filename == str(tmp_path / ".lock")
    DirectoryLock(str(tmp_path)).release()


def test_a_file_that_was_written_or_replaced_has_another_state(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert file_state(str(path)) is None
    path.write_bytes(b"12")
    os.utime(path, ns=(1, 1))
    states = [file_state(str(path))]
    with open(path, "rb") as file:
        assert file_state(file.fileno()) == states[0]
    path.write_bytes(b"1")
    os.utime(path, ns=(1, 1))
    states.append(file_state(str(path)))
    os.utime(path, ns=(1, 2))
    states.append(file_state(str(path)))
    (tmp_path / "other").write_bytes(b"1")
    os.utime(tmp_path / "other", ns=(1, 2))
    (tmp_path / "other").replace(path)
    states.append(file_state(str(path)))
    assert len(set(states)) == 4
