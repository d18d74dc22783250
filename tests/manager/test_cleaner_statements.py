"""The statements about the cleaner's gauges and its reconfiguration, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock, SystemClock
from tests.manager.cleaned_logs import NOW, dirty, is_clean, opened, pass_time, topic
from tests.support.patience import until

GAUGES = {
    "max-buffer-utilization-percent",
    "cleaner-recopy-percent",
    "max-clean-time-secs",
    "max-compaction-delay-secs",
    "DeadThreadCount",
    "max-dirty-percent",
    "time-since-last-run-ms",
    "uncleanable-partitions-count",
    "uncleanable-bytes",
}


def test_gauges_exist_while_the_cleaner_runs(tmp_path: Path) -> None:
    """CL40: the gauges are absent before the start and after the end, and 0 while nothing has been cleaned. A
    reconfiguration keeps them. With several threads they have the largest value."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        assert not GAUGES & set(logs.metrics())
        logs.start()
        assert set(logs.metrics()) >= GAUGES
        assert {value for name in GAUGES for value in logs.metrics()[name].values()} == {0}
        log = topic(logs, "t")
        dirty(log)
        logs.alter_config({"log.cleaner.backoff.ms": 14_000})
        assert set(logs.metrics()) >= GAUGES
        pass_time(clock)
        assert is_clean(log)
        metrics = logs.metrics()
        assert 0 < metrics["max-buffer-utilization-percent"][""] < 1
        assert 0 < metrics["cleaner-recopy-percent"][""] < 100
        slowest(logs, [3.0, 7.5, 2.0])
        assert logs.metrics()["max-clean-time-secs"] == {"": 7.5}
        logs._cleaner.stop()
        assert not GAUGES & set(logs.metrics())


def slowest(logs: klog.LogManager, seconds: list[float]) -> None:
    """Set these times as the times of several threads."""
    from klog.cleaner import RoundStats
    from klog.manager.cleaner_worker import Worker

    workers = [Worker() for _ in seconds]
    for worker, each in zip(workers, seconds, strict=True):
        worker.cleaned(RoundStats(), each)
    logs._cleaner._workers = workers


def test_an_io_buffer_of_one_byte_does_not_block_cleaning(tmp_path: Path) -> None:
    """CL45: Kafka makes no progress with it; klog's chunks do not depend on it. A reconfiguration to more bytes and two
    threads ends one thread and starts two, and records that become dirty afterwards are cleaned."""
    few: dict[str, Any] = {
        "log.cleaner.io.buffer.size": 1,
        "log.cleaner.threads": 1,
        "log.cleaner.backoff.ms": 5,
    }
    with opened(tmp_path, SystemClock(), few) as logs:
        several = [topic(logs, f"t{number}") for number in range(3)]
        logs.start()
        for log in several:
            dirty(log)
        until(lambda: all(map(is_clean, several)))
        logs.alter_config({"log.cleaner.io.buffer.size": 100_000, "log.cleaner.threads": 2})
        assert (logs.config.log_cleaner_threads, len(logs._cleaner._workers)) == (2, 2)
        for log in several:
            dirty(log, value=b"w", rounds=9)
        until(lambda: all(map(is_clean, several)))
        assert logs.metrics()["DeadThreadCount"] == {"": 0}
