"""DeleteTopics by name and by id. A client that may not describe a topic cannot find out whether it exists."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from klog.broker.partitions import NO_ID
from klog.protocol import ApiKey, ErrorCode, messages
from tests.broker.admin.world import CODES, World

Topic = messages.DeleteTopics.Request.Topic
LAST = ApiKey.DELETE_TOPICS.high


def delete(world: World, *asked: str | uuid.UUID, version: int = LAST) -> list[tuple[Any, Any, ErrorCode]]:
    """The name, id and code of each result."""
    if version < 6:
        response = world.send(ApiKey.DELETE_TOPICS, version, topic_names=list(asked))
    else:
        topics = [Topic(name=each) if isinstance(each, str) else Topic(topic_id=each) for each in asked]
        response = world.send(ApiKey.DELETE_TOPICS, version, topics=topics)
    return [(each.name, each.topic_id, CODES[each.error_code]) for each in response.responses]


@pytest.mark.parametrize("version", range(ApiKey.DELETE_TOPICS.low, LAST + 1))
def test_topics_are_deleted_by_name(world: World, version: int) -> None:
    info = world.topics.create("a", 2)
    world.topics.create("b", 1)
    shown = info.topic_id if version >= 6 else NO_ID
    assert delete(world, "a", "x", version=version) == [
        ("a", shown, ErrorCode.NONE),
        ("x", NO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert world.topics.names() == ["b"]
    assert [path.name for path in Path(world.logs.path).glob("a-?")] == []


def test_topics_are_deleted_by_id(world: World) -> None:
    info, other = world.topics.create("a", 1), uuid.uuid4()
    assert delete(world, info.topic_id, other) == [
        ("a", info.topic_id, ErrorCode.NONE),
        (None, other, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert world.topics.names() == []
    world.topics.create("a", 1)
    assert delete(world, info.topic_id) == [(None, info.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert world.topics.names() == ["a"], "the id was that of an earlier topic of this name"


def test_a_topic_with_neither_name_nor_id_or_with_both_is_invalid(world: World) -> None:
    info = world.topics.create("a", 1)
    both = Topic(name="a", topic_id=info.topic_id)
    response = world.send(ApiKey.DELETE_TOPICS, topics=[Topic(), both])
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert world.topics.names() == ["a"]


def test_a_topic_that_is_named_twice_is_refused(world: World) -> None:
    a, b, c = (world.topics.create(name, 1) for name in "abc")
    assert delete(world, "a", "a", b.topic_id, b.topic_id) == [
        ("a", NO_ID, ErrorCode.INVALID_REQUEST),
        (None, b.topic_id, ErrorCode.INVALID_REQUEST),
    ]
    for results in (delete(world, c.topic_id, "c"), delete(world, "c", c.topic_id)):
        assert {code for _, _, code in results} == {ErrorCode.INVALID_REQUEST}
    assert world.topics.names() == ["a", "b", "c"] and a.partitions == 1


def test_without_describe_the_error_is_the_same_whether_the_topic_exists_or_not(world: World) -> None:
    info = world.topics.create("there", 1)
    world.allow()
    assert delete(world, "there", "absent") == [
        ("there", NO_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("absent", NO_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert delete(world, info.topic_id) == [(None, info.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert world.topics.names() == ["there"]


def test_with_describe_alone_a_client_gets_the_name_but_cannot_delete_the_topic(world: World) -> None:
    info = world.topics.create("there", 1)
    world.allow(("DESCRIBE", "TOPIC", "there"), ("DESCRIBE", "TOPIC", "absent"))
    assert delete(world, "there", "absent", info.topic_id)[1] == ("absent", NO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(world, info.topic_id) == [("there", info.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert world.topics.names() == ["there"]


@pytest.mark.parametrize(
    "allowed", [("DELETE", "CLUSTER", "kafka-cluster"), ("DELETE", "TOPIC", "there")], ids=["cluster", "topic"]
)
def test_delete_on_the_cluster_or_on_the_topic_is_enough(world: World, allowed: tuple[str, str, str]) -> None:
    info = world.topics.create("there", 1)
    world.allow(allowed)
    assert delete(world, "there") == [("there", info.topic_id, ErrorCode.NONE)]


def test_internal_topics_are_not_deleted(world: World) -> None:
    world.topics.ensure_internal("__consumer_offsets")
    ((_, _, code),) = delete(world, "__consumer_offsets")
    assert code is ErrorCode.INVALID_REQUEST and world.topics.names() == ["__consumer_offsets"]


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
def test_deletion_can_be_disabled(tmp_path: Path, version: int, code: int) -> None:
    with World(tmp_path, delete_topic_enable=False) as world:
        world.topics.create("a", 1)
        ((_, _, found),) = delete(world, "a", version=version)
        assert found == code and world.topics.names() == ["a"]
