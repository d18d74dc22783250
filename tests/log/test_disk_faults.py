"""The effect of each kernel error on each operation of a log: fault-model.md, section 5, through the table of calls.

    went on     no effect
    refused     OSError; unchanged, readable and writable: the same call succeeds once there is space again
    offline     OSError; acknowledged records can be read, appends are refused, the next open reads the state from disk
    raised      OSError of a read; the log stays open, and the next read succeeds

In every case every acknowledged record is there when the log is opened again, and the error names the file and what
to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles, is_final, os_error
from klog.errors import StorageOffline
from klog.segment import Segment
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch
from tests.support.failing_files import FailingFiles
from tests.support.faulty_io import ALWAYS, FaultyIo
from tests.support.resources import open_descriptors

SMALL = {"segment.bytes": 2000, "index.interval.bytes": 100, "retention.bytes": 1500, "cleanup.policy": "delete"}
BIG = b"b" * 70_000  # beyond the blocks allocated before


class Case(NamedTuple):
    """An operation; the kernel call that fails, which one of them, how; the outcome."""

    operation: str
    call: str
    error: int
    outcome: str
    nth: int = 1
    at_most: int = -1
    durability: str = "os"


OPERATIONS: dict[str, Callable[[klog.Log], Any]] = {
    "append": lambda log: log.append([(b"k", b"refused" * 50)]),
    "append_batches": lambda log: log.append_batches(batch([b"refused" * 50])),
    "append much": lambda log: log.append([(b"k", BIG)]),
    "append and roll": lambda log: log.append([(b"k", b"refused" * 100)] * 2),
    "roll": lambda log: log.roll(),
    "flush": lambda log: log.flush(),
    "leader epoch": lambda log: log.begin_leader_epoch(log.leader_epoch + 1),
    "retention": lambda log: log.apply_retention(),
    "truncate": lambda log: log.truncate_to(log.log_end_offset - 1),
    "truncate fully": lambda log: log.truncate_fully_and_start_at(100),
    "close": lambda log: log.close(),
    "read": lambda log: [record.value for record in log.read()],
    "fetch": lambda log: bytes(log.fetch(log.log_start_offset, 1 << 20).memory()),
    "time": lambda log: log.offset_for_timestamp(NOW),
    "verify": lambda log: log.verify(),
}
RAN_OUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BROKEN = (errno.EIO, errno.EROFS, errno.ESTALE, errno.ENXIO)
APPENDS = ("append", "append_batches")


def cases() -> Iterator[Case]:
    for operation in APPENDS:
        for error in RAN_OUT:  # F15
            yield Case(operation, "pwrite", error, "refused")
        for error in BROKEN:  # F19, F29
            yield Case(operation, "pwrite", error, "offline")
        yield Case(operation, "pwrite", errno.EINTR, "went on")  # F23
        yield Case(operation, "pwrite", 0, "went on", at_most=5)
        for error in (*BROKEN, *RAN_OUT, errno.EINTR):  # S2: every error of a sync is final
            yield Case(operation, "fdatasync", error, "offline", durability="sync")
    for error in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR):
        yield Case("append much", "fallocate", error, "went on")
    yield Case(
        "append much", "fallocate", errno.ENOSPC, "went on"
    )  # if the step is too large, the space needed is still there
    yield Case("append much", "fallocate", errno.EDQUOT, "went on")
    yield Case("append much", "fallocate", errno.EIO, "offline")
    for error in RAN_OUT:
        yield Case("append and roll", "pwrite", error, "refused")
        yield Case("append and roll", "pwrite", error, "refused", nth=2)
        yield Case("roll", "pwrite", error, "refused")  # of the producers' snapshot
        for nth in (1, 2):  # the offset index, then the time index, is trimmed: a disk that copies on write may be full
            yield Case("roll", "ftruncate", error, "refused", nth=nth)
            yield Case("append and roll", "ftruncate", error, "refused", nth=nth)
        yield Case("leader epoch", "pwrite", error, "refused")
    for error in (errno.EIO, errno.ESTALE):
        yield Case("leader epoch", "pwrite", error, "offline")
        yield Case("append and roll", "pwrite", error, "offline", nth=2)
        yield Case("roll", "pwrite", error, "offline")
    for error in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
        for operation in ("roll", "append and roll", "flush", "leader epoch", "truncate", "truncate fully"):
            yield Case(operation, "fsync", error, "offline")
        for operation in ("roll", "flush", "close"):
            yield Case(operation, "fdatasync", error, "offline")
    for operation in ("truncate", "truncate fully", "roll", "close"):
        yield Case(operation, "ftruncate", errno.EIO, "offline")
        yield Case(operation, "ftruncate", errno.EINTR, "went on")
    for operation in ("read", "fetch", "time"):  # F20
        for error in (errno.EIO, errno.ESTALE):
            yield Case(operation, "pread", error, "raised")
        yield Case(operation, "pread", errno.EINTR, "went on")
        yield Case(operation, "pread", 0, "went on", at_most=7)


def opened(path: Path, **options: Any) -> klog.Log:
    options.setdefault("config", SMALL)
    return klog.Log.open(path, clock=ManualClock(NOW), **options)


def values(log: klog.Log) -> list[bytes]:
    return [record.value for record in log.read()]


def cold(kernel: FaultyIo) -> None:
    """Make every read go to the disk."""
    kernel.rule("preadv2", error=errno.EAGAIN)


def assert_helps(error: OSError, path: Path) -> None:
    """Check that the error has a file of the log, and that its text ends with what to do."""
    assert error.filename is not None and Path(error.filename).is_relative_to(path.parent), error
    step = str(error.strerror).partition("; ")[2]
    assert any(word in step for word in ("free", "raise", "open", "mount", "lower", "write")), error


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: "-".join(map(str, (
    case.operation, case.call, errno.errorcode.get(case.error, "short"), case.nth))))  # fmt: skip
def test_an_error_of_the_kernel(tmp_path: Path, kernel: FaultyIo, case: Case) -> None:
    """F15, F19, F20, F23, F29: rolled back, or offline and readable; or no effect."""
    path = tmp_path / "t-0"
    config = {"flush.messages": 2**63 - 1} if case.operation == "append much" else SMALL
    log = opened(path, files=RealFiles(kernel.table), config=config, durability=case.durability)
    for number in range(6):
        log.append([(b"k", b"%d" % number * 400)])
    log.append([(b"k", b"last")])
    acknowledged, end = values(log), log.log_end_offset
    operation = OPERATIONS[case.operation]
    if case.call == "pread":
        cold(kernel)
    rule = kernel.rule(case.call, error=case.error, at_most=case.at_most, nth=case.nth,
                       times=1 if case.error == errno.EINTR and case.outcome == "went on" else ALWAYS)  # fmt: skip
    if case.outcome == "went on":
        operation(log)
    else:
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            operation(log)
        assert caught.value.errno == case.error
        assert_helps(caught.value, path)
    assert kernel.hits(rule) > 0
    kernel.heal()
    if case.outcome == "offline" and case.operation != "close":
        assert log.offline is not None
        with pytest.raises(StorageOffline, match="open it again"):
            log.append([(b"k", b"no")])
        if "truncate" not in case.operation:
            assert values(log) == acknowledged
            assert bytes(log.fetch(0, 1 << 20).memory())
    elif case.outcome == "refused":
        assert log.offline is None
        assert (log.log_end_offset, values(log)) == (end, acknowledged)
        operation(log)
    elif case.outcome == "raised":
        assert log.offline is None
        operation(log)
        log.append([(b"k", b"more")])
    if case.outcome != "offline":
        acknowledged = [] if log.closed or "truncate" in case.operation else values(log)
    log.close()
    with opened(path, config=config) as again:
        found = values(again)
        if "truncate" in case.operation:
            assert found == [b"%d" % number * 400 for number in range(6)][: len(found)] + [b"last"] * (len(found) == 7)
        else:
            assert found[: len(acknowledged)] == acknowledged
        assert not [problem for problem in again.verify().problems if problem.kind != "leftover"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_torn_append_that_cannot_be_undone_takes_the_log_offline(
    tmp_path: Path, kernel: FaultyIo, error: int
) -> None:
    """F15, P6: the part of a batch that is left is no record, for readers, after the next load, or for later appends."""
    path = tmp_path / "t-0"
    log = opened(path, files=RealFiles(kernel.table))
    log.append([(b"k", b"first" * 20)])
    torn, full = kernel.rule("pwrite", at_most=5, times=1), kernel.rule("pwrite", error=errno.ENOSPC, nth=2)
    stays = kernel.rule("ftruncate", error=error)
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        log.append([(b"k", b"second" * 20)])
    assert caught.value.errno == errno.ENOSPC and all(map(kernel.hits, (torn, full, stays)))
    kernel.heal()
    assert "undoing it failed" in (log.offline or "") and values(log) == [b"first" * 20]
    with pytest.raises(StorageOffline, match="open it again"):
        log.append([(b"k", b"third")])
    with contextlib.suppress(StorageOffline):
        log.close()
    with opened(path) as again:
        assert again.append([(b"k", b"third")]).first_offset == 1
        assert values(again) == [b"first" * 20, b"third"]
        assert not [problem for problem in again.verify().problems if problem.kind != "leftover"]


# ---- reading a disk that fails ---------------------------------------------------------------------------------------


def test_reads_that_fail_one_after_another_take_the_log_offline(tmp_path: Path, kernel: FaultyIo) -> None:
    """F20: a successful read in between resets the count; readers may go on trying."""
    with opened(tmp_path / "t-0", files=RealFiles(kernel.table)) as log:
        log.append([(b"k", b"v")])
        for times in (2, 2, 3):
            assert log.offline is None
            cold(kernel)
            kernel.rule("pread", error=errno.EIO)
            for _ in range(times):
                with pytest.raises(OSError, match="dmesg"):
                    values(log)
            kernel.heal()
            assert values(log) == [b"v"]
        assert "3 reads" in str(log.offline)
        with pytest.raises(StorageOffline, match="dmesg"):
            log.append([(b"k", b"no")])
        assert values(log) == [b"v"] and log.fetch(0, 1 << 20).size


def test_a_read_error_beside_the_writer_only_raises(tmp_path: Path, kernel: FaultyIo) -> None:
    with opened(tmp_path / "t-0") as log:
        log.append([(b"k", b"v")])
        with opened(tmp_path / "t-0", read_only=True, files=RealFiles(kernel.table)) as reader:
            cold(kernel)
            kernel.rule("pread", error=errno.EIO)
            for _ in range(5):
                with pytest.raises(OSError, match="dmesg"):
                    values(reader)
            kernel.heal()
            assert values(reader) == [b"v"]


def test_verify_lists_a_file_that_cannot_be_read_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F20: the other files are still checked."""
    import os

    with opened(tmp_path / "t-0") as log:
        for number in range(6):
            log.append([(b"k", b"%d" % number * 400)])
        broken = log.segments[0].path
        count = len(log.segments)
    plain = os.pread

    def pread(fd: int, size: int, position: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}") == broken:
            raise OSError(errno.EIO, "Input/output error")
        return plain(fd, size, position)

    monkeypatch.setattr(os, "pread", pread)
    report = klog.verify(tmp_path / "t-0")
    assert [problem.path for problem in report.problems] == [broken]
    assert "cannot be read" in report.problems[0].message
    assert count > 1


