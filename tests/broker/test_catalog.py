"""The catalogue always has the current topics of its LogManager, and reports their changes."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.broker import Broker
from klog.broker.catalog import TopicCatalogView, TopicChange
from klog.clock import ManualClock
from klog.errors import TopicExists, UnknownTopicOrPartition
from klog.protocol import ApiKey, messages
from klog.scheduler import Scheduler
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient

NOW = 1_700_000_000_000


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    with klog.open(tmp_path / "data", create=True, clock=ManualClock(NOW)) as manager:
        yield manager


def test_names_ids_and_partitions_are_those_of_the_manager(logs: klog.LogManager) -> None:
    own_id = uuid.uuid4()
    logs.create_topic("b", 3, topic_id=own_id)
    logs.create_topic("a")
    view = TopicCatalogView(logs)
    assert view.names() == ["a", "b"]
    assert (view.partitions("b"), view.topic_id("b"), view.name_of(own_id)) == (3, own_id, "b")
    log = view.log("b", 2)
    assert log is not None and (log.topic, log.partition) == ("b", 2)


def test_unknown_names_ids_and_partitions_are_none(logs: klog.LogManager) -> None:
    logs.create_topic("a")
    view = TopicCatalogView(logs)
    assert (view.partitions("x"), view.topic_id("x"), view.name_of(uuid.uuid4()), view.get("x")) == (None,) * 4
    assert [view.log("a", number) for number in (-1, 1, 2**31, 2**63)] == [None] * 4
    assert view.log("x", 0) is None


def test_a_partition_without_its_directory_counts(tmp_path: Path) -> None:
    """Clients and coordinators find the partition of a key by the number of partitions."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("a", partitions=3)
    for number in (1, 2):
        shutil.rmtree(tmp_path / f"a-{number}")
    with klog.open(tmp_path) as logs:
        view = TopicCatalogView(logs)
        assert view.partitions("a") == 3
        assert [view.log("a", number) is None for number in range(3)] == [False, True, True]


def test_a_change_through_the_manager_is_seen_at_once(logs: klog.LogManager) -> None:
    view = TopicCatalogView(logs)
    logs.create_topic("a")
    first = view.topic_id("a")
    logs.add_partitions("a", 4)
    assert view.partitions("a") == 4
    logs.alter_topic("a", {"retention.ms": 5})
    info = view.get("a")
    assert info is not None and info.config == {"retention.ms": 5}
    logs.delete_topic("a")
    assert view.names() == [] and view.log("a", 0) is None
    logs.create_topic("a")
    assert view.topic_id("a") not in (first, None) and first is not None and view.name_of(first) is None


def test_lookups_beside_changes_never_leave_an_old_picture(logs: klog.LogManager) -> None:
    view, done = TopicCatalogView(logs), threading.Event()

    def look() -> None:
        while not done.is_set():
            view.names()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for name in map(str, range(20)):
            logs.create_topic(name)
            assert view.partitions(name) == 1
            logs.add_partitions(name, 2)
            assert view.partitions(name) == 2
            logs.alter_topic(name, {"retention.ms": 5})
            info = view.get(name)
            assert info is not None and info.config == {"retention.ms": 5}
            logs.delete_topic(name)
            assert view.partitions(name) is None
    finally:
        done.set()
        looking.join()


