"""Another directory takes the place of a log.dir that is open for writing: a backup is restored, a link is set to another
directory. Its lock is not held, so nothing may be written there, and nothing may be acknowledged that is not in the log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog import KlogError, LogManager


def _rename(data: Path) -> None:
    other = data.with_name("copy")
    shutil.copytree(data, other, symlinks=True)
    data.rename(data.with_name("old"))
    other.rename(data)


def _link(data: Path) -> None:
    real = data.resolve()
    other = real.with_name("other")
    shutil.copytree(real, other)
    data.unlink()
    data.symlink_to(other)


PLACES = {"rename": _rename, "link": _link}


def _files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def _data(tmp_path: Path, how: str) -> Path:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k%d" % number, b"v") for number in range(10)])
    if how == "link":
        (tmp_path / "link").symlink_to("data")
        return tmp_path / "link"
    return tmp_path / "data"


OPERATIONS: dict[str, Callable[[LogManager], object]] = {
    "append": lambda logs: logs.append("t", [(b"k", b"new")]),
    "roll": lambda logs: logs.log("t").roll(),
    "truncate": lambda logs: logs.log("t").truncate_to(5),
    "delete records": lambda logs: logs.log("t").delete_records(5),
    "create a topic": lambda logs: logs.create_topic("u"),
    "delete a topic": lambda logs: logs.delete_topic("t"),
    "configure": lambda logs: logs.alter_topic("t", {"retention.ms": 5}),
}


@pytest.mark.parametrize("how", PLACES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nothing_is_written_to_it(operation: str, how: str, tmp_path: Path) -> None:
    data = _data(tmp_path, how)
    logs = klog.open(data)
    logs.log("t")
    PLACES[how](data)
    before = _files(data)
    with pytest.raises((OSError, KlogError), match="another directory is there now"):
        OPERATIONS[operation](logs)
    assert _files(data) == before
    with pytest.raises(OSError, match="another directory is there now"):
        logs.close()
    assert _files(data) == before
    with klog.open(data) as logs:  # the lock of the other one is free
        assert logs.log("t").log_end_offset == 10


@pytest.mark.parametrize("how", PLACES)
def test_no_log_is_loaded_from_it(how: str, tmp_path: Path) -> None:
    """A load may cut a torn tail."""
    data = _data(tmp_path, how)
    logs = klog.open(data)
    PLACES[how](data)
    os.truncate(data / "t-0" / f"{0:020d}.log", 150)
    before = _files(data)
    with pytest.raises(OSError, match="another directory is there now"):
        logs.log("t")
    with pytest.raises(OSError, match="another directory is there now"):
        logs.close()
    assert _files(data) == before


@pytest.mark.parametrize("how", PLACES)
def test_a_stop_does_not_mark_it_as_clean(how: str, tmp_path: Path) -> None:
    data = _data(tmp_path, how)
    logs = klog.open(data)
    PLACES[how](data)
    before = _files(data)
    with pytest.raises(OSError, match="another directory is there now"):
        logs.close()
    assert _files(data) == before


@pytest.mark.parametrize("how", PLACES)
@pytest.mark.parametrize("closed_only", [False, True])
def test_nor_by_a_log_that_is_open_alone(closed_only: bool, how: str, tmp_path: Path) -> None:
    data = _data(tmp_path, how)
    log = klog.Log.open(data / "t-0")
    PLACES[how](data)
    before = _files(data)
    if not closed_only:
        with pytest.raises(OSError, match="another directory is there now"):
            log.append([(b"k", b"new")])
        log.close()
    else:
        with pytest.raises(OSError, match="another directory is there now"):
            log.close()
    assert _files(data) == before


@pytest.mark.parametrize("size", [None, 0, 100])
def test_a_segment_that_was_cut_since_the_load_takes_no_appends(size: int | None, tmp_path: Path) -> None:
    """The first append opens the file. It wrote beyond the end, after a hole of zeros."""
    data = _data(tmp_path, "rename")
    logs = klog.open(data)
    log = logs.log("t")
    path = Path(log.segments[0].path)
    if size is None:
        path.unlink()
    else:
        os.truncate(path, size)
    with pytest.raises(OSError, match="lost|No such file"):
        log.append([(b"k", b"new")])
    assert (path.stat().st_size if path.exists() else None) == size
    with pytest.raises(OSError, match="lost|No such file"):
        logs.close()
