"""Sends from the page cache to a socket, in elapsed and in processor seconds: FetchData.send_to beside a C loop around
sendfile, and Log.fetch with send_to beside a Python loop around os.sendfile.

All contestants share one connection, which a C thread reads: two connections can differ by up to a third for their
whole life. Sender and receiver are pinned to two processors if there are two. TCP uses `cubic`: the default of some
machines (bbr) paces the loopback, and the contest would measure that. A run ends when the last byte has arrived;
processor seconds are the sender's alone, without that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory, Unavailable
from bench.native import compiled
from klog.codec.crc32c import crc32c
from klog.log import FetchData
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.record import encode
from tests.support.sockets import tcp_pair

_TOTAL = 64 << 20  # bytes of a run
_FILE = 32 << 20
_BATCH = 4096  # bytes of each batch: a slice at any multiple of it can be fetched
_VALUE = _BATCH - 70


class _Connection:
    """A connection, the C thread that reads it, and the number of bytes that it must have read."""

    def __init__(self, library: ctypes.CDLL, kind: str, processor: int) -> None:
        self._library = library
        self.ours, self._theirs = tcp_pair() if kind == "tcp" else socket.socketpair()
        if kind == "tcp":
            with contextlib.suppress(OSError):
                self.ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        library.receiver_start.restype = library.receiver_wait.restype = ctypes.c_void_p
        library.receiver_wait.restype = ctypes.c_uint32
        self._receiver = ctypes.c_void_p(library.receiver_start(self._theirs.fileno(), processor))
        self.expected = 0

    def wait(self, size: int) -> int:
        """Wait until `size` more bytes have arrived. Returns the checksum since check(True)."""
        self.expected += size
        return int(self._library.receiver_wait(self._receiver, ctypes.c_int64(self.expected)))

    def check(self, checks: bool) -> None:
        self._library.receiver_check(self._receiver, int(checks))

    def close(self) -> None:
        self.ours.close()
        self._library.receiver_end(self._receiver)
        self._theirs.close()


_Sender = tuple[str, Callable[[], None], bool, float | None]  # name, send function, is its socket blocking, goal


class _Race:
    """Slices of a segment in the page cache, and the functions that send them."""

    def __init__(self, tiny: bool, folder: Path, kind: str, size: int) -> None:
        self.library = compiled("sends.c", "crc32c.c")
        processors = sorted(os.sched_getaffinity(0))
        self._before = set(processors)
        self.other = processors[1] if len(processors) > 1 else -1
        os.sched_setaffinity(0, processors[:1])
        self.kind, self.size = kind, size
        self.log = klog.Log.open(folder / "send-0")
        chance = random.Random(7)
        length = max(4 * size, 1 << 20) if tiny else _FILE
        while self.log.size < length:
            self.log.append_batches(encode([(None, chance.randbytes(_VALUE))]))
        assert self.log.size == self.log.log_end_offset * _BATCH
        whole = self.log.fetch(0, 1 << 40)
        count = 4 if tiny else _TOTAL // size
        positions = [chance.randrange((whole.size - size) // _BATCH) * _BATCH for _ in range(count)]
        self.sizes = [size] * count
        self.total = count * size
        self.slices = [self._slice(whole, position, size) for position in positions]
        self.positions = (ctypes.c_int64 * count)(*positions)
        self.file = open(self.log.segments[0].path, "rb", buffering=0)
        self.memory = mmap.mmap(-1, size)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.line = _Connection(self.library, self.kind, self.other)
        self.loop = asyncio.new_event_loop()

    @staticmethod
    def _slice(whole: FetchData, position: int, size: int) -> FetchData:
        end = whole.log_end_offset
        return FetchData(0, end, end, 0, end, OffsetMetadata(0, 0, position), size, file=whole._file, log=whole._log)

    def klog(self) -> None:
        sock = self.line.ours
        for data in self.slices:
            data.send_to(sock)

    def cut_as_fetched(self) -> None:
        """Set the size of each slice to that of a fetch of `size` bytes at its position, which may return less."""
        self.sizes = [self.log.fetch(position // _BATCH, self.size).size for position in self.positions]
        self.total = sum(self.sizes)

    def klog_fetch(self) -> None:
        sock, log = self.line.ours, self.log
        for position, left in zip(self.positions, self.sizes, strict=True):
            while left:
                data = log.fetch(position // _BATCH, left)
                data.send_to(sock)
                position, left = position + data.size, left - data.size

    def klog_async(self) -> None:
        async def send() -> None:
            for data in self.slices:
                await data.send_to_async(self.line.ours)

        self.loop.run_until_complete(send())

    def asyncio_sendfile(self) -> None:
        async def send() -> None:
            for position in self.positions:
                await self.loop.sock_sendfile(self.line.ours, self.file, position, self.size, fallback=False)

        self.loop.run_until_complete(send())

    def python_sendfile(self) -> None:
        to, source = self.line.ours.fileno(), self.file.fileno()
        for position, left in zip(self.positions, self.sizes, strict=True):
            end = position + left
            while left:
                left -= os.sendfile(to, source, end - left, left)

    def c_sendfile(self) -> None:
        self._c(self.library.send_by_sendfile)

    def c_copy(self) -> None:
        self._c(self.library.send_by_copy, ctypes.c_void_p(self._address))

    def _c(self, function: Callable[..., int], *more: object) -> None:
        size, count = ctypes.c_int64(self.size), ctypes.c_int64(len(self.positions))
        failed = function(self.line.ours.fileno(), self.file.fileno(), self.positions, count, size, *more)
        if failed:
            raise OSError(failed, os.strerror(failed))

    def seconds(self, send: Callable[[], None], waits: bool, clock: Callable[[], float]) -> Callable[[], float]:
        """Return a run(), which returns its seconds by `clock`; with the elapsed time, until the last byte has
        arrived."""

        def run() -> float:
            self.line.ours.setblocking(waits)
            started = clock()
            send()
            spent = clock() - started
            self.line.wait(self.total)
            return clock() - started if clock is time.perf_counter else spent

        return run

    def contest(self, title: str, senders: list[_Sender], clock: Callable[[], float]) -> Contest:
        contestants = tuple(
            Contestant(name, self.seconds(send, waits, clock), goal=goal, own_clock=True)
            for name, send, waits, goal in senders
        )
        label = f"{self.size >> 10}KiB" if self.size < 1 << 20 else f"{self.size >> 20}MiB"
        name = f"{title} {self.kind} {label}" + (" processor" if clock is time.thread_time else "")
        return Contest(name, 0, self.total, contestants, lambda: self.check(senders), self.close)

    def check(self, senders: list[_Sender]) -> None:
        content = Path(self.log.segments[0].path).read_bytes()
        expected = 0
        for position, size in zip(self.positions, self.sizes, strict=True):
            expected = crc32c(content[position : position + size], expected)
        for _, send, waits, _ in senders:
            self.line.check(True)
            self.line.ours.setblocking(waits)
            send()
            assert self.line.wait(self.total) == expected
            self.line.check(False)

    def close(self) -> None:
        self.line.close()
        self.loop.close()
        self.file.close()
        self.log.close()
        os.sched_setaffinity(0, self._before)


def _send(kind: str, size: int, clock: Callable[[], float], goals: tuple[float | None, float | None]) -> Factory:
    def factory(tiny: bool, folder: Path) -> Contest:
        if not hasattr(os, "sched_setaffinity"):
            raise Unavailable("sched_setaffinity")
        race = _Race(tiny, folder, kind, size)
        senders: list[_Sender] = [
            ("klog FetchData.send_to", race.klog, True, goals[0]),
            ("klog send_to_async", race.klog_async, False, goals[1]),
            ("os.sendfile", race.python_sendfile, True, None),
            ("loop.sock_sendfile", race.asyncio_sendfile, False, None),
            ("pread and send in C", race.c_copy, True, None),
            ("sendfile in C", race.c_sendfile, True, None),
        ]
        return race.contest("send", senders, clock)

    return factory


def _fetch_and_send(size: int, clock: Callable[[], float], goal: float) -> Factory:
    """Fetch a slice and send it, as a broker does for a consumer."""

    def factory(tiny: bool, folder: Path) -> Contest:
        if not hasattr(os, "sched_setaffinity"):
            raise Unavailable("sched_setaffinity")
        race = _Race(tiny, folder, "tcp", size)
        race.cut_as_fetched()
        senders: list[_Sender] = [
            ("klog Log.fetch and send_to", race.klog_fetch, True, goal),
            ("os.sendfile", race.python_sendfile, True, None),
        ]
        return race.contest("send after fetch", senders, clock)

    return factory


def _beside_a_busy_thread(tiny: bool, folder: Path) -> Contest:
    """Send 64 KiB to a non-blocking socket while another Python thread is busy. Only the calls are timed. A caller that
    releases the GIL for such a call gets it back after the switch interval, 5 ms."""
    race = _Race(tiny, folder, "tcp", 64 << 10)
    to, source = race.line.ours, race.file.fileno()
    race.line.ours.setblocking(False)
    count = min(16, len(race.slices))
    slices, positions = race.slices[:count], race.positions[:count]
    running = threading.Event()

    def spin() -> None:
        if race.other >= 0:  # on the other processor it is already running when the GIL is released
            os.sched_setaffinity(0, {race.other})
        while running.is_set():
            pass

    def start() -> None:
        """Prepares nothing. A contestant with a before() runs once per measurement; a run mostly waits."""

    def timed(send: Callable[[int], int]) -> Callable[[], float]:
        def run() -> float:
            spent = 0.0
            running.set()
            thread = threading.Thread(target=spin)
            thread.start()
            try:
                for number in range(count):
                    started = time.perf_counter()
                    sent = send(number)
                    spent += time.perf_counter() - started
                    race.line.wait(sent)
            finally:
                running.clear()
                thread.join()
            return spent

        return run

    def klog_send(number: int) -> int:
        return slices[number].send_to(to)

    def python_send(number: int) -> int:
        return os.sendfile(to.fileno(), source, positions[number], race.size)

    def check() -> None:
        for send in (klog_send, python_send):
            assert all(race.line.wait(send(number)) is not None for number in range(count))

    return Contest(
        "send busy thread 64KiB",
        count,
        0,
        (
            Contestant("klog FetchData.send_to", timed(klog_send), start, goal=10, own_clock=True),
            Contestant("os.sendfile", timed(python_send), start, own_clock=True),
        ),
        check,
        race.close,
    )


_GOAL, _PROCESSOR_GOAL = 0.9, 0.87  # at most 1.15 times its processor seconds
_KIB = 1 << 10

FACTORIES: dict[str, Factory] = {
    "send tcp 16KiB": _send("tcp", 16 * _KIB, time.perf_counter, (None, None)),
    "send tcp 64KiB": _send("tcp", 64 * _KIB, time.perf_counter, (_GOAL, None)),
    "send tcp 256KiB": _send("tcp", 256 * _KIB, time.perf_counter, (_GOAL, None)),
    "send tcp 1MiB": _send("tcp", 1 << 20, time.perf_counter, (_GOAL, None)),
    "send tcp 64KiB processor": _send("tcp", 64 * _KIB, time.thread_time, (_PROCESSOR_GOAL, None)),
    "send tcp 256KiB processor": _send("tcp", 256 * _KIB, time.thread_time, (_PROCESSOR_GOAL, None)),
    "send tcp 1MiB processor": _send("tcp", 1 << 20, time.thread_time, (_PROCESSOR_GOAL, None)),
    "send unix 64KiB": _send("unix", 64 * _KIB, time.perf_counter, (_GOAL, None)),
    "send after fetch tcp 64KiB": _fetch_and_send(64 * _KIB, time.perf_counter, 0.85),
    "send after fetch tcp 256KiB": _fetch_and_send(256 * _KIB, time.perf_counter, 0.93),
    "send after fetch tcp 1MiB": _fetch_and_send(1 << 20, time.perf_counter, 0.93),
    "send after fetch tcp 64KiB processor": _fetch_and_send(64 * _KIB, time.thread_time, 1 / 1.25),
    "send after fetch tcp 256KiB processor": _fetch_and_send(256 * _KIB, time.thread_time, 1 / 1.1),
    "send after fetch tcp 1MiB processor": _fetch_and_send(1 << 20, time.thread_time, 1 / 1.1),
    "send busy thread 64KiB": _beside_a_busy_thread,
}
