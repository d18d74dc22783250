"""CreateTopics: the checks and the results of Kafka's ReplicationControlManager, for each topic."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from klog.broker.partitions import NO_ID
from klog.protocol import ApiKey, ErrorCode, messages
from tests.broker.admin.world import CODES, NODE, World

Request = messages.CreateTopics.Request
ALL_VERSIONS = range(ApiKey.CREATE_TOPICS.low, ApiKey.CREATE_TOPICS.high + 1)


def topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> messages.CreateTopics.Request.Topic:
    configs = [Request.Config(name=key, value=value) for key, value in fields.pop("configs", {}).items()]
    return Request.Topic(name=name, num_partitions=partitions, replication_factor=factor, configs=configs, **fields)


def assigned(name: str, assignments: dict[int, list[int]], **fields: Any) -> messages.CreateTopics.Request.Topic:
    given = [Request.Assignment(partition_index=number, broker_ids=ids) for number, ids in assignments.items()]
    fields = {"partitions": -1, "factor": -1, **fields}
    return topic(name, assignments=given, **fields)


def create(world: World, *topics: Any, version: int | None = None, **fields: Any) -> dict[str, Any]:
    response = world.send(ApiKey.CREATE_TOPICS, version, topics=list(topics), **fields)
    found = {each.name: each for each in response.topics}
    assert len(found) == len(response.topics)
    return found


def codes(found: dict[str, Any]) -> dict[str, ErrorCode]:
    return {name: CODES[each.error_code] for name, each in found.items()}


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_topic_is_created_with_its_partitions_and_configuration(world: World, version: int) -> None:
    asked = topic("flights", 3, configs={"retention.ms": "1000", "cleanup.policy": "compact,delete"})
    (result,) = create(world, asked, version=version).values()
    assert (result.error_code, result.error_message) == (0, None)
    assert world.topics.partitions("flights") == 3
    config = world.logs.topic_config("flights")
    assert config.retention_ms == 1000 and config.cleanup_policy == ("compact", "delete")
    if version >= 5:
        shown = {each.name: (each.value, each.config_source) for each in result.configs}
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert shown["retention.ms"] == ("1000", 1) and shown["cleanup.policy"] == ("compact,delete", 1)
        assert shown["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert result.topic_id == world.topics.topic_id("flights") != NO_ID


def test_the_logs_of_a_new_topic_are_loaded_before_the_response(world: World) -> None:
    create(world, topic("flights", 4))
    assert len([name for name in world.logs.metrics()["LogEndOffset"] if name]) == 4


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_validate_only_creates_nothing_and_finds_the_same_errors(world: World, version: int) -> None:
    create(world, topic("there"))
    found = create(world, topic("new"), topic("there"), topic("bad", 0), version=version, validate_only=True)
    assert codes(found) == {
        "new": ErrorCode.NONE,
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad": ErrorCode.INVALID_PARTITIONS,
    }
    assert world.topics.names() == ["there"]
    assert found["new"].topic_id == NO_ID


def test_minus_one_means_the_defaults_of_the_broker(tmp_path: Path) -> None:
    with World(tmp_path, config={"num.partitions": 5}) as world:
        (result,) = create(world, topic("flights", -1, -1)).values()
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 5, 1)
        assert world.topics.partitions("flights") == 5
    with World(tmp_path / "two", config={"default.replication.factor": 3}) as world:
        assert codes(create(world, topic("a", 1, -1))) == {"a": ErrorCode.INVALID_REPLICATION_FACTOR}
        assert codes(create(world, topic("a", 1, 1))) == {"a": ErrorCode.NONE}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("a", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 10_001), ErrorCode.POLICY_VIOLATION),
        (topic("a", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("a", configs={"retention_ms": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("a", configs={"log.retention.ms": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("a", configs={"message.format.version": "2.8"}), ErrorCode.INVALID_CONFIG),
        (topic("a", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (topic("a", configs={"retention.ms": "-2"}), ErrorCode.INVALID_CONFIG),
        (topic("a", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic("a", configs={"segment.bytes": "1000"}), ErrorCode.INVALID_CONFIG),
        (topic("a", configs={"cleanup.policy": "keep"}), ErrorCode.INVALID_CONFIG),
        (
            topic("a", configs={"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}),
            ErrorCode.INVALID_CONFIG,
        ),
        (topic("a", configs={"remote.storage.enable": "true"}), ErrorCode.INVALID_CONFIG),
        (assigned("a", {0: [NODE]}, partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned("a", {0: [NODE]}, factor=1), ErrorCode.INVALID_REQUEST),
        (assigned("a", {0: [NODE], 2: [NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", {1: [NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", {-1: [NODE], 0: [NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", {0: [NODE, NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", {0: [NODE, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("a", {0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_an_invalid_topic_is_refused_and_leaves_no_directory(
    world: World, asked: Any, code: ErrorCode, validate_only: bool
) -> None:
    (result,) = create(world, asked, validate_only=validate_only).values()
    assert CODES[result.error_code] is code
    assert result.error_message, "the error has no message"
    assert world.topics.names() == []
    assert [entry.name for entry in Path(world.logs.path).iterdir() if entry.is_dir()] == []


def test_all_partitions_of_an_assignment_have_as_many_replicas(tmp_path: Path) -> None:
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with World(tmp_path, brokers=(NODE, NODE + 1)) as world:
        for validate_only in (True, False):
            (result,) = create(
                world, assigned("a", {0: [NODE], 1: [NODE, NODE + 1]}), validate_only=validate_only
            ).values()
            assert result.error_code == refused
            (result,) = create(world, assigned("a", {0: [NODE], 1: [NODE + 1]}), validate_only=validate_only).values()
            assert (result.error_code, result.num_partitions) == (0, 2)
        Asked = messages.CreatePartitions.Request
        given = [Asked.Assignment(broker_ids=ids) for ids in ([NODE], [NODE, NODE + 1])]
        response = world.send(ApiKey.CREATE_PARTITIONS, topics=[Asked.Topic(name="a", count=4, assignments=given)])
        assert (response.results[0].error_code, world.topics.partitions("a")) == (refused, 2)


def test_assignments_to_this_node_are_accepted(world: World) -> None:
    (result,) = create(world, assigned("a", {1: [NODE], 0: [NODE]})).values()
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


def test_one_refused_topic_does_not_stop_the_others(world: World) -> None:
    found = create(world, topic("bad", 0), topic("good"), topic("good.too"))
    assert codes(found) == {"bad": ErrorCode.INVALID_PARTITIONS, "good": ErrorCode.NONE, "good.too": ErrorCode.NONE}


def test_a_topic_that_exists_is_refused(world: World) -> None:
    create(world, topic("a", 2))
    assert codes(create(world, topic("a", 9))) == {"a": ErrorCode.TOPIC_ALREADY_EXISTS}
    assert world.topics.partitions("a") == 2


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b.c", "a.b_c")])
@pytest.mark.parametrize("validate_only", [False, True])
def test_names_that_differ_only_by_dots_and_underscores_collide(
    world: World, first: str, second: str, validate_only: bool
) -> None:
    found = create(world, topic(first), topic(second), validate_only=validate_only)
    assert codes(found) == {first: ErrorCode.NONE, second: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert codes(create(world, topic("a-b"))) == {"a-b": ErrorCode.NONE}


def test_a_topic_that_is_named_twice_is_refused_once(world: World) -> None:
    found = create(world, topic("a"), topic("b"), topic("a", 2))
    assert codes(found) == {"a": ErrorCode.INVALID_REQUEST, "b": ErrorCode.NONE}
    assert world.topics.names() == ["b"]


def test_a_request_for_too_many_partitions_in_total_is_refused(world: World) -> None:
    found = create(world, topic("a", 6_000), topic("b", 4_001))
    assert set(codes(found).values()) == {ErrorCode.POLICY_VIOLATION}
    assert world.topics.names() == []


def test_creating_needs_create_on_the_cluster_or_on_the_topic(world: World) -> None:
    world.allow(("CREATE", "TOPIC", "mine"), ("DESCRIBE_CONFIGS", "TOPIC", "mine"))
    found = create(world, topic("mine"), topic("yours"))
    assert codes(found) == {"mine": ErrorCode.NONE, "yours": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    world.allow(("CREATE", "CLUSTER", "kafka-cluster"))
    (result,) = create(world, topic("yours")).values()
    assert result.error_code == 0
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


def test_clients_cannot_create_the_metadata_topic(world: World) -> None:
    assert codes(create(world, topic("__cluster_metadata"))) == {"__cluster_metadata": ErrorCode.INVALID_REQUEST}
    world.allow()
    assert codes(create(world, topic("__cluster_metadata"))) == {
        "__cluster_metadata": ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_an_internal_topic_is_created_only_with_the_configs_that_the_broker_needs(world: World, name: str) -> None:
    wrong = topic(name, configs={"cleanup.policy": "delete"})
    assert codes(create(world, wrong)) == {name: ErrorCode.INVALID_CONFIG}
    assert codes(create(world, topic(name, -1, -1, configs={"cleanup.policy": "compact"}))) == {name: ErrorCode.NONE}
    config = world.logs.topic_config(name)
    assert config.compacts and config["segment.bytes"] == 104_857_600
    assert world.topics.partitions(name) == 1


def test_an_error_of_the_disk_is_a_storage_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(world.logs, "create_topic", fail)
    assert codes(create(world, topic("a"))) == {"a": ErrorCode.KAFKA_STORAGE_ERROR}


def test_an_unexpected_failure_does_not_show_its_text(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(world.logs, "create_topic", fail)
    (result,) = create(world, topic("a")).values()
    assert (result.error_code, result.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


def test_an_id_is_never_used_twice(world: World) -> None:
    seen: set[uuid.UUID] = set()
    for _ in range(3):
        (result,) = create(world, topic("a")).values()
        seen.add(result.topic_id)
        world.topics.delete("a")
    assert len(seen) == 3
