"""LogManager.tail: the records of all partitions as they arrive, for threads and tasks; async use of a manager."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import watch
from klog.errors import LogClosed, OffsetOutOfRange, UnknownTopicOrPartition
from klog.log.read import in_thread
from klog.manager.catalog import TopicCatalog
from tests.support.batches import marker, transactional
from tests.support.patience import PATIENCE
from tests.support.resources import open_descriptors


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    """Three partitions of two records each: p0-0, p0-1, ..., p2-1."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=3)
        for partition in range(3):
            logs.log("t", partition).append([(None, b"p%d-%d" % (partition, i)) for i in range(2)])
        yield logs


ALL = [b"p%d-%d" % (p, i) for p in range(3) for i in range(2)]


async def collected(records: Any) -> list[bytes | None]:
    return [record.value async for record in records]


def test_a_tail_begins_where_it_is_asked_to(logs: klog.LogManager) -> None:
    assert [record.value for record in logs.tail("t", "earliest", timeout=0)] == ALL
    assert [record.value for record in logs.tail("t", 1, partition=2, timeout=0)] == [b"p2-1"]
    assert asyncio.run(collected(logs.tail("t", "earliest", timeout=0))) == ALL
    tail = logs.tail("t", timeout=0)
    assert list(tail) == []
    logs.log("t", 1).append([(None, b"new")])
    assert [record.value for record in tail] == [b"new"] and asyncio.run(collected(tail)) == []
    for arguments, error in (("u",), UnknownTopicOrPartition), (("t", 9), OffsetOutOfRange):
        with pytest.raises(error):
            logs.tail(*arguments)
    with pytest.raises(UnknownTopicOrPartition, match="no partition 3"):
        logs.tail("t", partition=3)
    logs.close()
    with pytest.raises(LogClosed):
        next(tail)


@pytest.mark.parametrize("taken", [1, 4], ids=["within a read", "at its end"])
@pytest.mark.parametrize("change", ["truncated", "created again"])
@pytest.mark.parametrize("use", ["thread", "task", "decoded"])
def test_a_tail_raises_if_the_log_has_grown_again(tmp_path: Path, taken: int, change: str, use: str) -> None:
    """It would leave out the records that have replaced those that it had returned."""
    with klog.open(tmp_path / "d", create=True) as writer, klog.open(tmp_path / "d", read_only=True) as reader:
        writer.create_topic("t")
        for number in range(4):
            writer.log("t").append([(b"k", b"old %d" % number)])
        tails: list[Any] = [logs.tail("t", "earliest", timeout=0, decode="utf8") for logs in (writer, reader)]
        if use == "decoded":
            tails = [tail.decoded() for tail in tails]
        for tail in tails:
            assert len(list(zip(range(taken), tail, strict=False))) == taken
        if change == "truncated":
            writer.log("t").truncate_to(0)
        else:
            writer.delete_topic("t")
            writer.create_topic("t")
        for _ in range(6):
            writer.log("t").append([(b"k", b"new")])
        for tail in tails:
            with pytest.raises(OffsetOutOfRange, match=f"below offset {taken}"):
                asyncio.run(collected(tail)) if use == "task" else list(tail)


