"""Keys and values of offset records have the same bytes as those of klog.internal_topics, which are Kafka's."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordinator.groups.config import GroupConfig
from klog.coordinator.groups.offset_records import (
    NO_ID,
    Committed,
    offset_key,
    offset_value,
    read_key,
    read_value,
)
from klog.coordinator.groups.subscription import subscribed_topics
from klog.errors import CorruptData, InvalidConfig
from klog.internal_topics import decode, encode_key, encode_value
from klog.protocol import encode_data, messages
from klog.record import Record

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


@given(TEXT, TEXT, INT32)
def test_offset_keys_have_kafkas_bytes(group: str, topic: str, partition: int) -> None:
    key = offset_key(group, topic, partition)
    assert key == encode_key("offset_commit", group=group, topic=topic, partition=partition)
    assert read_key(key) == (group, topic, partition)


@given(
    INT64, INT32, TEXT, INT64, st.one_of(st.just(-1), st.integers(0, 2**63 - 1)), st.one_of(st.just(NO_ID), st.uuids())
)
def test_offset_values_have_kafkas_bytes(
    offset: int, leader_epoch: int, metadata: str, commit: int, expire: int, topic_id: uuid.UUID
) -> None:  # fmt: skip
    committed = Committed(offset, leader_epoch, metadata, commit, expire, 9, topic_id)
    value = offset_value(committed)
    fields = {"offset": offset, "metadata": metadata, "commit_timestamp": commit}
    if expire >= 0:
        assert value == encode_value("offset_commit", 1, **fields, expire_timestamp=expire)
        assert read_value(value, 9) == committed._replace(leader_epoch=-1, topic_id=NO_ID)
    else:
        tag = {"topic_id": topic_id} if topic_id.int else {}
        assert value == encode_value("offset_commit", 4, **fields, leader_epoch=leader_epoch, **tag)
        assert read_value(value, 9) == committed


@pytest.mark.parametrize("version", range(5))
def test_values_of_all_versions_are_read(version: int) -> None:
    more = {1: {"expire_timestamp": 8}, 3: {"leader_epoch": 6}, 4: {"leader_epoch": 6}}.get(version, {})
    value = encode_value("offset_commit", version, offset=5, metadata="m", commit_timestamp=7, **more)
    expected = Committed(5, more.get("leader_epoch", -1), "m", 7, more.get("expire_timestamp", -1), 3)
    assert read_value(value, 3) == expected


@given(st.data())
def test_damaged_bytes_raise_nothing_but_corrupt_data(data: st.DataObject) -> None:
    key, value = offset_key("group", "topic", 3), offset_value(Committed(1, 2, "meta", 3))
    for whole, read in ((key, read_key), (value, lambda part: read_value(part, 0))):
        damaged = bytearray(whole)
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
        with contextlib.suppress(CorruptData):
            read(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@given(st.data())
def test_read_value_agrees_with_the_decoder_of_internal_topics(data: st.DataObject) -> None:
    value = bytearray(offset_value(Committed(1, 2, data.draw(TEXT), 3)))
    value[data.draw(st.integers(14, len(value) - 1))] ^= data.draw(st.integers(0, 255))
    key = offset_key("g", "t", 0)
    try:
        found = read_value(bytes(value), 0)
    except CorruptData:
        with pytest.raises(CorruptData):
            decode(Record(key, bytes(value)), "__consumer_offsets")
        return
    slow = decode(Record(key, bytes(value)), "__consumer_offsets")
    assert slow is not None
    assert slow.value is not None
    assert (found.offset, found.metadata, found.commit_timestamp) == (
        slow.value["offset"],
        slow.value["metadata"] or "",
        slow.value["commit_timestamp"],
    )


def test_names_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        offset_key("g" * 32768, "t", 0)
    with pytest.raises(ValueError, match="32768 bytes"):
        offset_value(Committed(0, 0, "m" * 32768, 0))


@pytest.mark.parametrize("version", range(4))
def test_the_topics_of_a_subscription(version: int) -> None:
    data = encode_data(messages.ConsumerProtocolSubscription(topics=["a", "\u20ac"]), version)
    assert subscribed_topics(data) == ["a", "\u20ac"]
    assert subscribed_topics(b"\0\x63" + data[2:] + b"more") == ["a", "\u20ac"]


@given(st.binary(max_size=30))
def test_bytes_that_are_not_a_subscription(data: bytes) -> None:
    found = subscribed_topics(data)
    assert found is None or sum(len(each.encode()) + 2 for each in found) + 6 <= len(data)


def test_properties_of_the_group_configuration_are_checked() -> None:
    config = GroupConfig.of({"group.max.size": "5", "group.initial.rebalance.delay.ms": 3000, "other": 1})
    assert (config.max_size, config.initial_rebalance_delay_ms, config.min_session_timeout_ms) == (5, 3000, 6000)
    for wrong in (
        {"group.max.size": "many"},
        {"group.max.size": 0},
        {"group.min.session.timeout.ms": 9, "group.max.session.timeout.ms": 8},
    ):
        with pytest.raises(InvalidConfig):
            GroupConfig.of(wrong)
    with pytest.raises(TypeError):
        GroupConfig(max_size="5")  # type: ignore[arg-type]
