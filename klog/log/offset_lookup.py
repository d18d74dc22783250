"""Offsets that a word or a time stands for: what a ListOffsets request asks of a log.

Kafka: UnifiedLog.fetchOffsetByTimestamp and legacyFetchOffsetsBefore, ListOffsetsRequest for the numbers, Partition for
what an isolation does to "latest". Tiered answers are those of a log without tiers.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from klog.log.fetching import Isolation
from klog.log.times import whole_number

if TYPE_CHECKING:
    from klog.log.view import LogView

NONE = -1
_NUMBERS = {
    -1: "latest",
    -2: "earliest",
    -3: "max_timestamp",
    -4: "earliest_local",
    -5: "latest_tiered",
    -6: "earliest_pending_upload",
}


class ListedOffset(NamedTuple):
    """An offset, the timestamp of its record, the leader epoch that it was written in; -1: has none, or unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


def list_offset(log: LogView, target: str | int, isolation: Isolation) -> ListedOffset | None:
    """What Log.list_offset documents."""
    word = target
    if not isinstance(target, str):
        number = whole_number("target", target)
        if number >= 0:
            return _at_time(log, number, isolation)
        word = _NUMBERS.get(number, number)
    if word == "latest":
        return ListedOffset(NONE, log.bound(isolation), _latest_epoch(log))
    if word in ("earliest", "earliest_local"):
        epochs, start = log.leader_epochs, log.log_start_offset
        epoch = epochs[0][0] if epochs and epochs[0][1] <= start else NONE
        return ListedOffset(NONE, start, epoch)
    if word == "max_timestamp":
        return _youngest(log, isolation)
    if word in ("latest_tiered", "earliest_pending_upload"):
        return ListedOffset(NONE, NONE, NONE)
    raise ValueError(f"target={target!r}: a time in ms, or one of {', '.join(map(repr, _NUMBERS.values()))}")


def offsets_before(log: LogView, ms: int, count: int) -> list[int]:
    """What Log.legacy_fetch_offsets_before documents."""
    if count < 0:
        raise ValueError(f"count={count}: not negative")
    found: list[tuple[int, int]] = []
    for segment in log.segments:
        with contextlib.suppress(FileNotFoundError):  # retention, beside us
            modified = os.stat(segment.path).st_mtime_ns // 1_000_000
            found.append((max(segment.base_offset, log.log_start_offset), modified))
    if log.segments and log.segments[-1].size:
        found.append((log.log_end_offset, log.clock.wall_ms()))
    if ms == -1:
        last = len(found)
    elif ms == -2:
        last = min(len(found), 1)
    else:
        last = max((number for number, (_, modified) in enumerate(found, 1) if modified <= ms), default=0)
    return sorted((offset for offset, _ in found[max(last - count, 0) : last]), reverse=True)


def _latest_epoch(log: LogView) -> int:
    epochs = log.leader_epochs
    return epochs[-1][0] if epochs else NONE


def _epoch_of(log: LogView, offset: int) -> int:
    """The epoch of the batch that holds an offset, as the batch says it."""
    found = log._locate(offset)
    if found is not None:
        return found[0].locate_at(found[1]).leader_epoch
    epochs = log.leader_epochs
    number = bisect.bisect_right(epochs, offset, key=lambda entry: entry[1])
    return epochs[number - 1][0] if number else NONE


def _listed(log: LogView, timestamp: int, offset: int, isolation: Isolation) -> ListedOffset | None:
    if isolation != "log_end" and offset >= log.bound(isolation):
        return None  # Kafka: Partition.fetchOffsetForTimestamp
    return ListedOffset(timestamp, offset, _epoch_of(log, offset))


def _at_time(log: LogView, ms: int, isolation: Isolation) -> ListedOffset | None:
    found = log.offset_for_timestamp(ms)
    return None if found is None else _listed(log, *found, isolation)


def _youngest(log: LogView, isolation: Isolation) -> ListedOffset | None:
    """The first record with the greatest timestamp of all."""
    youngest = max((segment.max_timestamp for segment in log.segments if segment.size), default=NONE)
    found = log.offset_for_timestamp(youngest) if youngest >= 0 else None
    return None if found is None else _listed(log, *found, isolation)
