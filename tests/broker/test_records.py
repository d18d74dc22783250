"""Produce, Fetch and ListOffsets, through a socket, in all versions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.broker import Broker
from klog.broker.context import RequestContext
from klog.protocol import ApiKey, ErrorCode, Message, messages
from klog.record import encode
from tests.support.batches import old
from tests.support.patience import PATIENCE, until
from tests.support.wire_client import WireClient

T = 1_700_000_000_000
NO_ID = uuid.UUID(int=0)
FOREVER_MS = 2 * int(PATIENCE * 1000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"]) as found:
        found.logs.create_topic("t", 2)
        yield found


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as found:
        yield found


def topic_id(broker: Broker, name: str = "t") -> uuid.UUID:
    found = broker.topics.topic_id(name)
    assert found is not None
    return found


def produce(
    client: WireClient,
    broker: Broker,
    records: Any,
    *,
    version: int = 13,
    topic: str = "t",
    partition: int = 0,
    **more: Any,
) -> Any:
    """Send records for one partition and return the response of that partition; None with acks=0."""
    Request = messages.Produce.Request
    name, number = (topic, NO_ID) if version < 13 else ("", broker.topics.topic_id(topic) or uuid.uuid4())
    asked = Request.Partition(index=partition, records=records)
    fields = {"acks": 1, "timeout_ms": 1000} | more
    topics = [Request.Topic(name=name, topic_id=number, partition_data=[asked])]
    if fields["acks"] == 0:
        client.send(ApiKey.PRODUCE, version, Request(topic_data=topics, **fields))
        return None
    response = client.call(ApiKey.PRODUCE, version, topic_data=topics, **fields)
    return response.responses[0].partition_responses[0]


def asked_partition(partition: int, offset: int, **more: Any) -> Any:
    return messages.Fetch.Request.Partition(
        partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **more}
    )


def fetch_request(broker: Broker, partitions: list[Any], *, version: int = 18, topic: str = "t", **more: Any) -> Any:
    Request = messages.Fetch.Request
    name, number = (topic, NO_ID) if version < 13 else ("", broker.topics.topic_id(topic) or uuid.uuid4())
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | more
    topics = [Request.Topic(topic=name, topic_id=number, partitions=partitions)] if partitions else []
    return Request(topics=topics, **fields)


def fetch(client: WireClient, broker: Broker, partitions: list[Any], *, version: int = 18, **more: Any) -> Any:
    client.send(ApiKey.FETCH, version, fetch_request(broker, partitions, version=version, **more))
    return client.receive(ApiKey.FETCH, version)


def values(partition: Any) -> list[bytes | None]:
    return [record.value for batch in klog.record.decode(bytes(partition.records)) for record in batch]


# ---- produce ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(ApiKey.PRODUCE.low, ApiKey.PRODUCE.high + 1))
def test_every_version_of_produce_appends(client: WireClient, broker: Broker, version: int) -> None:
    for number in range(2):
        found = produce(client, broker, encode([(b"k", b"v%d" % number, T)], compression="lz4"), version=version)
        assert (found.error_code, found.base_offset) == (0, number)
    assert [record.value for record in broker.logs.log("t").read()] == [b"v0", b"v1"]


@pytest.mark.parametrize(
    ("name", "records", "code"),
    [
        ("nothing", None, ErrorCode.INVALID_RECORD),
        ("no batch", b"", ErrorCode.INVALID_RECORD),
        ("half a batch", encode([(b"k", b"v", T)])[:40], ErrorCode.INVALID_RECORD),
        ("a batch without its last byte", encode([(b"k", b"v", T)])[:-1], ErrorCode.INVALID_RECORD),
        ("old messages", old(1, 0, 2), ErrorCode.INVALID_RECORD),
        ("a wrong checksum", encode([(b"k", b"v", T)])[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        ("two batches", encode([(b"k", b"v", T)]) * 2, ErrorCode.INVALID_RECORD),
        ("too large", encode([(b"k", bytes(2 << 20), T)]), ErrorCode.MESSAGE_TOO_LARGE),
        ("transactional without its id", encode([(b"k", b"v", T)], producer_id=1, producer_epoch=0, base_sequence=0,
                                               is_transactional=True),
         ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)  # fmt: skip
def test_a_refused_batch_gets_its_error_code_and_is_not_appended(
    client: WireClient, broker: Broker, name: str, records: bytes | None, code: ErrorCode
) -> None:
    found = produce(client, broker, records)
    assert (found.error_code, found.base_offset) == (code, -1)
    assert broker.logs.log("t").log_end_offset == 0


@pytest.mark.parametrize(("version", "code"), [(13, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (11, ErrorCode.NONE)])
def test_the_first_batch_of_a_producer_in_a_transaction(
    client: WireClient, broker: Broker, version: int, code: ErrorCode
) -> None:
    """A first batch that begins at another sequence number has overtaken one that failed. Before transaction version 2 it
    may be one whose producer was forgotten."""
    made = client.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="x", transaction_timeout_ms=60_000)

    def batch(sequence: int) -> bytes:
        return encode(
            [(b"k", b"v", T)],
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    if version < 12:
        topics = [messages.AddPartitionsToTxn.Request.Topic(name="t", partitions=[0])]
        client.call(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=topics,
        )
    assert produce(client, broker, batch(1), version=version, transactional_id="x").error_code == code
    if code is not ErrorCode.NONE:
        for sequence in (0, 1):
            assert produce(client, broker, batch(sequence), version=version, transactional_id="x").error_code == 0


@pytest.mark.parametrize("version", [12, 13])
def test_the_last_entry_for_a_partition_counts(client: WireClient, broker: Broker, version: int) -> None:
    Request = messages.Produce.Request
    name, number = ("t", NO_ID) if version < 13 else ("", topic_id(broker))

    def asked(*values: tuple[int, bytes]) -> Any:
        partitions = [Request.Partition(index=index, records=encode([(None, value, T)])) for index, value in values]
        return Request.Topic(name=name, topic_id=number, partition_data=partitions)

    topics = [asked((0, b"1"), (1, b"2"), (0, b"3")), asked((0, b"4"))]
    found = client.call(ApiKey.PRODUCE, version, acks=1, timeout_ms=1000, topic_data=topics)
    results = [each for topic in found.responses for each in topic.partition_responses]
    assert [(each.index, each.error_code, each.base_offset) for each in results] == [(0, 0, 0), (1, 0, 0)]
    assert [record.value for index in (0, 1) for record in broker.logs.log("t", index).read()] == [b"4", b"2"]


def test_unknown_partitions_are_distinguished_from_unknown_topics(client: WireClient, broker: Broker) -> None:
    records = encode([(b"k", b"v", T)])
    for version, topic, partition, code in (
        (12, "t", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12, "t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12, "u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12, "../t", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, "u", 0, ErrorCode.UNKNOWN_TOPIC_ID),
    ):
        assert produce(client, broker, records, version=version, topic=topic, partition=partition).error_code == code
    assert broker.logs.topics() == {"t": [0, 1]}


def test_a_client_cannot_write_into_an_internal_topic(client: WireClient, broker: Broker) -> None:
    broker.topics.ensure_internal("__consumer_offsets")
    found = produce(client, broker, encode([(b"k", b"v", T)]), version=12, topic="__consumer_offsets")
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_zstd_needs_version_7(client: WireClient, broker: Broker) -> None:
    records = encode([(b"k", b"v", T)], compression="zstd")
    assert produce(client, broker, records, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, broker, records, version=7).error_code == 0


def test_acks_0_has_no_response_and_an_error_closes_the_connection(client: WireClient, broker: Broker) -> None:
    produce(client, broker, encode([(b"k", b"v", T)]), acks=0)
    # The next response belongs to the next request.
    assert produce(client, broker, encode([(b"k", b"v", T)]), acks=-1).base_offset == 1
    produce(client, broker, b"", acks=0)
    assert client.is_closed()


def test_other_acks_are_refused(client: WireClient, broker: Broker) -> None:
    assert produce(client, broker, encode([(b"k", b"v", T)]), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert broker.logs.log("t").log_end_offset == 0


def test_a_repeated_batch_of_a_producer_is_appended_once(client: WireClient, broker: Broker) -> None:
    records = encode([(b"k", b"v", T)], producer_id=7, producer_epoch=0, base_sequence=0)
    assert [produce(client, broker, records).base_offset for _ in range(2)] == [0, 0]
    assert broker.logs.log("t").log_end_offset == 1
    late = encode([(b"k", b"v", T)], producer_id=7, producer_epoch=0, base_sequence=5)
    assert produce(client, broker, late).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class Failing:
    """A gate that makes the handlers of Produce fail when they complete their request."""

    def admit(self, context: RequestContext, go_on: Callable[[], None]) -> bool:
        if context.api is ApiKey.PRODUCE:
            context.before_response = self.fail
        return True

    def fail(self, response: Message | None) -> Message | None:
        raise RuntimeError("a failure of a test")


@pytest.mark.parametrize("acks", [0, 1])
def test_a_failure_of_the_broker_reaches_the_producer(tmp_path: Path, acks: int) -> None:
    """Without acks there is no response, so the connection is closed."""
    with (
        Broker(tmp_path, listeners=["127.0.0.1:0"], gates=(Failing(),)) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        broker.logs.create_topic("t", 1)
        found = produce(client, broker, encode([(b"k", b"v", T)]), acks=acks)
        if acks:
            assert found.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            assert client.is_closed()


# ---- fetch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(ApiKey.FETCH.low, ApiKey.FETCH.high + 1))
def test_every_version_of_fetch_returns_the_batches(client: WireClient, broker: Broker, version: int) -> None:
    broker.logs.log("t").append([(b"k", b"a", T)])
    broker.logs.log("t", 1).append([(b"k", b"b", T)])
    found = fetch(client, broker, [asked_partition(1, 0), asked_partition(0, 0)], version=version)
    assert [(each.partition_index, each.error_code, values(each)) for each in found.responses[0].partitions] == [
        (1, 0, [b"b"]),
        (0, 0, [b"a"]),
    ]
    assert found.responses[0].partitions[0].high_watermark == 1


def test_a_fetch_waits_for_records_and_gets_them_at_once(client: WireClient, broker: Broker) -> None:
    client.send(
        ApiKey.FETCH, 18, fetch_request(broker, [asked_partition(0, 0), asked_partition(1, 0)], max_wait_ms=60_000)
    )
    with WireClient(broker.bootstrap_servers) as other:
        produce(other, broker, encode([(b"k", b"v", T)]), partition=1)
    found = client.receive(ApiKey.FETCH, 18)
    assert [values(each) for each in found.responses[0].partitions] == [[], [b"v"]]
    until(lambda: broker.metrics()["PurgatorySize.Fetch"] == 0)


def test_a_fetch_waits_for_min_bytes(client: WireClient, broker: Broker) -> None:
    size = len(encode([(b"k", b"v", T)]))
    asked = fetch_request(broker, [asked_partition(0, 0)], max_wait_ms=60_000, min_bytes=2 * size)
    client.send(ApiKey.FETCH, 18, asked)
    with WireClient(broker.bootstrap_servers) as other:
        for _ in range(2):
            produce(other, broker, encode([(b"k", b"v", T)]))
    assert values(client.receive(ApiKey.FETCH, 18).responses[0].partitions[0]) == [b"v", b"v"]


@pytest.mark.parametrize(
    ("partition_bytes", "min_bytes", "bytes_max"), [(2500, 2500, 1 << 20), (2500, 1 << 20, 2500), (1 << 20, 3000, 2500)]
)
def test_a_fetch_does_not_wait_for_more_than_it_may_have(
    client: WireClient, broker: Broker, partition_bytes: int, min_bytes: int, bytes_max: int
) -> None:
    """A third batch does not fit."""
    for _ in range(3):
        broker.logs.log("t").append([(b"k", bytes(1000), T)])
    asked = [asked_partition(0, 0, partition_max_bytes=partition_bytes)]
    found = fetch(client, broker, asked, max_wait_ms=FOREVER_MS, min_bytes=min_bytes, max_bytes=bytes_max)
    assert len(values(found.responses[0].partitions[0])) == 2


def test_a_fetch_does_not_wait_at_the_end_of_an_older_segment(client: WireClient, broker: Broker) -> None:
    log = broker.logs.log("t")
    for _ in range(2):
        log.append([(b"k", b"v", T)])
        log.roll()
    asked = [asked_partition(0, 0)]
    found = fetch(client, broker, asked, max_wait_ms=FOREVER_MS, min_bytes=1 << 20)
    assert values(found.responses[0].partitions[0]) == [b"v"]


def test_a_fetch_waits_for_min_bytes_that_its_partitions_may_not_have(client: WireClient, broker: Broker) -> None:
    for _ in range(3):
        broker.logs.log("t").append([(b"k", bytes(1000), T)])
    both = [asked_partition(0, 0, partition_max_bytes=1500), asked_partition(1, 0, partition_max_bytes=1500)]
    client.send(ApiKey.FETCH, 18, fetch_request(broker, both, max_wait_ms=FOREVER_MS, min_bytes=2000))
    until(lambda: broker.metrics()["PurgatorySize.Fetch"])
    broker.logs.log("t", 1).append([(b"k", bytes(1000), T)])
    broker.check("t", 1)
    found = client.receive(ApiKey.FETCH, 18).responses[0].partitions
    assert [len(values(each)) for each in found] == [1, 1]


def test_a_batch_that_does_not_fit_counts_for_min_bytes(client: WireClient, broker: Broker) -> None:
    for partition in range(2):
        broker.logs.log("t", partition).append([(b"k", bytes(1000), T)])
    both = [asked_partition(0, 0), asked_partition(1, 0)]
    found = fetch(client, broker, both, max_wait_ms=FOREVER_MS, min_bytes=1500, max_bytes=1500).responses[0].partitions
    assert [len(values(each)) for each in found] == [1, 0]


def test_a_fetch_does_not_wait_before_a_segment_that_is_still_empty(client: WireClient, broker: Broker) -> None:
    log = broker.logs.log("t")
    log.append([(b"k", b"v", T)])
    log.roll()
    found = fetch(client, broker, [asked_partition(0, 0)], max_wait_ms=FOREVER_MS, min_bytes=1 << 20)
    assert values(found.responses[0].partitions[0]) == [b"v"]
    client.send(ApiKey.FETCH, 18, fetch_request(broker, [asked_partition(0, 1)], max_wait_ms=FOREVER_MS))
    until(lambda: broker.metrics()["PurgatorySize.Fetch"])
    log.append([(b"k", b"w", T)])
    broker.check("t", 0)
    assert values(client.receive(ApiKey.FETCH, 18).responses[0].partitions[0]) == [b"w"]


def test_a_waiting_fetch_counts_its_reads_alone(client: WireClient, broker: Broker) -> None:
    logs = [broker.logs.log("t", partition) for partition in range(2)]
    logs[0].append([(b"k", b"v", T)])
    fetch(client, broker, [asked_partition(0, 0), asked_partition(1, 0)], max_wait_ms=20, min_bytes=1 << 20)
    first, second = (log.metrics()["TotalFetchRequestsPerSec"] for log in logs)
    assert first == second, "each read has both partitions"


def test_a_topic_of_zstd_is_for_version_10_and_newer(client: WireClient, broker: Broker) -> None:
    broker.logs.create_topic("z", config={"compression.type": "zstd"})
    codes = [
        fetch(client, broker, [asked_partition(0, 0)], version=version, topic="z").responses[0].partitions[0].error_code
        for version in (9, 10)
    ]
    assert codes == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0]


def test_a_fetch_that_finds_nothing_gets_its_response_after_max_wait(client: WireClient, broker: Broker) -> None:
    found = fetch(client, broker, [asked_partition(0, 0)], max_wait_ms=20)
    assert values(found.responses[0].partitions[0]) == []


def test_a_waiting_fetch_gets_its_response_when_the_broker_stops(client: WireClient, broker: Broker) -> None:
    client.send(ApiKey.FETCH, 18, fetch_request(broker, [asked_partition(0, 0)], max_wait_ms=60_000))
    until(lambda: broker.metrics()["PurgatorySize.Fetch"])
    broker.stop()
    assert values(client.receive(ApiKey.FETCH, 18).responses[0].partitions[0]) == []


def test_records_that_this_process_appends_reach_a_waiting_fetch_after_check(
    client: WireClient, broker: Broker
) -> None:
    client.send(ApiKey.FETCH, 18, fetch_request(broker, [asked_partition(0, 0)], max_wait_ms=60_000))
    broker.logs.log("t").append([(b"k", b"v", T)])
    broker.check("t")
    assert values(client.receive(ApiKey.FETCH, 18).responses[0].partitions[0]) == [b"v"]


def test_max_bytes_limits_a_response_but_the_first_batch_is_always_whole(client: WireClient, broker: Broker) -> None:
    for partition in (0, 1):
        for _ in range(3):
            broker.logs.log("t", partition).append([(b"k", bytes(1000), T)])
    asked = [asked_partition(0, 0), asked_partition(1, 0)]
    found = fetch(client, broker, asked, max_bytes=10).responses[0].partitions
    assert [len(values(each)) for each in found] == [1, 0]
    found = fetch(client, broker, asked, max_bytes=2500).responses[0].partitions
    assert [len(values(each)) for each in found] == [2, 0]
    asked = [asked_partition(0, 0, partition_max_bytes=1100), asked_partition(1, 0)]
    assert [len(values(each)) for each in fetch(client, broker, asked).responses[0].partitions] == [1, 3]


def test_errors_of_partitions(client: WireClient, broker: Broker) -> None:
    broker.logs.log("t").append([(b"k", b"v", T)])
    for asked, code in (
        (asked_partition(0, 2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (asked_partition(0, -1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (asked_partition(5, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asked_partition(0, 0, current_leader_epoch=9), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        found = fetch(client, broker, [asked], max_wait_ms=60_000)  # an error does not wait
        assert found.responses[0].partitions[0].error_code == code
    found = fetch(client, broker, [asked_partition(0, 0)], topic="unknown", max_wait_ms=60_000)
    assert found.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_zero_id_is_that_of_an_unknown_topic(client: WireClient) -> None:
    Request = messages.Fetch.Request
    asked = [Request.Topic(topic_id=NO_ID, partitions=[asked_partition(0, 0)])]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    found = client.call(ApiKey.FETCH, 13, topics=asked, session_epoch=0, **fields)
    assert found.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID and found.session_id
    forgotten = [Request.ForgottenTopic(topic_id=NO_ID, partitions=[0])]
    fields |= {"session_id": found.session_id, "session_epoch": 1, "forgotten_topics_data": forgotten}
    found = client.call(ApiKey.FETCH, 13, **fields)
    assert (found.session_id, found.responses) == (0, []), "a session without partitions ends"


def test_a_fetch_of_a_replica_is_refused(client: WireClient, broker: Broker) -> None:
    """klog has no followers: a replica that fetches must not count as a copy."""
    broker.logs.log("t").append([(b"k", b"v", T)])
    found = fetch(client, broker, [asked_partition(0, 0)], version=12, replica_id=2)
    assert found.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_diverging_epoch_is_reported(client: WireClient, broker: Broker) -> None:
    log = broker.logs.log("t")

    def diverging(offset: int, epoch: int) -> tuple[int, int, int]:
        asked = asked_partition(0, offset, last_fetched_epoch=epoch)
        found = fetch(client, broker, [asked], max_wait_ms=int(offset < 3) * 60_000).responses[0].partitions[0]
        return found.error_code, found.diverging_epoch.epoch, found.diverging_epoch.end_offset

    for epoch in (3, 5, 5):
        log.append_batches(encode([(b"k", b"v", T)]), leader_epoch=epoch)
    assert [diverging(1, 2), diverging(2, 3), diverging(2, 4)] == [(0, 2, 0), (0, 3, 1), (0, 3, 1)]
    assert [diverging(0, 3), diverging(1, 3), diverging(1, 5), diverging(3, 5)] == [(0, -1, -1)] * 4
    log.delete_records(1)
    unknown, deleted = diverging(2, 6), diverging(0, 4)
    assert unknown == deleted == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)


# ---- fetch sessions --------------------------------------------------------------------------------------------------


def test_a_session_returns_only_what_has_changed(client: WireClient, broker: Broker) -> None:
    both = [asked_partition(0, 0), asked_partition(1, 0)]
    first = fetch(client, broker, both, session_id=0, session_epoch=0)
    number = first.session_id
    assert number > 0
    assert [each.partition_index for each in first.responses[0].partitions] == [0, 1]

    def more(epoch: int, partitions: list[Any] | None = None, **fields: Any) -> list[tuple[int, int]]:
        found = fetch(client, broker, partitions or [], session_id=number, session_epoch=epoch, **fields)
        assert found.error_code == 0
        assert found.session_id == number
        return [(each.partition_index, len(values(each))) for topic in found.responses for each in topic.partitions]

    assert more(1) == []
    produce(client, broker, encode([(b"k", b"v", T)]), partition=1)
    assert more(2) == [(1, 1)]
    assert more(3) == [(1, 1)]  # the consumer has asked for the same offset again
    assert more(4, [asked_partition(1, 1)]) == []
    forgotten = messages.Fetch.Request.ForgottenTopic(topic_id=topic_id(broker), partitions=[1])
    assert more(5, forgotten_topics_data=[forgotten]) == []
    produce(client, broker, encode([(b"k", b"v", T)]), partition=1)
    assert more(6) == []
    produce(client, broker, encode([(b"k", b"v", T)]), partition=0)
    assert more(7) == [(0, 1)]


def test_errors_of_sessions(client: WireClient, broker: Broker) -> None:
    number = fetch(client, broker, [asked_partition(0, 0)], session_id=0, session_epoch=0).session_id
    for session_id, epoch, version, code in (
        (number, 2, 18, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (number + 1, 1, 18, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (number, 1, 12, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        found = fetch(client, broker, [], version=version, session_id=session_id, session_epoch=epoch)
        assert (found.error_code, found.responses) == (code, [])
    assert fetch(client, broker, [asked_partition(0, 0)], session_id=number, session_epoch=-1).session_id == 0
    assert fetch(client, broker, [], session_id=number, session_epoch=1).error_code == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_a_session_without_partitions_ends(client: WireClient, broker: Broker) -> None:
    number = fetch(client, broker, [asked_partition(0, 0)], session_id=0, session_epoch=0).session_id
    forgotten = messages.Fetch.Request.ForgottenTopic(topic_id=topic_id(broker), partitions=[0])
    found = fetch(client, broker, [], session_id=number, session_epoch=1, forgotten_topics_data=[forgotten])
    assert (found.error_code, found.session_id) == (0, 0)
    assert broker.metrics()["NumIncrementalFetchSessions"] == 0


def test_slots_of_sessions_are_limited(tmp_path: Path) -> None:
    config = {"max.incremental.fetch.session.cache.slots": 2}
    with Broker(tmp_path, listeners=["127.0.0.1:0"], config=config) as broker:
        broker.logs.create_topic("t")
        with WireClient(broker.bootstrap_servers) as client:
            numbers = [
                fetch(client, broker, [asked_partition(0, 0)], session_id=0, session_epoch=0).session_id
                for _ in range(3)
            ]
    assert [number > 0 for number in numbers] == [True, True, False]


def test_a_busy_partition_does_not_starve_the_others(client: WireClient, broker: Broker) -> None:
    for partition in (0, 1):
        broker.logs.log("t", partition).append([(b"k", bytes(1000), T)])
    both = [asked_partition(0, 0), asked_partition(1, 0)]
    found = fetch(client, broker, both, session_id=0, session_epoch=0, max_bytes=10)
    served = []
    for epoch in (1, 2):
        again = fetch(client, broker, [], session_id=found.session_id, session_epoch=epoch, max_bytes=10)
        served.append([each.partition_index for each in again.responses[0].partitions if each.records])
    assert served == [[1], [0]]


# ---- offsets by time -------------------------------------------------------------------------------------------------


def test_offsets_by_time_in_every_version(client: WireClient, broker: Broker) -> None:
    log = broker.logs.log("t")
    for number in range(5):
        log.append([(b"k", b"v", T + 10 * number)])
    log.delete_records(1)
    Request = messages.ListOffsets.Request
    for version in range(ApiKey.LIST_OFFSETS.low, ApiKey.LIST_OFFSETS.high + 1):
        expected = {-1: 5, -2: 1, T + 15: 2, T: 1, T + 41: -1}
        if version >= 7:
            expected[-3] = 4
        for timestamp, offset in expected.items():
            asked = Request.Partition(partition_index=0, timestamp=timestamp)
            found = client.call(
                ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=[Request.Topic(name="t", partitions=[asked])]
            )
            result = found.topics[0].partitions[0]
            assert (version, timestamp, result.error_code, result.offset) == (version, timestamp, 0, offset)


def test_the_bounds_of_an_empty_log_have_the_epoch_of_its_leader(client: WireClient, broker: Broker) -> None:
    Request = messages.ListOffsets.Request
    found = []
    for timestamp in (-1, -2, -3, -4, -5, T):
        asked = [Request.Topic(name="t", partitions=[Request.Partition(partition_index=0, timestamp=timestamp)])]
        answer = client.call(ApiKey.LIST_OFFSETS, 10, replica_id=-1, topics=asked).topics[0].partitions[0]
        found.append((answer.error_code, answer.offset, answer.leader_epoch))
    assert found == [(0, 0, 0), (0, 0, 0), (0, -1, -1), (0, 0, 0), (0, -1, -1), (0, -1, -1)]


def test_a_partition_that_is_named_twice_is_refused(client: WireClient, broker: Broker) -> None:
    Request = messages.ListOffsets.Request
    asked = [Request.Partition(partition_index=number, timestamp=-1) for number in (0, 1, 0)]
    found = client.call(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[Request.Topic(name="t", partitions=asked)])
    codes = [each.error_code for each in found.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
