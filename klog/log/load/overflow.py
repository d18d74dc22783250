"""Split a segment that holds offsets which its index cannot name, base + 2^31 and more, into segments that do not.

Old Kafkas made such segments by compacting too much into one. The bytes stay as they are, only where files begin
changes:

    X.log                                    the original, whole
    A.log.cleaned, B.log.cleaned             the parts, written and synced           dropped by a load: X is whole
    A.log.cleaned, B.log.swap                renamed from the highest base down      dropped by a load: X is whole
    A.log.swap, B.log.swap                   synced; from here on the parts win      finished by a load
    X.*                                      goes                                    finished by a load
    A.log, B.log                             synced

A = X unless X's very first batch is out of its reach; then the file is given that batch's base as its name first, which
is one rename. Indexes are built by whoever opens the parts. Kafka: LocalLog.splitOverflowedSegment,
FileRecords.appendFromFile, LocalLog.replaceSegments.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

from klog.disk import LogFile
from klog.errors import CorruptLog
from klog.log.directory import gaps
from klog.log.load.inputs import Inputs, new_segment
from klog.record import decode
from klog.segment import Header, HeaderWalk, Scan, Segment, names

RELATIVE_OFFSET_MAX = 2**31 - 1
COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [position, end) of a segment, which are to be the segment of base_offset."""

    base_offset: int
    position: int
    end: int


def overflows(segment: Segment, scan: Scan) -> bool:
    """Does the segment end beyond what its index can name?"""
    return scan.batches > 0 and scan.next_offset - 1 - segment.base_offset > RELATIVE_OFFSET_MAX


def is_flipped(segment: Segment) -> bool:
    """Is what overflows the last batch alone, and its base offset, which no checksum covers, one bit away from the
    offset behind the batch before? Then it is more likely a wrong bit than a gap of two thousand million records."""
    due, beyond, flipped = segment.base_offset, 0, False
    for header in HeaderWalk(segment.file, 0, segment.size):
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            beyond += 1
            flipped = (_base_offset(segment.file, header) ^ due).bit_count() == 1
        due = header.next_offset
    return beyond == 1 and flipped


def plan(segment: Segment) -> list[Part]:
    """The parts of a segment, each as long as its base allows. Without overflow it is one part of its own base."""
    parts: list[Part] = []
    base, start, end = segment.base_offset, 0, 0
    for header in HeaderWalk(segment.file, 0, segment.size):
        if header.last_offset - base > RELATIVE_OFFSET_MAX:
            if header.position > start:
                parts.append(Part(base, start, header.position))
            base, start = _base_offset(segment.file, header), header.position
        end = header.position + header.size
    return [*parts, Part(base, start, end)]


def copy_part(source: LogFile, position: int, end: int, base_offset: int, target: LogFile) -> int:
    """Copy whole batches of source[position:end) to the end of target, up to the first that a segment of base_offset
    cannot hold; the bytes copied."""
    stop = position
    for header in HeaderWalk(source, position, end):
        if header.last_offset - base_offset > RELATIVE_OFFSET_MAX:
            break
        stop = header.position + header.size
    at, done = os.fstat(target.fileno()).st_size, position
    while done < stop:
        chunk = source.read(done, min(COPY_BYTES, stop - done))
        if chunk.size == 0:
            raise CorruptLog("the file became shorter while it was split", path=source.path, position=done)
        target.write(chunk, at + done - position)
        done += chunk.size
    return stop - position


def split_segment(inputs: Inputs, segment: Segment) -> list[Segment]:
    """Replace the segment by its parts, durably; they are returned in order, without indexes.

    ValueError: it does not overflow. OSError: the load cannot go on; the next one finds the original or all parts.
    """
    parts = plan(segment)
    if parts[0].base_offset == segment.base_offset and len(parts) == 1:
        raise ValueError(f"{segment.path} does not overflow: only a segment that does can be split")
    segment.close()
    if parts[0].base_offset != segment.base_offset:
        segment = _rename(inputs, segment, parts[0].base_offset)
    if len(parts) > 1:
        _note_gaps(inputs, segment, parts)
        write_parts(inputs, segment, parts)
        _replace(inputs, segment, parts)
    segments = [new_segment(inputs, part.base_offset, writable=True) for part in parts]
    for number, (made, part) in enumerate(zip(segments, parts, strict=True)):
        made.size = part.end - part.position
        made.next_offset = parts[number + 1].base_offset if number + 1 < len(parts) else made.base_offset
    return segments


def _base_offset(file: LogFile, header: Header) -> int:
    """The offset of a batch's first record, which the header of an old wrapper does not tell."""
    if header.magic >= 2:
        return header.base_offset
    (batch,) = decode(file.read(header.position, header.size), path=file.path, file_position=header.position)
    return batch.base_offset


def _note_gaps(inputs: Inputs, segment: Segment, parts: list[Part]) -> None:
    """The offsets between two parts are in no segment from then on, and none of them is lost."""
    for part, following in itertools.pairwise(parts):
        for header in HeaderWalk(segment.file, part.position, part.end):
            end = header.next_offset
        gaps.note(inputs.files, inputs.directory, end, following.base_offset, 0)
    segment.close()


def _rename(inputs: Inputs, segment: Segment, base_offset: int) -> Segment:
    """The segment under another base; what its indexes said was relative to the old one."""
    for suffix in names.SEGMENT_SUFFIXES[1:]:
        inputs.files.unlink(names.file_path(inputs.directory, segment.base_offset, suffix))
    inputs.files.rename(segment.path, names.file_path(inputs.directory, base_offset, names.LOG))
    inputs.files.fsync_dir(inputs.directory)
    renamed = new_segment(inputs, base_offset, writable=True)
    renamed.size = segment.size
    return renamed


def write_parts(inputs: Inputs, segment: Segment, parts: list[Part]) -> None:
    """The parts as .cleaned files, synced, as old as the original: time retention may ask for a file's age."""
    source = inputs.files.open(segment.path)
    try:
        stat = os.fstat(source.fileno())
        for part in parts:
            path = names.file_path(inputs.directory, part.base_offset, names.LOG) + names.CLEANED
            target = inputs.files.open(path, write=True, create=True)
            try:
                copied = copy_part(source, part.position, part.end, part.base_offset, target)
                if copied != part.end - part.position:
                    raise CorruptLog("the file changed while it was split", path=segment.path, position=part.position)
                inputs.files.fsync(target)
            finally:
                target.close()
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    finally:
        source.close()


def _replace(inputs: Inputs, segment: Segment, parts: list[Part]) -> None:
    """From .cleaned to live names, the original away in between."""
    files, paths = inputs.files, [names.file_path(inputs.directory, part.base_offset, names.LOG) for part in parts]
    for path in reversed(paths):
        files.rename(path + names.CLEANED, path + names.SWAP)
    files.fsync_dir(inputs.directory)  # before anything of the original goes
    segment.close()
    for suffix in names.SEGMENT_SUFFIXES:
        files.unlink(names.file_path(inputs.directory, segment.base_offset, suffix))
    for path in paths:
        files.rename(path + names.SWAP, path)
        files.fsync_dir(inputs.directory)  # one by one: a part with a .swap on either side would count as replaced
