"""What a member can acquire of a slice of a log: the batches that consumers get, and where each one ends.

Batches of markers are not for consumers, nor are those of aborted transactions if the group reads committed ones only.
Kafka leaves markers to its clients, which acknowledge them as gaps; here no member ever sees them. Kafka:
ShareFetchUtils, SharePartition.maybeFilterAbortedTransactionalAcquiredRecords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.record import decode
from klog.values import NamedTuple

if TYPE_CHECKING:
    from klog.log import FetchData, Log
    from klog.log.read.isolation import Isolation


class Readable(NamedTuple):
    """A slice of a log. batches: first and last offset of what consumers get; ends: the byte after each of them; stop:
    the offset after the last batch that was examined, of any kind, or the base offset of the first batch beyond the
    bound. Offsets below it that are in none of the batches are not for consumers, or not in the log."""

    data: FetchData
    batches: list[tuple[int, int]]
    ends: list[int]
    stop: int

    def end_of(self, offset: int) -> int:
        """The byte after the batch with an offset."""
        return next(end for (_, last), end in zip(self.batches, self.ends, strict=True) if last >= offset)


def readable_of(data: FetchData, bound: int) -> Readable:
    """The batches of a slice up to an offset that can be acquired. Raises CorruptBatch, OSError."""
    found = Readable(data, [], [], data.offset)
    if not data.size:
        return found
    stop = data.offset
    for batch in decode(data.memory(), verify_crc=False):
        if batch.base_offset >= bound:
            stop = batch.base_offset
            break
        stop = batch.last_offset + 1
        if not batch.is_control and not _is_aborted(data, batch.is_transactional, batch.producer_id, batch.base_offset):
            found.batches.append((batch.base_offset, batch.last_offset))
            found.ends.append(batch.position + batch.size)
    return found._replace(stop=stop)


def cut(log: Log, readable: Readable, last: int, isolation: Isolation) -> FetchData:
    """The slice without the batches after the one with an offset. Raises what Log.fetch raises."""
    size = readable.end_of(last)
    data = readable.data
    return data if size >= data.size else log.fetch(data.offset, size, isolation=isolation)


def _is_aborted(data: FetchData, is_transactional: bool, producer_id: int, offset: int) -> bool:
    return is_transactional and any(
        each.producer_id == producer_id and each.first_offset <= offset <= each.last_offset
        for each in data.aborted_transactions
    )
