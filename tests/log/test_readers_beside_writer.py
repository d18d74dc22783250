"""Readers in other threads during rolls: maps and descriptors stay valid, and no record is missed."""

from __future__ import annotations

import errno
import os
import random
import sys
import threading
from pathlib import Path

import pytest

from klog import Log
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.log.state._log_core import LogCore
from klog.log.write import append_batches
from klog.segment import IndexPair
from tests.support.faulty_io import FaultyIo
from tests.support.patience import PATIENCE, until

T = 1_700_000_000_000
SMALL = {"segment.bytes": 2000, "index.interval.bytes": 100, "segment.index.bytes": 4096}


def open_log(path: Path, **more: object) -> Log:
    return Log.open(path / "t-0", config=SMALL, clock=ManualClock(T), **more)  # type: ignore[arg-type]


def fill(log: Log, batches: int) -> None:
    for number in range(batches):
        log.append([(b"%d" % number, b"v" * 80, T + number)])


def test_lookups_while_an_index_changes_its_length(tmp_path: Path) -> None:
    """ftruncate(2) releases the GIL: a lookup during the call still finds the map."""
    seen, ready = [], threading.Event()
    with FaultyIo() as kernel, open_log(tmp_path, files=RealFiles(kernel.table)) as log:
        fill(log, 8)
        index = log.segments[-1].index
        assert isinstance(index, IndexPair) and index.entries > 1
        kernel.heal()
        rule = kernel.rule("ftruncate", delay_ms=PATIENCE * 1000)

        def look_up() -> None:
            ready.set()
            while kernel.calls("ftruncate") < 3:  # the indexes; then the log itself, after which they are closed
                found = index.floor(7)[0], index.time_floor(T + 7)[1], index.upper_bound(1)
                if kernel.calls("ftruncate") in (1, 2):
                    seen.append(found)
                    if len(seen) == 5:
                        kernel.release(rule)

        looking = threading.Thread(target=look_up)
        looking.start()
        ready.wait()
        log.roll()
        looking.join()
    assert len(seen) > 4 and set(seen) == {seen[0]}


def test_an_index_whose_resize_fails_still_works(tmp_path: Path) -> None:
    with FaultyIo() as kernel, open_log(tmp_path, files=RealFiles(kernel.table)) as log:
        fill(log, 8)
        index = log.segments[-1].index
        kernel.rule("ftruncate", error=errno.EIO)
        for change in (index.trim, lambda: index.grow(8192)):
            with pytest.raises(OSError, match="Input/output"):
                change()
            assert index.floor(7)[0] == 7 and index.time_floor(T + 7)[1] == 7
        with pytest.raises(OSError, match="Input/output"):
            index.reset(4096)
        assert index.floor(7) == (0, 0) and index.time_floor(T + 7)[0] in (-1, T + 7)
        kernel.heal()
        index.reset(4096)
        log.close()
        assert index.floor(7) == (0, 0) and index.upper_bound(0) is None


def test_a_roll_keeps_the_descriptor_that_a_reader_uses(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, 3)
        segment = log.segments[-1]
        file, size = segment.file, segment.size
        log.roll()
        assert len(file.read(0, size)) == size
        log.close()
        assert len(file.read(0, size)) == size


def test_readers_miss_nothing_while_segments_roll(tmp_path: Path) -> None:
    problems: list[BaseException] = []
    done, rounds = threading.Event(), [0] * 3
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with open_log(tmp_path) as log:

        def read(seed: int) -> None:
            pick = random.Random(seed)
            try:
                while not done.is_set():
                    end = log.log_end_offset
                    start = pick.randrange(max(0, end - 60), end + 1)
                    assert [record.offset for record in log.read(start, end)] == list(range(start, end))
                    assert log.count(start, end) == end - start
                    found = log.offset_for_timestamp(T + start)
                    assert found.offset == start if found is not None else start == end
                    rounds[seed] += 1
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        try:
            fill(log, 800)
            until(lambda: problems or min(rounds) > 10)
        finally:
            done.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)
    assert not problems


def test_readers_that_find_a_broken_index_together(tmp_path: Path) -> None:
    """One of them rebuilds the index, which shortens the file: the others must not have it mapped at that moment."""
    problems: list[BaseException] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with Log.open(tmp_path / "t-0", config={"segment.bytes": 200_000, "index.interval.bytes": 100}) as log:
        for _ in range(8):
            log.append([(b"k", b"v" * 100)] * 3000)
        closed = log.segments[:-1]
        assert len(closed) > 5
        for segment in closed:
            segment.close()
            os.truncate(segment.path.removesuffix("log") + "index", 7)

        def read() -> None:
            try:
                for segment in closed:
                    assert next(iter(log.read(segment.next_offset - 1))).offset == segment.next_offset - 1
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not problems


def test_a_lookup_by_time_does_not_see_an_unfinished_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's first part is written, its segment is being rolled, and all of it may still be rolled back."""
    found = []
    with open_log(tmp_path) as log:
        fill(log, 3)
        roll = append_batches.roll_locked

        def watched(core: LogCore, base_offset: int) -> None:
            found.append((log.segments[-1].next_offset, log.offset_for_timestamp(T + 10)))
            roll(core, base_offset)

        monkeypatch.setattr(append_batches, "roll_locked", watched)
        log.append([(b"k", b"v" * 900, T + 10)] * 4)
        assert max(found)[0] > 3 and {seen for _, seen in found} == {None}
        assert log.offset_for_timestamp(T + 10) == (T + 10, 3)
