"""The leader epochs in the batches of a log, and how contradictions with the checkpoint are resolved.

The checksum of a batch does not cover its leader epoch, base offset, length and magic: a batch with a flipped bit there
still has a valid checksum. leader-epoch-checkpoint has no checksum either. So the two are checked against each other
and against neighbouring batches:

  B1  an epoch is on disk before its first batch is acknowledged (leader_epochs E2). So if the checkpoint is readable,
      a single batch that differs from it by one bit has a wrong bit, and the checkpoint is right
  B2  if more batches differ, the batches are right, provided that their epochs never decrease
  B3  a single batch out of order among ordered neighbours has the epoch of the neighbour that differs by one bit, else
      the epoch of the batch before
  B4  without a checkpoint, the epoch of the last batch is accepted: nothing contradicts it
  B5  if a base offset contradicts its neighbours, a readable checkpoint is right: where an epoch begins by such batches
      is not known

Stored batches are never changed, and readers get them as stored.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

from klog.errors import CorruptBatch
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.segments import number_of
from klog.segment import Header, Segment, scan_headers
from klog.values import dataclass


@dataclass(slots=True)
class _Run:
    """Neighbouring batches of one epoch. lone: it is a single batch."""

    epoch: int
    start: int
    lone: bool = True


def learn_epochs(epochs: LeaderEpochCache, segments: Sequence[Segment]) -> None:
    """Fill the cache with the rising epochs in the headers of all batches."""
    for run in _settled(_runs(segments)[0]):
        epochs.learn(run.epoch, run.start)


def mend_epochs(
    epochs: LeaderEpochCache, segments: Sequence[Segment], log_end: int, last_epoch: int | None = None
) -> None:
    """Resolve contradictions between entries and batches by B1 to B5.

    The first entry is not checked: it moves with the log start. last_epoch: that of the last batch, None if the caller
    does not know it.
    """
    entries = epochs.entries
    if not entries:
        return
    stand = not epochs.fell and (len(entries) == 1 or all(_stands(each, segments) for each in entries[1:]))
    if stand:
        if last_epoch is None:
            last = _reaching(log_end - 1, segments)
            if last is None:
                return
            last_epoch = last.leader_epoch
        if last_epoch in (-1, _epoch_before(entries, log_end)):
            return
    runs, ordered = _runs(segments)
    if not epochs.fell and (not ordered or _one_wrong_bit(runs, epochs, segments, log_end)):
        return
    runs = _settled(runs)
    if any(after.epoch < before.epoch for before, after in itertools.pairwise(runs)):
        return
    if not stand or any(_lower(run, epochs) for run in runs):
        epochs.put_back([])
    for run in runs:
        epochs.learn(run.epoch, run.start)


def _lower(run: _Run, epochs: LeaderEpochCache) -> bool:
    """Is the epoch of the batches below that of the entries at this offset? An added entry cannot express that."""
    due = epochs.epoch_for_offset(run.start)
    return due is not None and run.epoch < due


def _runs(segments: Sequence[Segment]) -> tuple[list[_Run], bool]:
    """The runs of batches in order, without batches that have no epoch; and whether all offsets rise (B5)."""
    runs: list[_Run] = []
    ordered = True
    for segment, following in itertools.zip_longest(segments, segments[1:]):
        if not segment.size:
            continue
        scan = scan_headers(segment.file, 0, segment.size, segment.base_offset)
        within = following is None or scan.next_offset <= following.base_offset
        ordered &= within and not scan.invalid and scan.reason != "offset_order"
        notable = scan.notable
        for number, header in enumerate(notable):
            if header.leader_epoch < 0:
                continue
            end = notable[number + 1].position if number + 1 < len(notable) else scan.end
            alone = header.position + header.size == end
            if runs and runs[-1].epoch == header.leader_epoch:
                runs[-1].lone = False
            else:
                runs.append(_Run(header.leader_epoch, header.base_offset, alone))
    return runs, ordered


def _settled(runs: Sequence[_Run]) -> list[_Run]:
    """B3: the runs, with single batches that are out of order corrected."""
    settled: list[_Run] = []
    for number, run in enumerate(runs):
        before = settled[-1].epoch if settled else None
        after = runs[number + 1].epoch if number + 1 < len(runs) else None
        epoch, around = run.epoch, [other for other in (before, after) if other is not None]
        breaks = not (_in_order(before, epoch) and _in_order(epoch, after))
        confirmed = before is not None or not all(next_run.lone for next_run in runs[number + 1 : number + 2])
        if run.lone and confirmed and breaks and _in_order(before, after):
            epoch = next((other for other in around if _one_bit(other, epoch)), around[0])
        if epoch != before:
            settled.append(_Run(epoch, run.start))
    return settled


def _in_order(before: int | None, after: int | None) -> bool:
    return before is None or after is None or before <= after


def _one_bit(epoch: int, other: int) -> bool:
    return (epoch ^ other).bit_count() == 1


def _one_wrong_bit(runs: Sequence[_Run], epochs: LeaderEpochCache, segments: Sequence[Segment], log_end: int) -> bool:
    """B1: is the only difference to the entries one bit of one batch?"""
    ends = [*(run.start for run in runs[1:]), log_end]
    others = []
    for run, end in zip(runs, ends, strict=False):  # without runs there is an end
        starts = [run.start, *(start for _, start in epochs.entries if run.start < start < end)]
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            due = epochs.epoch_for_offset(start)
            if due is not None and due != run.epoch:
                others.append((run.epoch, due, start, stop))
    if len(others) != 1:
        return False
    epoch, due, start, stop = others[0]
    return _one_bit(epoch, due) and _is_one_batch(segments, start, stop)


def _is_one_batch(segments: Sequence[Segment], start: int, stop: int) -> bool:
    """Do the offsets [start, stop) have no more than one batch?"""
    first = _reaching(start, segments)
    second = None if first is None else _reaching(first.next_offset, segments)
    return second is None or second.base_offset >= stop


def _stands(entry: tuple[int, int], segments: Sequence[Segment]) -> bool:
    """Does the batch at an entry's offset have its epoch, and the batch before an earlier one?

    In a gap that the cleaner left, both may be batches of later epochs.
    """
    epoch, start = entry
    at, before = _reaching(start, segments), _reaching(start - 1, segments)
    if at is not None and (0 <= at.leader_epoch < epoch or (at.leader_epoch > epoch and at.base_offset <= start)):
        return False
    return before is None or before.leader_epoch < epoch or before.base_offset >= start


def _epoch_before(entries: Sequence[tuple[int, int]], offset: int) -> int:
    """The epoch of the last entry below an offset, else that of the first."""
    for epoch, start in reversed(entries):
        if start < offset:
            return epoch
    return entries[0][0]


def _reaching(offset: int, segments: Sequence[Segment]) -> Header | None:
    """The first batch that ends at or after an offset. None also if it is damaged: its readers get CorruptBatch."""
    with contextlib.suppress(CorruptBatch, OSError):
        for number in range(number_of(segments, offset), len(segments)):
            segment = segments[number]
            header = segment.locate(offset) if segment.size else None
            if segment is not segments[-1]:
                segment.close()  # closed segments keep no file open until they are read
            if header is not None:
                return header
    return None
