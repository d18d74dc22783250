"""The intact batches of a segment, and the damage between them.

The checksum of a batch does not cover its base offset and leader epoch. A batch contradicts the others if its offsets
are outside the segment, or if the offsets or epochs increase only without it. The field is restored if the batches
around it leave a single value, or a single one that is one bit away. Of the others the longest series of batches
without contradictions is kept.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from klog.errors import CorruptData
from klog.inspect.batches import Found, scan
from klog.inspect.files import ReadOnlyFile
from klog.inspect.partition_files import damage_of
from klog.values import dataclass, replace

BLOCK = 4096  # a disk fails to read whole sectors of at most this size
OFFSETS_MAX = 2**31  # of a segment: its index entries have 32-bit relative offsets
LEADER_EPOCH_AT = 12  # in a batch


@dataclass(frozen=True, slots=True)
class Batch:
    """An intact batch: position and size in bytes, offsets, leader epoch, count of records. ends: the producer whose
    transaction it ends, -1: none."""

    position: int
    size: int
    base_offset: int
    next_offset: int
    leader_epoch: int
    count: int
    ends: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [position, end) without a batch to keep."""

    position: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A wrong field of a batch. position: of the batch; at: of the field in it; data: the right bytes."""

    position: int
    at: int
    data: bytes
    reason: str

    def put(self, buffer: bytearray, begin: int) -> None:
        """Restore the field in a buffer of the file's bytes from `begin` on, if it is there."""
        start = self.position + self.at - begin
        if 0 <= start < len(buffer):
            buffer[start : start + len(self.data)] = self.data


class PatchyFile(ReadOnlyFile):
    """A file of which the disk cannot read some blocks: their bytes are 0xff, so that no batch begins there. lost:
    {block: reason}. One thread."""

    def __init__(self, path: str) -> None:
        super().__init__(path, scan=True)
        self.lost: dict[int, str] = {}

    def read_at(self, position: int, size: int) -> bytes:
        blocks = range(position // BLOCK, -(-min(position + size, self.size) // BLOCK))
        if self.lost.keys().isdisjoint(blocks):
            try:
                return super().read_at(position, size)
            except CorruptData:
                pass
        end = position + size
        return b"".join(
            self._block(block, max(position, block * BLOCK), min(end, self.size, (block + 1) * BLOCK))
            for block in blocks
        )

    def _block(self, block: int, position: int, end: int) -> bytes:
        if block not in self.lost:  # a disk may take seconds to fail
            try:
                return super().read_at(position, end - position)
            except CorruptData as error:
                self.lost[block] = error.reason
        return b"\xff" * (end - position)

    def why(self, position: int, end: int) -> str | None:
        """Return why bytes [position, end) cannot all be read; None if they can."""
        return next(
            (self.lost[block] for block in sorted(self.lost) if position < (block + 1) * BLOCK and block * BLOCK < end),
            None,
        )


@dataclass(slots=True)
class Segment:
    """batches and damage in order of position. next_base: of the next segment; None in the last one."""

    path: str
    base: int
    next_base: int | None
    batches: list[Batch]
    damage: list[Damage]
    restored: list[Restored]
    size: int = 0


def read_segment(path: str, base: int, next_base: int | None) -> Segment:
    """Read a .log file to its end, past what cannot be read."""
    found = Segment(path, base, next_base, [], [], [])
    try:
        with PatchyFile(path) as file:
            found.size = file.size
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
                            batch.producer_id if batch.is_control else -1,
                        )
                    )
                elif error is not None:
                    torn = damage_of(item) is None
                    reason = f"an incomplete batch at the end: {error.reason}" if torn else error.reason
                    reason = file.why(item.position, item.end) or reason
                    found.damage.append(Damage(item.position, item.end, reason))
    except CorruptData as error:  # not a regular file
        found.damage.append(Damage(error.position or 0, error.position or 0, error.reason))
    except OSError as error:
        found.damage.append(Damage(0, 0, f"cannot be opened: {error.strerror}"))
    _restore_offsets(found)
    _drop_contradictions(found)
    return found


