"""A waiting tail: the events that wake it, its low cost, and the events that end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import Notifier, Waiter, watch
from klog.errors import LogClosed, OffsetOutOfRange
from tests.support.patience import PATIENCE
from tests.support.resources import open_descriptors


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
        yield logs.log("events")


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def never_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """No periodic checks: only a notification wakes a tail."""
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 1000.0)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a tail begins to wait."""
    begun, wait = threading.Event(), Waiter.wait

    def noted(waiter: Waiter, seconds: float | None = None) -> None:
        begun.set()
        wait(waiter, seconds)

    monkeypatch.setattr(Waiter, "wait", noted)
    return begun


@pytest.mark.parametrize("beside", [False, True], ids=["of the writer", "beside it"])
def test_a_tail_is_woken_by_each_append(
    log: klog.Log, monkeypatch: pytest.MonkeyPatch, sleeps: threading.Event, beside: bool
) -> None:
    never_poll(monkeypatch)
    tailed = klog.Log.open(log.path, read_only=True) if beside else log
    tail = iter(tailed.tail())
    for i in range(20):
        sleeps.clear()
        thread, found = in_thread(lambda: next(tail).value)
        if i % 3:
            assert sleeps.wait(PATIENCE)
        if i % 5 == 0:
            log.roll()
        log.append([(None, b"%d" % i)])
        thread.join(PATIENCE)
        assert found == [b"%d" % i]
    tail.close()  # type: ignore[attr-defined]
    if beside:
        tailed.close()


@pytest.mark.parametrize("beside", [False, True], ids=["of the writer", "beside it"])
def test_an_async_tail_is_woken_too(log: klog.Log, monkeypatch: pytest.MonkeyPatch, beside: bool) -> None:
    never_poll(monkeypatch)
    tailed = klog.Log.open(log.path, read_only=True) if beside else log

    async def follow() -> list[bytes | None]:
        async def write() -> None:
            for i in range(10):
                await asyncio.sleep(0.002)
                await asyncio.to_thread(log.append, [(None, b"%d" % i)])

        writer = asyncio.create_task(write())
        got: list[bytes | None] = []
        async for record in tailed.tail():
            got.append(record.value)
            if len(got) == 10:
                break
        await writer
        return got

    assert asyncio.run(asyncio.wait_for(follow(), PATIENCE)) == [b"%d" % i for i in range(10)]
    if beside:
        tailed.close()


@pytest.mark.parametrize("beside", [False, True], ids=["of the writer", "beside it"])
def test_a_waiting_tail_rarely_checks(log: klog.Log, beside: bool) -> None:
    """Two seconds of waiting are a few checks: it neither spins nor polls."""
    log.append([(None, b"x")])
    tailed = klog.Log.open(log.path, read_only=True) if beside else log
    looks: list[int] = []
    tail = tailed.tail(timeout=2)
    ready = tail._ready
    tail._ready = lambda: looks.append(1) or ready()  # type: ignore[func-returns-value,method-assign]
    assert list(tail) == []
    assert len(looks) < 10
    if beside:
        tailed.close()


def test_a_tail_ends_when_its_log_is_closed(
    log: klog.Log, monkeypatch: pytest.MonkeyPatch, sleeps: threading.Event
) -> None:
    never_poll(monkeypatch)
    tail = iter(log.tail())
    thread, found = in_thread(lambda: next(tail))
    assert sleeps.wait(PATIENCE)
    log.close()
    thread.join(PATIENCE)
    assert isinstance(found[0], LogClosed)


def test_a_tail_raises_when_the_writer_truncates_the_log(
    log: klog.Log, monkeypatch: pytest.MonkeyPatch, sleeps: threading.Event
) -> None:
    never_poll(monkeypatch)
    log.append([(None, b"a")])
    half = log.size
    log.append([(None, b"b")])
    with klog.Log.open(log.path, read_only=True) as reader:
        tail = iter(reader.tail())
        thread, found = in_thread(lambda: next(tail))
        assert sleeps.wait(PATIENCE)
        os.truncate(log.segments[0].path, half)
        thread.join(PATIENCE)
        assert isinstance(found[0], OffsetOutOfRange) and found[0].log_end_offset == 1


