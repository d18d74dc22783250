"""The wall clock jumps forwards and back: no wait becomes longer or shorter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from tests.support.batches import batch, produced
from tests.support.jumping_clock import Jumping

MINUTES = 600_000  # far more than flush.ms, less than message.timestamp.after.max.ms
JUMPS = {"back": -MINUTES, "forwards": MINUTES, "none": 0}
APPENDS: dict[str, Callable[[klog.Log], object]] = {
    "records": lambda log: log.append([(b"k", b"v")]),
    "encoded": lambda log: log.append_batches(batch(1)),
    "of a producer": lambda log: log.append_batches(produced(log.log_end_offset, 0, 0, 1)),
}


def opened(path: Path, clock: Jumping) -> klog.LogManager:
    logs = klog.open(path, create=True, clock=clock)
    logs.create_topic("t", config={"flush.ms": 1000})
    return logs


@pytest.mark.parametrize("append", APPENDS)
@pytest.mark.parametrize("jump", JUMPS)
def test_an_append_flushes_after_flush_ms_whatever_the_wall_clock_does(tmp_path: Path, jump: str, append: str) -> None:
    clock = Jumping()
    with opened(tmp_path, clock) as logs:
        log = logs.log("t")
        log.flush()
        for _ in range(3):
            point = log.recovery_point
            clock.pass_by(0.999)
            clock.wall += JUMPS[jump]
            APPENDS[append](log)
            assert log.recovery_point == point
            clock.pass_by(0.001)
            APPENDS[append](log)
            assert log.recovery_point == log.log_end_offset == point + 2


@pytest.mark.parametrize("jump", JUMPS)
def test_the_manager_flushes_after_flush_ms_whatever_the_wall_clock_does(tmp_path: Path, jump: str) -> None:
    clock = Jumping()
    with opened(tmp_path, clock) as logs:
        log = logs.log("t")
        log.append([(b"k", b"v")])
        log.flush()
        log.append([(b"k", b"v")])
        clock.wall += JUMPS[jump]
        logs._tasks.flush_due()
        assert log.recovery_point == 1
        clock.pass_by(1)
        logs._tasks.flush_due()
        assert log.recovery_point == 2


def test_the_last_flush_is_reported_by_the_wall_clock(tmp_path: Path) -> None:
    clock = Jumping()
    with opened(tmp_path, clock) as logs:
        log = logs.log("t")
        assert log.last_flush_ms == clock.wall
        clock.wall -= MINUTES
        log.append([(b"k", b"v")])
        log.flush()
        assert log.last_flush_ms == clock.wall
