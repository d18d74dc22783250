"""The cost of waiting for the disk: python -m bench.durability [DIR] [--tiny]

  1  appends per fdatasync, with an fdatasync of 5 ms: N threads, N tasks of one event loop
  2  latency of one durable append on this disk (p50, p99 and max) and MB/s: one thread, several threads, tasks; and
     pwrite and fdatasync of the same bytes into preallocated blocks
  3  the same in memory, where fdatasync does nothing: shows the limit that switching the GIL between threads sets

Methods alternate within a round, and the figures are of all rounds together: compare only figures of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import klog
from bench.commit_contests import CONFIG, SYNC_MS, Appenders
from klog import record
from klog.disk import RealFiles
from tests.support.faulty_io import FaultyIo

_MEMORY = Path("/dev/shm")
_VALUE_BYTES = 1000


def per_fdatasync(folder: Path, tiny: bool) -> None:
    print(f"appends per fdatasync, an fdatasync of {SYNC_MS:g} ms (goal 0.8 of the appenders)")
    for appenders in (2,) if tiny else (1, 4, 16, 64):
        for how in ("threads", "tasks"):
            with FaultyIo() as io:
                race = Appenders(folder / "group-0", appenders, 3 if tiny else 40, io.table)
                race.open()
                before = io.calls("fdatasync")
                io.rule("fdatasync", delay_ms=SYNC_MS)
                getattr(race, how)()
                mean = appenders * race.each / (io.calls("fdatasync") - before)
                io.heal()
                race.check()
                race.close()
                print(f"  {appenders:>3} {how:<8} {mean:6.1f}   {mean / appenders:4.2f} of them", flush=True)


class Durable:
    """Methods that make `count` records of a kilobyte durable. Each appends the seconds of each append to `took`, and
    returns the seconds of all of them."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self.count = folder, count
        self._number = 0

    def _opened(self) -> klog.Log:
        self._number += 1
        log = klog.Log.open(self._folder / f"d-{self._number}", config=CONFIG, durability="sync", clean_shutdown=True)
        log.append([(b"first", b"")])
        return log

    def _closed(self, log: klog.Log) -> None:
        assert log.count() == 1 + self.count
        log.close()
        shutil.rmtree(log.path)

    def plain(self, took: list[float]) -> float:
        encoded, path = record.encode([(b"k", b"." * _VALUE_BYTES)]), self._folder / "plain"
        files = RealFiles()
        file = files.open(str(path), write=True, create=True)
        file.preallocate(0, self.count * len(encoded))
        began = time.perf_counter()
        for number in range(self.count):
            at = time.perf_counter()
            file.write(encoded, number * len(encoded))
            files.fdatasync(file)
            took.append(time.perf_counter() - at)
        whole = time.perf_counter() - began
        file.close()
        path.unlink()
        return whole

    def threads(self, took: list[float], appenders: int) -> float:
        log = self._opened()

        def work() -> None:
            for _ in range(self.count // appenders):
                at = time.perf_counter()
                log.append([(b"k", b"." * _VALUE_BYTES)])
                took.append(time.perf_counter() - at)

        threads = [threading.Thread(target=work) for _ in range(appenders)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = time.perf_counter() - began
        self._closed(log)
        return whole

    def tasks(self, took: list[float], appenders: int) -> float:
        log = self._opened()

        async def work() -> None:
            for _ in range(self.count // appenders):
                at = time.perf_counter()
                await log.append_async([(b"k", b"." * _VALUE_BYTES)])
                took.append(time.perf_counter() - at)

        async def main() -> None:
            await asyncio.gather(*(work() for _ in range(appenders)))

        began = time.perf_counter()
        asyncio.run(main())
        whole = time.perf_counter() - began
        self._closed(log)
        return whole

    def batches(self, took: list[float], size: int) -> float:
        """Append lists of `size` records from one thread: one fdatasync for each list."""
        log = self._opened()
        rows = [(b"k", b"." * _VALUE_BYTES)] * size
        began = time.perf_counter()
        for _ in range(self.count // size):
            at = time.perf_counter()
            log.append(rows)
            took.append(time.perf_counter() - at)
        whole = time.perf_counter() - began
        self._closed(log)
        return whole


def latencies(folder: Path, count: int, rounds: int, title: str) -> None:
    print(f"{title}: {count} records of 1 KB, {rounds} rounds")
    print(f"  {'':<28} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'MB/s':>8} {'acks/s':>9}")
    durable = Durable(folder, count)
    methods: dict[str, Callable[[list[float]], float]] = {
        "pwrite + fdatasync": durable.plain,
        "append, one thread": lambda took: durable.threads(took, 1),
        "append, 4 threads": lambda took: durable.threads(took, 4),
        "append, 16 threads": lambda took: durable.threads(took, 16),
        "append, 64 threads": lambda took: durable.threads(took, 64),
        "append_async, 16 tasks": lambda took: durable.tasks(took, 16),
        "append_async, 64 tasks": lambda took: durable.tasks(took, 64),
        "append, lists of 64": lambda took: durable.batches(took, 64),
    }
    took: dict[str, list[float]] = {name: [] for name in methods}
    whole: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, method in methods.items():
            whole[name].append(method(took[name]))
    for name, times in took.items():
        times.sort()
        seconds = statistics.median(whole[name])
        print(
            f"  {name:<28} {times[len(times) // 2] * 1000:8.2f} {times[int(len(times) * 0.99)] * 1000:8.2f} "
            f"{times[-1] * 1000:8.2f} {count * _VALUE_BYTES / seconds / 1e6:8.2f} {count / seconds:9.0f}",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.durability", description="the cost of waiting for the disk")
    parser.add_argument(
        "directory", nargs="?", type=Path, help="a directory on the disk to measure; by default a temporary one"
    )
    parser.add_argument("--tiny", action="store_true", help="a few records: tests that it still works")
    asked = parser.parse_args(arguments)
    count, rounds = (64, 1) if asked.tiny else (1920, 5)
    with tempfile.TemporaryDirectory(prefix="klog-bench-", dir=asked.directory) as folder:
        per_fdatasync(Path(folder), asked.tiny)
        latencies(Path(folder), count, rounds, f"durable appends in {asked.directory or tempfile.gettempdir()}")
    if _MEMORY.is_dir():
        with tempfile.TemporaryDirectory(prefix="klog-bench-", dir=_MEMORY) as folder:
            latencies(Path(folder), count, rounds, "the same in memory, where fdatasync does nothing")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
