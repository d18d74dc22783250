"""Background work of a LogManager, under a manual clock and in a real thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import ConfigUnknown, OffsetOutOfRange, ReadOnly
from klog.log.core import LogCore
from klog.log.directory import checkpoint
from klog.log.retain import retention
from klog.manager import background
from tests.support.batches import batch, produced
from tests.support.failing_files import FailingFiles
from tests.support.patience import until

NOW = 1_700_000_000_000
SOON = {"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 1000, "log.segment.delete.delay.ms": 500}


def opened(path: Path, clock: ManualClock, config: dict[str, Any] | None = None, **options: Any) -> klog.LogManager:
    return klog.open(path, create=True, clock=clock, config={**SOON, **(config or {})}, **options)


def ten_segments(logs: klog.LogManager, clock: ManualClock, topic: str, **config: Any) -> klog.Log:
    """Ten closed segments of one record each, 100 ms apart, and an active one."""
    logs.create_topic(topic, config={"segment.bytes": 160, **config})
    log = logs.log(topic)
    for number in range(11):
        log.append([(b"k", b"%010d" % number * 5)])
        clock.advance(100)
    assert len(log.segments) == 11
    return log


class ByHand:
    """A clock that does not run scheduled tasks when it moves, unlike ManualClock."""

    def __init__(self) -> None:
        self.ms = 0

    def wall_ms(self) -> int:
        return NOW + self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


WRITES: dict[str, Callable[[klog.Log, int], object]] = {
    "append": lambda log, _: log.append([(b"k", b"v")]),
    "client": lambda log, _: log.append_batches(batch(1)),
    "producer": lambda log, _: log.append_batches(produced(1, 0, 0)),
    "follower": lambda log, end: log.append_batches(batch(1, base_offset=end, leader_epoch=0), origin="replication"),
    "roll": lambda log, _: log.roll(),
    "delete_records": lambda log, end: log.delete_records(end),
    "log start": lambda log, end: log.maybe_increment_log_start_offset(end),
}


@pytest.mark.parametrize("name", WRITES)
def test_without_a_thread_appends_run_due_tasks(tmp_path: Path, name: str) -> None:
    """This happens if enough milliseconds have passed since the last check, not at each append."""
    clock = ByHand()
    with klog.Log.open(tmp_path / "t-0", config={"file.delete.delay.ms": 1000}, clock=clock) as log:
        log.append_batches(batch(2))
        log.roll()
        log.append_batches(batch(2))
        log.append_batches(batch(1))
        log.delete_records(2)
        assert log.apply_retention() == 1

        def waiting() -> list[Path]:
            return list(Path(log.path).glob(f"{0:020}.*.deleted"))

        clock.ms = 999
        WRITES[name](log, 5)
        assert waiting()
        clock.ms = 1009
        WRITES[name](log, log.log_end_offset)
        assert not waiting()


def test_an_append_to_a_topic_runs_due_tasks(tmp_path: Path) -> None:
    clock, ran = ByHand(), []
    with klog.open(tmp_path, create=True, clock=clock) as logs:
        logs.create_topic("t")
        logs.log("t")._core.options.scheduler.schedule("mine", lambda: ran.append(1), 500)
        logs.append("t", [(b"k", b"v")])
        assert not ran
        clock.ms = 500
        logs.append("t", [(b"k", b"v")])
        assert ran == [1]


# ---- retention -------------------------------------------------------------------------------------------------------


def test_retention_by_time_leaves_one_segment(tmp_path: Path) -> None:
    """LM4: retention by time; a read below the log start is then out of range."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        log = ten_segments(logs, clock, "t", **{"retention.ms": 600_000})
        logs.start()
        clock.advance(5_000)
        assert len(log.segments) == 11
        clock.advance(600_000)
        assert len(log.segments) == 1
        assert log.log_start_offset == log.log_end_offset == 11
        clock.advance(2_000)
        assert not list((tmp_path / "t-0").glob("*.deleted"))
        with pytest.raises(OffsetOutOfRange):
            log.read(0)
        log.append([(b"k", b"new")])
        assert [record.value for record in log.read()] == [b"new"]