def test_lookups_without_a_change_list_no_directories(logs: klog.LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.create_topic("a")
    view = TopicCatalogView(logs)
    view.log("a", 0)

    def refuse(*_: object) -> None:
        raise AssertionError("a lookup listed directories")

    monkeypatch.setattr(klog.LogManager, "topics", refuse)
    assert view.names() == ["a"] and view.partitions("a") == 1 and view.log("a", 0) is not None
    assert view.log("a", 1) is None and view.log("x", 0) is None


def test_topic_ids_are_kept_and_a_topic_without_one_gets_the_same_id_at_each_start(tmp_path: Path) -> None:
    given = uuid.uuid4()
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("with", 2, topic_id=given)
        logs.create_topic("without")
    (tmp_path / "data" / "klog-topics.json").unlink()
    (tmp_path / "data" / "without-0" / "partition.metadata").unlink()
    shutil.copytree(tmp_path / "data" / "with-0", tmp_path / "data" / "__cluster_metadata-0")
    made = []
    for _ in range(2):
        with klog.open(tmp_path / "data") as logs:
            view = TopicCatalogView(logs)
            assert view.names() == ["with", "without"]
            assert (view.topic_id("with"), view.partitions("with")) == (given, 2)
            made.append(view.topic_id("without"))
            assert made[-1] is not None and view.name_of(made[-1]) == "without"
            assert logs.topic_entries() == {}, "a lookup has written"
    assert made[0] == made[1]


def test_changes_are_reported_after_they_were_made(logs: klog.LogManager) -> None:
    view = TopicCatalogView(logs)
    seen: list[TopicChange] = []
    view.on_change(seen.append)
    info = view.create("a", 2, {"retention.ms": 7})
    assert seen.pop() == TopicChange(created=(info,))
    more = view.add_partitions("a", 3)
    assert more.partitions == 3 and seen.pop() == TopicChange(extended=(more,))
    view.alter("a", {"retention.ms": 8})
    (altered,) = seen.pop().altered
    assert altered.config == {"retention.ms": 8}
    view.delete("a")
    assert seen.pop() == TopicChange(deleted=(altered,))
    with pytest.raises(UnknownTopicOrPartition):
        view.delete("a")
    assert seen == []


def test_a_topic_that_was_created_again_is_reported_as_deleted_and_created(logs: klog.LogManager) -> None:
    view = TopicCatalogView(logs)
    old = view.create("a", 1)
    seen: list[TopicChange] = []
    view.on_change(seen.append)
    logs.delete_topic("a")
    logs.create_topic("a")
    view.report()
    (change,) = seen
    assert change.deleted == (old,) and [info.name for info in change.created] == ["a"]
    assert change.created[0].topic_id != old.topic_id


def test_a_change_that_a_lookup_noticed_is_reported_by_the_scheduler(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with klog.open(tmp_path / "data", create=True, clock=clock) as logs:
        view = TopicCatalogView(logs, scheduler=Scheduler(clock))
        seen: list[TopicChange] = []
        view.on_change(seen.append)
        view.ensure_internal("__consumer_offsets")
        logs.create_topic("a")
        assert view.partitions("a") == 1 and seen == [], "a lookup does not report changes itself"
        clock.advance(10)
        assert [info.name for change in seen for info in change.created] == ["__consumer_offsets", "a"]
        clock.advance(1000)
        assert len(seen) == 1


def test_a_report_returns_after_the_callbacks_of_another_one(logs: klog.LogManager) -> None:
    """Two threads have noticed that a topic was deleted. The one that responds to the client must not do so while the
    other one still deletes the topic's offsets: the client may create it again, and commit others."""
    view = TopicCatalogView(logs)
    view.create("a", 1)
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def callback(_change: TopicChange) -> None:
        begun.set()
        go_on.wait(PATIENCE)
        order.append("called")

    def report() -> None:
        view.report()
        order.append("returned")

    view.on_change(callback)
    logs.delete_topic("a")
    first = threading.Thread(target=view.report)
    second = threading.Thread(target=report)
    first.start()
    assert begun.wait(PATIENCE)
    second.start()
    second.join(0.1)
    go_on.set()
    first.join()
    second.join()
    assert order == ["called", "returned"]


def test_a_topic_that_was_created_again_has_the_offsets_that_are_committed_then(tmp_path: Path) -> None:
    """The program deletes a topic, and nothing has reported that yet: with this clock only advance() does."""
    clock = ManualClock(NOW)
    with (
        Broker(tmp_path / "data", listeners=["127.0.0.1:0"], clock=clock) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        Commit, Fetch = messages.OffsetCommit.Request, messages.OffsetFetch.Request

        def commit(offset: int) -> None:
            part = Commit.Partition(partition_index=0, committed_offset=offset)
            topic = Commit.Topic(name="t", partitions=[part])
            found = client.call(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=[topic])
            assert found.topics[0].partitions[0].error_code == 0

        def committed() -> int:
            asked = Fetch.Group(group_id="g", topics=[Fetch.GroupTopic(name="t", partition_indexes=[0])])
            (group,) = client.call(ApiKey.OFFSET_FETCH, 9, groups=[asked]).groups
            offset: int = group.topics[0].partitions[0].committed_offset
            return offset

        broker.logs.create_topic("t")
        commit(5)
        broker.logs.delete_topic("t")
        broker.logs.create_topic("t")
        assert committed() == -1
        broker.logs.delete_topic("t")
        broker.logs.create_topic("t")
        commit(1)
        clock.advance(1000)
        assert committed() == 1


@pytest.mark.parametrize(
    ("topic", "prefix"), [("__consumer_offsets", "offsets.topic."), ("__transaction_state", "transaction.state.log.")]
)
def test_internal_topics_are_compacted_and_created_once(logs: klog.LogManager, topic: str, prefix: str) -> None:
    view = TopicCatalogView(logs)
    view.ensure_internal(topic)
    config = logs.topic_config(topic)
    assert config.compacts and not config.deletes
    assert config["segment.bytes"] == 104_857_600 and config["compression.type"] == "producer"
    assert view.partitions(topic) == 1
    made = view.topic_id(topic)
    view.ensure_internal(topic)
    assert view.topic_id(topic) == made
    logs.delete_topic(topic)
    TopicCatalogView(logs, {f"{prefix}num.partitions": "4", f"{prefix}segment.bytes": 1 << 20}).ensure_internal(topic)
    assert view.partitions(topic) == 4 and logs.topic_config(topic)["segment.bytes"] == 1 << 20


@pytest.mark.parametrize(
    ("topic", "prefix"),
    [
        ("__consumer_offsets", "offsets.topic."),
        ("__transaction_state", "transaction.state.log."),
        ("__share_group_state", "share.coordinator.state.topic."),
    ],
)
def test_a_broker_takes_the_properties_of_internal_topics(tmp_path: Path, topic: str, prefix: str) -> None:
    config = {f"{prefix}num.partitions": 2, f"{prefix}segment.bytes": 1 << 20}
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config) as broker:
        broker.topics.ensure_internal(topic)
        assert broker.topics.partitions(topic) == 2
        assert broker.logs.topic_config(topic)["segment.bytes"] == 1 << 20


def test_states_of_share_groups_are_kept_whatever_the_retention_of_the_broker_is(tmp_path: Path) -> None:
    config = {"log.retention.bytes": 1, "log.retention.ms": 1}
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config) as broker:
        broker.topics.ensure_internal("__share_group_state")
        log = broker.logs.log("__share_group_state", 0)
        for _ in range(3):
            log.append([(b"k", b"v", 1)])
            log.roll()
        assert log.apply_retention() == 0


def test_only_internal_topics_are_created_on_first_use(logs: klog.LogManager) -> None:
    with pytest.raises(ValueError, match="__transaction_state"):
        TopicCatalogView(logs).ensure_internal("mine")


def test_creating_twice_raises(logs: klog.LogManager) -> None:
    view = TopicCatalogView(logs)
    view.create("a", 1)
    with pytest.raises(TopicExists):
        view.create("a", 1)
