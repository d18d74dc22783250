"""Authorization, and the requests of administrators: WriteTxnMarkers, DescribeTransactions, ListTransactions,
DescribeProducers. Also the calls of the handlers of Produce and TxnOffsetCommit.

Kafka: KafkaApisTest, TransactionStateManagerTest, TransactionCoordinatorTest.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from klog.coordinator.transactions import as_produce_error
from klog.errors import StorageOffline
from klog.protocol import ApiKey, ErrorCode, messages
from tests.support.patience import PATIENCE
from tests.support.transactions import ERRORS, NOW, OFFSETS, TOPIC, Cluster, Producer

CLUSTER = "kafka-cluster"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def started(cluster: Cluster, version: int = 2, name: str = "t") -> Producer:
    producer = Producer(cluster, name, version)
    assert producer.init() is ErrorCode.NONE
    return producer


def test_no_client_adds_an_internal_topic_to_its_transaction(cluster: Cluster) -> None:
    """Markers among the states of a coordinator."""
    producer = started(cluster, 1)
    for name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        cluster.topics.ensure_internal(name)
        assert producer.add(0, topic=name) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


# ---- authorization -------------------------------------------------------------------------------------------------


def test_a_transactional_id_needs_write(cluster: Cluster) -> None:
    producer = started(cluster, 1)
    cluster.denied = {("WRITE", "TRANSACTIONAL_ID", "t")}
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer.init() is error
    assert producer.add(0, 1) == [error, error]
    assert producer.add_offsets() is error
    assert producer.commit() is error
    assert cluster.state("t") == "Empty"
    assert started(cluster, name="u").send(0, b"v") is ErrorCode.NONE


def test_a_topic_needs_write_and_a_group_read(cluster: Cluster) -> None:
    cluster.manager.create_topic("other", 1)
    producer = started(cluster, 1)
    cluster.denied = {("WRITE", "TOPIC", "other"), ("READ", "GROUP", "g")}
    assert producer.add(0, topic="other") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert producer.add(0, topic=TOPIC) == [ErrorCode.NONE]
    assert producer.add_offsets("g") is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert producer.add_offsets("h") is ErrorCode.NONE


def test_idempotent_producers_need_the_cluster_or_some_topic(cluster: Cluster) -> None:
    request = messages.InitProducerId.Request(transactional_id=None)
    cluster.denied = {("IDEMPOTENT_WRITE", "CLUSTER", CLUSTER)}
    assert cluster.ask(ApiKey.INIT_PRODUCER_ID, request).error_code == ErrorCode.NONE
    cluster.denied.add(("WRITE", "TOPIC", "*"))
    refused = cluster.ask(ApiKey.INIT_PRODUCER_ID, request)
    assert (refused.error_code, refused.producer_id) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)


def test_apis_between_brokers_need_cluster_action(cluster: Cluster) -> None:
    producer = started(cluster)
    producer.send(0, b"v")
    cluster.denied = {("CLUSTER_ACTION", "CLUSTER", CLUSTER)}
    added = cluster.ask(ApiKey.ADD_PARTITIONS_TO_TXN, messages.AddPartitionsToTxn.Request())
    assert added.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert write_marker(cluster, producer, 0) == [ErrorCode.NONE]  # ALTER is enough
    cluster.denied.add(("ALTER", "CLUSTER", CLUSTER))
    assert write_marker(cluster, producer, 0) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert len(cluster.control(0)) == 1


# ---- WriteTxnMarkers -----------------------------------------------------------------------------------------------


def write_marker(
    cluster: Cluster, producer: Producer, *partitions: int, topic: str = TOPIC, api_version: int = 2, **fields: Any
) -> list[ErrorCode]:
    request = messages.WriteTxnMarkers.Request
    marker = request.Marker(
        **{
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "coordinator_epoch": 0,
            "topics": [request.Topic(name=topic, partition_indexes=list(partitions))],
            **fields,
        }
    )
    response = cluster.ask(ApiKey.WRITE_TXN_MARKERS, request(markers=[marker]), api_version)
    assert [each.producer_id for each in response.markers] == [marker.producer_id]
    return [ERRORS[each.error_code] for each in response.markers[0].topics[0].partitions]


@pytest.mark.parametrize("api_version", [1, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_markers_of_a_request(cluster: Cluster, api_version: int, committed: bool) -> None:
    producer = started(cluster, 1)
    producer.append(0, b"a")
    errors = write_marker(cluster, producer, 0, 1, 7, api_version=api_version, transaction_result=committed)
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.values(0) == ([b"a"] if committed else []) and not cluster.is_hanging(0)
    assert cluster.markers == []


def test_a_marker_in_the_offsets_topic_is_reported(cluster: Cluster) -> None:
    producer = started(cluster)
    assert write_marker(cluster, producer, 0, topic=OFFSETS, transaction_result=True) == [ErrorCode.NONE]
    assert cluster.markers == [(0, producer.id, True)]


def test_markers_that_are_refused(cluster: Cluster) -> None:
    producer = started(cluster)
    producer.send(0, b"a")
    producer.commit()
    assert write_marker(cluster, producer, 0, producer_epoch=0) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert write_marker(cluster, producer, 0, coordinator_epoch=-1) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert write_marker(cluster, producer, 0, producer_id=-1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert write_marker(cluster, producer, 0, producer_epoch=-7) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    cluster.topics.faults[TOPIC, 0] = OSError(errno.EIO, "bad")
    assert write_marker(cluster, producer, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    cluster.topics.faults[TOPIC, 0] = StorageOffline("gone")
    assert write_marker(cluster, producer, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_late_marker_of_version_2_does_not_end_a_later_transaction(cluster: Cluster) -> None:
    producer = started(cluster)
    producer.send(0, b"a")
    producer.commit()
    assert write_marker(cluster, producer, 0, transaction_version=2) == [ErrorCode.NONE]  # a repeated marker
    producer.send(0, b"b")
    assert write_marker(cluster, producer, 0, transaction_version=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert cluster.is_hanging(0)
    later = producer.epoch + 1
    assert write_marker(cluster, producer, 0, transaction_version=2, producer_epoch=later) == [ErrorCode.NONE]
    assert not cluster.is_hanging(0)


# ---- describe and list ---------------------------------------------------------------------------------------------


def test_a_transaction_is_described(cluster: Cluster) -> None:
    cluster.manager.create_topic("other", 1)
    producer = started(cluster)
    producer.send(2, b"a")
    producer.send(0, b"a")
    producer.send(0, b"a", topic="other")
    cluster.clock.advance(5)
    found = cluster.described("t")
    assert (found.error_code, found.transactional_id, found.transaction_state) == (0, "t", "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (0, 0)
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (60_000, NOW)
    assert [(each.topic, each.partitions) for each in found.topics] == [(TOPIC, [0, 2]), ("other", [0])]
    cluster.denied = {("DESCRIBE", "TOPIC", TOPIC)}
    assert [each.topic for each in cluster.described("t").topics] == ["other"]
    cluster.denied = {("DESCRIBE", "TRANSACTIONAL_ID", "t")}
    hidden = cluster.described("t")
    assert hidden.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (hidden.transaction_state, hidden.producer_id, hidden.topics) == ("", 0, [])
    assert cluster.described("unknown").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert cluster.described("").error_code == ErrorCode.INVALID_REQUEST


def listed(cluster: Cluster, api_version: int = 2, **filters: Any) -> list[str]:
    request = messages.ListTransactions.Request(**filters)
    response = cluster.ask(ApiKey.LIST_TRANSACTIONS, request, api_version)
    assert response.error_code == ErrorCode.NONE
    return [each.transactional_id for each in response.transaction_states]


def test_transactions_are_listed_by_filters(cluster: Cluster) -> None:
    producers = {name: started(cluster, name=name) for name in ("t1", "t2", "t3", "u1")}
    producers["t1"].send(0, b"v")
    cluster.clock.advance(1000)
    producers["t2"].send(0, b"v")
    producers["t3"].send(0, b"v")
    producers["t3"].commit()
    for api_version in range(3):
        assert listed(cluster, api_version) == ["t1", "t2", "t3", "u1"]
    assert listed(cluster, state_filters=["Ongoing"]) == ["t1", "t2"]
    assert listed(cluster, state_filters=["Ongoing", "CompleteCommit"]) == ["t1", "t2", "t3"]
    assert listed(cluster, state_filters=["Nothing"]) == []
    assert listed(cluster, producer_id_filters=[producers["t2"].id, 77]) == ["t2"]
    assert listed(cluster, duration_filter=0, state_filters=["Ongoing"]) == ["t1"]
    assert listed(cluster, duration_filter=999, state_filters=["Ongoing"]) == ["t1"]
    assert listed(cluster, duration_filter=1000, state_filters=["Ongoing"]) == []
    assert listed(cluster, transactional_id_pattern="t[12]") == ["t1", "t2"]
    assert listed(cluster, transactional_id_pattern="t") == []
    assert listed(cluster, transactional_id_pattern="") == ["t1", "t2", "t3", "u1"]
    cluster.denied = {("DESCRIBE", "TRANSACTIONAL_ID", "t2")}
    assert listed(cluster) == ["t1", "t3", "u1"]


def test_unknown_states_and_invalid_patterns(cluster: Cluster) -> None:
    request = messages.ListTransactions.Request(state_filters=["Ongoing", "Odd", "ongoing"])
    assert cluster.ask(ApiKey.LIST_TRANSACTIONS, request).unknown_state_filters == ["Odd", "ongoing"]
    request = messages.ListTransactions.Request(transactional_id_pattern="(")
    assert cluster.ask(ApiKey.LIST_TRANSACTIONS, request).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def described_producers(cluster: Cluster, *partitions: int, topic: str = TOPIC) -> list[Any]:
    request = messages.DescribeProducers.Request
    asked = request(topics=[request.Topic(name=topic, partition_indexes=list(partitions))])
    (found,) = cluster.ask(ApiKey.DESCRIBE_PRODUCERS, asked).topics
    assert [each.partition_index for each in found.partitions] == list(partitions)
    return list(found.partitions)


def test_the_producers_of_partitions(cluster: Cluster) -> None:
    producer, other = started(cluster), started(cluster, name="other")
    producer.send(0, b"a", b"b")
    producer.commit()
    other.send(0, b"c")
    with_two, without = described_producers(cluster, 0, 1)
    assert without.active_producers == []
    found = [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in with_two.active_producers
    ]
    assert found == [(0, 1, -1, 0, -1), (1, 0, 0, -1, 3)]
    assert [each.last_timestamp for each in with_two.active_producers] == [NOW, NOW]
    assert [each.error_code for each in described_producers(cluster, 3, -1)] == [3, 3]
    cluster.denied = {("READ", "TOPIC", TOPIC)}
    (hidden,) = described_producers(cluster, 0)
    assert (hidden.error_code, hidden.active_producers) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_the_error_of_a_topic_is_that_of_all_its_partitions(cluster: Cluster, topic: str, error: ErrorCode) -> None:
    cluster.denied = {("READ", "TOPIC", "secret"), ("READ", "TOPIC", "no/name")}
    found = described_producers(cluster, 0, 7, topic=topic)
    assert [each.error_code for each in found] == [error, error]


# ---- for Produce and TxnOffsetCommit -------------------------------------------------------------------------------


def test_a_partition_is_verified(cluster: Cluster) -> None:
    producer = started(cluster, 1)
    verify = cluster.coordinator.verify
    assert verify("t", 0, 0, TOPIC, 0) is ErrorCode.TRANSACTION_ABORTABLE
    producer.add(0)
    assert verify("t", 0, 0, TOPIC, 0) is ErrorCode.NONE
    assert verify("t", 0, 0, TOPIC, 1) is ErrorCode.TRANSACTION_ABORTABLE
    assert verify("t", 0, 1, TOPIC, 0) is ErrorCode.PRODUCER_FENCED
    assert verify("t", 1, 0, TOPIC, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert verify("u", 0, 0, TOPIC, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert verify("", 0, 0, TOPIC, 0) is ErrorCode.INVALID_REQUEST
    cluster.topics.faults[TOPIC, 0] = OSError(errno.EIO, "bad")
    producer.commit()
    assert verify("t", 0, 0, TOPIC, 0) is ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.topics.faults.clear()
    cluster.clock.advance(1000)
    assert verify("t", 0, 0, TOPIC, 0) is ErrorCode.TRANSACTION_ABORTABLE


def test_several_partitions_are_added_with_one_record(cluster: Cluster) -> None:
    producer = started(cluster)
    add = cluster.coordinator.add_partitions_implicitly
    assert add("t", producer.id, producer.epoch, [(TOPIC, 0), (TOPIC, 2)]) is ErrorCode.NONE
    assert len(cluster.states_in_log("t")) == 2
    assert cluster.coordinator.verify("t", producer.id, producer.epoch, TOPIC, 2) is ErrorCode.NONE


def test_a_transaction_does_not_end_while_it_is_held(cluster: Cluster) -> None:
    """Without hold() the append would begin a transaction after the marker, and nothing would end it."""
    producer = started(cluster, 1)
    assert producer.add(0) == [ErrorCode.NONE]
    ending = Thread(target=producer.commit)
    with cluster.coordinator.hold("t"):
        assert cluster.coordinator.verify("t", producer.id, producer.epoch, TOPIC, 0) is ErrorCode.NONE
        ending.start()
        ending.join(0.05)
        assert ending.is_alive()
        producer.append(0, b"a")
    ending.join(PATIENCE)
    assert cluster.values(0) == [b"a"] and not cluster.is_hanging(0)
    with cluster.coordinator.hold("unknown"):
        pass


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        ("NONE", 9, "NONE"),
        ("PRODUCER_FENCED", 12, "INVALID_PRODUCER_EPOCH"),
        ("TRANSACTION_ABORTABLE", 10, "INVALID_TXN_STATE"),
        ("TRANSACTION_ABORTABLE", 11, "TRANSACTION_ABORTABLE"),
        ("CONCURRENT_TRANSACTIONS", 11, "NOT_ENOUGH_REPLICAS"),
        ("CONCURRENT_TRANSACTIONS", 12, "CONCURRENT_TRANSACTIONS"),
        ("COORDINATOR_LOAD_IN_PROGRESS", 12, "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_NOT_AVAILABLE", 12, "NOT_ENOUGH_REPLICAS"),
        ("NOT_COORDINATOR", 12, "NOT_ENOUGH_REPLICAS"),
        ("INVALID_PRODUCER_ID_MAPPING", 12, "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
def test_errors_of_a_produce_response(error: str, version: int, expected: str) -> None:
    assert as_produce_error(ErrorCode[error], version) is ErrorCode[expected]
