"""Appends to a whole topic: the key of each record picks its partition; a list is appended whole or not at all.

All records are encoded, and so validated, before the first byte is written. Only a disk that fails between two
partitions can leave a part of them appended; a note on the error lists it.
Kafka: BuiltInPartitioner (murmur2 of the key; records without one stay together).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from klog.codec import parse_compression
from klog.errors import KlogError
from klog.log import core
from klog.manager._partition import split, split_rows
from klog.record import BatchGroup, Records, RowSource, is_arrow

if TYPE_CHECKING:
    from klog.log import AppendInfo
    from klog.log.log import Log
    from klog.log.options import Compression

STICKY_RECORDS = 10_000
Share: TypeAlias = "tuple[Log, BatchGroup, int]"
"""One partition's part of the records, encoded, and the time of the append."""


def append_to_topic(
    logs: Sequence[Log], records: Records, compression: Compression, next_sticky: Callable[[], int]
) -> dict[int, AppendInfo]:
    """Return {partition: AppendInfo}. next_sticky: returns the index in logs for keyless records, for each 10,000."""
    done: dict[int, AppendInfo] = {}
    try:
        for shares in encoded_shares(logs, records, compression, next_sticky):
            for log, group, now in shares:
                count_in(done, log, core.append_group(log._core, group, now))
                log._core.options.scheduler.run_due()
    except BaseException as error:
        note_what_was_appended(error, done)
        raise
    return dict(sorted(done.items()))


def encoded_shares(
    logs: Sequence[Log], records: Records, compression: Compression, next_sticky: Callable[[], int]
) -> Iterator[list[Share]]:
    """Encode the records. Each list that this returns is to be appended before the next one is asked for; that of a
    list or of a single array is the only one."""
    if compression is not None:
        parse_compression(compression)  # raises for an invalid value, even if there are no records
    waiting: list[Share] = []
    whole = core.is_whole(records)
    if is_arrow(records) and not isinstance(records, core.LogReader):
        encoded = _encoded_rows(logs, RowSource(records), compression, next_sticky)
    else:
        encoded = _encoded_records(logs, iter(records), compression, next_sticky)
    for shares in encoded:
        if whole:
            waiting += shares
        else:
            yield shares
    yield waiting


def _encoded_rows(
    logs: Sequence[Log], source: RowSource, compression: Compression, next_sticky: Callable[[], int]
) -> Iterator[list[Share]]:
    """The shares of each 10,000 rows of Arrow columns, array by array; their errors name the right rows already."""
    for rows in source:
        for start in range(0, len(rows), STICKY_RECORDS):
            parts = split_rows(rows, start, STICKY_RECORDS, len(logs), next_sticky())
            yield [
                (log, *core.encoded_whole(log._core, part, compression))
                for log, part in zip(logs, parts, strict=True)
                if part is not None
            ]


def _encoded_records(
    logs: Sequence[Log], records: Iterator[Any], compression: Compression, next_sticky: Callable[[], int]
) -> Iterator[list[Share]]:
    """The shares of each 10,000 records."""
    before = 0
    while chunk := list(itertools.islice(records, STICKY_RECORDS)):
        yield _encode(logs, chunk, compression, next_sticky(), before)
        before += len(chunk)


def _encode(logs: Sequence[Log], chunk: list[Any], compression: Compression, sticky: int, before: int) -> list[Share]:
    """before: number of records before the chunk, for errors."""
    shares: list[Share] = []
    lists: list[list[Any]] = []
    index = -1
    try:
        lists = split(chunk, len(logs), sticky)
        for index, part in enumerate(lists):
            if part:
                shares.append((logs[index], *core.encoded_whole(logs[index]._core, part, compression)))
    except (KlogError, TypeError) as error:
        found = re.search(r"\brecord (\d+)", str(error.args[0]) if error.args else "")
        if found:  # the number counts the records of one partition
            number = int(found[1])
            if index >= 0:
                parts = (split([item], len(logs), sticky) for item in chunk)
                number = [at for at, part in enumerate(parts) if part[index]][number]
            text = str(error.args[0])
            error.args = (f"{text[: found.start()]}record {before + number}{text[found.end() :]}", *error.args[1:])
        raise
    return shares


def count_in(done: dict[int, AppendInfo], log: Log, info: AppendInfo) -> None:
    """Add the result of one share to those of its partition."""
    earlier = done.get(log.partition)
    done[log.partition] = info if earlier is None else earlier.joined(info)


def note_what_was_appended(error: BaseException, done: dict[int, AppendInfo]) -> None:
    """List on an error what was appended before it."""
    for partition, info in sorted(done.items()):
        error.add_note(
            f"appended before the error: partition {partition}, offsets {info.first_offset} to {info.last_offset} "
            f"({info.count} records)"
        )
