"""The workload of a topic, from the headers of its newest batches: sizes, rates, codecs. No record is decoded."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

from klog.log import Log
from klog.values import asdict, dataclass

SEEN_BYTES = 16 << 20  # examined of each partition
SEEN_PARTITIONS = 16  # examined of each topic: the largest


@dataclass(frozen=True, slots=True)
class Workload:
    """What was appended to one topic, from the newest batches of its largest partitions.

    bytes, records, segments: of all partitions, records as an estimate. seen_bytes, seen_batches: those examined.
    batch_bytes, batch_records: medians. record_bytes: the mean, as stored. bytes_per_second: the examined bytes,
    divided by the time between the first and the last timestamp, and summed over the partitions; 0 if those times are
    not known. segment_seconds: the median time that a closed segment covers; None if not known. compressed: the share
    of compressed bytes.
    """

    topic: str
    partitions: int
    bytes: int
    records: int
    segments: int
    seen_bytes: int
    seen_batches: int
    batch_bytes: float
    batch_records: float
    record_bytes: float
    bytes_per_second: float
    segment_seconds: float | None
    compressed: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return asdict(self)


def workload_of(topic: str, logs: Iterable[Log]) -> Workload | None:
    """Return the workload of a topic's partitions; None if there is no batch. Raises CorruptBatch, OSError."""
    by_size = sorted(logs, key=lambda log: log.size, reverse=True)
    sizes: list[int] = []
    counts: list[int] = []
    compressed, rate = 0, 0.0
    for log in by_size[:SEEN_PARTITIONS]:
        times: list[int] = []
        seen = 0
        for batch in log.read(_start(log)).batches():
            sizes.append(batch.size)
            counts.append(batch.count)
            seen += batch.size
            compressed += batch.size if batch.compression != "none" else 0
            if batch.max_timestamp >= 0:
                times.append(batch.max_timestamp)
        passed = max(times) - min(times) if times else 0
        rate += seen / (passed / 1000) if passed > 0 else 0.0
    if not sizes:
        return None
    total, records = sum(log.size for log in by_size), max(sum(counts), 1)
    segments = [seconds for log in by_size[:SEEN_PARTITIONS] for seconds in _segment_seconds(log)]
    return Workload(
        topic=topic,
        partitions=len(by_size),
        bytes=total,
        records=round(total / (sum(sizes) / records)),
        segments=sum(len(log.segments) for log in by_size),
        seen_bytes=sum(sizes),
        seen_batches=len(sizes),
        batch_bytes=median(sizes),
        batch_records=median(counts),
        record_bytes=sum(sizes) / records,
        bytes_per_second=rate,
        segment_seconds=median(segments) if segments else None,
        compressed=compressed / sum(sizes),
    )


def _start(log: Log) -> int:
    """Return an offset with about SEEN_BYTES after it, computed as if all records had the same size."""
    start, end = log.log_start_offset, log.high_watermark
    if log.size <= SEEN_BYTES:
        return start
    return max(start, end - (end - start) * SEEN_BYTES // log.size)


def _segment_seconds(log: Log) -> Iterator[float]:
    """Yield the seconds from one closed segment's largest timestamp to the next one's, for the newest few."""
    newest = [segment.max_timestamp for segment in log.segments[-10:-1]]
    for before, after in itertools.pairwise(newest):
        if 0 <= before < after:
            yield (after - before) / 1000
