"""Records of committed offsets, the most frequent ones of __consumer_offsets, packed by hand.

    key      := type:i16 = 1  group:string  topic:string  partition:i32
    value 4  := version:i16  offset:i64  leader_epoch:i32  metadata:compact string  commit_timestamp:i64  tags
    value 1  := version:i16  offset:i64  metadata:string  commit_timestamp:i64  expire_timestamp:i64
    tag 0    := the id of the topic, 16 bytes

Version 4 is what Kafka 4 writes; 1 is for the commits of versions 2 to 4 with a retention time. All other versions are
read through klog.internal_topics. Kafka: GroupCoordinatorRecordHelpers, OffsetAndMetadata.
"""

from __future__ import annotations

import struct
import uuid

from klog.coordinator.groups.group_keys import TYPE_AND_SIZE, string_bytes
from klog.errors import CorruptData
from klog.values import NamedTuple

_SIZE = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_HEAD_4 = struct.Struct(">hqi")
_HEAD_1 = struct.Struct(">hq")
_TIMES_1 = struct.Struct(">qq")
_TIME = struct.Struct(">q")
NO_ID = uuid.UUID(int=0)


class Committed(NamedTuple):
    """A committed offset. leader_epoch, expire_timestamp: -1 for none. record_offset: of its record in the topic.
    topic_id: 0 in commits by name."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    record_offset: int = -1
    topic_id: uuid.UUID = NO_ID


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of the record. Raises ValueError for names of more than 32,767 bytes."""
    group, name = string_bytes(group_id, "a group id"), string_bytes(topic, "a topic's name")
    return b"".join((TYPE_AND_SIZE.pack(1, len(group)), group, _SIZE.pack(len(name)), name, _PARTITION.pack(partition)))


def offset_value(committed: Committed) -> bytes:
    """The value of the record. Raises ValueError for metadata of more than 32,767 bytes."""
    metadata = string_bytes(committed.metadata, "metadata")
    if committed.expire_timestamp >= 0:
        head = _HEAD_1.pack(1, committed.offset) + _SIZE.pack(len(metadata))
        return head + metadata + _TIMES_1.pack(committed.commit_timestamp, committed.expire_timestamp)
    tags = (
        b"\0" if committed.topic_id is NO_ID or not committed.topic_id.int else b"\1\0\x10" + committed.topic_id.bytes
    )
    head = _HEAD_4.pack(4, committed.offset, committed.leader_epoch)
    return head + _uvarint(len(metadata) + 1) + metadata + _TIME.pack(committed.commit_timestamp) + tags


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    return bytes((value & 0x7F | 0x80,)) + _uvarint(value >> 7)


def read_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic and partition of a key of type 0 or 1. Raises CorruptData."""
    try:
        _, size = TYPE_AND_SIZE.unpack_from(key)
        at = 4 + size
        (name_size,) = _SIZE.unpack_from(key, at)
        end = at + 2 + name_size
        (partition,) = _PARTITION.unpack_from(key, end)
        if size < 0 or name_size < 0:
            raise ValueError("a negative size")
        return key[4:at].decode(), key[at + 2 : end].decode(), partition
    except (struct.error, ValueError) as error:
        raise CorruptData(f"the key {key!r} of a committed offset cannot be decoded: {error}") from None


def read_value(value: bytes, record_offset: int) -> Committed:
    """The value of a record at record_offset. Raises CorruptData."""
    if value[:2] == b"\0\4" and len(value) > 23 and value[14] and value[14] < 0x80:  # short metadata
        _, offset, leader_epoch = _HEAD_4.unpack_from(value)
        end = 14 + value[14]
        if len(value) == end + 9 and value[-1] == 0:  # no tags
            try:
                metadata = value[15:end].decode()
            except UnicodeDecodeError:
                pass
            else:
                (commit_timestamp,) = _TIME.unpack_from(value, end)
                return Committed(offset, leader_epoch, metadata, commit_timestamp, -1, record_offset)
    return _read_any(value, record_offset)


def _read_any(value: bytes, record_offset: int) -> Committed:
    from base64 import urlsafe_b64decode

    from klog.internal_topics.consumer_offsets import TYPES  # reads schemas: only for what Kafka wrote long ago

    try:
        _, fields = TYPES[1].read_value(value)
        topic_id = fields.get("topic_id")
        return Committed(
            fields["offset"],
            fields.get("leader_epoch", -1),
            fields["metadata"] or "",
            fields["commit_timestamp"],
            fields.get("expire_timestamp", -1),
            record_offset,
            NO_ID if topic_id is None else uuid.UUID(bytes=urlsafe_b64decode(topic_id + "==")),
        )
    except ValueError as error:
        raise CorruptData(f"a committed offset cannot be decoded: {error}", offset=record_offset) from None
