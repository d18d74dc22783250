"""Which segments may go: by age, by size, below the log start. Predicates are pure; nothing above the high watermark,
and nothing but whole segments from the oldest on, ever goes.

The newest segment goes like any other once it has expired (an empty one takes its place), with one exception that Kafka
does not make: one record from far away does not decide alone. A producer that says 1970 would see its record, and all
that came without a timestamp beside it, deleted as soon as it is written. Where only one record has a timestamp, and
that is further from its append than segment.ms, the last append must be long enough ago, too.
Kafka: UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from klog.errors import ConfigUnknown, OffsetOutOfRange, PolicyViolation
from klog.log.flushing import flush_locked
from klog.log.removal import remove_locked
from klog.segment import Segment

if TYPE_CHECKING:
    from klog.log.log import Log

_log = logging.getLogger("klog.log")
Predicate = Callable[[Segment, Segment | None], bool]
"""(a segment, the one behind it or None): may it go?"""


def deletable(segments: Sequence[Segment], high_watermark: int, log_end: int, predicate: Predicate) -> list[Segment]:
    """The segments from the oldest on that a predicate gives away: up to the first that it does not, that is not wholly
    below the high watermark, or that is the empty newest one."""
    gone = []
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        bound = log_end if following is None else following.base_offset
        if bound > high_watermark or not predicate(segment, following) or (following is None and segment.size == 0):
            break
        gone.append(segment)
    return gone


def below(log_start_offset: int) -> Predicate:
    """Segments that hold nothing at or above the log start."""
    return lambda _, following: following is not None and following.base_offset <= log_start_offset


def beyond_size(size: int, retention_bytes: int) -> Predicate:
    """Segments without which a log of this size still holds retention_bytes. To be asked from the oldest on, once."""
    surplus = size - retention_bytes

    def predicate(segment: Segment, _: Segment | None) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return predicate


def expired(retention_ms: int, now_ms: int, segment_ms: int) -> Predicate:
    """Segments whose youngest record is older than retention_ms; of records without timestamps, the last append."""

    def predicate(segment: Segment, following: Segment | None) -> bool:
        youngest = segment.max_timestamp
        if youngest < 0:
            return now_ms - segment.modified_ms > retention_ms
        if now_ms - youngest <= retention_ms:
            return False
        if following is not None:
            return True
        modified = segment.modified_ms
        alone = modified - youngest > segment_ms and segment.stamped_records(2) == 1
        return not alone or now_ms - modified >= retention_ms

    return predicate


# ---- as a log does it, under its lock ------------------------------------------------------------------------------


def apply_locked(log: Log) -> int:
    """What Log.apply_retention documents."""
    config = log.config
    if not log._options.config_known:
        raise ConfigUnknown(
            f"nobody has said how long {log.name} keeps its records, and a broker's directory does not tell: give it "
            f"a configuration first, logs.alter_topic({log.topic!r}, {{...}}) or Log.open(path, config={{...}})"
        )
    count = delete_locked(log, below(log.log_start_offset), "log start")
    if "delete" not in config.cleanup_policy:
        return count
    if config.retention_bytes >= 0 and log.size >= config.retention_bytes:
        count += delete_locked(log, beyond_size(log.size, config.retention_bytes), "retention.bytes")
    if config.retention_ms >= 0:
        count += delete_locked(
            log, expired(config.retention_ms, log.clock.wall_ms(), config.segment_ms), "retention.ms"
        )
    return count


def delete_locked(log: Log, predicate: Predicate, reason: str) -> int:
    """Delete what a predicate gives away; how many segments that were. One always remains, empty if need be."""
    gone = log.deletable_segments(predicate)
    if not gone:
        return 0
    if len(gone) == len(log._segments):
        log._roll_or_undo_locked(log._log_end_offset)
    increment_log_start_locked(log, log._segments[len(gone)].base_offset, "segment_deletion")
    log._segments = log._segments[len(gone) :]
    log._finally(lambda: remove_locked(log, gone, reason))
    return len(gone)


def increment_log_start_locked(log: Log, offset: int, reason: str) -> bool:
    """What Log.maybe_increment_log_start_offset documents."""
    if offset > log.high_watermark:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.high_watermark, f"{log.name} below its high watermark")
    if offset <= log._log_start_offset:
        return False
    if offset > log._recovery_point:
        log._guard(lambda: flush_locked(log))  # S9: a log start that a crash could find beyond the log end means damage
    if offset > log._segments[-1].next_offset:  # a truncation left the end above the batches: a load must find that end
        log._roll_or_undo_locked(log._log_end_offset)
    _log.info("event=log_start log=%s offset=%d reason=%s", log.name, offset, reason)
    log._log_start_offset = offset
    log._epochs.truncate_from_start(offset)
    log._producers.on_log_start_offset_incremented(offset)
    return True


def delete_records_locked(log: Log, before: int) -> int:
    """What Log.delete_records documents."""
    if "delete" not in log.config.cleanup_policy:
        raise PolicyViolation(f"{log.name} has cleanup.policy={','.join(log.config.cleanup_policy)}, without delete")
    mark = log.high_watermark
    if before == -1:
        before = mark
    if before < 0:
        raise OffsetOutOfRange(before, log.log_start_offset, mark, f"{log.name} below its high watermark")
    increment_log_start_locked(log, before, "record_deletion")
    return log.log_start_offset
