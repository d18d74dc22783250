"""exists() and is_directory(): a path that cannot be checked is not reported as missing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from klog.disk import DirectoryLock, exists, is_directory


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
