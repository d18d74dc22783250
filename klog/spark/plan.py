"""Plans input partitions from offset ranges. Pure: sizes are given as numbers, batch boundaries by a callback.

    partition ranges ──split──► ranges of [target, 2 × target) bytes ──pack──► bins, one per Spark task

  P1  Every offset of the input lies in exactly one range of the output; no range is empty.
  P2  A bin has at least `target` bytes as stored, unless all ranges together have less: then there is one bin.
      A Python task takes about 70 ms before its first row, so a task per segment or small partition is far too slow.
  P3  Ranges of one topic-partition that share a bin are in offset order.
  P4  A range is cut only where a batch begins: otherwise two tasks would decompress the same batch.

Sizes are bytes in the file, as compressed. Inside a segment they are spread evenly over its offsets: an estimate that
affects only how even the bins are, never which rows they hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from klog.spark.bounds import TopicPartition

TARGET_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """One segment: `size` bytes for offsets [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start_offset, end_offset) of the partition directory `path`; `size` is the estimate of P2."""

    path: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size: int = 0

    @property
    def pair(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


BatchStart = Callable[[Range, int], int]
"""(range, offset) → base offset of the batch that holds this offset, or of the next one after a gap."""


def plan(
    ranges: Iterable[tuple[Range, Sequence[Extent]]], batch_start: BatchStart, target: int = TARGET_BYTES
) -> list[tuple[Range, ...]]:
    """Return bins of ranges for [(range, segments of its partition), ...]; ranges without offsets are left out."""
    pieces: list[Range] = []
    for whole, extents in ranges:
        if whole.start_offset < whole.end_offset:
            pieces += split(whole, extents, batch_start, target)
    return pack(pieces, target)


def size_between(extents: Sequence[Extent], start_offset: int, end_offset: int) -> int:
    """Return the estimated bytes of [start_offset, end_offset)."""
    return sum(_share(extent, start_offset, end_offset) for extent in extents)


def _share(extent: Extent, start_offset: int, end_offset: int) -> int:
    count = extent.next_offset - extent.base_offset
    inside = min(end_offset, extent.next_offset) - max(start_offset, extent.base_offset)
    # Integers: products of offsets and sizes exceed 2**53, where floats round.
    return extent.size * inside // count if inside > 0 else 0


def split(whole: Range, extents: Sequence[Extent], batch_start: BatchStart, target: int) -> list[Range]:
    """Cut one partition's range into pieces of about equal size, each of at least target bytes."""
    edges = [whole.start_offset]
    for wanted in _cut_offsets(extents, whole.start_offset, whole.end_offset, target):
        cut = batch_start(whole, wanted)
        if edges[-1] < cut < whole.end_offset:  # several cuts may fall into one huge batch
            edges.append(cut)
    edges.append(whole.end_offset)
    return [
        replace(whole, start_offset=start, end_offset=end, size=size_between(extents, start, end))
        for start, end in itertools.pairwise(edges)
    ]


def _cut_offsets(extents: Sequence[Extent], start_offset: int, end_offset: int, target: int) -> list[int]:
    """Return offsets near i/n of the bytes, for the largest n with at least target bytes per piece."""
    total = size_between(extents, start_offset, end_offset)
    count = total // target
    cuts: list[int] = []
    passed = 0
    for extent in extents:
        share = _share(extent, start_offset, end_offset)
        first = max(start_offset, extent.base_offset)
        span = min(end_offset, extent.next_offset) - first
        while share and len(cuts) + 1 < count and passed + share >= (wanted := total * (len(cuts) + 1) // count):
            cuts.append(first + span * (wanted - passed) // share)
        passed += share
    return cuts


def pack(pieces: Sequence[Range], target: int) -> list[tuple[Range, ...]]:
    """Pack pieces into bins (P2): a large piece gets its own bin, small ones share bins in order, and the rest joins
    the smallest bin."""
    bins: list[list[Range]] = []
    small: list[Range] = []
    weight = 0
    for piece in pieces:
        if piece.size >= target:
            bins.append([piece])
            continue
        small.append(piece)
        weight += piece.size
        if weight >= target:
            bins.append(small)
            small, weight = [], 0
    if small and bins:
        lightest = min(bins, key=lambda members: sum(member.size for member in members))
        # The rest may precede a member of the same topic-partition: sort for P3.
        lightest += small
        lightest.sort(key=lambda member: (member.pair, member.start_offset))
    elif small:
        bins.append(small)
    return [tuple(members) for members in bins]
