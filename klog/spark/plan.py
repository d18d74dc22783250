"""Plans input partitions from offset ranges. Pure: sizes are given as numbers, batch boundaries by a callback.

    ranges, one after the other ──cut at i/n of the bytes──► n bins, one per Spark task

  P1  Every offset of the input lies in exactly one range of the output; no range is empty.
  P2  n = total ÷ target, rounded down, and at least 1: a Python task takes about 70 ms before its first row, so a task
      per segment or small partition is far too slow. Only minPartitions and maxRecordsPerPartition make more bins.
  P3  Ranges of one topic-partition that share a bin are in offset order.
  P4  A range is cut only where a batch begins: otherwise two tasks would decompress the same batch. So a bin may be
      smaller or larger than the others by a batch, and where all is one batch there is one bin.

Sizes are bytes in the file, as compressed. Inside a segment they are spread evenly over its offsets: an estimate that
affects only how even the bins are, never which rows they hold.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

from klog.spark.bounds import TopicPartition
from klog.values import NamedTuple, dataclass, replace

TARGET_MIN = 32 << 20
TARGET_MAX = 128 << 20
BINS_MAX = 100_000  # made by size, or asked for: more tasks than that overwhelm the driver
_UNCUT = 8  # a range smaller than this part of a bin is not cut: a bin begins before or after it


class Extent(NamedTuple):
    """One segment: `size` bytes for offsets [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start_offset, end_offset) of the partition directory `path`; `size` is an estimate in bytes.

    topic_id, leader_epoch: of the log when the query was planned, by which a task notices another log at this path;
    None if unknown. Positions, segments and aborted transactions are not in it: a cleaner may replace files before the
    task reads, which finds its start by one or two short reads.
    """

    path: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size: int = 0
    topic_id: str | None = None
    leader_epoch: int | None = None

    @property
    def pair(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        """Offsets, which are at least as many as records."""
        return self.end_offset - self.start_offset


Bin = tuple[Range, ...]
BatchAt = Callable[[Range, int], tuple[int, int]]
"""(range, offset) → [base offset, next offset) of the batch that holds this offset, or of the first one after it. If
there is none, or it cannot be read, both are the range's end."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large the bins are.

    parallelism: tasks that run at the same time. target_bytes: of a bin, None for the default. min_bins: at least so
    many, if there are as many batches. max_records: in a bin, unless one batch has more.
    """

    parallelism: int = 1
    target_bytes: int | None = None
    min_bins: int = 1
    max_records: int | None = None

    def target(self, total: int) -> int:
        """Bytes of a bin: two for each core, within the limits that a task's fixed cost and a retry's cost set."""
        if self.target_bytes is not None:
            return self.target_bytes
        return min(max(total // (2 * self.parallelism), TARGET_MIN), TARGET_MAX)


class Sizes:
    """Estimated bytes of ranges of one partition, from its segments."""

    __slots__ = ("_before", "_extents", "_starts")

    def __init__(self, extents: Iterable[Extent]) -> None:
        self._extents = [extent for extent in extents if extent.next_offset > extent.base_offset]
        self._starts = [extent.base_offset for extent in self._extents]
        self._before = list(itertools.accumulate((extent.size for extent in self._extents), initial=0))

    def between(self, start_offset: int, end_offset: int) -> int:
        """Bytes of [start_offset, end_offset). Sizes of neighbours add up to that of both."""
        return self._below(end_offset) - self._below(start_offset)

    def _below(self, offset: int) -> int:
        number = bisect_right(self._starts, offset) - 1
        if number < 0:
            return 0
        base, after, size = self._extents[number]
        # Integers: products of offsets and sizes exceed 2**53, where floats round.
        return self._before[number] + size * (min(offset, after) - base) // (after - base)

    def offset_after(self, start_offset: int, size: int) -> int:
        """The offset that is `size` bytes after start_offset."""
        wanted = self._below(start_offset) + size
        number = bisect_right(self._before, wanted) - 1
        if number >= len(self._extents):
            return self._extents[-1].next_offset if self._extents else start_offset
        base, after, within = self._extents[number]
        return base + (after - base) * (wanted - self._before[number]) // within if within else base


def plan(ranges: Iterable[tuple[Range, Sizes]], batch_at: BatchAt, sizing: Sizing) -> list[Bin]:
    """Return the bins for [(range, sizes of its partition), ...], in the order of the ranges; ranges without offsets
    are left out."""
    planner = _Planner({}, batch_at)
    whole = []
    for given, sizes in ranges:
        if given.start_offset < given.end_offset:
            planner.sizes[given.pair] = sizes
            whole.append(planner.part(given, given.start_offset, given.end_offset))
    bins = planner.cut_line(whole, sizing)
    bins = planner.refine(bins, sizing.min_bins)
    if sizing.max_records is not None:
        bins = [part for members in bins for part in planner.limit(members, sizing.max_records)]
    return bins


class _Planner(NamedTuple):
    sizes: dict[TopicPartition, Sizes]
    batch_at: BatchAt

    def part(self, whole: Range, start: int, end: int) -> Range:
        size = self.sizes[whole.pair].between(start, end)
        return replace(whole, start_offset=start, end_offset=end, size=size)

    # ---- by bytes ----------------------------------------------------------------------------------------------------

    def cut_line(self, ranges: Sequence[Range], sizing: Sizing) -> list[Bin]:
        """Put the ranges one after the other and cut at i/n of their bytes (P2)."""
        total = sum(member.size for member in ranges)
        count = min(max(1, total // sizing.target(total)), BINS_MAX)
        wanted = [total * number // count for number in range(1, count)]
        bins: list[list[Range]] = [[]]
        passed = 0
        for whole in ranges:
            inside = wanted[bisect_left(wanted, passed) : bisect_left(wanted, passed + whole.size)]
            rest = whole
            for cut in sorted({self._cut(whole, size - passed, total // count) for size in inside}):
                if cut > rest.start_offset:
                    bins[-1].append(self.part(rest, rest.start_offset, cut))
                    rest = self.part(rest, cut, rest.end_offset)
                if bins[-1]:
                    bins.append([])
            if rest.count:
                bins[-1].append(rest)
            passed += whole.size
        return [tuple(members) for members in bins if members]

    def _cut(self, whole: Range, size: int, bin_size: int) -> int:
        """Return the start of the batch about `size` bytes into a range, or one of the range's ends."""
        if whole.size < bin_size // _UNCUT:
            return whole.start_offset if 2 * size < whole.size else whole.end_offset
        offset = self.sizes[whole.pair].offset_after(whole.start_offset, size)
        if not whole.start_offset < offset < whole.end_offset:
            return whole.start_offset
        return min(max(self.batch_at(whole, offset)[0], whole.start_offset), whole.end_offset)

    # ---- minPartitions -----------------------------------------------------------------------------------------------

    def refine(self, bins: list[Bin], least: int) -> list[Bin]:
        """Halve the largest bins until there are `least`, or until each is one batch."""
        if len(bins) >= least:
            return bins
        whole: list[tuple[tuple[int, ...], Bin]] = []
        # The second item is the place of the bin in the plan: halves keep it.
        heap: list[tuple[int, tuple[int, ...], Bin]] = [
            (-_size(members), (number,), members) for number, members in enumerate(bins)
        ]
        heapq.heapify(heap)
        while heap and len(heap) + len(whole) < least:
            _, place, members = heapq.heappop(heap)
            halves = self._halve(members)
            if halves is None:
                whole.append((place, members))
                continue
            for number, half in enumerate(halves):
                heapq.heappush(heap, (-_size(half), (*place, number), half))
        parts = [*whole, *((place, members) for _, place, members in heap)]
        return [members for _, members in sorted(parts, key=lambda part: part[0])]

    def _halve(self, members: Bin) -> tuple[Bin, Bin] | None:
        half, passed = _size(members) // 2, 0
        number = 0
        for number, member in enumerate(members):
            if passed + member.size > half or number == len(members) - 1:
                break
            passed += member.size
        before, middle, after = members[:number], members[number], members[number + 1 :]
        cut = self._middle(middle, half - passed)
        if cut is not None:
            left, right = self.part(middle, middle.start_offset, cut), self.part(middle, cut, middle.end_offset)
            return (*before, left), (right, *after)
        if before:
            return before, (middle, *after)
        return ((middle,), after) if after else None

    def _middle(self, whole: Range, size: int) -> int | None:
        """Return a batch boundary inside the range, near `size` bytes from its start."""
        wanted = self.sizes[whole.pair].offset_after(whole.start_offset, size)
        base, after = self.batch_at(whole, min(max(wanted, whole.start_offset), whole.end_offset - 1))
        return next((cut for cut in (base, after) if whole.start_offset < cut < whole.end_offset), None)

    # ---- maxRecordsPerPartition --------------------------------------------------------------------------------------

    def limit(self, members: Bin, most: int) -> list[Bin]:
        """Cut a bin into bins of at most `most` offsets each."""
        bins: list[list[Range]] = [[]]
        left = most
        for rest in members:
            while rest.count > left:
                cut = self.batch_at(rest, rest.start_offset + left)[0]
                if cut <= rest.start_offset and not bins[-1]:
                    cut = self.batch_at(rest, rest.start_offset)[1]  # one batch has more than that
                if cut >= rest.end_offset:
                    break
                if cut > rest.start_offset:
                    bins[-1].append(self.part(rest, rest.start_offset, cut))
                    rest = self.part(rest, cut, rest.end_offset)
                bins.append([])
                left = most
            bins[-1].append(rest)
            left = max(left - rest.count, 0)
        return [tuple(part) for part in bins if part]


def _size(members: Bin) -> int:
    return sum(member.size for member in members)
