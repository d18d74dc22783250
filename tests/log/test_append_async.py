"""Log.append_async: tasks of an event loop share commits without a thread each."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles
from klog.errors import StorageOffline
from tests.support.batches import NOW
from tests.support.faulty_io import FaultyIo
from tests.support.logs import values
from tests.support.patience import PATIENCE


class Gated(RealFiles):
    """While the gate is closed, an fdatasync does not return."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.syncs = 0

    def fdatasync(self, file: LogFile) -> None:
        self.syncs += 1
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        super().fdatasync(file)


def opened(path: Path, files: RealFiles | None = None, durability: str = "sync", **config: object) -> klog.Log:
    log = klog.Log.open(
        path / "t-0", config=config, clock=ManualClock(NOW), files=files or RealFiles(), durability=durability
    )
    log.append([(None, b"first")])
    return log


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


def test_tasks_share_an_fdatasync(tmp_path: Path) -> None:
    files = Gated()

    async def main() -> None:
        before = files.syncs
        files.gate.clear()
        files.entered.clear()
        leads = asyncio.create_task(log.append_async([(None, b"leads")]))
        await until(files.entered.is_set)
        group = [asyncio.create_task(log.append_async([(None, b"%d" % number)])) for number in range(10)]
        await until(lambda: len(log._core.commits) == 10)
        assert log.log_end_offset == 1 and not any(task.done() for task in (leads, *group))
        files.gate.set()
        assert (await leads).first_offset == 1
        assert [info.first_offset for info in await asyncio.gather(*group)] == list(range(2, 12))
        assert files.syncs - before == 2

    with opened(tmp_path, files) as log:
        asyncio.run(main())
        assert values(log) == [b"first", b"leads", *(b"%d" % number for number in range(10))]


def test_tasks_and_threads_share_one_queue(tmp_path: Path) -> None:
    with opened(tmp_path) as log:

        def in_a_thread() -> None:
            for number in range(30):
                log.append([(b"thread", b"%d" % number)])

        async def in_a_task(task_number: int) -> None:
            for number in range(30):
                await log.append_async([(b"task%d" % task_number, b"%d" % number)])

        async def main() -> None:
            await asyncio.gather(*map(in_a_task, range(4)))

        thread = threading.Thread(target=in_a_thread)
        thread.start()
        asyncio.run(main())
        thread.join(PATIENCE)
        for key in (b"thread", b"task0", b"task1", b"task2", b"task3"):
            assert [record.value for record in log.read(1) if record.key == key] == [b"%d" % n for n in range(30)]
        assert log._core.commits.appends == 151 and len(log._core.commits) == 0


def test_a_task_that_is_cancelled_while_it_waits_has_appended_nothing(tmp_path: Path) -> None:
    files = Gated()

    async def main() -> None:
        files.gate.clear()
        files.entered.clear()
        under_way = asyncio.create_task(log.append_async([(None, b"under way")]))
        await until(files.entered.is_set)
        waiting = asyncio.create_task(log.append_async([(None, b"never")]))
        later = asyncio.create_task(log.append_async([(None, b"later")]))
        await until(lambda: len(log._core.commits) == 2)
        waiting.cancel()
        under_way.cancel()
        for task in (waiting, under_way):
            with pytest.raises(asyncio.CancelledError):
                await task
        files.gate.set()
        assert (await later).first_offset == 2

    with opened(tmp_path, files) as log:
        asyncio.run(main())
        assert values(log) == [b"first", b"under way", b"later"]  # the commit that had begun was finished


def test_a_failed_fdatasync_raises_in_every_waiting_task(tmp_path: Path) -> None:
    with FaultyIo() as io:
        log = opened(tmp_path, RealFiles(io.table))
        io.rule("fdatasync", error=errno.EIO)

        async def main() -> list[object]:
            tasks = [log.append_async([(None, b"%d" % number)]) for number in range(3)]
            return await asyncio.gather(*tasks, return_exceptions=True)

        errors = asyncio.run(main())
        assert all(isinstance(error, OSError | StorageOffline) for error in errors)
        assert len({id(error) for error in errors}) == 3 and log.log_end_offset == 1
        with pytest.raises(StorageOffline):
            asyncio.run(log.append_async([(None, b"x")]))
        log.close()


def test_a_loop_closed_with_waiting_tasks_blocks_no_other_appender(tmp_path: Path) -> None:
    files = Gated()
    with opened(tmp_path, files) as log:
        files.gate.clear()
        files.entered.clear()
        thread = threading.Thread(target=lambda: log.append([(None, b"leads")]))
        thread.start()
        assert files.entered.wait(PATIENCE)

        async def main() -> None:
            asyncio.create_task(log.append_async([(None, b"cancelled by run()")]))  # noqa: RUF006
            await until(lambda: len(log._core.commits) == 1)

        asyncio.run(main())
        files.gate.set()
        thread.join(PATIENCE)
        log.append([(None, b"later")])
        assert values(log) == [b"first", b"leads", b"later"]


@pytest.mark.parametrize(("durability", "config"), [("os", {}), ("interval", {}), ("os", {"flush.messages": 1})])
def test_other_durability_modes_append_at_once(tmp_path: Path, durability: str, config: dict[str, object]) -> None:
    async def main() -> None:
        assert (await log.append_async([(None, b"a"), (None, b"b")], compression="lz4")).first_offset == 1
        assert (await log.append_async([])).count == 0
        with pytest.raises(TypeError):
            await log.append_async([("text", b"")])

    with opened(tmp_path, durability=durability, **config) as log:
        asyncio.run(main())
        assert values(log) == [b"first", b"a", b"b"]
        assert (log.recovery_point == 3) == bool(config)


def test_a_generator_and_an_empty_list(tmp_path: Path) -> None:
    async def main() -> None:
        assert (await log.append_async((None, b"%d" % n) for n in range(3))).count == 3
        assert (await log.append_async([])).count == 0

    with opened(tmp_path) as log:
        asyncio.run(main())
        assert len(values(log)) == 4
