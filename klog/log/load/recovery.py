"""Recovery: how far a log is valid, which of it may be cut, and which must not.

  C1  under "strict" only a torn tail is cut: the last batch, or pages of NULs that write-back never replaced. Valid
      batches after an invalid one raise CorruptLog before anything has changed
  C2  under "kafka" the first invalid batch ends the log; all that follows it and all later segments are removed
  C3  under "strict" nothing below the recovery point is cut, and no batch with a valid checksum
  C4  no checksum covers a base offset, so it alone never ends or moves the log: the batches after it show that it is
      invalid. A last batch beyond the range of its segment, one bit away from the expected offset, stays as it is
  C5  under "skip", of a reader, damage that "strict" refuses in the last segment is passed: the log ends after the last
      of the valid batches, and readers raise CorruptBatch at the damage

A segment with offsets that its index cannot represent is split (overflow.py). Kafka: LogLoader.recoverLog,
LogSegment.recover.
"""

from __future__ import annotations

import os

from klog.disk import exists
from klog.errors import CorruptIndex, CorruptLog
from klog.log.directory import gaps
from klog.log.load.damage import before_wrong_length
from klog.log.load.inputs import Findings, Inputs
from klog.log.load.overflow import BASE_OFFSET_BYTES, RELATIVE_OFFSET_MAX, is_flipped, overflows, split_segment
from klog.log.load.rebuild import DerivedState
from klog.log.state.segments import number_of
from klog.record import BATCH_HEADER, BATCH_PREFIX
from klog.segment import (
    Header,
    Scan,
    Segment,
    find_offset,
    has_sound_batch,
    names,
    nul_page_within,
    scan_headers,
    search_batch,
)

SECTOR = 512


def tail_position(segment: Segment) -> int:
    """Where the scan for the log end may begin: the position in the last index entry if its batch is there, else 0."""
    try:
        index = segment.index
    except (OSError, CorruptIndex):
        return 0
    if index.entries == 0:
        return 0
    offset, position = index.entry(index.entries - 1)
    header = find_offset(segment.file, position, segment.size, 0)
    return position if header is not None and header.position == position and header.last_offset == offset else 0


def last_headers(segment: Segment, floor: int) -> tuple[Scan, int]:
    """Scan the headers from the last index entry to the end; offsets must not fall below `floor`. Returns the scan and
    the position where it began."""
    position = tail_position(segment)
    scan = scan_headers(segment.file, position, segment.size, floor, segment.base_offset)
    if scan.reason == "offset_order":  # only a scan from the start shows which offset is invalid
        position = 0
        scan = scan_headers(segment.file, position, segment.size, floor, segment.base_offset)
    return scan, position


def recover(inputs: Inputs, segments: list[Segment], found: Findings, derived: DerivedState) -> list[Segment]:
    """Check every segment from the one with the recovery point on. Returns the segments that remain."""
    at = number_of(segments, inputs.recovery_point)
    derived.begin(segments, at, max(inputs.log_start_offset, segments[0].base_offset))
    done, waiting, made = segments[:at], segments[at:][::-1], set[Segment]()
    left = inputs.segments_left or (lambda _: None)
    left(len(waiting))
    while waiting:
        segment = waiting.pop()
        if done and inputs.check_gaps and inputs.policy == "strict" and segment not in made:
            _refuse_gap(inputs, done[-1], segment)
        scan = _check(inputs, segment, waiting[-1] if waiting else None, found)
        if scan.end != (size := os.stat(segment.path).st_size):
            later, waiting = waiting[::-1], []
            _refuse_durable(inputs, segment, scan)
            allow_cut(inputs, segment, scan, size, later)
            found.bytes_truncated += size - scan.end + sum(other.size for other in later)
            found.note(cut_text(segment, scan, size, later))
            # Delete before the cut: once the cut is on disk, nothing shows that the later segments are invalid.
            found.to_unlink += delete_segments(inputs, later)
            segment.cut(scan.end)
        elif not waiting:
            _refuse_other_end(inputs, segment, scan)
        if overflows(segment, scan) and not is_flipped(segment):
            parts = split_segment(inputs, segment, done[-1] if done else None)
            found.note(f"{segment.path}: split at {', '.join(str(part.base_offset) for part in parts)}")
            waiting += parts[::-1]  # their indexes are built when they are checked
            made.update(parts)
            continue
        derived.apply(segment, scan)
        done.append(segment)
        left(len(waiting))
    return done


