"""Retention over many logs: a round inspects only the oldest segments, and deletes the same segments as an inspection
of all."""

from __future__ import annotations

import itertools
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import klog
from klog.disk import LogFile, RealFiles
from klog.log.retain import retention
from klog.record import iter_records
from klog.segment import Segment
from tests.support.in_memory import memory
from tests.support.jumping_clock import Jumping
from tests.support.logs import bases
from tests.support.recorded_files import RecordedFiles
from tests.support.rounds import retention_round

HOUR = 3_600_000
POLICIES = ("delete", "compact", "compact,delete")


class Unsynced(RealFiles):
    """Skips all syncs: no test here crashes."""

    def fsync(self, file: LogFile) -> None: ...

    def fdatasync(self, file: LogFile) -> None: ...

    def fsync_dir(self, path: str) -> None: ...


# ---- all segments --------------------------------------------------------------------------------------------------


def stamps(segment: Segment) -> list[int]:
    data = Path(segment.path).read_bytes()[: segment.size]
    return [record.timestamp for record in iter_records(data, include_control=True)]


def has_expired(segment: Segment, newest: bool, config: klog.LogConfig, now: int) -> bool:
    given = [stamp for stamp in stamps(segment) if stamp >= 0]
    modified = segment.appended_ms
    if modified is None:
        modified = os.stat(segment.path).st_mtime_ns // 1_000_000
    if not given:
        return now - modified > config.retention_ms
    if now - max(given) <= config.retention_ms:
        return False
    if newest and len(given) == 1 and modified - max(given) > config["segment.ms"]:
        return now - modified >= config.retention_ms
    return True


def remaining(log: klog.Log, now: int) -> list[int]:
    """Base offsets of the segments that a round must leave, by Kafka's rules applied to every segment. If all are
    deleted: the log end, where an empty segment begins."""
    config, segments = log.config, list(log.segments)
    end, high_watermark = log.log_end_offset, log.high_watermark
    size = sum(os.path.getsize(segment.path) for segment in segments[:-1]) + segments[-1].size

    def cut(may_go: Any) -> None:
        nonlocal size
        while segments:
            first, others = segments[0], segments[1:]
            bound = others[0].base_offset if others else end
            if bound > high_watermark or (not others and first.size == 0) or not may_go(first, others):
                return
            size -= first.size
            del segments[0]

    cut(lambda _, others: others and others[0].base_offset <= log.log_start_offset)
    if "delete" in config.cleanup_policy:
        if config.retention_bytes >= 0:
            cut(lambda first, _: size - first.size >= config.retention_bytes)
        if config.retention_ms >= 0:
            cut(lambda first, others: has_expired(first, not others, config, now))
    return [segment.base_offset for segment in segments] or [end]


# ---- random lives ----------------------------------------------------------------------------------------------------


