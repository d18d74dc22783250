"""A due flush without descriptors, a flush that ends after a deletion, and a lock held at a fork."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.log.directory import checkpoint
from tests.support.batches import NOW
from tests.support.logs import values
from tests.support.patience import PATIENCE


class NoDescriptor(RealFiles):
    times = 0

    def fsync_dir(self, path: str) -> None:
        if self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "Too many open files", path)
        super().fsync_dir(path)


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_due_flush_without_a_descriptor_refuses_no_append(tmp_path: Path, durability: Any) -> None:
    files = NoDescriptor()
    with klog.Log.open(
        tmp_path / "t-0", config={"flush.messages": 1}, clock=ManualClock(NOW), files=files, durability=durability
    ) as log:
        log.append([(None, b"0")])
        files.times = 1
        assert log.append([(None, b"1")]).first_offset == 1
        assert log.recovery_point == 1 and log.offline is None
        log.append([(None, b"2")])
        assert log.recovery_point == 3 and values(log) == [b"0", b"1", b"2"]


def test_a_flush_that_ends_after_a_deletion_records_nothing(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t", 0)
        log.append([(None, b"0")])
        on_flush = log._core.directory.on_flush

        def late(log: klog.Log) -> None:
            other = threading.Thread(target=logs.delete_topic, args=("t",))
            other.start()
            other.join()
            on_flush(log)

        log._core.directory.on_flush = late
        log.flush()
        points = tmp_path / checkpoint.RECOVERY_POINT
        assert not points.exists() or ("t", 0) not in checkpoint.read_offsets(str(points))


def test_a_forked_child_closes_its_log_though_a_lock_was_held_at_the_fork(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t", 0)
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with log._core.directory.owner._mutex:
                held.set()
                go.wait(PATIENCE)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(PATIENCE)
        child = os.fork()
        if child == 0:
            log.close()
            os._exit(0)
        end, found = time.monotonic() + PATIENCE, (0, 0)
        while not found[0] and time.monotonic() < end:
            found = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        go.set()
        thread.join()
        if not found[0]:
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert found == (child, 0)
