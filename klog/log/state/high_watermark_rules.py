"""The high watermark: below it every record is known to be on all replicas. Rules without state; a log keeps the state.

  W1  log start <= high watermark <= log end, whatever is asked for
  W2  it says where its byte is only when somebody has looked: an offset alone is enough to set it

A log that nobody replicates is a *single copy*: its high watermark is its log end. Somebody who sets it makes the log
*managed*, and from then on it moves only when told. Kafka: LogOffsetMetadata, UnifiedLog.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """An offset, and where it is: the base offset of its segment, its byte there. Both -1: nobody has looked.

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
            raise ValueError(f"{self} and {that} cannot be compared: of one only the offset is known")

    def on_older_segment(self, that: OffsetMetadata) -> bool:
        """Is this one on a segment before that one's? ValueError where either segment is not known."""
        self._check_positioned(that)
        return self.segment_base_offset < that.segment_base_offset

    def on_same_segment(self, that: OffsetMetadata) -> bool:
        """Are both on one segment? ValueError where either segment is not known."""
        self._check_positioned(that)
        return self.segment_base_offset == that.segment_base_offset

    def position_diff(self, that: OffsetMetadata) -> int:
        """Bytes from that one to this one. ValueError unless both are on one segment."""
        if not self.on_same_segment(that):
            raise ValueError(f"{self} and {that} are on different segments")
        return self.position - that.position


UNKNOWN = OffsetMetadata(-1, 0, 0)


@dataclass(frozen=True, slots=True)
class OffsetSnapshot:
    """Where a log stands, all of one moment. Kafka: LogOffsetSnapshot."""

    log_start_offset: int
    log_end_offset: OffsetMetadata
    high_watermark: OffsetMetadata
    last_stable_offset: OffsetMetadata


def initial(checkpoint: int | None, start: int, end: int) -> int:
    """What a load makes of a checkpoint (None: there is none): it never trusts it beyond the log."""
    return min(max(checkpoint or 0, start), end)


def updated(offset: int, start: int, end: int) -> int:
    """What an update to `offset` sets. ValueError for a negative one."""
    if offset < 0:
        raise ValueError(f"a high watermark of {offset}: none is negative")
    return min(max(offset, start), end)


def increments(old: OffsetMetadata, new: OffsetMetadata, end: int) -> bool:
    """May a leader move on from old to new? Also to the same offset, where a roll has put it on a newer segment.

    ValueError for one beyond the log end.
    """
    if new.offset > end:
        raise ValueError(f"a high watermark of {new.offset} is beyond the log end, {end}")
    return old.offset < new.offset or (old.offset == new.offset and old.on_older_segment(new))


def followed(old: int, offset: int, start: int, end: int) -> int | None:
    """What a follower sets when its leader says `offset`; None where that changes nothing."""
    new = updated(offset, start, end)
    return None if new == old else new
