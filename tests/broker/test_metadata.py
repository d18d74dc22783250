"""ApiVersions, Metadata, and frames that are not valid requests."""

from __future__ import annotations

import contextlib
import socket
import struct
import uuid
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from klog.broker import Broker
from klog.broker.adopted import check_adopted
from klog.errors import HandoverRefused, InvalidConfig
from klog.protocol import ApiKey, ErrorCode, decode, messages
from tests.support.patience import until
from tests.support.wire_client import WireClient

LOOPBACK = ["127.0.0.1:0"]


def api_versions(client: WireClient, version: int, name: str = "test", software: str = "1.0") -> object:
    return client.call(ApiKey.API_VERSIONS, version, client_software_name=name, client_software_version=software)


def test_every_version_of_api_versions(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners=LOOPBACK) as broker, WireClient(broker.bootstrap_servers) as client:
        for version in range(ApiKey.API_VERSIONS.high + 1):
            fields = {"client_software_name": "a", "client_software_version": "1"} if version >= 3 else {}
            found = client.call(ApiKey.API_VERSIONS, version, **fields)
            ranges = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
            assert found.error_code == 0
            assert ranges[ApiKey.PRODUCE] == (0, 13)
            assert ranges[ApiKey.FETCH] == (4, 18)
            assert ApiKey.FIND_COORDINATOR in ranges  # librdkafka sends no lz4 without it


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "a/b", "ü"])
def test_a_software_name_is_checked(tmp_path: Path, name: str) -> None:
    with Broker(tmp_path, listeners=LOOPBACK) as broker, WireClient(broker.bootstrap_servers) as client:
        assert api_versions(client, 3, name).error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
        assert api_versions(client, 3).error_code == 0  # type: ignore[attr-defined]


def test_the_throttle_time_of_a_client_is_not_that_of_others(tmp_path: Path) -> None:
    kind = messages.AlterClientQuotas.Request
    entity = [kind.Entity(entity_type="client-id", entity_name="slow")]
    ops = [kind.Op(key="request_percentage", value=1e-6)]
    with Broker(tmp_path, listeners=LOOPBACK) as broker, WireClient(broker.bootstrap_servers) as other:
        found = other.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[kind.Entry(entity=entity, ops=ops)])
        assert found.entries[0].error_code == 0
        with WireClient(broker.bootstrap_servers, "slow") as slow:
            until(lambda: api_versions(slow, 3).throttle_time_ms)  # type: ignore[attr-defined]
        assert api_versions(other, 3).throttle_time_ms == 0  # type: ignore[attr-defined]


def test_an_unknown_version_of_api_versions_gets_version_0(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners=LOOPBACK) as broker, WireClient(broker.bootstrap_servers) as client:
        header = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 7, -1) + b"\0"
        client.socket.sendall(struct.pack(">i", len(header)) + header)
        frame = client.frame()
        assert frame[:4] == struct.pack(">i", 7)
        found = decode(messages.ApiVersions.Response, 0, frame[4:])
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(each.api_key, each.max_version) for each in found.api_keys] == [(18, ApiKey.API_VERSIONS.high)]
        assert api_versions(client, 3).error_code == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        struct.pack(">hhi", 999, 0, 1),
        struct.pack(">hhih", ApiKey.PRODUCE, 99, 1, -1),
        struct.pack(">hhih", ApiKey.PRODUCE, 2, 1, -1),
        struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + struct.pack(">i", 2**31 - 1),
        struct.pack(">hhih", ApiKey.METADATA, 1, 1, 20000),
        struct.pack(">hhih", 52, 0, 1, -1),  # Vote, which only controllers use
    ],
)
def test_an_invalid_request_closes_only_its_own_connection(tmp_path: Path, body: bytes) -> None:
    with Broker(tmp_path, listeners=LOOPBACK) as broker, WireClient(broker.bootstrap_servers) as other:
        with WireClient(broker.bootstrap_servers) as client:
            client.socket.sendall(struct.pack(">i", len(body)) + body)
            assert client.is_closed()
        assert api_versions(other, 3).error_code == 0  # type: ignore[attr-defined]


