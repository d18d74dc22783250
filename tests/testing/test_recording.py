"""TestBroker(record=path) records the requests of clients. klog.testing.replay sends them again."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from klog.clock import SystemClock
from klog.errors import CorruptData, NewerFormat
from klog.protocol import ApiKey, messages
from klog.record import encode
from klog.testing import TestBroker, replay
from klog.testing.recording import recorded
from klog.testing.waiting import wait_for
from tests.support.patience import KAFKA_PYTHON_PRODUCER, PATIENCE
from tests.support.wire_client import WireClient
from tests.testing.test_group import CONFIG, join
from tests.testing.test_several_brokers import fetch_request
from tests.testing.test_test_broker import produce


def produce_without_response(client: WireClient, value: bytes) -> None:
    Request = messages.Produce.Request
    part = Request.Partition(index=0, records=encode([(b"k", value, 1_700_000_000_000)]))
    topics = [Request.Topic(name="orders", partition_data=[part])]
    client.send(ApiKey.PRODUCE, 9, Request(acks=0, timeout_ms=1000, topic_data=topics))


def test_requests_are_sent_again_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    with (
        TestBroker(topics=["orders"], record=path) as b,
        WireClient(b.bootstrap_servers, "one") as one,
        WireClient(b.bootstrap_servers, "two") as two,
    ):
        assert produce(one, b"a") == 0
        produce_without_response(one, b"b")
        b.topic("orders").wait(2, timeout=PATIENCE)
        assert produce(two, b"c") == 0
        two.send(ApiKey.FETCH, 4, fetch_request(0, 0))
        two.frame()
    assert path.stat().st_mode & 0o777 == 0o600
    with TestBroker(topics=["orders"]) as b:
        found = replay(path, b.bootstrap_servers)
        assert b.topic("orders").values() == [b"a", b"b", b"c"]
    assert [(each.connection, each.client_id, each.api) for each in found] == [
        (1, "one", ApiKey.PRODUCE),
        (1, "one", ApiKey.PRODUCE),
        (2, "two", ApiKey.PRODUCE),
        (2, "two", ApiKey.FETCH),
    ]
    assert [each.response is None for each in found] == [False, True, False, False]
    last: Any = found[3].response
    assert last.responses[0].partitions[0].high_watermark == 3
    assert not any(each.is_closed for each in found)


def test_a_response_that_waits_does_not_block_other_connections(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    with (
        TestBroker(topics=["orders"], record=path, config=CONFIG) as b,
        WireClient(b.bootstrap_servers) as reader,
        WireClient(b.bootstrap_servers) as writer,
    ):
        reader.send(ApiKey.FETCH, 4, fetch_request(0, 60_000))
        wait_for(lambda: b.metrics()["PurgatorySize.Fetch"] >= 1, PATIENCE, lambda: "no fetch waits")
        produce(writer, b"v")
        assert reader.receive(ApiKey.FETCH, 4).responses[0].partitions[0].records
        join(writer, "billing", "orders")
    with TestBroker(topics=["orders"], config=CONFIG) as b:
        found: list[Any] = replay(path, b.bootstrap_servers, timeout=PATIENCE)
        assert found[0].response.responses[0].partitions[0].records
        joins = [each.response.error_code for each in found if each.api is ApiKey.JOIN_GROUP]
        assert joins == [79, 25]  # MEMBER_ID_REQUIRED, and UNKNOWN_MEMBER_ID: this broker gave the member another id


def test_pauses_are_those_of_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    with TestBroker(topics=["orders"], record=path) as b, WireClient(b.bootstrap_servers) as client:
        produce(client, b"a")
        b.inject("produce", delay_ms=100).wait(0)
        produce(client, b"b")
        produce(client, b"c")
    lines = path.read_text().splitlines()
    spread = json.loads(lines[-1])["ms"] - json.loads(lines[1])["ms"]
    assert spread >= 100

    with TestBroker(topics=["orders"]) as b:
        began = SystemClock().monotonic()
        replay(path, b.bootstrap_servers, speed=1)
        assert SystemClock().monotonic() - began >= spread / 1000


def test_a_broker_that_closes_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    with TestBroker(topics=["orders"], record=path) as b, WireClient(b.bootstrap_servers) as client:
        produce(client, b"a")
        produce(client, b"b")
    with TestBroker(topics=["orders"]) as b:
        b.inject("produce", disconnect="before")
        found = replay(path, b.bootstrap_servers)
        assert [each.is_closed for each in found] == [True, False]
        assert b.topic("orders").values() == [b"b"]


def test_a_slow_broker_gets_the_requests_of_a_connection_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    with TestBroker(topics=["orders"], record=path) as b, WireClient(b.bootstrap_servers) as client:
        produce(client, b"a")
        produce(client, b"b")
    with TestBroker(topics=["orders"]) as b:
        b.inject("produce", delay_ms=100, count=None)
        assert [each.response is None for each in replay(path, b.bootstrap_servers)] == [False, False]
        assert b.topic("orders").values() == [b"a", b"b"]


def test_an_older_broker_refuses_the_version_of_api_versions(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    with TestBroker(record=path) as b, WireClient(b.bootstrap_servers) as client:
        client.call(ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    with TestBroker(as_version="2.8") as b:
        found: list[Any] = replay(path, b.bootstrap_servers)
        assert found[0].response.error_code == 35
    with TestBroker() as b:
        b.inject("api_versions", error="UNSUPPORTED_VERSION")
        found = replay(path, b.bootstrap_servers)
        assert found[0].response.error_code == 35


def test_no_secret_is_recorded(tmp_path: Path) -> None:
    kafka: Any = pytest.importorskip("kafka", reason="needs: kafka-python")
    path = tmp_path / "requests"
    with TestBroker(topics=["orders"], sasl={"alice": "geheim"}, mechanism="PLAIN", record=path) as b:
        producer = kafka.KafkaProducer(**b.client_config("kafka-python"), **KAFKA_PYTHON_PRODUCER)
        producer.send("orders", b"v").get(PATIENCE)
        producer.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    apis = {line.get("api") for line in lines[1:]}
    assert "PRODUCE" in apis and not any("SASL" in api for api in apis)
    assert all(b"geheim" not in each.frame for each in recorded(path))


HEADER = b'{"klog_requests":1}\n'


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptData),
        (b"{}\n", CorruptData),
        (b"[1]\n", CorruptData),
        (b"\xff\n", CorruptData),
        (b"[" * 100_000 + b"\n", CorruptData),
        (b'{"klog_requests":"1"}\n', CorruptData),
        (b'{"klog_requests":2}\n', NewerFormat),
        (HEADER + b"x\n", CorruptData),
        (HEADER + b'{"ms":0,"connection":1}\n', CorruptData),
        (HEADER + b'{"ms":0,"connection":1,"frame":"*"}\n', CorruptData),
        (HEADER + b'{"ms":0,"connection":1,"frame":"AAA="}\n', CorruptData),
        (HEADER + b'{"ms":-1,"connection":1,"frame":"AAAAAAAAAAAAAAAA"}\n', CorruptData),
        (HEADER + b'{"ms":0,"connection":1e99,"frame":"AAAAAAAAAAAAAAAA"}\n', CorruptData),
        (HEADER + b'{"ms":0,"connection":1,"frame":"/////////////////////w=="}\n', CorruptData),
        (HEADER + b'{"ms":0,"connection":1,"frame":"AAAAAAAAAAAAAAAA"}', CorruptData),
    ],
)
def test_hostile_files_raise_named_errors(tmp_path: Path, data: bytes, error: type[Exception]) -> None:
    path = tmp_path / "requests"
    path.write_bytes(data)
    with pytest.raises(error) as found:
        replay(path, "127.0.0.1:1")
    assert str(path) in str(found.value)


def test_invalid_arguments_and_peers(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    with TestBroker(topics=["orders"], record=path) as b, WireClient(b.bootstrap_servers) as client:
        produce(client, b"v")
    with pytest.raises(FileExistsError):
        TestBroker(record=path)
    with pytest.raises(ValueError, match="host:port"):
        replay(path, "here")
    with pytest.raises(ValueError, match="speed"):
        replay(path, "127.0.0.1:1", speed=0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(TimeoutError):
            replay(path, address, timeout=0.05)
        server.accept()[0].close()

        def send_a_negative_length() -> None:
            with server.accept()[0] as peer:
                peer.recv(1 << 16)
                peer.sendall(b"\xff\xff\xff\xff")

        thread = threading.Thread(target=send_a_negative_length)
        thread.start()
        with pytest.raises(CorruptData, match="response of -1 bytes"):
            replay(path, address)
        thread.join()
