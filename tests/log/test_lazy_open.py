"""The cost of opening and closing a log without appends: no file is written, nothing of a segment is open."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import LogClosed
from tests.support.logs import NOW, one_log, values

Stamp = tuple[int, int, int]


def stamps(directory: Path) -> dict[str, Stamp]:
    found = {path.name: path.stat() for path in directory.iterdir()}
    return {name: (stat.st_ino, stat.st_size, stat.st_ctime_ns) for name, stat in found.items()}


def open_under(directory: Path) -> list[str]:
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return [os.readlink(link) for link in links if os.path.exists(link) and str(directory) in os.readlink(link)]


def some_segments(path: Path) -> None:
    with one_log(path, segment_bytes=4000) as log:
        for number in range(40):
            log.append([(b"k", b"%04d" % number * 100, NOW + number)])


def test_opening_and_closing_a_log_changes_nothing(tmp_path: Path) -> None:
    some_segments(tmp_path)
    before = stamps(tmp_path / "events-0")
    with klog.open(tmp_path, clock=ManualClock(NOW)) as logs:
        log = logs.log("events")
        assert not log.segments[-1].active
        assert len(values(log)) == 40
        log.flush()
    assert stamps(tmp_path / "events-0") == before


def test_the_first_append_prepares_the_log(tmp_path: Path) -> None:
    some_segments(tmp_path)
    with klog.open(tmp_path, clock=ManualClock(NOW)) as logs:
        log = logs.log("events")
        assert log.append([(b"k", b"more")]).first_offset == 40
        assert log.segments[-1].active
        assert values(log)[-1] == b"more"
    with one_log(tmp_path) as log:
        assert log.recovery.reason == ""
        assert log.log_end_offset == 41


def test_a_roll_and_a_flush_before_the_first_append(tmp_path: Path) -> None:
    some_segments(tmp_path)
    with klog.open(tmp_path, clock=ManualClock(NOW)) as logs:
        log = logs.log("events")
        count = len(log.segments)
        log.roll()
        log.flush()
        assert len(log.segments) == count + 1
        assert log.segments[-2].max_timestamp == NOW + 39
        log.append([(b"k", b"more")])
    with one_log(tmp_path) as log:
        assert len(values(log)) == 41


def test_a_closed_log_holds_no_file(tmp_path: Path) -> None:
    gc.disable()  # even while objects still refer to the log
    try:
        with klog.open(tmp_path, create=True) as logs:
            logs.create_topic("events")
            logs.append("events", [(b"k", b"v")])
        assert open_under(tmp_path / "events-0") == []
    finally:
        gc.enable()


def test_closed_segments_hold_no_index_descriptors(tmp_path: Path) -> None:
    some_segments(tmp_path)
    with klog.open(tmp_path, clock=ManualClock(NOW)) as logs:
        log = logs.log("events")
        assert len(log.segments) == 5
        assert len(open_under(tmp_path / "events-0")) <= 1, "the last segment's end was looked for"
        for offset in range(40):
            log.fetch(offset, 1)
        assert all(name.endswith(".log") for name in open_under(tmp_path / "events-0"))
    assert open_under(tmp_path / "events-0") == []
    with pytest.raises(LogClosed):
        log.fetch(0)


def test_after_a_crash_only_wrong_files_are_written(tmp_path: Path) -> None:
    some_segments(tmp_path)
    directory = tmp_path / "events-0"
    first, second = sorted(directory.glob("*.index"))[:2]
    good = second.read_bytes()
    second.write_bytes(good[:8] + b"\7" * 8)
    before = stamps(directory)
    log = klog.Log.open(directory, config={"segment.bytes": 4000}, clean_shutdown=False, recovery_point=0)
    with log:
        assert log.recovery.segments_scanned == len(log.segments)
        after = stamps(directory)
        assert second.read_bytes() == good
        assert {name for name in after if after[name] != before[name]} == {second.name}
        assert len(values(log)) == 40
    assert first.exists()