def test_metadata_in_every_version(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners=LOOPBACK, config={"node.id": 5}) as broker:
        broker.logs.create_topic("a", 2)
        broker.logs.create_topic("b")
        with WireClient(broker.bootstrap_servers) as client:
            for version in range(ApiKey.METADATA.high + 1):
                asked = [] if version == 0 else None
                found = client.call(ApiKey.METADATA, version, topics=asked)
                assert [(each.node_id, each.host, each.port) for each in found.brokers] == [
                    (5, "127.0.0.1", broker.port)
                ]
                assert [(each.name, len(each.partitions)) for each in found.topics] == [("a", 2), ("b", 1)]
                partition = found.topics[0].partitions[1]
                assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (5, [5], [5])
                if version >= 1:
                    assert found.controller_id == 5
                    assert client.call(ApiKey.METADATA, version, topics=[]).topics == []
                if version >= 10:
                    assert found.topics[0].topic_id == broker.topics.topic_id("a")


def test_a_metadata_request_does_not_create_unknown_topics(tmp_path: Path) -> None:
    Topic = messages.Metadata.Request.Topic
    with Broker(tmp_path, listeners=LOOPBACK) as broker, WireClient(broker.bootstrap_servers) as client:
        for version in (1, 4, 12):
            found = client.call(ApiKey.METADATA, version, topics=[Topic(name="t")])
            assert found.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = client.call(ApiKey.METADATA, 12, topics=[Topic(name=None, topic_id=uuid.uuid4())])
        assert found.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert broker.logs.topics() == {}


def test_a_metadata_request_creates_unknown_topics_if_the_broker_allows_it(tmp_path: Path) -> None:
    Topic = messages.Metadata.Request.Topic
    config = {"auto.create.topics.enable": "true", "num.partitions": 3}
    with Broker(tmp_path, listeners=LOOPBACK, config=config) as broker, WireClient(broker.bootstrap_servers) as client:
        asked = [Topic(name="t"), Topic(name="../t")]
        found = client.call(ApiKey.METADATA, 12, topics=asked, allow_auto_topic_creation=False)
        assert [each.error_code for each in found.topics] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,  # a client does not ask for it again
        ]
        found = client.call(ApiKey.METADATA, 12, topics=asked)
        assert [(each.error_code, len(each.partitions)) for each in found.topics] == [
            (0, 3),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
        ]
        assert broker.logs.topics() == {"t": [0, 1, 2]}


def test_a_metadata_request_can_look_a_topic_up_by_its_id(tmp_path: Path) -> None:
    Topic = messages.Metadata.Request.Topic
    with Broker(tmp_path, listeners=LOOPBACK) as broker, WireClient(broker.bootstrap_servers) as client:
        broker.logs.create_topic("t")
        number = broker.topics.topic_id("t")
        found = client.call(ApiKey.METADATA, 12, topics=[Topic(name=None, topic_id=number)])
        assert (found.topics[0].error_code, found.topics[0].name) == (0, "t")


def test_a_metadata_request_with_ids_is_not_answered_by_names(tmp_path: Path) -> None:
    """The name may be that of a newer topic. Versions 10 and 11 have the field, but no lookup by it."""
    Topic = messages.Metadata.Request.Topic
    with Broker(tmp_path, listeners=LOOPBACK) as broker, WireClient(broker.bootstrap_servers) as client:
        broker.logs.create_topic("t")
        old = broker.topics.topic_id("t")
        broker.logs.delete_topic("t")
        broker.logs.create_topic("t")
        broker.logs.create_topic("u")
        new = broker.topics.topic_id("t")
        for asked, expected in (
            ([Topic(name="t", topic_id=old)], [(None, old, ErrorCode.UNKNOWN_TOPIC_ID)]),
            ([Topic(name="u", topic_id=new)], [("t", new, 0)]),
            ([Topic(name="u"), Topic(name=None, topic_id=new)], [("t", new, 0)]),
        ):
            found = client.call(ApiKey.METADATA, 12, topics=asked).topics
            assert [(each.name, each.topic_id, each.error_code) for each in found] == expected
        for version in (10, 11):
            for asked in ([Topic(name="u"), Topic(name="t", topic_id=new)], [Topic(name="u"), Topic(name=None)]):
                found = client.call(ApiKey.METADATA, version, topics=asked).topics
                assert [each.error_code for each in found] == [ErrorCode.INVALID_REQUEST] * 2


