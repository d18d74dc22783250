"""Loads ranges of files into the page cache before they are needed: reads them in parallel, within a time limit.

  U1  it never takes longer than its limit: what is not read by then stays cold. A thread whose read hangs on a broken
      disk continues after that, and ends when the read returns
  U2  it never fails: a range that cannot be read is logged and skipped
  U3  it reads instead of giving advice: the kernel's own read-ahead is faster than its advice, and a range counts as
      warm only once it has been read

The bytes read are discarded. A page that is in memory already costs only the copy: 0.1 ms per MiB.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from klog.disk.files import Files
from klog.logger import logger_of
from klog.progress import Event, Progress
from klog.values import dataclass

_log = logger_of("disk")
_STEP = 1 << 20
THREADS = 4


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes [start, stop) of a file; stop None: to its end."""

    path: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class WarmedUp:
    """Result of a warm-up. bytes, files: read. complete: all was read in time; files that cannot be read are only in
    errors, their number."""

    bytes: int
    files: int
    seconds: float
    complete: bool
    errors: int


class _Work:
    """State of one warm-up, shared by its threads."""

    def __init__(self, files: Files, ranges: Iterable[FileRange], deadline: float | None) -> None:
        self.files = files
        self.waiting = deque(ranges)
        self.deadline = deadline
        self.lock = threading.Lock()  # guards the counts
        self.bytes = self.done = self.errors = 0
        self.over = False

    def run(self, report: Callable[[], None]) -> None:
        while not self.out_of_time():
            try:
                one = self.waiting.popleft()
            except IndexError:
                return
            try:
                self.read(one, report)
            except OSError as error:
                _log.warning("event=warm_up_failed path=%s reason=%s", one.path, error)
                with self.lock:
                    self.errors += 1

    def out_of_time(self) -> bool:
        return self.over or (self.deadline is not None and time.monotonic() >= self.deadline)

    def read(self, one: FileRange, report: Callable[[], None]) -> None:
        file = self.files.open(one.path)
        try:
            position = one.start
            while one.stop is None or position < one.stop:
                if self.out_of_time():
                    self.over = True
                    return
                got = len(file.read(position, _STEP if one.stop is None else min(_STEP, one.stop - position)))
                if not got:
                    break
                position += got
                with self.lock:
                    self.bytes += got
                report()
            with self.lock:
                self.done += 1
        finally:
            file.close()


def _start(count: int, run: Callable[[], None]) -> int:
    """Start this many threads, or as many as the machine allows: U2."""
    for number in range(count):
        try:
            threading.Thread(target=run, name=f"klog-warm-up-{number}", daemon=True).start()
        except RuntimeError as error:
            _log.warning("event=warm_up_failed threads=%d reason=%s", number, error)
            return number
    return count


def warm_up(
    files: Files,
    ranges: Iterable[FileRange],
    *,
    timeout: float | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    threads: int = THREADS,
) -> WarmedUp:
    """Read the ranges in their order. timeout: seconds; None: no limit. cancel: set it to stop. progress: called in
    this thread.

    Seconds are real time, not an injected clock's: they limit how long a caller waits for a disk.
    """
    wanted = list(ranges)
    total = sum(one.stop - one.start for one in wanted if one.stop is not None)
    started = time.monotonic()
    deadline = None if timeout is None else started + timeout
    work = _Work(files, wanted, deadline)
    news = threading.Event()
    left = min(threads, len(wanted))
    ended = threading.Semaphore(0)

    def run() -> None:
        try:
            work.run(news.set)
        finally:
            ended.release()
            news.set()

    try:
        left = _start(left, run)
        while left and not work.out_of_time():
            news.wait(0.05 if deadline is None else max(0.0, min(0.05, deadline - time.monotonic())))
            news.clear()
            while left and ended.acquire(blocking=False):
                left -= 1
            if cancel is not None and cancel.is_set():
                work.over = True
            if progress is not None:
                progress(Event("warm up", work.bytes, total, "bytes"))
    except BaseException:
        work.over = True  # so that no thread continues to read after an interrupt, also one in progress()
        raise
    while left and ended.acquire(blocking=False):
        left -= 1
    with work.lock:
        complete = left == 0 and not work.over and not work.waiting
        work.over = True
        return WarmedUp(work.bytes, work.done, time.monotonic() - started, complete, work.errors)
