"""Warm-up: ranges and the newest bytes of logs are read into memory before use, within a limit, without failing."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.disk import RealFiles
from klog.disk.warm_up import FileRange, warm_up
from klog.errors import UnknownTopicOrPartition
from klog.progress import Event
from tests.support.faulty_io import FaultyIo
from tests.support.few_threads import few_threads
from tests.support.page_cache import make_cold, resident_below

pytestmark = pytest.mark.disk

MIB = 1 << 20
CONFIG = {"segment.bytes": 4 * MIB, "retention.ms": -1}


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def fill(log: klog.Log, batches: int) -> None:
    for _ in range(batches):
        log.append([(b"k", bytes(1000))] * 1000)


def cool(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.suffix == ".log" and path.stat().st_size:  # indexes are mapped while they are open
            make_cold(path)


def hot(directory: Path) -> dict[str, int]:
    """Bytes of .log files in memory."""
    pages = {Path(name).name: sum(found) for name, found in resident_below(directory).items()}
    return {name: 4096 * count for name, count in pages.items() if count and name.endswith(".log")}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with klog.Log.open(tmp_path / "t-0", config=CONFIG) as log:
        fill(log, 14)
        assert len(log.segments) == 4
    time.sleep(0.02)  # a reader checks a file twice if it was changed in this tick of the clock
    return tmp_path / "t-0"


def test_the_newest_bytes_are_in_memory_before_the_first_read(directory: Path) -> None:
    with klog.Log.open(directory, read_only=True) as log:
        cool(directory)
        events: list[Event] = []
        done = log.warm_up(bytes=MIB, progress=events.append)
        assert (done.complete, done.errors) == (True, 0)
        assert MIB <= done.bytes < 2 * MIB  # and the indexes
        assert list(hot(directory)) == [Path(log.segments[-1].path).name]
        assert events[-1].done == done.bytes
        done = log.warm_up()
        assert sum(hot(directory).values()) >= log.size
        assert done.complete


def test_only_the_segments_of_a_range_are_warmed(directory: Path) -> None:
    with klog.Log.open(directory, read_only=True) as log:
        cool(directory)
        first, second = log.segments[:2]
        done = log.warm_up(first.next_offset - 1000, second.base_offset + 1)
        assert done.complete
        assert list(hot(directory)) == [Path(first.path).name, Path(second.path).name]
        with pytest.raises(ValueError, match="yesterday-ish"):
            log.warm_up("yesterday-ish")


def test_opening_warms_the_topics_configured_bytes(directory: Path) -> None:
    cool(directory)
    with klog.Log.open(directory, config={**CONFIG, "klog.io.warm.up.bytes": 20 * MIB}) as log:
        assert sum(hot(directory).values()) >= log.size


def test_warm_up_does_not_delay_opening_beyond_its_limit(directory: Path, kernel: FaultyIo) -> None:
    """U1: however slow the disk is."""
    config = {**CONFIG, "klog.io.warm.up.bytes": 20 * MIB, "klog.io.warm.up.ms": 30}
    klog.Log.open(directory, config=CONFIG, files=RealFiles(kernel.table), read_only=True).close()
    cold = kernel.calls("pread")
    kernel.rule("pread", delay_ms=100)
    with klog.Log.open(directory, config=config, files=RealFiles(kernel.table), read_only=True) as log:
        assert kernel.calls("pread") - 2 * cold <= 8  # of 14 MiB, on four threads
        stop = threading.Event()
        stop.set()
        assert not log.warm_up(cancel=stop).complete


def test_unreadable_ranges_are_skipped(directory: Path, kernel: FaultyIo) -> None:
    """U2."""
    with klog.Log.open(directory, files=RealFiles(kernel.table), read_only=True) as log:
        bad = kernel.rule("pread", error=errno.EIO, times=2)
        done = log.warm_up()
        assert (done.complete, done.errors) == (True, 2)
        kernel.lift(bad)
        assert log.count() == 14_000
    done = warm_up(RealFiles(), [FileRange(str(directory / "gone")), FileRange(str(directory / "partition.metadata"))])
    assert done.errors >= 1


def test_a_manager_warms_topics(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True, config=CONFIG) as logs:
        logs.create_topic("a", 2, config={"klog.io.warm.up.bytes": MIB})
        logs.create_topic("b")
        for log in logs.logs():
            fill(log, 1)
        for log in logs.logs():
            log.flush()
        cool(tmp_path / "a-0")
        cool(tmp_path / "b-0")
        done = logs.warm_up(["a"])
        assert (done.complete, done.files >= 2) == (True, True)
        assert hot(tmp_path / "a-0")
        assert not hot(tmp_path / "b-0")
        with pytest.raises(UnknownTopicOrPartition):
            logs.warm_up(["c"])
    cool(tmp_path / "a-0")
    cool(tmp_path / "b-0")
    with klog.open(tmp_path, config=CONFIG) as logs:
        logs.start()
        assert hot(tmp_path / "a-0")


def test_an_interrupted_warm_up_leaves_no_thread(tmp_path: Path, kernel: FaultyIo) -> None:
    (tmp_path / "a").write_bytes(bytes(64 * MIB))
    kernel.rule("pread", delay_ms=10)

    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm_up(RealFiles(kernel.table), [FileRange(str(tmp_path / "a"))] * 8, progress=interrupted)
    for thread in threading.enumerate():
        if thread.name.startswith("klog-warm-up"):
            thread.join()
    assert kernel.calls("pread") < 8 * 32


@pytest.mark.parametrize("started", [0, 1])
def test_warm_up_with_threads_that_do_not_start(tmp_path: Path, started: int) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    with few_threads(started):
        done = warm_up(RealFiles(), [FileRange(str(tmp_path / "a"))] * 4)
    assert (done.complete, done.bytes) == (bool(started), 400 * started)


def test_a_segment_whose_position_lookup_fails_is_skipped(directory: Path) -> None:
    with klog.Log.open(directory) as log:
        first, second = log.segments[:2]
        path = Path(first.path)
        path.rename(path.with_suffix(".away"))
        cool(directory)
        done = log.warm_up(5, second.base_offset + 1)
        assert done.complete and list(hot(directory)) == [Path(second.path).name]