class Lives:
    """Some logs of a manager, and the operations that may happen between two rounds."""

    def __init__(self, place: Path, dice: random.Random) -> None:
        self.dice, self.clock = dice, Jumping()
        self.place = place
        self.logs = self.open()
        for topic in ("a", "b"):
            self.logs.create_topic(topic, partitions=2, config={"segment.bytes": 300, "segment.ms": HOUR})

    def open(self) -> klog.LogManager:
        return klog.open(self.place, create=True, clock=self.clock, files=Unsynced())

    @property
    def all(self) -> list[klog.Log]:
        return [self.logs.log(topic, number) for topic in ("a", "b") for number in range(2)]

    def happen(self) -> None:
        dice, log = self.dice, self.dice.choice(self.all)
        match dice.randrange(11):
            case 0 | 1 | 2:
                when = dice.choice([None, -1, 5, self.clock.wall + dice.randrange(-8 * HOUR, HOUR)])
                log.append([(b"%d" % dice.randrange(5), b"x" * dice.randrange(60), when)] * dice.randrange(1, 4))
            case 3:
                if log.segments[-1].size:
                    log.roll()
            case 4:
                if log.log_end_offset > 0:
                    log.truncate_to(dice.randrange(log.log_end_offset))
            case 5:
                if log.high_watermark > log.log_start_offset:
                    log.maybe_increment_log_start_offset(dice.randint(log.log_start_offset, log.high_watermark))
            case 6:
                log.update_high_watermark(dice.randint(log.log_start_offset, log.log_end_offset))
            case 7:
                self.logs.alter_topic(
                    dice.choice("ab"),
                    {
                        "segment.bytes": dice.choice([150, 300, 1000]),
                        "segment.ms": HOUR,
                        "cleanup.policy": dice.choice(POLICIES),
                        "retention.ms": dice.choice([-1, 0, 1, HOUR, 10 * HOUR]),
                        "retention.bytes": dice.choice([-1, -1, 0, 1, 400, 5000]),
                    },
                )
            case 8:
                self.clock.wall += dice.choice([1, HOUR, 30 * HOUR, -HOUR, -30 * HOUR])
            case 9:
                log.truncate_fully_and_start_at(log.log_end_offset + dice.randrange(3))
            case 10:
                self.logs.close()
                self.logs = self.open()

    def round(self) -> None:
        """Run a round. It leaves the segments that an inspection of all segments would leave, and is_due() is true
        exactly if the round deletes a segment."""
        now, left = self.clock.wall, {}
        for log in self.all:
            assert log.size == sum(segment.size for segment in log.segments)
            left[log.name] = expected = remaining(log, now)
            assert retention.is_due(log._core, now) is (expected != bases(log))
        retention_round(self.logs)
        for log in self.all:
            if log.config.compacts:  # the cleaner calls the same function
                retention.apply(log._core)
            assert bases(log) == left[log.name]
            assert not retention.is_due(log._core, now)
            assert log.size == sum(segment.size for segment in log.segments)
            assert log.log_start_offset >= log.segments[0].base_offset


@pytest.mark.timeout(1800)
@given(st.integers(0, 2**32))
def test_a_round_deletes_what_an_inspection_of_all_segments_would(seed: int) -> None:
    """Between rounds: appends, rolls, truncations, config changes, restarts and clock jumps."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=memory()) as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "BATCH", dice.choice([1, 2, 128]))
        patch.setattr(retention, "let_others_in", lambda: None)
        lives = Lives(Path(place), dice)
        try:
            for _ in range(8):
                for _ in range(dice.randrange(12)):
                    lives.happen()
                lives.round()
        finally:
            lives.logs.close()


# ---- what a round costs ----------------------------------------------------------------------------------------------


def filled(path: Path, count: int, /, files: RealFiles | None = None, **config: Any) -> klog.Log:
    """`count` closed segments of one record each, and an active one."""
    log = klog.Log.open(path, clock=Jumping(), files=files or Unsynced(), config={"retention.ms": -1, **config})
    for _ in range(count):
        log.append([(b"k", b"v")])
        log.roll()
    log.append([(b"k", b"v")])
    return log


def test_a_round_inspects_only_the_oldest_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It inspects no other segment, and takes no lock if nothing is due."""
    clock, asked = Jumping(), []
    with klog.open(tmp_path, create=True, clock=clock, files=Unsynced()) as logs:
        logs.create_topic("t", partitions=3, config={"retention.ms": HOUR, "retention.bytes": 1 << 30})
        for log in logs.logs():
            for _ in range(5):
                log.append([(b"k", b"v")])
                log.roll()
        retention_round(logs)
        real = Segment.max_timestamp.fget

        def watched(segment: Segment) -> int:
            asked.append((segment.directory, segment.base_offset))
            return int(real(segment))

        monkeypatch.setattr(Segment, "max_timestamp", property(watched))
        monkeypatch.setattr(retention, "apply", None)
        retention_round(logs)
        assert asked == [(log.path, 0) for log in logs.logs()]
        monkeypatch.undo()
        clock.wall += HOUR + 1
        logs.log("t", 1).append([(b"k", b"v")])
        retention_round(logs)
        assert [log.log_start_offset for log in logs.logs()] == [5, 5, 5]
        assert [log.log_end_offset for log in logs.logs()] == [5, 6, 5]


