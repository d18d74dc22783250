"""How far one batch of a stream goes: from offsets, a backlog and limits to the next offsets. Pure.

    backlog = end − start of each partition          share = apportion(backlogs, limit)          next = start + share

  L1  Nothing is lost and nothing is read twice: start ≤ next ≤ end in each partition, and the next batch begins there.
  L2  Limits hold: the batch has at most `max_offsets` offsets and at most `max_bytes` stored bytes. One exception: a
      single record batch that is larger than max_bytes is read alone.
  L3  Progress: if there is a backlog, at least one offset is read.
  L4  A partition gets its share in proportion to its backlog; if there are enough, at least 1. If there are fewer than
      partitions with a backlog, the next batches serve the others.

Offsets are counted, as by Spark's Kafka source, whether a record has them or not: compaction and transactions leave
gaps. Unlike there (KafkaMicroBatchStream.rateLimit), shares are not rounded up: their sum never exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from klog.spark.bounds import TopicPartition
from klog.spark.offsets import Offsets
from klog.values import dataclass

DELAY_MS = 15 * 60_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The trigger options. None: no limit.

    min_offsets: with fewer new offsets a trigger waits, at most max_delay_ms since the last one that did not.
    """

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DELAY_MS


class Stored(Protocol):
    """The stored bytes of the partitions: whole record batches, as compressed."""

    def size(self, pair: TopicPartition, start: int, end: int) -> int:
        """Bytes of the record batches that hold [start, end)."""

    def fit(self, pair: TopicPartition, start: int, end: int, size: int) -> int:
        """The largest offset up to which the record batches from `start` on have at most `size` bytes; at most end."""


def too_few(backlog: int, limits: Limits, waited_ms: float | None) -> bool:
    """Must the trigger wait for more? waited_ms: since the last trigger that did not wait, None if there was none."""
    if limits.min_offsets is None or waited_ms is None or waited_ms >= limits.max_delay_ms:
        return False
    return backlog < limits.min_offsets


def next_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limits: Limits,
                 stored: Stored) -> Offsets:  # fmt: skip
    """Return where the batch that begins at `start` ends (L1 to L4). The partitions of both are the same."""
    reached = dict(end)
    if limits.max_offsets is not None:
        reached = _by_offsets(start, reached, limits.max_offsets)
    if limits.max_bytes is not None:
        reached = _by_bytes(start, reached, limits.max_bytes, stored)
    return reached


def _by_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int) -> Offsets:
    pairs = sorted(end)
    shares = apportion([end[pair] - start[pair] for pair in pairs], limit, _first(start))
    return {pair: start[pair] + share for pair, share in zip(pairs, shares, strict=True)}


def _by_bytes(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int, stored: Stored
) -> Offsets:
    """A share holds whole record batches, so a part of each is left. What is left in total goes to the partitions, one
    record batch each, first to those that got nothing."""
    pairs = sorted(pair for pair in end if start[pair] < end[pair])
    sizes = {pair: stored.size(pair, start[pair], end[pair]) for pair in pairs}
    shares = apportion([sizes[pair] for pair in pairs], limit, _first(start))
    reached = dict(end)
    left = limit
    for pair, share in zip(pairs, shares, strict=True):
        if share < sizes[pair]:
            reached[pair] = stored.fit(pair, start[pair], end[pair], share)
        left -= stored.size(pair, start[pair], reached[pair])
    if not pairs:
        return reached
    first = _first(start) % len(pairs)
    unread = [pair for pair in (*pairs[first:], *pairs[:first]) if reached[pair] < end[pair]]
    unread.sort(key=lambda pair: reached[pair] > start[pair])
    nothing = all(reached[pair] == start[pair] for pair in pairs)
    for pair in unread:
        at = reached[pair]
        one = stored.size(pair, at, at + 1)
        if one <= left or (nothing and pair == unread[0]):  # L2's exception, for L3
            reached[pair] = stored.fit(pair, at, end[pair], one)
            left -= one
    return reached


def apportion(backlogs: Sequence[int], limit: int, first: int) -> list[int]:
    """Return shares of the backlogs, in total min(limit, all), by the largest remainder.

    first: which partition is first if there are fewer than partitions (L4).
    """
    total = sum(backlogs)
    if limit >= total:
        return list(backlogs)
    waiting = [index for index, backlog in enumerate(backlogs) if backlog]
    shares = [0] * len(backlogs)
    if limit <= len(waiting):
        for number in range(limit):
            shares[waiting[(first + number) % len(waiting)]] = 1
        return shares
    # One each, the rest in proportion. Integers: products of offsets exceed 2**53, where floats round.
    rest, all_rest = limit - len(waiting), total - len(waiting)
    remainders = []
    for index in waiting:
        whole, remainder = divmod(rest * (backlogs[index] - 1), all_rest)
        shares[index] = 1 + whole
        remainders.append((-remainder, index))
    for _, index in sorted(remainders)[: limit - sum(shares)]:
        shares[index] += 1
    return shares


def _first(start: Mapping[TopicPartition, int]) -> int:
    # A batch of n offsets raises it by n, so the next one begins n partitions further on.
    return sum(start.values())
