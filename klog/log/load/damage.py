"""Reading the headers of a damaged segment: those after the damage, and offsets that intact batches contradict.

Only the checksums of batches next to the damage, and of contradicting batches, are verified.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from klog.segment import Header, HeaderIterator, Scan, Segment, find_offset, scan_checked, scan_headers, search_batch


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
        following = batch_after(segment, scan)
        if following is None:
            break
        position = following.position
    return found, whole


def batch_after(segment: Segment, scan: Scan) -> Header | None:
    """The batch where a scan of headers can go on after the damage that has ended it; None if there is none."""
    last = find_offset(segment.file, scan.last_at, segment.size, -1) if scan.batches else None
    if scan.reason == "offset_order" and last is not None:
        return find_offset(segment.file, scan.end, segment.size, -1)  # a whole batch; an earlier offset may be wrong
    return _search(segment, last, scan.end)


def before_wrong_length(segment: Segment, scan: Scan, position: int) -> Scan | None:
    """The batches before one whose wrong length has led a scan of headers, from this position on, past valid batches;
    None if there is none. That batch fails its checksum, and no valid one begins where it ends."""
    due = segment.base_offset
    while position < scan.end:
        checked = scan_checked(segment.file, position, scan.end, due)
        if checked.reason != "crc":
            return None
        wrong = find_offset(segment.file, checked.end, scan.end, -1)
        following = None if wrong is None else find_offset(segment.file, wrong.position + wrong.size, scan.end, -1)
        if following is None or not _is_sound(segment, following):
            lost = search_batch(segment.file, checked.end, segment.size, segment.base_offset, checked.next_offset)
            return None if lost is None else checked
        position, due = following.position, checked.next_offset
    return None


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
