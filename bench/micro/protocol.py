"""Messages decoded and encoded, by klog, kafka-python and kio: python -m bench.micro.protocol"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from typing import Any

import pyperf

from klog.protocol import ApiKey, decode, encode, encode_response, messages

Produce, Metadata = messages.Produce, messages.Metadata


def produce_request() -> Produce.Request:
    """One partition with 16 KiB of records."""
    partition = Produce.Request.Partition(index=3, records=bytes(16384))
    topic = Produce.Request.Topic(name="topic", partition_data=[partition])
    return Produce.Request(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response() -> Produce.Response:
    """The response to produce_request()."""
    partition = Produce.Response.Partition(index=3, base_offset=1 << 40, log_start_offset=0)
    return Produce.Response(responses=[Produce.Response.Topic(name="topic", partition_responses=[partition])])


def metadata_response() -> Metadata.Response:
    """Ten topics of six partitions with three replicas, as a cluster of three brokers has them."""
    partitions = [
        Metadata.Response.Partition(
            partition_index=index,
            leader_id=1,
            leader_epoch=7,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1, 2, 3],
        )
        for index in range(6)
    ]
    topics = [
        Metadata.Response.Topic(name=f"topic-{number}", topic_id=uuid.UUID(int=number + 1), partitions=partitions)
        for number in range(10)
    ]
    brokers = [Metadata.Response.Broker(node_id=node, host=f"broker-{node}", port=9092) for node in range(1, 4)]
    return Metadata.Response(brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics)


def kafka_python(api: ApiKey, version: int, section: str, data: bytes) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """(decode, encode)"""
    from kafka.protocol import metadata, producer

    kind = getattr({ApiKey.PRODUCE: producer, ApiKey.METADATA: metadata}[api], f"{api.message}{section}")
    message = kind.decode(data, version=version)
    message._header = None  # encode() asks for it
    return lambda: kind.decode(data, version=version), lambda: message.encode(version=version)


def kio(api: ApiKey, version: int, section: str, data: bytes) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """(decode, encode)"""
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    schema = {"Request": load_request_schema, "Response": load_response_schema}[section](api.value, version)
    read, write = entity_reader(schema), entity_writer(schema)
    message = read(data, 0)[0]

    def encoded() -> bytes:
        out = io.BytesIO()
        write(out, message)
        return out.getvalue()

    return lambda: read(data, 0), encoded


def main() -> None:
    runner = pyperf.Runner(program_args=("-m", "bench.micro.protocol"))
    for api, version, section, message in (
        (ApiKey.PRODUCE, 12, "Request", produce_request()),
        (ApiKey.PRODUCE, 12, "Response", produce_response()),
        (ApiKey.METADATA, 13, "Response", metadata_response()),
    ):
        name, owner, data = f"{api.message}.{section} v{version}", type(message), encode(message, version)
        assert decode(owner, version, data) == message
        runner.bench_func(f"klog decode {name}", decode, owner, version, data)
        runner.bench_func(f"klog encode {name}", encode, message, version)
        if section == "Response":
            runner.bench_func(f"klog frame {name}", encode_response, api, version, 1, message)
        for peer, make in (("kafka-python", kafka_python), ("kio", kio)):
            read, written = make(api, version, section, data)
            assert written() == data
            runner.bench_func(f"{peer} decode {name}", read)
            runner.bench_func(f"{peer} encode {name}", written)


if __name__ == "__main__":
    main()
