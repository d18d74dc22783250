"""Checks that the name of each segment agrees with its batches.

A segment is named by the first offset that it may hold. A name above its first batch, or below the end of the segment
before it, hides records, since offsets are looked up by name. No crash causes that; a manual rename or a wrong bit in a
directory does.

  N1  the name is wrong if the first batch follows the segment before, and the second batch follows the first; else the
      batch is wrong (recovery C4), and reading it raises CorruptBatch
  N2  the caller has read the first 8 bytes of each segment. More of it, and the end of the segment before, is read only
      if they are not the name. Recovery drops these pages from the page cache like those that it scans
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from klog.disk.drop_behind import DropBehind
from klog.errors import CorruptIndex, CorruptLog
from klog.log.load.inputs import Findings, Inputs
from klog.segment import HeaderIterator, Segment, find_offset, names, scan_headers


def check_names(
    inputs: Inputs, segments: Sequence[Segment], heads: Sequence[tuple[int, int, int]], found: Findings
) -> None:
    """Raise CorruptLog under the strict policy for a segment with a wrong name; under the other note it.

    heads: the result of read_heads() for them.
    """
    before: Segment | None = None
    for segment, (_, _, head) in zip(segments, heads, strict=True):
        if not segment.size:
            continue
        first = None if head == segment.base_offset else _misnamed(inputs, before, segment)
        before = segment
        if first is None:
            continue
        text = f"the segment is named {segment.base_offset}, but its first batch begins at {first}"
        if inputs.policy == "strict":
            raise CorruptLog(
                f"{text}: records would be skipped. Nothing was changed. Rename its files to "
                f"{names.file_name(first, '.*')} and remove its .index and .timeindex; "
                f'recovery="kafka" opens the log as it is',
                path=segment.path,
                position=0,
                offset=first,
                kind="offset_order",
            )
        found.note(f"{segment.path}: {text}")


def _misnamed(inputs: Inputs, before: Segment | None, segment: Segment) -> int | None:
    """The offset by which a segment should be named, None if its name is right or the batch is wrong (N1)."""
    with inputs.files.open(segment.path) as file:
        file.advise(0, 0, os.POSIX_FADV_RANDOM)
        with DropBehind(file, 0, 0 if inputs.clean_shutdown or not inputs.config.io.scan_drop_behind else segment.size):
            headers = HeaderIterator(file, 0, segment.size)
            first, second = next(headers, None), next(headers, None)
    if first is None or first.magic < 2 or first.base_offset == segment.base_offset:
        return None
    if second is not None and second.base_offset < first.next_offset:
        return None
    end = None if before is None else end_of(inputs, before)
    goes_on = second is not None and second.base_offset == first.next_offset
    fits = (second is None and (end is None or end <= first.base_offset)) or goes_on
    too_high = first.base_offset < segment.base_offset and fits
    too_low = end is not None and segment.base_offset < end <= first.base_offset
    return first.base_offset if too_high or too_low else None


def end_of(inputs: Inputs, segment: Segment) -> int | None:
    """The offset after the last batch of a closed segment, by its headers; None without a batch."""
    position = 0
    with inputs.files.open(segment.path) as file:
        try:
            index = segment.index
            if index.entries:
                offset, at = index.entry(index.entries - 1)
                header = find_offset(file, at, segment.size, 0)
                position = at if header is not None and header.position == at and header.base_offset <= offset else 0
        except (OSError, CorruptIndex):
            pass
        finally:
            segment.close()
        scan = scan_headers(file, position, segment.size, 0)
    return scan.next_offset if scan.batches else None
