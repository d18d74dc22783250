"""RealFiles: replacing whole files, and errors that name the path."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import weakref
from pathlib import Path

import pytest

from klog.disk import LogFile, NewFile, RealFiles
from tests.support.crash_files import CrashFiles


def test_replace_leaves_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    files = RealFiles()
    files.replace(str(path), b"first")
    assert path.read_bytes() == b"first"
    files.replace(str(path), b"2")
    assert path.read_bytes() == b"2"
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_replace_syncs_the_file_then_the_directory(tmp_path: Path) -> None:
    """S5: fsync(temporary), rename, fsync(directory); a power cut between any two leaves the old file or the new."""
    seen: list[tuple[str, str | None]] = []
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")

    class Watched(RealFiles):
        def fsync(self, file: LogFile) -> None:
            seen.append(("fsync " + os.path.basename(file.path), path.read_text()))
            super().fsync(file)

        def fsync_dir(self, directory: str) -> None:
            seen.append(("fsync_dir " + directory, path.read_text()))
            super().fsync_dir(directory)

    Watched().replace(str(path), b"new")
    assert seen == [("fsync checkpoint.tmp", "old"), (f"fsync_dir {tmp_path}", "new")]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_replacement_that_fails_keeps_the_old_file(tmp_path: Path, error: BaseException) -> None:
    class Full(RealFiles):
        def fsync(self, file: LogFile) -> None:
            raise error

    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        Full().replace(str(path), b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["checkpoint"]
    (tmp_path / "checkpoint.tmp").write_bytes(b"left by a crash")
    RealFiles().replace(str(path), b"newer")
    assert path.read_bytes() == b"newer"
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_a_leftover_temporary_symlink_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "checkpoint.tmp").symlink_to(victim)
    RealFiles().replace(str(tmp_path / "checkpoint"), b"new")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "checkpoint").read_bytes() == b"new"
    assert not (tmp_path / "checkpoint").is_symlink()


def test_truncate_sets_the_length(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcdef")
    files = RealFiles()
    file = files.open(str(path), write=True)
    files.truncate(file, 2)
    assert path.read_bytes() == b"ab"
    files.truncate(file, 4)
    assert path.read_bytes() == b"ab\0\0"
    files.fsync(file)
    files.fdatasync(file)


def test_unlinking_a_missing_file_does_not_raise(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    files = RealFiles()
    files.unlink(str(path))
    files.unlink(str(path))
    assert not path.exists()


def test_rename_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    files = RealFiles()
    files.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    files.fsync_dir(str(tmp_path))
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == {"b": b"a"}


def test_errors_carry_the_path(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    files = RealFiles()
    with pytest.raises(OSError) as caught:
        files.truncate(files.open(str(path)), 0)  # opened for reading
    assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError):
        files.fsync_dir(str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError):
        files.fsync_dir(str(path))


def test_an_error_with_a_next_step_keeps_no_frame_alive(tmp_path: Path) -> None:
    """Objects in the frames of its traceback, maybe gigabytes, are freed after it has been caught."""

    class Held:
        pass

    def fail() -> weakref.ref[Held]:
        held = Held()
        with contextlib.suppress(FileNotFoundError):
            RealFiles().open(str(tmp_path / "missing"))
        return weakref.ref(held)

    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()


def test_a_new_file_is_on_disk_with_its_name_when_it_is_committed(tmp_path: Path) -> None:
    files = CrashFiles()
    path = str(tmp_path / "file")
    with NewFile(path, files) as file:
        file.write(b"data")
        file.commit()
    assert bytes(files.durable_names[path].durable) == b"data"


def test_an_unreadable_state_of_a_new_file_names_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = str(tmp_path / "file"), os.fstat

    def fails(fd: int) -> os.stat_result:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(path):
            raise OSError(errno.EIO, "Input/output error")
        return real(fd)

    monkeypatch.setattr(os, "fstat", fails)
    with pytest.raises(OSError, match=r"Input/output error; .*file\.tmp"):
        NewFile(path, RealFiles())
