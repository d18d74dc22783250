"""What Log.compact and Log.purge_key return."""

from __future__ import annotations

from klog.shown import short
from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """What cannot be cleaned now: `bytes` bytes from first_offset on, because of `reason`."""

    reason: str
    first_offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class WastedKey:
    """A key, and its records that a compaction drops: superseded by newer ones, or expired tombstones."""

    key: bytes
    records: int
    bytes: int  # uncompressed

    def __repr__(self) -> str:
        return f"WastedKey(key={short(self.key)}, records={self.records}, bytes={self.bytes})"


@dataclass(frozen=True, slots=True)
class CompactionStats:
    """What compacting a log has done or, for a dry run, would do.

    first_dirty_offset   where the next cleaning begins: below it each key is there once, except for later records
    bytes_*, records_*   of the whole log; markers do not count as records
    keyless              records without a key, which a compacted topic does not keep
    held                 what could not be cleaned, and why
    wasted               of a dry run: the keys whose records waste most bytes, in descending order
    wasted_error         by how many bytes each of these numbers may be too low, if there were too many keys to count
                         them all; 0: they are exact
    """

    first_dirty_offset: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    seconds: float
    rounds: int = 0
    keyless: int = 0
    held: tuple[Held, ...] = ()
    wasted: tuple[WastedKey, ...] = ()
    wasted_error: int = 0


@dataclass(frozen=True, slots=True)
class PurgeStats:
    """What purging a key from a log has done or, for a dry run, would do.

    records_removed      records of the key that were removed
    records_left         those that could not be removed, from offset left_from on (-1: there are none)
    bytes_*              of the whole log
    first_offset, last_offset      of the removed records, -1 if there are none
    segments_rewritten   segments that had the key
    leftovers            files that still hold the old bytes, because they could not be unlinked
    """

    records_removed: int
    records_left: int
    left_from: int
    bytes_before: int
    bytes_after: int
    segments_rewritten: int
    first_offset: int
    last_offset: int
    seconds: float
    leftovers: tuple[str, ...] = ()