def test_a_tail_with_control_records(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        log.append_batches(transactional(7, 0, 0))
        log.append_batches(marker(7, 0, "commit"), origin="coordinator")
        log.append([(b"k", b"v")])
        for tail in (log.tail, partial(logs.tail, "t")):
            for control, offsets in (False, [0, 2]), (True, [0, 1, 2]):
                found = [record.offset for record in tail("earliest", timeout=0, include_control=control)]
                assert found == offsets


def test_a_tail_goes_on_after_a_truncation_above_it(tmp_path: Path) -> None:
    with klog.open(tmp_path / "d", create=True) as writer, klog.open(tmp_path / "d", read_only=True) as reader:
        writer.create_topic("t")
        writer.log("t").append([(b"k", b"1"), (b"k", b"2")])
        tails = [logs.tail("t", "earliest", timeout=0) for logs in (writer, reader)]
        assert [next(iter(tail)).value for tail in tails] == [b"1"] * 2
        writer.log("t").truncate_to(1)
        writer.log("t").append([(b"k", b"new")])
        assert [[record.value for record in tail] for tail in tails] == [[b"new"]] * 2


@pytest.mark.parametrize("read_only", [False, True])
def test_a_tail_wakes_for_records_partitions_and_topics(
    logs: klog.LogManager, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Notifier or inotify wakes it, not the regular check."""
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 2 * PATIENCE)
    step = threading.Semaphore(0)
    wait = watch.Waiter.wait

    def noted(waiter: watch.Waiter, seconds: float | None = None) -> None:
        step.release()
        before = time.monotonic()
        wait(waiter, seconds)
        assert time.monotonic() - before < PATIENCE, "no event has ended this wait"

    monkeypatch.setattr(watch.Waiter, "wait", noted)

    def write() -> None:
        for do in (
            lambda: logs.log("t", 2).append([(None, b"a")]),
            lambda: (logs.add_partitions("t", 4), logs.log("t", 3).append([(None, b"b")])),
            lambda: (logs.create_topic("later", 2), logs.log("later", 1).append([(None, b"c")])),
        ):
            assert step.acquire(timeout=PATIENCE)
            do()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    with klog.open(logs.path, read_only=True) as beside:
        manager = beside if read_only else logs
        tail, later = manager.tail("t"), manager.tail("later", missing_topic="wait")
        for records, expected in (tail, b"a"), (tail, b"b"), (later, b"c"):
            assert next(records).value == expected
    thread.join()


def test_a_tail_wakes_when_new_partitions_are_shown(logs: klog.LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail wakes at the last change in the log.dir, which is before they are shown, and sleeps again."""
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 2 * PATIENCE)
    sleeps, changed, searched = threading.Event(), threading.Event(), threading.Event()
    wait, drain = watch.Waiter.wait, watch.Waiter._drain
    topics, show = TopicCatalog.topics, TopicCatalog.show

    def noted(waiter: watch.Waiter, seconds: float | None = None) -> None:
        sleeps.set()
        before = time.monotonic()
        wait(waiter, seconds)
        assert time.monotonic() - before < PATIENCE, "no event has ended this wait"

    def drain_late(waiter: watch.Waiter) -> None:
        assert changed.wait(PATIENCE)
        drain(waiter)

    def search(catalog: TopicCatalog) -> dict[str, list[int]]:
        found = topics(catalog)
        if changed.is_set():
            searched.set()
        return found

    def show_late(catalog: TopicCatalog, topic: str) -> None:
        changed.set()
        assert searched.wait(PATIENCE)
        show(catalog, topic)

    def write() -> None:
        assert sleeps.wait(PATIENCE)
        logs.add_partitions("t", 4)
        logs.log("t", 3).append([(None, b"b")])

    for owner, name, function in (
        (watch.Waiter, "wait", noted),
        (watch.Waiter, "_drain", drain_late),
        (TopicCatalog, "topics", search),
        (TopicCatalog, "show", show_late),
    ):
        monkeypatch.setattr(owner, name, function)
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    tail = logs.tail("t")
    assert next(tail).value == b"b"
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_manual_clock_ends_a_tail(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True, clock=ManualClock()) as logs:
        logs.create_topic("t", 2)
        logs.append("t", [(b"k", b"v")])
        assert [record.value for record in logs.tail("t", "earliest", timeout=5)] == [b"v"]


# ---- tasks -----------------------------------------------------------------------------------------------------------


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("method", ["topic", "reader"])
def test_a_cancelled_tail_leaves_nothing_running(logs: klog.LogManager, method: str) -> None:
    """Neither a thread nor a descriptor, even if it is cancelled while a thread reads for it."""
    running = 0
    threads = set(threading.enumerate())  # of libraries, in tests before
    reading, go_on = threading.Event(), threading.Event()

    def look(original: Any) -> Any:
        nonlocal running
        running += 1
        reading.set()
        assert go_on.wait(PATIENCE)
        running -= 1
        return original()

    async def main() -> None:
        nonlocal running
        reader = logs.reader("t", "r") if method == "reader" else None
        found: list[bytes | None] = []

        async def consume() -> None:
            async for record in reader.tail() if reader is not None else logs.tail("t", "earliest"):
                found.append(record.value)

        await asyncio.sleep(0)
        before = open_descriptors()
        task = asyncio.create_task(consume())
        while found != ALL:
            await asyncio.sleep(0)
        await cancelled(task)
        assert open_descriptors() <= before
        call = asyncio.create_task(in_thread.in_thread(lambda: look(lambda: None)))
        while not reading.is_set():
            await asyncio.sleep(0)
        call.cancel()
        asyncio.get_running_loop().call_soon(call.cancel)
        asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(go_on.set))
        with pytest.raises(asyncio.CancelledError):
            await call
        assert running == 0
        if reader is not None:
            reader.commit()
            assert reader.position == {0: 2, 1: 2, 2: 2}

    asyncio.run(main())
    assert not [each for each in set(threading.enumerate()) - threads if each.name.startswith("asyncio")]


