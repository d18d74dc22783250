"""Splits a segment with offsets that its index cannot represent (base offset + 2^31 or more).

Old versions of Kafka made such segments by compacting too much into one. The split changes no batch, only the files
that hold them:

    X.log                                    the original, whole
    A.log.cleaned, B.log.cleaned             the parts, written and synced           dropped by a load: X is whole
    A.log.cleaned, B.log.swap                renamed from the highest base down      dropped by a load: X is whole
    A.log.swap, B.log.swap                   synced; from here on the parts count    finished by a load
    X.*                                      removed                                 finished by a load
    A.log, B.log                             synced

A = X unless even the first batch of X is out of range; then the file is first renamed to the base offset of that
batch. Indexes are built when the parts are opened. Kafka: LocalLog.splitOverflowedSegment, FileRecords.appendFromFile,
LocalLog.replaceSegments.
"""

from __future__ import annotations

import itertools
import os

from klog.disk import LogFile, naming_the_next_step
from klog.errors import CorruptLog
from klog.log.directory import gaps
from klog.log.load.inputs import Inputs, new_segment
from klog.log.load.segment_starts import end_of
from klog.record import decode
from klog.segment import Header, HeaderIterator, Scan, Segment, names
from klog.values import dataclass

RELATIVE_OFFSET_MAX = 2**31 - 1
BASE_OFFSET_BYTES = 8  # the first field of a batch, which no checksum covers
COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [position, end) of a segment, the future segment of base_offset."""

    base_offset: int
    position: int
    end: int


def overflows(segment: Segment, scan: Scan) -> bool:
    """Does the segment have offsets that its index cannot represent?"""
    return scan.batches > 0 and scan.next_offset - 1 - segment.base_offset > RELATIVE_OFFSET_MAX


def flipped_batch(file: LogFile, size: int, base_offset: int) -> tuple[int, int] | None:
    """Return the position of the batch that is out of range by one wrong bit, and the bit, or None.

    It is the only batch out of range, and its base offset is one bit away from the end of the batch before. No checksum
    covers the base offset. So a wrong bit is more likely than a gap of 2^31 records.
    """
    due, found = base_offset, None
    for header in HeaderIterator(file, 0, size):
        if header.last_offset - base_offset > RELATIVE_OFFSET_MAX:
            if found is not None:
                return None
            found = header.position, _base_offset(file, header) ^ due
        due = header.next_offset
    return found if found is not None and found[1].bit_count() == 1 else None


def is_flipped(segment: Segment) -> bool:
    """Is the last batch out of range by one wrong bit?"""
    return flipped_batch(segment.file, segment.size, segment.base_offset) is not None


def plan(segment: Segment) -> list[Part]:
    """The parts of a segment, each as long as its base offset allows. One part if the segment does not overflow."""
    parts: list[Part] = []
    base, start, end = segment.base_offset, 0, 0
    for header in HeaderIterator(segment.file, 0, segment.size):
        if header.last_offset - base > RELATIVE_OFFSET_MAX:
            if header.position > start:
                parts.append(Part(base, start, header.position))
            base, start = _base_offset(segment.file, header), header.position
        end = header.position + header.size
    return [*parts, Part(base, start, end)]


def copy_part(source: LogFile, position: int, end: int, base_offset: int, target: LogFile) -> int:
    """Append whole batches of source[position:end) to target, up to the first that a segment of base_offset cannot
    hold. Returns the number of bytes copied."""
    stop = position
    for header in HeaderIterator(source, position, end):
        if header.last_offset - base_offset > RELATIVE_OFFSET_MAX:
            break
        stop = header.position + header.size
    at, done = target.length(), position
    while done < stop:
        chunk = source.read(done, min(COPY_BYTES, stop - done))
        if chunk.size == 0:
            raise CorruptLog("the file was truncated while it was split", path=source.path, position=done)
        target.write(chunk, at + done - position)
        done += chunk.size
    return stop - position


def split_segment(inputs: Inputs, segment: Segment, before: Segment | None = None) -> list[Segment]:
    """Replace the segment durably by its parts. Returns them in order, without indexes. before: the segment before it.

    ValueError if it does not overflow. After an OSError the load fails; the next one finds the original or all parts.
    """
    parts = plan(segment)
    if parts[0].base_offset == segment.base_offset and len(parts) == 1:
        raise ValueError(f"{segment.path} does not overflow and cannot be split")
    segment.close()
    if parts[0].base_offset != segment.base_offset:
        segment = _rename(inputs, before, segment, parts[0].base_offset)
    if len(parts) > 1:
        _note_gaps(inputs, segment, parts)
        write_parts(inputs, segment, parts)
        _replace(inputs, segment, parts)
    following = [part.base_offset for part in (*parts[1:], parts[-1])]
    return [
        new_segment(inputs, part.base_offset, writable=True, size=part.end - part.position, next_offset=next_offset)
        for part, next_offset in zip(parts, following, strict=True)
    ]


def _base_offset(file: LogFile, header: Header) -> int:
    """The offset of a batch's first record. The header of a compressed batch of magic 0 or 1 does not have it."""
    if header.magic >= 2:
        return header.base_offset
    (batch,) = decode(file.read(header.position, header.size), path=file.path, file_position=header.position)
    return batch.base_offset


