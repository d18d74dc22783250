"""The offsets that consumer groups have committed, from the records of __consumer_offsets.

The latest record of a key counts; a null value (a tombstone) removes the key. Offsets that a transaction commits count
once it is committed, so the reader is read_committed. Kafka: OffsetCommitKey, OffsetCommitValue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.errors import CorruptData
from klog.internal_topics import decode
from klog.internal_topics.consumer_offsets import is_offset_key
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.values import NamedTuple

if TYPE_CHECKING:
    from klog import Log

__all__ = ["OffsetCommit", "OffsetKey", "committed"]


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class OffsetCommit(NamedTuple):
    """Times in ms; -1: none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int


def committed(log: Log) -> dict[OffsetKey, OffsetCommit]:
    """Return the offsets that are committed in one partition of __consumer_offsets. Raises CorruptData."""
    found: dict[OffsetKey, OffsetCommit] = {}
    for record in log.read(isolation="read_committed"):
        if not is_offset_key(record.key):
            continue
        try:
            decoded = decode(record, CONSUMER_OFFSETS)
        except CorruptData as error:
            raise CorruptData(error.reason, path=log.path, offset=record.offset) from None
        assert decoded is not None and decoded.key is not None  # of __consumer_offsets, and no control record
        key, value = OffsetKey(**decoded.key), decoded.value
        if value is None:
            found.pop(key, None)
        else:
            found[key] = OffsetCommit(
                value["offset"],
                value.get("leader_epoch", -1),
                value["metadata"],
                value["commit_timestamp"],
                value.get("expire_timestamp", -1),
            )
    return found
