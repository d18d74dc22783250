"""An unmodified Kafka starts on a directory that klog has handed over, and klog on the directory that Kafka leaves:
records, groups, transactions."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
import klog.broker
from klog.clock import SystemClock
from klog.config.properties import read_properties
from klog.handover import MetadataRecord, adopt, handover, metadata
from klog.log import Log
from klog.log.directory.checkpoint import decode_uuid
from klog.record import encode, iter_records
from tests.interop.broker import CLUSTER_ID, JAVA, START_SECONDS, Broker
from tests.interop.clients import Pair, produce, run
from tests.interop.handed import HandedOver
from tests.interop.kafka import Kafka
from tests.interop.test_broker import consume, consume_some, content, pairs, stored, transact
from tests.support.batches import marker, transactional
from tests.support.patience import PATIENCE

pytestmark = [pytest.mark.java, pytest.mark.deep, pytest.mark.timeout(3600)]

KEEP = {"retention.ms": "-1"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {"max.message.bytes": "2000000", **KEEP},
    "positions": {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000", **KEEP},
    "payments": KEEP,
}
PRODUCER, TRANSACTIONAL_ID = 41_234, "payer"
EPOCH = 6  # leader epoch of plain-0


# ---- what klog writes ------------------------------------------------------------------------------------------------


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def commit(group: str, topic: str, partition: int, offset: int, now: int) -> Pair:
    """An offset commit, as a coordinator appends it."""
    key = struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", partition)
    return key, struct.pack(">hqi", 3, offset, -1) + text("") + struct.pack(">q", now)


def empty_group(group: str, now: int) -> Pair:
    key = struct.pack(">h", 2) + text(group)
    return key, struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 4) + text(None) * 2 + struct.pack(">qi", now, 0)  # fmt: skip


def finished_transaction(name: str, producer_id: int, epoch: int, now: int) -> Pair:
    """The state of a transactional id after a commit."""
    value = struct.pack(">hqhibiqq", 0, producer_id, epoch, 60_000, 4, 0, now, now)
    return struct.pack(">h", 0) + text(name), value


def write(directory: Path) -> None:
    """A log.dir of klog: topics with keys, transactions, leader epochs, groups and their offsets."""
    now = SystemClock().wall_ms()
    with klog.open(directory, create=True) as logs:
        logs.create_topic("plain", partitions=3, config=TOPICS["plain"])
        logs.create_topic("positions", config=TOPICS["positions"])
        logs.create_topic("payments", config=TOPICS["payments"])
        logs.create_topic("empty", config={**KEEP, "segment.bytes": 5000, "klog.flush.bytes": 1})
        logs.create_topic("__consumer_offsets", config={"cleanup.policy": "compact"})
        logs.create_topic("__transaction_state", config={"cleanup.policy": "compact"})
        for partition in range(3):
            logs.log("plain", partition).append(pairs(f"p{partition}", 300), compression="lz4")
        logs.log("plain").append_batches(encode([(b"k", b"epoch", now)]), leader_epoch=EPOCH)
        logs.append("positions", [*pairs("at", 100), (b"at-1", None)])
        log = logs.log("payments")
        log.append_batches(transactional(PRODUCER, 3, 0, 4, at=now))
        log.append_batches(marker(PRODUCER, 3, "commit", at=now), origin="coordinator")
        log.append_batches(transactional(PRODUCER, 3, 4, 2, at=now))
        log.append_batches(marker(PRODUCER, 3, "abort", at=now), origin="coordinator")
        offsets = [commit("readers", "plain", n, 100 + n, now) for n in range(3)]
        logs.append(
            "__consumer_offsets", [*offsets, commit("other", "positions", 0, 50, now), empty_group("readers", now)]
        )
        logs.append("__transaction_state", [finished_transaction(TRANSACTIONAL_ID, PRODUCER, 3, now)])


def everything(logs: klog.LogManager) -> dict[tuple[str, int], dict[str, list[tuple[int, Pair]]]]:
    return {
        (topic, partition): {
            isolation: stored(logs.log(topic, partition), isolation) for isolation in ("log_end", "read_committed")
        }
        for topic, partitions in logs.topics().items()
        for partition in partitions
        if not topic.startswith("__")
    }


# ---- what Kafka serves -----------------------------------------------------------------------------------------------


def configs(broker: Broker, topics: list[str]) -> dict[str, dict[str, str]]:
    """The configurations that the topics themselves have, by Kafka's own tool."""
    found = {}
    for topic in topics:
        output = tool(broker, "kafka.admin.ConfigCommand", "--describe", "--topic", topic)
        lines = [line.split() for line in output.splitlines() if line.startswith("  ")]
        found[topic] = dict(line[0].split("=", 1) for line in lines)
    return found


