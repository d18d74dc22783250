"""Writes a consumer group's offsets into __consumer_offsets, as Kafka's group coordinator does (commitGroup).

    key   := version:i16=1  group:string  topic:string  partition:i32              string := length:i16  UTF-8
    value := version:i16=4  offset:i64  leader_epoch:i32=-1  metadata:compact_string=""  commit_time_ms:i64  tags:u8=0

Big-endian. Kafka: OffsetCommitKey, OffsetCommitValue, GroupCoordinatorRecordHelpers of 4.1. Lag tools then show the
stream, and a consumer of the group goes on where it ended. Nothing reads them back into the stream: its offsets are
those of the checkpoint.

  G1  A record is appended to partition |hash of the group's name| mod n of __consumer_offsets. A directory without this
      topic gets it, with Kafka's 50 partitions.
  G2  Only that partition is opened, so nothing else in the directory changes, and only for the time of a write. A write
      waits for the lock of the directory, as the commit of a job does (staging.py): other ones hold it for a moment. If
      a process holds it longer when the query starts, that is an error; later the offsets wait for the next write, and
      no write waits again until one has had the lock.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence

import klog
from klog.clock import Clock, SystemClock
from klog.errors import AlreadyLocked, UnknownTopicOrPartition
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.logger import logger_of
from klog.manager.staging import when_unlocked
from klog.spark.bounds import TopicPartition
from klog.spark.offsets import Offsets
from klog.spark.opening import is_partition_directory
from klog.spark.options import Subscription

logger = logger_of("spark")

PARTITIONS = 50  # offsets.topic.num.partitions
CONFIG = {"cleanup.policy": "compact", "segment.bytes": 100 << 20, "compression.type": "producer"}


def commit_key(group: str, pair: TopicPartition) -> bytes:
    """Return the key of the record that holds the group's offset in a partition."""
    return struct.pack(">h", 1) + _string(group) + _string(pair.topic) + struct.pack(">i", pair.partition)


def commit_value(offset: int, time_ms: int) -> bytes:
    """Return its value."""
    return struct.pack(">hqiBqB", 4, offset, -1, 1, time_ms, 0)


def partition_for_group(group: str, partitions: int) -> int:
    """Return the partition of __consumer_offsets that holds a group. Kafka: Utils.abs(groupId.hashCode) % count."""
    code = 0
    units = group.encode("utf-16-be")
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def check_subscription(subscription: Subscription) -> None:
    """Raise ValueError if a stream would read the records that it writes here: each would make one more batch."""
    named = {*(subscription.topics or ()), *(pair.topic for pair in subscription.assigned or ())}
    if CONSUMER_OFFSETS in named or subscription == Subscription():
        raise ValueError(
            f"option 'commitGroup' writes to {CONSUMER_OFFSETS}, and the query reads that topic; "
            f"name the topics to read with 'subscribe'"
        )


class GroupOffsets:
    """The offsets of one group. Opening it locks the directory for a moment (G2)."""

    def __init__(self, paths: Sequence[str], group: str, clock: Clock | None = None) -> None:
        """Raises AlreadyLocked, and ValueError if no path is a log directory."""
        self._group = group
        self._clock = clock or SystemClock()
        self._written: Offsets = {}
        self._waits = True
        home = _home(paths)
        try:
            partitions = when_unlocked(lambda: _partitions(home), self._clock)
            self._path = os.path.join(home, f"{CONSUMER_OFFSETS}-{partition_for_group(group, partitions)}")
            self._open().close()
        except AlreadyLocked as error:
            raise AlreadyLocked(
                f"option 'commitGroup' needs to lock the log directory for writing: {error}; "
                f"or leave out the option: the stream itself needs no lock",
                path=error.path,
                holder=error.holder,
            ) from None

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Append what has changed since the last write. If the directory is locked, the next write does it."""
        changed = {pair: offset for pair, offset in sorted(offsets.items()) if self._written.get(pair) != offset}
        if not changed:
            return
        now = self._clock.wall_ms()
        records = [(commit_key(self._group, pair), commit_value(offset, now), now) for pair, offset in changed.items()]
        try:
            with self._open() as log:
                log.append(records)
        except AlreadyLocked as error:
            logger.warning("group=%s offsets are not written now: %s", self._group, error)
            self._waits = False
            return
        self._waits = True
        self._written.update(changed)

    def _open(self) -> klog.Log:
        def take() -> klog.Log:
            return klog.Log.open(self._path, config=CONFIG)

        return when_unlocked(take, self._clock) if self._waits else take()


def _home(paths: Sequence[str]) -> str:
    """Return the log directory for the offsets: the one that has them, else the first."""
    homes = [path for path in paths if not is_partition_directory(path)]
    if not homes:
        raise ValueError("option 'commitGroup' needs a log directory as path, not only partition directories")
    for path in homes:
        with klog.open(path, read_only=True) as logs:
            if CONSUMER_OFFSETS in logs.topics():
                return path
    return homes[0]


def _partitions(home: str) -> int:
    """Return the number of partitions of __consumer_offsets, which is created if it is missing (G1)."""
    with klog.open(home, read_only=True) as logs:
        numbers = logs.topics().get(CONSUMER_OFFSETS)
    if numbers is None:
        with klog.open(home) as logs:
            logs.create_topic(CONSUMER_OFFSETS, partitions=PARTITIONS, config=CONFIG)
        return PARTITIONS
    if numbers != list(range(len(numbers))):
        raise UnknownTopicOrPartition(
            f"option 'commitGroup': {home} has only partitions {numbers} of {CONSUMER_OFFSETS}, so the one that "
            f"holds the group is unknown; give all log directories of the broker, or leave out the option"
        )
    return len(numbers)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
