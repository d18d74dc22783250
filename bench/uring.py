"""Compares a durable append with and without io_uring: python -m bench.uring [DIR] [--tiny]

One append needs a write and a sync: two system calls. io_uring takes both in one call, the sync linked to the write;
and Linux has a write that syncs (RWF_DSYNC). bench/uring.c makes the same appends by each method, into blocks that are
allocated (klog's default) and into written zeros (klog.io.preallocate=zeros). The figures: p10, p50 and p99 of an
append; medians of its processor time, system calls and waits (voluntary context switches), the ring's kernel threads
included. Methods alternate in rounds, each round begins with another method, and the file is read back each time. On a
busy machine p10 is the most reliable figure.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import statistics
import sys
import tempfile
from pathlib import Path

from bench.contest import Unavailable
from bench.native import compiled
from klog.cli.output import progress_bar
from klog.progress import Event

METHODS = (
    "pwrite, fdatasync",
    "pwritev2 RWF_DSYNC",
    "io_uring write -> fdatasync",
    "io_uring write RWF_DSYNC",
    "io_uring write -> fdatasync, SQPOLL",
)
_SIZES = (1 << 10, 16 << 10)
_BLOCKS = ("allocated", "written zeros")
_COUNT, _ROUNDS = 200, 10


class Method:
    """One method to append, with its figures of all rounds. latencies: nanoseconds of each append."""

    def __init__(self, how: int) -> None:
        self._how = how
        self.name = METHODS[how]
        self.latencies: list[int] = []
        self.processor: list[float] = []  # nanoseconds per append, one value for each round; the next two are counts
        self.system_calls: list[float] = []
        self.switches: list[float] = []

    def run(self, path: Path, size: int, count: int, zeros: bool) -> None:
        """Append and read back. Raises Unavailable where the kernel does not permit it."""
        latencies, sums = (ctypes.c_int64 * count)(), [ctypes.c_int64() for _ in range(3)]
        run = compiled("uring.c").uring_run
        run.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, *[ctypes.c_int] * 2, *[ctypes.c_void_p] * 4]
        status = run(os.fsencode(path), self._how, size, count, zeros, latencies, *map(ctypes.byref, sums))
        if status in (-errno.EPERM, -errno.ENOSYS, -errno.EACCES):
            raise Unavailable(f"a kernel that permits {self.name} ({os.strerror(-status)})")
        if status:
            raise OSError(-status, os.strerror(-status), str(path))
        wanted = b"".join(bytes([(number + 1) & 255]) * size for number in range(count))
        assert path.read_bytes() == wanted, f"{self.name}: not the bytes that were appended"
        path.unlink()
        self.latencies += latencies
        for values, total in zip((self.processor, self.system_calls, self.switches), sums, strict=True):
            values.append(total.value / count)

    def text(self) -> str:
        ordered, count = sorted(self.latencies), len(self.latencies)
        figures = [
            ordered[count // 10],
            ordered[count // 2],
            ordered[count * 99 // 100],
            statistics.median(self.processor),
        ]
        counts = [statistics.median(self.system_calls), statistics.median(self.switches)]
        return f"  {self.name:<38}" + "".join(f"{figure:10.1f}" for figure in [*(ns / 1e3 for ns in figures), *counts])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.uring", description="io_uring for durable appends")
    parser.add_argument("directory", nargs="?", type=Path, help="on the disk to measure; by default a temporary one")
    parser.add_argument("--tiny", action="store_true", help="a few appends: tests that it still works")
    asked = parser.parse_args(arguments)
    count, rounds = (5, 1) if asked.tiny else (_COUNT, _ROUNDS)
    with tempfile.TemporaryDirectory(prefix="klog-bench-", dir=asked.directory) as folder, progress_bar(True) as draw:
        for size in _SIZES:
            for blocks in _BLOCKS:
                title = f"{size >> 10} KiB, {blocks}"
                methods = [Method(how) for how in range(len(METHODS))]
                for number in range(rounds):
                    first = number % max(len(methods), 1)
                    for method in methods[first:] + methods[:first]:
                        try:
                            method.run(Path(folder) / "appended", size, count, blocks != "allocated")
                        except Unavailable as missing:
                            methods.remove(method)
                            print(f"{title}: {method.name} needs: {missing}")
                    if draw is not None:
                        draw(Event(title, number + 1, rounds, "rounds"))
                print(
                    f"{title:<40}{'p10 us':>10}{'p50 us':>10}{'p99 us':>10}{'cpu us':>10}{'syscalls':>10}{'waits':>10}"
                )
                for method in methods:
                    print(method.text(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