def tool(broker: Broker, name: str, *arguments: str) -> str:
    command = [*JAVA, "-cp", f"{broker.kafka.lib}/*", name, "--bootstrap-server", broker.address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def serves(broker: Broker, there: dict[tuple[str, int], dict[str, list[tuple[int, Pair]]]]) -> None:
    for (topic, partition), records in there.items():
        for isolation, name in (("read_uncommitted", "log_end"), ("read_committed", "read_committed")):
            assert run(consume(broker, topic, isolation, partition)) == records[name], (topic, partition, name)


async def resume(broker: Broker, group: str, topic: str) -> dict[int, int]:
    """The first offset that a member of a group gets of each partition."""
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker.address, group_id=group, auto_offset_reset="none")
    await consumer.start()
    try:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=200)
        return {part.partition: await consumer.position(part) for part in consumer.assignment()}
    finally:
        await consumer.stop()


def producer_ids(log: Log) -> set[int]:
    return set(log.producers)


def complaints(broker: Broker) -> list[str]:
    """Those of the broker with the two lines after each, without what only a busy machine causes: slow events of the
    controller, and requests to it that time out or come while it is elected again."""
    busy = ("EventPerformanceMonitor", "TimeoutException", "NotControllerException")
    lines, found = broker.log.splitlines(), set(broker.complaints())
    shown = ["\n".join(lines[number : number + 3]) for number, line in enumerate(lines) if line in found]
    return [text for text in shown if not any(name in text for name in busy)]


def no_strays(directory: Path) -> None:
    assert [name for name in os.listdir(directory) if name.endswith("-stray")] == []


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def handed(kafka: Kafka, data: Path, tmp_path: Path) -> Iterator[HandedOver]:
    made = HandedOver(kafka, tmp_path / "broker", data, extra=SECURITY)
    yield made
    made.kill()


ACL = {
    "id": "AAAAAAAAAAAAAAAAAAABAQ",
    "resource_type": 2,
    "resource_name": "plain",
    "pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
SCRAM = {
    "name": "alice",
    "mechanism": 1,
    "salt": b"salt",
    "stored_key": b"s" * 32,
    "server_key": b"k" * 32,
    "iterations": 4096,
}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "alice"}],
    "key": "producer_byte_rate",
    "value": 1e9,
    "remove": False,
}
SECURITY = [
    MetadataRecord("access_control_entry_record", 0, ACL),
    MetadataRecord("user_scram_credential_record", 0, SCRAM),
    MetadataRecord("client_quota_record", 0, QUOTA),
]


# ---- the tests -------------------------------------------------------------------------------------------------------


