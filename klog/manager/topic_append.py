"""Appends to a whole topic: the key of each record picks its partition; a list is appended whole or not at all.

All records are encoded, and so validated, before the first byte is written. Only a disk that fails between two
partitions can leave a part of them appended; a note on the error lists it.
Kafka: BuiltInPartitioner (murmur2 of the key; records without one stay together).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from klog.codec import parse_compression
from klog.errors import KlogError
from klog.log import AppendInfo
from klog.log.core import append_group, encoded_whole
from klog.log.log import Log
from klog.log.options import Compression
from klog.log.read.reader import LogReader
from klog.log.write.inputs import is_whole
from klog.manager._partition import split, split_rows
from klog.record import BatchGroup, Records, RowSource, is_arrow

STICKY_RECORDS = 10_000


def append_to_topic(
    logs: Sequence[Log], records: Records, compression: Compression, next_sticky: Callable[[], int]
) -> dict[int, AppendInfo]:
    """Return {partition: AppendInfo}. next_sticky: returns the index in logs for keyless records, for each 10,000."""
    if compression is not None:
        parse_compression(compression)  # raises for an invalid value, even if there are no records
    done: dict[int, AppendInfo] = {}
    waiting: list[tuple[Log, BatchGroup, int]] = []
    whole = is_whole(records)
    if is_arrow(records) and not isinstance(records, LogReader):
        _append_rows(logs, RowSource(records), whole, compression, next_sticky, done)
        return dict(sorted(done.items()))
    iterator = iter(records)
    before = 0
    while chunk := list(itertools.islice(iterator, STICKY_RECORDS)):
        try:
            _encode(logs, chunk, compression, next_sticky(), before, waiting)
        except (KlogError, TypeError) as error:
            _note(error, done)
            raise
        before += len(chunk)
        if not whole:
            _write(waiting, done)
            waiting.clear()
    _write(waiting, done)
    return dict(sorted(done.items()))


def _append_rows(
    logs: Sequence[Log],
    source: RowSource,
    whole: bool,
    compression: Compression,
    next_sticky: Callable[[], int],
    done: dict[int, AppendInfo],
) -> None:
    """The same for Arrow columns, array by array; their errors name the right rows already."""
    waiting: list[tuple[Log, BatchGroup, int]] = []
    try:
        for rows in source:
            for start in range(0, len(rows), STICKY_RECORDS):
                shares = split_rows(rows, start, STICKY_RECORDS, len(logs), next_sticky())
                waiting += [
                    (log, *encoded_whole(log._core, share, compression))
                    for log, share in zip(logs, shares, strict=True)
                    if share is not None
                ]
                if not whole:
                    ready, waiting = waiting, []
                    _write(ready, done)
    except (KlogError, TypeError, ValueError) as error:
        _note(error, done)
        raise
    _write(waiting, done)


def _encode(
    logs: Sequence[Log],
    chunk: list[Any],
    compression: Compression,
    sticky: int,
    before: int,
    waiting: list[tuple[Log, BatchGroup, int]],
) -> None:
    lists: list[list[Any]] = []
    index = -1
    try:
        lists, _ = split(iter(chunk), len(logs), sticky, len(chunk))
        for index, part in enumerate(lists):
            if part:
                waiting.append((logs[index], *encoded_whole(logs[index]._core, part, compression)))
    except (KlogError, TypeError) as error:
        found = re.search(r"\brecord (\d+)", str(error.args[0]) if error.args else "")
        if found:  # the number counts the records of one partition
            number = int(found[1])
            if index >= 0:
                shares = (split(iter((item,)), len(logs), sticky, 1)[0] for item in chunk)
                number = [at for at, share in enumerate(shares) if share[index]][number]
            text = str(error.args[0])
            error.args = (f"{text[: found.start()]}record {before + number}{text[found.end() :]}", *error.args[1:])
        raise


def _write(waiting: list[tuple[Log, BatchGroup, int]], done: dict[int, AppendInfo]) -> None:
    for log, group, now in waiting:
        try:
            info = append_group(log._core, group, now)
        except BaseException as error:
            _note(error, done)
            raise
        earlier = done.get(log.partition)
        done[log.partition] = info if earlier is None else earlier.joined(info)
        log._core.options.scheduler.run_due()


def _note(error: BaseException, done: dict[int, AppendInfo]) -> None:
    for partition, info in sorted(done.items()):
        error.add_note(
            f"appended before the error: partition {partition}, offsets {info.first_offset} to {info.last_offset} "
            f"({info.count} records)"
        )