def test_each_listener_advertises_itself(tmp_path: Path) -> None:
    listeners = ["INTERNAL://127.0.0.1:0", "EXTERNAL://127.0.0.1:0"]
    config = {"advertised.listeners": "EXTERNAL://example.org:19092"}
    with Broker(tmp_path, listeners=listeners, config=config) as broker:
        inside, outside = broker.bootstrap_servers.split(",")
        assert outside == "example.org:19092"
        with WireClient(inside) as client:
            found = client.call(ApiKey.METADATA, 9, topics=[])
        assert [f"{each.host}:{each.port}" for each in found.brokers] == [inside]


@pytest.mark.skipif(not socket.has_ipv6, reason="needs: IPv6")
def test_clients_can_use_the_address_of_an_ipv6_listener(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners=["[::1]:0"]) as broker:
        assert broker.bootstrap_servers == f"[::1]:{broker.port}"
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
            assert admin.list_topics() == []
        with pytest.raises(OSError, match=r": \[::1\]:\d+$"):
            Broker(tmp_path / "other", listeners=[broker.bootstrap_servers]).start()


def test_a_broker_starts_again_on_its_port_with_its_data(tmp_path: Path) -> None:
    broker = Broker(tmp_path, listeners=LOOPBACK)
    with pytest.raises(RuntimeError, match=r"start\(\)"):
        assert broker.bootstrap_servers
    with broker:
        address = broker.bootstrap_servers
        broker.logs.create_topic("t")
    with broker:
        assert broker.bootstrap_servers == address
        assert broker.logs.topics() == {"t": [0]}
    broker.stop()


def test_errors_name_the_invalid_argument(tmp_path: Path) -> None:
    for config, text in (
        ({"node.idd": 1}, "node.id"),
        ({"node.id": "x"}, "node.id='x'"),
        ({"advertised.listeners": "OTHER://h:1"}, "OTHER"),
        ({"listeners": "PLAINTEXT://h:1"}, "listeners are an argument"),
    ):
        with pytest.raises(InvalidConfig, match=text):
            Broker(tmp_path, listeners=LOOPBACK, config=config).start()
    for listeners in (["a"], ["A://h:1", "a://h:2"]):
        with pytest.raises(ValueError, match="listener"):
            Broker(tmp_path, listeners=listeners)
    for wrong in (
        {"listeners": "127.0.0.1:0"},
        {"listeners": None},
        {"listeners": [3]},
        {"listeners": []},
        {"listeners": LOOPBACK, "durability": "never"},
        {"listeners": LOOPBACK, "clock": 3},
        {"listeners": LOOPBACK, "config": [1]},
    ):
        with pytest.raises((TypeError, ValueError), match=list(wrong)[-1].rstrip("s")):
            Broker(tmp_path, **wrong)  # type: ignore[arg-type]
    for path in (None, 3, "", "a\0b"):
        with pytest.raises((TypeError, ValueError), match="path"):
            Broker(path, listeners=LOOPBACK)  # type: ignore[arg-type]
    with Broker(tmp_path, listeners=LOOPBACK) as broker:
        for topic, partition in ((None, 0), ("t", "0")):
            with pytest.raises(TypeError, match="topic|partition"):
                broker.check(topic, partition)  # type: ignore[arg-type]
        for timeout in (-1, "1", None):
            with pytest.raises((TypeError, ValueError), match="timeout"):
                broker.stop(timeout)  # type: ignore[arg-type]


def test_a_directory_of_kafka_must_be_adopted_first(tmp_path: Path) -> None:
    """Otherwise both brokers would give out the same producer ids."""
    metadata = tmp_path / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / "00000000000000000000.log").touch()
    with Broker(tmp_path, listeners=LOOPBACK):
        pass  # its metadata log is empty, as in a directory that was only formatted
    (metadata / "00000000000000000000.log").write_bytes(b"records")
    with pytest.raises(HandoverRefused, match="klog handover --adopt"):
        Broker(tmp_path, listeners=LOOPBACK).start()
    with pytest.raises(HandoverRefused) as caught:
        check_adopted([str(tmp_path / "other"), str(tmp_path)])
    assert str(tmp_path) in str(caught.value)