# ---- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["pread", "fsync", "ftruncate"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE])
def test_a_failed_open_releases_its_locks_and_the_next_one_finds_everything(
    tmp_path: Path, kernel: FaultyIo, call: str, error: int
) -> None:
    """F19, F20: recovery reads every byte; the locks are released again."""
    path = tmp_path / "t-0"
    log = opened(path)
    for number in range(6):
        log.append([(b"k", b"%d" % number * 400)])
    acknowledged = values(log)
    abandon(log)
    with open(max(path.glob("*.log")), "ab") as torn:
        torn.write(b"torn")
    cold(kernel)
    kernel.rule(call, error=error)
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        opened(path, files=RealFiles(kernel.table))
    assert caught.value.errno == error
    assert_helps(caught.value, path)
    kernel.heal()
    with opened(path) as again:
        assert values(again) == acknowledged


# ---- too many open files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["append and roll", "roll", "retention"])
def test_too_many_open_files_only_refuse_the_operation(tmp_path: Path, operation: str, error: int) -> None:
    """F21: whichever of its opens fails."""
    messages: list[str] = []
    for nth in range(1, 100):
        files = FailingFiles(nth, error, armed=False)
        files.only = "open", "replace"
        path = tmp_path / str(nth) / "t-0"
        path.parent.mkdir()
        with opened(path, files=files) as log:
            for number in range(6):
                log.append([(b"k", b"%d" % number * 400)])
            acknowledged = values(log)
            files.armed = True
            try:
                OPERATIONS[operation](log)
            except OSError as caught:
                messages.append(str(caught))
                assert values(log) == acknowledged
            files.armed = False
            assert log.offline is None
            OPERATIONS[operation](log)
            log.append([(b"k", b"more")])
            assert values(log)[-1] == b"more"
        if not files.failed:
            break
    assert messages or operation == "retention"
    assert all("open files" in text and "raise" in text for text in messages)


