"""Administration of topics, configurations and offsets, and errors about topics and groups that do not exist."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.clients.adapters import Admin, Client, Refused
from tests.clients.reading import eventually, everything

T0 = 1_700_000_000_000


def test_a_topic_is_created_extended_listed_and_deleted(admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=3)
    assert admin.partitions(name) == 3
    admin.add_partitions(name, 5)
    eventually(lambda: admin.partitions(name) == 5)
    assert name in admin.topics()
    admin.delete_topic(name)
    eventually(lambda: name not in admin.topics())
    with pytest.raises(Refused) as refused:
        admin.partitions(name)
    assert refused.value.code == 3


def test_a_deleted_topic_is_created_again(client: Client, admin: Admin, topic: str) -> None:
    producer = client.producer()
    producer.send(topic, b"old")
    producer.flush()
    producer.close()
    admin.delete_topic(topic)
    eventually(lambda: topic not in admin.topics())
    admin.create_topic(topic)
    producer = client.producer()
    producer.send(topic, b"new")
    assert producer.flush() == [(0, 0)]
    producer.close()
    assert [each.value for each in everything(client, topic, 1)] == [b"new"]


def _code(call: Callable[..., object], *arguments: object) -> int:
    with pytest.raises(Refused) as refused:
        call(*arguments)
    return refused.value.code


def test_invalid_requests_get_kafkas_error_codes(admin: Admin, topic: str) -> None:
    assert _code(admin.create_topic, topic) == 36
    assert _code(admin.create_topic, "a/b") == 17
    assert _code(admin.create_topic, f"{topic}-none", 0) == 37
    assert _code(admin.create_topic, f"{topic}-config", 1, {"retention.ms": "soon"}) == 40
    assert _code(admin.create_topic, f"{topic}-config", 1, {"no.such.key": "1"}) == 40
    assert _code(admin.add_partitions, topic, 1) == 37
    assert _code(admin.add_partitions, f"{topic}-unknown", 2) == 3
    assert _code(admin.delete_topic, f"{topic}-unknown") == 3
    assert f"{topic}-config" not in admin.topics()


def test_configurations_are_set_and_read(admin: Admin, name: str) -> None:
    admin.create_topic(name, config={"retention.ms": "86400000", "cleanup.policy": "compact,delete"})
    config = admin.config(name)
    assert config["retention.ms"] == "86400000"
    assert config["cleanup.policy"] == "compact,delete"
    assert config["compression.type"] == "producer"
    assert config["segment.bytes"] == str(1 << 30)
    admin.set_config(name, "segment.bytes", str(1 << 20))
    eventually(lambda: admin.config(name)["segment.bytes"] == str(1 << 20))
    assert _code(admin.set_config, name, "segment.bytes", "-1") in (40, 42)
    assert admin.config(name)["segment.bytes"] == str(1 << 20)


def test_records_are_deleted_up_to_an_offset(client: Client, admin: Admin, topic: str) -> None:
    producer = client.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number)
    producer.flush()
    assert admin.delete_records((topic, 0), 6) == 6
    consumer = client.consumer()
    assert consumer.bounds((topic, 0)) == (6, 10)
    consumer.close()
    assert [each.offset for each in everything(client, topic, 4)] == [6, 7, 8, 9]
    assert admin.delete_records((topic, 0), -1) == 10
    assert _code(admin.delete_records, (topic, 0), 99) == 1
    producer.send(topic, b"after")
    assert producer.flush() == [(0, 10)]
    producer.close()


def test_offsets_are_listed(client: Client, admin: Admin, topic: str) -> None:
    if "latest" in client.lacks:
        consumer = client.consumer()
        assert consumer.bounds((topic, 0)) == (0, 0)
        consumer.close()
        return
    producer = client.producer()
    for timestamp_ms in (T0, T0 + 5, T0 + 2):
        producer.send(topic, b"x", timestamp_ms=timestamp_ms)
        producer.flush()
    producer.close()
    assert admin.latest((topic, 0)) == 3
    assert admin.at_max_timestamp((topic, 0)) == 1


def test_describing_an_unknown_topic_does_not_create_it(admin: Admin, name: str) -> None:
    assert _code(admin.partitions, name) == 3
    assert name not in admin.topics()


def test_an_unknown_group_is_dead(admin: Admin, name: str) -> None:
    with contextlib.suppress(Refused):  # GROUP_ID_NOT_FOUND, from DescribeGroups 6 on
        assert admin.group_state(name) == ("Dead", 0)
    assert name not in admin.groups()