@pytest.mark.parametrize("beside", [False, True], ids=["of the writer", "beside it"])
@pytest.mark.parametrize("taken", [1, 4], ids=["within a chunk", "at its end"])
def test_a_tail_raises_after_a_truncation_even_if_the_log_has_grown_again(
    log: klog.Log, beside: bool, taken: int
) -> None:
    """It would leave out the records that have replaced those that it had returned."""
    with contextlib.ExitStack() as stack:
        read = stack.enter_context(klog.Log.open(log.path, read_only=True)) if beside else log
        end = log.log_end_offset
        for number in range(4):
            log.append([(b"k", b"old %d" % number)])
        tail = read.tail(end, timeout=0)
        found = [record.value for record, _ in zip(tail, range(taken), strict=False)]
        log.truncate_to(end)
        for _ in range(6):
            log.append([(b"k", b"new")])
        with pytest.raises(OffsetOutOfRange, match="was truncated below offset"):
            found += [record.value for record in tail]
        assert found == [b"old %d" % number for number in range(taken)]


@pytest.mark.parametrize("beside", [False, True], ids=["of the writer", "beside it"])
def test_a_tail_goes_on_after_a_truncation_above_it(log: klog.Log, beside: bool) -> None:
    with contextlib.ExitStack() as stack:
        read = stack.enter_context(klog.Log.open(log.path, read_only=True)) if beside else log
        end = log.log_end_offset
        for number in range(4):
            log.append([(b"k", b"old %d" % number)])
        tail = read.tail(end, timeout=0)
        assert next(iter(tail)).value == b"old 0"
        log.truncate_to(end + 1)
        log.append([(b"k", b"new")])
        assert [record.value for record in tail] == [b"new"]


def test_a_tail_goes_on_after_a_truncation_if_its_last_record_was_compacted_away(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", config={"cleanup.policy": "compact"}) as log:
        log.append([(b"k", b"1")])
        tail = log.tail(0, timeout=0)
        assert [record.value for record in tail] == [b"1"]
        for key in (b"k", b"other", b"truncated"):
            log.append([(key, b"2")])
        log.compact(roll=True)
        log.truncate_to(3)
        log.append([(b"new", b"1")])
        assert [record.key for record in tail] == [b"k", b"other", b"new"]


def test_without_inotify_a_tail_polls(log: klog.Log, monkeypatch: pytest.MonkeyPatch, sleeps: threading.Event) -> None:
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 0.01)

    class Blind:
        inotify_init1 = staticmethod(lambda flags: -1)

    monkeypatch.setattr(watch, "lib", Blind)
    with klog.Log.open(log.path, read_only=True) as reader:
        tail = iter(reader.tail(timeout=PATIENCE))
        thread, found = in_thread(lambda: next(tail).value)
        assert sleeps.wait(PATIENCE)
        log.append([(None, b"x")])
        thread.join(PATIENCE)
        assert found == [b"x"]


def test_tails_leave_no_descriptor_behind(log: klog.Log, sleeps: threading.Event) -> None:
    with klog.Log.open(log.path, read_only=True) as reader:
        for tailed in (log, reader):
            list(tailed.tail("earliest", timeout=0))
            before = open_descriptors()
            for _ in range(50):
                list(tailed.tail("earliest", timeout=0))
            tail = iter(tailed.tail(timeout=PATIENCE))
            sleeps.clear()
            thread, found = in_thread(lambda tail=tail: next(tail).value)
            assert sleeps.wait(PATIENCE)
            log.append([(None, b"x")])
            thread.join(PATIENCE)
            assert found == [b"x"]
            tail.close()  # type: ignore[attr-defined]
            del tail
            assert open_descriptors() <= before
    assert log._core.notifier._fds == ()


def test_without_free_descriptors_a_waiter_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 0.01)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
        with contextlib.suppress(OSError):  # too many open files
            while True:
                taken.append(os.dup(0))
        with Waiter([Notifier()], [str(tmp_path)]) as waiter:
            assert waiter._fds == []
            thread, found = in_thread(waiter.wait)
            thread.join(PATIENCE)
            assert found == [None]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def test_a_notification_before_the_wait_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never_poll(monkeypatch)
    notifier = Notifier()
    with Waiter([notifier], []) as waiter:
        notifier.notify()
        waiter.wait()
        thread, _ = in_thread(waiter.wait)
        thread.join(0.05)
        assert thread.is_alive()  # one notification ends one wait
        notifier.notify()
        thread.join(PATIENCE)
        assert not thread.is_alive()
