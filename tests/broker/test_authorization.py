"""The error of an unauthorized client, and which check comes first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from klog.broker import Broker
from klog.protocol import ApiKey, ErrorCode, messages
from klog.record import encode
from klog.security import Authorizer, SecurityConfig
from klog.security.acl_types import Acl, Operation, PatternType, Permission, ResourceType
from tests.support.wire_client import WireClient

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
CLUSTER = "kafka-cluster"
T = 1_700_000_000_000
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def allow(kind: str, name: str, operation: str) -> Acl:
    return Acl(
        ResourceType[kind], PatternType.LITERAL, name, "User:ANONYMOUS", "*", Operation[operation], Permission.ALLOW
    )


@contextmanager
def served(path: Path, *rules: Acl, **config: Any) -> Iterator[tuple[Broker, WireClient]]:
    """A broker with the topics "mine" and "other", and a client that may do what these rules allow."""
    data = path / "data"
    data.mkdir(parents=True)
    Authorizer(str(data), SecurityConfig.of(AUTHORIZER)).change(add=rules)
    with Broker(data, listeners=["127.0.0.1:0"], config=AUTHORIZER | config) as broker:
        for name in ("mine", "other"):
            broker.logs.create_topic(name)
        with WireClient(broker.bootstrap_servers) as client:
            yield broker, client


def produced(client: WireClient, topic: str, **more: Any) -> ErrorCode:
    Request = messages.Produce.Request
    asked = Request.Partition(index=0, records=encode([(b"k", b"v", T)]))
    fields = {"acks": 1, "timeout_ms": 1000} | more
    found = client.call(ApiKey.PRODUCE, 9, topic_data=[Request.Topic(name=topic, partition_data=[asked])], **fields)
    return ErrorCode(found.responses[0].partition_responses[0].error_code)


def test_a_topic_that_is_asked_for_by_its_id_keeps_its_name(tmp_path: Path) -> None:
    Topic = messages.Metadata.Request.Topic
    with served(tmp_path, allow("TOPIC", "mine", "DESCRIBE")) as (broker, client):
        ids = [broker.topics.topic_id(name) for name in ("mine", "other")]
        found = client.call(ApiKey.METADATA, 12, topics=[Topic(name=None, topic_id=each) for each in ids])
        assert [(each.error_code, each.name, each.topic_id) for each in found.topics] == [
            (0, "mine", ids[0]),
            (REFUSED, None, ids[1]),
        ]


def test_who_may_not_describe_the_cluster_has_no_operations_on_it(tmp_path: Path) -> None:
    for number, (operation, bits) in enumerate((("CREATE", 0), ("DESCRIBE", 1 << Operation.DESCRIBE))):
        with served(tmp_path / str(number), allow("CLUSTER", CLUSTER, operation)) as (_, client):
            asked = {"include_cluster_authorized_operations": True}
            found = [
                client.call(ApiKey.METADATA, 10, topics=[], **asked),
                client.call(ApiKey.DESCRIBE_CLUSTER, 1, **asked),
            ]
            assert [each.cluster_authorized_operations for each in found] == [bits, bits]


def test_authorization_to_write_is_checked_before_acks(tmp_path: Path) -> None:
    with served(tmp_path, allow("TOPIC", "mine", "WRITE"), allow("TOPIC", "absent", "WRITE")) as (_, client):
        assert produced(client, "mine") is ErrorCode.NONE
        assert produced(client, "mine", acks=2) is ErrorCode.INVALID_REQUIRED_ACKS
        assert produced(client, "absent", acks=2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produced(client, "other", acks=2) is REFUSED


def test_a_transactional_id_needs_authorization_if_any_batch_is_transactional(tmp_path: Path) -> None:
    Request = messages.Produce.Request
    plain = encode([(b"k", b"v", T)])
    transactional = encode([(b"k", b"v", T)], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with served(tmp_path, allow("TOPIC", "mine", "WRITE")) as (broker, client):
        assert produced(client, "mine", transactional_id="x") is ErrorCode.NONE
        asked = [
            Request.Partition(index=number, records=records) for number, records in enumerate((plain, transactional))
        ]
        for transactional_id in ("x", None):
            found = client.call(
                ApiKey.PRODUCE, 9, acks=1, timeout_ms=1000, transactional_id=transactional_id,
                topic_data=[Request.Topic(name="mine", partition_data=asked)],
            )  # fmt: skip
            assert [each.error_code for each in found.responses[0].partition_responses] == [refused, refused]
        assert broker.logs.log("mine").log_end_offset == 1


def test_authorization_is_checked_before_repetitions(tmp_path: Path) -> None:
    Request = messages.ListOffsets.Request
    twice = [Request.Partition(partition_index=0, timestamp=-1)] * 2
    with served(tmp_path, allow("TOPIC", "mine", "DESCRIBE")) as (_, client):
        topics = [Request.Topic(name=name, partitions=twice) for name in ("mine", "other")]
        found = client.call(ApiKey.LIST_OFFSETS, 10, topics=topics)
        assert [[each.error_code for each in topic.partitions] for topic in found.topics] == [
            [ErrorCode.INVALID_REQUEST] * 2,
            [REFUSED] * 2,
        ]


def test_brokers_ask_for_epochs_of_all_topics(tmp_path: Path) -> None:
    Request = messages.OffsetForLeaderEpoch.Request
    topics = [Request.Topic(topic="other", partitions=[Request.Partition(partition=0, leader_epoch=0)])]
    for number, (rules, code) in enumerate((([], REFUSED), ([allow("CLUSTER", CLUSTER, "CLUSTER_ACTION")], 0))):
        with served(tmp_path / str(number), *rules) as (_, client):
            found = client.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=topics)
            assert found.topics[0].partitions[0].error_code == code


def test_an_internal_topic_is_created_for_those_who_may(tmp_path: Path) -> None:
    Topic = messages.Metadata.Request.Topic
    name = "__consumer_offsets"
    may_see = allow("TOPIC", name, "DESCRIBE")
    config = {"auto.create.topics.enable": "true"}
    with served(tmp_path / "0", may_see, **config) as (broker, client):
        assert client.call(ApiKey.METADATA, 12, topics=[Topic(name=name)]).topics[0].error_code == REFUSED
        asked = {"topics": [Topic(name=name)], "allow_auto_topic_creation": False}
        found = client.call(ApiKey.METADATA, 12, **asked).topics[0]
        assert (found.error_code, found.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
        assert name not in broker.logs.topics()
    with served(tmp_path / "1", may_see, allow("TOPIC", name, "CREATE"), **config) as (broker, client):
        assert client.call(ApiKey.METADATA, 12, topics=[Topic(name=name)]).topics[0].error_code == 0
        assert name in broker.logs.topics()


def test_an_unauthorized_replica_gets_an_error_for_each_partition(tmp_path: Path) -> None:
    Request = messages.Fetch.Request
    asked = Request.Partition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [Request.Topic(topic="mine", partitions=[asked])]
    for number, (rules, code) in enumerate(
        (([], REFUSED), ([allow("CLUSTER", CLUSTER, "CLUSTER_ACTION")], ErrorCode.NOT_LEADER_OR_FOLLOWER))
    ):
        with served(tmp_path / str(number), *rules) as (_, client):
            found = client.call(ApiKey.FETCH, 12, replica_id=2, max_bytes=1000, topics=topics)
            assert (found.error_code, found.responses[0].partitions[0].error_code) == (0, code)