def _check(inputs: Inputs, segment: Segment, after: Segment | None, found: Findings) -> Scan:
    """Check every byte of a segment and rebuild its indexes. Raises CorruptLog for what the policy does not allow."""
    found.segments_scanned += 1
    found.bytes_scanned += segment.size
    # The newest segment is read next, so it stays in the page cache.
    drop_behind = after is not None and inputs.config.io.scan_drop_behind
    following = None if after is None else after.base_offset
    scan = segment.recover(following=following, drop_behind=drop_behind)
    if scan.reason == "offset_order" and scan.end == 0:
        _refuse_name(segment)
    refuse_far_end(inputs, segment, scan)
    report_invalid(segment, scan, found, refuse=inputs.policy == "strict")
    return scan


def _refuse_name(segment: Segment) -> None:
    """Raise CorruptLog for a first batch below the base offset, under any policy: a broker's load fails there, too."""
    first = int.from_bytes(bytes(segment.file.read(0, BASE_OFFSET_BYTES)))
    raise CorruptLog(
        f"the first batch begins at offset {first}, below the base offset in the name of its segment. Nothing was "
        f"changed. Rename the files of the segment if the name is wrong; `klog verify` lists the damage",
        path=segment.path,
        position=0,
        offset=segment.base_offset,
        kind="offset_order",
    )


def _refuse_gap(inputs: Inputs, before: Segment, after: Segment) -> None:
    gap = before.next_offset, after.base_offset
    if gap[0] >= gap[1] or not after.size or gap[1] <= inputs.cleaned_to:
        return
    if gap not in gaps.read(inputs.directory):
        raise CorruptLog(
            f"records {before.next_offset} to {after.base_offset - 1} are missing between two segments: restore "
            f'{before.path}, or open with recovery="kafka" to continue without them',
            path=after.path,
            position=0,
            offset=before.next_offset,
            kind="gap",
        )


def allow_cut(
    inputs: Inputs,
    segment: Segment,
    scan: Scan,
    size: int,
    later: list[Segment],
    way_out: str = 'recovery="kafka" cuts the log here as a broker would',
) -> None:
    """Raise CorruptLog under the strict policy unless the cut removes only a torn tail or unfinished write-back."""
    if inputs.policy == "kafka":
        return
    file, unsynced = segment.file, not inputs.clean_shutdown  # a clean shutdown has synced everything
    if unsynced and _not_written(bytes(file.read(scan.end, BATCH_HEADER)), scan.end, scan.next_offset):
        return  # only the file length and a later write reached the disk
    if scan.reason == "offset_order" and not _repeats(segment, scan.end, size):
        raise CorruptLog(
            f"a whole batch begins at or below offset {scan.next_offset - 1}, where the batch before it ends. Nothing "
            f"was changed. `klog verify` lists the damage; {way_out}",
            path=segment.path,
            position=scan.end,
            offset=max(scan.next_offset, segment.base_offset),
            kind="offset_order",
        )
    if scan.reason != "offset_order" and has_sound_batch(segment.file, scan.end, size):
        raise CorruptLog(
            f"a whole batch has a valid checksum and an invalid header ({scan.reason}), which no crash causes. "
            f"Nothing was changed. `klog verify` lists the damage; {way_out}",
            path=segment.path,
            position=scan.end,
            offset=max(scan.next_offset, segment.base_offset),
        )
    after: Header | None = search_batch(file, scan.end, size, segment.base_offset, scan.next_offset)
    if unsynced and nul_page_within(file, scan.end, size if after is None else after.position) != -1:
        return  # zeros in the values of the valid batches after it do not count
    where = "" if after is None else f"a valid batch of offset {after.base_offset} at byte {after.position}"
    if after is None:
        for other in later:
            header = find_offset(other.file, 0, other.size, other.base_offset)
            if header is not None:
                where = f"{other.path} holds batches from offset {header.base_offset} on"
                break
        else:
            return
    raise CorruptLog(
        f"an invalid batch ({scan.reason}) with valid ones after it: {where}. Nothing was changed. `klog verify` lists "
        f"the damage; {way_out}",
        path=segment.path,
        position=scan.end,
        offset=max(scan.next_offset, segment.base_offset),
        kind="crc" if scan.reason == "crc" else "length",
    )