def test_the_files_of_deleted_segments_stay_for_their_delay(tmp_path: Path) -> None:
    """LM4: the files are marked for deletion, and unlinked only after file.delete.delay.ms."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, {"log.segment.delete.delay.ms": 700}) as logs:
        ten_segments(logs, clock, "t", **{"retention.bytes": 300})
        logs.start()
        clock.advance(1)  # the first round begins
        left = len(list((tmp_path / "t-0").glob("*.log.deleted")))
        assert left > 0
        clock.advance(698)
        assert len(list((tmp_path / "t-0").glob("*.log.deleted"))) == left
        clock.advance(1)
        assert not list((tmp_path / "t-0").glob("*.log.deleted"))


def test_retention_by_size(tmp_path: Path) -> None:
    """LM4: retention by size leaves the segments that fit, and the active one."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        log = ten_segments(logs, clock, "t")
        size = log.segments[0].size
        logs.alter_topic("t", {"retention.bytes": 5 * size + log.segments[-1].size})
        logs.start()
        clock.advance(2_000)
        assert len(log.segments) == 6
        with pytest.raises(OffsetOutOfRange):
            log.read(0)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_retention_skips_compacted_logs(tmp_path: Path, policy: str) -> None:
    """LM4: retention skips compacted logs."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, {"log.cleaner.enable": False}) as logs:
        log = ten_segments(logs, clock, "t", **{"cleanup.policy": policy, "retention.ms": 1, "retention.bytes": 1})
        logs.start()
        clock.advance(100_000)
        assert len(log.segments) == 11


def test_a_log_of_unknown_configuration_keeps_everything(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        ten_segments(logs, clock, "t")
    (tmp_path / "klog-topics.json").unlink()
    with opened(tmp_path, clock, {"log.retention.ms": 1}) as logs:
        logs.start()
        clock.advance(100_000)
        assert logs.log("t").log_start_offset == 0
        logs.alter_topic("t", {})
        clock.advance(2_000)
        assert logs.log("t").log_start_offset >= 10


def test_another_configuration_of_the_directory_does_not_make_that_of_a_topic_known(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        ten_segments(logs, clock, "t")
    (tmp_path / "klog-topics.json").unlink()
    with opened(tmp_path, clock) as logs:
        log = logs.log("t")
        logs.start()
        logs.alter_config({"log.retention.ms": 1, "log.roll.ms": 5})
        assert log.config.segment_ms == 5  # new records come into segments of its size and age
        clock.advance(100_000)
        with pytest.raises(ConfigUnknown):
            log.apply_retention()
        assert log.log_start_offset == 0
        log.update_config(log.config)
        clock.advance(2_000)
        assert log.log_start_offset >= 10


# ---- flushes ---------------------------------------------------------------------------------------------------------


def test_the_flusher_flushes_when_flush_ms_has_passed(tmp_path: Path) -> None:
    """LM5: after flush.ms the last flush time moves."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, {"log.flush.scheduler.interval.ms": 100, "log.flush.interval.ms": 2**62}) as logs:
        logs.create_topic("t", config={"flush.ms": 1000})
        logs.create_topic("never")
        log, never = logs.log("t"), logs.log("never")
        logs.start()
        before = log.last_flush_ms
        for each in (log, never):
            each.append([(None, b"x")])
        clock.advance(900)
        assert (log.recovery_point, log.last_flush_ms) == (0, before)
        clock.advance(200)
        assert log.recovery_point == 1
        assert before < log.last_flush_ms <= clock.wall_ms()
        assert never.recovery_point == 0


def test_durability_interval_flushes_within_a_second_also_without_start(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, durability="interval") as logs:
        logs.create_topic("t")
        log = logs.log("t")
        assert log.config.flush_ms == 1000
        log.append([(None, b"x")])
        clock.advance(1600)
        assert log.recovery_point == 1
    with opened(tmp_path, clock, {"log.flush.interval.messages": 5}, durability="interval") as logs:
        assert logs.log("t").config.flush_ms == 2**63 - 1  # the config does not flush by time
    with opened(tmp_path, clock, durability="interval") as logs:
        logs.alter_topic("t", {"flush.ms": 77})
        assert logs.log("t").config.flush_ms == 77
    with klog.Log.open(tmp_path / "t-0", durability="interval", clock=clock) as log:
        assert log.config.flush_ms == 1000
    with klog.Log.open(tmp_path / "t-0", durability="interval", config={"flush.messages": 9}, clock=clock) as log:
        assert log.config.flush_ms == 2**63 - 1