def test_a_failed_roll_needs_no_more_descriptors_than_the_log_has(tmp_path: Path, kernel: FaultyIo) -> None:
    """F21: nor while its error is handled, since the undo may need the last descriptor."""

    def count() -> int:
        return sum(file.startswith(str(tmp_path)) for _, file in open_descriptors())

    undone = 0
    for nth in range(1, 10):
        path = tmp_path / str(nth) / "t-0"
        path.parent.mkdir()
        with opened(path, files=RealFiles(kernel.table)) as log:
            log.append([(b"k", b"v")])
            before = count()
            kernel.rule("ftruncate", error=errno.ENOSPC, nth=nth, times=1)
            try:
                log.roll()
            except OSError:
                undone += log.offline is None
                assert count() == before
            kernel.heal()
    assert undone


class NoDescriptors(RealFiles):
    """No file can be opened for reading while no descriptor is left."""

    none_left = False

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        if self.none_left:
            raise os_error(errno.EMFILE, path)
        return super().open(path, write=write, create=create)


def test_retention_without_descriptors_deletes_nothing(tmp_path: Path) -> None:
    """F21: the aborted transactions of a deleted segment are read before it is renamed."""
    files = NoDescriptors()
    with opened(tmp_path / "t-0", files=files) as log:
        for number in range(12):
            log.append([(b"k", b"%d" % number * 400)])
        before = len(log.segments)
        files.none_left = True
        with pytest.raises(OSError, match="open files"):
            log.apply_retention()
        assert (log.offline, len(log.segments)) == (None, before)
        files.none_left = False
        assert log.apply_retention() > 0


