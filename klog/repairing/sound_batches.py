"""The intact batches of a segment, and the damage between them.

The checksum of a batch does not cover its base offset and leader epoch. A batch contradicts the others if its offsets
are outside the segment, or if the offsets or epochs increase only without it. The longest series of batches without
contradictions is kept.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from klog.errors import CorruptData
from klog.inspect.batches import Found, scan
from klog.inspect.files import ReadOnlyFile
from klog.inspect.partition_files import damage_of
from klog.values import dataclass

OFFSETS_MAX = 2**31  # of a segment: its index entries have 32-bit relative offsets


@dataclass(frozen=True, slots=True)
class Batch:
    """An intact batch: position and size in bytes, offsets, leader epoch, count of records."""

    position: int
    size: int
    base_offset: int
    next_offset: int
    leader_epoch: int
    count: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [position, end) without a batch to keep."""

    position: int
    end: int
    reason: str


@dataclass(slots=True)
class Segment:
    """batches and damage in order of position. next_base: of the next segment; None in the last one."""

    path: str
    base: int
    next_base: int | None
    batches: list[Batch]
    damage: list[Damage]


def read_segment(path: str, base: int, next_base: int | None) -> Segment:
    """Read a .log file to its end."""
    found = Segment(path, base, next_base, [], [])
    try:
        with ReadOnlyFile(path, scan=True) as file:
            for item in scan(file):
                error = item.error
                if isinstance(item, Found) and error is None and item.batch.magic < 2:
                    reason = f"messages of magic {item.batch.magic}, which klog does not write"
                    found.damage.append(Damage(item.position, item.end, reason))
                elif isinstance(item, Found) and error is None:
                    batch = item.batch
                    found.batches.append(
                        Batch(
                            item.position,
                            batch.size,
                            batch.base_offset,
                            batch.next_offset,
                            batch.leader_epoch,
                            batch.count,
                        )
                    )
                elif error is not None:
                    torn = damage_of(item) is None
                    reason = f"an incomplete batch at the end: {error.reason}" if torn else error.reason
                    found.damage.append(Damage(item.position, item.end, reason))
    except CorruptData as error:
        found.damage.append(Damage(error.position or 0, error.position or 0, error.reason))
    _drop_contradictions(found)
    return found


def drop_late_epochs(segment: Segment, after: Segment) -> None:
    """Drop batches whose epoch is above that of the next segment's first batch: such an epoch is wrong."""
    if after.batches:
        latest = after.batches[0].leader_epoch
        _keep(segment, [batch.leader_epoch <= latest for batch in segment.batches], "a leader epoch above later ones")


def drop_early_epochs(segment: Segment, epoch: int) -> None:
    """Drop batches whose epoch is below that of the records before the segment."""
    _keep(segment, [batch.leader_epoch >= epoch for batch in segment.batches], "a leader epoch below earlier ones")


def _drop_contradictions(segment: Segment) -> None:
    low = segment.base
    high = low + OFFSETS_MAX if segment.next_base is None else segment.next_base
    inside = [low <= each.base_offset and each.next_offset <= high for each in segment.batches]
    _keep(segment, inside, f"a batch outside the offsets of its segment, which begin at {low}")
    _keep(segment, _rising([each.base_offset for each in segment.batches], strict=True), "a base offset out of order")
    _keep(segment, _apart(segment.batches), "a batch whose offsets overlap the next one's")
    _keep(segment, _rising([each.leader_epoch for each in segment.batches]), "a leader epoch out of order")


def _keep(segment: Segment, kept: Sequence[bool], reason: str) -> None:
    if all(kept):
        return
    dropped = [batch for batch, keep in zip(segment.batches, kept, strict=True) if not keep]
    segment.damage += [Damage(each.position, each.position + each.size, reason) for each in dropped]
    segment.damage.sort(key=lambda damage: damage.position)
    segment.batches = [batch for batch, keep in zip(segment.batches, kept, strict=True) if keep]


def _rising(values: Sequence[int], *, strict: bool = False) -> list[bool]:
    """Return for each value whether it belongs to the longest increasing series."""
    tails: list[int] = []  # the smallest last value of a series of each length
    ends: list[int] = []  # its index
    before: list[int] = []
    find = bisect.bisect_left if strict else bisect.bisect_right
    for index, value in enumerate(values):
        length = find(tails, value)
        before.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [value]
        ends[length : length + 1] = [index]
    kept = [False] * len(values)
    index = ends[-1] if ends else -1
    while index >= 0:
        kept[index] = True
        index = before[index]
    return kept


def _apart(batches: Sequence[Batch]) -> list[bool]:
    following = [*(each.base_offset for each in batches[1:]), None][: len(batches)]
    return [base is None or each.next_offset <= base for each, base in zip(batches, following, strict=True)]
