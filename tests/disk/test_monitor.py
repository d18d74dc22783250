"""The values that the monitor reads from /proc, and computes from two samples. The test writes the files of /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.clock import ManualClock
from klog.disk import proc
from klog.disk.monitor import COUNTERS, PageCacheMonitor, naive_hit_rate
from tests.support.page_cache import PAGE, make_cold, make_hot

MEMINFO = """MemTotal:       16384000 kB
MemFree:         1000 kB
MemAvailable:    8000000 kB
Cached:          4000000 kB
Dirty:               56 kB
Writeback:            8 kB
HugePages_Total:       3
"""
VMSTAT = (
    "nr_dirty 14\nnr_dirty_threshold 1000\nnr_dirty_background_threshold 500\npgpgin {}\npgpgout {}\npgmajfault {}\n"
)
SETTINGS = {
    "dirty_ratio": "20\n",
    "dirty_bytes": "0\n",
    "dirty_background_ratio": "10\n",
    "dirty_background_bytes": "0\n",
    "dirty_expire_centisecs": "3000\n",
    "dirty_writeback_centisecs": "500\n",
}


def write(root: Path, pgpgin: int = 1000, pgpgout: int = 70, pgmajfault: int = 5) -> str:
    (root / "sys" / "vm").mkdir(parents=True, exist_ok=True)
    (root / "meminfo").write_text(MEMINFO)
    (root / "vmstat").write_text(VMSTAT.format(pgpgin, pgpgout, pgmajfault))
    for name, text in SETTINGS.items():
        (root / "sys" / "vm" / name).write_text(text)
    return str(root)


def test_memory_and_limits_in_bytes(tmp_path: Path) -> None:
    root = write(tmp_path)
    assert proc.read_memory(root) == proc.SystemMemory(
        16384000 << 10, 1000 << 10, 8000000 << 10, 4000000 << 10, 56 << 10, 8 << 10
    )
    assert proc.read_meminfo(root)["HugePages_Total"] == 3
    assert proc.read_dirty_limits(root) == proc.DirtyLimits(20, 0, 10, 0, 3000, 500, 1000 * PAGE, 500 * PAGE)


def test_this_machine_has_the_counters() -> None:
    memory, limits = proc.read_memory(), proc.read_dirty_limits()
    assert memory.total and memory.cached is not None and memory.dirty is not None
    assert limits.threshold and limits.background_threshold and limits.threshold >= limits.background_threshold
    assert {"pgpgin", "pgmajfault", "nr_written"} <= set(proc.read_vmstat())


def test_a_missing_proc_file_gives_no_number(tmp_path: Path) -> None:
    root = str(tmp_path / "nothing")
    assert proc.read_vmstat(root) == proc.read_meminfo(root) == {}
    assert proc.read_memory(root) == proc.SystemMemory(*[None] * 6)
    assert proc.read_dirty_limits(root) == proc.DirtyLimits(*[None] * 8)
    activity = PageCacheMonitor(proc_root=root).sample()
    assert (activity.counts, activity.rates, activity.naive_hit_rate) == ({}, {}, None)


@pytest.mark.parametrize(
    "line",
    [
        b"pgpgin",
        b"pgpgin -5",
        b"pgpgin 5.5",
        b"pgpgin 0x10",
        b"pgpgin \xd9\xa3",  # a digit outside ASCII
        b"pgpgin " + b"9" * 5000,
        b"pgpgin 5 pages",
        b"pgpgin 5 kB more",
        b"\xff\xfe\x00\x00",
        b"",
        b"\n\n\n",
        b"x" * (2 << 20),
    ],
)
def test_malformed_lines_are_ignored(tmp_path: Path, line: bytes) -> None:
    root = write(tmp_path)
    for name in ("vmstat", "meminfo", "sys/vm/dirty_ratio"):
        (tmp_path / name).write_bytes(line)
    assert "pgpgin" not in proc.read_vmstat(root)
    assert proc.read_memory(root).total is None
    assert proc.read_dirty_limits(root).ratio is None
    assert PageCacheMonitor(proc_root=root).sample().counts == {}


def test_a_directory_or_fifo_in_its_place_is_ignored(tmp_path: Path) -> None:
    import os

    (tmp_path / "vmstat").mkdir()
    os.mkfifo(tmp_path / "meminfo")
    assert proc.read_vmstat(str(tmp_path)) == proc.read_meminfo(str(tmp_path)) == {}


def test_counts_and_rates_between_two_samples(tmp_path: Path) -> None:
    clock, root = ManualClock(), write(tmp_path)
    monitor = PageCacheMonitor(clock=clock, proc_root=root)
    write(tmp_path, pgpgin=5000, pgpgout=90, pgmajfault=25)
    clock.advance(4000)
    activity = monitor.sample()
    assert activity.seconds == 4.0
    assert activity.counts == {"pgpgin": 4000, "pgpgout": 20, "pgmajfault": 20}
    assert activity.rates == {"pgpgin": 1000.0, "pgpgout": 5.0, "pgmajfault": 5.0}
    assert activity.naive_hit_rate == 1 - 20 / 4000
    assert activity.limits.threshold == 1000 * PAGE and activity.memory.dirty == 56 << 10
    write(tmp_path, pgpgin=4990, pgpgout=90, pgmajfault=25)  # a sum over CPUs may briefly decrease
    clock.advance(1000)
    again = monitor.sample()
    assert again.counts == {"pgpgin": 0, "pgpgout": 0, "pgmajfault": 0} and again.naive_hit_rate is None


def test_no_rate_without_elapsed_time(tmp_path: Path) -> None:
    monitor = PageCacheMonitor(clock=ManualClock(), proc_root=write(tmp_path))
    assert monitor.sample().rates == {}


def test_the_naive_rate_is_not_a_hit_rate() -> None:
    """It is 100 % for a whole disk read by read(2), all of it missed, and 0 without misses."""
    assert naive_hit_rate({"pgpgin": 1 << 20, "pgmajfault": 0}) == 1.0
    assert naive_hit_rate({"pgpgin": 0, "pgmajfault": 0}) is None
    assert naive_hit_rate({"pgpgin": 4, "pgmajfault": 8}) == 0.0
    assert naive_hit_rate({}) is None


def test_every_counter_is_described() -> None:
    assert all(len(meaning) > 15 for meaning in COUNTERS.values())
    assert "never those of read(2)" in COUNTERS["pgmajfault"]


def test_residency_is_reported_with_the_counters(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b", "gone")]
    for path in paths[:2]:
        Path(path).write_bytes(bytes(4 * PAGE))
        make_cold(path)
    make_hot(paths[1], 0, PAGE)
    monitor = PageCacheMonitor(paths, clock=ManualClock(), proc_root=write(tmp_path / "proc"))
    assert {path: found.cached_bytes for path, found in monitor.sample().files.items()} == {paths[0]: 0, paths[1]: PAGE}
    monitor = PageCacheMonitor(lambda: paths[:1], proc_root=write(tmp_path / "proc"))
    assert list(monitor.sample().files) == paths[:1]
