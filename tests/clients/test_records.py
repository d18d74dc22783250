"""Three client libraries produce and consume records."""

from __future__ import annotations

import pytest

from klog.protocol import ApiKey, messages
from klog.record import decode
from tests.clients.adapters import Client
from tests.clients.adapters.base import Admin, Refused
from tests.clients.reading import collect, everything
from tests.clients.servers import Server
from tests.support.wire_client import WireClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_keeps_keys_values_headers_and_timestamps(client: Client, topic: str, codec: str) -> None:
    producer = client.producer(codec=codec)
    records = [(b"key %d" % number, b"value %d " % number * 50) for number in range(50)]
    for number, (key, value) in enumerate(records):
        producer.send(topic, value, key, headers=[("n", b"%d" % number), ("empty", b"")], timestamp_ms=T0 + number)
    assert producer.flush() == [(0, offset) for offset in range(50)]
    producer.close()

    found = everything(client, topic, 50)

    assert [(each.key, each.value) for each in found] == records
    assert [each.offset for each in found] == list(range(50))
    assert [each.timestamp_ms for each in found] == [T0 + number for number in range(50)]
    assert found[7].headers == (("n", b"7"), ("empty", b""))


@pytest.mark.parametrize("acks", ["1", "all"])
def test_an_acknowledged_record_has_an_offset(client: Client, topic: str, acks: str) -> None:
    producer = client.producer(acks=acks)
    for number in range(3):
        producer.send(topic, b"%d" % number)
        assert producer.flush() == [(0, number)]
    producer.close()
    assert [each.value for each in everything(client, topic, 3)] == [b"0", b"1", b"2"]


def test_records_without_acknowledgement_arrive(client: Client, topic: str) -> None:
    producer = client.producer(acks="0")
    for number in range(3):
        producer.send(topic, b"%d" % number)
    producer.flush()
    producer.close()
    consumer = client.consumer()
    consumer.assign({(topic, 0): 0})
    assert [each.value for each in collect(consumer, 3)] == [b"0", b"1", b"2"]
    consumer.close()


def test_an_idempotent_producer_writes_in_order_and_once(client: Client, topic: str) -> None:
    producer = client.producer(idempotent=True)
    for number in range(200):
        producer.send(topic, b"%d" % number)
        if number % 20 == 0:
            producer.flush()
    producer.flush()
    producer.close()
    assert [each.value for each in everything(client, topic, 200)] == [b"%d" % number for number in range(200)]


def test_null_is_not_the_empty_string(client: Client, topic: str) -> None:
    producer = client.producer()
    pairs = [(None, b"only value"), (b"only key", None), (b"", b""), (None, b"")]
    for key, value in pairs:
        producer.send(topic, value, key)
    producer.flush()
    producer.close()
    assert [(each.key, each.value) for each in everything(client, topic, 4)] == pairs


def test_partitions_are_separate_logs(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=3)
    producer = client.producer()
    for number in range(9):
        producer.send(name, b"%d" % number, partition=number % 3)
    assert sorted(producer.flush()) == [(partition, offset) for partition in range(3) for offset in range(3)]
    producer.close()
    consumer = client.consumer()
    consumer.assign({(name, partition): 0 for partition in range(3)})
    found = collect(consumer, 9)
    consumer.close()
    for partition in range(3):
        values = [each.value for each in found if each.partition == partition]
        assert values == [b"%d" % number for number in range(partition, 9, 3)]


def test_a_consumer_seeks_to_any_offset(client: Client, topic: str) -> None:
    producer = client.producer()
    for number in range(20):  # batches of several records, so that an offset may lie inside one
        producer.send(topic, b"%d" % number)
    producer.flush()
    producer.close()
    consumer = client.consumer()
    consumer.assign({(topic, 0): 17})
    assert [each.offset for each in collect(consumer, 3)] == [17, 18, 19]
    consumer.seek((topic, 0), 5)
    assert [each.value for each in collect(consumer, 15)] == [b"%d" % number for number in range(5, 20)]
    assert consumer.bounds((topic, 0)) == (0, 20)
    consumer.close()