def test_kafka_starts_on_a_handed_over_directory_and_klog_takes_it_back(handed: HandedOver) -> None:
    data = handed.log_dir
    with klog.open(data, read_only=True) as logs:
        there = everything(logs)
        ids = {topic: logs.log(topic).topic_id for topic in logs.topics()}
    assert len(there["plain", 0]["log_end"]) == 301 and len(there["payments", 0]["read_committed"]) == 4

    with handed:
        serves(handed, there)
        assert configs(handed, list(TOPICS)) == TOPICS
        assert run(resume(handed, "readers", "plain")) == {0: 100, 1: 101, 2: 102}
        assert run(resume(handed, "other", "positions")) == {0: 50}
        assert "alice" in tool(handed, "kafka.admin.ConfigCommand", "--describe", "--entity-type", "users")
        for partition in range(3):
            run(produce(handed, "plain", pairs("kafka", 20), partition, enable_idempotence=True))
        # The transactional id continues with its own producer id.
        run(transact(handed, "payments", TRANSACTIONAL_ID, (pairs("paid", 5), "commit"), (pairs("void", 5), "abort")))
        assert run(consume_some(handed, "positions", "other", 10)) == list(range(50, 60))
        served = {
            (topic, partition): run(consume(handed, topic, "read_uncommitted", partition)) for topic, partition in there
        }
    assert complaints(handed) == []
    assert "unclean" not in "".join(line for line in handed.log.splitlines() if "PartitionChangeBuilder" in line)
    assert f"Skipping recovery of {len(there) + 2} logs" in handed.log
    no_strays(data)

    found = metadata(data)
    assert found.next_producer_id >= 43_000
    assert list(found.security_records()) == SECURITY
    assert found.topics["plain"].partitions[0].leader_epoch > EPOCH
    assert {name: topic.topic_id for name, topic in found.topics.items()} == ids

    report = adopt(data)
    assert report["removed"] == [] and {each["topic"] for each in report["topics"]} == set(ids)
    with klog.open(data) as logs:
        assert logs.clean_shutdown
        for key, records in served.items():
            log = logs.log(*key)
            assert stored(log) == records and log.topic_id == ids[key[0]], key
            assert records[: len(there[key]["log_end"])] == there[key]["log_end"]
        assert content(stored(logs.log("payments"), "read_committed"))[-5:] == pairs("paid", 5)
        assert logs.log("positions").config.compacts and logs.log("plain").config.max_message_bytes == 2_000_000
        own = producer_ids(logs.log("plain", 1))
        assert len(own) == 1 and min(own) >= 42_000, "Kafka gave a producer an id that the logs may have"
        assert PRODUCER in producer_ids(logs.log("payments"))
        logs.append("plain", pairs("klog", 100))
        logs.append("positions", pairs("klog", 10))
        there = everything(logs)
    with pytest.raises(klog.errors.HandoverRefused, match="metadata log"):
        handover(data)

    with handed:
        serves(handed, there)
    assert complaints(handed) == []
    no_strays(data)


@pytest.mark.parametrize("release", ["4.0", "4.2"])
def test_two_directories_and_more_metadata_than_a_batch_holds(kafka: Kafka, tmp_path: Path, release: str) -> None:
    """With the features of an older release, of which 4.0 keeps the last replica in the ISR."""
    if release > kafka.version:
        pytest.skip("needs: a Kafka that knows the release")
    paths = [tmp_path / "one", tmp_path / "two"]
    with klog.open(paths, create=True) as logs:
        for topic in TOPICS:
            logs.create_topic(topic, partitions=20, config=TOPICS[topic])
            for partition in range(20):
                logs.log(topic, partition).append(pairs(topic, 3))
        there = everything(logs)
    users = [f"user-{n}" for n in range(1200)]
    quotas = [
        MetadataRecord("client_quota_record", 0, {**QUOTA, "entity": [{"entity_type": "user", "entity_name": user}]})
        for user in users
    ]
    broker = HandedOver(kafka, tmp_path / "broker", *paths, extra=quotas, kafka_version=release)
    try:
        for _ in range(2):
            with broker:
                serves(broker, {key: there[key] for key in list(there)[::9]})
            assert complaints(broker) == []
            assert f"Skipping recovery of {len(there) // 2} logs" in broker.log
        found = metadata(paths)
        assert [entity[0][1] for entity in found.quotas] == users
        assert len({each.directories for each in found.topics["plain"].partitions.values()}) == 2
        for path in paths:
            no_strays(path)
    finally:
        broker.kill()


