"""Step 1: load the flights into a topic: one LogManager.append per slice, with Kafka's default partitioner."""

from __future__ import annotations

import time

from klog.demo.demo_directory import FLIGHTS
from klog.demo.events import Facts, FlightEvents
from klog.demo.narrator import Narrator, duration, size, when
from klog.manager import LogManager
from klog.progress import Event, Progress
from klog.values import dataclass

PARTITIONS = 4
COMPRESSION = "lz4"
SEGMENT_BYTES = 4 << 20  # about 17 MB per partition with lz4: each rolls a few times
SEGMENT_MS = 400 * 24 * 3600 * 1000  # Kafka also rolls by event time, by default every week: that would be 200 segments
_SLICE = 16_384  # events per append: about 5 MB of JSON, 1.3 MB for each partition


@dataclass(frozen=True, slots=True)
class LoadResult:
    facts: Facts
    partitions: int
    segments: int
    value_bytes: int
    stored_bytes: int
    seconds: float
    events_per_second: float


def load_flights(logs: LogManager, events: FlightEvents, progress: Progress | None) -> LoadResult:
    """Create the topic and append every event to it."""
    # The data is from 2013: with Kafka's default retention of seven days, the first round would delete all of it.
    config = {
        "segment.bytes": SEGMENT_BYTES,
        "segment.ms": SEGMENT_MS,
        "retention.ms": -1,
        "compression.type": COMPRESSION,
    }
    logs.create_topic(FLIGHTS, partitions=PARTITIONS, config=config)
    started = time.perf_counter()
    done = 0
    for part in events.slices(_SLICE):
        logs.append(FLIGHTS, part)
        done += len(part)
        if progress is not None:
            progress(Event("import", done, len(events), "events"))
    seconds = time.perf_counter() - started
    partitions = [logs.log(FLIGHTS, partition) for partition in range(PARTITIONS)]
    return LoadResult(
        facts=events.facts,
        partitions=PARTITIONS,
        segments=sum(len(log.segments) for log in partitions),
        value_bytes=events.value_bytes,
        stored_bytes=sum(log.size for log in partitions),
        seconds=seconds,
        events_per_second=len(events) / seconds,
    )


def show(result: LoadResult, to: Narrator) -> None:
    facts = result.facts
    to.facts(
        [
            (
                "events",
                f"{facts.events:,} = {facts.scheduled:,} scheduled + {facts.departed:,} departed "
                f"+ {facts.arrived:,} arrived",
            ),
            ("network", f"{facts.carriers} carriers, {facts.routes} routes to {facts.destinations} destinations"),
            (
                "keys",
                f"{facts.aircraft:,} tail numbers, the busiest {facts.busiest_aircraft} with "
                f"{facts.busiest_flights} flights; {facts.without_key:,} events have none, so their key is null",
            ),
            ("time", f"{when(facts.first_timestamp)} to {when(facts.last_timestamp)}"),
            (
                "on disk",
                f"{size(result.value_bytes)} of JSON in {size(result.stored_bytes)} with {COMPRESSION}, "
                f"{result.segments} segments in {result.partitions} partitions",
            ),
            ("took", f"{duration(result.seconds)}, {result.events_per_second:,.0f} events a second"),
        ]
    )
