"""Reading the headers of a damaged segment: those after the damage, and offsets that intact batches contradict.

Only the checksums of batches next to the damage, and of contradicting batches, are verified.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from klog.segment import Header, HeaderIterator, Segment, find_offset, scan_checked, scan_headers, search_batch


def notable_headers(segment: Segment, position: int = 0) -> tuple[list[Header], bool]:
    """The headers of a segment from a batch's position on, as in Scan.notable, and whether there is no damage."""
    file, end = segment.file, segment.size
    found: list[Header] = []
    whole = True
    while position < end:
        scan = scan_headers(file, position, end, 0, segment.base_offset if position == 0 else -1)
        found += scan.notable
        whole = whole and not scan.invalid
        if not scan.reason:
            break
        whole = False
        if scan.reason == "offset_order" and scan.end > position:
            position = scan.end  # a whole batch; the offset that is wrong may be an earlier one
            continue
        last = find_offset(file, scan.last_at, end, -1) if scan.batches else None
        following = _search(segment, last, scan.end)
        if following is None:
            break
        position = following.position
    return found, whole


def contradicted(segment: Segment, offsets: Iterable[int]) -> set[int]:
    """The offsets that are inside an intact batch, or outside the offsets of a segment without damage."""
    wanted = sorted(offsets)
    found: set[int] = set()
    position, end, reached = 0, segment.size, segment.base_offset
    while position < end:
        headers = HeaderIterator(segment.file, position, end)
        last: Header | None = None
        for header in headers:
            last, reached = header, max(reached, header.next_offset)
            inside = wanted[
                bisect.bisect_left(wanted, header.base_offset) : bisect.bisect_right(wanted, header.last_offset)
            ]
            if inside and _is_sound(segment, header):
                found.update(inside)
        if not headers.reason:
            break
        following = _search(segment, last, headers.position)
        if following is None:
            return found
        position = following.position
    found.update(wanted[: bisect.bisect_left(wanted, segment.base_offset)])
    found.update(wanted[bisect.bisect_left(wanted, reached) :])
    return found


def _search(segment: Segment, last: Header | None, position: int) -> Header | None:
    """The first intact batch after the damage at a position. last: the batch that the scan found before it."""
    if last is not None and not _is_sound(segment, last):
        position = last.position
    return search_batch(segment.file, position, segment.size, segment.base_offset, segment.base_offset)


def _is_sound(segment: Segment, header: Header) -> bool:
    return not scan_checked(segment.file, header.position, header.position + header.size, 0).reason