def test_durability_interval_outlives_another_configuration(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with klog.Log.open(tmp_path / "t-0", durability="interval", clock=clock) as log:
        log.update_config(klog.LogConfig({"retention.ms": 5_000}))
        assert (log.config.flush_ms, log.config.retention_ms) == (1000, 5_000)
        clock.advance(1000)
        log.append([(None, b"x")])
        assert log.recovery_point == 1
        log.update_config(klog.LogConfig({"flush.ms": 77}))
        assert log.config.flush_ms == 77


def test_durability_interval_runs_a_thread_until_close(tmp_path: Path) -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("klog")]

    with klog.open(tmp_path, create=True, durability="interval") as logs:
        assert threads() == ["klog-scheduler"]
        logs.create_topic("t", config={"flush.ms": 1})
        log = logs.log("t")
        log.append([(None, b"x")])
        until(lambda: log.recovery_point == 1)
    assert threads() == []
    with klog.open(tmp_path, config=SOON) as logs:
        assert threads() == []
        logs.start()
        logs.start()
        assert threads() == ["klog-scheduler"]
    assert threads() == []


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def read(path: Path, name: str) -> dict[tuple[str, int], int]:
    return checkpoint.read_offsets(str(path / name))


def test_recovery_points_are_written_on_schedule(tmp_path: Path) -> None:
    """LM5: the checkpoint equals the recovery points."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        logs.create_topic("t", partitions=3)
        for number, log in enumerate(logs.logs()):
            log.append([(None, b"x")] * (number + 1))
            log.flush()
        logs.start()
        (tmp_path / checkpoint.RECOVERY_POINT).unlink()
        clock.advance(60_000)
        assert read(tmp_path, checkpoint.RECOVERY_POINT) == {("t", 0): 1, ("t", 1): 2, ("t", 2): 3}


def test_with_a_thread_flushes_share_one_write_of_the_recovery_points(tmp_path: Path) -> None:
    """The file lists every log of its directory: thousands of rolls must not write thousands of lines each."""
    clock, path = ManualClock(NOW), tmp_path / checkpoint.RECOVERY_POINT
    with opened(tmp_path, clock) as logs:
        logs.create_topic("t", partitions=3)
        scheduler = logs.log("t")._core.options.scheduler
        scheduler._thread = threading.current_thread()  # run the task as the scheduler's thread would
        for round in (1, 2):
            for number in (0, 2):
                logs.log("t", number).append([(b"k", b"v")])
                logs.log("t", number).flush()
            assert [task.name for _, _, task in scheduler._heap].count("klog-recovery-points") == 1
            clock.advance(999)
            assert round == 2 or not path.exists()
            clock.advance(1)
            assert read(tmp_path, checkpoint.RECOVERY_POINT) == {("t", 0): round, ("t", 2): round}
        logs.log("t", 0).truncate_to(1)  # a truncation is written at once
        assert read(tmp_path, checkpoint.RECOVERY_POINT) == {("t", 0): 1, ("t", 2): 2}


def test_log_start_offsets_inside_the_first_segment_are_written(tmp_path: Path) -> None:
    """LM12: a log start is in the file while it is above the first segment's base offset, and removed from it after the
    segments below are deleted."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, {"log.retention.check.interval.ms": 10_000_000}) as logs:
        logs.create_topic("t", config={"segment.bytes": 300})
        log = logs.log("t")
        for number in range(40):
            log.append([(None, b"%d" % number * 10)])
        logs.start()
        log.delete_records(31)
        clock.advance(60_000)
        assert read(tmp_path, checkpoint.LOG_START) == {("t", 0): 31}
        log.apply_retention()
        inside = log.log_start_offset > log.segments[0].base_offset
        clock.advance(60_000)
        assert read(tmp_path, checkpoint.LOG_START) == ({("t", 0): 31} if inside else {})
        log.delete_records(log.segments[-1].base_offset)
        log.apply_retention()
        clock.advance(60_000)
        assert read(tmp_path, checkpoint.LOG_START) == {}


