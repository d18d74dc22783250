"""The metrics of requests, under Kafka's names."""

from __future__ import annotations

from pathlib import Path

import klog
from klog.broker import Broker
from klog.protocol import ApiKey, messages
from klog.record import encode
from tests.support.patience import until
from tests.support.wire_client import WireClient


def test_requests_are_counted_and_timed_by_their_api(tmp_path: Path) -> None:
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker:
        broker.logs.create_topic("t")
        with WireClient(broker.bootstrap_servers) as client:
            for _ in range(3):
                client.call(ApiKey.METADATA, 9, topics=None)
            client.call(ApiKey.API_VERSIONS, 0)
            # The network thread measures a response after it has sent it.
            until(lambda: broker.metrics()["TotalTimeMsCount.Metadata"] == 3)
            found = broker.metrics()
            text = klog.metrics.prometheus(broker)
    assert found["RequestsPerSecCount.Metadata"] == found["RequestsPerSecCount.Metadata.9"] == 3
    for name in ("RequestQueueTimeMs", "LocalTimeMs", "ResponseQueueTimeMs", "ResponseSendTimeMs", "TotalTimeMs"):
        assert found[f"{name}Count.Metadata"] == 3
        assert 0 < found[f"{name}Max.Metadata"] < 60_000 or name.endswith("QueueTimeMs")
        assert f'kafka_network_requestmetrics_{name.lower()}_count{{request="Metadata"}} 3' in text
    assert found["ResponseSendTimeMsMax.Metadata"] < found["TotalTimeMsMax.Metadata"]
    assert found["RequestBytes.Metadata"] > 3 * 10
    for line in (
        'kafka_network_requestmetrics_requests_total{request="Metadata",version="9"} 3',
        'kafka_network_requestmetrics_requests_total{request="ApiVersions",version="0"} 1',
        'klog_network_server_connectioncount{listener="PLAINTEXT"} 1',
        'kafka_log_log_logendoffset{topic="t",partition="0"} 0',
    ):
        assert line in text


def test_a_request_without_a_response_is_measured_too(tmp_path: Path) -> None:
    Request = messages.Produce.Request
    partition = Request.Partition(index=0, records=encode([(None, b"v", 1_700_000_000_000)]))
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker:
        broker.logs.create_topic("t")
        with WireClient(broker.bootstrap_servers) as client:
            topic = Request.Topic(name="t", partition_data=[partition])
            client.send(ApiKey.PRODUCE, 9, Request(acks=0, timeout_ms=1000, topic_data=[topic]))
            client.call(ApiKey.METADATA, 9, topics=None)
        found = broker.metrics()
    for name in ("RequestsPerSec", "ResponseQueueTimeMs", "ResponseSendTimeMs", "TotalTimeMs"):
        assert found[f"{name}Count.Produce"] == 1, name


def test_errors_are_counted_by_their_name_also_those_of_partitions(tmp_path: Path) -> None:
    Request = messages.Produce.Request
    batch = encode([(None, b"v", 1_700_000_000_000)])
    partitions = [Request.Partition(index=number, records=batch) for number in range(3)]
    asked = {"timeout_ms": 1000, "topic_data": [Request.Topic(name="t", partition_data=partitions)]}
    with Broker(tmp_path, listeners=["127.0.0.1:0"]) as broker:
        broker.logs.create_topic("t")
        with WireClient(broker.bootstrap_servers) as client:
            client.call(ApiKey.PRODUCE, 9, acks=1, **asked)
            client.send(ApiKey.PRODUCE, 9, Request(acks=0, **asked))
            assert client.is_closed()
        with WireClient(broker.bootstrap_servers) as client:
            client.call(ApiKey.DESCRIBE_GROUPS, 6, groups=["missing"])
            client.call(ApiKey.METADATA, 9, topics=None)
        found, text = broker.metrics(), klog.metrics.prometheus(broker)
    assert {name: value for name, value in found.items() if name.startswith("ErrorsPerSec")} == {
        "ErrorsPerSecCount.Produce": 4,
        "ErrorsPerSecCount.Produce.UNKNOWN_TOPIC_OR_PARTITION": 4,
        "ErrorsPerSecCount.DescribeGroups": 1,
        "ErrorsPerSecCount.DescribeGroups.GROUP_ID_NOT_FOUND": 1,
        "ErrorsPerSecCount.Metadata": 0,
    }
    assert 'kafka_network_requestmetrics_errors_total{request="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"} 4' in text
