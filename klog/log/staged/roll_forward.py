"""Applies a part of a manifest to one log, from wherever an earlier attempt has stopped.

  A1  the log end shows how far it got: at base_offset nothing is applied, at next_offset everything is
  A2  what the log already holds of these offsets must be the staged batches, byte for byte; else another writer has
      been here, and nothing is appended (UnexplainedLogEnd). A log end below base_offset is the same
  A3  a part whose log was compacted or deleted from since is applied: a writer that does so has applied it before
  A4  batches have the leader epoch that the log has at base_offset, whatever a later writer went on with: that of the
      leader if nothing is applied
  A5  a start checks all logs of a commit, and the checksums of its files, before it appends to the first
  A6  a large file is not copied: it gets its offsets in place, is fsynced, and becomes a segment by a rename. A start
      that does not find it looks for that segment, which must have the file's checksum. One that finds it with some of
      its offsets does not care which: they are set again

Under no lock: the caller is the only writer of the log.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from klog.disk import LogFile
from klog.errors import CorruptBatch, UnexplainedLogEnd
from klog.log.read.chunks import chunks
from klog.log.retain.retention import increment_log_start
from klog.log.staged import layout
from klog.log.staged.manifest import AssignedFile, Manifest, Part
from klog.log.state._log_core import LogCore
from klog.log.write._append import append_batches
from klog.log.write.adopt import adopt
from klog.log.write.flush import flush
from klog.log.write.roll import roll
from klog.record import BATCH_PREFIX, renumber
from klog.segment import TIME_ENTRY, HeaderIterator, names
from klog.values import NamedTuple

PIECE_BYTES = 1 << 20  # of staged batches at a time; one batch may be larger
SEGMENT_BYTES = 32 << 20  # A6: from here on, or from half of segment.bytes on
_PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch


class _Piece(NamedTuple):
    """Whole batches with their final offsets."""

    batches: memoryview
    base_offset: int
    next_offset: int


def check(log: LogCore, manifest: Manifest) -> None:
    """Raise what roll_forward would raise, and append nothing."""
    part = manifest.part(log.topic, log.partition)
    if part is not None and manifest.state == "committed":
        for _ in _missing(log, manifest, part):
            pass


def roll_forward(log: LogCore, manifest: Manifest) -> None:
    """Bring a log to where the manifest says, durably. Does nothing if it has no part in it.

    Raises UnexplainedLogEnd, CorruptBatch for a staged file that has changed, OSError.
    """
    part = manifest.part(log.topic, log.partition)
    if part is None:
        return
    if manifest.state == "committed":
        _append(log, manifest, part)
        flush(log, None)
    elif part.overwrite:
        increment_log_start(log, part.base_offset, "overwrite")


def _append(log: LogCore, manifest: Manifest, part: Part) -> None:
    if part.overwrite and log.log_end_offset == part.base_offset and log.segments[-1].size:
        roll(log, 0)  # so that whole files hold what will be deleted
    epoch = _epoch(log, part)
    for file in part.files:
        path = _path(log, manifest, file)
        if log.log_end_offset == file.base_offset and _is_segment(log, part, file):
            _number(log, path, file, epoch)
            adopt(log, path, epoch)
        else:
            for batches in _missing_of(log, manifest, part, file):
                append_batches(log, batches, "replication", None)


def _path(log: LogCore, manifest: Manifest, file: AssignedFile) -> str:
    return os.path.join(log.path, layout.STAGING + manifest.token, file.name)


def _epoch(log: LogCore, part: Part) -> int:
    """A4."""
    known = None if log.log_end_offset <= part.base_offset else log.epochs.epoch_for_offset(part.base_offset)
    return log.epochs.current if known is None else known


def _is_segment(log: LogCore, part: Part, file: AssignedFile) -> bool:
    """A6: is a file large enough to be a segment, and may a segment be so large?"""
    config = log.config
    size_max = min(config.segment_size, config.segment_index_bytes // TIME_ENTRY * config.index_interval_bytes)
    return part.append_time < 0 and min(config.segment_size // 2, SEGMENT_BYTES) <= file.bytes <= size_max


def _number(log: LogCore, path: str, assigned: AssignedFile, epoch: int) -> None:
    """Set offsets and leader epoch in a staged file, which was compared with the manifest. Durable when it returns."""
    files = log.options.files
    with files.open(path, write=True) as file:
        base_offset = assigned.base_offset
        for header in HeaderIterator(file, 0, assigned.bytes):
            file.write(_PREFIX.pack(base_offset, header.size - BATCH_PREFIX, epoch), header.position)
            base_offset += header.last_offset_delta + 1
        files.fsync(file)


def _missing(log: LogCore, manifest: Manifest, part: Part) -> Iterator[memoryview]:
    for file in part.files:
        yield from _missing_of(log, manifest, part, file)


def _missing_of(log: LogCore, manifest: Manifest, part: Part, file: AssignedFile) -> Iterator[memoryview]:
    """The batches of a file that the log does not hold yet, after a comparison of those that it holds."""
    end = log.log_end_offset
    if end < part.base_offset:
        raise _unexplained(log, manifest, part)
    if end >= part.next_offset and (log.config.compacts or log.log_start_offset > part.base_offset):
        return
    for piece in _pieces(log, manifest, part, file):
        batches, start = piece.batches, piece.base_offset
        if start < end:
            held = _held(log, start, min(end, piece.next_offset))[: len(batches)]
            if held != batches[: len(held)]:
                raise _unexplained(log, manifest, part)
            batches = batches[len(held) :]
        if batches:
            yield batches


def _held(log: LogCore, start: int, stop: int) -> bytes:
    """The stored batches of [start, stop), and maybe more after them."""
    return b"".join(memoryview(chunk.buffer) for chunk in chunks(log, start, stop, "log_end", PIECE_BYTES, False))


def _pieces(log: LogCore, manifest: Manifest, part: Part, file: AssignedFile) -> Iterator[_Piece]:
    """The batches of a file, from where it is: staged, or a segment already (A6)."""
    path = _path(log, manifest, file)
    files = log.options.files
    try:
        staged = files.open(path)
    except FileNotFoundError as error:
        if log.log_end_offset < file.base_offset + file.records:
            raise UnexplainedLogEnd(
                f"{log.name} ends at {log.log_end_offset}; the commit {manifest.token} appends the records from "
                f"{part.base_offset} to {part.next_offset - 1}, and its staged file {path} is gone: restore it"
            ) from error
        if part.append_time >= 0:
            return
        try:
            segment = files.open(names.file_path(log.path, file.base_offset, names.LOG))
        except FileNotFoundError:
            return
        try:
            yield from _pieces_of(log, segment, file, _epoch(log, part), -1)
        except CorruptBatch:
            raise _unexplained(log, manifest, part) from None
    else:
        yield from _pieces_of(log, staged, file, _epoch(log, part), part.append_time)


def _pieces_of(log: LogCore, file: LogFile, assigned: AssignedFile, epoch: int, append_time: int) -> Iterator[_Piece]:
    """The batches of an open file, which is closed."""
    bytes_max = min(PIECE_BYTES, log.config.segment_size)
    try:
        at, start, size, crc = 0, 0, bytes_max, 0
        while at < assigned.bytes:
            data = bytearray(file.read(at, min(size, assigned.bytes - at)))
            used, next_offset, crc = renumber(data, start, assigned.base_offset + start, epoch, append_time, crc)
            if not used:
                if len(data) < size:
                    raise CorruptBatch("a staged batch is cut short", position=at)
                size *= 2  # one batch is larger
                continue
            yield _Piece(memoryview(data)[:used], assigned.base_offset + start, next_offset)
            at, start, size = at + used, next_offset - assigned.base_offset, bytes_max
        if start != assigned.records:
            raise CorruptBatch(f"{start} records are staged, the manifest lists {assigned.records}", position=at)
        if crc != assigned.crc:
            raise CorruptBatch(
                f"the staged file has changed since it was committed: checksum {assigned.crc:08x} expected, found "
                f"{crc:08x}; restore it",
                position=0,
            )
    except CorruptBatch as error:
        raise CorruptBatch(error.reason, path=file.path, position=error.position, kind=error.kind) from None
    finally:
        file.close()


def _unexplained(log: LogCore, manifest: Manifest, part: Part) -> UnexplainedLogEnd:
    held = "" if log.log_end_offset < part.base_offset else ", and holds other records there"
    path = layout.commit_path(os.path.dirname(log.path), manifest.token)
    return UnexplainedLogEnd(
        f"{log.name} ends at {log.log_end_offset}{held}; the manifest {path} appends the offsets from "
        f"{part.base_offset} to {part.next_offset - 1}: another program has written or truncated meanwhile. No "
        "records were appended to it now. Move the manifest away to give up what it did not apply, or restore the "
        "partition"
    )
