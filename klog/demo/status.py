"""Step 4: the latest state of every flight: a topic of all states, compacted to the last one of each flight.

    key      carrier-flight-origin-local date, unique for each flight of the table
    value    the event as in the topic flights; for a cancelled flight its `scheduled`, followed by a tombstone

S1  992,643 states + 8,255 tombstones are appended; 328,521 records stay: the last state of each flight that left.
S2  as in Kafka, a tombstone stays until delete.retention.ms has passed since the first compaction that read it; a later
    compaction removes it. Here that time is 0, and the events after the last cancellation are kept for the second
    compaction, which needs new records.
"""

from __future__ import annotations

import json
import time

from klog.demo.demo_directory import FLIGHT_STATUS
from klog.demo.events import FlightEvents
from klog.demo.failure import DemoFailed
from klog.demo.load import SEGMENT_MS
from klog.demo.narrator import Narrator, duration, size
from klog.log import Log
from klog.manager import LogManager
from klog.progress import Event, Progress
from klog.values import dataclass

SEGMENT_BYTES = 8 << 20
_SLICE = 32_768


@dataclass(frozen=True, slots=True)
class Example:
    """The state of one flight in the compacted topic; event None: it was cancelled, so there is no record."""

    key: str
    event: str | None
    tailnum: str | None


@dataclass(frozen=True, slots=True)
class StatusResult:
    """before, between, after: the two compactions. The first one keeps the tombstones."""

    states: int
    tombstones: int
    records: int
    bytes_before: int
    segments_before: int
    table_seconds_before: float
    records_between: int
    held_back: int
    records_after: int
    bytes_after: int
    segments_after: int
    table_seconds_after: float
    append_seconds: float
    compact_seconds: float
    records_per_second: float
    examples: tuple[Example, ...]


def compact_states(logs: LogManager, events: FlightEvents, progress: Progress | None) -> StatusResult:
    """Append all states, and compact twice (S1, S2)."""
    config = {
        "cleanup.policy": "compact",
        "delete.retention.ms": 0,
        "file.delete.delay.ms": 0,  # the replaced files have no readers
        "segment.bytes": SEGMENT_BYTES,
        "segment.ms": SEGMENT_MS,
        "compression.type": "lz4",
    }
    logs.create_topic(FLIGHT_STATUS, config=config)
    log = logs.log(FLIGHT_STATUS)
    held_back = len(events) - events.end_of_cancellations
    started = time.perf_counter()
    _append(log, events, 0, events.end_of_cancellations, progress)
    appended = time.perf_counter() - started
    size_before, segments_before = log.size, len(log.segments)
    _, table_before = _table(log)
    first = log.compact(roll=True, progress=progress)
    size_between = log.size
    _append(log, events, events.end_of_cancellations, len(events), None)
    size_before += log.size - size_between
    records = log.log_end_offset
    second = log.compact(roll=True, progress=progress)
    table, table_after = _table(log)
    seconds = first.seconds + second.seconds
    result = StatusResult(
        states=len(events),
        tombstones=events.cancelled,
        records=records,
        bytes_before=size_before,
        segments_before=segments_before,
        table_seconds_before=table_before,
        records_between=first.records_after,
        held_back=held_back,
        records_after=second.records_after,
        bytes_after=second.bytes_after,
        segments_after=sum(segment.size > 0 for segment in log.segments),
        table_seconds_after=table_after,
        append_seconds=appended,
        compact_seconds=seconds,
        records_per_second=(first.records_before + second.records_before) / seconds,
        examples=tuple(_example(key, table.get(key.encode())) for key in events.examples),
    )
    _check(result, len(table), events)
    return result


def _append(log: Log, events: FlightEvents, start: int, stop: int, progress: Progress | None) -> None:
    for part in events.states(start, stop, _SLICE):
        log.append(part)
        if progress is not None:
            progress(Event("states", log.log_end_offset, len(events) + events.cancelled, "records"))
    if progress is not None:
        progress(Event("states", log.log_end_offset, log.log_end_offset, "records"))


def _table(log: Log) -> tuple[dict[bytes | None, bytes | None], float]:
    """Return the latest value of every key, as a service loads it at start, and the seconds that it took."""
    started = time.perf_counter()
    table = {record.key: record.value for record in log.read()}
    return table, time.perf_counter() - started


def _example(key: str, value: bytes | None) -> Example:
    row = {} if value is None else json.loads(value)
    return Example(key, row.get("event"), row.get("tailnum"))


def _check(result: StatusResult, keys: int, events: FlightEvents) -> None:
    facts = events.facts
    wanted = (facts.events + facts.scheduled - facts.departed, facts.departed, facts.departed)
    if (result.records, result.records_after, keys) != wanted:
        raise DemoFailed(
            f"{wanted[0]} records were appended and {wanted[1]} flights left New York; the topic took {result.records} "
            f"records and kept {result.records_after} of {keys} keys"
        )


def show(result: StatusResult, to: Narrator) -> None:
    saved = result.bytes_before - result.bytes_after
    to.facts(
        [
            (
                "appended",
                f"{result.records:,} records = {result.states:,} states + {result.tombstones:,} tombstones of "
                f"cancelled flights, {size(result.bytes_before)} in {result.segments_before} segments",
            ),
            (
                "compacted",
                f"to {result.records_between:,} keys, {result.tombstones:,} of them tombstones, which stay until "
                f"delete.retention.ms has passed: 0 here",
            ),
            (
                "once more",
                f"with the last {result.held_back:,} events of the year: {result.records_after:,} records, one for "
                "each flight that left",
            ),
            (
                "result",
                f"{size(result.bytes_after)} in {result.segments_after} segments; {size(saved)} saved "
                f"({saved / result.bytes_before:.0%})",
            ),
            (
                "took",
                f"{duration(result.compact_seconds)}, {result.records_per_second:,.0f} records a second; reads and "
                "appends can go on meanwhile",
            ),
            (
                "table",
                f"of all latest states: read in {duration(result.table_seconds_after)}; before the compaction in "
                f"{duration(result.table_seconds_before)}",
            ),
        ]
    )
    to.table(
        ["flight", "latest state", "aircraft"],
        [[each.key, each.event or "cancelled: no record", each.tailnum or "-"] for each in result.examples],
        left=3,
    )
