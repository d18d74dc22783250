"""Has a truncation replaced what a reader has read? Then the reader must not go on at its position.

  D1  a read that goes on, and a reader that keeps a position, raise LogTruncated if the log no longer has what they
      read last. So no caller gets records from before and after a truncation as if they were of one log
  D2  they look only after the log's `rewritten` has changed: an ordinary read makes no call for this
  D3  a batch is the same if its last offset, leader epoch and checksum are. Epochs alone, as Kafka's consumers compare
      them (KIP-320), would not do: a klog that truncates its own log keeps its epoch, and what replaces an append that
      was undone, or records that a power cut has lost, may have the same epoch
  D4  a cleaner leaves fewer records of a batch, or none: that is not a truncation. So one is not noticed if no batch
      has those offsets any more

Any thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TypeAlias

from klog.errors import CorruptData, LogTruncated
from klog.log.state._log_core import LogCore
from klog.log.state.segments import locate
from klog.record import DELETE_HORIZON, RecordBatch
from klog.segment import Header, find_offset

Batch: TypeAlias = Header | RecordBatch


def is_left_of(found: Batch, read: Batch) -> bool:
    """Is a batch of the log the one that was read, or what a cleaner has left of that?"""
    if (found.crc, found.last_offset, found.leader_epoch) == (read.crc, read.last_offset, read.leader_epoch):
        return True
    if read.magic < 2:  # a cleaner makes it one of magic 2
        return found.magic == 2 and (found.last_offset, found.max_timestamp) == (read.last_offset, read.max_timestamp)
    return _kept(found) == _kept(read) and (
        found.count < read.count or bool(found.attributes & ~read.attributes & DELETE_HORIZON)
    )


def _kept(batch: Batch) -> tuple[int, ...]:
    """What a cleaner leaves of a batch's header."""
    producer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    return batch.base_offset, batch.last_offset, batch.leader_epoch, *producer


def check_left(log: LogCore, read: Iterable[Batch], position: int) -> None:
    """Raise LogTruncated unless the log still has the last of these batches, which a reader at this position has read.
    Damage is left to the next read."""
    with log.lock, contextlib.suppress(CorruptData, OSError):  # a truncation, or a load, is done or not begun
        batches = [*read]
        if batches and not _has(log, batches[-1]):
            raise truncated(log, position, next(batch.base_offset for batch in batches if not _has(log, batch)))


def batch_before(log: LogCore, position: int) -> Header | None:
    """The batch with the offset before a position. None if there is none, or if it cannot be read."""
    offset = position - 1
    with contextlib.suppress(CorruptData, OSError):
        if offset >= log.log_start_offset and (found := locate(log.segments, offset)) is not None:
            segment, at = found
            header = find_offset(segment.file, at, segment.size, offset)
            return None if header is None or header.base_offset > offset else header
    return None


def _has(log: LogCore, read: Batch) -> bool:
    offset = read.last_offset
    if offset >= log.log_end_offset:
        return False
    if offset < log.log_start_offset or (found := locate(log.segments, offset)) is None:
        return True
    segment, position = found
    header = find_offset(segment.file, position, segment.size, offset)
    return header is None or header.base_offset > offset or is_left_of(header, read)


def truncated(log: LogCore, position: int, diverging_offset: int) -> LogTruncated:
    """The error of a reader at this position."""
    return LogTruncated(position, log.log_start_offset, log.log_end_offset, log.name, diverging_offset)
