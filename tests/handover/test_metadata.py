"""metadata() reads what a controller has written: snapshots, the log after them, transactions, damage."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptData, HandoverRefused
from klog.handover import ClusterMetadata, MetadataRecord, metadata
from klog.handover.cluster import PartitionMetadata, TopicMetadata
from klog.handover.snapshot import snapshot_bytes
from klog.record import encode
from tests.support.golden import HOME

NOW = 1_800_000_000_000
FEATURE = MetadataRecord("feature_level_record", 0, {"name": "metadata.version", "feature_level": 27})
IDS = [uuid.UUID(int=(number + 1) << 100) for number in range(4)]
TOPIC = MetadataRecord("topic_record", 0, {"name": "t", "topic_id": IDS[0]})


def record(kind: str, version: int = 0, **fields: Any) -> MetadataRecord:
    return MetadataRecord(kind, version, fields)


def config(name: str, key: str, value: str | None, kind: int = 2) -> MetadataRecord:
    return record("config_record", resource_type=kind, resource_name=name, name=key, value=value)


def partition(number: int = 0, topic_id: uuid.UUID = IDS[0]) -> MetadataRecord:
    nobody: dict[str, Any] = {"removing_replicas": [], "adding_replicas": []}
    fields = {
        "partition_id": number,
        "topic_id": topic_id,
        "replicas": [1, 2],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 3,
    }
    return record("partition_record", 2, **fields, **nobody, partition_epoch=5, directories=IDS[2:4])


def write(directory: Path, *records: MetadataRecord, at: int = 0, name: str = f"{0:020d}.log") -> Path:
    """Append a batch for each record to a metadata log."""
    path = directory / "__cluster_metadata-0" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for offset, each in enumerate(records, at):
            file.write(encode([(None, each.value(), NOW)], base_offset=offset, leader_epoch=1))
    return path


def snapshot(directory: Path, offset: int, *records: MetadataRecord) -> Path:
    path = directory / "__cluster_metadata-0" / f"{offset:020d}-{1:010d}.checkpoint"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(snapshot_bytes(records, NOW))
    return path


def test_a_real_brokers_snapshots_and_log() -> None:
    found = metadata(HOME / "internal" / "logdir")
    assert found.offset == 126 and found.next_producer_id == 1000
    assert found.features == {
        "metadata.version": 27,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
        "transaction.version": 2,
    }
    assert {name: len(topic.partitions) for name, topic in found.topics.items()} == {
        "__consumer_offsets": 1,
        "__transaction_state": 1,
        "clicks": 3,
    }
    assert found.topics["__consumer_offsets"].config["cleanup.policy"] == "compact"
    stored = (HOME / "internal" / "logdir" / "clicks-0" / "partition.metadata").read_text()
    assert found.topics["clicks"].topic_id == uuid.UUID("0ec85ed5-05e6-4937-9872-e0bb30b35e5b")
    assert stored.endswith("Dshe1QXmSTeYcuC7MLNeWw")
    assert found.brokers[1]["fenced"] is True and found.controllers.keys() == {1}
    assert found.configs == {("broker", ""): {"min.insync.replicas": "1"}}


def test_records_after_a_snapshot_change_what_it_states(tmp_path: Path) -> None:
    snapshot(tmp_path, 10, FEATURE, TOPIC, partition(), config("t", "a", "1"), config("t", "b", "2"))
    write(tmp_path, config("t", "skipped", "old"), at=9)  # in the snapshot already
    write(
        tmp_path,
        config("t", "a", None),
        config("7", "log.retention.ms", "5", kind=4),
        record("partition_change_record", 2, partition_id=0, topic_id=IDS[0], isr=[2], leader=2),
        record("partition_change_record", 2, partition_id=0, topic_id=IDS[0], isr=[2, 1]),
        record("producer_ids_record", broker_id=1, broker_epoch=1, next_producer_id=3000),
        at=10,
    )
    found = metadata(tmp_path)
    assert found.offset == 15 and found.next_producer_id == 3000
    assert found.topics["t"].config == {"b": "2"} and found.configs == {("broker", "7"): {"log.retention.ms": "5"}}
    assert found.topics["t"].partitions[0] == PartitionMetadata(
        (1, 2), (2, 1), leader=2, leader_epoch=4, partition_epoch=7, directories=(IDS[2], IDS[3])
    )


def test_what_is_removed_is_gone(tmp_path: Path) -> None:
    acl: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "t",
        "pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
    }
    entity = [{"entity_type": "user", "entity_name": None}]
    user: dict[str, Any] = {"name": "u", "mechanism": 1}
    added = [
        TOPIC,
        partition(),
        config("t", "a", "1"),
        record("access_control_entry_record", id=IDS[1], permission_type=3, **acl),
        record("user_scram_credential_record", **user, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096),
        record("client_quota_record", entity=entity, key="rate", value=2.5, remove=False),
    ]
    write(tmp_path, FEATURE, *added)
    found = metadata(tmp_path)
    assert len(found.topics) == len(found.acls) == 1 and found.scram.keys() == {("u", 1)}
    assert found.quotas == {(("user", None),): {"rate": 2.5}}
    assert len(list(found.security_records())) == 3
    removed = [
        record("remove_topic_record", topic_id=IDS[0]),
        record("remove_access_control_entry_record", id=IDS[1]),
        record("remove_user_scram_credential_record", **user),
        record("client_quota_record", entity=entity, key="rate", value=0.0, remove=True),
    ]
    write(tmp_path, *removed, at=7)
    found = metadata(tmp_path)
    assert not (found.topics or found.acls or found.scram or found.quotas or found.configs)
    write(tmp_path, TOPIC, at=11)
    assert metadata(tmp_path).topics["t"].config == {}, "a topic of the same name must not get the old configuration"


@pytest.mark.parametrize(("end", "counts"), [("end", True), ("abort", False), (None, False)])
def test_records_of_a_transaction_count_at_its_end(tmp_path: Path, end: str | None, counts: bool) -> None:
    records = [FEATURE, record("begin_transaction_record", name="x"), TOPIC]
    if end is not None:
        records.append(record(f"{end}_transaction_record"))
    write(tmp_path, *records)
    assert ("t" in metadata(tmp_path).topics) is counts


def test_an_incomplete_snapshot_is_skipped(tmp_path: Path) -> None:
    snapshot(tmp_path, 2, FEATURE, TOPIC)
    newer = snapshot(tmp_path, 5, FEATURE)
    newer.write_bytes(newer.read_bytes()[:-20])
    write(tmp_path, config("t", "a", "1"), at=2)
    assert metadata(tmp_path).topics["t"].config == {"a": "1"}


def test_the_newest_snapshot_counts(tmp_path: Path) -> None:
    """The log before it may be gone."""
    snapshot(tmp_path, 2, FEATURE, TOPIC)
    snapshot(tmp_path, 5, FEATURE, TOPIC, config("t", "a", "1"))
    write(tmp_path, config("t", "b", "2"), at=5)
    assert metadata(tmp_path).topics["t"].config == {"a": "1", "b": "2"}


def test_a_torn_end_is_left_out_and_damage_before_it_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, FEATURE, TOPIC, config("t", "a", "1"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    assert metadata(tmp_path).topics["t"].config == {} and metadata(tmp_path).offset == 2
    path.write_bytes(whole[:90] + b"\xff" + whole[91:])
    with pytest.raises(CorruptData):
        metadata(tmp_path)


def test_missing_records_are_an_error(tmp_path: Path) -> None:
    snapshot(tmp_path, 3, FEATURE)
    write(tmp_path, TOPIC, at=5)
    with pytest.raises(CorruptData, match="offset 3 expected, 5 found"):
        metadata(tmp_path)


def test_a_null_where_kafka_has_none_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, FEATURE)
    null_name = b"\1\2\0" + b"\0" + IDS[0].bytes + b"\0"
    with path.open("ab") as file:
        file.write(encode([(None, null_name, NOW)], base_offset=1, leader_epoch=1))
    with pytest.raises(CorruptData, match="name"):
        metadata(tmp_path)


def test_a_directory_without_metadata_is_refused_and_a_formatted_one_is_read(tmp_path: Path) -> None:
    with pytest.raises(HandoverRefused, match=r"neither __cluster_metadata-0 nor bootstrap.checkpoint"):
        metadata(tmp_path)
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "bootstrap.checkpoint").write_bytes((HOME / "handover" / "4.1.checkpoint").read_bytes())
    found = metadata(tmp_path)
    assert found.offset is None and found.features["metadata.version"] == 27 and not found.topics
    snapshot(tmp_path, 0)  # of `format --standalone`: the voters, and no record of metadata
    assert metadata(tmp_path) == found


numbers = st.integers(0, 2**31 - 1)
replicas = st.lists(numbers, max_size=3).map(tuple)
ids = st.uuids().filter(lambda each: each.int > 100)
partitions = st.builds(
    PartitionMetadata,
    replicas=replicas,
    isr=replicas,
    leader=st.integers(-1, 2**31 - 1),
    leader_epoch=numbers,
    partition_epoch=numbers,
    directories=st.lists(ids, max_size=3).map(tuple),
    removing_replicas=replicas,
    adding_replicas=replicas,
    leader_recovery_state=st.integers(0, 1),
    eligible_leader_replicas=replicas,
    last_known_elr=replicas,
)
texts = st.text(st.characters(codec="utf-8"), max_size=40)
configs = st.dictionaries(texts, texts, max_size=4)
topics = st.builds(
    TopicMetadata, topic_id=ids, partitions=st.dictionaries(numbers, partitions, max_size=3), config=configs
)


@given(st.dictionaries(st.text("abc.-_", min_size=1, max_size=9), topics, max_size=5), st.integers(1, 3))
def test_any_topics_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, given_topics: dict[str, TopicMetadata], size: int
) -> None:
    cluster = ClusterMetadata(features={"metadata.version": 30}, topics=given_topics)
    if len({topic.topic_id for topic in given_topics.values()}) < len(given_topics):
        return
    directory = tmp_path_factory.mktemp("data")
    (directory / "bootstrap.checkpoint").write_bytes(snapshot_bytes([FEATURE, *cluster.topic_records(2)], NOW))
    assert metadata(directory).topics == given_topics
    records = [FEATURE, *cluster.topic_records(2)]
    snapshot(directory, size, *records[:size])
    write(directory, *records[size:], at=size)
    assert metadata(directory).topics == given_topics


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_is_a_named_error_or_a_shorter_log(
    tmp_path_factory: pytest.TempPathFactory, position: int, flip: int
) -> None:
    directory = tmp_path_factory.mktemp("data")
    path = write(directory, FEATURE, TOPIC, partition(), config("t", "a", "1"))
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= flip
    path.write_bytes(data)
    try:
        found = metadata(directory)
    except (CorruptData, HandoverRefused):
        return
    assert found.features and found.topics.keys() <= {"t"}
