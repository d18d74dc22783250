"""ElectLeaders, reassignments, DescribeCluster, UpdateFeatures and DescribeTopicPartitions of the only broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klog.broker.admin.topic_pages import TopicPages
from klog.broker.metadata import Placement
from klog.broker.partitions import NO_ID
from klog.errors import StorageOffline
from klog.protocol import ApiKey, ErrorCode, messages
from tests.broker.admin.world import CODES, NODE, FakeContext, World, everything

ALTER, DESCRIBE = ("ALTER", "CLUSTER", "kafka-cluster"), ("DESCRIBE", "CLUSTER", "kafka-cluster")


def offline(world: World, monkeypatch: pytest.MonkeyPatch, topic: str, partition: int) -> None:
    """Let a partition be offline, as if its directory had failed."""
    load = world.logs.log

    def log(name: str, number: int = 0) -> Any:
        if (name, number) == (topic, partition):
            raise StorageOffline("gone")
        return load(name, number)

    monkeypatch.setattr(world.logs, "log", log)


# ---- ElectLeaders ----------------------------------------------------------------------------------------------------


def elect(
    world: World, asked: dict[str, list[int]] | None, kind: int = 0, version: int = 2
) -> tuple[int, dict[Any, int]]:
    Topic = messages.ElectLeaders.Request.Topic
    topics = None if asked is None else [Topic(topic=name, partitions=each) for name, each in asked.items()]
    fields = {"election_type": kind} if version else {}
    response = world.send(ApiKey.ELECT_LEADERS, version, topic_partitions=topics, **fields)
    return response.error_code, {
        (topic.topic, each.partition_id): each.error_code
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_partition_has_its_leader(world: World, version: int) -> None:
    world.topics.create("a", 2)
    code, found = elect(world, {"a": [0, 1, 2], "x": [0]}, version=version)
    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code == 0
    assert found == {("a", 0): needless, ("a", 1): needless, ("a", 2): unknown, ("x", 0): unknown}
    assert elect(world, None, version=version) == (0, {}), "without topics, only partitions without a leader are listed"


def test_a_partition_in_an_offline_directory_has_no_leader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topics.create("a", 2)
    offline(world, monkeypatch, "a", 1)
    assert elect(world, None, 1) == (0, {("a", 1): ErrorCode.LEADER_NOT_AVAILABLE})


def test_elections_that_are_refused(world: World) -> None:
    world.topics.create("a", 1)
    assert elect(world, {"a": [0]}, 2) == (ErrorCode.INVALID_REQUEST, {("a", 0): ErrorCode.INVALID_REQUEST})
    world.allow(DESCRIBE)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert elect(world, {"a": [0]}) == (denied, {("a", 0): denied})
    assert elect(world, None) == (denied, {})


# ---- reassignments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_only_the_current_assignment_is_accepted(world: World, version: int) -> None:
    world.topics.create("a", 1)
    Request = messages.AlterPartitionReassignments.Request
    cases: list[tuple[str, int, list[int] | None, ErrorCode]] = [
        ("a", 0, [NODE], ErrorCode.NONE),
        ("a", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("a", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 0, [NODE, NODE], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 0, [NODE, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 0, [2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("a", 1, [NODE], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("x", 0, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    asked = [
        Request.Topic(name=name, partitions=[Request.Partition(partition_index=number, replicas=replicas)])
        for name, number, replicas, _ in cases
    ]
    response = world.send(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, topics=asked)
    assert response.error_code == 0
    assert [each.error_code for topic in response.responses for each in topic.partitions] == [case[3] for case in cases]
    world.allow(DESCRIBE)
    refused = world.send(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, topics=asked)
    assert (refused.error_code, refused.responses) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_no_reassignment_is_in_progress(world: World) -> None:
    world.topics.create("a", 1)
    response = world.send(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None)
    assert (response.error_code, response.topics) == (0, [])
    world.allow(ALTER)
    response = world.send(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# ---- cluster ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_this_broker(world: World, version: int) -> None:
    response = world.send(ApiKey.DESCRIBE_CLUSTER, version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "cluster", NODE)
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [(NODE, "localhost", 9092)]
    assert response.cluster_authorized_operations == -(2**31)


def test_operations_on_the_cluster_are_shown_to_clients_that_may_describe_it(world: World) -> None:
    def operations() -> int:
        response = world.send(ApiKey.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True)
        return int(response.cluster_authorized_operations)

    assert operations() == sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
    world.allow(ALTER, DESCRIBE)
    assert operations() == 1 << 7 | 1 << 8
    world.allow(ALTER)
    assert operations() == 0


def test_only_endpoints_of_brokers_are_described(world: World) -> None:
    for kind, code in [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]:
        response = world.send(ApiKey.DESCRIBE_CLUSTER, endpoint_type=kind)
        assert (response.error_code, response.brokers) == (code, [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_version_of_a_feature_cannot_be_changed(tmp_path: Path, version: int) -> None:
    Update = messages.UpdateFeatures.Request.FeatureUpdate
    with World(tmp_path, features={"transaction.version": 2}) as world:

        def update(*asked: tuple[str, int]) -> tuple[ErrorCode, list[str]]:
            updates = [Update(feature=name, max_version_level=level) for name, level in asked]
            response = world.send(ApiKey.UPDATE_FEATURES, version, feature_updates=updates)
            return CODES[response.error_code], [each.feature for each in response.results]

        named = ["transaction.version"] if version < 2 else []
        assert update(("transaction.version", 2)) == (ErrorCode.NONE, named)
        for refused in [("transaction.version", 1)], [("transaction.version", 0)], [("metadata.version", 7)]:
            assert update(*refused) == (ErrorCode.INVALID_UPDATE_VERSION, [])
        assert update(("transaction.version", 2), ("transaction.version", 2))[0] is ErrorCode.INVALID_REQUEST
        world.allow(DESCRIBE)
        assert update(("transaction.version", 2))[0] is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# ---- DescribeTopicPartitions -----------------------------------------------------------------------------------------

Pages = messages.DescribeTopicPartitions.Request


def page(world: World, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    at = None if cursor is None else Pages.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = [Pages.Topic(name=name) for name in names]
    return world.send(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=topics, response_partition_limit=limit, cursor=at)


def shown(response: Any) -> list[tuple[str, int, list[int]]]:
    return [(each.name, each.error_code, [p.partition_index for p in each.partitions]) for each in response.topics]


def all_pages(world: World, *names: str, limit: int) -> list[list[tuple[str, int, list[int]]]]:
    """What shown() returns for each page, in order."""
    pages, cursor = [], None
    for _ in range(50):
        response = page(world, *names, limit=limit, cursor=cursor)
        pages.append(shown(response))
        if response.next_cursor is None:
            return pages
        cursor = response.next_cursor.topic_name, response.next_cursor.partition_index
    raise AssertionError("the pages do not end")


def test_topics_are_described_with_their_partitions(world: World) -> None:
    info = world.topics.create("a", 2)
    world.topics.ensure_internal("__consumer_offsets")
    response = page(world, "x", "a", "a", "__consumer_offsets", "a b")
    unknown, invalid = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert shown(response) == [
        ("__consumer_offsets", 0, [0]),
        ("a", 0, [0, 1]),
        ("a b", invalid, []),
        ("x", unknown, []),
    ]
    assert [each.is_internal for each in response.topics] == [True, False, False, False]
    topic = response.topics[1]
    assert topic.topic_id == info.topic_id
    assert topic.topic_authorized_operations == sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.error_code) == (NODE, 0, 0)
    assert partition.replica_nodes == partition.isr_nodes == [NODE] and partition.offline_replicas == []


def test_pages_have_every_partition_once_in_order(world: World) -> None:
    sizes = {"a": 3, "b": 1, "c": 4}
    for name, size in sizes.items():
        world.topics.create(name, size)
    everything_once = [(name, number) for name, size in sizes.items() for number in range(size)]
    for names in ((), ("c", "b", "a")):
        for limit in (1, 2, 3, 4, 8, 100):
            pages = all_pages(world, *names, limit=limit)
            assert [(name, number) for each in pages for name, _, held in each for number in held] == everything_once
            assert all(sum(len(held) for _, _, held in each) <= limit for each in pages)


def test_a_limit_below_one_gives_pages_of_one_partition(world: World) -> None:
    world.topics.create("a", 3)
    for limit in (0, -1, -(2**31)):
        assert all_pages(world, limit=limit) == [[("a", 0, [0])], [("a", 0, [1])], [("a", 0, [2])]]


def test_the_broker_has_a_limit_of_its_own(world: World) -> None:
    world.topics.create("a", 3)
    handler = TopicPages(world.topics, lambda *_: Placement(NODE, [NODE], [NODE]), page_max=2).describe_topic_partitions
    context = FakeContext(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, everything)
    response: Any = handler(context, Pages(topics=[], response_partition_limit=2000))
    assert shown(response) == [("a", 0, [0, 1])]
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("a", 2)


def test_cursors_at_topics_and_partitions_that_do_not_exist(world: World) -> None:
    world.topics.create("a", 2)
    world.topics.create("c", 2)
    assert shown(page(world, cursor=("b", 1))) == [("c", 0, [0, 1])]
    assert shown(page(world, cursor=("a", 9))) == [("a", 0, []), ("c", 0, [0, 1])]
    assert shown(page(world, cursor=("d", 0))) == []
    assert shown(page(world, "a", cursor=("b", 0))) == [("a", ErrorCode.INVALID_REQUEST, [])]
    assert shown(page(world, "a", cursor=("a", -1))) == [("a", ErrorCode.INVALID_REQUEST, [])]


def test_topics_that_may_not_be_described_are_left_out_or_refused(world: World) -> None:
    for name in ("a", "b"):
        world.topics.create(name, 1)
    world.allow(("DESCRIBE", "TOPIC", "b"))
    assert shown(page(world)) == [("b", 0, [0])]
    response = page(world, "a", "b", "x")
    refused = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert shown(response) == [("b", 0, [0]), ("a", refused, []), ("x", refused, [])]
    assert {each.topic_id for each in response.topics[1:]} == {NO_ID}
    assert response.topics[0].topic_authorized_operations == 1 << 8
    assert shown(page(world, cursor=("a", 7))) == [("b", 0, [0])]


def test_a_partition_in_an_offline_directory_is_shown_offline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topics.create("a", 2)
    offline(world, monkeypatch, "a", 1)
    good, bad = page(world, "a").topics[0].partitions
    assert good.error_code == 0
    assert (bad.error_code, bad.leader_id, bad.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [NODE])


# ---- the quorum ------------------------------------------------------------------------------------------------------


def quorum(world: World, topic: str, partition: int, version: int = 2) -> Any:
    asked = messages.DescribeQuorum.Request
    topics = [asked.Topic(topic_name=topic, partitions=[asked.Partition(partition_index=partition)])]
    return world.send(ApiKey.DESCRIBE_QUORUM, version, topics=topics)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_this_broker(world: World, version: int) -> None:
    found = quorum(world, "__cluster_metadata", 0, version)
    assert found.error_code == 0
    (partition,) = found.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, NODE, 1)
    assert [each.replica_id for each in partition.current_voters] == [NODE] and not partition.observers
    nodes = [(node.node_id, each.name, each.host, each.port) for node in found.nodes for each in node.listeners]
    assert nodes == ([(NODE, "PLAINTEXT", "localhost", 9092)] if version == 2 else [])


@pytest.mark.parametrize(("topic", "partition"), [("__cluster_metadata", 1), ("t", 0)])
def test_only_the_metadata_log_has_a_quorum(world: World, topic: str, partition: int) -> None:
    assert quorum(world, topic, partition).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_describing_the_quorum_needs_describe_on_the_cluster(world: World) -> None:
    world.deny(("DESCRIBE", "CLUSTER", "kafka-cluster"))
    assert quorum(world, "__cluster_metadata", 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
