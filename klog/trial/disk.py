"""Measures a disk. A contest compares several policies of I/O.

append 4 KiB, 64 KiB, 1 MiB  each policy of writing: rate until the bytes are on disk, and until append() returned
durable append               durability="sync": one thread, several threads that share flushes
sequential read              through the log: from the page cache; cold, by each policy of reading
random read                  the same, only with the kernel's read-ahead
send                         a slice to a socket: by sendfile, or read and sent
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial

from klog.clock import Clock
from klog.disk.residency import residency
from klog.log import Log
from klog.manager.pool import run_all
from klog.progress import Progress
from klog.record import encode
from klog.trial import advice
from klog.trial.own_directory import own_directory
from klog.trial.report import Report, Result
from klog.trial.rounds import Figures, Rounds, Ways, rate, waits
from klog.values import replace

BATCHES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
POLICIES: dict[str, dict[str, str]] = {
    advice.BUFFERED: {},
    advice.NO_BLOCKS: {"klog.io.preallocate": "none"},
    advice.ZEROS: {"klog.io.preallocate": "zeros"},
    advice.WRITE_BEHIND: {"klog.io.write.behind.bytes": "1048576"},
    advice.DONTCACHE: {"klog.io.write": "dontcache"},
    advice.DIRECT: {"klog.io.write": "direct"},
}
READS: dict[str, dict[str, str]] = {
    advice.HOT: {},
    advice.COLD: {},
    advice.COLD_AHEAD: {"klog.io.read.ahead.bytes": str(4 << 20)},
    advice.COLD_DIRECT: {"klog.io.read": "direct"},
}
THREADS = {advice.ONE_THREAD: 1, "4 threads": 4, "16 threads": 16}
SIZE_MIN = 32 << 20
_DURABLE_APPENDS = 200
_DURABLE_SECONDS = 0.4
_READS = 64
_READ_BATCH = "64 KiB"
_CONFIG = {"segment.bytes": str(1 << 30), "max.message.bytes": str(4 << 20)}


def try_disk(
    directory: str | os.PathLike[str],
    *,
    size: int = 512 << 20,
    seconds: float = 30.0,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Report:
    """Measure the disk of `directory`, in a new directory inside it, which is removed afterwards.

    About `size` bytes are written, at most half of them at a time; `seconds` limits the time, but each contest runs for
    at least one round. progress: called with Events, in contests. Raises ValueError (size below 32 MiB), OSError: too
    little free space, or a disk error.
    """
    with own_directory(directory, size, SIZE_MIN) as (parent, scratch):
        rounds = Rounds("bench disk", len(BATCHES) + 4, size, seconds, clock, progress)
        return _Trial(parent, scratch, size, rounds).run()


def payload(batch_bytes: int) -> bytes:
    """Return an encoded batch with one record, of about this size, which cannot be compressed."""
    return encode([(None, os.urandom(batch_bytes - 100))])


class _Trial:
    def __init__(self, parent: str, scratch: str, size: int, rounds: Rounds) -> None:
        self._parent, self._scratch, self._size, self._rounds = parent, scratch, size, rounds
        self._clock = rounds.clock
        self._number = 0
        self._notes: list[str] = []
        self._impossible: set[str] = set()

    def run(self) -> Report:
        start = self._clock.monotonic()
        # three contests of appends, one of durable ones, and what is read
        contest = partial(self._rounds.contest, share=1 / 5)
        results: list[Result] = []
        for name, batch_bytes in BATCHES.items():
            results += contest(f"{advice.APPEND} {name}", self._appends(batch_bytes), POLICIES)
        results += contest(f"{advice.DURABLE} 4 KiB", self._durables())
        with self._open("read") as log:
            self._fill(log, self._size // 4, payload(BATCHES[_READ_BATCH]))
            path = log.path
        with Log.open(path, read_only=True) as log:  # it maps no file: mapped pages cannot be dropped from the cache
            results += contest(advice.SEQUENTIAL, self._scans(log), READS)
            results += contest(f"{advice.RANDOM} of {_READ_BATCH}", self._fetches(log), less_is_better=True)
            results += contest(f"{advice.SEND} 1 MiB slices", self._sends(log))
        taken = self._clock.monotonic() - start
        results = [one for one in results if one.way not in self._impossible]
        report = Report(self._parent, results, self._rounds.written, taken, self._notes)
        return replace(report, advice=advice.recommend(results))

    def _open(self, name: str, settings: Mapping[str, str] | None = None, durability: str = "os") -> Log:
        self._number += 1
        directory = os.path.join(self._scratch, f"{name}-{self._number}")
        os.mkdir(directory)
        config = {**_CONFIG, **(settings or {})}
        return Log.open(os.path.join(directory, "t-0"), config=config, durability=durability)  # type: ignore[arg-type]

    def _fill(self, log: Log, size: int, batch: bytes) -> int:
        count = max(size // len(batch), 2)
        for _ in range(count):
            log.append_batches(batch)
        self._rounds.wrote(count * len(batch))
        return count * len(batch)

    # ---- appends ---------------------------------------------------------------------------------------------------

    def _appends(self, batch_bytes: int) -> Ways:
        share = self._size // 5 // (len(POLICIES) * 2)  # for at least two rounds
        batch = payload(batch_bytes)

        def append(policy: str) -> Figures:
            with self._open("append", POLICIES[policy]) as log:
                start = self._clock.monotonic()
                size = self._fill(log, share, batch)
                appended = self._clock.monotonic()
                log.flush()
                flushed = self._clock.monotonic()
                if log.metrics()["WriteFallbacks"] and policy not in self._impossible:
                    self._impossible.add(policy)
                    self._notes.append(f"{policy} is not available: the kernel or the file system does not support it")
                log.delete()
            return {
                "MB/s to the disk": rate(size / 1e6, flushed - start),
                "MB/s append": rate(size / 1e6, appended - start),
            }

        return {policy: lambda policy=policy: append(policy) for policy in POLICIES}  # type: ignore[misc]

    def _durables(self) -> Ways:
        batch = payload(BATCHES["4 KiB"])

        def append(threads: int) -> Figures:
            seconds: list[float] = []
            with self._open("durable", durability="sync") as log:
                log.append_batches(batch)
                start = self._clock.monotonic()
                stop = start + _DURABLE_SECONDS

                def work() -> None:
                    for _ in range(max(_DURABLE_APPENDS // threads, 10)):
                        before = self._clock.monotonic()
                        log.append_batches(batch)
                        after = self._clock.monotonic()
                        seconds.append(after - before)
                        if after > stop:
                            break

                failed = run_all([work] * threads, threads)
                if failed:
                    raise failed[0]
                taken = self._clock.monotonic() - start
                log.delete()
            self._rounds.wrote(len(seconds) * len(batch))
            return {"appends/s": rate(len(seconds), taken), **waits(seconds)}

        return {policy: lambda threads=threads: append(threads) for policy, threads in THREADS.items()}  # type: ignore[misc]

    # ---- reads -----------------------------------------------------------------------------------------------------

    def _cool(self, log: Log) -> None:
        """Drop the log from the page cache, if the file system uses it."""
        for segment in log.segments:
            segment.file.advise(0, 0, os.POSIX_FADV_DONTNEED)
            found = residency(segment.file)
            if found.cached_bytes > found.size // 2:
                note = "there are no cold reads here: the file system keeps the files in memory"
                if note not in self._notes:
                    self._notes.append(note)

    def _heat(self, log: Log) -> None:
        for _ in log.chunks(log.log_start_offset, log.log_end_offset):
            pass

    def _scans(self, log: Log) -> Ways:
        def scan(policy: str) -> Figures:
            with Log.open(log.path, read_only=True, config=READS[policy]) as reader:
                (self._heat if policy == advice.HOT else self._cool)(reader)
                start = self._clock.monotonic()
                size = sum(len(chunk.buffer) for chunk in reader.chunks(reader.log_start_offset, reader.log_end_offset))
                return {"MB/s": rate(size / 1e6, self._clock.monotonic() - start)}

        return {policy: lambda policy=policy: scan(policy) for policy in READS}  # type: ignore[misc]

    def _fetches(self, log: Log) -> Ways:
        offsets = range(log.log_start_offset, log.log_end_offset)

        def fetch(prepare: Callable[[Log], None]) -> Figures:
            picked = random.Random(7).choices(offsets, k=_READS)
            prepare(log)
            start = self._clock.monotonic()
            for offset in picked:
                bytes(log.fetch(offset, 1).memory())
            return {"ms a read": (self._clock.monotonic() - start) / len(picked) * 1e3}

        return {advice.HOT: lambda: fetch(self._heat), advice.COLD: lambda: fetch(self._cool)}

    def _sends(self, log: Log) -> Ways:
        batch_bytes = log.size // (log.log_end_offset - log.log_start_offset)  # all batches have the same size

        def send(by_kernel: bool) -> Figures:
            self._heat(log)
            ours, theirs = socket.socketpair()

            def drain() -> None:
                buffer = bytearray(1 << 20)
                while theirs.recv_into(buffer):
                    pass

            reader = threading.Thread(target=drain, name="klog-bench-drain")
            reader.start()
            size = 0
            try:
                start = self._clock.monotonic()
                offset, end = log.log_start_offset, log.log_end_offset
                while offset < end:
                    found = log.fetch(offset, 1 << 20)
                    if by_kernel:
                        found.send_to(ours)
                    else:
                        ours.sendall(bytes(found.memory()))
                    size += found.size
                    offset += found.size // batch_bytes
            finally:
                ours.close()
                reader.join()
                theirs.close()
            return {"MB/s": rate(size / 1e6, self._clock.monotonic() - start)}

        return {"sendfile": lambda: send(True), "read and sent": lambda: send(False)}