def test_a_round_writes_the_recovery_points_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if many of its logs have to flush before they delete."""
    written = []
    with klog.open(tmp_path, create=True, clock=Jumping(), files=Unsynced()) as logs:
        logs.create_topic("t", partitions=4, config={"retention.bytes": 0})
        for log in logs.logs():
            log.append([(b"k", b"v")])
        real = klog.log.directory.checkpoint.write_offsets

        def watched(files: Any, path: str, offsets: dict[tuple[str, int], int]) -> None:
            written.append(dict(offsets))
            real(files, path, offsets)

        monkeypatch.setattr(klog.log.directory.checkpoint, "write_offsets", watched)
        retention_round(logs)
        assert [log.log_start_offset for log in logs.logs()] == [1] * 4
        assert written == [{("t", number): 1 for number in range(4)}]


# ---- many at once ----------------------------------------------------------------------------------------------------


def test_appends_go_on_between_two_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of ten segments are deleted at a time. Their directory is synced once, as for the epochs, and one task
    unlinks the files."""
    files, ends = RecordedFiles(), []
    with filled(tmp_path / "t-0", 10, files) as log:
        files.calls.clear()

        def other() -> None:
            ends.append((log.append([(b"k", b"new")]).last_offset, len(log.segments), log.log_start_offset))

        monkeypatch.setattr(retention, "BATCH", 3)
        monkeypatch.setattr(retention, "let_others_in", other)
        log.update_config(log.config.replace({"retention.bytes": 1}))
        assert log.apply_retention() == 10
        assert ends == [(11, 8, 10), (12, 5, 10), (13, 2, 10)]
        assert [path for what, path in files.calls if what == "sync"] == [log.path] * 2
        assert [task.name for _, _, task in log._core.options.scheduler._heap].count("delete-file") == 1
        assert len(list(Path(log.path).glob("*.log.deleted"))) == 10
        assert log.count() == 4


def test_other_deletions_in_between_end_the_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No segment is deleted twice, and none that was appended since."""
    with filled(tmp_path / "t-0", 10) as log:
        monkeypatch.setattr(retention, "BATCH", 3)
        log.update_config(log.config.replace({"retention.bytes": 1}))
        monkeypatch.setattr(retention, "let_others_in", lambda: log.truncate_fully_and_start_at(2))
        assert log.apply_retention() == 3
        assert (bases(log), log.log_start_offset, log.log_end_offset) == ([2], 2, 2)

    with filled(tmp_path / "again-0", 10) as log:
        inner = []
        log.update_config(log.config.replace({"retention.bytes": 1}))

        def another() -> None:
            monkeypatch.setattr(retention, "let_others_in", lambda: None)
            inner.append(log.apply_retention())

        monkeypatch.setattr(retention, "let_others_in", another)
        assert (log.apply_retention(), inner, bases(log)) == (3, [7], [10])

    log = filled(tmp_path / "closed-0", 10)
    log.update_config(log.config.replace({"retention.bytes": 1}))
    monkeypatch.setattr(retention, "let_others_in", log.close)
    with pytest.raises(klog.errors.LogClosed):
        log.apply_retention()
    with klog.Log.open(log.path, config={"retention.bytes": 1, "retention.ms": -1}) as log:
        assert len(log.segments) == 8
        assert log.apply_retention() == 7
        assert (log.count(), log.log_start_offset) == (1, 10)


class Slow(Unsynced):
    """Each unlink takes two hundredths of a second."""

    def __init__(self) -> None:
        super().__init__()
        self.clock: Any = None

    def unlink(self, path: str) -> None:
        if self.clock is not None:
            self.clock.passed += 0.02
        super().unlink(path)


def test_large_files_are_unlinked_in_small_groups(tmp_path: Path) -> None:
    """Flushes and checkpoints, which use the same thread, do not have to wait for all of them."""
    files, left = Slow(), []
    with filled(tmp_path / "t-0", 3, files, **{"file.delete.delay.ms": 1000}) as log:
        log.update_config(log.config.replace({"retention.bytes": 1}))
        assert log.apply_retention() == 3
        files.clock = log.clock
        for _ in range(6):
            left.append(len(list(Path(log.path).glob("*.deleted"))))
            log.clock.sleep(1)
            log._core.options.scheduler.run_due()
    assert left[0] == 11
    assert all(0 < before - after <= 3 for before, after in itertools.pairwise(left))
    assert left[-1] == 0
