"""Requests of clients to the transaction coordinator: InitProducerId, partitions, EndTxn, for both transaction versions.

Kafka: TransactionCoordinatorTest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.errors import InvalidProducerEpoch
from klog.protocol import ApiKey, ErrorCode, messages
from tests.support.transactions import NOW, OFFSETS, STATE, TOPIC, Cluster, Producer

BOTH = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def started(cluster: Cluster, version: int = 2, name: str = "t") -> Producer:
    producer = Producer(cluster, name, version)
    assert producer.init() is ErrorCode.NONE
    return producer


# ---- InitProducerId ------------------------------------------------------------------------------------------------


def test_producers_without_a_transactional_id_get_ids_and_epoch_0(cluster: Cluster) -> None:
    request = messages.InitProducerId.Request(transactional_id=None)
    found = [cluster.ask(ApiKey.INIT_PRODUCER_ID, request, version) for version in range(6)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in found] == [
        (0, number, 0) for number in range(6)
    ]
    assert STATE not in cluster.manager.topics()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t", "producer_id": 3}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t", "producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t", "transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "t", "transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "t", "transaction_timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_invalid_requests(cluster: Cluster, fields: dict[str, Any], error: ErrorCode) -> None:
    request = messages.InitProducerId.Request(**{"transaction_timeout_ms": 1000, **fields})
    response = cluster.ask(ApiKey.INIT_PRODUCER_ID, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (error, -1, -1)


def test_each_start_of_a_producer_fences_the_previous_one(cluster: Cluster) -> None:
    first, second = started(cluster), started(cluster)
    assert (first.id, first.epoch, second.id, second.epoch) == (0, 0, 0, 1)
    assert first.send(0, b"late") is ErrorCode.PRODUCER_FENCED
    assert first.commit() is ErrorCode.PRODUCER_FENCED
    assert second.send(0, b"now") is ErrorCode.NONE
    assert cluster.described("t").transaction_start_time_ms == NOW


def test_a_new_transactional_id_ignores_the_producer_id_of_the_request(cluster: Cluster) -> None:
    producer = Producer(cluster)
    producer.id, producer.epoch = 500, 7
    assert producer.init(resume=True) is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (0, 0)


def test_a_producer_may_resume_with_the_epoch_that_it_knows(cluster: Cluster) -> None:
    producer = started(cluster)
    assert producer.init(resume=True) is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (0, 1)
    producer.epoch = 0  # the response was lost
    assert producer.init(resume=True) is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (0, 1)


@pytest.mark.parametrize(("api_version", "error"), [(3, "INVALID_PRODUCER_EPOCH"), (4, "PRODUCER_FENCED")])
def test_an_epoch_before_the_known_ones_is_fenced(cluster: Cluster, api_version: int, error: str) -> None:
    producer = started(cluster)
    started(cluster)
    assert producer.init(resume=True, api_version=api_version) is ErrorCode[error]


def test_another_producer_id_is_fenced(cluster: Cluster) -> None:
    producer = started(cluster)
    producer.id = 77
    assert producer.init(resume=True) is ErrorCode.PRODUCER_FENCED


def test_a_request_with_another_producer_id_aborts_no_open_transaction(cluster: Cluster) -> None:
    producer = started(cluster)
    assert producer.send(0, b"v") is ErrorCode.NONE
    other = Producer(cluster)
    other.id, other.epoch = 77, 0
    assert other.init(resume=True) is ErrorCode.PRODUCER_FENCED
    assert cluster.state("t") == "Ongoing"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("aborted_by", ["itself", "timeout", "an older producer"])
def test_a_producer_goes_on_after_an_abort_that_it_has_not_asked_for(
    cluster: Cluster, version: int, aborted_by: str
) -> None:
    """As with Kafka from 4.0 on: librdkafka resumes instead of ending a transaction whose records have timed out."""
    older, producer = started(cluster, version), started(cluster, version)
    epoch = producer.epoch
    assert producer.send(0, b"lost") is ErrorCode.NONE
    if aborted_by == "timeout":
        cluster.clock.advance(producer.timeout_ms + 60_000)
        assert cluster.state("t") == "CompleteAbort"
    elif aborted_by == "an older producer":
        assert older.init(resume=True) is ErrorCode.PRODUCER_FENCED
    assert producer.init(resume=True) is ErrorCode.NONE
    assert (producer.epoch, cluster.state("t")) == (epoch + 1, "Empty")
    producer.epoch = epoch  # the response was lost
    assert producer.init(resume=True) is ErrorCode.NONE
    assert producer.send(0, b"v") is ErrorCode.NONE and producer.commit() is ErrorCode.NONE
    assert cluster.values(0) == [b"v"]


def test_an_abort_by_another_producer_of_the_name_fences(cluster: Cluster) -> None:
    first = started(cluster)
    assert first.send(0, b"lost") is ErrorCode.NONE
    started(cluster)
    assert first.init(resume=True) is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_is_not_given_out_after_an_abort(cluster: Cluster) -> None:
    producer = exhausted(cluster)
    assert producer.send(0, b"v") is ErrorCode.NONE
    assert producer.init(resume=True) is ErrorCode.PRODUCER_FENCED


def exhausted(cluster: Cluster, epoch: int = 32_766, version: int = 2) -> Producer:
    producer = started(cluster, version)
    entry = cluster.registry.get("t")
    assert entry is not None and entry.metadata is not None
    entry.become(entry.metadata._replace(producer_epoch=epoch))
    producer.epoch = epoch
    return producer


def test_a_new_producer_id_when_the_epochs_run_out(cluster: Cluster) -> None:
    exhausted(cluster)
    producer = started(cluster)
    assert (producer.id, producer.epoch) == (1, 0)


def test_a_retry_after_a_new_producer_id(cluster: Cluster) -> None:
    producer = exhausted(cluster)
    assert producer.init(resume=True) is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (1, 0)
    producer.id, producer.epoch = 0, 32_766  # the response was lost
    assert producer.init(resume=True) is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (1, 0)
    producer.id, producer.epoch = 0, 32_765
    assert producer.init(resume=True) is ErrorCode.PRODUCER_FENCED


@BOTH
def test_a_start_aborts_the_open_transaction(cluster: Cluster, version: int) -> None:
    old = started(cluster, version)
    assert old.send(0, b"lost") is ErrorCode.NONE
    new = started(cluster, version)
    assert new.epoch == 2  # the marker has epoch 1
    assert cluster.control(0) == [("abort", 0, 1)]
    assert cluster.values(0) == [] and not cluster.is_hanging(0)
    assert [state for state, _, _ in cluster.states_in_log("t")] == [
        "Empty",
        "Ongoing",
        "PrepareAbort",
        "CompleteAbort",
        "Empty",
    ]
    with pytest.raises(InvalidProducerEpoch):
        old.append(0, b"later")
    assert new.send(0, b"found") is ErrorCode.NONE
    assert new.commit() is ErrorCode.NONE
    assert cluster.values(0) == [b"found"]


def test_fencing_may_use_the_last_epoch(cluster: Cluster) -> None:
    old = exhausted(cluster)
    assert old.send(0, b"lost") is ErrorCode.NONE
    new = started(cluster)
    assert cluster.control(0) == [("abort", 0, 32_767)]
    assert (new.id, new.epoch) == (1, 0)


# ---- partitions ----------------------------------------------------------------------------------------------------


def test_partitions_of_an_unknown_id(cluster: Cluster) -> None:
    producer = Producer(cluster, version=1)
    assert producer.add(0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    producer.name = ""
    assert producer.add(0) == [ErrorCode.INVALID_REQUEST]
    assert producer.commit() is ErrorCode.INVALID_REQUEST
    assert producer.add_offsets() is ErrorCode.INVALID_REQUEST


def test_partitions_of_another_producer(cluster: Cluster) -> None:
    producer = started(cluster, 1)
    producer.epoch = 5
    assert producer.add(0) == [ErrorCode.PRODUCER_FENCED]
    assert producer.add(0, api_version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.add_offsets() is ErrorCode.PRODUCER_FENCED
    assert producer.add_offsets(api_version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    producer.id = 9
    assert producer.add(0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("api_version", range(4))
def test_adding_partitions_begins_a_transaction(cluster: Cluster, api_version: int) -> None:
    producer = started(cluster, 1)
    assert producer.add(0, 2, api_version=api_version) == [ErrorCode.NONE] * 2
    records = len(cluster.states_in_log("t"))
    assert producer.add(2, api_version=api_version) == [ErrorCode.NONE]
    assert len(cluster.states_in_log("t")) == records  # the partition was added before, so there is no new record
    found = cluster.described("t")
    assert found.transaction_state == "Ongoing"
    assert [(each.topic, each.partitions) for each in found.topics] == [(TOPIC, [0, 2])]


def test_an_unknown_partition_keeps_the_others_from_being_added(cluster: Cluster) -> None:
    producer = started(cluster, 1)
    assert producer.add(0, 3, -1) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert producer.add(0, topic="nowhere") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add(0, topic=STATE) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert producer.add(0, topic=OFFSETS) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert cluster.state("t") == "Empty"


@pytest.mark.parametrize("verify_only", [False, True])
def test_brokers_add_or_verify_several_transactions_at_once(cluster: Cluster, verify_only: bool) -> None:
    producers = [started(cluster, 1, name) for name in ("a", "b", "c")]
    assert producers[0].add(0) == [ErrorCode.NONE]
    request = messages.AddPartitionsToTxn.Request
    transactions = [
        request.Transaction(
            transactional_id=each.name,
            producer_id=each.id,
            producer_epoch=each.epoch + (each.name == "c"),
            verify_only=verify_only,
            topics=[request.Topic(name=TOPIC, partitions=[0, 1])],
        )
        for each in producers
    ]
    response = cluster.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request(transactions=transactions))
    errors = {
        result.transactional_id: [each.partition_error_code for each in result.topic_results[0].results_by_partition]
        for result in response.results_by_transaction
    }
    fenced = [ErrorCode.PRODUCER_FENCED] * 2
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    if verify_only:
        assert errors == {"a": [0, abortable], "b": [abortable, abortable], "c": fenced}
        assert cluster.state("b") == "Empty"
    else:
        assert errors == {"a": [0, 0], "b": [0, 0], "c": fenced}
        assert cluster.state("b") == "Ongoing"


def test_a_partition_that_is_already_added_writes_no_record(cluster: Cluster) -> None:
    producer = started(cluster)
    for _ in range(3):
        assert producer.send(1, b"v") is ErrorCode.NONE
    assert len(cluster.states_in_log("t")) == 2


def test_no_client_gets_or_uses_the_last_epoch(cluster: Cluster) -> None:
    for version in (1, 2):
        producer = exhausted(cluster, 32_767, version)
        assert producer.send(0, b"v") is ErrorCode.PRODUCER_FENCED
        assert producer.commit() is ErrorCode.PRODUCER_FENCED


# ---- EndTxn --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_over_partitions_and_offsets(cluster: Cluster, version: int, committed: bool) -> None:
    producer = started(cluster, version)
    assert producer.send(0, b"a", b"b") is ErrorCode.NONE
    assert producer.send(2, b"c") is ErrorCode.NONE
    assert producer.add_offsets() is ErrorCode.NONE
    assert cluster.values(0) == [] and cluster.is_hanging(0)
    epoch = producer.epoch
    assert producer.end(committed) is ErrorCode.NONE
    assert producer.epoch == epoch + (version == 2)
    assert cluster.values(0) == ([b"a", b"b"] if committed else [])
    assert cluster.values(2) == ([b"c"] if committed else [])
    kind = "commit" if committed else "abort"
    markers = [(kind, 0, producer.epoch)]
    assert cluster.control(0) == cluster.control(2) == cluster.control(0, OFFSETS) == markers
    assert cluster.control(1) == []
    assert cluster.markers == [(0, 0, committed)]
    assert cluster.state("t") == ("CompleteCommit" if committed else "CompleteAbort")
    assert cluster.described("t").topics == []


@BOTH
def test_a_producer_may_have_one_transaction_after_the_other(cluster: Cluster, version: int) -> None:
    producer = started(cluster, version)
    for number in range(6):
        assert producer.send(number % 2, b"%d" % number) is ErrorCode.NONE
        assert producer.end(number % 3 != 0) is ErrorCode.NONE
    assert cluster.values(0) == [b"2", b"4"] and cluster.values(1) == [b"1", b"5"]


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_a_repeated_end_has_the_same_result(cluster: Cluster, version: int, committed: bool) -> None:
    producer = started(cluster, version)
    assert producer.send(0, b"a") is ErrorCode.NONE
    assert producer.end(committed) is ErrorCode.NONE
    epoch = producer.epoch
    for _ in range(2):
        producer.epoch = 0
        assert producer.end(committed) is ErrorCode.NONE
        assert producer.epoch == epoch
        producer.epoch = 0
        assert producer.end(not committed) is ErrorCode.INVALID_TXN_STATE
        cluster.start()
    assert len(cluster.control(0)) == 1


def test_ends_without_a_transaction(cluster: Cluster) -> None:
    assert Producer(cluster, "new", 1).commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert Producer(cluster, "new", 2).commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    first = started(cluster, 1)
    assert first.commit() is ErrorCode.INVALID_TXN_STATE
    assert first.abort() is ErrorCode.INVALID_TXN_STATE
    first.id = 99
    assert first.abort() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    second = started(cluster, 2)
    assert second.commit() is ErrorCode.INVALID_TXN_STATE


def test_version_2_may_abort_a_transaction_without_partitions(cluster: Cluster) -> None:
    producer = started(cluster)
    assert producer.abort() is ErrorCode.NONE  # Empty
    assert (producer.epoch, cluster.state("t")) == (1, "CompleteAbort")
    assert producer.abort() is ErrorCode.NONE  # CompleteAbort: the epoch rises again
    assert producer.epoch == 2
    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.send(0, b"v") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert producer.abort() is ErrorCode.NONE  # CompleteCommit
    assert producer.epoch == 4
    assert cluster.values(0) == [b"v"]


@pytest.mark.parametrize(("api_version", "error"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
def test_an_end_with_another_epoch(cluster: Cluster, api_version: int, error: str) -> None:
    producer = started(cluster, 1)
    producer.send(0, b"v")
    for epoch in (-1, 1, 7):
        producer.epoch = epoch
        assert producer.end(True, api_version=api_version) is ErrorCode[error]
    assert cluster.state("t") == "Ongoing"


def test_version_2_gets_a_new_producer_id_when_the_epochs_run_out(cluster: Cluster) -> None:
    producer = exhausted(cluster)
    assert producer.send(0, b"a") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (1, 0)
    assert cluster.control(0) == [("commit", 0, 32_767)]
    producer.id, producer.epoch = 0, 32_766  # the response was lost
    assert producer.abort() is ErrorCode.INVALID_TXN_STATE
    cluster.start()
    assert producer.commit() is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (1, 0)
    assert producer.send(0, b"b") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert (producer.id, producer.epoch) == (1, 1)
    assert cluster.values(0) == [b"a", b"b"]


def test_with_version_2_records_after_the_marker_are_refused(cluster: Cluster) -> None:
    producer = started(cluster)
    late = Producer(cluster)
    late.id, late.epoch = producer.id, producer.epoch
    assert producer.send(0, b"a") is ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    with pytest.raises(InvalidProducerEpoch):
        late.append(0, b"late")
    assert late.commit() is ErrorCode.NONE  # a repeated request
    assert not cluster.is_hanging(0)


def test_a_client_may_change_its_transaction_version(cluster: Cluster) -> None:
    producer = started(cluster, 1)
    producer.send(0, b"a")
    producer.version = 2
    assert producer.commit() is ErrorCode.NONE
    assert producer.epoch == 1
    producer.send(0, b"b")
    producer.version = 1
    assert producer.commit() is ErrorCode.NONE
    assert producer.epoch == 1
    assert cluster.values(0) == [b"a", b"b"]


# ---- not ready -----------------------------------------------------------------------------------------------------


def every_error(cluster: Cluster) -> set[int]:
    producer = Producer(cluster)
    listed = cluster.ask(ApiKey.LIST_TRANSACTIONS, messages.ListTransactions.Request())
    verified = cluster.coordinator.verify("t", 0, 0, TOPIC, 0)
    return {
        producer.init(),
        *producer.add(0),
        producer.add_offsets(),
        producer.commit(),
        producer.send(0, b"v"),
        cluster.described("t").error_code,
        listed.error_code,
        verified,
    }


def test_requests_before_load_and_after_close(cluster: Cluster) -> None:
    cluster.start(load=False)
    assert every_error(cluster) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    cluster.coordinator.load()
    assert Producer(cluster).init() is ErrorCode.NONE
    cluster.coordinator.close()
    cluster.coordinator.close()
    assert every_error(cluster) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
