"""Step 3: two days in February, found by the time index. Only their records are read.

The window is 8 and 9 February in New York, which is 05:00 to 05:00 UTC. Every partition is in time order (E1 of
events.py), so the first records at or after the two ends of the window bound exactly the events inside it.

A flight counts if its `scheduled` event is in the window. That event carries the whole row, so it also states whether
the flight left.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from itertools import pairwise

from klog.demo.demo_directory import FLIGHTS
from klog.demo.events import airline_names
from klog.demo.narrator import Narrator, duration, when
from klog.manager import LogManager
from klog.values import dataclass

START = 1360299600000  # 2013-02-08T05:00Z
STOP = 1360472400000  # 2013-02-10T05:00Z
_HOUR = 3_600_000
_CARRIERS = 5


@dataclass(frozen=True, slots=True)
class Range:
    partition: int
    start: int
    stop: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Carrier:
    code: str
    name: str
    scheduled: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class StormResult:
    ranges: tuple[Range, ...]
    lookup_seconds: float
    read_seconds: float
    records_read: int
    scheduled: int
    cancelled: int
    departed: int
    departed_on_time: int
    mean_delay_minutes: float
    quiet_from: int
    quiet_until: int
    carriers: tuple[Carrier, ...]


def seek(logs: LogManager) -> StormResult:
    """Find the window in every partition and read it."""
    started = time.perf_counter()
    ranges = tuple(_range(logs, partition) for partition in logs.topics()[FLIGHTS])
    looked_up = time.perf_counter()
    events = [
        (record.timestamp or 0, json.loads(record.value or b"null"))  # neither is null: see events.py
        for found in ranges
        for record in logs.log(FLIGHTS, found.partition).read(found.start, found.stop)
    ]
    read = time.perf_counter()
    flights = [flight for _, flight in events if flight["event"] == "scheduled"]
    flown = [flight["dep_delay"] for flight in flights if flight["dep_time"] is not None]
    quiet_from, quiet_until = _longest_quiet(
        [timestamp for timestamp, flight in events if flight["event"] == "departed"]
    )
    return StormResult(
        ranges=ranges,
        lookup_seconds=looked_up - started,
        read_seconds=read - looked_up,
        records_read=len(events),
        scheduled=len(flights),
        cancelled=len(flights) - len(flown),
        departed=len(flown),
        departed_on_time=sum(delay <= 0 for delay in flown),
        mean_delay_minutes=sum(flown) / len(flown),
        quiet_from=quiet_from,
        quiet_until=quiet_until,
        carriers=_worst(flights),
    )


def _range(logs: LogManager, partition: int) -> Range:
    log = logs.log(FLIGHTS, partition)
    start, stop = log.offset_for_timestamp(START), log.offset_for_timestamp(STOP)
    end = log.log_end_offset
    return Range(partition, start.offset if start else end, stop.offset if stop else end, end)


def _longest_quiet(departures: list[int]) -> tuple[int, int]:
    """Return the longest time without a departure: the last departure before it, and the first one after it."""
    departures.sort()
    _, start, stop = max((after - before, before, after) for before, after in pairwise(departures))
    return start, stop


def _worst(flights: list[dict[str, object]]) -> tuple[Carrier, ...]:
    """Return carriers by cancelled flights, in descending order."""
    names = airline_names()
    scheduled = Counter(str(flight["carrier"]) for flight in flights)
    cancelled = Counter(str(flight["carrier"]) for flight in flights if flight["dep_time"] is None)
    order = sorted(scheduled, key=lambda code: (-cancelled[code], code))
    return tuple(Carrier(code, names[code], scheduled[code], cancelled[code]) for code in order[:_CARRIERS])


def show(result: StormResult, events: int, to: Narrator) -> None:
    places = ", ".join(f"{found.partition}: [{found.start:,}, {found.stop:,})" for found in result.ranges)
    hours = (result.quiet_until - result.quiet_from) / _HOUR
    to.facts(
        [
            (
                "lookups",
                f"{2 * len(result.ranges)} in {duration(result.lookup_seconds)}; offsets by partition {places}",
            ),
            (
                "read",
                f"{result.records_read:,} of {events:,} records, parsed as JSON in {duration(result.read_seconds)}",
            ),
            (
                "flights",
                f"{result.scheduled:,} scheduled, {result.cancelled:,} cancelled "
                f"({result.cancelled / result.scheduled:.0%}), {result.departed:,} left",
            ),
            (
                "delays",
                f"{result.departed_on_time:,} left on time or early; on average "
                f"{result.mean_delay_minutes:.1f} minutes late",
            ),
            (
                "silence",
                f"no departure between {when(result.quiet_from)} and {when(result.quiet_until)}: {hours:.1f} hours",
            ),
        ]
    )
    to.table(
        ["carrier", "name", "scheduled", "cancelled", "share"],
        [
            [c.code, c.name, f"{c.scheduled:,}", f"{c.cancelled:,}", f"{c.cancelled / c.scheduled:.0%}"]
            for c in result.carriers
        ],
        left=2,
    )
