"""The thread that leads a commit while tasks wait: when workers are late, loops are stopped, or Ctrl-C comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import StorageOffline
from tests.log.test_group_commit import Appender, Gated, opened, put
from tests.support.logs import values
from tests.support.patience import PATIENCE, until


def test_appends_that_fill_the_executor_do_not_wait_for_its_workers(tmp_path: Path) -> None:
    """The worker that a task has requested is in the executor's queue after appends: the first of these appends
    leads."""

    async def main() -> None:
        loop, begun, free = asyncio.get_running_loop(), threading.Event(), threading.Event()

        def busy() -> None:
            begun.set()
            assert free.wait(PATIENCE)

        with ThreadPoolExecutor(1) as executor:
            loop.set_default_executor(executor)
            jobs: list[Any] = [loop.run_in_executor(None, busy)]
            jobs.append(loop.run_in_executor(None, put(log, b"thread")))
            begun.wait()
            jobs.append(asyncio.create_task(log.append_async([(None, b"task")])))
            while len(log._core.commits) == 0:
                await asyncio.sleep(0.001)
            free.set()
            _, waiting = await asyncio.wait(jobs, timeout=PATIENCE)
            if waiting:
                log._core.commits.renew()  # otherwise the executor would never end
            assert not waiting

    with opened(tmp_path, Gated()) as log:
        asyncio.run(asyncio.wait_for(main(), 3 * PATIENCE))
        assert sorted(values(log)) == [b"task", b"thread"]


def test_a_thread_leads_while_a_requested_worker_has_not_started(tmp_path: Path) -> None:
    async def main() -> None:
        loop, free = asyncio.get_running_loop(), threading.Event()
        with ThreadPoolExecutor(1) as executor:
            loop.set_default_executor(executor)
            busy = loop.run_in_executor(None, free.wait, PATIENCE)
            task = asyncio.create_task(log.append_async([(None, b"task")]))
            while len(log._core.commits) == 0:
                await asyncio.sleep(0.001)
            thread = Appender(put(log, b"thread"))
            try:
                await asyncio.wait_for(
                    asyncio.shield(task), PATIENCE
                )  # it is in the thread's commit, though no worker is free
                thread.outcome()
            finally:
                free.set()
            await busy
            assert (await log.append_async([(None, b"later")])).first_offset == 2

    with opened(tmp_path, Gated()) as log:
        asyncio.run(main())
        assert values(log) == [b"task", b"thread", b"later"]


def test_a_cancelled_worker_leaves_no_task_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        loop, begun, free = asyncio.get_running_loop(), threading.Event(), threading.Event()

        def keep_busy() -> None:
            begun.set()
            assert free.wait(PATIENCE)

        executor = ThreadPoolExecutor(1)
        loop.set_default_executor(executor)
        busy = loop.run_in_executor(None, keep_busy)
        assert begun.wait(PATIENCE)  # otherwise it would be cancelled, too
        task = asyncio.create_task(log.append_async([(None, b"task")]))
        while len(log._core.commits) == 0:
            await asyncio.sleep(0.001)
        executor.shutdown(wait=False, cancel_futures=True)
        try:
            with pytest.raises(StorageOffline, match="nothing was appended"):
                await asyncio.wait_for(task, PATIENCE)
        finally:
            free.set()
        await busy

    with opened(tmp_path, Gated()) as log:
        asyncio.run(main())
        assert values(log) == []
        log.append([(None, b"later")])


def test_ctrl_c_while_requesting_a_worker_blocks_no_other_appender(tmp_path: Path) -> None:
    class Loop(asyncio.SelectorEventLoop):
        def run_in_executor(self, *_: Any) -> Any:
            raise KeyboardInterrupt

    with opened(tmp_path, Gated()) as log:
        loop = Loop()
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(log.append_async([(None, b"interrupted")]))
        loop.close()
        Appender(put(log, b"later")).outcome()
        assert values(log) == [b"later"]


def test_a_stopped_loop_does_not_block_the_tasks_of_other_loops(tmp_path: Path) -> None:
    """The stopped loop has a waiting task, and is not closed, as in a notebook."""
    files = Gated()
    with opened(tmp_path, files) as log:
        files.close()
        holds = Appender(put(log, b"holds"))
        assert files.entered.acquire(timeout=PATIENCE)
        stopped = asyncio.new_event_loop()
        waits = stopped.create_task(log.append_async([(None, b"stopped")]))
        stopped.run_until_complete(asyncio.sleep(0))

        async def main() -> None:
            task = asyncio.create_task(log.append_async([(None, b"runs")]))
            while len(log._core.commits) < 2:
                await asyncio.sleep(0.001)
            files.gate.set()
            await asyncio.wait_for(task, PATIENCE)

        asyncio.run(main())
        holds.outcome()
        assert stopped.run_until_complete(waits).first_offset == 1
        stopped.close()
        assert values(log) == [b"holds", b"stopped", b"runs"]


def test_ctrl_c_while_leading_passes_the_lead_to_a_loop(tmp_path: Path) -> None:
    """The loop is notified once more."""
    fired = list[str]()

    class Loop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if getattr(callback, "__name__", "") == "begin" and not fired:
                fired.append("begin")
                raise KeyboardInterrupt
            return super().call_soon_threadsafe(callback, *args, **kwargs)

    files, loop = Gated(), Loop()
    runs = threading.Thread(target=loop.run_forever)
    runs.start()

    with opened(tmp_path, files) as log:
        files.close()
        leads = Appender(put(log, b"leads"))
        assert files.entered.acquire(timeout=PATIENCE)
        second = asyncio.run_coroutine_threadsafe(log.append_async([(None, b"second")]), loop)
        until(lambda: len(log._core.commits) == 1)
        files.gate.set()
        with pytest.raises(KeyboardInterrupt):
            leads.outcome()
        assert second.result(PATIENCE).first_offset == 1 and fired
        assert values(log) == [b"leads", b"second"]
    loop.call_soon_threadsafe(loop.stop)
    runs.join()
    loop.close()


def test_appends_of_many_threads_and_tasks_all_complete(tmp_path: Path) -> None:
    """Two loops and some threads, all at once, through an executor with a single worker each."""

    def tasks(number: int) -> int:
        async def one(which: int) -> int:
            for turn in range(10):
                await log.append_async([(None, b"%d %d %d" % (number, which, turn))])
            return 10

        async def main() -> int:
            with ThreadPoolExecutor(1) as executor:
                asyncio.get_running_loop().set_default_executor(executor)
                own = [asyncio.to_thread(log.append, [(None, b"thread")]) for _ in range(5)]
                await asyncio.wait_for(asyncio.gather(*own), 3 * PATIENCE)
                return sum(await asyncio.wait_for(asyncio.gather(*(one(which) for which in range(8))), 3 * PATIENCE))

        return asyncio.run(main())

    with klog.Log.open(tmp_path / "t-0", durability="sync") as log:
        loops = [Appender(lambda number=number: tasks(number)) for number in range(2)]
        threads = [Appender(lambda: [log.append([(None, b"plain")]) for _ in range(20)]) for _ in range(2)]
        assert [each.outcome() for each in loops] == [80, 80]
        for each in threads:
            each.outcome()
        assert log.log_end_offset == 160 + 10 + 40 and len(log._core.commits) == 0
