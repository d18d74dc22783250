"""decode() gives what Kafka's own classes read, for every type and version."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import klog
from klog.errors import CorruptData
from klog.internal_topics import TOPICS, decode
from klog.internal_topics import cluster_metadata as cluster
from klog.internal_topics import consumer_offsets as offsets
from klog.internal_topics.names import CLUSTER_METADATA, CONSUMER_OFFSETS
from tests.support import kafka_messages
from tests.support.golden import HOME
from tests.support.kafka_messages import FRAMED, KEYED, check, comparable, framed, keyed, one


def test_every_type_and_version_of_kafka() -> None:
    seen = check(kafka_messages.golden())
    latest = {kind.name: kind.latest for _, types in KEYED for kind in types.values()}
    latest |= {kind.name: kind.latest for _, framed_types in FRAMED for kind in framed_types.values()}
    legacy = {("legacy_offset_commit", version) for version in range(1, 5)}  # Kafka's type 0 has only version 0
    assert seen == {(name, version) for name, end in latest.items() for version in range(end + 1)} - legacy


def test_the_records_of_a_broker_are_those_of_the_dump_tool() -> None:
    expected, found = kafka_messages.dumped(), {}
    with klog.open(HOME / "internal" / "logdir", read_only=True) as logs:
        for topic in TOPICS & logs.topics().keys():
            for record in logs.log(topic).read(isolation="log_end"):
                found[topic, record.offset] = decode(record, topic)
    assert found.keys() == {where for where, text in expected.items() if "payload: " in text}
    for where, decoded in found.items():
        assert decoded is not None
        key, _, payload = expected[where].rpartition("payload: ")
        if payload == "<DELETE>":
            assert decoded.value is None
        else:
            value = json.loads(payload)
            assert decoded.version == int(value["version"])
            if decoded.type != "group_metadata":  # its members' bytes are decoded
                assert comparable(decoded.value) == kafka_messages.plain(value["data"])
        if key:
            assert comparable(decoded.key) == kafka_messages.plain(json.loads(key[5:])["data"])


def test_members_of_a_classic_group() -> None:
    """Their subscription and assignment are fields, if they are those of a consumer."""
    subscription = struct.pack(">hi", 2, 1) + b"\0\1t" + struct.pack(">ii", -1, 0) + struct.pack(">i", 7)
    assignment = struct.pack(">hi", 0, 1) + b"\0\1t" + struct.pack(">iii", 1, 4, -1)

    def value(kind: bytes, subscription: bytes) -> bytes:
        member = b"\0\1m\xff\xff\0\1c\0\2/h" + struct.pack(">ii", 60000, 10000)
        member += struct.pack(">i", len(subscription)) + subscription + struct.pack(">i", len(assignment)) + assignment
        return (
            b"\0\3" + struct.pack(">h", len(kind)) + kind + b"\0\0\0\5\0\5range\0\1m" + bytes(8) + b"\0\0\0\1" + member
        )

    for kind, data, expected in (
        (
            b"consumer",
            subscription,
            {"version": 2, "topics": ["t"], "user_data": None, "owned_partitions": [], "generation_id": 7},
        ),
        (b"consumer", b"\0\1\x7f", b"\0\1\x7f"),
        (b"connect", subscription, subscription),
    ):
        found = one(CONSUMER_OFFSETS, b"\0\2\0\1g", value(kind, data)).value
        assert found is not None
        (member,) = found["members"]
        assert member["subscription"] == expected
        if kind == b"consumer":
            assert member["assignment"]["assigned_partitions"] == [{"topic": "t", "partitions": [4]}]


@pytest.mark.parametrize(
    ("topic", "key", "value", "reason"),
    [
        (CONSUMER_OFFSETS, None, b"", "a record without a key"),
        (CONSUMER_OFFSETS, b"\0", b"", "2 bytes expected at byte 0 of 1"),
        (CONSUMER_OFFSETS, b"\0\x63\0\1g", b"", "unknown record type 99"),
        (CONSUMER_OFFSETS, b"\0\2\0\1g", b"\0\5", "version 5 of group_metadata, where 0 to 4 are known"),
        (CONSUMER_OFFSETS, b"\0\2\0\1g", b"\xff\xff", "version -1 of group_metadata"),
        (
            CONSUMER_OFFSETS,
            b"\0\2\x7f\xffg",
            None,
            r"GroupMetadataKey version 0, group: the bytes end inside a value \(position 2\)",
        ),
        (
            CONSUMER_OFFSETS,
            b"\0\7\0\1g\0\1m",
            b"\0\0\xff\xff\xff\xff\x0f",
            "ConsumerGroupTargetAssignmentMemberValue version 0, topic_partitions: a length is invalid",
        ),
        (
            CONSUMER_OFFSETS,
            b"\0\7\0\1g\0\1m",
            b"\0\0\xff\xff\xff\xff\xff\xff",
            "ConsumerGroupTargetAssignmentMemberValue version 0, topic_partitions: a varint is too long",
        ),
        (CLUSTER_METADATA, None, None, "a record without a value"),
        (CLUSTER_METADATA, None, b"\2\x14\0\0", "frame version 2, where 1 is known"),
        (CLUSTER_METADATA, None, b"\1\x7d\0\0", "unknown record type 125, version 0"),
        (CLUSTER_METADATA, None, b"\1\x14\0\0\0", "1 bytes after the last field of a no_op_record"),
    ],
)
def test_other_bytes(topic: str, key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(CorruptData, match=f"a record of {topic} cannot be decoded: {reason}"):
        decode(klog.Record(key, value), topic)


def test_a_type_reads_its_values_and_raises_one_error() -> None:
    assert offsets.TYPES[3].read_value(b"\0\0\0\0\0\5\0") == (0, {"epoch": 5})
    assert cluster.TYPES[28].read_value(0, b"-\2t\0", 1) == {"topic_name": "t"}
    for data in (b"", b"\0\1", b"\0\0\0"):
        with pytest.raises(ValueError):
            offsets.TYPES[3].read_value(data)
        with pytest.raises(ValueError):
            cluster.TYPES[28].read_value(0, data, 0)


def test_tags_of_newer_versions_and_text_that_is_not_utf8() -> None:
    tagged = b"\0\0" + b"\0\0\0\5" + b"\2\0\x08" + bytes(8) + b"\x09\3abc"
    assert one(CONSUMER_OFFSETS, b"\0\3\0\2g\xff", tagged).value == {"epoch": 5, "metadata_hash": 0}
    assert one(CONSUMER_OFFSETS, b"\0\3\0\2g\xff", tagged).key == {"group_id": "g\\xff"}


def test_other_topics_and_control_records() -> None:
    assert decode(klog.Record(b"k", b"v"), "flights") is None
    (batch,) = klog.record.decode(klog.record.encode([(b"\0\0\0\1", bytes(6))], is_control=True))
    assert [decode(record, CONSUMER_OFFSETS) for record in batch] == [None]


@given(st.data())
def test_hostile_bytes(data: st.DataObject) -> None:
    """Cut or changed bytes: fields, or the named error."""
    message = data.draw(st.sampled_from(kafka_messages.golden()))
    damaged = bytearray(message.data)
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    number = data.draw(st.integers(0, 30))
    for topic in TOPICS:
        for key, value in (
            (keyed(number, bytes(damaged)), None),
            (b"\0\2\0\1g", bytes((0, message.version)) + damaged),
        ):
            try:
                decode(klog.Record(key, value), topic)
                decode(klog.Record(None, framed(number, message.version, bytes(damaged))), topic)
            except CorruptData:
                continue