# ---- a directory that is removed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_a_directory_that_vanishes_under_a_live_log(tmp_path: Path, left: str) -> None:
    """ENOENT, ENOTDIR: open files are still read; a roll, which must create files, takes the log offline with an error
    that names the cause. When the directory is back, all records are there."""
    path, aside = tmp_path / "t-0", tmp_path / "aside"
    log = opened(path)
    for number in range(6):
        log.append([(b"k", b"%d" % number * 400)])
    acknowledged = values(log)
    path.rename(aside)
    if left == "a file":
        path.write_bytes(b"")
    with pytest.raises(OSError, match="bring the directory back") as caught:
        log.roll()
    assert isinstance(caught.value, FileNotFoundError if left == "nothing" else NotADirectoryError)
    assert is_final(caught.value)
    with pytest.raises(StorageOffline, match="bring the directory back"):
        log.append([(b"k", b"no")])
    assert values(log)[-1] == acknowledged[-1]
    log.close()
    if left == "a file":
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
    aside.rename(path)
    with opened(path) as again:
        assert values(again) == acknowledged


def test_an_exception_of_a_signal_handler_is_not_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TimeoutError is an OSError. A handler that raises one ends the append, and the log stays online."""
    with klog.Log.open(tmp_path / "t-0") as log:
        log.set_offsets_listener(lambda offset: None)  # for the full path
        with monkeypatch.context() as patch:

            def ended(*_: object) -> None:
                raise TimeoutError

            patch.setattr(Segment, "append", ended)
            with pytest.raises(TimeoutError):
                log.append([(None, b"no")])
        assert log.offline is None
        assert log.append([(None, b"yes")]).first_offset == 0


class Unopenable(RealFiles):
    """Opening a .log for writing fails with `error`."""

    error = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        if self.error and write and path.endswith(".log"):
            raise OSError(self.error, os.strerror(self.error), path)
        return super().open(path, write=write, create=create)


@pytest.mark.parametrize(("error", "final"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_segment_that_cannot_be_opened_for_appends(tmp_path: Path, error: int, final: bool) -> None:
    """P6: a failed disk is final, a full one is not."""
    files = Unopenable()
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append([(b"k", b"v")])
    log = klog.Log.open(tmp_path / "t-0", files=files)
    files.error = error
    with pytest.raises(OSError, match=os.strerror(error)):
        log.append([(b"k", b"w")])
    assert (log.offline is not None) == final
    files.error = 0
    if not final:
        assert log.append([(b"k", b"w")]).first_offset == 1
    with contextlib.suppress(StorageOffline):
        log.close()


def test_a_log_whose_active_segment_has_no_records_closes_on_a_full_disk(tmp_path: Path, kernel: FaultyIo) -> None:
    """F15. There is nothing to add to its indexes."""
    path = tmp_path / "t-0"
    log = opened(path, files=RealFiles(kernel.table))
    log.append([(b"k", b"v")])
    log.roll()
    kernel.rule("fallocate", error=errno.ENOSPC)
    log.close()
    with opened(path, clean_shutdown=True) as log:
        assert values(log) == [b"v"]
