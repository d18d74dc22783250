"""Step 5: count the records, first from the batch headers, then by reading them one by one."""

from __future__ import annotations

import time

from klog.demo.demo_directory import FLIGHTS
from klog.demo.narrator import Narrator, duration
from klog.manager import LogManager
from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class CountResult:
    by_headers: int
    headers_seconds: float
    by_reading: int
    reading_seconds: float


def count(logs: LogManager) -> CountResult:
    partitions = [logs.log(FLIGHTS, partition) for partition in logs.topics()[FLIGHTS]]
    started = time.perf_counter()
    by_headers = sum(log.count() for log in partitions)
    counted = time.perf_counter()
    by_reading = sum(1 for log in partitions for _ in log.read())
    return CountResult(by_headers, counted - started, by_reading, time.perf_counter() - counted)


def show(result: CountResult, to: Narrator) -> None:
    to.facts(
        [
            ("by batch headers", f"{result.by_headers:,} in {duration(result.headers_seconds)}"),
            ("by reading all", f"{result.by_reading:,} in {duration(result.reading_seconds)}"),
        ]
    )