def test_klog_adopts_the_directory_of_a_broker(kafka: Kafka, tmp_path: Path) -> None:
    snapshots = {"metadata.log.max.record.bytes.between.snapshots": 1500}
    broker = Broker(kafka, tmp_path / "broker", **snapshots)
    try:
        with broker:
            for topic, config in TOPICS.items():
                create(broker, topic, config)
            create(broker, "again", {})
            tool(broker, "org.apache.kafka.tools.TopicCommand", "--delete", "--topic", "again")
            create(broker, "again", {"cleanup.policy": "compact"})
            alter(broker, "plain", "retention.ms=777777777777")
            for name in ("plain", "positions", "again"):
                run(produce(broker, name, pairs("kafka", 50), enable_idempotence=True))
            run(transact(broker, "payments", "p", (pairs("paid", 5), "commit")))
            assert run(consume_some(broker, "plain", "readers", 20)) == list(range(20))
        data = broker.log_dir
        assert list((data / "__cluster_metadata-0").glob("*.checkpoint")), "the broker has written no snapshot"
        altered = {"max.message.bytes": "2000000", "retention.ms": "777777777777"}
        config = {**TOPICS, "plain": altered, "again": {"cleanup.policy": "compact"}}
        found = metadata(data)
        assert {name: dict(found.topics[name].config) for name in config} == config
        assert found.next_producer_id >= 1000 and found.brokers.keys() == {1}

        before = {path: path.read_bytes() for path in data.iterdir() if path.is_file()}
        report = adopt(data)
        assert {path: path.read_bytes() for path in data.iterdir() if path in before} == before
        assert [each["change"] for each in report["topics"]] == ["added"] * len(report["topics"])
        assert adopt(data)["changed"] is False
        with klog.open(data) as logs:
            assert logs.log("plain").config.retention_ms == 777_777_777_777
            assert logs.log("again").config.compacts and logs.log("__consumer_offsets").config.compacts
            assert {name: logs.log(name).topic_id for name in config} == {
                name: found.topics[name].topic_id for name in config
            }
            logs.append("plain", pairs("klog", 100))
            logs.log("again").compact()
            there = everything(logs)
        with broker:
            serves(broker, there)
            assert run(resume(broker, "readers", "plain")) == {0: 20}
        assert complaints(broker) == []
        no_strays(data)
    finally:
        broker.kill()


class KlogBroker(klog.broker.Broker):
    """With the name that the clients of these tests use."""

    @property
    def address(self) -> str:
        return self.bootstrap_servers


def test_groups_and_transactions_move_between_klogs_broker_and_kafka(kafka: Kafka, tmp_path: Path) -> None:
    data = tmp_path / "data"

    def life(broker: Any, start: int, name: str) -> None:
        """Ten records of a group, and a transaction with the same transactional id."""
        with broker:
            assert run(consume_some(broker, "plain", "readers", 10)) == list(range(start, start + 10))
            run(produce(broker, "plain", pairs(name, 10), enable_idempotence=True))
            rounds = (pairs(name, 5), "commit"), (pairs("void", 5), "abort")
            run(transact(broker, "payments", TRANSACTIONAL_ID, *rounds))

    with klog.open(data, create=True) as logs:
        for topic in ("plain", "payments"):
            logs.create_topic(topic, config=KEEP)
        logs.append("plain", pairs("first", 20))
    local = KlogBroker(data, listeners=["127.0.0.1:0"], config={"group.initial.rebalance.delay.ms": 0})
    life(local, 0, "klog")
    broker = HandedOver(kafka, tmp_path / "broker", data)
    try:
        life(broker, 10, "kafka")
        assert complaints(broker) == []
        assert adopt(data)["removed"] == []
        life(local, 20, "again")
        life(broker, 30, "last")  # its own metadata log is still valid
        assert complaints(broker) == []
        no_strays(data)
    finally:
        broker.kill()
    with klog.open(data, read_only=True) as logs:
        paid = content(stored(logs.log("payments"), "read_committed"))
        assert paid == [pair for name in ("klog", "kafka", "again", "last") for pair in pairs(name, 5)]
        assert len(stored(logs.log("plain"))) == 60
        transactional, idempotent = (set(logs.log(topic).producers) for topic in ("payments", "plain"))
        assert len(transactional) == 1 and len(idempotent) == 4, "a producer id was given out twice"
        assert not transactional & idempotent
    assert [str(problem) for problem in klog.verify(data).problems] == []


