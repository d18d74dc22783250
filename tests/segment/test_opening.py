"""read_heads(), which reads the beginnings of segments. tests/log/test_clean_ends.py tests the end of the last one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.segment import names, read_heads, settled_end


def write(directory: Path, base: int, data: bytes) -> tuple[int, int, int]:
    path = directory / names.file_name(base, names.LOG)
    path.write_bytes(data)
    return len(data), path.stat().st_ino, int.from_bytes(data[:8]) if len(data) >= 8 else -1


@pytest.mark.parametrize("drop", [False, True])
def test_sizes_inodes_and_first_bytes(tmp_path: Path, drop: bool) -> None:
    wanted = [write(tmp_path, base, base.to_bytes(8) * (base % 7)) for base in range(200)]
    assert read_heads(str(tmp_path), list(range(200)), drop) == wanted
    assert read_heads(str(tmp_path), [], drop) == []
    (tmp_path / names.file_name(3, names.LOG)).write_bytes(b"short")
    assert read_heads(str(tmp_path), [3], drop)[0][2] == -1


def test_errors_name_the_file(tmp_path: Path) -> None:
    for base in range(100):
        write(tmp_path, base, bytes(8))
    path = tmp_path / names.file_name(77, names.LOG)
    path.unlink()
    with pytest.raises(FileNotFoundError) as missing:
        read_heads(str(tmp_path), list(range(100)), False)
    assert missing.value.filename == str(path)
    for make in (
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to(tmp_path / names.file_name(1, names.LOG)),
    ):
        make()
        with pytest.raises(OSError) as wrong:
            read_heads(str(tmp_path), list(range(100)), False)
        assert wrong.value.filename == str(path)
        assert settled_end(str(tmp_path), 77) is None
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_paths_that_are_too_long_are_refused() -> None:
    with pytest.raises(OSError, match="too long"):
        read_heads("/" + "d" * 5000, [0], False)
    assert settled_end("/" + "d" * 5000, 0) is None