def _not_written(header: bytes, position: int, due: int) -> bool:
    """Did write-back never write the bytes that begin here?

    If the header crosses a sector boundary, the second sector may have been written. Then the zeros of the first must
    cover the length, or the non-zero bytes of the expected offset `due`, which no checksum covers.
    """
    first = header[: SECTOR - position % SECTOR]
    short = len(first) < BATCH_PREFIX and not due.to_bytes(BASE_OFFSET_BYTES)[: len(first)].strip(b"\0")
    return not (header if short else first).strip(b"\0")


def _refuse_durable(inputs: Inputs, segment: Segment, scan: Scan) -> None:
    """Raise CorruptLog under the strict policy if the invalid batch is below the recovery point.

    It was on disk, so no crash explains it. A torn batch after a gap has a base offset beyond the recovery point. Other
    bytes rarely look like an offset of this segment.
    """
    if inputs.policy == "kafka" or max(scan.next_offset, segment.base_offset) >= inputs.recovery_point:
        return
    torn = int.from_bytes(bytes(segment.file.read(scan.end, BASE_OFFSET_BYTES)))
    if inputs.recovery_point <= torn <= segment.base_offset + RELATIVE_OFFSET_MAX:
        return
    raise CorruptLog(
        f"{_WHAT[scan.reason]} below the recovery point {inputs.recovery_point}: its records were on disk. Nothing "
        f'was changed. Restore the file from a copy; recovery="kafka" cuts the log here as a broker would',
        path=segment.path,
        position=scan.end,
        offset=max(scan.next_offset, segment.base_offset),
        kind=scan.reason if scan.reason in ("crc", "offset_order") else "length",
    )


def _refuse_short_batch(inputs: Inputs, segment: Segment, scan: Scan) -> None:
    """Raise CorruptLog under the strict policy if the batch before the invalid one fails its checksum.

    A clean load has read only its header. Its length may be wrong, and the bytes after it a part of it.
    """
    last = find_offset(segment.file, scan.last_at, scan.end, -1) if scan.batches else None
    if (
        inputs.policy == "kafka"
        or last is None
        or last.magic < 2
        or has_sound_batch(segment.file, scan.last_at, scan.end)
    ):
        return
    raise CorruptLog(
        f"{_WHAT[scan.reason]} at byte {scan.end}, after a batch with an invalid checksum. Nothing was changed. `klog "
        f'verify` lists the damage; recovery="kafka" cuts the log after that batch',
        path=segment.path,
        position=scan.last_at,
        offset=max(scan.next_offset - 1, segment.base_offset),
        kind="crc",
    )


def _refuse_other_end(inputs: Inputs, segment: Segment, scan: Scan) -> None:
    """Raise CorruptLog under the strict policy if an invalid last batch makes log end and recovery point disagree.

    After a clean shutdown they are equal, if there is a recovery point. After a crash the log may end beyond it, but no
    batch begins below it and ends above it. The last batch is invalid if its checksum is, or if its base offset is one
    bit away from the expected one.
    """
    point, end = inputs.recovery_point, scan.next_offset
    if inputs.policy == "kafka" or point in (0, end):
        return
    last = find_offset(segment.file, scan.last_at, scan.end, -1)
    if last is None or last.magic < 2:
        return
    whole = scan_headers(segment.file, 0, scan.end, segment.base_offset)
    due = whole.unmoved - last.last_offset_delta - 1
    moved = due < point < end and (last.base_offset ^ due).bit_count() == 1
    if not moved and (not inputs.clean_shutdown or has_sound_batch(segment.file, scan.last_at, scan.end)):
        return
    raise CorruptLog(
        f"the last batch ends the log at {end}, which contradicts the recovery point {point}. Nothing was changed. "
        f'`klog verify` lists the damage; recovery="kafka" opens the log as it is',
        path=segment.path,
        position=scan.last_at,
        offset=last.base_offset,
        kind="offset_order" if moved else "crc",
    )


