"""A signal's handler raises during a call of the disk: a failed sync is still detected (S2, S4, P6)."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import StorageOffline
from klog.log.directory import checkpoint
from tests.support.batches import NOW
from tests.support.faulty_io import FaultyIo
from tests.support.logs import values
from tests.support.patience import PATIENCE

BIG = [(b"k", os.urandom(200_000))] * 8
CALLS: dict[str, tuple[str, str, Callable[[klog.Log], Any]]] = {
    "flush": ("fdatasync", "os", lambda log: log.flush()),
    "flush, an index": ("fsync", "os", lambda log: log.flush()),
    "roll": ("fdatasync", "os", lambda log: log.roll()),
    "roll, an index": ("fsync", "os", lambda log: log.roll()),
    "commit": ("fdatasync", "sync", lambda log: log.append([(b"k", b"w")])),
    "flush of a log that syncs": ("fdatasync", "sync", lambda log: log.flush()),
    "write-behind": ("sync_file_range", "os", lambda log: log.append(BIG)),
}


class Interrupted(BaseException):
    """The handler's exception."""


@pytest.fixture
def io() -> Iterator[FaultyIo]:
    def handler(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with FaultyIo() as io:
            yield io
            io.heal()
    finally:
        signal.signal(signal.SIGUSR1, before)


def opened(path: Path, io: FaultyIo, durability: Any = "os", **config: Any) -> klog.Log:
    return klog.Log.open(
        path / "t-0", config=config, clock=ManualClock(NOW), files=RealFiles(io.table), durability=durability
    )


def is_pending(number: int) -> bool:
    """Whether a signal that was sent to the main thread is still pending in the kernel."""
    status = Path(f"/proc/self/task/{threading.main_thread().native_id}/status").read_text()
    pending = next(line for line in status.splitlines() if line.startswith("SigPnd:"))
    return bool(int(pending.split()[1], 16) >> (number - 1) & 1)


def interrupted(io: FaultyIo, call: str, error: int = 0) -> threading.Thread:
    """Send the signal during the next such kernel call; the call continues once the signal has arrived."""
    rule, main = io.rule(call, error=error, delay_ms=PATIENCE * 1000, times=1), threading.main_thread().ident
    before = io.hits(rule)
    assert main is not None

    def send() -> None:
        end = time.monotonic() + PATIENCE
        while io.hits(rule) == before and time.monotonic() < end:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGUSR1)
        while is_pending(signal.SIGUSR1) and time.monotonic() < end:  # a busy machine delivers it late
            time.sleep(0.001)
        io.release(rule)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("name", CALLS)
def test_a_sync_that_fails_under_a_signal_is_final(tmp_path: Path, io: FaultyIo, name: str) -> None:
    call, durability, action = CALLS[name]
    log = opened(tmp_path, io, durability, **{"klog.io.write.behind.bytes": 1 << 20})
    log.append([(b"k", b"v")])
    if name == "write-behind":
        log.append(BIG)
    end = log.log_end_offset
    sent = interrupted(io, call, errno.EIO)
    with pytest.raises(Interrupted):
        action(log)
    sent.join()
    assert log.offline is not None and "Input/output error" in log.offline
    assert log.recovery_point == 0 and log.log_end_offset == end and len(values(log)) == end
    with pytest.raises(StorageOffline):
        log.append([(b"k", b"v")])
    with pytest.raises(StorageOffline):
        log.flush()
    log.close()
    assert not os.path.exists(checkpoint.clean_shutdown_path(str(tmp_path)))
    assert checkpoint.read_offsets(str(tmp_path / checkpoint.RECOVERY_POINT)) == {}


@pytest.mark.parametrize("name", CALLS)
def test_a_sync_that_succeeds_under_a_signal_has_not_failed(tmp_path: Path, io: FaultyIo, name: str) -> None:
    call, durability, action = CALLS[name]
    with opened(tmp_path, io, durability, **{"klog.io.write.behind.bytes": 1 << 20}) as log:
        log.append([(b"k", b"v")])
        if name == "write-behind":
            log.append(BIG)
        sent = interrupted(io, call)
        with pytest.raises(Interrupted):
            action(log)
        sent.join()
        assert log.offline is None
        log.append([(b"k", b"later")])
        log.flush()
        assert log.recovery_point == log.log_end_offset and values(log)[-1] == b"later"


def test_a_manager_whose_flush_failed_under_a_signal_leaves_no_marker(tmp_path: Path, io: FaultyIo) -> None:
    manager = klog.open(tmp_path, create=True, files=RealFiles(io.table), durability="os")
    manager.create_topic("t")
    log = manager.log("t", 0)
    log.append([(b"k", b"v")] * 5)
    sent = interrupted(io, "fdatasync", errno.EIO)
    with pytest.raises(Interrupted):
        log.flush()
    sent.join()
    assert str(tmp_path) in manager.offline_directories
    with pytest.raises(OSError, match="Input/output"):
        manager.close()
    assert not os.path.exists(checkpoint.clean_shutdown_path(str(tmp_path)))
    assert checkpoint.read_offsets(str(tmp_path / checkpoint.RECOVERY_POINT)).get(("t", 0), 0) == 0


def test_a_reported_failed_sync_affects_no_other_log(tmp_path: Path, io: FaultyIo) -> None:
    """An error inside an `except` has the old error as its context."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    broken, well = opened(tmp_path / "a", io), opened(tmp_path / "b", io)
    broken.append([(b"k", b"v")])
    well.append([(b"k", b"v")])
    io.rule("fdatasync", error=errno.EIO, times=1)
    try:
        broken.flush()
    except OSError:
        sent = interrupted(io, "fdatasync")
        with pytest.raises(Interrupted):
            well.flush()
        sent.join()
    assert broken.offline is not None and well.offline is None
    broken.close()
    well.close()
