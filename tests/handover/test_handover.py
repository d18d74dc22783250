"""handover(): the directory that a broker gets, the directories that are refused; a failure leaves the directory usable."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.config.properties import parse_properties, read_properties
from klog.coordinator.transactions.producer_ids import raise_next
from klog.disk import DirectoryLock, RealFiles
from klog.errors import AlreadyLocked, ConfigUnknown, DuplicateLog, HandoverRefused, InconsistentTopicId
from klog.handover import MetadataRecord, handover, metadata
from klog.handover.cluster import PartitionMetadata
from klog.log.directory import versioned
from klog.log.directory.checkpoint import decode_uuid, encode_uuid, format_metadata
from klog.log.state.producer_state import ProducerState
from klog.log.state.snapshots import format_snapshot
from klog.record import decode, encode
from klog.security import Authorizer, ClientQuotas, SecurityConfig, Users
from klog.security.acl_types import Acl, Operation, PatternType, Permission, ResourceType
from klog.security.config import AUTHORIZER
from tests.support.batches import produced
from tests.support.failing_files import FailingFiles
from tests.support.golden import HOME
from tests.support.logs import tree
from tests.support.own_json import unchecked_in

NOW = 1_800_000_000_000
KEEP = {"retention.ms": -1}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of two partitions, with leader epochs and a producer."""
    path = tmp_path / "data"
    with klog.open(path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", 2, config={**KEEP, "cleanup.policy": ["compact", "delete"], "preallocate": False})
        logs.log("t", 0).append([(b"k", b"v")])
        logs.log("t", 0).append_batches(encode([(b"k", b"w", NOW)]), leader_epoch=7)
        logs.log("t", 1).append_batches(produced(4711, 0, 0, 2, at=NOW))
    return path


def run(path: Any, **options: Any) -> dict[str, Any]:
    return handover(path, clock=ManualClock(NOW), **options)


def touched(path: Path) -> Callable[[], set[str]]:
    """A function that returns the names of the files in `path` that have changed since."""
    before = tree(path)
    return lambda: (
        {name for name, content in tree(path).items() if before.get(name) != content}
        | before.keys() - tree(path).keys()
    )


def batches(path: Path) -> list[Any]:
    return list(decode((path / "bootstrap.checkpoint").read_bytes()))


# ---- what is written -------------------------------------------------------------------------------------------------


def test_a_broker_finds_its_topics(data: Path) -> None:
    changed = touched(data)
    report = run(data, cluster_id="kl0gKl0gKl0gKl0gKl0gKg", node_id=5)
    assert changed() == {"meta.properties", "bootstrap.checkpoint", ".kafka_cleanshutdown"}
    properties = read_properties(data / "meta.properties")
    directory_id = decode_uuid(properties.pop("directory.id"))
    assert directory_id is not None
    assert properties == {"version": "1", "cluster.id": "kl0gKl0gKl0gKl0gKl0gKg", "node.id": "5"}
    assert (data / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":0}'

    found = metadata(data)
    with klog.open(data, read_only=True) as logs:
        topic_id = logs.log("t").topic_id
    topic = found.topics["t"]
    assert topic.topic_id == topic_id and found.topics.keys() == {"t"}
    assert topic.config == {"retention.ms": "-1", "cleanup.policy": "compact,delete", "preallocate": "false"}
    alone = {"replicas": (5,), "isr": (), "leader": -1, "eligible_leader_replicas": (5,), "last_known_elr": (5,)}
    assert topic.partitions == {
        number: PartitionMetadata(**alone, leader_epoch=epoch, directories=(directory_id,))  # type: ignore[arg-type]
        for number, epoch in ((0, 7), (1, 0))
    }
    assert found.next_producer_id == report["next_producer_id"] == 5000
    broker = found.brokers[5]
    assert (broker["fenced"], broker["broker_epoch"]) == (True, 0)
    assert broker["log_dirs"] == [encode_uuid(directory_id)]
    assert report["topics"] == [
        {"topic": "t", "topic_id": encode_uuid(topic_id), "partitions": 2, "config": dict(topic.config)}
    ]
    assert report["records"] == sum(batch.count for batch in batches(data)) - 2


@pytest.mark.parametrize("release", ["4.0", "4.1", "4.2", "4.3"])
def test_the_checkpoint_begins_as_kafkas_own(data: Path, release: str) -> None:
    run(data, kafka_version=f"{release}.1")
    theirs = list(decode((HOME / "handover" / f"{release}.checkpoint").read_bytes()))
    ours = batches(data)
    features = [record.value for record in theirs[1]]
    assert [record.value for record in ours[1]][: len(features)] == features
    for batch, kafkas in ((ours[0], theirs[0]), (ours[-1], theirs[-1])):
        assert [(record.key, record.value) for record in batch] == [(record.key, record.value) for record in kafkas]
        assert (batch.is_control, batch.leader_epoch, batch.compression) == (True, kafkas.leader_epoch, "none")
    offsets = [(batch.base_offset, batch.last_offset) for batch in ours]
    assert [first for first, _ in offsets] == [0, *(last + 1 for _, last in offsets[:-1])]
    assert metadata(data).topics["t"].partitions[0].isr == ((1,) if release == "4.0" else ())


def test_the_server_properties_are_ready(data: Path, tmp_path: Path) -> None:
    with klog.open(data) as logs:
        logs.create_topic("__consumer_offsets", 3, config={"cleanup.policy": "compact"})
    listeners = ["127.0.0.1:19092", "SASL_SSL://kafka.example.com:19093"]
    report = run(data, node_id=5, controller_listener="127.0.0.1:19094", listeners=listeners)
    path = tmp_path / "data.server.properties"
    assert report["server_properties"] == str(path) and path.read_text() == report["properties"]
    assert "\\" not in report["properties"]
    found = read_properties(path)
    assert found["log.dirs"] == found["metadata.log.dir"] == str(data)
    assert found["controller.quorum.voters"] == "5@127.0.0.1:19094"
    assert (
        found["listeners"]
        == "PLAINTEXT://127.0.0.1:19092,SASL_SSL://kafka.example.com:19093,CONTROLLER://127.0.0.1:19094"
    )
    assert found["offsets.topic.num.partitions"] == "3" and "transaction.state.log.num.partitions" not in found
    assert report["command"] == f"bin/kafka-server-start.sh {path}"


def test_server_properties_of_others_are_not_overwritten(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.server.properties"
    path.write_text("my=own\n")
    changed = touched(tmp_path)
    with pytest.raises(HandoverRefused, match="exists and differs"):
        run(data)
    assert changed() == set()
    assert run(data, properties_out="-")["server_properties"] is None
    assert path.read_text() == "my=own\n"


def test_a_second_handover_changes_nothing(data: Path, tmp_path: Path) -> None:
    first = run(data)
    assert len(first["changed"]) == 4
    changed = touched(tmp_path)
    second = handover(data, clock=ManualClock(NOW + 1000))
    assert second == {**first, "changed": []} and changed() == set()
    with klog.open(data, clock=ManualClock(NOW)) as logs:
        logs.create_topic("later", config=KEEP)
    third = run(data)
    assert third["cluster_id"] == first["cluster_id"] and third["changed"] == [str(data / "bootstrap.checkpoint")]
    assert metadata(data).topics.keys() == {"t", "later"}


def test_a_dry_run_changes_nothing(data: Path, tmp_path: Path) -> None:
    changed = touched(tmp_path)
    planned = run(data, dry_run=True)
    assert changed() == set()
    assert planned["changed"] == run(data)["changed"]


def test_a_topic_without_an_id_gets_one(data: Path) -> None:
    with klog.open(data) as logs:
        logs.create_topic("__consumer_offsets", 2, config=KEEP)
    (data / "klog-topics.json").unlink()
    with klog.open(data) as logs:
        logs.alter_topic("t", KEEP)
    for number in range(2):
        (data / f"__consumer_offsets-{number}" / "partition.metadata").unlink()
    report = run(data)
    topic = metadata(data).topics["__consumer_offsets"]
    stored = [(data / f"__consumer_offsets-{number}" / "partition.metadata").read_bytes() for number in range(2)]
    assert stored == [format_metadata(topic.topic_id)] * 2 and len(report["changed"]) == 6
    assert topic.config == {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert run(data)["changed"] == []


def test_what_kafka_does_not_take_is_left_out_with_a_warning(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", config={"segment.bytes": 5000, "klog.io.read": "direct", "internal.segment.bytes": 999})
        logs.create_topic("old", config={"retention.ms": 1000})
        logs.log("old").append([(b"k", b"v", NOW - 5000)])
        logs.create_topic("kept", config=KEEP)
        logs.log("kept").append([(b"k", b"v", NOW - 5000)])
    report = run(tmp_path / "data")
    assert metadata(tmp_path / "data").topics["t"].config == {"segment.bytes": "1048576"}
    shown = "\n".join(report["warnings"])
    assert len(report["warnings"]) == 4
    assert "t: klog.io.read=direct is left out" in shown and "segment.bytes=5000 becomes 1048576" in shown
    assert "topic old: a running broker deletes its records" in shown


def test_producer_ids_are_above_all_seen(data: Path) -> None:
    assert run(data, dry_run=True)["next_producer_id"] == 5000
    assert run(data, dry_run=True, next_producer_id=5001)["next_producer_id"] == 6000
    state = b"\0\0" + (70_000).to_bytes(8) + b"\0\1\0\0\0\1\0\0\0\0\0" + bytes(16)
    with klog.open(data) as logs:
        logs.create_topic("__transaction_state", config={"cleanup.policy": "compact"})
        logs.append("__transaction_state", [(b"\0\0\0\1x", state)])
    assert run(data, dry_run=True)["next_producer_id"] == 71_000
    expired = {90_000: ProducerState(0, 0, 0, 0, NOW, -1, None)}
    (data / "t-1" / f"{1:020d}.snapshot").write_bytes(format_snapshot(expired))
    assert run(data, dry_run=True)["next_producer_id"] == 91_000
    raise_next(RealFiles(), str(data), 95_000)  # klog's broker has given out ids that no log has
    assert run(data, dry_run=True)["next_producer_id"] == 95_000
    (data / "t-1" / f"{1:020d}.snapshot").write_bytes(format_snapshot({1 << 62: expired[90_000]}))
    assert run(data)["next_producer_id"] == 95_000, "a forged id would use up all others"


def test_producer_ids_are_found_without_snapshots(data: Path) -> None:
    for path in data.glob("t-*/*.snapshot"):
        path.unlink()
    assert run(data)["next_producer_id"] == 5000


def test_the_brokers_users_rules_quotas_and_configurations_are_handed_over(data: Path, tmp_path: Path) -> None:
    config = SecurityConfig.of({"authorizer.class.name": AUTHORIZER})
    Users(str(data)).set_password("alice", "SCRAM-SHA-512", "pencil")
    kinds = ResourceType.TOPIC, PatternType.PREFIXED
    rule = Acl(*kinds, "t", "User:alice", "*", Operation.READ, Permission.ALLOW)
    Authorizer(str(data), config).change(add=[rule])
    entity = (("client-id", None), ("user", "alice"))
    ClientQuotas(str(data), config, ManualClock(NOW)).change({entity: {"producer_byte_rate": 5.0}})
    document = {
        "version": 1,
        "broker": {"log.retention.ms": "7"},
        "default": {"klog.x": "1", "compression.type": "lz4"},
        "groups": {"g": {"consumer.session.timeout.ms": "50000"}},
    }
    (data / "klog-broker.json").write_bytes(versioned.encode(document))

    report = run(data, node_id=4)
    found = metadata(data)
    stored = Users(str(data)).of("alice")["SCRAM-SHA-512"]
    user = found.scram["alice", 2]
    assert (user["iterations"], user["salt"], user["stored_key"], user["server_key"]) == (
        *(stored.iterations, stored.salt, stored.stored_key, stored.server_key),
    )
    (acl,) = found.acls.values()
    assert (acl["resource_type"], acl["pattern_type"], acl["resource_name"], acl["principal"]) == (
        2,
        4,
        "t",
        "User:alice",
    )
    assert (acl["host"], acl["operation"], acl["permission_type"]) == ("*", 3, 3)
    assert found.quotas == {entity: {"producer_byte_rate": 5.0}}
    assert found.configs == {
        ("broker", "4"): {"log.retention.ms": "7"},
        ("broker", ""): {"compression.type": "lz4"},
        ("group", "g"): {"consumer.session.timeout.ms": "50000"},
    }
    assert (data / "bootstrap.checkpoint").stat().st_mode & 0o777 == 0o600, "it has the keys of users"
    shown = "\n".join(report["warnings"])
    assert "access rules have no effect" in shown and "no listener has SASL" in shown
    assert run(data, node_id=4)["changed"] == []
    (tmp_path / "data.server.properties").unlink()
    secured = run(data, node_id=4, listeners="SASL_SSL://h:1", config={"authorizer.class.name": AUTHORIZER})
    assert secured["warnings"] == []


def test_further_entries_of_the_server_properties(data: Path) -> None:
    config = {"log.retention.ms": -1, "auto.create.topics.enable": False, "klog.sasl.failures.max": 3}
    found = parse_properties(run(data, config=config, properties_out="-")["properties"])
    assert found["log.retention.ms"] == "-1" and found["auto.create.topics.enable"] == "false"
    assert not any(key.startswith("klog.") for key in found)
    with pytest.raises(ValueError, match="config='log.dirs': the handover sets it"):
        run(data, config={"log.dirs": "/x"})


def test_extra_records_are_handed_over(data: Path, tmp_path: Path) -> None:
    fields = {"name": "u", "mechanism": 1, "salt": b"s", "stored_key": b"k", "server_key": b"k", "iterations": 4096}
    user = MetadataRecord("user_scram_credential_record", 0, fields)
    run(data, extra=[user])
    assert list(metadata(data).security_records()) == [user]
    for wrong, error in ((user._replace(version=9), ValueError), ("user", TypeError)):
        with pytest.raises(error, match="extra"):
            run(data, extra=[wrong])


def test_several_directories_become_one_broker(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    with klog.open(paths, create=True) as logs:
        logs.create_topic("t", 4, config=KEEP)
    with pytest.raises(HandoverRefused, match="name all log.dirs"):
        run(paths[0])
    report = run(paths)
    ids = [decode_uuid(read_properties(path / "meta.properties")["directory.id"]) for path in paths]
    for number, partition in metadata(paths).topics["t"].partitions.items():
        home = next(path for path in paths if (path / f"t-{number}").exists())
        assert partition.directories == (ids[paths.index(home)],)
    assert not (paths[1] / "bootstrap.checkpoint").exists()
    assert report["properties"].count(f"{paths[0]},{paths[1]}") == 1
    assert read_properties(paths[1] / "meta.properties")["cluster.id"] == report["cluster_id"]


# ---- what is refused -------------------------------------------------------------------------------------------------


def leave_unclean(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()


def add_directory(data: Path) -> None:
    (data / "lost+found").mkdir()


def add_metadata_log(data: Path) -> None:
    log = data / "__cluster_metadata-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(b"x")


def add_future(data: Path) -> None:
    (data / f"t-0.{'0' * 32}-future").mkdir()


def add_commit(data: Path) -> None:
    (data / "klog-commit-a.json").write_text("{}")


def add_staged(data: Path) -> None:
    (data / "u-0" / ".klog-staging-a").mkdir(parents=True)


def forget_config(data: Path) -> None:
    (data / "klog-topics.json").unlink()


def lose_partition(data: Path) -> None:
    shutil.rmtree(data / "t-0")


def mix_topics(data: Path) -> None:
    (data / "t-1" / "partition.metadata").write_bytes(format_metadata(uuid.UUID(int=1 << 100)))


def begin_deletion(data: Path) -> None:
    path = data / "klog-topics.json"
    document = unchecked_in(path)
    document["topics"]["t"]["state"] = "deleting"
    path.write_text(json.dumps(document))


def other_node(data: Path) -> None:
    (data / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=other\n")


@pytest.mark.parametrize(
    ("prepare", "error", "message"),
    [
        (leave_unclean, HandoverRefused, "was not closed cleanly.*load_all"),
        (add_directory, HandoverRefused, "lost\\+found is not a partition.*move it away"),
        (add_metadata_log, HandoverRefused, "has the metadata log.*adopt"),
        (add_future, HandoverRefused, "a move between directories has not ended"),
        (add_commit, HandoverRefused, "the commit a has not ended"),
        (add_staged, HandoverRefused, "u-0 holds only the staged files"),
        (lambda path: (path / "u-0").symlink_to("t-0"), HandoverRefused, "u-0 is a symbolic link.*move it away"),
        (forget_config, ConfigUnknown, "alter_topic\\('t'"),
        (lose_partition, HandoverRefused, "of its 2 partitions 0 are not in these"),
        (mix_topics, InconsistentTopicId, "partition 1 is of another topic"),
        (begin_deletion, HandoverRefused, "'t' was left in the state 'deleting'"),
        (other_node, HandoverRefused, "has node.id=2, not 1"),
    ],
)
def test_a_directory_is_refused_untouched(
    data: Path, tmp_path: Path, prepare: Callable[[Path], None], error: type[Exception], message: str
) -> None:
    prepare(data)
    changed = touched(tmp_path)
    with pytest.raises(error, match=message):
        run(data)
    assert changed() == set()


@pytest.mark.parametrize("make", [os.mkfifo, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_file_with_the_name_of_a_partition_is_left_alone(data: Path, make: Callable[[Path], None]) -> None:
    make(data / "u-0")
    assert [topic["topic"] for topic in run(data)["topics"]] == ["t"]


def test_an_open_directory_is_refused(data: Path) -> None:
    with klog.open(data), pytest.raises(AlreadyLocked):
        run(data)
    run(data)
    lock = DirectoryLock(str(data))  # released by the handover
    lock.release()


def test_a_partition_in_two_directories_is_refused(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "copy")
    with pytest.raises(DuplicateLog, match="is there twice"):
        run([data, tmp_path / "copy"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka_version": "3.9"}, "kafka_version='3.9': choose from 4.0"),
        ({"kafka_version": "4.1.x"}, "kafka_version='4.1.x'"),
        ({"cluster_id": "mine"}, "cluster_id='mine': 22 characters"),
        ({"node_id": -1}, "node_id=-1"),
        ({"listeners": []}, "listeners=\\[\\]"),
        ({"listeners": ["localhost"]}, "listeners\\[0\\]='localhost': host:port expected"),
        ({"listeners": ["HTTP://a:1"]}, "listeners\\[0\\]='HTTP://a:1'"),
        ({"listeners": ["a:1", "b:2"]}, "at most one listener of each protocol"),
        ({"listeners": "a:9093"}, "its own port"),
        ({"listeners": "a:70000"}, "listeners\\[0\\]='a:70000'"),
        ({"controller_listener": "0.0.0.0:1"}, "controller_listener='0.0.0.0:1': an address to connect to"),
        ({"next_producer_id": -1}, "next_producer_id=-1"),
    ],
)
def test_a_wrong_argument_is_named(data: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(data, **options)
    with pytest.raises(ValueError, match="a comma separates"):
        run(data.parent / "a,b")


# ---- crashes ---------------------------------------------------------------------------------------------------------


def test_a_failure_leaves_a_directory_for_klog_and_for_another_handover(data: Path, tmp_path: Path) -> None:
    """The Nth operation fails, for N = 1, 2, ... until none does: W1."""
    with klog.open(data) as logs:
        logs.create_topic("__consumer_offsets", config=KEEP)
    (data / "__consumer_offsets-0" / "partition.metadata").unlink()
    (data / "klog-topics.json").unlink()
    with klog.open(data) as logs:
        logs.alter_topic("t", KEEP)
    failed = 0
    for nth in itertools.count(1):
        copy = Path(shutil.copytree(data, tmp_path / f"{nth}" / "data"))
        files = FailingFiles(nth, forever=True)
        try:
            run(copy, files=files)
        except OSError:
            failed += 1
            has_meta = (copy / "meta.properties").exists()
            assert not has_meta or files.failed == ["fsync_dir"], "a broker could start on half a handover"
            with klog.open(shutil.copytree(copy, tmp_path / f"{nth}" / "again")) as logs:
                assert logs.clean_shutdown and [record.value for record in logs.log("t").read()] == [b"v", b"w"]
            run(copy)
            assert metadata(copy).topics.keys() == {"t", "__consumer_offsets"}
            assert not [name for name in os.listdir(copy) if name.endswith(".tmp")]
        else:
            break
    assert failed >= 5
