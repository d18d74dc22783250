"""A directory or fifo in place of a log.dir's own file: an error names it, and no call blocks."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog.errors import CorruptData, UnknownTopicOrPartition
from klog.inspect.files import ROOT_CHECKPOINTS

OPENED = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
          "klog-topics.json")  # fmt: skip


def a_log_dir(directory: Path) -> Path:
    with klog.open(directory, create=True) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": 2000})
        for number in range(50):
            logs.log("t").append([(b"k%d" % (number % 5), b"v" * 100)])
    return directory


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "directory"])
@pytest.mark.parametrize("name", OPENED)
def test_open_names_a_directory_or_fifo_in_place_of_a_file(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """Fault 28."""
    path = a_log_dir(tmp_path / "data") / name
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises((OSError, CorruptData), match=name) as caught:
        klog.open(tmp_path / "data").close()
    assert "move" in str(caught.value)


def a_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [a_socket, os.mkfifo, a_link_to_nothing], ids=["socket", "fifo", "link"])
@pytest.mark.parametrize(
    "name",
    [*(f"t-0/{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")), "t-0/partition.metadata",
     "t-0/leader-epoch-checkpoint", "meta.properties", "klog-topics.json", *ROOT_CHECKPOINTS],
)  # fmt: skip
def test_a_socket_or_a_link_to_nothing_is_named_and_nothing_else_is_affected(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """A socket cannot be opened, as a device that has gone; and a link to nothing looked like no file."""
    data = a_log_dir(tmp_path / "data")
    with klog.open(data) as logs:
        logs.create_topic("u")
    path = data / name
    path.unlink(missing_ok=True)
    make(path)
    report = klog.verify(data)
    assert str(path) in {problem.path for problem in report.problems}
    with pytest.raises(OSError, match="move it away, then try again") as caught:
        append_and_read(data)
    assert caught.value.filename == str(path)


def append_and_read(data: Path) -> None:
    with klog.open(data) as logs:
        assert logs.log("u").append([(b"k", b"v")]).first_offset == 0
        try:
            list(logs.log("t").read())
        finally:
            assert logs.offline_directories == {}


@pytest.mark.parametrize(
    "make", [os.mkfifo, Path.touch, lambda path: path.symlink_to("t-0")], ids=["fifo", "file", "link"]
)
def test_a_topic_whose_directory_cannot_be_made_leaves_what_is_there(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    data = a_log_dir(tmp_path / "data")
    make(data / "new-1")
    before = os.lstat(data / "new-1")
    with klog.open(data) as logs:
        with pytest.raises(FileExistsError, match="move away what is there, .*new-1"):
            logs.create_topic("new", 2)
        assert (logs.topics(), logs.offline_directories) == ({"t": [0]}, {})
        assert logs.log("t").append([(b"k", b"v")]).first_offset == 50
    assert os.lstat(data / "new-1").st_ino == before.st_ino and not (data / "new-0").exists()
    assert klog.verify(data).ok


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "directory"])
def test_compact_names_a_directory_or_fifo_in_place_of_the_checkpoint(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """Fault 28: the error text tells the user what to do, the log can still be used, and compact() works after the file
    is removed."""
    with klog.open(a_log_dir(tmp_path / "data")) as logs:
        log, path = logs.log("t"), tmp_path / "data" / "cleaner-offset-checkpoint"
        make(path)
        with pytest.raises(OSError, match="move .* away, then try again") as caught:
            log.compact(roll=True)
        assert str(path) in str(caught.value)
        assert log.append([(b"k", b"v")]).first_offset == 50
        path.rename(tmp_path / "moved away")
        assert log.compact(roll=True).rounds == 1


def test_a_partition_that_is_a_link_is_not_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The lock and the checkpoints beside the link are not those of the directory."""
    data, other = a_log_dir(tmp_path / "data"), tmp_path / "other"
    other.mkdir()
    link = data / "t-0"
    link.rename(other / "t-0")
    link.symlink_to(other / "t-0")
    with klog.open(data) as logs:
        assert logs.topics() == {} and str(link) in caplog.text
        with pytest.raises(OSError, match=r"Open the log\.dir of that directory") as caught:
            logs.log("t")
        assert caught.value.filename == str(link)
        with klog.open(other) as owner:
            assert owner.log("t").append([(b"k", b"v")]).first_offset == 50
    with klog.open([data, other]) as logs, pytest.raises(OSError, match="a symbolic link"):
        logs.log("t")
    with klog.open(data, read_only=True) as logs:
        assert logs.log("t").log_end_offset == 51
    assert str(link) in str(klog.verify(data).notes)


@pytest.mark.parametrize("target", ["nowhere", "u-0"], ids=["nothing", "circle"])
def test_a_link_to_no_directory_leaves_the_others_readable(tmp_path: Path, target: str) -> None:
    data = a_log_dir(tmp_path / "data")
    (data / "u-0").symlink_to(target)
    with klog.open(data) as logs:
        assert logs.topics() == {"t": [0]}
        with pytest.raises((UnknownTopicOrPartition, OSError), match="u"):
            logs.log("u")
    report = klog.verify(data)
    assert report.ok and str(data / "u-0") in str(report.notes)


@pytest.mark.parametrize("make", [a_socket, a_link_to_nothing, os.mkdir], ids=["socket", "link", "directory"])
def test_verify_names_a_lock_that_no_process_can_take(tmp_path: Path, make: Callable[[Path], None]) -> None:
    lock = a_log_dir(tmp_path / "data") / ".lock"
    lock.unlink(missing_ok=True)
    make(lock)
    with pytest.raises(OSError, match="move it away") as caught:
        klog.open(tmp_path / "data")
    assert caught.value.filename == str(lock)
    assert [problem.path for problem in klog.verify(tmp_path / "data").problems] == [str(lock)]
