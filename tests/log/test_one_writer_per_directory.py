"""A directory has one writable Log per process, under whatever name it is opened: two would assign an offset twice."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import klog
from klog.disk import Claim, RealFiles
from klog.errors import AlreadyLocked, KlogError, LogClosed
from klog.log import closing, opening
from klog.log.directory import checkpoint
from klog.log.log import Log
from klog.log.state._log_core import LogCore
from tests.support.abandon import abandon
from tests.support.logs import values
from tests.support.patience import PATIENCE


class Text(str):
    """A str subclass."""


def topic(path: Path) -> klog.LogManager:
    logs = klog.open(path, create=True)
    logs.create_topic("t", partitions=2)
    logs.log("t").append([(None, b"first")])
    return logs


ALIASES: dict[str, tuple[Any, Any]] = {
    "partition as str": ("t", "0"),
    "partition as bytes": ("t", b"0"),
    "partition as float": ("t", 0.0),
    "partition as bool": ("t", False),
    "partition None": ("t", None),
    "topic as Path": (Path("t"), 0),
    "topic as bytes": (b"t", 0),
    "topic in the directory": ("./t", 0),
    "topic through the parent": ("../data/t", 0),
    "negative partition": ("t-", -0),
}


@pytest.mark.parametrize("alias", ALIASES, ids=str)
def test_no_other_name_of_a_partition_opens_it_again(tmp_path: Path, alias: str) -> None:
    with topic(tmp_path / "data") as logs:
        with pytest.raises((TypeError, ValueError, KlogError)) as caught:
            logs.log(*ALIASES[alias]).append([(None, b"second")])
        assert not isinstance(caught.value, OSError)
        assert logs.log("t").log_end_offset == 1
    with klog.open(tmp_path / "data") as logs:
        assert values(logs.log("t")) == [b"first"]


@pytest.mark.parametrize("partition", [numpy.int64(0), numpy.uint8(0)], ids=repr)
def test_integer_types_are_the_same_partition(tmp_path: Path, partition: Any) -> None:
    with topic(tmp_path) as logs:
        assert logs.log(Text("t"), partition) is logs.log("t", 0)
        assert list(logs.read(Text("t"), partition=partition)) == list(logs.read("t", partition=0)) != []


def test_a_negative_partition_is_not_another_topic(tmp_path: Path) -> None:
    """`t--1` is the directory of partition 1 of the topic `t-`."""
    with topic(tmp_path) as logs:
        logs.create_topic("t-", partitions=2)
        with pytest.raises(klog.errors.UnknownTopicOrPartition):
            logs.log("t", -1)


def test_an_open_partition_is_not_moved_by_another_name(tmp_path: Path) -> None:
    with klog.open([tmp_path / "one", tmp_path / "two"], create=True) as logs:
        logs.create_topic("t", directory=tmp_path / "one")
        logs.log("t").append([(None, b"first")])
        wrong: Any = "0"
        with pytest.raises(TypeError, match="partition"):
            logs.move("t", wrong, tmp_path / "two")
        assert (tmp_path / "one" / "t-0").is_dir() and not (tmp_path / "two" / "t-0").exists()


def by_the_same_path(path: Path) -> Path:
    return path


def by_a_link(path: Path) -> Path:
    link = path.parent.parent / "links" / "t-0"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(path)
    return link


def by_a_link_of_another_name(path: Path) -> Path:
    link = path.parent.parent / "links" / "u-7"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(path)
    return link


def by_a_link_to_the_parent(path: Path) -> Path:
    link = path.parent.parent / "link"
    link.symlink_to(path.parent, target_is_directory=True)
    return link / path.name


@pytest.mark.parametrize("alias", [by_the_same_path, by_a_link, by_a_link_of_another_name, by_a_link_to_the_parent])
@pytest.mark.parametrize("beside", ["a manager", "another Log.open"])
def test_log_open_of_an_open_directory_is_refused(tmp_path: Path, alias: Callable[[Path], Path], beside: str) -> None:
    manager = topic(tmp_path / "data")
    first = manager.log("t")
    if beside == "another Log.open":
        manager.close()
        first = Log.open(tmp_path / "data" / "t-0")
    path = alias(tmp_path / "data" / "t-0")
    with pytest.raises(AlreadyLocked):
        Log.open(path)
    first.append([(None, b"second")])
    with Log.open(path, read_only=True) as reader:
        assert values(reader) == [b"first", b"second"]
    first.close()
    manager.close()
    with Log.open(path) as again:
        assert values(again) == [b"first", b"second"]
        assert os.path.samefile(again.path, tmp_path / "data" / "t-0") and again.name == "t-0"


def test_a_link_in_the_log_dir_opens_nothing_twice(tmp_path: Path) -> None:
    with topic(tmp_path) as logs:
        (tmp_path / "u-0").symlink_to(tmp_path / "t-0", target_is_directory=True)
        with pytest.raises(OSError, match="a symbolic link"):
            logs.log("u", 0)
        assert logs.log("t").log_end_offset == 1
        (tmp_path / "u-0").unlink()


# ---- a claim ends with its log --------------------------------------------------------------------------------------


def closed(log: Log) -> None:
    log.close()


def abandoned(log: Log) -> None:
    abandon(log)


def without_handlers(log: Log) -> None:
    log.close_handlers()


@pytest.mark.parametrize("end", [closed, abandoned, without_handlers])
def test_a_log_whose_files_are_closed_holds_no_directory(tmp_path: Path, end: Callable[[Log], None]) -> None:
    with topic(tmp_path) as logs:
        before = logs.log("t")
        end(before)
        after = logs.log("t")
        assert after is not before and after.log_end_offset == 1
        with pytest.raises(klog.KlogError):  # its claim is not released twice
            before.append([(None, b"x")])
        before.close() if end is not without_handlers else None
        with pytest.raises(AlreadyLocked):
            Log.open(tmp_path / "t-0")


def test_a_failed_open_holds_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("_load", "_prepare_to_write"):
        with topic(tmp_path / place) as logs:
            logs.log("t").close()
            with monkeypatch.context() as patch:
                patch.setattr(opening, place, lambda log: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    logs.log("t")
            assert logs.log("t").log_end_offset == 1


def test_a_recreated_topic_is_another_directory(tmp_path: Path) -> None:
    """Also where the file system reuses the inode of the old one."""
    with klog.open(tmp_path, create=True, clock=klog.clock.ManualClock()) as logs:
        for _ in range(20):
            logs.create_topic("t", config={"file.delete.delay.ms": 0})
            logs.log("t").append([(None, b"x")])
            assert logs.log("t").log_end_offset == 1
            logs.delete_topic("t")
    with klog.open(tmp_path) as logs:
        for _ in range(20):
            logs.create_topic("u")
            log = logs.log("u")
            log.append([(None, b"x")])
            log.delete()


def test_a_claim_moves_with_the_directory(tmp_path: Path) -> None:
    """Moved to another log.dir, or renamed: the open Log has the new path, and no other can be opened there."""
    clock = klog.clock.ManualClock()
    with klog.open([tmp_path / "one", tmp_path / "two"], create=True, clock=clock) as logs:
        logs.create_topic("t", directory=tmp_path / "one")
        log = logs.log("t")
        log.append([(None, b"x")])
        for target in ("two", "one", "two"):
            logs.move("t", 0, tmp_path / target)
            assert logs.log("t") is log and log.path == str(tmp_path / target / "t-0")
            assert log.append([(None, b"x")]).count == 1
        with pytest.raises(AlreadyLocked, match="t-0"):
            Claim(log.path).take()
        log.rename_dir("v-0")
        with pytest.raises(AlreadyLocked, match="v-0"):
            Claim(log.path).take()
        log.rename_dir("t-0")
        clock.advance(100_000)  # the old directory is removed
        logs.move("t", 0, tmp_path / "one")


def test_a_forked_child_opens_only_directories_that_its_parent_has_closed(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "t-0")
    log.append([(None, b"first")])
    (tried, has_tried), (closed, has_closed) = os.pipe(), os.pipe()

    def is_refused() -> bool:
        try:
            abandon(Log.open(tmp_path / "t-0"))
        except AlreadyLocked:
            return True
        return False

    child = os.fork()
    if child == 0:
        try:
            os.close(has_closed)
            if not is_refused():
                os._exit(1)
            os.write(has_tried, b"x")
            os.read(closed, 1)  # its end: the parent has closed
            with Log.open(tmp_path / "t-0") as mine:
                abandon(log)  # the copy of the parent's log
                if not is_refused():
                    os._exit(2)
                mine.append([(None, b"second")])
            os._exit(0)
        except BaseException:
            os._exit(3)
    os.close(has_tried)
    os.read(tried, 1)
    log.append([(None, b"x")])
    log.close()
    os.close(has_closed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(tried)
    os.close(closed)
    with Log.open(tmp_path / "t-0") as again:
        assert values(again) == [b"first", b"x", b"second"]


def test_a_log_requested_during_its_close_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded after the close has finished: otherwise two Logs would write at the same time."""
    with topic(tmp_path) as logs:
        log = logs.log("t")
        finishing, finish = threading.Event(), threading.Event()
        real = closing._finish_locked

        def slow(log: LogCore) -> None:
            finishing.set()
            finish.wait(PATIENCE)
            real(log)

        monkeypatch.setattr(closing, "_finish_locked", slow)
        closer = threading.Thread(target=log.close)
        closer.start()
        assert finishing.wait(PATIENCE)
        found: list[object] = []

        def ask() -> None:
            try:
                found.append(logs.log("t"))
            except (KlogError, LogClosed) as error:
                found.append(error)

        asker = threading.Thread(target=ask)
        asker.start()
        asker.join(0.2)
        assert not found
        finish.set()
        closer.join(PATIENCE)
        asker.join(PATIENCE)
        (again,) = found
        assert isinstance(again, Log) and again is not log and again.log_end_offset == 1


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
def test_an_open_that_fails_at_its_end_leaves_no_lock(tmp_path: Path, error: BaseException) -> None:
    class Failing(RealFiles):
        def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
            if path.endswith(checkpoint.HIGH_WATERMARK):
                raise error
            super().replace(path, data, private=private)

    Log.open(tmp_path / "t-0").close()
    high_watermarks = tmp_path / checkpoint.HIGH_WATERMARK
    checkpoint.write_offsets(RealFiles(), str(high_watermarks), {("t", 0): 0})
    with pytest.raises(type(error)) as caught:
        Log.open(tmp_path / "t-0", files=Failing())
    Log.open(tmp_path / "t-0").close()
    assert caught.value is error  # and with it every frame of the open
