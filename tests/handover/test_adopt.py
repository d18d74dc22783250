"""adopt(): klog-topics.json from a broker's metadata log."""

from __future__ import annotations

import shlex
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.broker.adopted import check_adopted
from klog.coordinator.transactions.producer_ids import OF_KAFKA, raise_next, stored_next
from klog.disk import RealFiles
from klog.errors import AlreadyLocked, HandoverRefused
from klog.handover import MetadataRecord, adopt, handover
from klog.handover.cluster import ClusterMetadata, PartitionMetadata, TopicMetadata
from klog.log.directory.checkpoint import decode_uuid, encode_uuid, format_metadata
from klog.protocol import ApiKey
from klog.record import encode
from tests.support.failing_files import FailingFiles
from tests.support.golden import HOME
from tests.support.logs import tree
from tests.support.wire_client import WireClient

IDS = [uuid.UUID(int=(number + 1) << 100) for number in range(5)]
FEATURE = MetadataRecord("feature_level_record", 0, {"name": "metadata.version", "feature_level": 27})
KEEP = {"retention.ms": "-1"}


def state(topic_id: uuid.UUID | None, config: dict[str, str] | None = None, partitions: int = 1) -> TopicMetadata:
    assert topic_id is not None
    one = PartitionMetadata((1,), (1,), 1, 0, directories=(IDS[3],))
    return TopicMetadata(topic_id, dict.fromkeys(range(partitions), one), config or {})


def ran(directory: Path, topics: dict[str, TopicMetadata], *more: MetadataRecord) -> None:
    """A directory with only this file, as a controller writes it."""
    records = [FEATURE, *ClusterMetadata(topics=topics).topic_records(2), *more]
    log = directory / "__cluster_metadata-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(encode([(None, record.value(), 5) for record in records], leader_epoch=1))


def place(directory: Path, topic: str, topic_id: uuid.UUID | None, partitions: int = 1) -> None:
    for number in range(partitions):
        path = directory / f"{topic}-{number}"
        path.mkdir(parents=True)
        if topic_id is not None:
            (path / "partition.metadata").write_bytes(format_metadata(topic_id))


def changes(report: dict[str, Any]) -> dict[str, str]:
    return {each["topic"]: each["change"] for each in report["topics"]}


def test_klog_knows_the_topics_of_a_real_broker(tmp_path: Path) -> None:
    data = Path(shutil.copytree(HOME / "internal" / "logdir", tmp_path / "data"))
    before = tree(data)
    planned = adopt(data, dry_run=True)
    assert tree(data) == before and planned["changed"] is True
    report = adopt(data)
    assert report == {**planned, "dry_run": False}
    assert tree(data).keys() - before.keys() == {"klog-topics.json", "klog-producer-ids.json"}
    assert stored_next(str(data)) == 1000 + (1 << 40)
    assert {name: content for name, content in tree(data).items() if name in before} == before
    assert report["next_producer_id"] == 1000 and report["offset"] == 126
    assert report["broker_config"] == {"min.insync.replicas": "1"}
    assert changes(report) == dict.fromkeys(("__consumer_offsets", "__transaction_state", "clicks"), "added")
    with klog.open(data) as logs:
        assert logs.log("__consumer_offsets").config.compacts
        assert logs.log("clicks").topic_id == decode_uuid("Dshe1QXmSTeYcuC7MLNeWw")
        logs.log("clicks").apply_retention()  # refuses for a topic of unknown configuration
    assert adopt(data)["changed"] is False


