"""remove_tree() removes a directory with its content, and no target of a link."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from klog.disk import RealFiles
from klog.disk.removal import remove_tree


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "file").write_bytes(b"")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for path in ("tree", "link", "gone", "kept/file"):
        remove_tree(str(tmp_path / path), RealFiles())
    assert sorted(os.listdir(tmp_path)) == ["kept", "link"]
    assert os.listdir(tmp_path / "kept") == ["file"]


def test_an_entry_that_cannot_be_removed_is_named_with_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree" / "inner").mkdir(parents=True)

    def refuse(path: str, **_options: object) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(OSError, match="dmesg") as raised:
        remove_tree(str(tmp_path / "tree"), RealFiles())
    assert raised.value.filename == str(tmp_path / "tree" / "inner")
