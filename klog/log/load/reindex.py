"""Rebuilds the indexes of closed segments from their .log files, in a directory beside the log.

    reader    rebuild_indexes    <directory>/<base offset>.index .timeindex .txnindex    those that differ, synced
    writer    put_in_place       <partition>/<base offset>.index ...                     renamed, one by one

  N1  the files have the bytes that a recovery would write. A transaction index keeps entries that no batch
      contradicts, as compaction and retention remove the records of aborted transactions
  N2  each file replaces its predecessor atomically, and is valid without the others: a crash leaves old and new ones
  N3  a segment whose .log is damaged keeps its indexes

The writer holds the lock of the log.dir all the time, so the segments stay as the reader has seen them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

from klog.disk import Files, HandleCache, exists, read_whole
from klog.errors import CorruptBatch, CorruptData
from klog.log.load.inputs import inputs_of
from klog.log.load.rebuild import rebuild_txn_index
from klog.log.state._log_core import LogCore
from klog.segment import Segment, SegmentDir, names
from klog.segment.txn_index import TxnIndex
from klog.values import dataclass


@dataclass(slots=True)
class Rebuilt:
    """What was found in the segments of one partition. files: names of those in the directory. error: that of the first
    damaged segment."""

    segments: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()
    error: str | None = None


def rebuild_indexes(log: LogCore, bases: Collection[int], directory: str) -> Rebuilt:
    """Rebuild the indexes of the closed segments with these base offsets. log: opened read-only. Raises OSError."""
    rebuilt, files = Rebuilt(), log.options.files
    segment_dir = SegmentDir(log.path, log.config, files, HandleCache(), writable=True)
    for segment in log.segments[:-1]:
        if segment.base_offset not in bases:
            continue
        rebuilt.segments += 1
        rebuilt.bytes += segment.size
        try:
            written = [*_indexes(segment_dir, segment, directory), *_txn_index(log, segment, directory)]
        except CorruptData as error:
            rebuilt.error = rebuilt.error or f"{type(error).__name__}: {error}"
            continue
        for path in written:
            name = os.path.basename(path)
            if _is_same(path, os.path.join(log.path, name)):
                files.unlink(path)
                continue
            with files.open(path, write=True) as file:
                files.fsync(file)
            rebuilt.files += (name,)
    files.fsync_dir(directory)
    return rebuilt


def put_in_place(partition: str, rebuilt: Rebuilt, directory: str, files: Files) -> None:
    """N2. Raises OSError."""
    for name in rebuilt.files:
        files.rename(os.path.join(directory, name), os.path.join(partition, name))
    files.fsync_dir(partition)  # also without files: a process that was killed may have renamed them


def _indexes(segment_dir: SegmentDir, segment: Segment, directory: str) -> tuple[str, str]:
    """Write the offset and the time index. Returns their paths. Raises CorruptBatch."""
    drop_behind = segment_dir.config.io.scan_drop_behind
    index, scan = Segment(segment_dir, segment.base_offset, 0).index_of_log(drop_behind=drop_behind)
    if scan.reason or scan.end != segment.size or scan.invalid:
        raise CorruptBatch(
            f"damaged ({scan.reason or 'offset_order'}): the indexes of this segment stay as they are; `klog verify` "
            "lists the damage",
            path=segment.path,
            position=scan.invalid[0] if scan.invalid else scan.end,
        )
    base = segment.base_offset
    paths = names.file_path(directory, base, names.INDEX), names.file_path(directory, base, names.TIME_INDEX)
    index.store(*paths, segment_dir.files.table)
    return paths


def _txn_index(log: LogCore, segment: Segment, directory: str) -> list[str]:
    """Write the transaction index, if the segment has one. Returns its path."""
    index = segment.txn_index
    rebuild_txn_index(inputs_of(log), log.segments, segment)  # in memory, as the log is read-only
    if not index.entries and not exists(index.path):
        return []
    beside = TxnIndex(names.file_path(directory, segment.base_offset, names.TXN_INDEX), segment.base_offset,
                      log.options.files)  # fmt: skip
    if index.entries:
        beside.write(list(index.entries))
    else:
        log.options.files.replace(beside.path, b"")
    return [beside.path]


def _is_same(path: str, other: str) -> bool:
    """Do both files have the same content?"""
    data = read_whole(path, sys.maxsize)
    try:
        return read_whole(other, len(data) + 1) == data
    except FileNotFoundError:
        return False
