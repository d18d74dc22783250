"""A log's own high watermark: set, moved, found in the files. Under the log's lock, but for what says otherwise.

  W3  while the log is managed, `_high_watermark` is its high watermark; None: it is a single copy, and the log end is
  W4  the producer state and the listener hear of every move; of none twice

Readers without the lock look at the mark and the log end separately: the mark goes down before the end does, and up
after it. Kafka: UnifiedLog.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klog.errors import CorruptBatch
from klog.log.state import high_watermark_rules
from klog.log.state.high_watermark_rules import OffsetMetadata, OffsetSnapshot
from klog.log.state.segments import locate

if TYPE_CHECKING:
    from klog.log.log import Log
    from klog.log.view import LogView

_log = logging.getLogger("klog.log")


def metadata_of(log: LogView, offset: int) -> OffsetMetadata:
    """Where an offset is in the files: the batch that holds it, or the first one behind it. Only the offset where the
    log does not hold it. Never an exception. Any thread."""
    end = log.log_end_offset
    if log.log_start_offset <= offset <= end:
        segments = log._segments
        if offset < end:
            try:
                found = locate(segments, offset)
            except (CorruptBatch, OSError):
                found = None
            if found is not None:
                return OffsetMetadata(offset, found[0].base_offset, found[1])
        elif segments:
            return OffsetMetadata(offset, segments[-1].base_offset, segments[-1].size)
    return OffsetMetadata(offset)


def end_of(log: LogView) -> OffsetMetadata:
    """The log end, and where it is."""
    end, segments = log.log_end_offset, log._segments
    return OffsetMetadata(end, segments[-1].base_offset, segments[-1].size) if segments else OffsetMetadata(end)


def snapshot_locked(log: LogView) -> OffsetSnapshot:
    """Where the log stands."""
    return OffsetSnapshot(
        log.log_start_offset,
        end_of(log),
        positioned_locked(log),
        metadata_of(log, log.last_stable_offset),
    )


def positioned_locked(log: LogView) -> OffsetMetadata:
    """The high watermark with its place, looked up once."""
    mark = log._high_watermark
    if mark is None:
        offset = log.high_watermark
        return end_of(log) if offset == log.log_end_offset else metadata_of(log, offset)
    if mark.is_message_only:
        mark = log._high_watermark = metadata_of(log, mark.offset)
    return mark


def set_locked(log: Log, mark: OffsetMetadata) -> None:
    """The log is managed from here on, and this is its high watermark."""
    before = log.high_watermark
    log._high_watermark = mark
    moved_locked(log, before)


def moved_locked(log: Log, before: int) -> None:
    """Say that the high watermark is not `before` any more, if so."""
    now = log.high_watermark
    if now == before:
        return
    log._producers.on_high_watermark_updated(now)
    log._bell.ring()
    tell(log, now)


def tell(log: Log, offset: int) -> None:
    """The listener hears of a high watermark. The log has moved already, so what a listener raises stops nothing."""
    if log._offsets_listener is not None:
        call = log._lock.pause()  # a listener may append: the log stands where it says
        try:
            log._offsets_listener(offset)
        except Exception:
            _log.exception("event=listener_failed log=%s offset=%d", log.name, offset)
        finally:
            log._lock.resume(call)


def rolled_locked(log: Log) -> None:
    """A new segment begins at the log end. A mark there is on that one from now on: a reader that waits would take it
    for one on an older segment."""
    if log._written_end > log._log_end_offset:
        return  # in the middle of a commit: it begins behind what the commit has written
    if log._high_watermark is not None and log._high_watermark.offset >= log._log_end_offset:
        log._high_watermark = end_of(log)


def unrolled_locked(log: Log) -> None:
    """The newest segments are gone again, and with them, maybe, the one that the mark was on."""
    if log._high_watermark is not None and log._high_watermark.segment_base_offset > log._segments[-1].base_offset:
        log._high_watermark = OffsetMetadata(log._high_watermark.offset)


def update_locked(log: Log, offset: int) -> int:
    """What Log.update_high_watermark documents."""
    end = log.log_end_offset
    new = high_watermark_rules.updated(offset, log.log_start_offset, end)
    set_locked(log, end_of(log) if new == end else OffsetMetadata(new))
    return new


def increment_locked(log: Log, new: OffsetMetadata) -> int | None:
    """What Log.maybe_increment_high_watermark documents."""
    old, end = positioned_locked(log), log.log_end_offset
    if new.is_message_only:
        new = metadata_of(log, new.offset)
    if new.offset == old.offset and (new.is_message_only or old.is_message_only):
        return None  # where the log has no records there is no segment to be newer
    if not high_watermark_rules.increments(old, new, end):
        return None
    set_locked(log, new)
    return old.offset


def follow_locked(log: Log, offset: int) -> int | None:
    """What Log.maybe_update_high_watermark documents."""
    new = high_watermark_rules.followed(log.high_watermark, offset, log.log_start_offset, log.log_end_offset)
    if new is not None:
        update_locked(log, new)
    return new


def clamp_locked(log: Log, end: int) -> None:
    """The log is about to end at `end`: a managed high watermark beyond that goes back to it, before the end does."""
    if log._high_watermark is not None and log._high_watermark.offset >= end:
        set_locked(log, OffsetMetadata(end))