def restore_epochs(segment: Segment, epoch: int, after: Segment | None) -> None:
    """Restore or drop epochs that contradict the others. epoch: of the records before the segment; after: the next one,
    which can show a wrong epoch at the end, or begin with one."""
    both = [*segment.batches, *(after.batches if after is not None else ())]
    possible = [at for at, batch in enumerate(both) if batch.leader_epoch >= epoch]
    rising = _rising([both[at].leader_epoch for at in possible])
    kept = {at for at, keep in zip(possible, rising, strict=True) if keep}
    count = len(segment.batches)
    latest = next((both[at].leader_epoch for at in range(count, len(both)) if at in kept), None)
    _keep_epochs(segment, [at in kept for at in range(count)], epoch, latest)


def _restore_offsets(segment: Segment) -> None:
    """Restore base offsets. Where a batch begins below the end of the one before, one of the two is wrong: the one for
    which there is a single other value, if there is none for the other."""
    batches = segment.batches
    for number in range(len(batches) + 1):
        if _due(segment, number) <= _following(segment, number - 1):
            continue
        before, after = _other_offsets(segment, number - 1), _other_offsets(segment, number)
        if len(before) == 1 and not after:
            _move(segment, number - 1, before[0])
        elif len(after) == 1 and not before:
            _move(segment, number, after[0])


def _due(segment: Segment, number: int) -> int:
    """Return the offset that batch `number` should have, or a greater one."""
    return segment.batches[number - 1].next_offset if number else segment.base


def _following(segment: Segment, number: int) -> int:
    """Return the offset above those of batch `number`: of the next batch or segment."""
    if number + 1 < len(segment.batches):
        return segment.batches[number + 1].base_offset
    return segment.base + OFFSETS_MAX if segment.next_base is None else segment.next_base


def _other_offsets(segment: Segment, number: int) -> list[int]:
    """Return the base offsets that a batch may have instead. At the end of a segment, whose next one may have a wrong
    name, only one that leaves no gap and is one bit away."""
    if not 0 <= number < len(segment.batches):
        return []
    batch, due = segment.batches[number], _due(segment, number)
    high = _following(segment, number) - (batch.next_offset - batch.base_offset)
    if number + 1 == len(segment.batches):
        return _one_bit_away(batch.base_offset, due, min(due, high))
    return _others(batch.base_offset, due, high)


def _others(value: int, low: int, high: int | None) -> list[int]:
    """Return the only value from low to high; if there are more, those that are one bit away. high=None: if low is."""
    return [low] if low == high else _one_bit_away(value, low, low if high is None else high)


def _one_bit_away(value: int, low: int, high: int) -> list[int]:
    return [other for bit in range(63) if low <= (other := value ^ (1 << bit)) <= high]


def _move(segment: Segment, number: int, base_offset: int) -> None:
    batch = segment.batches[number]
    reason = f"a wrong base offset {batch.base_offset}, now {base_offset}"
    segment.restored.append(Restored(batch.position, 0, base_offset.to_bytes(8), reason))
    next_offset = base_offset + batch.next_offset - batch.base_offset
    segment.batches[number] = replace(batch, base_offset=base_offset, next_offset=next_offset)


def _drop_contradictions(segment: Segment) -> None:
    low = segment.base
    high = low + OFFSETS_MAX if segment.next_base is None else segment.next_base
    inside = [low <= each.base_offset and each.next_offset <= high for each in segment.batches]
    _keep(segment, inside, f"a batch outside the offsets of its segment, which begin at {low}")
    _keep(segment, _rising([each.base_offset for each in segment.batches], strict=True), "a base offset out of order")
    _keep(segment, _apart(segment.batches), "a batch whose offsets overlap the next one's")


def _keep_epochs(segment: Segment, kept: list[bool], low: int, high: int | None) -> None:
    """Keep these batches, and those whose epoch can be restored. low, high: of the epochs around the segment; None: not
    known."""
    for number, batch in enumerate(segment.batches):
        if kept[number]:
            low = batch.leader_epoch
            continue
        later = (segment.batches[at].leader_epoch for at in range(number, len(kept)) if kept[at])
        found = _others(batch.leader_epoch, low, next(later, high))
        if len(found) == 1:
            wrong = f"a wrong leader epoch {batch.leader_epoch}, now {found[0]}"
            segment.restored.append(Restored(batch.position, LEADER_EPOCH_AT, found[0].to_bytes(4, signed=True), wrong))
            segment.batches[number], kept[number] = replace(batch, leader_epoch=found[0]), True
            low = found[0]
    _keep(segment, kept, "a leader epoch out of order")


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