def _repeats(segment: Segment, position: int, end: int) -> bool:
    """Does the segment have the same batch before this position? Then a cut loses nothing."""
    again = find_offset(segment.file, position, end, -1)
    if again is None:
        return True  # there is no whole batch
    first = find_offset(segment.file, 0, position, again.last_offset)
    if first is None or first.size != again.size:
        return False
    return bytes(segment.file.read(first.position, first.size)) == bytes(segment.file.read(position, again.size))


_WHAT = {
    "truncated": "a truncated batch",
    "length": "a batch with an invalid length",
    "crc": "a batch with an invalid checksum",
    "magic": "a batch with an unknown magic",
    "offset_order": "a batch with decreasing offsets",
}


def cut_text(segment: Segment, scan: Scan, size: int, later: list[Segment], fate: str = "cut") -> str:
    text = (
        f"{segment.path}: {_WHAT[scan.reason]} at byte {scan.end}, {size - scan.end} bytes {fate}, "
        f"log ends at {scan.next_offset}"
    )
    return text + (f", {len(later)} later segments deleted" if later else "")


def passed_text(segment: Segment, scan: Scan, following: Header) -> str:
    return (
        f"{segment.path}: {_WHAT[scan.reason]} at byte {scan.end}, "
        f"the log goes on at offset {following.base_offset}, byte {following.position}"
    )


def find_end(inputs: Inputs, segment: Segment, found: Findings) -> None:
    """Find the end of the last segment after a clean shutdown by its headers, and cut an invalid tail."""
    size = segment.size
    scan, position = last_headers(segment, segment.base_offset if inputs.policy == "strict" else 0)
    misled = before_wrong_length(segment, scan, position) if scan.reason else None
    valid = misled or scan  # the former has valid batches after it: refused
    refuse_far_end(inputs, segment, valid)
    report_invalid(segment, scan, found, refuse=False)
    if scan.reason:
        _refuse_durable(inputs, segment, valid)
        _refuse_short_batch(inputs, segment, valid)
        allow_cut(inputs, segment, valid, size, [])
        found.bytes_truncated += size - scan.end
        found.note(cut_text(segment, scan, size, []))
        segment.cut(scan.end)
    else:
        _refuse_other_end(inputs, segment, scan)
    segment.learn_tail(scan)
    segment.txn_index.truncate_to(segment.next_offset)
    if scan.reason or not segment.indexes_settled:
        segment.settle_indexes()


def report_invalid(segment: Segment, scan: Scan, found: Findings, *, refuse: bool) -> None:
    """Report batches with an invalid base offset. They stay as they are: reading them raises CorruptBatch."""
    for position in scan.invalid:
        text = "the base offset of a batch is above those of the valid batches after it"
        if refuse:
            raise CorruptLog(
                f'{text}. Nothing was changed. `klog verify` lists the damage; recovery="kafka" opens the log as it is',
                path=segment.path,
                position=position,
                kind="offset_order",
            )
        found.note(f"{segment.path}: {text} at byte {position}, left as it is")


def refuse_far_end(inputs: Inputs, segment: Segment, scan: Scan) -> None:
    """Raise CorruptLog under the strict policy if the base offset of the last batch is out of range by a wrong bit.

    No batch after it shows that it is invalid. But only segments that are split have offsets that their index cannot
    represent. A log that continued from there would have a gap of 2^31 offsets or more.
    """
    if inputs.policy != "kafka" and overflows(segment, scan) and is_flipped(segment):
        raise CorruptLog(
            f"the last batch ends at offset {scan.next_offset - 1}, beyond the range of a segment with base offset "
            f"{segment.base_offset}: one bit of its base offset is wrong. Nothing was changed. `klog repair` restores "
            f'it; recovery="kafka" opens the log as it is',
            path=segment.path,
            position=scan.last_at,
            offset=scan.next_offset - 1,
            kind="offset_order",
        )


def delete_segments(inputs: Inputs, segments: list[Segment]) -> list[str]:
    """Rename segments and their snapshots durably to .deleted. Returns the names, which the caller unlinks later."""
    to_unlink = []
    for segment in segments:
        segment.close()
        for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT):
            path = names.file_path(inputs.directory, segment.base_offset, suffix)
            if exists(path):
                inputs.files.rename(path, path + names.DELETED)
                to_unlink.append(os.path.basename(path) + names.DELETED)
    if segments:
        inputs.files.fsync_dir(inputs.directory)
    return to_unlink
