"""A load that truncates the log below the cleaner's checkpoint lowers the checkpoint before the first append."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.log.directory import checkpoint, cleaner_offsets
from tests.manager.cleaned_logs import CONFIG, NOW, checkpoints, values
from tests.support.abandon import abandon

OPENED = {"config": {"log.cleaner.dedupe.buffer.size": 1 << 20}}
KEYS = (b"A", b"B", b"C", b"D")


def cleaned(home: Path, clock: ManualClock, names: tuple[str, ...] = ("t",)) -> None:
    """Write logs with [0, 4) cleaned and offset 4 in the active segment; then crash with nothing synced."""
    with klog.open(home, create=True, clock=clock, **OPENED) as logs:
        for name in names:
            logs.create_topic(name, config=CONFIG)
            clean(logs.log(name))
    assert checkpoints(home) == {(name, 0): 4 for name in names}
    (home / ".kafka_cleanshutdown").unlink()
    (home / checkpoint.RECOVERY_POINT).unlink()


def clean(log: klog.Log) -> None:
    for key in KEYS:
        log.append([(key, b"1")])
    log.roll()
    log.append([(b"x", b"1")])
    log.compact(roll=False)


def damage(home: Path, name: str = "t") -> None:
    """Damage the log so that a load truncates it at 3."""
    path = home / f"{name}-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def one(home: Path, clock: ManualClock, **how: Any) -> klog.Log:
    return klog.Log.open(home / "t-0", clock=clock, config=CONFIG, **how)


@pytest.mark.parametrize("alone", [False, True])
def test_a_deleted_key_stays_deleted_after_a_truncation(tmp_path: Path, alone: bool) -> None:
    clock = ManualClock(NOW)
    cleaned(tmp_path, clock)
    damage(tmp_path)
    logs = None if alone else klog.open(tmp_path, clock=clock, recovery="kafka", **OPENED)
    with logs.log("t") if logs is not None else one(tmp_path, clock, recovery="kafka") as log:
        assert log.log_end_offset == 3
        assert checkpoints(tmp_path) == {("t", 0): 3}
        log.append([(b"A", None)])
        for number in range(4):
            log.append([(b"y%d" % number, b"1")])
            log.compact(roll=True)
            clock.advance(2 * int(CONFIG["delete.retention.ms"]))
        assert b"A" not in dict(values(log))
    if logs is not None:
        logs.close()


@pytest.mark.parametrize("alone", [False, True])
def test_a_deleted_key_stays_deleted_after_a_kill(tmp_path: Path, alone: bool) -> None:
    """A kill may lose a raised log start, but not one above which a cleaning has begun: what is below it was never
    cleaned, and would count as clean."""
    clock, config = ManualClock(NOW), {**CONFIG, "cleanup.policy": "compact,delete", "retention.ms": -1}
    logs = None if alone else klog.open(tmp_path, create=True, clock=clock, **OPENED)
    if logs is not None:
        logs.create_topic("t", config=config)
    log = logs.log("t") if logs is not None else klog.Log.open(tmp_path / "t-0", clock=clock, config=config)
    for key, value in ((b"Z", b"1"), (b"Z", None), (b"x", b"1")):
        log.append([(key, value)])
    log.roll()
    log.maybe_increment_log_start_offset(2, "a leader's")  # which delete_records would store
    clean(log)
    abandon(log if logs is None else logs)
    logs = None if alone else klog.open(tmp_path, clock=clock, **OPENED)
    with logs.log("t") if logs is not None else klog.Log.open(tmp_path / "t-0", clock=clock, config=config) as log:
        for number in range(4):
            log.append([(b"y%d" % number, b"1")])
            log.compact(roll=True)
            clock.advance(2 * int(CONFIG["delete.retention.ms"]))
        assert b"Z" not in dict(values(log))
        assert log.log_start_offset == 2
    if logs is not None:
        logs.close()


def test_one_start_truncates_many_logs(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    names = tuple(f"t{number}" for number in range(8))
    cleaned(tmp_path, clock, names)
    for name in names[:6]:
        damage(tmp_path, name)
    settings = {**OPENED["config"], "num.recovery.threads.per.data.dir": 4}
    with klog.open(tmp_path, clock=clock, recovery="kafka", config=settings) as logs:
        logs.load_all()
        assert checkpoints(tmp_path) == {(name, 0): 3 if name in names[:6] else 4 for name in names}


def test_a_log_cleaned_since_the_start_is_truncated(tmp_path: Path) -> None:
    """The checkpoint file that was read at the start is then outdated."""
    clock = ManualClock(NOW)
    with klog.open(tmp_path, create=True, clock=clock, recovery="kafka", **OPENED) as logs:
        logs.create_topic("t", config=CONFIG)
        clean(logs.log("t"))
        logs.log("t").close()
        (tmp_path / "t-0" / "00000000000000000004.log").unlink()
        path = tmp_path / "t-0" / "00000000000000000000.log"
        os.truncate(path, path.stat().st_size - 1)
        assert logs.log("t").log_end_offset == 3
        assert checkpoints(tmp_path) == {("t", 0): 3}


@pytest.mark.parametrize("alone", [False, True])
def test_every_segment_is_deleted(tmp_path: Path, alone: bool) -> None:
    """Because of damage, no record at or above the log start is left; the log start is below the checkpoint."""
    clock = ManualClock(NOW)
    cleaned(tmp_path, clock)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    os.truncate(path, path.stat().st_size // 4 + 1)
    (tmp_path / checkpoint.LOG_START).write_text("0\n1\nt 0 2\n")
    logs = None if alone else klog.open(tmp_path, clock=clock, recovery="kafka", **OPENED)
    with logs.log("t") if logs is not None else one(tmp_path, clock, recovery="kafka") as log:
        assert (log.log_start_offset, log.log_end_offset) == (2, 2)
        assert checkpoints(tmp_path) == {("t", 0): 2}
    if logs is not None:
        logs.close()


@pytest.mark.parametrize("alone", [False, True])
def test_a_load_without_truncation_writes_nothing(tmp_path: Path, alone: bool) -> None:
    clock = ManualClock(NOW)
    cleaned(tmp_path, clock)
    before = os.stat(tmp_path / checkpoint.CLEANER)
    if alone:
        one(tmp_path, clock).close()
    else:
        with klog.open(tmp_path, clock=clock, **OPENED) as logs:
            logs.load_all()
    assert os.stat(tmp_path / checkpoint.CLEANER).st_ino == before.st_ino


def test_a_read_only_load_keeps_the_checkpoint(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    cleaned(tmp_path, clock)
    (tmp_path / "t-0" / "00000000000000000004.log").unlink()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    os.truncate(path, path.stat().st_size - 1)
    with klog.open(tmp_path, read_only=True, recovery="kafka") as logs:
        assert logs.log("t").log_end_offset == 3
    with one(tmp_path, clock, read_only=True, recovery="kafka") as log:
        assert log.log_end_offset == 3
    assert checkpoints(tmp_path) == {("t", 0): 4}


@pytest.mark.parametrize("alone", [False, True])
def test_a_crash_between_the_truncation_and_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """The next load truncates nothing and still lowers the checkpoint."""
    clock = ManualClock(NOW)
    cleaned(tmp_path, clock)
    damage(tmp_path)

    def dies(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(cleaner_offsets, "lower", dies)
        with pytest.raises(RuntimeError, match="killed"):
            one(tmp_path, clock, recovery="kafka")
    assert checkpoints(tmp_path) == {("t", 0): 4}
    if alone:
        one(tmp_path, clock).close()
    else:
        with klog.open(tmp_path, clock=clock, **OPENED) as logs:
            assert logs.log("t").recovery.bytes_truncated == 0
    assert checkpoints(tmp_path) == {("t", 0): 3}
