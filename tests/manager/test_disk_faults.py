"""One of two disks fails: the effect of each error on the directory on it; the other directory works.

offline     the directory accepts no call until the next start; the partitions in other directories work
refused     that call failed, the directory stays in use
went on     no effect
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles, os_error
from klog.errors import StorageOffline
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.failing_files import FailingFiles
from tests.support.faulty_io import FaultyIo

CONFIG = {"segment.bytes": 1500, "retention.bytes": 1000, "cleanup.policy": "delete"}
RAN_OUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE)
BROKEN = (errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOENT, errno.ENOTDIR, errno.ENXIO)
OPERATIONS: dict[str, Callable[[klog.Log], Any]] = {
    "append": lambda log: log.append([(b"k", b"no")]),
    "append and roll": lambda log: log.append([(b"k", b"n" * 800)] * 2),
    "roll": lambda log: log.roll(),
    "flush": lambda log: log.flush(),
    "retention": lambda log: log.apply_retention(),
    "truncate": lambda log: log.truncate_to(1),
}

FAILS = {
    "append": "write",
    "append and roll": "open",
    "roll": "replace",
    "flush": "fsync",
    "retention": "rename",
    "truncate": "truncate",
}


def expected(operation: str, error: int) -> str:
    if operation in ("flush", "truncate"):  # S2: a sync error is final, as is a failure half-way through a truncation
        return "offline"
    if operation == "retention":  # frees space: if a rename gets ENOSPC, it unlinks
        return "went on" if error in (errno.ENOSPC, errno.EDQUOT) else "offline"
    return "offline" if error in BROKEN else "refused"


@pytest.mark.parametrize("error", [*RAN_OUT, *BROKEN], ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_other_directory_works(tmp_path: Path, operation: str, error: int) -> None:
    """F15, F18, F19, F21, F29."""
    paths = [tmp_path / "a", tmp_path / "b"]
    files = FailingFiles(error=error)
    logs = klog.open(paths, create=True, clock=ManualClock(NOW), files=files, config=CONFIG)
    logs.create_topic("t", partitions=4, config=CONFIG)  # 0 and 2 in a, 1 and 3 in b
    held = [logs.log("t", number) for number in range(4)]
    for log in held:
        for _ in range(5):
            log.append([(b"k", b"v" * 700)])
    files.only = (FAILS[operation],)
    files.nth = files.calls + 1
    if expected(operation, error) == "went on":
        OPERATIONS[operation](held[0])
        assert files.failed
    else:
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            OPERATIONS[operation](held[0])
        assert caught.value.errno == error
        assert str(caught.value.filename).startswith(str(paths[0])) and "; " in str(caught.value.strerror)
    files.nth = 0
    if expected(operation, error) == "offline":
        assert list(logs.offline_directories) == [str(paths[0])]
        for number in (0, 2):
            with pytest.raises(StorageOffline, match="offline"):
                held[number].append([(b"k", b"no")])
    else:
        assert logs.offline_directories == {}
        OPERATIONS[operation](held[0])
        assert held[2].append([(b"k", b"on")]).first_offset == 5
    for number in (1, 3):
        assert held[number].append([(b"k", b"on")]).first_offset == 5
        assert held[number].count() == 6
    if logs.offline_directories:
        with pytest.raises(OSError, match=str(paths[0])):
            logs.close()
    else:
        logs.close()
    with klog.open(paths, clock=ManualClock(NOW)) as again:
        assert [again.log("t", number).count() for number in (1, 3)] == [6, 6]
        if operation != "truncate":
            assert again.log("t", 0).count() >= (1 if operation == "retention" else 5)
            assert again.log("t", 2).count() >= 5


class FailsDuringAnUndo(RealFiles):
    """While a failed append to a log is undone, a flush of another log fails."""

    other: klog.Log | None = None

    def truncate(self, file: LogFile, size: int) -> None:
        super().truncate(file, size)
        if self.other is not None and "/t-0/" in file.path:
            with pytest.raises(OSError, match="Input/output error"):
                self.other.flush()
            self.other = None

    def fdatasync(self, file: LogFile) -> None:
        if self.other is not None and "/t-1/" in file.path:
            raise os_error(errno.EIO, file.path, sync=True)
        super().fdatasync(file)


def test_an_undo_leaves_a_log_offline_that_another_log_has_taken_offline_meanwhile(tmp_path: Path) -> None:
    with FaultyIo() as io:
        files = FailsDuringAnUndo(io.table)
        logs = klog.open(tmp_path, create=True, files=files)
        logs.create_topic("t", partitions=2)
        log, files.other = logs.log("t", 0), logs.log("t", 1)
        for each in (log, files.other):
            each.append([(b"k", b"v")])
        io.rule("pwrite", error=errno.ENOSPC, times=1)
        with pytest.raises(OSError, match="No space"):
            log.append([(b"k", b"w")])
        assert files.other is None and log.offline is not None
        with pytest.raises(StorageOffline):
            log.append([(b"k", b"x")])
        abandon(logs)


class FailsBeside(RealFiles):
    """When a file or directory of a partition gets its name, a flush of another log of the same log.dir fails."""

    other: klog.Log | None = None

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def _named(self, path: str) -> None:
        if self.other is not None and path.endswith(self.name):
            other = self.other
            with pytest.raises(OSError, match="Input/output error"):
                other.flush()
            self.other = None

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        super().replace(path, data, private=private)
        self._named(path)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._named(target)

    def fdatasync(self, file: LogFile) -> None:
        if self.other is not None and file.path.startswith(self.other.path):
            raise os_error(errno.EIO, file.path, sync=True)
        super().fdatasync(file)


@pytest.mark.parametrize("directories", [1, 2])
def test_a_log_that_is_loaded_while_its_directory_fails_is_offline(tmp_path: Path, directories: int) -> None:
    """P6. A directory that is offline writes no checkpoint, so a truncation or delete_records there would not last."""
    files = FailsBeside("/t-1/leader-epoch-checkpoint")
    paths = [tmp_path / "a", tmp_path / "b"][:directories]
    logs = klog.open(paths, create=True, clock=ManualClock(NOW), files=files)
    logs.create_topic("t", partitions=2, directory=paths[0])
    files.other = logs.log("t", 0)
    files.other.append([(b"k", b"v")])
    log = logs.log("t", 1)
    assert files.other is None and list(logs.offline_directories) == [str(paths[0])]
    assert log.offline is not None
    with pytest.raises(StorageOffline):
        log.append([(b"k", b"v")])
    abandon(logs)


def test_a_log_that_moves_to_a_directory_that_fails_meanwhile_is_offline(tmp_path: Path) -> None:
    files = FailsBeside("b/t-0")
    paths = [tmp_path / "a", tmp_path / "b"]
    logs = klog.open(paths, create=True, clock=ManualClock(NOW), files=files)
    logs.create_topic("t", directory=paths[0])
    logs.create_topic("u", directory=paths[1])
    log, files.other = logs.log("t"), logs.log("u")
    for each in (log, files.other):
        each.append([(b"k", b"v")])
    logs.move("t", 0, paths[1])
    assert files.other is None and list(logs.offline_directories) == [str(paths[1])]
    assert os.path.dirname(log.path) == str(paths[1])
    with pytest.raises(StorageOffline):
        log.append([(b"k", b"w")])
    abandon(logs)
    with klog.open(paths, clock=ManualClock(NOW)) as again:
        assert again.log("t").count() == 1