def test_managed_high_watermarks_are_written_every_five_seconds(tmp_path: Path) -> None:
    """10.2: logs that are a single copy are not in the high-watermark checkpoint, so that readers see all their
    records."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        logs.create_topic("t", partitions=2)
        managed, single = logs.log("t", 0), logs.log("t", 1)
        for log in (managed, single):
            log.append([(None, b"x")] * 10)
        managed.update_high_watermark(4)
        logs.start()
        assert not (tmp_path / checkpoint.HIGH_WATERMARK).exists()
        clock.advance(5_000)
        assert read(tmp_path, checkpoint.HIGH_WATERMARK) == {("t", 0): 4}
        managed.update_high_watermark(7)
        single.append([(None, b"y")] * 5)
        with klog.open(tmp_path, read_only=True) as reader:
            assert [log.high_watermark for log in reader.logs()] == [4, 15]
        clock.advance(5_000)
        assert read(tmp_path, checkpoint.HIGH_WATERMARK) == {("t", 0): 7}
    assert read(tmp_path, checkpoint.HIGH_WATERMARK) == {("t", 0): 7, ("t", 1): 15}


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_one_log_s_error_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        first = ten_segments(logs, clock, "a", **{"retention.ms": 1})
        second = ten_segments(logs, clock, "b", **{"retention.ms": 1})

        plain = retention.apply

        def broken(log: LogCore) -> int:
            if log is first._core:
                raise klog.errors.CorruptBatch("no retention today")
            return plain(log)

        monkeypatch.setattr(retention, "apply", broken)
        logs.start()
        with caplog.at_level(logging.ERROR, "klog.log"):
            clock.advance(2_000)
        assert "event=retention_failed log=a-0 reason=no retention today" in caplog.text
        assert len(second.segments) == 1
        assert first.append([(b"k", b"on")]).first_offset == 11
        monkeypatch.undo()
        clock.advance(2_000)
        assert len(first.segments) == 1


def test_a_disk_error_in_a_task_takes_the_directory_offline(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    files = FailingFiles()
    paths = [tmp_path / "a", tmp_path / "b"]
    logs = klog.open(paths, create=True, clock=clock, config=SOON, files=files)
    logs.create_topic("t", partitions=2)
    for log in logs.logs():
        log.append([(None, b"x")])
    logs.start()
    files.under = [str(paths[0] / checkpoint.RECOVERY_POINT)]
    clock.advance(60_000)
    assert list(logs.offline_directories) == [str(paths[0])]
    logs.log("t", 1).append([(None, b"y")])
    clock.advance(60_000)
    assert read(paths[1], checkpoint.RECOVERY_POINT) == {("t", 1): logs.log("t", 1).recovery_point}
    with pytest.raises(OSError, match="Input/output"):
        logs.close()


def test_only_a_writer_has_background_work(tmp_path: Path) -> None:
    klog.open(tmp_path, create=True).close()
    with klog.open(tmp_path, read_only=True) as logs, pytest.raises(ReadOnly):
        logs.start()


def test_producers_expire_on_schedule(tmp_path: Path) -> None:
    """10.2: producer expiry, per log, at producer.id.expiration.check.interval.ms."""
    clock = ManualClock(NOW)
    batch = klog.record.encode([(b"k", b"v", NOW)], producer_id=9, producer_epoch=3, base_sequence=0, leader_epoch=0)
    with opened(tmp_path, clock) as logs:
        logs.create_topic("t")
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(batch)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with opened(
        tmp_path, clock, {"producer.id.expiration.ms": 5_000, "producer.id.expiration.check.interval.ms": 100}
    ) as logs:
        logs.start()
        log = logs.log("t")
        assert 9 in log.producers
        clock.advance(4_900)
        assert 9 in log.producers
        clock.advance(300)
        assert 9 not in log.producers


def test_a_changed_expiration_of_producers_is_used_at_once(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, {"producer.id.expiration.check.interval.ms": 100}) as logs:
        logs.create_topic("t")
        logs.start()
        log = logs.log("t")
        log.append_batches(produced(9, 0, 0))
        clock.advance(5_000)
        assert 9 in log.producers
        logs.alter_config({"producer.id.expiration.ms": 5_000})
        clock.advance(100)
        assert 9 not in log.producers


def test_a_period_of_2_63_1_ms_is_never(tmp_path: Path) -> None:
    """log.flush.scheduler.interval.ms defaults to 2^63-1."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        logs.start()
        assert all((task[2]._period_ms or 0) < background._NEVER_MS for task in logs._scheduler._heap)


def test_a_round_without_changes_writes_nothing(tmp_path: Path) -> None:
    """A file that was removed is still written again."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        logs.create_topic("t")
        logs.start()
        logs.append("t", [(b"k", b"v")] * 3)
        logs.log("t").flush()
        clock.advance(120_000)
        path = tmp_path / checkpoint.RECOVERY_POINT
        before = path.stat()
        assert checkpoint.read_offsets(str(path)) == {("t", 0): 3}
        clock.advance(86_400_000)
        assert path.stat().st_ino == before.st_ino
        path.unlink()
        clock.advance(120_000)
        assert checkpoint.read_offsets(str(path)) == {("t", 0): 3}
        logs.append("t", [(b"k", b"v")])
        logs.log("t").flush()
        assert checkpoint.read_offsets(str(path)) == {("t", 0): 4}
