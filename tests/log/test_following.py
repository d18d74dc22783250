"""A read-only log beside a live writer: it sees rolls, keeps its lookups short, and says when it was overtaken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog import Log
from klog.clock import ManualClock
from klog.errors import OffsetOutOfRange

T = 1_700_000_000_000


def writer(path: Path, **config: int) -> Log:
    return Log.open(
        path / "t-0", clock=ManualClock(T), config={name.replace("_", "."): v for name, v in config.items()}
    )


def reader(path: Path) -> Log:
    return Log.open(path / "t-0", clock=ManualClock(T), read_only=True)


def test_a_roll_within_one_tick_of_the_directory_time(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"a")])
        with reader(tmp_path) as follower:
            follower.refresh()
            before = os.stat(tmp_path / "t-0")
            log.roll()
            log.append([(None, b"b")])
            os.utime(tmp_path / "t-0", ns=(before.st_atime_ns, before.st_mtime_ns))
            follower.refresh()
            assert [record.value for record in follower.read()] == [b"a", b"b"]


def test_an_index_that_is_ahead_of_what_the_reader_has_seen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with writer(tmp_path, index_interval_bytes=100) as log:
        for _ in range(4):
            log.append([(None, b"v" * 100)])
        with reader(tmp_path) as follower:
            follower.refresh()
            follower.segments[-1].close()  # the index is looked at anew
            for _ in range(4):
                log.append([(None, b"v" * 100)])
            index = follower.segments[-1].index
            assert index.entries and index.entry(index.entries - 1)[1] < follower.segments[-1].size
            assert [record.offset for record in follower.read(2)] == [2, 3]
    assert not caplog.records


def test_lookups_of_a_follower_do_not_walk_the_whole_segment(tmp_path: Path) -> None:
    with writer(tmp_path) as log, reader(tmp_path) as follower:
        follower.refresh()
        for _ in range(8):
            log.append([(None, b"v" * 10_000)] * 50)
            follower.refresh()
            list(follower.read(follower.log_end_offset - 1))
        segment = follower.segments[-1]
        offset, position = segment.index.entry(segment.index.entries - 1)
        assert segment.size > 3 << 20 and segment.size - position < 2 << 20
        assert offset < follower.log_end_offset


def test_a_tail_that_is_overtaken_says_so(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"a")])
        log.roll()
        log.append([(None, b"b")])
        with reader(tmp_path) as follower:
            tail = follower.tail("earliest", timeout=1)
            for file in (tmp_path / "t-0").glob(f"{0:020d}.*"):
                file.unlink()
            with pytest.raises(OffsetOutOfRange):
                next(iter(tail))


def test_a_segment_made_anew_under_its_old_name(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"first")])
    with reader(tmp_path) as follower:
        assert [record.value for record in follower.read()] == [b"first"]
        for file in (tmp_path / "t-0").iterdir():
            file.unlink()
        with writer(tmp_path) as log:
            follower.refresh()
            log.append([(None, b"second")])
            follower.refresh()
            assert [record.value for record in follower.read()] == [b"second"]