@pytest.mark.parametrize("kafka", ["4.3.1"], indirect=True)
def test_share_groups_move_between_klogs_broker_and_kafka(kafka: Kafka, tmp_path: Path) -> None:
    """Records that were accepted or rejected are not delivered again; released records are."""
    confluent = pytest.importorskip("confluent_kafka", reason="needs: confluent-kafka")
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    data = tmp_path / "data"
    with klog.open(data, create=True) as logs:
        logs.create_topic("plain", config=KEEP)
        logs.append("plain", pairs("job", 20))
    left = set(range(20))

    def life(broker: Any, accepts: int) -> None:
        """A member gets the remaining records, accepts some, rejects the next one, and releases the others."""
        member = confluent.ShareConsumer(
            {"bootstrap.servers": broker.address, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
        )
        member.subscribe(["plain"])
        records: list[Any] = []
        until = SystemClock().monotonic() + PATIENCE
        while not records:
            assert SystemClock().monotonic() < until, f"no record came from {broker}"
            records = list(member.poll(timeout=1))
        assert {each.offset() for each in records} == left
        for number, each in enumerate(sorted(records, key=lambda each: each.offset())):
            member.acknowledge(each, 1 if number < accepts else 3 if number == accepts else 2)
            if number <= accepts:
                left.remove(each.offset())
        member.commit_sync()
        member.close()

    local = KlogBroker(data, listeners=["127.0.0.1:0"])
    with local:
        admin = AdminClient({"bootstrap.servers": local.address})
        # With Kafka's limit of 5 it delivers the last records in ever smaller numbers.
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (("share.auto.offset.reset", "earliest"), ("share.delivery.count.limit", "10"))
        ]
        resource = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE)
        del admin
        life(local, 5)
    broker = HandedOver(kafka, tmp_path / "broker", data)
    try:
        with broker:
            life(broker, 4)
        assert complaints(broker) == []
        assert adopt(data)["removed"] == []
        with local:
            life(local, 3)
        with broker:
            life(broker, 2)
        assert complaints(broker) == []
        no_strays(data)
    finally:
        broker.kill()
    assert left == {18, 19}
    assert [str(problem) for problem in klog.verify(data).problems] == []


def create(broker: Broker, topic: str, config: dict[str, str]) -> None:
    more = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]
    tool(broker, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, *more)


def alter(broker: Broker, topic: str, setting: str) -> None:
    tool(broker, "kafka.admin.ConfigCommand", "--alter", "--topic", topic, "--add-config", setting)


@pytest.mark.parametrize("release", ["4.0", "4.1", "4.2", "4.3"])
def test_bootstrap_is_that_of_kafkas_own_format(kafka: Kafka, tmp_path: Path, release: str) -> None:
    """Record by record: the features, then ours. Of meta.properties, the keys."""
    if tuple(map(int, release.split("."))) > tuple(map(int, kafka.version.split("."))):
        pytest.skip("needs: a Kafka that knows the release")
    formatted, ours = tmp_path / "formatted", tmp_path / "ours"
    formatted.mkdir()
    written = tmp_path / "server.properties"
    write(ours)
    report = handover(ours, kafka_version=release, properties_out=written, cluster_id=CLUSTER_ID)
    written.write_text(report["properties"].replace(str(ours), str(formatted)))
    command = [*JAVA, "-cp", f"{kafka.lib}/*", "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
    subprocess.run(
        [*command, "-r", release, "-c", str(written)], check=True, capture_output=True, timeout=START_SECONDS
    )
    assert sorted(os.listdir(formatted)) == ["bootstrap.checkpoint", "meta.properties"]
    theirs = bootstrap(formatted)
    assert theirs == bootstrap(ours)[: len(theirs)]
    assert len(bootstrap(ours)) == report["records"] > len(theirs)
    assert meta(formatted) == meta(ours)


def bootstrap(directory: Path) -> list[bytes | None]:
    return [record.value for record in iter_records((directory / "bootstrap.checkpoint").read_bytes())]


def meta(directory: Path) -> dict[str, str]:
    """Its meta.properties, without the id that is its own."""
    found = read_properties(directory / "meta.properties")
    assert decode_uuid(found.pop("directory.id")) is not None
    return found
