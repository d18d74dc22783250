"""TestBroker(brokers=3): clients see three brokers, and must find the leader or the coordinator."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import pytest

from klog.coordinator import CoordinatorLog
from klog.errors import InvalidConfig, UnknownTopicOrPartition
from klog.protocol import ApiKey, ErrorCode, messages
from klog.record import encode
from klog.testing import TestBroker
from klog.testing.waiting import wait_for
from tests.support.patience import KAFKA_PYTHON_PRODUCER, PATIENCE
from tests.support.wire_client import WireClient
from tests.testing.test_control import call
from tests.testing.test_group import CONFIG, join

NOT_LEADER, NOT_COORDINATOR = int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.NOT_COORDINATOR)


def clients(b: TestBroker, stack: ExitStack) -> list[WireClient]:
    """Return a connection to each running broker, in the order of their ids."""
    return [stack.enter_context(WireClient(each)) for each in b.bootstrap_servers.split(",")]


def produced(client: WireClient, partition: int, value: bytes = b"v", acks: int = 1) -> int:
    Request = messages.Produce.Request
    asked = Request.Partition(index=partition, records=encode([(b"k", value, 1_700_000_000_000)]))
    found = client.call(
        ApiKey.PRODUCE, 9, acks=acks, timeout_ms=1000, topic_data=[Request.Topic(name="orders", partition_data=[asked])]
    )
    code: int = found.responses[0].partition_responses[0].error_code
    return code


def fetched(client: WireClient, partition: int, max_wait_ms: int = 0) -> int:
    client.send(ApiKey.FETCH, 4, fetch_request(partition, max_wait_ms))
    code: int = client.receive(ApiKey.FETCH, 4).responses[0].partitions[0].error_code
    return code


def fetch_request(partition: int, max_wait_ms: int) -> Any:
    Request = messages.Fetch.Request
    asked = Request.Partition(partition=partition, fetch_offset=0, partition_max_bytes=1000)
    return Request(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1000, topics=[Request.Topic(topic="orders", partitions=[asked])]
    )


def leaders(client: WireClient) -> tuple[dict[int, int], dict[int, int]]:
    """Return ({partition: leader}, {broker: port})."""
    found = client.call(ApiKey.METADATA, 9, topics=[messages.Metadata.Request.Topic(name="orders")])
    assert all(each.leader_id == each.isr_nodes[0] for each in found.topics[0].partitions)
    return (
        {each.partition_index: each.leader_id for each in found.topics[0].partitions},
        {each.node_id: each.port for each in found.brokers},
    )


def test_only_the_leader_accepts_requests() -> None:
    with TestBroker(brokers=3, topics={"orders": 4}) as b, ExitStack() as stack:
        assert b.broker_ids == (1, 2, 3)
        first, second, third = clients(b, stack)
        ports = [int(each.rpartition(":")[2]) for each in b.bootstrap_servers.split(",")]
        assert len(set(ports)) == 3
        for client in (first, second, third):
            assert leaders(client) == ({0: 1, 1: 2, 2: 3, 3: 1}, dict(zip((1, 2, 3), ports, strict=True)))
        assert [produced(first, number) for number in range(4)] == [0, NOT_LEADER, NOT_LEADER, 0]
        assert [produced(third, number) for number in range(4)] == [NOT_LEADER, NOT_LEADER, 0, NOT_LEADER]
        assert [len(b.topic("orders").records(number)) for number in range(4)] == [1, 0, 1, 1]
        assert [fetched(second, number) for number in range(4)] == [NOT_LEADER, 0, NOT_LEADER, NOT_LEADER]
        asked = messages.ListOffsets.Request
        found = second.call(
            ApiKey.LIST_OFFSETS,
            5,
            topics=[
                asked.Topic(
                    name="orders", partitions=[asked.Partition(partition_index=each, timestamp=-1) for each in range(3)]
                )
            ],
        )
        assert [each.error_code for each in found.topics[0].partitions] == [NOT_LEADER, 0, NOT_LEADER]
        cluster = second.call(ApiKey.DESCRIBE_CLUSTER, 0)
        assert [each.broker_id for each in cluster.brokers] == [1, 2, 3]


def test_a_stopped_broker_refuses_connections_and_leads_no_partition() -> None:
    with TestBroker(brokers=3, topics={"orders": 3}) as b, ExitStack() as stack:
        first, second, third = clients(b, stack)
        address = b.bootstrap_servers.split(",")[1]
        third.send(ApiKey.FETCH, 4, fetch_request(2, max_wait_ms=60_000))
        b.stop_broker(2)
        assert second.is_closed()
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        assert leaders(first)[0] == {0: 1, 1: 3, 2: 3}
        assert sorted(leaders(first)[1]) == [1, 3]
        assert (
            produced(first, 1),
            produced(stack.enter_context(WireClient(b.bootstrap_servers.split(",")[1])), 1),
        ) == (
            NOT_LEADER,
            0,
        )
        b.stop_broker(1)
        with pytest.raises(ValueError, match="last one"):
            b.stop_broker(3)
        b.start_broker(1)
        b.start_broker(2)
        assert address in b.bootstrap_servers
        with WireClient(address) as again:
            assert leaders(again)[0] == {0: 1, 1: 2, 2: 3}
            assert produced(again, 1, b"w") == 0
        assert b.topic("orders").values(1) == [b"v", b"w"]
        b.restart()
        assert address in b.bootstrap_servers
        with pytest.raises(ValueError, match="the brokers are 1, 2, 3"):
            b.stop_broker(4)


def test_a_fetch_that_waits_is_notified_when_its_leader_moves() -> None:
    with TestBroker(brokers=2, topics={"orders": 2}) as b, ExitStack() as stack:
        first, second = clients(b, stack)
        b.stop_broker(2)
        first.send(ApiKey.FETCH, 4, fetch_request(1, max_wait_ms=3_600_000))
        wait_for(lambda: b.metrics()["PurgatorySize.Fetch"] >= 1, PATIENCE, lambda: "no fetch waits")
        b.start_broker(2)
        assert first.receive(ApiKey.FETCH, 4).responses[0].partitions[0].error_code == NOT_LEADER
        assert second.is_closed()


def test_groups_and_transactions_are_only_on_their_coordinators() -> None:
    with TestBroker(brokers=3, topics=["orders"], config=CONFIG) as b, ExitStack() as stack:
        by_id = dict(zip(b.broker_ids, clients(b, stack), strict=True))
        coordinators = {}
        for group in ("a", "b", "c"):
            found = by_id[1].call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group]).coordinators[0]
            assert found.error_code == 0
            coordinators[group] = found.node_id
        assert sorted(coordinators.values()) == [1, 2, 3]
        for group, coordinator in coordinators.items():
            join(by_id[coordinator], group, "orders")
            for node_id, client in by_id.items():
                beat = client.call(ApiKey.HEARTBEAT, 3, group_id=group, generation_id=1, member_id="nobody")
                assert (beat.error_code == NOT_COORDINATOR) is (node_id != coordinator)
                listed = [each.group_id for each in client.call(ApiKey.LIST_GROUPS, 4).groups]
                assert (group in listed) is (node_id == coordinator)
        described = by_id[coordinators["a"]].call(ApiKey.DESCRIBE_GROUPS, 5, groups=["a", "b"]).groups
        assert {each.group_id: each.error_code for each in described} == {"a": 0, "b": NOT_COORDINATOR}
        asked = messages.OffsetFetch.Request.Group
        offsets = by_id[coordinators["a"]].call(
            ApiKey.OFFSET_FETCH, 8, groups=[asked(group_id=each, topics=None) for each in "ab"]
        )
        assert {each.group_id: each.error_code for each in offsets.groups} == {"a": 0, "b": NOT_COORDINATOR}
        coordinator = (
            by_id[1].call(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["t"]).coordinators[0].node_id
        )
        for node_id, client in by_id.items():
            made = client.call(ApiKey.INIT_PRODUCER_ID, 3, transactional_id="t", transaction_timeout_ms=1000)
            assert made.error_code == (0 if node_id == coordinator else NOT_COORDINATOR)
        assert by_id[1].call(ApiKey.INIT_PRODUCER_ID, 3, transactional_id=None).error_code == 0
        b.stop_broker(coordinators["a"])
        moved = next(client for node_id, client in by_id.items() if node_id != coordinators["a"])
        found = moved.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["a"]).coordinators[0]
        assert found.node_id != coordinators["a"]
        described = by_id[found.node_id].call(ApiKey.DESCRIBE_GROUPS, 5, groups=["a"]).groups
        assert described[0].group_state == "Stable"


def test_a_test_can_move_leaders_and_coordinators() -> None:
    with (
        TestBroker(brokers=3, topics={"orders": 2, "other": 1}, config=CONFIG, control=True) as b,
        ExitStack() as stack,
    ):
        by_id = dict(zip(b.broker_ids, clients(b, stack), strict=True))
        by_id[1].send(ApiKey.FETCH, 4, fetch_request(0, max_wait_ms=3_600_000))
        wait_for(lambda: b.metrics()["PurgatorySize.Fetch"] >= 1, PATIENCE, lambda: "no fetch waits")
        b.move_leader("orders", 0, 3)
        assert by_id[1].receive(ApiKey.FETCH, 4).responses[0].partitions[0].error_code == NOT_LEADER
        assert leaders(by_id[2])[0] == {0: 3, 1: 2}
        assert (b.leader(0), b.leader(0, "orders"), b.leader(0, "other")) == (1, 3, 1)
        assert [produced(by_id[each], 0) for each in (1, 3)] == [NOT_LEADER, 0]
        page = by_id[2].call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=10)
        found = {topic.name: [each.leader_id for each in topic.partitions] for topic in page.topics}
        assert (found["orders"], found["other"]) == ([3, 2], [1])
        coordinator = b.coordinator("billing")
        join(by_id[coordinator], "billing", "orders")
        moved_to = coordinator % 3 + 1
        b.move_coordinator("billing", moved_to)
        found_coordinator = (
            by_id[1].call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["billing"]).coordinators[0]
        )
        assert (found_coordinator.node_id, b.coordinator("billing")) == (moved_to, moved_to)
        codes = [
            by_id[each].call(ApiKey.DESCRIBE_GROUPS, 5, groups=["billing"]).groups[0].error_code
            for each in (coordinator, moved_to)
        ]
        assert codes == [NOT_COORDINATOR, 0]
        b.stop_broker(3)
        assert leaders(by_id[2])[0][0] == 1
        b.start_broker(3)
        assert b.leader(0, "orders") == 3
        assert call(b.control_url, "POST", "/leaders", {"topic": "orders", "partition": 0, "broker": 2}) == (200, {})
        assert call(b.control_url, "POST", "/coordinators", {"group": "billing", "broker": 2}) == (200, {})
        assert (b.leader(0, "orders"), b.coordinator("billing")) == (2, 2)
        with pytest.raises(ValueError, match="the brokers are 1, 2, 3"):
            b.move_leader("orders", 0, 4)
        with pytest.raises(UnknownTopicOrPartition):
            b.move_leader("orders", 2, 1)


def epochs(client: WireClient) -> list[int]:
    """Return the leader epochs of all partitions."""
    found = client.call(ApiKey.METADATA, 9, topics=[messages.Metadata.Request.Topic(name="orders")])
    return [each.leader_epoch for each in found.topics[0].partitions]


def codes_of_epochs(client: WireClient, epochs: Iterable[int]) -> set[tuple[int, ...]]:
    """Return the error codes of each API for partition 0 with these leader epochs of the client."""
    Fetch, Offsets, Ends = messages.Fetch.Request, messages.ListOffsets.Request, messages.OffsetForLeaderEpoch.Request
    fetches, offsets, ends = [], [], []
    for epoch in epochs:
        asked = Fetch.Partition(fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=epoch)
        topics = [Fetch.Topic(topic="orders", partitions=[asked])]
        found = client.call(ApiKey.FETCH, 12, max_bytes=1000, topics=topics, session_epoch=-1)
        fetches.append(found.responses[0].partitions[0].error_code)
        listed = Offsets.Partition(timestamp=-1, current_leader_epoch=epoch)
        found = client.call(ApiKey.LIST_OFFSETS, 6, topics=[Offsets.Topic(name="orders", partitions=[listed])])
        offsets.append(found.topics[0].partitions[0].error_code)
        end = Ends.Partition(leader_epoch=0, current_leader_epoch=epoch)
        found = client.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=[Ends.Topic(topic="orders", partitions=[end])])
        ends.append(found.topics[0].partitions[0].error_code)
    return {tuple(fetches), tuple(offsets), tuple(ends)}


def test_leader_epochs_rise_when_leaders_move() -> None:
    fenced, unknown = int(ErrorCode.FENCED_LEADER_EPOCH), int(ErrorCode.UNKNOWN_LEADER_EPOCH)
    with TestBroker(brokers=3, topics={"orders": 2}) as b, ExitStack() as stack:
        first, second, third = clients(b, stack)
        assert (epochs(first), produced(first, 0)) == ([0, 0], 0)
        b.move_leader("orders", 0, 3)
        b.move_leader("orders", 0, 2)
        b.move_leader("orders", 0, 2)  # it leads it already
        assert (epochs(first), produced(second, 0)) == ([2, 0], 0)
        assert codes_of_epochs(second, (-1, 0, 1, 2, 3)) == {(0, fenced, fenced, 0, unknown)}
        assert codes_of_epochs(first, (-1, 1, 2, 3)) == {(NOT_LEADER, fenced, NOT_LEADER, unknown)}
        assert [record.leader_epoch for record in b.topic("orders").records(0)] == [0, 2]
        Ends = messages.OffsetForLeaderEpoch.Request
        asked = [Ends.Partition(leader_epoch=epoch, current_leader_epoch=2) for epoch in range(4)]
        found = second.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=[Ends.Topic(topic="orders", partitions=asked)])
        ends = [(each.leader_epoch, each.end_offset) for each in found.topics[0].partitions]
        assert ends == [(0, 1), (0, 1), (2, 2), (-1, -1)]
        b.stop_broker(2)
        assert (leaders(first)[0], epochs(first)) == ({0: 3, 1: 3}, [3, 1])
        b.start_broker(2)
        assert (leaders(first)[0], epochs(first)) == ({0: 2, 1: 2}, [4, 2])
        b.stop_broker(1)  # it leads none of them
        assert epochs(third) == [4, 2]
        b.restart()
        assert epochs(stack.enter_context(WireClient(b.bootstrap_servers.split(",")[0]))) == [5, 3]


def test_the_leader_epoch_of_a_coordinator_is_in_its_markers() -> None:
    Topic = messages.AddPartitionsToTxn.Request.Topic
    with TestBroker(brokers=2, topics=["orders"]) as b, ExitStack() as stack:
        by_id = dict(zip(b.broker_ids, clients(b, stack), strict=True))
        log = b.logs.log("orders", 0)

        def ended_transaction() -> int:
            """Commit an empty transaction, and return the epoch of the coordinator in its marker."""
            found = by_id[1].call(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["t"])
            client, end = by_id[found.coordinators[0].node_id], log.log_end_offset
            made = client.call(ApiKey.INIT_PRODUCER_ID, 3, transactional_id="t", transaction_timeout_ms=60_000)
            added = client.call(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=made.producer_id,
                v3_and_below_producer_epoch=made.producer_epoch,
                v3_and_below_topics=[Topic(name="orders", partitions=[0])],
            )
            assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
            ended = client.call(
                ApiKey.END_TXN,
                3,
                transactional_id="t",
                producer_id=made.producer_id,
                producer_epoch=made.producer_epoch,
                committed=True,
            )
            assert ended.error_code == 0
            wait_for(lambda: log.log_end_offset > end, PATIENCE, lambda: "no marker")
            return log.producers[made.producer_id].coordinator_epoch

        assert ended_transaction() == 0
        number = CoordinatorLog(b.broker.topics, "__transaction_state").partition_for("t")
        b.move_leader("__transaction_state", number, 3 - b.leader(number, "__transaction_state"))
        assert ended_transaction() == 1


def test_a_producer_follows_a_leader() -> None:
    kafka: Any = pytest.importorskip("kafka", reason="needs: kafka-python")
    with TestBroker(brokers=2, topics=["orders"]) as b:
        producer = kafka.KafkaProducer(**b.client_config("kafka-python"), **KAFKA_PYTHON_PRODUCER)
        producer.send("orders", b"before").get(PATIENCE)
        b.move_leader("orders", 0, 2)
        moved = b.watch("produce", broker=2)
        producer.send("orders", b"after").get(PATIENCE)
        producer.close()
        assert (moved.hits, b.topic("orders").values()) == (1, [b"before", b"after"])


def test_replicas_are_on_all_brokers() -> None:
    Topic = messages.CreateTopics.Request.Topic
    with TestBroker(brokers=3) as b, ExitStack() as stack:
        client = clients(b, stack)[1]
        topics = [Topic(name="t3", num_partitions=1, replication_factor=3)]
        topics.append(Topic(name="t4", num_partitions=1, replication_factor=4))
        found = client.call(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout_ms=1000).topics
        assert [each.error_code for each in found] == [0, int(ErrorCode.INVALID_REPLICATION_FACTOR)]
        asked = [messages.Metadata.Request.Topic(name="t3")]
        (partition,) = client.call(ApiKey.METADATA, 9, topics=asked).topics[0].partitions
        assert partition.replica_nodes == partition.isr_nodes == [1, 2, 3]
        b.stop_broker(1)
        (partition,) = client.call(ApiKey.METADATA, 9, topics=asked).topics[0].partitions
        assert (partition.leader_id, partition.isr_nodes, partition.offline_replicas) == (2, [2, 3], [1])
        page = client.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=10)
        assert [each.leader_id for topic in page.topics for each in topic.partitions] == [2]


@pytest.mark.parametrize("wanted", [2, 5])
def test_acks_of_all_replicas_need_enough_running_brokers(wanted: int) -> None:
    """More than there are brokers means all of them, as in Kafka."""
    topics = {"orders": {"config": {"min.insync.replicas": wanted}}}
    missing = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    with TestBroker(brokers=3, topics=topics) as b, ExitStack() as stack:
        first = clients(b, stack)[0]
        assert produced(first, 0, acks=-1) == 0
        b.stop_broker(2)
        assert produced(first, 0, acks=-1) == (0 if wanted == 2 else missing)
        b.stop_broker(3)
        assert produced(first, 0, acks=-1) == missing
        assert produced(first, 0, acks=1) == 0
        b.start_broker(2)
        b.start_broker(3)
        assert produced(first, 0, acks=-1) == 0
        assert len(b.topic("orders").records()) == (4 if wanted == 2 else 3)


def test_each_broker_has_the_same_configuration() -> None:
    Described, Altered = messages.DescribeConfigs.Request, messages.IncrementalAlterConfigs.Request
    with TestBroker(brokers=2) as b, ExitStack() as stack:
        second = clients(b, stack)[1]
        configs = [Altered.Config(name="log.retention.ms", config_operation=0, value="5000")]
        asked = [Altered.Resource(resource_type=4, resource_name="2", configs=configs)]
        assert second.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked).responses[0].error_code == 0
        named = [
            Described.Resource(resource_type=4, resource_name=str(number), configuration_keys=["log.retention.ms"])
            for number in (1, 2, 3)
        ]
        found = second.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=named).results
        assert [(each.error_code, [one.value for one in each.configs]) for each in found] == [
            (0, ["5000"]),
            (0, ["5000"]),
            (ErrorCode.INVALID_REQUEST, []),
        ]
        listed = second.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[4]).config_resources
        assert [each.resource_name for each in listed] == ["1", "2"]


def test_invalid_options_of_several_brokers() -> None:
    with pytest.raises(ValueError, match="brokers"):
        TestBroker(brokers=0)
    with pytest.raises(ValueError, match="leaves no ports"):
        TestBroker(brokers=3, listeners=["127.0.0.1:65534"])
    with pytest.raises(InvalidConfig, match="one address for 2 brokers"):
        TestBroker(brokers=2, config={"advertised.listeners": "PLAINTEXT://here:9092"})
