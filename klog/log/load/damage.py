"""What a segment still tells where some of its bytes are wrong: headers past the damage, and what no batch gainsays.

No checksum is looked at but those beside the damage, and those of batches that speak against something.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from klog.segment import Header, HeaderWalk, Segment, find_offset, scan_checked, scan_headers, search_batch


def notable_headers(segment: Segment) -> tuple[list[Header], bool]:
    """The headers that Scan.notable lists, of all of a segment; and whether the walk over them met no damage."""
    file, end = segment.file, segment.size
    found: list[Header] = []
    position, whole = 0, True
    while position < end:
        scan = scan_headers(file, position, end, 0, segment.base_offset if position == 0 else -1)
        found += scan.notable
        whole = whole and not scan.invalid
        if not scan.reason:
            break
        whole = False
        if scan.reason == "offset_order" and scan.end > position:
            position = scan.end  # a whole batch; a wrong offset before it may be what it goes back behind
            continue
        last = find_offset(file, scan.last_at, end, -1) if scan.batches else None
        following = _search(segment, last, scan.end)
        if following is None:
            break
        position = following.position
    return found, whole


def contradicted(segment: Segment, offsets: Iterable[int]) -> set[int]:
    """Those of the offsets that lie in a sound batch, or beyond the end of a segment without damage."""
    wanted = sorted(offsets)
    found: set[int] = set()
    position, end, reached = 0, segment.size, segment.base_offset
    while position < end:
        walk = HeaderWalk(segment.file, position, end)
        last: Header | None = None
        for header in walk:
            last, reached = header, max(reached, header.next_offset)
            inside = wanted[
                bisect.bisect_left(wanted, header.base_offset) : bisect.bisect_right(wanted, header.last_offset)
            ]
            if inside and _is_sound(segment, header):
                found.update(inside)
        if not walk.reason:
            break
        following = _search(segment, last, walk.position)
        if following is None:
            return found
        position = following.position
    found.update(wanted[: bisect.bisect_left(wanted, segment.base_offset)])
    found.update(wanted[bisect.bisect_left(wanted, reached) :])
    return found


def _search(segment: Segment, last: Header | None, position: int) -> Header | None:
    """The first sound batch past the damage at a byte. last: the batch that the walk took for the one before it."""
    if last is not None and not _is_sound(segment, last):
        position = last.position
    return search_batch(segment.file, position, segment.size, segment.base_offset, segment.base_offset)


def _is_sound(segment: Segment, header: Header) -> bool:
    return not scan_checked(segment.file, header.position, header.position + header.size, 0).reason
