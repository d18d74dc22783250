"""A closed segment whose survivors lie further from its base than its index can name: it is split, then cleaned.

Cleaners of old Kafkas made such segments, and a load after a clean stop leaves them as they are. What replaces the one:

    A.log.cleaned, B.log.cleaned     the parts, whole batches as they are, synced
    ...                              the swap of any cleaning: klog.cleaner.swap

Indexes and transaction index of the parts are built by whoever asks for them first. A segment whose very first batch is
out of its reach gets that batch's base as its name, which is one rename, and is looked at again.
Kafka: Cleaner.cleanSegments, UnifiedLog.splitOverflowedSegment.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from klog.cleaner.swap import check_unchanged, home_of_cleaned, publish_locked, replace_all_locked, write_cleaned
from klog.errors import CorruptBatch, KlogError
from klog.log.load.loader import new_segment
from klog.log.load.overflow import Part, is_flipped, plan, write_parts
from klog.log.retain.cleaning_state import Overtaken
from klog.segment import Segment

if TYPE_CHECKING:
    from klog.log import Log

_log = logging.getLogger("klog.cleaner")


class Overflowed(KlogError):
    """What stays of a segment has no room in one."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.path} has batches further from its base offset than a segment reaches")
        self.segment = segment


class SplitFirst(Overtaken):
    """A segment had to be split: the cleaning begins again, with one step done."""


def split_overflowed(log: Log, segment: Segment) -> None:
    """Put segments that reach all their batches in its place; durable when it returns.

    Overtaken where the log has changed meanwhile, CorruptBatch where the far offset is one wrong bit, OSError: the log
    is as it was, or, behind the first rename of the swap, offline.
    """
    size = segment.size
    if is_flipped(segment):
        raise CorruptBatch(
            "the last batch ends beyond what its segment can hold, and is one bit away from where it should stand",
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


def _split(log: Log, segment: Segment, size: int, parts: list[Part]) -> None:
    home, now = home_of_cleaned(log), log.clock.wall_ms()
    cleaned = [Segment(home, part.base_offset, now) for part in parts]

    def write() -> None:
        for made in cleaned:
            made.delete_files()  # what could not be unlinked of the cleaning that led here
        write_parts(log._inputs(), segment, parts)
        for made, part in zip(cleaned, parts, strict=True):
            made.size = part.end - part.position
        with log._lock:
            log._check_writable()
            replace_all_locked(log, cleaned, [segment], [size])

    write_cleaned(log, cleaned, write)


def _rename(log: Log, segment: Segment, size: int, base_offset: int) -> None:
    """What its indexes say is relative to the old base, and goes first: they are caches."""
    files = log._options.files
    with log._lock:
        log._check_writable()
        at = check_unchanged(log, os.path.dirname(segment.path), [segment], [size])
        live = new_segment(log._inputs(), base_offset, writable=True)
        live.size, live.next_offset = size, segment.next_offset

        def rename() -> list[str]:
            with log._home_of_deleted().opening:  # who looks for a file of it meanwhile finds it behind this
                path, *caches = segment.paths
                segment.close()
                for cache in caches:
                    files.unlink(cache)
                files.rename(path, live.path)
                snapshot = log._producers.remove_and_mark_for_deletion(segment.base_offset)
            files.fsync_dir(log.path)
            return [] if snapshot is None else [os.path.basename(snapshot)]

        publish_locked(log, at, 1, [live], rename)
