"""A round of retention over many logs of many segments, few of them deletable; the peer is a walk over all segments.

The logs are those of a LogManager. Before each measurement one log in 250 gets one segment too many for
retention.bytes. Both contestants delete it, but find it differently. Nothing is synced: a sync would take the same time
for both, and most of it. The walk reads the size of each segment and the age of its newest record, under each log's
lock as a deletion does.
"""

from __future__ import annotations

from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory
from bench.many_segments import TIMESTAMP, write_segments
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles
from klog.log.directory import checkpoint
from tests.support.rounds import retention_round

_ONE_IN = 250
_DAY_MS = 86_400_000


class _Unsynced(RealFiles):
    def fsync(self, file: LogFile) -> None: ...

    def fdatasync(self, file: LogFile) -> None: ...

    def fsync_dir(self, path: str) -> None: ...


class _Many:
    """A log.dir of loaded logs, each of the size of its retention.bytes."""

    def __init__(self, folder: Path, logs: int, segments: int) -> None:
        folder.mkdir()
        for number in range(logs):
            write_segments(folder / f"t-{number}", segments)
        Path(checkpoint.clean_shutdown_path(str(folder))).write_bytes(checkpoint.CLEAN_SHUTDOWN_TEXT)
        self.clock = ManualClock(TIMESTAMP + 1000)
        self.manager = klog.open(folder, clock=self.clock, files=_Unsynced())
        size = (folder / "t-0" / f"{0:020}.log").stat().st_size
        config = {"retention.ms": _DAY_MS, "retention.bytes": segments * size, "file.delete.delay.ms": 0}
        self.manager.alter_topic("t", config)
        self.manager.load_all()
        self.logs = list(self.manager.logs())
        self.segments = segments

    def fill(self) -> None:
        """Add one segment too many to one log in 250."""
        self.leave()
        for log in self.logs[::_ONE_IN]:
            log.append([(b"k", b"value", TIMESTAMP)])
            log.roll()

    def leave(self) -> None:
        """Run retention until nothing is deletable, so that the empty segment of a roll is gone."""
        retention_round(self.manager)

    def starts(self) -> list[int]:
        return [log.log_start_offset for log in self.logs]


def _walk(many: _Many) -> None:
    now = many.clock.wall_ms()
    for log in many.logs:
        with log._core.lock:
            surplus = sum(segment.size for segment in log.segments) - log.config.retention_bytes
            old = sum(now - segment.max_timestamp > log.config.retention_ms for segment in log.segments if segment.size)
            due = bool(old) or surplus >= log.segments[0].size
        if due:
            log.apply_retention()


def _round(tiny: bool, folder: Path) -> Contest:
    count, segments = (20, 4) if tiny else (500, 50)
    many = _Many(folder / "logs", count, segments)

    def check() -> None:
        assert len(many.logs) == count
        moved = many.starts()
        for run in (lambda: retention_round(many.manager), lambda: _walk(many)):
            many.fill()
            run()
            moved = [start + (number % _ONE_IN == 0) for number, start in enumerate(moved)]
            assert many.starts() == moved
            assert all(log.size == log.config.retention_bytes for log in many.logs)

    return Contest(
        "retention round",
        count * segments,
        sum(log.size for log in many.logs),
        (
            Contestant("klog round over its logs", lambda: retention_round(many.manager), before=many.fill, goal=2),
            Contestant("a walk over all segments", lambda: _walk(many), before=many.fill),
        ),
        check,
        many.manager.close,
    )


FACTORIES: dict[str, Factory] = {"retention round": _round}
