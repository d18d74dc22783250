"""The high watermark of one log: set it, move it, find its position. Under the log's lock unless stated otherwise.

  W3  HighWatermark.metadata is the high watermark of a managed log. None: the log is a single copy, and its high
      watermark is the log end
  W4  the producer state and the listener are notified of every move, and of each move once

Readers without the lock read the high watermark and the log end separately. So the high watermark moves down before
the log end does, and up after it. Kafka: UnifiedLog.
"""

from __future__ import annotations

from klog.errors import CorruptBatch
from klog.log.state import high_watermark_rules
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.segments import locate
from klog.logger import logger_of

_log = logger_of("log")


def metadata_of(log: LogCore, offset: int) -> OffsetMetadata:
    """The position of an offset: that of the batch that holds it, or of the first batch after it.

    Returns only the offset if the log does not hold it or cannot be read. Never raises. Any thread.
    """
    end = log.log_end_offset
    if log.log_start_offset <= offset <= end:
        segments = log.segments
        if offset < end or (log.is_snapshot and segments and offset < segments[-1].next_offset):
            try:
                found = locate(segments, offset)
            except (CorruptBatch, OSError):
                found = None
            if found is not None:
                return OffsetMetadata(offset, found[0].base_offset, found[1])
        elif segments:
            return OffsetMetadata(offset, segments[-1].base_offset, segments[-1].size)
    return OffsetMetadata(offset)


def end_of(log: LogCore) -> OffsetMetadata:
    """The log end offset and its position."""
    end, segments = log.log_end_offset, log.segments
    if log.is_snapshot and segments and end < segments[-1].next_offset:
        return metadata_of(log, end)
    return OffsetMetadata(end, segments[-1].base_offset, segments[-1].size) if segments else OffsetMetadata(end)


def positioned_locked(log: LogCore) -> OffsetMetadata:
    """The high watermark with its position. The position is looked up once and kept."""
    known = log.watermark.metadata
    if known is None:
        offset = log.high_watermark
        return end_of(log) if offset == log.log_end_offset else metadata_of(log, offset)
    if known.is_message_only:
        known = metadata_of(log, known.offset)
        log.watermark.set(known)
    return known


def set_locked(log: LogCore, new: OffsetMetadata) -> None:
    """Set the high watermark. From here on the log is managed."""
    before = log.high_watermark
    log.watermark.set(new)
    moved_locked(log, before)


def moved_locked(log: LogCore, before: int) -> None:
    """Notify the producer state, the readers and the listener if the high watermark is no longer `before`."""
    now = log.high_watermark
    if now == before:
        return
    log.producers.on_high_watermark_updated(now)
    log.notifier.notify()
    notify_listener(log, now)


def notify_listener(log: LogCore, offset: int) -> None:
    """Call the listener with a new high watermark. The log has moved already, so an exception is only logged."""
    listener = log.watermark.listener
    if listener is not None:
        call = log.lock.pause()  # a listener may append: the log already ends at the offset it is given
        try:
            listener(offset)
        except Exception:
            _log.exception("event=listener_failed log=%s offset=%d", log.name, offset)
        finally:
            log.lock.resume(call)


def rolled_locked(log: LogCore) -> None:
    """Move a high watermark at the log end onto the new segment that begins there.

    Otherwise a waiting reader would take it for a position on an older segment.
    """
    if log.written_end > log.log_end_offset:
        return  # inside a commit the new segment begins after the bytes that the commit has written
    if log.watermark.metadata is not None and log.watermark.metadata.offset >= log.log_end_offset:
        log.watermark.set(end_of(log))


def unrolled_locked(log: LogCore) -> None:
    """Forget the position of the high watermark if it was on a segment that the undo removed."""
    if log.watermark.metadata is not None and log.watermark.metadata.segment_base_offset > log.segments[-1].base_offset:
        log.watermark.set(OffsetMetadata(log.watermark.metadata.offset))


def update_locked(log: LogCore, offset: int) -> int:
    """Set the high watermark to an offset within the log. Returns the offset that was set."""
    end = log.log_end_offset
    new = high_watermark_rules.updated(offset, log.log_start_offset, end)
    set_locked(log, end_of(log) if new == end else OffsetMetadata(new))
    return new


def increment_locked(log: LogCore, new: OffsetMetadata) -> int | None:
    """Raise the high watermark. Returns the old offset, None if it did not move."""
    old, end = positioned_locked(log), log.log_end_offset
    if new.is_message_only:
        new = metadata_of(log, new.offset)
    if new.offset == old.offset and (new.is_message_only or old.is_message_only):
        return None  # without positions neither can be on a newer segment
    if not high_watermark_rules.increments(old, new, end):
        return None
    set_locked(log, new)
    return old.offset


def follow_locked(log: LogCore, offset: int) -> int | None:
    """Move the high watermark of a follower. Returns the new offset, None if it did not move."""
    new = high_watermark_rules.followed(log.high_watermark, offset, log.log_start_offset, log.log_end_offset)
    if new is not None:
        update_locked(log, new)
    return new


def clamp_locked(log: LogCore, end: int) -> None:
    """Lower a managed high watermark to `end`. The caller lowers the log end, and notifies the listener at last."""
    if log.watermark.metadata is not None and log.watermark.metadata.offset >= end:
        log.watermark.set(OffsetMetadata(end))
