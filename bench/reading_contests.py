"""The read policies: cold files, batches that are read again, merged reads, a busy second thread.

    disk cold     64 MiB that are not cached: with the kernel's read-ahead, with klog's read-ahead too, with O_DIRECT
    disk warmed   the newest MiB of a cold log, with and without a warm-up before
    disk again    compressed batches to columns a second time: decompressed records kept, or decompressed again
    disk parts    headers that lie 4 KiB apart: one vectored read, or a read each
    disk busy     short reads and appends beside a busy thread: klog's, and os.pread and os.pwrite

Files are dropped from the page cache before each measurement, and the results are checked first. `disk busy` measures
the mean seconds of one call, which include the wait for the GIL if the call released it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import klog
from bench.contest import Contest, Contestant, Factory
from bench.log_contests import MIB, read_all, written
from bench.workloads import workload
from klog.disk import RealFiles, read_parts

_GOAL = 0.9


def drop(directory: Path) -> None:
    """Drop all .log files of a directory from the page cache."""
    for path in directory.glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _cold(tiny: bool, folder: Path) -> Contest:
    directory, _, size = written(folder / "cold-0", "1KiB", tiny)
    policies: dict[str, dict[str, Any]] = {
        "the kernel's read-ahead": {},
        "klog.io.read.ahead.bytes 1 MiB": {"klog.io.read.ahead.bytes": MIB},
        "klog.io.read.ahead.bytes 8 MiB": {"klog.io.read.ahead.bytes": 8 * MIB},
        "klog.io.read direct": {"klog.io.read": "direct"},
    }
    logs = {name: klog.Log.open(directory, config=policy, read_only=True) for name, policy in policies.items()}

    def read(name: str) -> int:
        return sum(len(chunk.buffer) for chunk in logs[name].read().chunks())

    def check() -> None:
        for name in logs:
            drop(directory)
            assert read(name) == size

    def close() -> None:
        for log in logs.values():
            log.close()

    empty = partial(drop, directory)
    reading = Contestant("pread loop, 1 MiB", lambda: read_all(directory), before=empty)
    klogs = [Contestant(f"klog chunks(), {name}", partial(read, name), before=empty) for name in logs]
    klogs[0] = Contestant(klogs[0].name, klogs[0].run, before=empty, goal=_GOAL)
    return Contest("disk cold", 0, size, (*klogs, reading), check, close, limit=reading)


def _warmed(tiny: bool, folder: Path) -> Contest:
    directory, _, _ = written(folder / "warmed-0", "1KiB", tiny)
    log = klog.Log.open(directory, read_only=True)
    start = log.log_end_offset - (20 if tiny else 1000)

    def first_read() -> int:
        return sum(1 for _ in log.read(start))

    def warm() -> None:
        drop(directory)
        assert log.warm_up(bytes=2 * MIB).complete

    def check() -> None:
        warm()
        assert first_read() == log.log_end_offset - start

    return Contest(
        "disk warmed",
        log.log_end_offset - start,
        0,
        (
            Contestant("klog first read after warm_up()", first_read, before=warm),
            Contestant("klog first read, cold", first_read, before=partial(drop, directory)),
        ),
        check,
        log.close,
    )


def _again(codec: str, tiny: bool, folder: Path) -> Contest:
    load = workload("100B", tiny=tiny)
    directory = folder / "again-0"
    with klog.Log.open(directory) as log:
        for _ in range(4):
            log.append(load.tuples(), compression=codec)
    plain = klog.Log.open(directory, read_only=True)
    kept = klog.Log.open(directory, read_only=True, config={"klog.io.read.cache.bytes": 256 * MIB})

    def read(log: klog.Log) -> int:
        return sum(columns.num_rows for columns in log.read().columns())

    def check() -> None:
        assert read(plain) == read(kept) == read(kept) == 4 * load.count
        assert kept.metrics()["ReadCacheHits"] > 0

    def close() -> None:
        plain.close()
        kept.close()

    return Contest(
        f"disk again {codec}",
        4 * load.count,
        4 * load.bytes,
        (
            Contestant("klog columns, plain records kept", partial(read, kept)),
            Contestant("klog columns, decompressed again", partial(read, plain)),
        ),
        check,
        close,
    )


def _parts(tiny: bool, folder: Path) -> Contest:
    directory, _, size = written(folder / "parts-0", "1KiB", tiny)
    path = min(directory.glob("*.log"))
    file = RealFiles().open(str(path))
    wanted = [(position, 61) for position in range(0, min(path.stat().st_size, size) - 61, 4096)]

    def together() -> list[bytes]:
        return [bytes(part) for part in read_parts(file, wanted) if not isinstance(part, OSError)]

    def alone() -> list[bytes]:
        return [bytes(file.read(*one)) for one in wanted]

    def check() -> None:
        assert together() == alone()

    return Contest(
        "disk parts",
        len(wanted),
        0,
        (
            Contestant("klog read_parts(), neighbours merged", together),
            Contestant("klog LogFile.read(), one each", alone),
        ),
        check,
        file.close,
    )


def _busy(size: int, tiny: bool, folder: Path) -> Contest:
    """Return a contest of short reads and writes. The busy thread exists only during a run."""
    path = folder / "busy"
    data, times = os.urandom(size), 5 if tiny else 200
    path.write_bytes(data)
    file = RealFiles().open(str(path), write=True)
    descriptor = file.fileno()

    def beside(call: Callable[[], object]) -> None:
        over = threading.Event()

        def compute() -> None:
            count = 0
            while not over.is_set():
                for _ in range(10_000):
                    count += 1

        thread = threading.Thread(target=compute)
        thread.start()
        try:
            for _ in range(times):
                call()
        finally:
            over.set()
            thread.join()

    def check() -> None:
        assert bytes(file.read(0, size)) == os.pread(descriptor, size, 0) == data

    return Contest(
        f"disk busy {size >> 10}KiB",
        times,
        times * size,
        (
            Contestant("klog LogFile.read()", lambda: beside(lambda: file.read(0, size))),
            Contestant("klog LogFile.write()", lambda: beside(lambda: file.write(data, 0))),
            Contestant("os.pwrite()", lambda: beside(lambda: os.pwrite(descriptor, data, 0))),
            Contestant("os.pread()", lambda: beside(lambda: os.pread(descriptor, size, 0))),
        ),
        check,
        file.close,
    )


FACTORIES: dict[str, Factory] = {
    "disk cold": _cold,
    "disk warmed": _warmed,
    **{f"disk again {codec}": partial(_again, codec) for codec in ("lz4", "zstd")},
    "disk parts": _parts,
    **{f"disk busy {size >> 10}KiB": partial(_busy, size) for size in (4096, 65536)},
}
