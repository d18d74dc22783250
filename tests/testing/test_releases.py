"""TestBroker(as_version=...): a broker that has only the APIs and versions of an older Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from klog.protocol import ApiKey, ErrorCode, messages
from klog.testing import TestBroker
from klog.testing.releases import RELEASES, release
from tests.support.patience import KAFKA_PYTHON_PRODUCER, PATIENCE
from tests.support.wire_client import WireClient


@pytest.mark.parametrize("version", RELEASES)
def test_what_each_release_advertises(version: str) -> None:
    with TestBroker(as_version=version) as b, WireClient(b.bootstrap_servers) as client:
        highest = 3 if version in ("2.8", "3.0") else 4
        found = client.call(ApiKey.API_VERSIONS, highest, client_software_name="test", client_software_version="1")
        shown = {each.api_key: each.max_version for each in found.api_keys}
        assert shown == {api: high for api, high in release(version).newest.items() if api in shown}
        assert (ApiKey.CONSUMER_GROUP_HEARTBEAT in shown) is (version >= "3.9")
        assert bool(found.finalized_features) is (version >= "4.0")
    newest = release(version).newest
    assert all(api.low <= high <= api.high for api, high in newest.items())


def test_newer_requests_are_refused() -> None:
    with TestBroker(topics=["orders"], as_version="2.8") as b:
        with WireClient(b.bootstrap_servers) as client:
            client.send(ApiKey.API_VERSIONS, 4, messages.ApiVersions.Request())
            refused = client.receive(ApiKey.API_VERSIONS, 0)
            assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [(each.api_key, each.max_version) for each in refused.api_keys] == [(ApiKey.API_VERSIONS, 3)]
            assert client.call(ApiKey.METADATA, 11, topics=None).topics[0].name == "orders"
            client.send(ApiKey.METADATA, 12, messages.Metadata.Request(topics=None))
            assert client.is_closed()
        with WireClient(b.bootstrap_servers) as client:
            client.send(ApiKey.LIST_TRANSACTIONS, 0, messages.ListTransactions.Request())
            assert client.is_closed()


@pytest.mark.parametrize(("version", "seen"), [("2.8", (2, 8)), ("3.9", (3, 9)), ("4.0", (4, 0)), ("4.1", (4, 1))])
def test_a_client_detects_that_release(version: str, seen: tuple[int, int]) -> None:
    kafka: Any = pytest.importorskip("kafka", reason="needs: kafka-python")
    data: Any = pytest.importorskip("kafka.protocol.broker_version_data", reason="needs: kafka-python 3")
    with TestBroker(topics=["orders"], as_version=version) as b:
        producer = kafka.KafkaProducer(bootstrap_servers=b.bootstrap_servers, **KAFKA_PYTHON_PRODUCER)
        try:
            producer.send("orders", b"v").get(PATIENCE)
        finally:
            producer.close()
        assert b.topic("orders").values() == [b"v"]
        with WireClient(b.bootstrap_servers) as client:
            found = client.call(ApiKey.API_VERSIONS, 0)
        shown = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
        assert data.infer_broker_version_from_api_versions(shown) == seen


def test_an_unknown_release() -> None:
    with pytest.raises(ValueError, match=r"2\.8"):
        TestBroker(as_version="2.7")


def test_versions_of_single_apis() -> None:
    kafka: Any = pytest.importorskip("kafka", reason="needs: kafka-python")
    versions = {"fetch": 6, "produce": 7, "init_producer_id": None}
    with TestBroker(topics=["orders"], api_versions=versions) as b:
        with WireClient(b.bootstrap_servers) as client:
            found = client.call(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="1")
        newest = {each.api_key: each.max_version for each in found.api_keys}
        assert (newest[ApiKey.FETCH], newest[ApiKey.PRODUCE], newest[ApiKey.METADATA]) == (6, 7, ApiKey.METADATA.high)
        assert ApiKey.INIT_PRODUCER_ID not in newest
        assert found.finalized_features
        producer = kafka.KafkaProducer(
            **b.client_config("kafka-python"), **KAFKA_PYTHON_PRODUCER, enable_idempotence=False
        )
        watch = b.watch("produce")
        producer.send("orders", b"v").get(PATIENCE)
        producer.close()
        assert watch.requests[0].version == 7
    with pytest.raises(ValueError, match="api_versions: fetch"):
        TestBroker(api_versions={"fetch": 99})
    with pytest.raises(ValueError, match="fetsch"):
        TestBroker(api_versions={"fetsch": 1})
