"""Leader epochs as the batches of a log say them, and what of that a log believes.

The leader epoch of a batch lies outside its checksum, and so do its base offset, its length and its magic: a flipped
bit there is a sound batch. leader-epoch-checkpoint has no checksum either. So each is believed as far as the other, or
the neighbours, bear it out:

  B1  an epoch is on disk before its first batch is acknowledged (epochs E2): where the checkpoint can be read, one
      batch alone that differs from it by one bit is a wrong bit, and the checkpoint stands
  B2  where more than that differs, the batches are believed if they are at one: their epochs do not fall
  B3  a batch alone that breaks an order which its neighbours keep has the epoch of the neighbour that is one bit away,
      else of the one before
  B4  where there is no checkpoint either, the last batch is believed: nothing speaks against it

What is stored is never changed, and readers get it as it is stored.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from klog.errors import CorruptBatch
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.segments import number_of
from klog.segment import Header, Segment, scan_headers


@dataclass(slots=True)
class _Run:
    """Neighbouring batches of one epoch. lone: there is one batch of them."""

    epoch: int
    start: int
    lone: bool = True


def learn_epochs(epochs: LeaderEpochCache, segments: Sequence[Segment]) -> None:
    """The epochs of all batches, from their headers: those that rise."""
    for run in _settled(_runs(segments)):
        epochs.learn(run.epoch, run.start)


def mend_epochs(epochs: LeaderEpochCache, segments: Sequence[Segment], log_end: int) -> bool:
    """Where the entries and the batches contradict each other, decide by B1 to B3. True if the entries have changed.

    The first entry is not asked: it moves along with the log start.
    """
    entries = epochs.entries
    if not entries:
        return False
    stand = not epochs.fell and all(_stands(entry, segments, log_end) for entry in entries[1:])
    if stand:
        last = _reaching(log_end - 1, segments)
        if last is None or last.leader_epoch in (-1, _epoch_before(entries, log_end)):
            return False
    runs = _runs(segments)
    if not epochs.fell and _one_wrong_bit(runs, epochs):
        return False
    runs = _settled(runs)
    if any(after.epoch < before.epoch for before, after in itertools.pairwise(runs)):
        return False
    if not stand or any(_lower(run, epochs) for run in runs):
        epochs.clear()
    for run in runs:
        epochs.learn(run.epoch, run.start)
    return epochs.entries != entries


def _lower(run: _Run, epochs: LeaderEpochCache) -> bool:
    """Are batches of an earlier epoch than the entries have there? A new entry cannot say that."""
    due = epochs.epoch_for_offset(run.start)
    return due is not None and run.epoch < due


def _runs(segments: Sequence[Segment]) -> list[_Run]:
    """The batches in order, without those that have no epoch."""
    runs: list[_Run] = []
    for segment in segments:
        if not segment.size:
            continue
        scan = scan_headers(segment.file, 0, segment.size, 0)
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
            runs[-1].lone &= alone
    return runs


def _settled(runs: Sequence[_Run]) -> list[_Run]:
    """B3: the runs without batches that break the order."""
    settled: list[_Run] = []
    for number, run in enumerate(runs):
        before = settled[-1].epoch if settled else None
        after = runs[number + 1].epoch if number + 1 < len(runs) else None
        epoch, around = run.epoch, [other for other in (before, after) if other is not None]
        breaks = not (_in_order(before, epoch) and _in_order(epoch, after))
        told = before is not None or not all(next_run.lone for next_run in runs[number + 1 : number + 2])
        if run.lone and told and breaks and _in_order(before, after):
            epoch = next((other for other in around if _one_bit(other, epoch)), around[0])
        if epoch != before:
            settled.append(_Run(epoch, run.start))
    return settled


def _in_order(before: int | None, after: int | None) -> bool:
    return before is None or after is None or before <= after


def _one_bit(epoch: int, other: int) -> bool:
    return (epoch ^ other).bit_count() == 1


def _one_wrong_bit(runs: Sequence[_Run], epochs: LeaderEpochCache) -> bool:
    """B1: is all that the batches say otherwise one bit of one of them?"""
    others = []
    for run in runs:
        due = epochs.epoch_for_offset(run.start)
        if due is not None and due != run.epoch:
            others.append((run, due))
    return len(others) == 1 and others[0][0].lone and _one_bit(others[0][0].epoch, others[0][1])


def _stands(entry: tuple[int, int], segments: Sequence[Segment], log_end: int) -> bool:
    """Is the batch of an entry's offset of its epoch, and the batch before of an earlier one? Where the cleaner may
    have left a hole, batches of later epochs may stand at both."""
    epoch, start = entry
    if start >= log_end:
        return start == log_end
    at, before = _reaching(start, segments), _reaching(start - 1, segments)
    if at is not None and at.leader_epoch != epoch and at.leader_epoch >= 0:
        in_a_hole = at.leader_epoch > epoch and at.base_offset > start
        if not in_a_hole:
            return False
    return before is None or before.leader_epoch < epoch or before.base_offset >= start


def _epoch_before(entries: Sequence[tuple[int, int]], offset: int) -> int:
    """The epoch of the last entry below an offset, else that of the first."""
    return next((epoch for epoch, start in reversed(entries) if start < offset), entries[0][0])


def _reaching(offset: int, segments: Sequence[Segment]) -> Header | None:
    """The first batch that ends at or behind an offset, None also where damage hides it: its readers will be told."""
    at = number_of(segments, offset)
    with contextlib.suppress(CorruptBatch, OSError):
        for segment in segments[at : at + 2]:
            header = segment.locate(offset) if segment.size else None
            if segment is not segments[-1]:
                segment.close()  # nothing of it is open before somebody reads there
            if header is not None:
                return header
    return None
