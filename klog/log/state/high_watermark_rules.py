"""Rules of the high watermark: all replicas have every record below it. No state; a log keeps that.

  W1  log start <= high watermark <= log end, whatever value is requested
  W2  an offset alone is enough to set it; its position is looked up on demand

A log without replicas is a *single copy*: its high watermark is its log end. Setting the high watermark makes the log
*managed*: from then on it moves only by a call. Kafka: LogOffsetMetadata, UnifiedLog.
"""

from __future__ import annotations

from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """An offset, the base offset of its segment, and its position there. Both are -1 until they are looked up.

    Kafka: LogOffsetMetadata.
    """

    offset: int
    segment_base_offset: int = -1
    position: int = -1

    @property
    def is_message_only(self) -> bool:
        """Is only the offset known?"""
        return self.segment_base_offset == -1 and self.position == -1

    def _check_positioned(self, that: OffsetMetadata) -> None:
        if self.is_message_only or that.is_message_only:
            raise ValueError(f"{self} and {that} cannot be compared: one of them has no position")

    def on_older_segment(self, that: OffsetMetadata) -> bool:
        """Is this one on an older segment than that one? ValueError if either segment is unknown."""
        self._check_positioned(that)
        return self.segment_base_offset < that.segment_base_offset

    def bytes_until(self, that: OffsetMetadata) -> int | None:
        """The bytes from here up to that one, 0 if it is before this one. None if it is on a newer segment, or if
        either position is unknown. Kafka: positionDiff."""
        if self.is_message_only or that.is_message_only or self.on_older_segment(that):
            return None
        return max(0, that.position - self.position) if self.segment_base_offset == that.segment_base_offset else 0


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """The offsets of a log, all of one moment. Kafka: LogOffsetSnapshot."""

    log_start_offset: int
    log_end_offset: OffsetMetadata
    high_watermark: OffsetMetadata
    last_stable_offset: OffsetMetadata


def initial(checkpoint: int | None, start: int, end: int) -> int:
    """The high watermark after a load: the checkpoint's (None: there is none), limited to the log."""
    return min(max(checkpoint or 0, start), end)


def updated(offset: int, start: int, end: int) -> int:
    """The value that an update to `offset` sets. ValueError for a negative one."""
    if offset < 0:
        raise ValueError(f"high watermark {offset} is negative")
    return min(max(offset, start), end)


def increments(old: OffsetMetadata, new: OffsetMetadata, end: int) -> bool:
    """May a leader move from old to new? Also to the same offset, if a roll has put it on a newer segment.

    ValueError for one beyond the log end.
    """
    if new.offset > end:
        raise ValueError(f"high watermark {new.offset} is beyond the log end {end}")
    return old.offset < new.offset or (old.offset == new.offset and old.on_older_segment(new))


def followed(old: int, offset: int, start: int, end: int) -> int | None:
    """The value that a follower sets when its leader reports `offset`; None if that changes nothing."""
    new = updated(offset, start, end)
    return None if new == old else new