def _note_gaps(inputs: Inputs, segment: Segment, parts: list[Part]) -> None:
    """Note the gaps between the parts, so that a load does not take them for lost records."""
    found = []
    for part, following in itertools.pairwise(parts):
        for header in HeaderIterator(segment.file, part.position, part.end):
            end = header.next_offset
        found.append((end, following.base_offset))
    gaps.add(inputs.files, inputs.directory, found)
    segment.close()


def _rename(inputs: Inputs, before: Segment | None, segment: Segment, base_offset: int) -> Segment:
    """Rename the segment to another base offset. Removes its indexes, which are relative to the old one.

    A load that is repeated after a crash must take neither the new gap before it nor an index without a .log for a lost
    segment.
    """
    if before is not None:
        end = end_of(inputs, before)
        gaps.add(inputs.files, inputs.directory, [(before.base_offset if end is None else end, base_offset)])
    for suffix in names.SEGMENT_SUFFIXES[1:]:
        inputs.files.unlink(names.file_path(inputs.directory, segment.base_offset, suffix))
    inputs.files.fsync_dir(inputs.directory)
    inputs.files.rename(segment.path, names.file_path(inputs.directory, base_offset, names.LOG))
    inputs.files.fsync_dir(inputs.directory)
    return new_segment(inputs, base_offset, writable=True, size=segment.size)


def write_parts(inputs: Inputs, segment: Segment, parts: list[Part]) -> None:
    """Write the parts as synced .cleaned files with the mtime of the original, which time retention may use."""
    with inputs.files.open(segment.path) as source:
        stat = os.stat(segment.path)
        for part in parts:
            path = names.file_path(inputs.directory, part.base_offset, names.LOG) + names.CLEANED
            with inputs.files.open(path, write=True, create=True) as target:
                copied = copy_part(source, part.position, part.end, part.base_offset, target)
                if copied != part.end - part.position:
                    raise CorruptLog("the file changed while it was split", path=segment.path, position=part.position)
                inputs.files.fsync(target)
            with naming_the_next_step(path):
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _replace(inputs: Inputs, segment: Segment, parts: list[Part]) -> None:
    """Rename the parts from .cleaned to their final names, and remove the original in between."""
    files, paths = inputs.files, [names.file_path(inputs.directory, part.base_offset, names.LOG) for part in parts]
    for path in reversed(paths):
        files.rename(path + names.CLEANED, path + names.SWAP)
    files.fsync_dir(inputs.directory)  # before a file of the original is removed
    segment.close()
    for suffix in names.SEGMENT_SUFFIXES:
        files.unlink(names.file_path(inputs.directory, segment.base_offset, suffix))
    for path in paths:
        files.rename(path + names.SWAP, path)
        files.fsync_dir(inputs.directory)  # one by one: a finished part between two .swap files would count as replaced
