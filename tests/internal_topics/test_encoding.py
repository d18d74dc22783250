"""encode_key() and encode_value() give Kafka's bytes."""

from __future__ import annotations

import struct
import uuid

import pytest

import klog
from klog.internal_topics import TOPICS, decode, encode_key, encode_value
from tests.support import kafka_messages
from tests.support.golden import HOME
from tests.support.kafka_messages import FRAMED, KEYED, framed, keyed, one, snake

OFFSETS = "__consumer_offsets"


def test_every_type_and_version_of_kafka() -> None:
    """What Kafka's classes wrote, decoded and encoded again: the same bytes."""
    by_kind: dict[str, list[kafka_messages.Message]] = {}
    for message in kafka_messages.golden():
        by_kind.setdefault(snake(message.kind), []).append(message)
    compared = 0
    for topic, types in KEYED:
        for number, kind in types.items():
            name = {"transaction": "transaction_log"}.get(kind.name, kind.name)
            keys = [keyed(number, key.data) for key in by_kind[f"{name}_key"]]
            for key in keys:
                fields = one(topic, key, None).key
                assert fields is not None
                assert encode_key(kind.name, **fields) == key
            for value in by_kind[f"{name}_value"]:
                data = struct.pack(">h", value.version) + value.data
                found = one(topic, keys[0], data)
                assert found.value is not None
                assert encode_value(kind.name, value.version, **found.value) == data
                compared += 1
    for topic, framed_types in FRAMED:
        for number, framed_type in framed_types.items():
            for value in by_kind[framed_type.name]:
                data = framed(number, value.version, value.data)
                found = one(topic, None, data)
                assert found.value is not None
                assert encode_value(framed_type.name, value.version, **found.value) == data
                compared += 1
    assert compared > 100


@pytest.mark.parametrize("case", ["compacted", "internal", "medley", "txn", "txn-v1", "unclean"])
def test_the_records_of_a_broker(case: str) -> None:
    """What a broker wrote, decoded and encoded again: the same bytes."""
    compared = 0
    with klog.open(HOME / case / "logdir", read_only=True) as logs:
        for topic in TOPICS & logs.topics().keys():
            for partition in logs.topics()[topic]:
                for record in logs.log(topic, partition).read(isolation="log_end"):
                    found = decode(record, topic)
                    if found is not None:
                        if found.key is not None:
                            assert encode_key(found.type, **found.key) == record.key
                        if found.value is not None:
                            assert found.version is not None
                            assert encode_value(found.type, found.version, **found.value) == record.value
                        compared += 1
    assert compared


def test_ids_and_absent_tags() -> None:
    """An id may be a uuid.UUID. A tagged field with its default takes no bytes."""
    topic_id = uuid.UUID(int=7)
    fields = {"offset": 5, "leader_epoch": -1, "metadata": "", "commit_timestamp": 1}
    plain = encode_value("offset_commit", 4, **fields)
    assert plain == encode_value("offset_commit", 4, **fields, topic_id=uuid.UUID(int=0))
    tagged = encode_value("offset_commit", 4, **fields, topic_id=topic_id)
    assert tagged == plain[:-1] + b"\1\0\x10" + topic_id.bytes
    found = one(OFFSETS, encode_key("offset_commit", group="g", topic="t", partition=0), tagged)
    assert found.value is not None
    assert encode_value("offset_commit", 4, **found.value) == tagged


def test_members_of_a_classic_group() -> None:
    """Subscription and assignment: fields, as decode() gives them, or bytes."""
    member = {
        "member_id": "m",
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout": 1,
        "session_timeout": 2,
        "subscription": {"version": 0, "topics": ["t"], "user_data": None},
        "assignment": b"",
    }
    group = {"protocol_type": "consumer", "generation": 1, "protocol": None, "leader": None}
    as_fields = encode_value("group_metadata", 3, **group, current_state_timestamp=9, members=[member])
    member["subscription"] = b"\0\0" + b"\0\0\0\1\0\1t" + b"\xff\xff\xff\xff"
    assert as_fields == encode_value("group_metadata", 3, **group, current_state_timestamp=9, members=[member])


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="kind='offsets'"):
        encode_key("offsets", group="g")
    with pytest.raises(ValueError, match="have no key"):
        encode_key("topic_record", name="t")
    with pytest.raises(TypeError, match="OffsetCommitKey has no field 'topics'; it has group, topic, partition"):
        encode_key("offset_commit", group="g", topic="t", partition=0, topics="t")
    with pytest.raises(ValueError, match="OffsetCommitValue version 5: klog knows versions 0 to 4"):
        encode_value("offset_commit", 5)
