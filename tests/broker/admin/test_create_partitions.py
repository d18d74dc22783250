"""CreatePartitions adds all partitions that a topic asks for, or none."""

from __future__ import annotations

from typing import Any

import pytest

from klog.protocol import ApiKey, ErrorCode, messages
from tests.broker.admin.world import CODES, NODE, World

Request = messages.CreatePartitions.Request


def topic(name: str, count: int, assignments: list[list[int]] | None = None) -> messages.CreatePartitions.Request.Topic:
    given = None if assignments is None else [Request.Assignment(broker_ids=ids) for ids in assignments]
    return Request.Topic(name=name, count=count, assignments=given)


def extend(world: World, *topics: Any, version: int | None = None, **fields: Any) -> dict[str, ErrorCode]:
    response = world.send(ApiKey.CREATE_PARTITIONS, version, topics=list(topics), **fields)
    return {each.name: CODES[each.error_code] for each in response.results}


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(world: World, version: int) -> None:
    world.topics.create("a", 1)
    assert extend(world, topic("a", 3), version=version) == {"a": ErrorCode.NONE}
    assert world.topics.partitions("a") == 3 and world.topics.log("a", 2) is not None


def test_validate_only_adds_nothing(world: World) -> None:
    world.topics.create("a", 1)
    found = extend(world, topic("a", 3), topic("b", 3), validate_only=True)
    assert found == {"a": ErrorCode.NONE, "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.topics.partitions("a") == 1


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("a", 2), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 1), ErrorCode.INVALID_PARTITIONS),
        (topic("a", -1), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 10_001), ErrorCode.POLICY_VIOLATION),
        (topic("a", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (topic("x", 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (topic("a", 4, [[NODE]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[NODE, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", 3, [[NODE, NODE]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("__consumer_offsets", 9), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_counts_and_assignments_are_refused(world: World, asked: Any, code: ErrorCode) -> None:
    world.topics.create("a", 2)
    world.topics.ensure_internal("__consumer_offsets")
    assert extend(world, asked) == {asked.name: code}
    assert world.topics.partitions("a") == 2 and world.topics.partitions("__consumer_offsets") == 1


def test_assignments_to_this_node_are_accepted(world: World) -> None:
    world.topics.create("a", 1)
    assert extend(world, topic("a", 3, [[NODE], [NODE]])) == {"a": ErrorCode.NONE}


def test_a_topic_that_is_named_twice_is_refused_and_the_others_are_not(world: World) -> None:
    world.topics.create("a", 1)
    world.topics.create("b", 1)
    found = extend(world, topic("a", 2), topic("b", 2), topic("a", 3))
    assert found == {"a": ErrorCode.INVALID_REQUEST, "b": ErrorCode.NONE}


def test_adding_partitions_needs_alter_on_the_topic(world: World) -> None:
    world.topics.create("mine", 1)
    world.allow(("ALTER", "TOPIC", "mine"))
    found = extend(world, topic("mine", 2), topic("yours", 2))
    assert found == {"mine": ErrorCode.NONE, "yours": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
