"""Gaps between two segments that this log has made on purpose, kept beside them: `klog-gaps`, which Kafka ignores.

A follower takes the offsets that its leader gives, and a truncation inside a batch leaves its log end above the last
batch; a roll there leaves offsets that no segment has. Without a word about them a crash would make them look like lost
records. The file is a checkpoint of pairs, where a segment ends and where the next begins. Lost or broken it names
none.
"""

from __future__ import annotations

import os

from klog.disk import Files, read_whole
from klog.errors import CorruptCheckpoint
from klog.log.directory.checkpoint import format_lines, parse_lines
from klog.segment.names import GAPS

_DIGITS_MAX = 19


def read(directory: str) -> set[tuple[int, int]]:
    """{(end of a segment, base offset of the next one), ...}"""
    path = os.path.join(directory, GAPS)
    try:
        lines = parse_lines(read_whole(path), path, 2)
    except (FileNotFoundError, CorruptCheckpoint):
        return set()
    return {(int(end), int(base)) for end, base in lines if (end + base).isdecimal() and len(base) <= _DIGITS_MAX}


def note(files: Files, directory: str, end: int, base_offset: int, first: int) -> None:
    """Durably: the segment that ends at `end` is followed by one at base_offset. Those below `first` are forgotten."""
    kept = {gap for gap in read(directory) if first <= gap[0] and gap[1] <= end} | {(end, base_offset)}
    files.replace(os.path.join(directory, GAPS), format_lines(sorted(kept)))