def test_the_broker_has_changed_created_and_deleted_topics(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with klog.open(data, create=True) as logs:
        for name in ("same", "altered", "deleted", "recreated", "replaced", "klogs"):
            logs.create_topic(name, config={"retention.ms": 5, "klog.flush.bytes": 7})
        ids = {name: logs.log(name).topic_id for name in logs.topics()}
    for name in ("deleted", "recreated"):
        shutil.rmtree(data / f"{name}-0")
    place(data, "recreated", IDS[0])
    place(data, "new", IDS[1], partitions=2)
    place(data, "stranger", IDS[2])
    place(data, "other", IDS[2])  # the broker has a topic of this name, with another id
    shutil.rmtree(data / "replaced-0")
    place(data, "replaced", IDS[2])  # as klog has
    topics = {
        "same": state(ids["same"], {"retention.ms": "5"}),
        "altered": state(ids["altered"], {"retention.ms": "6", "cleanup.policy": "compact,delete"}),
        "recreated": state(IDS[0]),
        "new": state(IDS[1], {"cleanup.policy": "compact"}, 2),
        "elsewhere": state(IDS[3]),
        "other": state(IDS[4]),
    }
    ran(data, topics)
    report = adopt(data)
    assert changes(report) == {
        "same": "same",
        "altered": "changed",
        "recreated": "changed",
        "new": "added",
        "klogs": "kept",
    }
    assert report["removed"] == ["deleted", "replaced"]
    assert sorted(warning.split(" is ")[0] for warning in report["warnings"]) == [
        *("topic klogs", "topic other", "topic replaced", "topic stranger"),
    ]
    found = {each["topic"]: each for each in report["topics"]}
    assert found["altered"]["config"] == {"retention.ms": 6, "cleanup.policy": "compact,delete", "klog.flush.bytes": 7}
    assert found["recreated"]["topic_id"] == encode_uuid(IDS[0]) and found["recreated"]["config"] == {}
    with klog.open(data) as logs:
        assert logs.topics()["new"] == [0, 1] and logs.log("new").config.compacts
        assert logs.log("recreated").topic_id == IDS[0]
        assert logs.log("altered").config.retention_ms == 6


def test_klogs_producer_ids_stay_above_those_of_the_broker(tmp_path: Path) -> None:
    """Neither assigns a producer id that the other has assigned, whichever runs next."""

    def broker_has_given_out(ids: int) -> int:
        fields = {"broker_id": 1, "broker_epoch": 1, "next_producer_id": ids}
        ran(tmp_path, {}, MetadataRecord("producer_ids_record", 0, fields))
        adopt(tmp_path)
        return stored_next(str(tmp_path))

    first = broker_has_given_out(1000)
    assert first > 1 << 39
    raise_next(RealFiles(), str(tmp_path), first + 5000)  # klog's broker has run
    assert broker_has_given_out(9000) == first + 5000
    assert broker_has_given_out(first + 6000) > first + (1 << 39), "handed over again, and the broker has gone on there"


@pytest.mark.parametrize("began_as", ["klog", "kafka"])
def test_klogs_broker_does_not_serve_what_kafka_has_changed_since(tmp_path: Path, began_as: str) -> None:
    """It would give out Kafka's producer ids, and delete records by former configurations."""
    data = tmp_path / "data"

    def is_served() -> bool:
        try:
            with klog.Broker(data, listeners=["127.0.0.1:0"]) as broker, WireClient(broker.bootstrap_servers) as client:
                assert not client.call(
                    ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000
                ).error_code
        except HandoverRefused:
            return False
        return True

    blocks: list[MetadataRecord] = []

    def kafka_runs(ids: int) -> None:
        fields = {"broker_id": 1, "broker_epoch": 1, "next_producer_id": ids}
        blocks.append(MetadataRecord("producer_ids_record", 0, fields))
        ran(data, {"t": state(IDS[0], KEEP)}, *blocks)

    if began_as == "klog":
        with klog.open(data, create=True) as logs:
            logs.create_topic("t", topic_id=IDS[0])
        assert is_served()
        handover(data, properties_out="-")
    else:
        place(data, "t", IDS[0])
    for ids in (1000, 2000, OF_KAFKA + 3000):  # as after another handover
        kafka_runs(ids)
        assert not is_served()
        adopt(data, dry_run=True)
        assert not is_served()
        adopt(data)
        assert is_served() and is_served(), "nothing but Kafka's metadata log counts"


def test_the_command_that_is_named_adopts_all_directories(tmp_path: Path) -> None:
    """The metadata is in the second one."""
    paths = [tmp_path / "on e", tmp_path / "two"]
    place(paths[0], "t", IDS[0])
    ran(paths[1], {"t": state(IDS[0], KEEP)})
    with pytest.raises(HandoverRefused) as refused:
        klog.Broker(paths, listeners=["127.0.0.1:0"]).start()
    command = shlex.split(str(refused.value).split("`")[1])
    assert command[:3] == ["klog", "handover", "--adopt"]
    adopt(command[3:])
    with klog.Broker(paths, listeners=["127.0.0.1:0"]) as broker:
        assert broker.logs.topics()["t"] == [0]


def test_a_directory_that_an_earlier_klog_has_adopted_is_served(tmp_path: Path) -> None:
    place(tmp_path, "t", IDS[0])
    ran(tmp_path, {"t": state(IDS[0], KEEP)})
    raise_next(RealFiles(), str(tmp_path), OF_KAFKA)
    check_adopted([str(tmp_path)])


def test_a_config_that_klog_does_not_know_is_left_out(tmp_path: Path) -> None:
    place(tmp_path, "t", IDS[0])
    ran(tmp_path, {"t": state(IDS[0], {"future.key": "1", "retention.ms": "9"})})
    report = adopt(tmp_path)
    assert report["topics"][0]["config"] == {"retention.ms": 9}
    assert report["warnings"] == ["topic t: future.key is left out: klog does not know it"]
    ran(tmp_path, {"t": state(IDS[0], {"retention.ms": "long"})})
    with pytest.raises(HandoverRefused, match="topic t: retention.ms='long'"):
        adopt(tmp_path)


def test_keys_whose_values_belong_together(tmp_path: Path) -> None:
    place(tmp_path, "t", IDS[0])
    month = {"local.retention.ms": "864000000", "retention.ms": "2592000000"}
    ran(tmp_path, {"t": state(IDS[0], month)})
    assert adopt(tmp_path)["topics"][0]["config"] == {key: int(value) for key, value in month.items()}
    ran(tmp_path, {"t": state(IDS[0], {**month, "retention.ms": "5"})})
    with pytest.raises(HandoverRefused, match=r"topic t: local.retention.ms=864000000 exceeds retention.ms=5"):
        adopt(tmp_path)


def test_the_brokers_own_configuration_is_reported(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "end_points": [],
        "features": [],
        "is_migrating_zk_broker": False,
        "incarnation_id": IDS[0],
        "broker_epoch": 1,
        "rack": None,
    }
    (tmp_path / "meta.properties").write_text(
        f"version=1\nnode.id=7\ncluster.id=c\ndirectory.id={encode_uuid(IDS[3])}\n"
    )

    def config(name: str, value: str, kind: int = 4) -> MetadataRecord:
        common = {"resource_type": kind, "name": "log.retention.ms" if kind == 4 else "consumer.session.timeout.ms"}
        return MetadataRecord("config_record", 0, {**common, "resource_name": name, "value": value})

    broker = {**fields, "broker_id": 7, "fenced": True, "in_controlled_shutdown": False}
    ran(tmp_path, {}, MetadataRecord("register_broker_record", 3, {**broker, "log_dirs": [IDS[3]]}))
    assert adopt(tmp_path)["broker_config"] == {}
    registration = MetadataRecord("register_broker_record", 3, {**broker, "log_dirs": [IDS[3]]})
    other = MetadataRecord("register_broker_record", 3, {**broker, "broker_id": 8, "log_dirs": [IDS[2]]})
    ran(tmp_path, {}, registration, other, config("", "1"), config("8", "2"))
    assert adopt(tmp_path)["broker_config"] == {"log.retention.ms": "1"}
    ran(tmp_path, {}, registration, config("7", "3"), config("", "1"), config("g", "50000", 32))
    report = adopt(tmp_path)
    assert report["broker_config"] == {"log.retention.ms": "3"}
    assert report["group_configs"] == {"g": {"consumer.session.timeout.ms": "50000"}}


def test_every_directory_gets_the_topics(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    place(paths[0], "t", IDS[0])
    place(paths[1], "u", IDS[1])
    ran(paths[1], {"t": state(IDS[0], KEEP), "u": state(IDS[1], KEEP)})
    assert changes(adopt(paths)) == {"t": "added", "u": "added"}
    with klog.open(paths) as logs:
        assert [logs.log(name).topic_id for name in "tu"] == IDS[:2]
    assert (paths[0] / "klog-topics.json").read_bytes() == (paths[1] / "klog-topics.json").read_bytes()


def test_the_topics_of_a_directory_that_is_not_named_are_taken_over(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for path, directory_id in ((one, IDS[3]), (two, IDS[2])):
        path.mkdir()
        (path / "meta.properties").write_text(f"version=1\ndirectory.id={encode_uuid(directory_id)}\n")
    place(one, "here", IDS[0])
    place(two, "there", IDS[1])
    there = PartitionMetadata((1,), (1,), 1, 0, directories=(IDS[2],))
    foreign = PartitionMetadata((2,), (2,), 2, 0, directories=(IDS[4],))
    broker = {"incarnation_id": uuid.UUID(int=9), "features": [], "end_points": [], "broker_epoch": 1}
    registrations = [
        MetadataRecord("register_broker_record", 3, {**broker, "broker_id": node, "log_dirs": directories})
        for node, directories in ((1, [IDS[3], IDS[2]]), (2, [IDS[4]]))
    ]
    topics = {
        "here": state(IDS[0], KEEP),
        "there": TopicMetadata(IDS[1], {0: there}, KEEP),
        "foreign": TopicMetadata(IDS[4], {0: foreign}, KEEP),
    }
    ran(one, topics, *registrations)
    report = adopt(one)
    assert changes(report) == {"here": "added", "there": "added"}
    assert [warning.split(":")[0] for warning in report["warnings"]] == ["there"]
    with klog.open([one, two]) as logs:
        assert logs.topics()["there"] == [0]
        assert logs.log("there").config.retention_ms == -1
        logs.log("there").apply_retention()  # refuses for a topic of unknown configuration
    assert adopt([one, two])["warnings"] == []
    assert changes(adopt(one)) == {"here": "same", "there": "same"}
    with klog.open(one) as logs:
        assert "there" not in logs.topics()


def test_what_cannot_be_adopted_is_refused_untouched(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with klog.open(data, create=True) as logs:
        logs.create_topic("t", config=KEEP)
    with pytest.raises(HandoverRefused, match="neither"):
        adopt(data)
    handover(data, properties_out="-")
    with klog.open(data) as logs:
        logs.alter_topic("t", {"retention.ms": 5})
        topic_id = logs.log("t").topic_id
        with pytest.raises(AlreadyLocked):
            adopt(data)
    before = tree(data)
    with pytest.raises(HandoverRefused, match="no controller has run here"):
        adopt(data)
    assert tree(data) == before
    ran(data, {"t": state(topic_id)})
    before = tree(data)
    with pytest.raises(OSError, match="error"):
        adopt(data, files=FailingFiles(1))
    assert tree(data) == before
    (data / "t-0").rename(tmp_path / "t-0")
    (data / "t-0").symlink_to(tmp_path / "t-0")
    before = tree(data)
    with pytest.raises(HandoverRefused, match="t-0 is a symbolic link.*move it away"):
        adopt(data)
    assert tree(data) == before


def test_a_test_broker_serves_a_copy_of_kafkas_directory(tmp_path: Path) -> None:
    """It adopts the copy; klog.Broker refuses the directory itself until it is adopted."""
    data = Path(shutil.copytree(HOME / "internal" / "logdir", tmp_path / "data"))
    before = tree(data)
    with klog.TestBroker(copy_of=data) as broker:
        topics = broker.logs.topics()
        assert "__consumer_offsets" in topics
        found = {name: len(broker.topic(name).records()) for name in topics if not name.startswith("__")}
        assert sum(found.values()) > 0
        broker.create_topic("more")
        broker.restore(data)
        assert broker.logs.topics() == topics
    assert tree(data) == before
    with pytest.raises(HandoverRefused, match="--adopt"):
        klog.Broker(data, listeners=["127.0.0.1:0"]).start()
    adopt(data)
    with klog.Broker(data, listeners=["127.0.0.1:0"]) as served:
        assert served.logs.topics() == topics
        assert served.groups()
