"""The same admin requests to a Kafka broker and to klog's: the same error codes, and the same configuration of a topic.

DIFFERENT lists the requests to which klog responds differently on purpose, with the reason.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from klog.broker import Broker as OurBroker
from klog.protocol import ApiKey, ErrorCode, decode_response, encode_request, messages
from tests.interop.broker import Broker
from tools import kafka_jars

pytestmark = [pytest.mark.java, pytest.mark.deep, pytest.mark.timeout(3600)]

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
CODES = {int(code): code for code in ErrorCode}
NOBODY = uuid.UUID("00000000-0000-4000-8000-000000000001")


class Client:
    """One connection. Requests are sent as they are encoded here, so that invalid ones arrive, too."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 60)
        self._sent = 0

    def send(self, api: ApiKey, version: int | None = None, /, **fields: Any) -> Any:
        version, self._sent = api.high if version is None else version, self._sent + 1
        request = getattr(messages, api.message).Request(**fields)
        parts = encode_request(api, version, self._sent, "admin", request)
        self._socket.sendall(b"".join(map(bytes, parts)))  # type: ignore[arg-type]
        (size,) = struct.unpack(">i", self._read(4))
        correlation_id, response = decode_response(api, version, self._read(size))
        assert correlation_id == self._sent
        return response

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Of Kafka 4.1.0 and of klog, with two log directories each."""
    from tests.interop.kafka import Kafka

    try:
        jars = kafka_jars.get("4.1.0")
    except kafka_jars.Unavailable as missing:
        pytest.skip(f"needs: {missing}")
    home = tmp_path_factory.mktemp("admin")
    paths = [str(home / name) for name in ("one", "two")]
    kafka = Broker(Kafka("4.1.0", jars.lib, jars.lib), home / "kafka", **{"log.dirs": ",".join(paths)})
    bounds = {"group.consumer.max.session.timeout.ms": "60000"}  # Kafka's default; klog has none
    config = {"auto.create.topics.enable": "false", **bounds}
    with kafka, OurBroker([home / "three", home / "four"], listeners=["127.0.0.1:0"], config=config) as ours:
        both = Client(kafka.address), Client(ours.bootstrap_servers)
        yield both
        for client in both:
            client.close()


def topic(
    name: str, partitions: int = 1, factor: int = 1, assignments: dict[int, list[int]] | None = None, **configs: Any
) -> Any:
    Request = messages.CreateTopics.Request
    return Request.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[Request.Assignment(partition_index=n, broker_ids=ids) for n, ids in (assignments or {}).items()],
        configs=[Request.Config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def created(client: Client, *topics: Any, version: int = 7, validate_only: bool = False) -> dict[str, ErrorCode]:
    response = client.send(
        ApiKey.CREATE_TOPICS, version, topics=list(topics), timeout_ms=60_000, validate_only=validate_only
    )
    return {each.name: CODES[each.error_code] for each in response.topics}


def deleted(client: Client, *names: str | None, ids: tuple[uuid.UUID, ...] = ()) -> dict[Any, ErrorCode]:
    Topic = messages.DeleteTopics.Request.Topic
    topics = [Topic(name=name) for name in names] + [Topic(name=None, topic_id=each) for each in ids]
    response = client.send(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout_ms=60_000)
    return {each.name: CODES[each.error_code] for each in response.responses}


def extended(client: Client, name: str, count: int, assignments: list[list[int]] | None = None) -> ErrorCode:
    Request = messages.CreatePartitions.Request
    given = None if assignments is None else [Request.Assignment(broker_ids=ids) for ids in assignments]
    asked = [Request.Topic(name=name, count=count, assignments=given)]
    (result,) = client.send(ApiKey.CREATE_PARTITIONS, 3, topics=asked, timeout_ms=60_000).results
    return CODES[result.error_code]


def altered(client: Client, kind: int, name: str, *ops: tuple[str, int, str | None]) -> ErrorCode:
    Request = messages.IncrementalAlterConfigs.Request
    configs = [Request.Config(name=key, config_operation=op, value=value) for key, op, value in ops]
    asked = [Request.Resource(resource_type=kind, resource_name=name, configs=configs)]
    (result,) = client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked).responses
    return CODES[result.error_code]


def replaced(client: Client, kind: int, name: str, **values: str | None) -> ErrorCode:
    Request = messages.AlterConfigs.Request
    configs = [Request.Config(name=key.replace("_", "."), value=value) for key, value in values.items()]
    asked = [Request.Resource(resource_type=kind, resource_name=name, configs=configs)]
    (result,) = client.send(ApiKey.ALTER_CONFIGS, 2, resources=asked).responses
    return CODES[result.error_code]


def described(client: Client, kind: int, name: str) -> tuple[ErrorCode, dict[str, Any]]:
    asked = [messages.DescribeConfigs.Request.Resource(resource_type=kind, resource_name=name, configuration_keys=None)]
    (result,) = client.send(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=True).results
    return CODES[result.error_code], {each.name: each for each in result.configs}


def shown(client: Client, name: str) -> dict[str, str | None]:
    """The values that a topic itself has, without defaults."""
    return {key: each.value for key, each in described(client, TOPIC, name)[1].items() if each.config_source == 1}


def of_group(client: Client, name: str) -> dict[str, Any]:
    """The configurations of a group for consumers; Kafka has more, for kinds of groups that klog has not."""
    found = described(client, GROUP, name)[1]
    return {key: facts(each) for key, each in found.items() if key.startswith("consumer.")}


def listed(client: Client, kind: int) -> Any:
    response = client.send(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[kind])
    return CODES[response.error_code], [each.resource_name for each in response.config_resources]


def elected(client: Client, asked: dict[str, list[int]] | None, kind: int = 0) -> Any:
    Topic = messages.ElectLeaders.Request.Topic
    topics = None if asked is None else [Topic(topic=name, partitions=each) for name, each in asked.items()]
    response = client.send(ApiKey.ELECT_LEADERS, 2, election_type=kind, topic_partitions=topics, timeout_ms=60_000)
    return response.error_code, {
        (each.topic, part.partition_id): CODES[part.error_code]
        for each in response.replica_election_results
        for part in each.partition_result
    }


def reassigned(client: Client, name: str, partition: int, replicas: list[int] | None) -> Any:
    Request = messages.AlterPartitionReassignments.Request
    asked = [Request.Topic(name=name, partitions=[Request.Partition(partition_index=partition, replicas=replicas)])]
    response = client.send(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, topics=asked, timeout_ms=60_000)
    return response.error_code, [CODES[part.error_code] for each in response.responses for part in each.partitions]


def cut(client: Client, name: str, partition: int, offset: int) -> tuple[int, ErrorCode]:
    Request = messages.DeleteRecords.Request
    asked = [Request.Topic(name=name, partitions=[Request.Partition(partition_index=partition, offset=offset)])]
    response = client.send(ApiKey.DELETE_RECORDS, 2, topics=asked, timeout_ms=60_000)
    ((found,),) = [each.partitions for each in response.topics]
    return found.low_watermark, CODES[found.error_code]


def epoch_end(client: Client, name: str, epoch: int, current: int = -1) -> tuple[ErrorCode, int, int]:
    Request = messages.OffsetForLeaderEpoch.Request
    partition = Request.Partition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    asked = [Request.Topic(topic=name, partitions=[partition])]
    response = client.send(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=asked)
    ((found,),) = [each.partitions for each in response.topics]
    return CODES[found.error_code], found.leader_epoch, found.end_offset


def moved(client: Client, name: str, partition: int, path: str) -> ErrorCode:
    Request = messages.AlterReplicaLogDirs.Request
    asked = [Request.Dir(path=path, topics=[Request.Topic(name=name, partitions=[partition])])]
    response = client.send(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=asked)
    ((found,),) = [each.partitions for each in response.results]
    return CODES[found.error_code]


def paged(client: Client, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    Request = messages.DescribeTopicPartitions.Request
    at = None if cursor is None else Request.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    topics = [Request.Topic(name=name) for name in names]
    found = client.send(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, response_partition_limit=limit, cursor=at)
    after = found.next_cursor and (found.next_cursor.topic_name, found.next_cursor.partition_index)
    listed = [
        (each.name, CODES[each.error_code], [p.partition_index for p in each.partitions]) for each in found.topics
    ]
    return sorted(listed), after


def cluster(client: Client, kind: int) -> Any:
    response = client.send(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=kind)
    return CODES[response.error_code], response.endpoint_type, [each.broker_id for each in response.brokers]


# In this order: later requests meet what earlier ones have made.
REQUESTS: dict[str, Any] = {
    "create": lambda c: created(
        c, topic("a", 2), topic("comp", cleanup_policy="compact"), topic("own", retention_ms="7")
    ),
    "create again": lambda c: created(c, topic("a", 2)),
    "create twice": lambda c: created(c, topic("b"), topic("b", 2)),
    "names": lambda c: created(c, topic("."), topic("x y"), topic("x" * 250), topic("")),
    "collisions": lambda c: created(c, topic("k.k")) | created(c, topic("k_k"), topic("k-k")),
    "metadata topic": lambda c: created(c, topic("__cluster_metadata")),
    "partitions 0": lambda c: created(c, topic("p", 0)),
    "partitions -2": lambda c: created(c, topic("p", -2)),
    "too many partitions": lambda c: created(c, topic("p", 10_001)),
    "factor 0": lambda c: created(c, topic("p", 1, 0)),
    "factor -2": lambda c: created(c, topic("p", 1, -2)),
    "factor 2": lambda c: created(c, topic("p", 1, 2)),
    "defaults": lambda c: created(c, topic("defaults", -1, -1)),
    "validate only": lambda c: created(c, topic("v"), topic("a"), topic("w", 0), validate_only=True),
    "unknown key": lambda c: created(c, topic("p", no_such_key="1")),
    "broker's key": lambda c: created(c, topic("p", log_retention_ms="1")),
    "removed key": lambda c: created(c, topic("p", message_format_version="2.8")),
    "bad value": lambda c: created(c, topic("p", retention_ms="soon")),
    "value too low": lambda c: created(c, topic("p", retention_ms="-2")),
    "no value": lambda c: created(c, topic("p", retention_ms=None)),
    "small segments": lambda c: created(c, topic("p", segment_bytes="1000")),
    "bad policy": lambda c: created(c, topic("p", cleanup_policy="keep")),
    "lags": lambda c: created(c, topic("p", min_compaction_lag_ms="2", max_compaction_lag_ms="1")),
    "tiering": lambda c: created(c, topic("p", remote_storage_enable="true")),
    "assigned": lambda c: created(c, topic("assigned", -1, -1, {0: [1], 1: [1]})),
    "assigned and count": lambda c: created(c, topic("p", 1, -1, {0: [1]})),
    "assigned and factor": lambda c: created(c, topic("p", -1, 1, {0: [1]})),
    "assigned with a hole": lambda c: created(c, topic("p", -1, -1, {0: [1], 2: [1]})),
    "assigned to nobody": lambda c: created(c, topic("p", -1, -1, {0: []})),
    "assigned twice": lambda c: created(c, topic("p", -1, -1, {0: [1, 1]})),
    "assigned elsewhere": lambda c: created(c, topic("p", -1, -1, {0: [2]})),
    "delete": lambda c: deleted(c, "assigned", "nothing"),
    "delete twice": lambda c: deleted(c, "defaults", "defaults"),
    "delete by unknown id": lambda c: deleted(c, ids=(NOBODY,)),
    "delete nothing": lambda c: deleted(c, None),
    "extend": lambda c: extended(c, "a", 3),
    "extend to the same": lambda c: extended(c, "a", 3),
    "extend to fewer": lambda c: extended(c, "a", 1),
    "extend an unknown topic": lambda c: extended(c, "nothing", 3),
    "extend with too few assignments": lambda c: extended(c, "a", 5, [[1]]),
    "extend elsewhere": lambda c: extended(c, "a", 4, [[2]]),
    "extend with two replicas": lambda c: extended(c, "a", 4, [[1, 2]]),
    "extend with no replica": lambda c: extended(c, "a", 4, [[]]),
    "extend here": lambda c: extended(c, "a", 4, [[1]]),
    "set": lambda c: altered(c, TOPIC, "own", ("retention.bytes", SET, "8")),
    "set, seen": lambda c: shown(c, "own"),
    "unset": lambda c: altered(c, TOPIC, "own", ("retention.bytes", DELETE, None)),
    "unset, seen": lambda c: shown(c, "own"),
    "unset what is not set": lambda c: altered(c, TOPIC, "own", ("flush.ms", DELETE, None)),
    "append": lambda c: altered(c, TOPIC, "own", ("cleanup.policy", APPEND, "compact")),
    "append, seen": lambda c: shown(c, "own"),
    "append again": lambda c: altered(c, TOPIC, "own", ("cleanup.policy", APPEND, "compact")),
    "append again, seen": lambda c: shown(c, "own"),
    "subtract": lambda c: altered(c, TOPIC, "own", ("cleanup.policy", SUBTRACT, "delete")),
    "subtract, seen": lambda c: shown(c, "own"),
    "append to a number": lambda c: altered(c, TOPIC, "own", ("retention.ms", APPEND, "1")),
    "append a bad item": lambda c: altered(c, TOPIC, "own", ("cleanup.policy", APPEND, "keep")),
    "set an unknown key": lambda c: altered(c, TOPIC, "own", ("no.such.key", SET, "1")),
    "set a bad value": lambda c: altered(c, TOPIC, "own", ("retention.ms", SET, "x")),
    "set nothing": lambda c: altered(c, TOPIC, "own", ("retention.ms", SET, None)),
    "set twice": lambda c: altered(c, TOPIC, "own", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    "good and bad": lambda c: altered(c, TOPIC, "own", ("retention.ms", SET, "9"), ("flush.ms", SET, "x")),
    "good and bad, seen": lambda c: shown(c, "own"),
    "alter an unknown topic": lambda c: altered(c, TOPIC, "nothing", ("retention.ms", SET, "1")),
    "alter a topic without a name": lambda c: altered(c, TOPIC, "", ("retention.ms", SET, "1")),
    "alter a bad name": lambda c: altered(c, TOPIC, "x y", ("retention.ms", SET, "1")),
    "alter a bad type": lambda c: altered(c, 77, "x", ("retention.ms", SET, "1")),
    "replace": lambda c: replaced(c, TOPIC, "own", flush_ms="4"),
    "replace, seen": lambda c: shown(c, "own"),
    "replace by nothing": lambda c: replaced(c, TOPIC, "own", flush_ms=None),
    "replace in an unknown topic": lambda c: replaced(c, TOPIC, "nothing", flush_ms="4"),
    "replace levels": lambda c: replaced(c, LOGGER, "1", root="INFO"),
    "broker": lambda c: altered(c, BROKER, "1", ("log.cleaner.threads", SET, "2")),
    "broker, too many": lambda c: altered(c, BROKER, "1", ("log.cleaner.threads", SET, "9")),
    "broker, not a number": lambda c: altered(c, BROKER, "1", ("log.cleaner.threads", SET, "x")),
    "broker, only at start": lambda c: altered(c, BROKER, "1", ("num.partitions", SET, "2")),
    "broker, back": lambda c: altered(c, BROKER, "1", ("log.cleaner.threads", DELETE, None)),
    "all brokers": lambda c: altered(c, BROKER, "", ("log.retention.ms", SET, "99")),
    "all brokers, seen": lambda c: [
        (each.name, each.value, each.source) for each in described(c, TOPIC, "a")[1]["retention.ms"].synonyms
    ],
    "all brokers described, seen": lambda c: [
        (each.name, each.value, each.config_source)
        for each in described(c, BROKER, "")[1].values()
        if each.name == "log.retention.ms"
    ],
    "all brokers, back": lambda c: altered(c, BROKER, "", ("log.retention.ms", DELETE, None)),
    "all brokers, a list": lambda c: altered(c, BROKER, "", ("log.retention.ms", APPEND, "1")),
    "all brokers, unknown": lambda c: altered(c, BROKER, "", ("no.such.key", SET, "1")),
    "another broker": lambda c: altered(c, BROKER, "2", ("log.retention.ms", SET, "1")),
    "no broker": lambda c: altered(c, BROKER, "x", ("log.retention.ms", SET, "1")),
    "unknown logger": lambda c: altered(c, LOGGER, "1", ("no.such.logger", SET, "INFO")),
    "unknown level": lambda c: altered(c, LOGGER, "1", ("root", SET, "LOUD")),
    "append a level": lambda c: altered(c, LOGGER, "1", ("root", APPEND, "INFO")),
    "unset the root level": lambda c: altered(c, LOGGER, "1", ("root", DELETE, None)),
    "levels of another broker": lambda c: altered(c, LOGGER, "2", ("root", SET, "INFO")),
    "describe nothing": lambda c: described(c, TOPIC, "nothing")[0],
    "describe a bad name": lambda c: described(c, TOPIC, "x y")[0],
    "describe another broker": lambda c: described(c, BROKER, "2")[0],
    "describe no broker": lambda c: described(c, BROKER, "x")[0],
    "describe levels of no broker": lambda c: described(c, LOGGER, "")[0],
    "group": lambda c: altered(c, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
    "group, too long": lambda c: altered(c, GROUP, "g", ("consumer.session.timeout.ms", SET, "2000000000")),
    "group, not a number": lambda c: altered(c, GROUP, "g", ("consumer.session.timeout.ms", SET, "x")),
    "group, no list": lambda c: altered(c, GROUP, "g", ("consumer.session.timeout.ms", APPEND, "1")),
    "group, unknown": lambda c: altered(c, GROUP, "g", ("no.such.key", SET, "1")),
    "group, unset what is unknown": lambda c: altered(c, GROUP, "g", ("no.such.key", DELETE, None)),
    "group without a name": lambda c: altered(c, GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
    "group, seen": lambda c: of_group(c, "g"),
    "group, replace": lambda c: replaced(c, GROUP, "g", consumer_heartbeat_interval_ms="7000"),
    "group replaced, seen": lambda c: of_group(c, "g"),
    "groups with a configuration, seen": lambda c: listed(c, GROUP),
    "another group, seen": lambda c: of_group(c, "h"),
    "describe a group without a name": lambda c: described(c, GROUP, "")[0],
    "elect": lambda c: elected(c, {"a": [0, 9], "nothing": [0]}),
    "elect uncleanly": lambda c: elected(c, {"a": [0]}, 1),
    "elect all": lambda c: elected(c, None),
    "elect otherwise": lambda c: elected(c, {"a": [0]}, 7)[0],
    "reassign here": lambda c: reassigned(c, "a", 0, [1]),
    "reassign elsewhere": lambda c: reassigned(c, "a", 0, [2]),
    "reassign to nobody": lambda c: reassigned(c, "a", 0, []),
    "reassign twice": lambda c: reassigned(c, "a", 0, [1, 1]),
    "reassign an unknown partition": lambda c: reassigned(c, "a", 99, [1]),
    "reassign an unknown topic": lambda c: reassigned(c, "nothing", 0, [1]),
    "cancel": lambda c: reassigned(c, "a", 0, None),
    "cut nothing": lambda c: cut(c, "a", 0, -1),
    "cut beyond": lambda c: cut(c, "a", 0, 5),
    "cut below -1": lambda c: cut(c, "a", 0, -2),
    "cut an unknown partition": lambda c: cut(c, "a", 99, 0),
    "cut an unknown topic": lambda c: cut(c, "nothing", 0, 0),
    "cut a compacted topic": lambda c: cut(c, "comp", 0, 0),
    "epoch": lambda c: epoch_end(c, "a", 0),
    "later epoch": lambda c: epoch_end(c, "a", 5),
    "no epoch": lambda c: epoch_end(c, "a", -1),
    "later leader": lambda c: epoch_end(c, "a", 0, 5),
    "epoch of an unknown topic": lambda c: epoch_end(c, "nothing", 0),
    "move to an unknown directory": lambda c: moved(c, "a", 0, "/no/such/directory"),
    "move to a relative directory": lambda c: moved(c, "a", 0, "here"),
    "pages": lambda c: paged(c, "comp", "a", "nothing", "x y"),
    "page of two": lambda c: paged(c, "comp", "a", limit=2),
    "page of the rest": lambda c: paged(c, "comp", "a", limit=3, cursor=("a", 2)),
    "cursor of another topic": lambda c: paged(c, "comp", cursor=("a", 2)),
    "cursor below 0": lambda c: paged(c, "a", cursor=("a", -1)),
    "cursor beyond": lambda c: paged(c, "a", "comp", cursor=("a", 99)),
    "brokers": lambda c: cluster(c, 1),
    "controllers": lambda c: cluster(c, 2),
    "other endpoints": lambda c: cluster(c, 3),
}

DIFFERENT: dict[str, str] = {
    "all brokers, unknown": "Kafka keeps unknown properties of brokers for plug-ins; klog has none, and it is a typing error",
}
# What DescribeConfigs of a fresh topic shows otherwise than Kafka.
TOPIC_DIFFERENCES = {
    "min.insync.replicas": "a fresh Kafka has set it for all brokers, because it has eligible leader replicas (KIP-966)",
}
# The same of the broker, for the properties that both have.
BROKER_DIFFERENCES = {
    **TOPIC_DIFFERENCES,
    "log.dir": "a list in klog's table, a string in Kafka 4.1",
    "log.dirs": "other directories",
    "log.initial.task.delay.ms": "set in the properties of this Kafka",
    "node.id": "given to Kafka, the default in klog",
    **dict.fromkeys(
        (
            "group.consumer.max.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.min.session.timeout.ms",
            "group.share.max.heartbeat.interval.ms",
            "group.share.min.heartbeat.interval.ms",
            "group.share.max.record.lock.duration.ms",
            "group.share.min.record.lock.duration.ms",
            "group.share.max.session.timeout.ms",
            "group.share.min.session.timeout.ms",
        ),
        "klog's default has no bounds",
    ),
    "group.consumer.max.session.timeout.ms": "given to klog",
    "group.initial.rebalance.delay.ms": "given to Kafka; klog's default is 100",
    "offsets.retention.check.interval.ms": "an int in klog's table, a long in Kafka",
    "num.network.threads": "klog's default is 1, and cannot change while it runs",
    "socket.request.max.bytes": "klog's default is 16 MiB",
    "auto.create.topics.enable": "klog's default is false, so the default is no synonym here",
    "offsets.topic.num.partitions": "given to Kafka; klog's default is 1",
    "transaction.state.log.num.partitions": "given to Kafka; klog's default is 1",
    "share.coordinator.state.topic.num.partitions": "klog's default is 1",
}
READ_SECONDS = 30.0


def test_the_responses_are_those_of_kafka(clients: tuple[Client, Client]) -> None:
    kafka, ours = clients
    differences = []
    for name, ask in REQUESTS.items():
        theirs, own = ask(kafka), ask(ours)
        until = time.monotonic() + READ_SECONDS
        while name.endswith(", seen") and theirs != own and time.monotonic() < until:
            time.sleep(0.05)  # Kafka's broker learns of a change from its controller, a little later
            theirs = ask(kafka)
        if (theirs != own) is not (name in DIFFERENT):
            differences.append(f"{name}: kafka {theirs!r}, klog {own!r}")
    assert not differences, "\n".join(differences)


def facts(config: Any) -> tuple[Any, ...]:
    synonyms = [(each.name, each.value, each.source) for each in config.synonyms]
    return config.value, config.config_type, config.config_source, config.is_sensitive, synonyms


def test_the_configuration_of_a_fresh_topic_is_that_of_kafka(clients: tuple[Client, Client]) -> None:
    for client in clients:
        assert created(client, topic("fresh")) == {"fresh": ErrorCode.NONE}
    until = time.monotonic() + READ_SECONDS
    while described(clients[0], TOPIC, "fresh")[0] and time.monotonic() < until:
        time.sleep(0.05)
    theirs, ours = (described(client, TOPIC, "fresh")[1] for client in clients)
    assert {name for name in ours if not name.startswith("klog.")} == set(theirs)
    different = {name for name in theirs if facts(theirs[name]) != facts(ours[name])}
    assert different == set(TOPIC_DIFFERENCES)
    assert not any(each.read_only for each in (*theirs.values(), *ours.values()))


def test_the_configuration_of_the_broker_is_that_of_kafka(clients: tuple[Client, Client]) -> None:
    theirs, ours = (described(client, BROKER, "1")[1] for client in clients)
    common = set(theirs) & set(ours)
    assert len(common) > 100
    different = {name for name in common if facts(theirs[name]) != facts(ours[name])}
    assert different == set(BROKER_DIFFERENCES)
    # What klog can change while it runs, Kafka can change, too; not the other way round.
    assert {name for name in common if not ours[name].read_only} <= {
        name for name in common if not theirs[name].read_only
    }
