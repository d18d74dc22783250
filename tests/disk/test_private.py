"""Files that only their owner may read: the mode is never wider than 0600, they are replaced as a whole, and klog refuses
to read them if others could."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.disk import RealFiles, read_private
from tests.support.failing_files import FailingFiles


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_may_read_the_file(tmp_path: Path, umask: int) -> None:
    path, before = str(tmp_path / "keys.json"), os.umask(umask)
    try:
        RealFiles().replace(path, b"one", private=True)
        RealFiles().replace(path, b"two", private=True)
    finally:
        os.umask(before)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert read_private(path) == b"two"
    assert os.listdir(tmp_path) == ["keys.json"]


def test_a_file_that_others_may_read_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b"keys")
    for mode in (0o640, 0o604, 0o620, 0o601):
        path.chmod(mode)
        with pytest.raises(PermissionError, match="chmod 600") as caught:
            read_private(str(path))
        assert caught.value.filename == str(path)


def test_a_link_is_not_a_private_file(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "keys.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        read_private(str(tmp_path / "keys.json"))


def test_a_file_that_is_missing_is_none(tmp_path: Path) -> None:
    assert read_private(str(tmp_path / "keys.json")) is None


def test_the_old_content_stays_when_an_operation_fails(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
    RealFiles().replace(path, b"old", private=True)
    failed = []
    for nth in range(1, 10):
        files = FailingFiles(nth)
        try:
            files.replace(path, b"new", private=True)
        except OSError:
            failed += files.failed
            assert read_private(path) == (b"new" if files.failed == ["fsync_dir"] else b"old")
            RealFiles().replace(path, b"old", private=True)
            assert os.listdir(tmp_path) == ["keys.json"]
        else:
            break
    assert set(failed) == {"replace", "fsync", "fsync_dir"}
