"""Splits a closed segment with offsets too far from its base for the index; then it can be cleaned.

Cleaners of old Kafkas made such segments, and a load after a clean stop keeps them. The replacement:

    A.log.cleaned, B.log.cleaned     the parts, with unchanged batches, synced
    ...                              the swap of any cleaning: klog.cleaner.swap

Indexes and transaction index of the parts are built on first use. If the very first batch of a segment is too far from
its base, the segment is renamed to that batch's base offset, with one rename, and examined again.
Kafka: Cleaner.cleanSegments, UnifiedLog.splitOverflowedSegment.
"""

from __future__ import annotations

import os

from klog.cleaner.swap import check_unchanged, cleaned_dir, publish_locked, replace_all_locked, write_cleaned
from klog.errors import CorruptBatch, KlogError, Overtaken
from klog.log.core import LogCore
from klog.log.load.inputs import inputs_of, new_segment
from klog.log.load.overflow import Part, is_flipped, plan, write_parts
from klog.logger import logger_of
from klog.segment import Segment

_log = logger_of("cleaner")


class Overflowed(KlogError):
    """The retained records of a segment do not fit into one segment."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.path} has batches further from its base offset than a segment reaches")
        self.segment = segment


class SplitFirst(Overtaken):
    """A segment had to be split: the cleaning must begin again."""


def split_overflowed(log: LogCore, segment: Segment) -> None:
    """Replace a segment with segments that can index all their batches. Durable when it returns.

    Raises Overtaken if the log has changed meanwhile, CorruptBatch if one wrong bit explains the far offset, OSError:
    the log is unchanged or, after the first rename of the swap, offline.
    """
    size = segment.size
    if is_flipped(segment):
        raise CorruptBatch(
            "the last batch ends beyond what its segment can hold, and its offset is one bit away from a valid one: "
            "close the log, `klog repair` restores it",
            path=segment.path,
            kind="offset_order",
        )
    parts = plan(segment)
    if parts[0].base_offset != segment.base_offset:
        _rename(log, segment, size, parts[0].base_offset)
    else:
        _split(log, segment, size, parts)
    _log.warning(
        "event=segment_split log=%s base=%d parts=%s",
        log.name,
        segment.base_offset,
        ",".join(str(part.base_offset) for part in parts),
    )


def _split(log: LogCore, segment: Segment, size: int, parts: list[Part]) -> None:
    segment_dir, now = cleaned_dir(log), log.clock.wall_ms()
    cleaned = [Segment(segment_dir, part.base_offset, now, part.end - part.position) for part in parts]

    def write() -> None:
        for made in cleaned:
            made.delete_files()  # left by the cleaning that was ended for this split
        write_parts(inputs_of(log), segment, parts)
        with log.lock:
            log.check_writable()
            replace_all_locked(log, cleaned, [segment], [size])

    write_cleaned(log, cleaned, write)


def _rename(log: LogCore, segment: Segment, size: int, base_offset: int) -> None:
    """Rename a segment. Its indexes are relative to the old base and are removed first: they are caches."""
    files = log.options.files
    with log.lock:
        log.check_writable()
        at = check_unchanged(log, os.path.dirname(segment.path), [segment], [size])
        live = new_segment(inputs_of(log), base_offset, writable=True, size=size, next_offset=segment.next_offset)

        def rename() -> list[str]:
            deleted = log.directory.deleted_dir(log.options)
            with deleted.opening:  # a reader that opens one of its files meanwhile waits for this
                path, *caches = segment.paths
                segment.close()
                for cache in caches:
                    files.unlink(cache)
                files.rename(path, live.path)
                snapshot = log.producers.remove_and_mark_for_deletion(segment.base_offset)
            files.fsync_dir(log.path)
            return [] if snapshot is None else [os.path.basename(snapshot)]

        publish_locked(log, at, 1, [live], rename)