def test_an_error_in_the_middle_comes_after_the_records_before_it(
    logs: klog.LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(original: Any) -> Any:
        def records(self: klog.LogReader) -> Iterator[klog.Record]:
            yield next(original(self))
            raise OSError(5, "EIO")

        return records

    monkeypatch.setattr(klog.LogReader, "__iter__", failing(klog.LogReader.__iter__))
    reader = logs.reader("t", "r")

    async def main() -> list[bytes | None]:
        found: list[bytes | None] = []
        try:
            async for record in reader:
                found.append(record.value)
        except OSError:
            return found
        raise AssertionError("no error")

    assert asyncio.run(main()) == ALL[:1] and reader.position == {0: 1, 1: 0, 2: 0}


@pytest.mark.parametrize(
    ("durability", "config"), [("os", {}), ("os", {"flush.messages": 1}), ("sync", {})], ids=["os", "flush", "sync"]
)
def test_append_async_is_append(tmp_path: Path, durability: Any, config: dict[str, Any]) -> None:
    """The same partitions, offsets and errors; tasks side by side, in a manager that `async with` closes."""
    records = [(b"%d" % number, b"v" * number, 5) for number in range(200)]

    async def main() -> None:
        async with klog.open(tmp_path / "async", create=True, durability=durability) as logs:
            logs.create_topic("t", 4, config)
            infos = await logs.append_async("t", records, compression="lz4")
            assert infos == whole and list(infos) == [0, 1, 2, 3]
            more = await asyncio.gather(*(logs.append_async("t", [record]) for record in records))
            assert [len(info) for info in more] == [1] * 200
            assert await logs.append_async("t", iter([])) == {} == await logs.append_async("t", [])
            assert sum(info.count for info in (await logs.append_async("t", iter([(None, b"x")] * 25_000))).values())
            end = sum(logs.log("t", partition).log_end_offset for partition in range(4))
            with pytest.raises(TypeError, match=r"record 15001\b") as caught:
                await logs.append_async("t", iter([*[(b"k", b"x")] * 15_001, (b"k", "text")]))  # type: ignore[list-item]
            assert len(caught.value.__notes__) == 1
            assert sum(logs.log("t", partition).log_end_offset for partition in range(4)) == end + 10_000
            for wrong in ({"topic": "u", "records": []}, {"topic": "t", "records": 5}):
                with pytest.raises((UnknownTopicOrPartition, TypeError)):
                    await logs.append_async(**wrong)  # type: ignore[arg-type]
        assert (tmp_path / "async" / ".kafka_cleanshutdown").exists()

    with klog.open(tmp_path / "plain", create=True, durability=durability) as logs:
        logs.create_topic("t", 4, config)
        whole = logs.append("t", records, compression="lz4")
    asyncio.run(main())
    with klog.open(tmp_path / "async", read_only=True) as logs:
        for partition in range(4):
            keys = [record.key for record in logs.read("t", partition=partition) if record.key not in (None, b"k")]
            mine = [key for key, *_ in records if klog.partition_for(key, 4) == partition]
            assert keys[: len(mine)] == mine and sorted(keys) == sorted(mine * 2)
    assert klog.verify(tmp_path / "async").problems == []


def test_tasks_share_the_commits_of_a_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with klog.open(tmp_path, create=True, durability="sync") as logs:
            logs.create_topic("t", 2)
            await asyncio.gather(*(logs.append_async("t", [(b"%d" % number, b"v")]) for number in range(100)))
            queues = [logs.log("t", partition)._core.commits for partition in range(2)]
            assert sum(queue.appends for queue in queues) == 100 and sum(queue.groups for queue in queues) < 50

    asyncio.run(main())
