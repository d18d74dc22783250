"""Offset ranges → input partitions. Pure: the sizes come in as numbers, the batch boundaries through a callback.

    partition ranges ──split──► ranges of [target, 2 × target) bytes ──pack──► bins, one per Spark task

  P1  Every offset of the input lies in exactly one range of the output; no range is empty.
  P2  A bin weighs at least `target` bytes as stored, unless all of them together weigh less: then it is one bin.
      A Python task costs about 70 ms before its first row, so a task per segment or per small partition is ruin.
  P3  Ranges of one topic-partition that share a bin are in offset order.
  P4  A cut lies where a batch begins: otherwise two tasks would decompress the same batch.

Weights are bytes in the file, as compressed. Inside a segment they are spread evenly over its offsets: an estimate that
decides only how even the bins are, never which rows they hold.
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
"""(range, offset) → base offset of the batch that holds this offset, or of the next one behind a gap."""


def plan(
    ranges: Iterable[tuple[Range, Sequence[Extent]]], batch_start: BatchStart, target: int = TARGET_BYTES
) -> list[tuple[Range, ...]]:
    """Bins of ranges for [(range, segments of its partition), ...]; ranges without offsets fall out."""
    pieces: list[Range] = []
    for whole, extents in ranges:
        if whole.start_offset < whole.end_offset:
            pieces += split(whole, extents, batch_start, target)
    return pack(pieces, target)


def size_between(extents: Sequence[Extent], start_offset: int, end_offset: int) -> int:
    """Estimated bytes of [start_offset, end_offset)."""
    return sum(_share(extent, start_offset, end_offset) for extent in extents)


def _share(extent: Extent, start_offset: int, end_offset: int) -> int:
    count = extent.next_offset - extent.base_offset
    inside = min(end_offset, extent.next_offset) - max(start_offset, extent.base_offset)
    # Integers: offsets and sizes multiplied pass 2**53, where floats begin to round.
    return extent.size * inside // count if inside > 0 else 0


def split(whole: Range, extents: Sequence[Extent], batch_start: BatchStart, target: int) -> list[Range]:
    """One partition's range in pieces of about equal size, each of target bytes and more."""
    edges = [whole.start_offset]
    for wanted in _cut_offsets(extents, whole.start_offset, whole.end_offset, target):
        cut = batch_start(whole, wanted)
        if edges[-1] < cut < whole.end_offset:  # one huge batch may swallow several cuts
            edges.append(cut)
    edges.append(whole.end_offset)
    return [
        replace(whole, start_offset=start, end_offset=end, size=size_between(extents, start, end))
        for start, end in itertools.pairwise(edges)
    ]


def _cut_offsets(extents: Sequence[Extent], start_offset: int, end_offset: int, target: int) -> list[int]:
    """Offsets near i/n of the bytes, for the largest n that leaves each piece target bytes."""
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
    """P2: large pieces stand alone, small ones share bins in the order they come, left-overs join the lightest bin."""
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
        # The left-overs may precede a member of the same topic-partition: sort for P3.
        lightest += small
        lightest.sort(key=lambda member: (member.pair, member.start_offset))
    elif small:
        bins.append(small)
    return [tuple(members) for members in bins]
