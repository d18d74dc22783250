"""The pages that a cleaning leaves in the page cache, and how its writes reach the disk."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.cleaner import footprint
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.disk.write_behind import WriteBackFailed
from tests.cleaner.logs import NOW, values
from tests.support.faulty_io import FaultyIo
from tests.support.page_cache import make_cold, make_hot, resident_pages

pytestmark = pytest.mark.disk

KIB, MIB = 1 << 10, 1 << 20
CONFIG = {"cleanup.policy": "compact", "segment.bytes": 2 * MIB}
KEYS = 64


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def dirty(directory: Path, kernel: FaultyIo, *, keys: int = KEYS, **config: object) -> klog.Log:
    """Write three closed segments of 1 MiB and an active one, none of them in the page cache."""
    log = klog.Log.open(directory, config={**CONFIG, **config}, clock=ManualClock(NOW), files=RealFiles(kernel.table))
    for _ in range(3):
        for start in range(0, 256, 32):
            log.append([(b"%d" % (n % keys), bytes(4 * KIB), NOW) for n in range(start, start + 32)])
        log.roll()
    log.append([(b"newest", b"", NOW)])
    log.flush()
    for path in directory.glob("*.log"):
        if path.stat().st_size > MIB:
            make_cold(path)
    return log


def resident(directory: Path, pattern: str) -> list[bool]:
    """For each large file, whether more pages are cached than the few that wait in a per-CPU list."""
    large = (path for path in sorted(directory.glob(pattern)) if path.stat().st_size > 4 * KIB)
    return [sum(resident_pages(path)) > 32 for path in large]


@pytest.mark.parametrize("kept", [0, MIB * 3 // 2, 128 * MIB])
def test_cleaning_a_cold_log_leaves_no_cached_pages(
    tmp_path: Path, kernel: FaultyIo, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F1, F3: whether or not pass 1 leaves cached pages for pass 2."""
    monkeypatch.setattr(footprint, "KEPT_BYTES", kept)
    with dirty(tmp_path / "t-0", kernel) as log:
        assert log.compact().records_after == KEYS + 1
    assert resident(tmp_path / "t-0", "*.log.deleted") == [False] * 3
    assert resident(tmp_path / "t-0", "*[0-9].log") == [False]


def test_a_dry_run_leaves_no_cached_pages(tmp_path: Path, kernel: FaultyIo) -> None:
    with dirty(tmp_path / "t-0", kernel) as log:
        log.compact(dry_run=True, top=0)  # reads the top keys from the log
    assert resident(tmp_path / "t-0", "*.log") == [False] * 3


def test_cached_segments_and_their_cleaned_copies_stay_cached(tmp_path: Path, kernel: FaultyIo) -> None:
    with dirty(tmp_path / "t-0", kernel) as log:
        _, second, third = [segment.path for segment in log.segments[:3]]
        make_hot(third)
        make_hot(second, 0, 256 * KIB)
        before = [sum(resident_pages(path)) for path in (second, third)]
        log.compact()
        after = [sum(resident_pages(path + ".deleted")) for path in (second, third)]
        assert -32 < after[0] - before[0] < 32  # the kernel may evict a page
        assert -32 < after[1] - before[1] <= 0
    assert resident(tmp_path / "t-0", "*.log.deleted") == [False, True, True]
    assert resident(tmp_path / "t-0", "*[0-9].log") == [True]


def test_without_drop_behind_every_page_stays_cached(tmp_path: Path, kernel: FaultyIo) -> None:
    with dirty(tmp_path / "t-0", kernel, **{"klog.io.scan.drop.behind": False}) as log:
        log.compact()
    assert resident(tmp_path / "t-0", "*.log.deleted") == [True] * 3


def test_writeback_runs_in_steps(tmp_path: Path, kernel: FaultyIo, monkeypatch: pytest.MonkeyPatch) -> None:
    """F2: writeback starts early and is waited for once the window has moved past it."""
    monkeypatch.setattr(footprint, "WINDOW_BYTES", 256 * KIB)
    with dirty(tmp_path / "t-0", kernel, keys=256) as log:
        log.compact()
        assert kernel.calls("sync_file_range") >= 2
        assert len(values(log)) == 257


@pytest.mark.parametrize("nth", [1, 2])
def test_failed_writeback_counts_as_a_failed_fsync(
    tmp_path: Path, kernel: FaultyIo, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4, S4: the old log is unchanged."""
    monkeypatch.setattr(footprint, "WINDOW_BYTES", 256 * KIB)
    log = dirty(tmp_path / "t-0", kernel, keys=256)
    kernel.rule("sync_file_range", error=errno.EIO, nth=nth, times=1)
    with pytest.raises(WriteBackFailed):
        log.compact()
    with contextlib.suppress(OSError):
        log.close()
    with klog.Log.open(tmp_path / "t-0", config=CONFIG, clock=ManualClock(NOW)) as log:
        assert len(values(log)) == 257
