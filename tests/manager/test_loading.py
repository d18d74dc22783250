"""Loading all logs of a manager, several at a time."""

from __future__ import annotations

import errno
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptLog, StorageOffline
from klog.log import core
from klog.manager import loading
from klog.manager.pool import run_all
from klog.progress import Event
from tests.support.abandon import abandon
from tests.support.few_threads import few_threads
from tests.support.patience import PATIENCE, until
from tests.support.resources import threads_and_descriptors
from tests.support.signals import signal_when_waiting

NOW = 1_700_000_000_000
MARKER = ".kafka_cleanshutdown"


def made(tmp_path: Path, partitions: int = 6) -> list[Path]:
    """Two directories with a topic."""
    paths = [tmp_path / "a", tmp_path / "b"]
    with klog.open(paths, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", partitions=partitions, config={"segment.bytes": 300})
        for log in logs.logs():
            for number in range(5):
                log.append([(None, b"%d" % number * 60)])
    return paths


def opened(paths: list[Path], **config: Any) -> klog.LogManager:
    return klog.open(paths, clock=ManualClock(NOW), config=config)


# ---- the pool --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3, 50])
def test_every_job_runs_even_if_others_fail(threads: int) -> None:
    """LM13: waitForAllToComplete evaluates every job even after a failure."""
    done: list[int] = []

    def job(number: int) -> None:
        done.append(number)
        if number % 3 == 0:
            raise ValueError(number)

    failures = run_all([lambda number=number: job(number) for number in range(10)], threads)  # type: ignore[misc]
    assert sorted(done) == list(range(10))
    assert [error.args[0] for error in failures] == [0, 3, 6, 9]
    assert run_all([], threads) == []


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_jobs_run_on_the_threads_that_the_machine_still_has(allowed: int) -> None:
    ran: list[str] = []
    with few_threads(allowed):
        assert run_all([lambda: ran.append(threading.current_thread().name)] * 9, 3) == []
    assert len(ran) == 9
    assert len(set(ran)) <= max(1, allowed)


@pytest.mark.parametrize("threads", [1, 3])
def test_no_job_begins_after_ctrl_c(threads: int) -> None:
    ran, going = [], threading.Event()

    def job() -> None:
        ran.append(1)
        assert going.wait(PATIENCE)

    with pytest.raises(KeyboardInterrupt), signal_when_waiting(signal.SIGINT):
        run_all([job] * 9, threads)
    going.set()
    until(lambda: not any(thread.name.startswith("klog-pool") for thread in threading.enumerate()))
    assert len(ran) == threads


def test_the_number_of_threads_is_limited() -> None:
    barrier, names = threading.Barrier(3), set()

    def job() -> None:
        names.add(threading.current_thread().name)
        barrier.wait(PATIENCE)

    assert run_all([job] * 6, 3) == []
    assert len(names) == 3


# ---- all logs --------------------------------------------------------------------------------------------------------


def test_all_logs_are_loaded_and_progress_is_reported(tmp_path: Path) -> None:
    seen: list[Event] = []
    with opened(made(tmp_path)) as logs:
        one = logs.log("t", 0)
        logs.load_all(seen.append)
        assert [(event.stage, event.done, event.total, event.unit) for event in seen] == [
            ("load", number, 5, "logs") for number in range(1, 6)
        ]
        assert {event.note for event in seen} == {f"t-{number}" for number in range(1, 6)}
        assert logs.log("t", 0) is one
        assert len(logs.metrics()["Size"]) == 6
        assert [log.recovery.clean_shutdown for log in logs.logs()] == [True] * 6


@pytest.mark.parametrize("durability", ["os", "interval"])
def test_without_threads_nothing_is_left_and_a_close_is_clean(tmp_path: Path, durability: Any) -> None:
    """What cannot be started raises; the threads before it have ended, and the next try finds everything free."""
    paths = made(tmp_path)
    before = threads_and_descriptors()
    for count in range(50):
        with few_threads(count):
            logs, error = None, None
            try:
                logs = klog.open(paths, durability=durability, config={"log.cleaner.threads": 2})
                logs.start()
            except RuntimeError as raised:
                error = raised
            if logs is not None:
                logs.append("t", [(None, b"x")])
                with few_threads(0):
                    logs.close()
                assert all((path / MARKER).exists() for path in paths)
        assert threads_and_descriptors() <= before
        if error is None:
            break
    assert 0 < count < 49


def test_a_start_that_found_no_thread_can_be_repeated(tmp_path: Path) -> None:
    paths = made(tmp_path)
    for count in range(50):
        with klog.open(paths, config={"log.cleaner.threads": 2, "num.recovery.threads.per.data.dir": 1}) as logs:
            error = None
            with few_threads(count):
                try:
                    logs.start()
                except RuntimeError as raised:
                    error = raised
            logs.start()
            assert logs._scheduler.running and "time-since-last-run-ms" in logs.metrics()
        if error is None:
            break
    assert 0 < count < 49


def test_a_start_brings_back_a_cleaner_that_found_no_thread_for_a_change(tmp_path: Path) -> None:
    with klog.open(made(tmp_path)) as logs:
        logs.start()
        with few_threads(1), pytest.raises(RuntimeError, match="new thread"):
            logs.alter_config({"log.cleaner.threads": 2})
        assert "time-since-last-run-ms" not in logs.metrics()
        logs.start()
        assert logs.metrics()["DeadThreadCount"] == {"": 0}
        assert logs.config.log_cleaner_threads == 2


def test_the_clean_shutdown_file_is_removed_and_a_second_load_is_unclean(tmp_path: Path) -> None:
    """LC1: the loader gets the clean-shutdown state; the file is then removed; a second load is unclean."""
    paths = made(tmp_path)
    logs = opened(paths)
    assert not any((path / MARKER).exists() for path in paths)
    assert all(log.recovery.clean_shutdown for log in logs.logs())
    abandon(logs)
    with opened(paths) as logs:
        assert not any(log.recovery.clean_shutdown for log in logs.logs())


def test_unclean_directories_load_first_each_with_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.1: num.recovery.threads.per.data.dir threads for each directory."""
    paths = made(tmp_path)
    (paths[1] / MARKER).unlink()
    barrier, order = threading.Barrier(4), []
    real = core.Log

    def load(path: str, options: Any) -> klog.Log:
        order.append(Path(path).parent.name)
        if len(order) <= 4:
            barrier.wait(PATIENCE)  # two of each directory at once, or this times out
        return real(path, options)

    monkeypatch.setattr(core, "Log", load)
    with opened(paths, num_recovery_threads_per_data_dir=2) as logs:
        logs.load_all()
        assert sorted(order[:4]) == ["a", "a", "b", "b"]
        assert not logs.log("t", 1).recovery.clean_shutdown
        assert logs.log("t", 0).recovery.clean_shutdown


def test_the_gauges_count_down_and_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LM10: the metrics of remaining logs per directory and remaining segments per thread fall to 0, and are removed
    after the load."""
    paths = made(tmp_path)
    for path in paths:
        (path / MARKER).unlink()
        (path / "recovery-point-offset-checkpoint").unlink()
    with opened(paths, num_recovery_threads_per_data_dir=1) as logs:
        logs_left: dict[str, list[int]] = {str(path): [] for path in paths}
        segments_left: list[int] = []
        real = loading.Loading._segments_left

        def spy(self: Any, directory: Any, left: int) -> None:
            real(self, directory, left)
            gauges = logs.metrics()
            segments_left.append(gauges["remainingSegmentsToRecover"][f"{directory.path} 0"])
            logs_left[directory.path].append(gauges["remainingLogsToRecover"][directory.path])

        monkeypatch.setattr(loading.Loading, "_segments_left", spy)
        logs.load_all()
        assert max(segments_left) == len(logs.log("t").segments) >= 2
        assert segments_left.count(0) == 6  # each log ends with 0
        for values in logs_left.values():
            assert values == sorted(values, reverse=True)
            assert (values[0], values[-1]) == (3, 1)
        assert "remainingLogsToRecover" not in logs.metrics()
        assert "remainingSegmentsToRecover" not in logs.metrics()


def broken_load(monkeypatch: pytest.MonkeyPatch, names: dict[str, BaseException]) -> list[str]:
    """Make loading these logs fail with this error. Returns the names of the logs that were tried."""
    real, tried = core.Log, []

    def load(path: str, options: Any) -> klog.Log:
        tried.append(Path(path).name)
        if Path(path).name in names:
            raise names[Path(path).name]
        return real(path, options)

    monkeypatch.setattr(core, "Log", load)
    return tried


def test_a_programming_error_while_loading_is_raised_and_takes_nothing_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LC2: RuntimeException propagates and the directory stays online; a storage error without a cause propagates."""
    for number, error in enumerate((RuntimeError("mistake"), StorageOffline("for no reason"), CorruptLog("bad"))):
        paths = made(tmp_path / str(number))
        with monkeypatch.context() as patch:
            tried = broken_load(patch, {"t-0": error})
            with opened(paths) as logs:
                with pytest.raises(type(error)):
                    logs.load_all()
                assert logs.offline_directories == {}
                assert sorted(tried) == [f"t-{number}" for number in range(6)]  # every job runs
        assert all((path / MARKER).exists() for path in paths)


def test_a_disk_error_while_loading_takes_only_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LC2: IOException is swallowed and the directory goes offline; a storage error with an I/O cause is swallowed; the
    next load is unclean although a clean-shutdown file had been written before."""
    reported = StorageOffline("already reported")
    reported.__cause__ = OSError(errno.EIO, "cause")
    paths = made(tmp_path)
    tried = broken_load(monkeypatch, {"t-0": OSError(errno.EIO, "no disk"), "t-1": reported})
    logs = opened(paths, num_recovery_threads_per_data_dir=1)
    logs.load_all()
    assert list(logs.offline_directories) == [str(paths[0])]
    assert "t-2" not in tried  # no further log of that directory
    assert logs.log("t", 3).count() == 5
    with pytest.raises(StorageOffline):
        logs.log("t", 0)
    with pytest.raises(OSError, match="no disk"):
        logs.close()
    assert not (paths[0] / MARKER).exists()
    monkeypatch.undo()
    with opened(paths) as logs:
        assert [log.recovery.clean_shutdown for log in logs.logs()] == [False, True] * 3


def test_the_last_directory_s_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.1: no live directory left."""
    paths = made(tmp_path)
    broken_load(monkeypatch, {f"t-{number}": OSError(errno.EIO, "no disk") for number in range(6)})
    logs = opened(paths)
    with pytest.raises(OSError, match="no disk"):
        logs.load_all()
    abandon(logs)


def ask(logs: klog.LogManager, together: threading.Barrier, found: list[klog.Log]) -> None:
    together.wait(PATIENCE)
    found.append(logs.log("t"))


@pytest.mark.parametrize("meanwhile", ["load_all", "delete_topic"])
def test_another_thread_loads_all_logs_or_deletes_a_topic_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    paths, attempt = made(tmp_path), loading.Loading._try
    with opened(paths) as logs:
        logs.create_topic("u", partitions=20)
        others = [threading.Thread(target=logs.load_all if meanwhile == "load_all" else lambda: logs.delete_topic("u"))]

        def after_another(*arguments: Any) -> None:
            if others:
                other = others.pop()
                other.start()
                other.join()
            attempt(*arguments)

        monkeypatch.setattr(loading.Loading, "_try", after_another)
        logs.load_all()
        assert len(list(logs.logs())) == 6 + 20 * (meanwhile == "load_all")
        assert "remainingLogsToRecover" not in logs.metrics()
        assert not logs.offline_directories


def test_concurrent_calls_for_one_log_get_the_same(tmp_path: Path) -> None:
    paths = made(tmp_path, partitions=1)
    for _ in range(20):
        with opened(paths) as logs:
            found: list[klog.Log] = []
            together = threading.Barrier(8)
            threads = [threading.Thread(target=ask, args=(logs, together, found)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len({id(log) for log in found}) == 1
            assert len(found) == 8
