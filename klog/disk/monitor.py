"""Measures the page cache over time: the kernel's counters, and the residency of files.

No counter of the kernel is a hit rate of files. /proc/vmstat counts for the whole machine, all processes, since boot:

    pgpgin        KiB read from block devices: a miss, but also read-ahead, swap, metadata, and O_DIRECT
    pgpgout       KiB written to block devices
    pgfault       page faults of any kind, of every process: of mapped memory, not of read(2)
    pgmajfault    those of them that waited for a disk; a read(2) that misses is not counted
    ...           see COUNTERS for the others

The often quoted 1 - pgmajfault/pgpgin is shown as `naive_hit_rate`, because users expect it. It divides faults of
mapped memory by KiB of misses: reading a whole cold disk by read(2) gives 1.0, and a machine without misses gives no
value at all. For a file use its Residency; for klog's reads use their samples (ReadSampler).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from klog.clock import Clock, SystemClock
from klog.disk import proc
from klog.disk.files import Files, RealFiles
from klog.disk.residency import Residency, residency
from klog.values import dataclass, field

COUNTERS: Mapping[str, str] = {
    "pgpgin": "KiB read from block devices, by any process and for any reason: misses, read-ahead, swap, O_DIRECT",
    "pgpgout": "KiB written to block devices, by any process: write-back, swap, O_DIRECT",
    "pgfault": "page faults of all processes, nearly all of them without disk access; read(2) causes none",
    "pgmajfault": "page faults that waited for a disk: misses of mapped files, never those of read(2)",
    "pgscan_kswapd": "pages scanned for eviction in the background",
    "pgscan_direct": "pages scanned by a process that had to wait for memory: the page cache is too small",
    "pgsteal_kswapd": "pages evicted in the background",
    "pgsteal_direct": "pages evicted by a process that had to wait for memory",
    "workingset_refault_file": "pages of files read again soon after eviction: more memory would have kept them",
    "nr_dirtied": "pages that became dirty",
    "nr_written": "pages that were written back",
}
NAIVE = "1 - pgmajfault/pgpgin: NOT a hit rate, it divides faults of mapped memory by KiB read from disks"


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened between two samples.

    counts: the increase of each of COUNTERS that this kernel has; rates: the same per second. naive_hit_rate: 1 -
    pgmajfault/pgpgin, which is not a hit rate; None if nothing was read from a disk. files: {path: what is cached now},
    without deleted files. memory, limits: current values.
    """

    seconds: float
    counts: Mapping[str, int]
    rates: Mapping[str, float]
    naive_hit_rate: float | None
    memory: proc.SystemMemory
    limits: proc.DirtyLimits
    files: Mapping[str, Residency] = field(default_factory=dict)


class PageCacheMonitor:
    """Each sample counts from the one before it, the first from the construction. One thread.

    paths: files whose residency is reported too, or a function that returns them, called for each sample.
    """

    def __init__(
        self,
        paths: Iterable[str] | Callable[[], Iterable[str]] = (),
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        proc_root: str = proc.PROC,
    ) -> None:
        self._paths = paths if callable(paths) else tuple(paths)
        self._clock = clock or SystemClock()
        self._files = files or RealFiles()
        self._root = proc_root
        self._since = self._clock.monotonic()
        self._before = proc.read_vmstat(proc_root)

    def sample(self) -> Activity:
        """Return what happened since the last sample. Raises OSError if a file cannot be read."""
        now, found = self._clock.monotonic(), proc.read_vmstat(self._root)
        seconds = max(now - self._since, 0.0)
        # The kernel updates the counters of the processors while it adds them up, so a sum may seem to decrease.
        counts = {
            name: max(found[name] - self._before[name], 0)
            for name in COUNTERS
            if name in found and name in self._before
        }
        self._since, self._before = now, found
        return Activity(
            seconds=seconds,
            counts=counts,
            rates={name: count / seconds for name, count in counts.items()} if seconds else {},
            naive_hit_rate=naive_hit_rate(counts),
            memory=proc.read_memory(self._root),
            limits=proc.read_dirty_limits(self._root, found),
            files=self._residencies(),
        )

    def _residencies(self) -> dict[str, Residency]:
        found = {}
        for path in self._paths() if callable(self._paths) else self._paths:
            try:
                file = self._files.open(path)
            except FileNotFoundError:
                continue
            try:
                found[path] = residency(file)
            finally:
                file.close()
        return found


def naive_hit_rate(counts: Mapping[str, int]) -> float | None:
    """Return 1 - pgmajfault/pgpgin, at least 0; None if nothing was read. See the module: it is not a hit rate."""
    faults, read = counts.get("pgmajfault"), counts.get("pgpgin")
    return max(1 - faults / read, 0.0) if faults is not None and read else None
