"""Applies a part of a manifest to one log, from wherever an earlier attempt has stopped.

  A1  the log end shows how far it got: at base_offset nothing is applied, at next_offset everything is
  A2  what the log already holds of these offsets must be the staged batches, byte for byte; else another writer has
      been here, and nothing is appended (UnexplainedLogEnd). A log end below base_offset is the same
  A3  a part whose log was compacted or deleted from since is applied: a writer that does so has applied it before
  A4  batches have the leader epoch that the log has at base_offset, whatever a later writer went on with
  A5  a start checks all logs of a commit, and the checksums of its files, before it appends to the first

Under no lock: the caller is the only writer of the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klog.codec import crc32c
from klog.errors import CorruptBatch, UnexplainedLogEnd
from klog.log.read.chunks import chunks
from klog.log.retain.retention import increment_log_start
from klog.log.staged import layout
from klog.log.staged.manifest import Manifest, Part, PlacedFile
from klog.log.state._log_core import LogCore
from klog.log.write._append import append_batches
from klog.log.write.flush import flush
from klog.log.write.roll import roll
from klog.record import renumber

PIECE_BYTES = 1 << 20  # of staged batches at a time; one batch may be larger


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
    for batches in _missing(log, manifest, part):
        append_batches(log, batches, "replication", None)


def _missing(log: LogCore, manifest: Manifest, part: Part) -> Iterator[memoryview]:
    """The batches that the log does not hold yet, after a comparison of those that it holds."""
    end = log.log_end_offset
    if end < part.base_offset:
        raise _unexplained(log, manifest, part)
    if end >= part.next_offset and (log.config.compacts or log.log_start_offset > part.base_offset):
        return
    for piece in _pieces(log, manifest, part):
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


def _pieces(log: LogCore, manifest: Manifest, part: Part) -> Iterator[_Piece]:
    known = log.epochs.epoch_for_offset(part.base_offset)
    epoch = log.epochs.default if known is None else known
    bytes_max = min(PIECE_BYTES, log.config.segment_size)
    for file in part.files:
        path = os.path.join(log.path, layout.STAGING + manifest.token, file.name)
        try:
            yield from _pieces_of(log, path, file, epoch, part.append_time, bytes_max)
        except FileNotFoundError as error:
            if log.log_end_offset < part.next_offset:
                raise UnexplainedLogEnd(
                    f"{log.name} ends at {log.log_end_offset}; the commit {manifest.token} appends the records from "
                    f"{part.base_offset} to {part.next_offset - 1}, and its staged file {path} is gone: restore it"
                ) from error
            return


def _pieces_of(
    log: LogCore, path: str, placed: PlacedFile, epoch: int, append_time: int, bytes_max: int
) -> Iterator[_Piece]:
    file = log.options.files.open(path)
    try:
        at, start, size, crc = 0, 0, bytes_max, 0
        while at < placed.bytes:
            staged = file.read(at, min(size, placed.bytes - at))
            data = bytearray(staged)
            base_offset = placed.base_offset + start
            used, next_offset = renumber(data, start, base_offset, epoch, append_time)
            if not used:
                if len(data) < size:
                    raise CorruptBatch("a staged batch is cut short", position=at)
                size *= 2  # one batch is larger
                continue
            crc = crc32c(memoryview(staged)[:used], crc)
            yield _Piece(memoryview(data)[:used], base_offset, next_offset)
            at, start, size = at + used, next_offset - placed.base_offset, bytes_max
        if start != placed.records:
            raise CorruptBatch(f"{start} records are staged, the manifest lists {placed.records}", position=at)
        if crc != placed.crc:
            raise CorruptBatch(
                f"the staged file has changed since it was committed: checksum {placed.crc:08x} expected, found "
                f"{crc:08x}; restore it",
                position=0,
            )
    except CorruptBatch as error:
        raise CorruptBatch(error.reason, path=path, position=error.position, kind=error.kind) from None
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
