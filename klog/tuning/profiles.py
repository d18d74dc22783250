"""The tuning profiles, and which one a topic's workload matches.

high-throughput-writes   large batches or much data: large segments, few index entries, preallocated files
high-throughput-reads    never chosen by itself, only by name: the files do not show how much is read
low-latency              small batches at a low rate: small segments, dense index, early flushes
balanced                 everything else
"""

from __future__ import annotations

from collections.abc import Mapping

from klog.tuning.workload import Workload
from klog.values import dataclass

_BIG_BATCH, _BIG_RATE = 64 << 10, 5 << 20
_SMALL_BATCH, _SMALL_RATE = 4 << 10, 256 << 10


@dataclass(frozen=True, slots=True)
class Profile:
    """settings: topic-level keys and their values."""

    name: str
    settings: Mapping[str, int | bool]


def _profile(name: str, segment: int, hours: int, messages: int, flush_ms: int, interval: int, **more: int) -> Profile:
    settings: dict[str, int | bool] = {
        "segment.bytes": segment << 20,
        "segment.ms": hours * 3_600_000,
        "flush.messages": messages,
        "flush.ms": flush_ms,
        "index.interval.bytes": interval,
        "preallocate": bool(more.get("preallocate", 0)),
    }
    if "index_mib" in more:
        settings["segment.index.bytes"] = more["index_mib"] << 20
    return Profile(name, settings)


PROFILES: Mapping[str, Profile] = {
    each.name: each
    for each in (
        _profile("high-throughput-writes", 1024, 1, 50_000, 30_000, 8192, preallocate=1),
        _profile("high-throughput-reads", 512, 168, 10_000, 10_000, 4096, index_mib=20),
        _profile("low-latency", 256, 168, 1000, 1000, 1024),
        _profile("balanced", 1024, 168, 10_000, 10_000, 4096),
    )
}


def matching(workload: Workload) -> tuple[Profile, str]:
    """Return the profile that suits a workload, and why."""
    size, rate = workload.batch_bytes, workload.bytes_per_second
    shown = f"batches of {size:,.0f} bytes at {rate:,.0f} bytes per second"
    if size >= _BIG_BATCH or rate >= _BIG_RATE:
        return PROFILES["high-throughput-writes"], f"{shown}: large batches or a high rate"
    if size <= _SMALL_BATCH and rate <= _SMALL_RATE:
        return PROFILES["low-latency"], f"{shown}: small batches at a low rate"
    return PROFILES["balanced"], f"{shown}: neither small nor large"