def test_an_offset_out_of_range_resets_to_the_first(client: Client, topic: str) -> None:
    producer = client.producer()
    producer.send(topic, b"first")
    producer.flush()
    producer.close()
    consumer = client.consumer()
    consumer.assign({(topic, 0): 999})
    assert [each.offset for each in collect(consumer, 1)] == [0]
    consumer.close()


def test_an_offset_is_found_by_timestamp(client: Client, topic: str) -> None:
    producer = client.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp_ms=T0 + 1000 * number)
        producer.flush()
    producer.close()
    consumer = client.consumer()
    assert consumer.offset_for_time((topic, 0), T0 + 4000) == 4
    assert consumer.offset_for_time((topic, 0), T0 + 4001) == 5
    assert consumer.offset_for_time((topic, 0), T0 - 1) == 0
    assert consumer.offset_for_time((topic, 0), T0 + 9001) is None
    consumer.close()


def test_a_consumer_that_waits_gets_a_record_when_it_is_produced(client: Client, topic: str) -> None:
    consumer = client.consumer()
    consumer.assign({(topic, 0): 0})
    assert consumer.poll(0.3) == []
    producer = client.producer()
    producer.send(topic, b"new")
    producer.flush()
    producer.close()
    assert [each.value for each in collect(consumer, 1)] == [b"new"]
    consumer.close()


def test_a_message_larger_than_a_fetch_arrives(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, config={"max.message.bytes": str(4 << 20)})
    big = bytes(range(256)) * (3 << 12)  # 3 MiB; a consumer asks for 1 MiB of a partition
    producer = client.producer()
    producer.send(name, b"before")
    producer.flush()
    producer.send(name, big)
    producer.flush()
    producer.send(name, b"after")
    producer.flush()
    producer.close()
    assert [each.value for each in everything(client, name, 3)] == [b"before", big, b"after"]


def test_a_message_larger_than_the_topic_allows_is_refused(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, config={"max.message.bytes": "1000"})
    producer = client.producer()
    producer.send(name, b"x" * 2000)
    with pytest.raises(Refused) as refused:
        producer.flush()
    assert refused.value.code == 10
    producer.send(name, b"small")
    assert producer.flush() == [(0, 0)]
    producer.close()


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, config={"cleanup.policy": "compact"})
    producer = client.producer()
    producer.send(name, b"no key")
    with pytest.raises(Refused) as refused:
        producer.flush()
    assert refused.value.code in (87, -1)  # aiokafka does not know the code
    producer.close()


def test_the_broker_sets_timestamps_if_the_topic_is_configured_so(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, config={"message.timestamp.type": "LogAppendTime"})
    producer = client.producer()
    producer.send(name, b"x", timestamp_ms=T0)
    producer.flush()
    producer.close()
    (found,) = everything(client, name, 1)
    assert found.timestamp_ms > T0 + 1_000_000


def test_records_get_the_codec_of_their_topic(server: Server, client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, config={"compression.type": "zstd"})
    producer = client.producer(codec="gzip")
    for number in range(30):
        producer.send(name, b"%d" % number * 40)
    producer.flush()
    producer.close()
    assert [each.value for each in everything(client, name, 30)] == [b"%d" % number * 40 for number in range(30)]
    assert _codecs(server, name) == {"zstd"}


def _codecs(server: Server, topic: str) -> set[str]:
    """The codecs of the batches in partition 0, which no client reports."""
    Request = messages.Fetch.Request
    asked = Request.Topic(topic=topic, partitions=[Request.Partition(partition=0, partition_max_bytes=1 << 20)])
    with WireClient(server.bootstrap) as wire:
        found = wire.call(ApiKey.FETCH, 12, max_wait_ms=0, max_bytes=1 << 20, topics=[asked])
    return {batch.compression for batch in decode(bytes(found.responses[0].partitions[0].records))}
