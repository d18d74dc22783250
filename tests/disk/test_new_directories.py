"""Names of new directories survive a power cut, whatever a killed process has left."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.disk import RealFiles, make_directories
from tests.support.crash_files import CrashFiles, dying


def _missing_after_a_cut(files: CrashFiles, root: Path, out: Path) -> list[str]:
    """The states of a power cut now in which root/a/b/c is not a directory."""
    return [name for name, at in files.states(root, out, 0) if not (at / "a/b/c").is_dir()]


@pytest.mark.parametrize("dies", range(7))
def test_every_name_is_on_disk_before_one_is_made_below_it(tmp_path: Path, dies: int) -> None:
    """A first process dies anywhere; then a second one makes the same directories, and a file that it syncs."""
    root, path = tmp_path / "run", str(tmp_path / "run/a/b/c")
    root.mkdir()
    files = CrashFiles()
    files.keep(root)
    with dying(files, dies):
        make_directories(path, files)
    make_directories(path, files)
    files.replace(f"{path}/file", b"x")
    assert _missing_after_a_cut(files, root, tmp_path / "states") == []


@pytest.mark.parametrize("dies", range(12))
def test_a_new_log_dir_is_there_after_a_kill_and_a_power_cut(tmp_path: Path, dies: int) -> None:
    root, path = tmp_path / "run", tmp_path / "run/a/b/c"
    root.mkdir()
    files = CrashFiles()
    files.keep(root)
    with dying(files, dies):
        klog.open(path, create=True, files=files).abandon()
    with klog.open(path, create=True, files=files) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
        logs.log("t").flush()
        for name, at in files.states(root, tmp_path / "states", 0):
            with klog.open(at / "a/b/c") as again:
                assert [record.value for record in again.read("t")] == [b"v"], name


def test_the_mode_is_that_of_the_last_one_and_what_exists_stays(tmp_path: Path) -> None:
    make_directories(str(tmp_path / "a/b"), RealFiles(), 0o700)
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a").stat().st_mode & 0o077
    make_directories(str(tmp_path / "a/b"), RealFiles())
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700


def test_a_file_in_the_way_raises(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError):
        make_directories(str(tmp_path / "a/b"), RealFiles())
