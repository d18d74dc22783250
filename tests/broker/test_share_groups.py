"""Share groups through connections: records that members acquire, acknowledge and release, also after the broker was
killed."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.broker import Broker
from klog.clock import ManualClock
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.coordinator.share.state_log import Shared, ShareStateLog
from klog.protocol import ApiKey, ErrorCode, messages
from tests.support.batches import batch, marker, transactional
from tests.support.patience import PATIENCE, until
from tests.support.wire_client import WireClient

CONFIG = {"group.share.record.lock.duration.ms": 10_000, "group.share.session.timeout.ms": 45_000}
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Acquired = list[tuple[int, int, int]]


class Member:
    """A member of the share group "g" that reads the first partitions of "t"."""

    def __init__(
        self, broker: Broker, *, group: str = "g", partitions: int = 1, topic: str = "t", address: str = ""
    ) -> None:
        self.group, self.topic = group, topic
        self.id = str(uuid.uuid4())
        self.client = WireClient(address or broker.bootstrap_servers)
        self.topic_id: Any = broker.topics.topic_id(topic)
        self.partitions = list(range(partitions))
        self.epoch = self.session = 0

    def heartbeat(self, epoch: int | None = None, **fields: Any) -> Any:
        fields = {"subscribed_topic_names": [self.topic]} | fields if epoch is None and not self.epoch else fields
        found = self.client.call(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch if epoch is None else epoch,
            **fields,
        )
        if not found.error_code:
            self.epoch = max(found.member_epoch, 0)
        return found

    def _topics(
        self, kind: Any, acknowledgements: dict[int, list[tuple[int, int, list[int]]]], every: bool
    ) -> list[Any]:
        numbers = self.partitions if every else acknowledgements
        return [
            kind.Topic(
                topic_id=self.topic_id,
                partitions=[
                    kind.Partition(
                        partition_index=number,
                        acknowledgement_batches=[
                            kind.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                            for first, last, types in acknowledgements.get(number, ())
                        ],
                    )
                    for number in numbers
                ],
            )
        ]

    def send(self, *acknowledgements: tuple[int, int, list[int]], epoch: int | None = None, **fields: Any) -> None:
        wanted = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
        } | fields
        kind = messages.ShareFetch.Request
        epoch = self.session if epoch is None else epoch
        request = kind(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=epoch,
            topics=self._topics(kind, {0: list(acknowledgements)}, epoch == 0),
            **wanted,
        )
        self.client.send(ApiKey.SHARE_FETCH, 2, request)

    def receive(self) -> Any:
        found = self.client.receive(ApiKey.SHARE_FETCH, 2)
        if not found.error_code:
            self.session += 1
        return found

    def fetch(self, *acknowledgements: tuple[int, int, list[int]], **fields: Any) -> Any:
        self.send(*acknowledgements, **fields)
        return self.receive()

    def acquire(self, *acknowledgements: tuple[int, int, list[int]], **fields: Any) -> Acquired:
        """Fetch, and return what was acquired of partition 0. All acknowledgements in the fetch must succeed."""
        return acquired(self.fetch(*acknowledgements, **fields))

    def acknowledge(self, first: int, last: int, *types: int, epoch: int | None = None, renews: bool = False) -> Any:
        kind = messages.ShareAcknowledge.Request
        found = self.client.call(
            ApiKey.SHARE_ACKNOWLEDGE,
            2,
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.session if epoch is None else epoch,
            is_renew_ack=renews,
            topics=self._topics(kind, {0: [(first, last, list(types))]}, False),
        )
        if not found.error_code:
            self.session += 1
        return found

    def close(self) -> None:
        self.client.socket.close()


def acquired(response: Any) -> Acquired:
    assert response.error_code == 0, response
    parts = [part for topic in response.responses for part in topic.partitions if part.partition_index == 0]
    assert all(part.error_code == part.acknowledge_error_code == 0 for part in parts), parts
    return [
        (each.first_offset, each.last_offset, each.delivery_count) for part in parts for each in part.acquired_records
    ]


def code_of(response: Any) -> ErrorCode:
    """The error code of the one partition that was acknowledged."""
    assert response.error_code == 0, response
    return next(code for code in ErrorCode if code == response.responses[0].partitions[0].error_code)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[Broker]:
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=CONFIG, clock=clock) as found:
        found.topics.create("t", 2)
        yield found


def fail_to_append(*_: Any) -> int:
    raise AppendFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def earliest(broker: Broker, group: str = "g", **more: str) -> None:
    """Let a group begin at the log start."""
    values = {"share.auto.offset.reset": "earliest", **more}
    kind = messages.IncrementalAlterConfigs.Request
    configs = [kind.Config(name=name, config_operation=0, value=value) for name, value in values.items()]
    with WireClient(broker.bootstrap_servers) as client:
        found = client.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[kind.Resource(resource_type=32, resource_name=group, configs=configs)],
        )
    assert found.responses[0].error_code == 0


def append(broker: Broker, count: int = 1, partition: int = 0) -> None:
    broker.logs.log("t", partition).append([(None, b"v", 1_700_000_000_000)] * count)
    broker.check("t", partition)


def join(broker: Broker, **more: Any) -> Member:
    member = Member(broker, **more)
    assert member.heartbeat().error_code == 0
    return member


def offsets(broker: Broker, group: str = "g", topics: Any = None) -> Any:
    kind = messages.DescribeShareGroupOffsets.Request
    with WireClient(broker.bootstrap_servers) as client:
        found = client.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[kind.Group(group_id=group, topics=topics)])
    return found.groups[0]


def start_and_lag(broker: Broker) -> tuple[int, int]:
    """The start offset and the lag of partition 0 of the only topic."""
    (topic,) = offsets(broker).topics
    part = next(part for part in topic.partitions if part.partition_index == 0)
    return part.start_offset, part.lag


# ---- members -----------------------------------------------------------------------------------------------------------


def test_members_get_all_partitions_and_share_them_when_there_are_more_members(broker: Broker) -> None:
    members = [Member(broker, partitions=2) for _ in range(3)]
    first = members[0].heartbeat()
    assert (first.error_code, first.member_epoch, first.heartbeat_interval_ms) == (0, 1, 5000)
    assert [sorted(each.partitions) for each in first.assignment.topic_partitions] == [[0, 1]]
    for member in members[1:]:
        assert member.heartbeat().error_code == 0
    found = []
    for member in members:
        response = member.heartbeat(subscribed_topic_names=["t"])
        assert response.error_code == 0 and response.member_epoch == 3
        found += [number for each in response.assignment.topic_partitions for number in each.partitions]
    assert sorted(found) in ([0, 0, 1], [0, 1, 1])
    assert members[0].heartbeat().assignment is None
    described = (
        members[0]
        .client.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=True)
        .groups[0]
    )
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 3, "simple")
    assert {each.member_id for each in described.members} == {member.id for member in members}
    assert described.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    group = broker.group("g")
    assert group is not None and (group.kind, len(group.members)) == ("share", 3)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 5}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_heartbeats_that_are_refused(broker: Broker, fields: dict[str, Any], code: ErrorCode) -> None:
    given = {"group_id": "h", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    with WireClient(broker.bootstrap_servers) as client:
        assert client.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **(given | fields)).error_code == code
    assert broker.group("h") is None


def test_epochs_of_members_are_checked(broker: Broker) -> None:
    member, other = join(broker), join(broker)
    assert member.heartbeat().member_epoch == 2
    assert member.heartbeat(epoch=1).error_code == 0, "as if it had not got the last response"
    assert member.heartbeat(epoch=3).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    other.id = "unknown"
    assert other.heartbeat(epoch=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_without_heartbeats_is_removed(broker: Broker, clock: ManualClock) -> None:
    member, other = join(broker), join(broker)
    clock.advance(30_000)
    assert other.heartbeat().error_code == 0
    clock.advance(20_000)
    assert member.heartbeat(epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    group = broker.group("g")
    assert group is not None and [each.member_id for each in group.members] == [other.id]


def test_a_group_id_is_used_by_one_kind_of_group_only(broker: Broker) -> None:
    member = join(broker)
    assert member.heartbeat(epoch=-1).member_epoch == -1
    client = member.client
    new = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000}
    found = client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **new, subscribed_topic_names=["t"], topic_partitions=[])
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    kind = messages.OffsetCommit.Request
    partition = kind.Partition(partition_index=0, committed_offset=1)
    commit = client.call(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=[kind.Topic(name="t", partitions=[partition])])
    assert commit.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    protocol = messages.JoinGroup.Request.Protocol(name="range", metadata=b"")
    joined = client.call(
        ApiKey.JOIN_GROUP, 9, group_id="g", protocol_type="consumer", protocols=[protocol], session_timeout_ms=10_000
    )
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    commit = client.call(ApiKey.OFFSET_COMMIT, 9, group_id="c", topics=[kind.Topic(name="t", partitions=[partition])])
    assert commit.topics[0].partitions[0].error_code == 0
    assert Member(broker, group="c").heartbeat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    groups = client.call(ApiKey.LIST_GROUPS, 5, types_filter=["share"]).groups
    assert [(each.group_id, each.group_type, each.group_state, each.protocol_type) for each in groups] == [
        ("g", "share", "Empty", "share")
    ]
    assert broker.groups() == ["c", "g"]


# ---- records -----------------------------------------------------------------------------------------------------------


def test_each_record_goes_to_one_member_until_it_is_released(broker: Broker) -> None:
    earliest(broker)
    append(broker, 10)
    first, second = join(broker), join(broker)
    assert first.acquire(max_records=4, share_acquire_mode=1) == [(0, 3, 1)]
    assert second.acquire() == [(4, 9, 1)]
    assert first.acquire() == []
    assert second.acquire((4, 5, [ACCEPT]), (6, 7, [RELEASE, REJECT])) == [(6, 6, 2)]
    assert start_and_lag(broker) == (0, 7)
    assert code_of(first.acknowledge(0, 3, ACCEPT)) is ErrorCode.NONE
    assert start_and_lag(broker) == (6, 3)
    assert code_of(second.acknowledge(6, 9, *[ACCEPT, ACCEPT, ACCEPT, ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    assert code_of(second.acknowledge(8, 9, ACCEPT)) is ErrorCode.NONE
    assert start_and_lag(broker) == (6, 1)


def test_a_response_has_only_the_batches_of_the_acquired_records(broker: Broker) -> None:
    earliest(broker)
    for number in range(5):
        append(broker, number + 1)
    member = join(broker)
    response = member.fetch(max_records=5)
    part = response.responses[0].partitions[0]
    assert response.acquisition_lock_timeout_ms == 10_000
    assert acquired(response) == [(0, 5, 1)]
    assert [record.offset for record in klog.record.iter_records(bytes(part.records))] == [0, 1, 2, 3, 4, 5]
    assert member.acquire(batch_size=4) == [(6, 9, 1), (10, 14, 1)]


def test_another_member_gets_a_record_after_its_acquisition_lock_has_timed_out(
    broker: Broker, clock: ManualClock
) -> None:
    earliest(broker)
    append(broker, 4)
    first, second = join(broker), join(broker)
    assert first.acquire() == [(0, 3, 1)]
    clock.advance(8_000)
    assert code_of(first.acknowledge(0, 0, RENEW, renews=True)) is ErrorCode.NONE
    assert code_of(first.acknowledge(1, 1, RENEW)) is ErrorCode.INVALID_REQUEST
    second.send(max_wait_ms=60_000)
    clock.advance(3_000)
    assert acquired(second.receive()) == [(1, 3, 2)]
    assert code_of(first.acknowledge(1, 1, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    clock.advance(8_000)
    assert second.acquire((1, 3, [ACCEPT])) == [(0, 0, 2)]


def test_the_delivery_count_of_a_record_is_limited(broker: Broker) -> None:
    earliest(broker, **{"share.delivery.count.limit": "2"})
    append(broker, 2)
    member = join(broker)
    assert member.acquire() == [(0, 1, 1)]
    assert member.acquire((0, 1, [RELEASE])) == [(0, 0, 2)]
    assert member.acquire((0, 0, [RELEASE])) == [(1, 1, 2)]
    assert member.acquire((1, 1, [RELEASE])) == []
    assert start_and_lag(broker) == (2, 0)


def test_a_fetch_waits_for_new_records_and_for_released_ones(broker: Broker) -> None:
    earliest(broker)
    first, second = join(broker), join(broker)
    assert first.acquire() == []
    first.send(max_wait_ms=60_000)
    append(broker, 2)
    assert acquired(first.receive()) == [(0, 1, 1)]
    second.send(max_wait_ms=60_000)
    assert code_of(first.acknowledge(1, 1, RELEASE)) is ErrorCode.NONE
    assert acquired(second.receive()) == [(1, 1, 2)]


def test_a_group_begins_at_the_log_end_unless_it_is_configured(broker: Broker, clock: ManualClock) -> None:
    append(broker, 3)
    member = join(broker)
    assert member.acquire() == []
    append(broker)
    assert member.acquire() == [(3, 3, 1)]
    earliest(broker, "by", **{"share.auto.offset.reset": "by_duration:PT1S"})
    now = clock.wall_ms()
    broker.logs.log("t", 1).append([(None, b"v", now - 5000), (None, b"v", now - 500)])
    parts = join(broker, group="by", partitions=2).fetch().responses[0].partitions
    found = {part.partition_index: part.acquired_records[0].first_offset for part in parts}
    assert found[1] == 1


def test_markers_and_aborted_transactions(broker: Broker) -> None:
    log = broker.logs.log("t", 0)
    for data, origin in (
        (transactional(7, 0, 0, 2), "client"),
        (marker(7, 0, "abort"), "coordinator"),
        (batch(1), "client"),
        (transactional(7, 0, 2, 1), "client"),
        (marker(7, 0, "commit"), "coordinator"),
    ):
        log.append_batches(data, origin=origin)
    earliest(broker)
    assert join(broker).acquire() == [(0, 1, 1), (3, 4, 1)]
    earliest(broker, "committed", **{"share.isolation.level": "read_committed"})
    member = join(broker, group="committed")
    assert member.acquire() == [(3, 4, 1)]
    log.append_batches(transactional(7, 0, 3, 1))
    assert member.acquire((3, 4, [ACCEPT])) == [], "the transaction is open"
    log.append_batches(marker(7, 0, "abort"), origin="coordinator")
    assert member.acquire() == []
    log.append([(None, b"v", 1_700_000_000_000)])
    assert member.acquire() == [(8, 8, 1)]


def test_records_below_a_new_log_start_are_skipped(broker: Broker) -> None:
    earliest(broker)
    append(broker, 10)
    member = join(broker)
    assert member.acquire(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    broker.logs.log("t", 0).delete_records(5)
    assert member.acquire((0, 2, [ACCEPT])) == [(5, 9, 1)]
    assert start_and_lag(broker) == (5, 5)


def test_gaps_between_offsets_are_skipped_whatever_their_size(broker: Broker) -> None:
    """Compaction leaves such gaps. This one is wider than the number of records that may be in flight."""
    earliest(broker)
    append(broker, 3)
    member = join(broker)
    assert member.acquire() == [(0, 2, 1)]
    log = broker.logs.log("t", 0)
    log.append_batches(batch(2, base_offset=50_000), origin="replication")
    log.update_high_watermark(log.log_end_offset)
    assert member.acquire() == [], "three are in flight"
    assert member.acquire((0, 2, [ACCEPT])) == [(50_000, 50_001, 1)]
    assert member.acquire((50_000, 50_001, [ACCEPT])) == []
    assert start_and_lag(broker) == (50_002, 0)


# ---- sessions ----------------------------------------------------------------------------------------------------------


def test_epochs_of_share_sessions_are_checked(broker: Broker) -> None:
    earliest(broker)
    append(broker, 2)
    member = join(broker)
    assert member.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.fetch((0, 0, [ACCEPT])).error_code == ErrorCode.INVALID_REQUEST
    assert member.acknowledge(0, 0, ACCEPT, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acquire() == [(0, 1, 1)]
    assert member.fetch(epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(0, 0, ACCEPT, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(0, 0, ACCEPT, epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code_of(member.acknowledge(0, 0, ACCEPT)) is ErrorCode.NONE
    assert broker.metrics()["ShareSessionsCount"] == 1
    assert member.fetch(max_wait_ms=60_000, is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("by", ["fetch", "acknowledgement", "heartbeat", "connection"])
def test_what_a_member_has_acquired_is_available_when_it_leaves(broker: Broker, by: str) -> None:
    earliest(broker)
    append(broker, 3)
    first, second = join(broker), join(broker)
    assert first.acquire() == [(0, 2, 1)]
    second.send(max_wait_ms=60_000)
    left = (1, 2, 2)
    if by == "fetch":
        response = first.fetch((0, 0, [ACCEPT]), epoch=-1)
        assert response.error_code == response.responses[0].partitions[0].acknowledge_error_code == 0
        assert response.responses[0].partitions[0].acquired_records == []
    elif by == "acknowledgement":
        assert code_of(first.acknowledge(0, 0, ACCEPT, epoch=-1)) is ErrorCode.NONE
    elif by == "heartbeat":
        assert first.heartbeat(epoch=-1).error_code == 0
        left = (0, 2, 2)
    else:
        first.close()
        left = (0, 2, 2)
    found: Acquired = []
    until = time.monotonic() + PATIENCE
    while not found:
        assert time.monotonic() < until
        found = acquired(second.receive())
    assert found == [left]
    if by != "connection":
        assert broker.metrics()["ShareSessionsCount"] == 1


def test_a_member_that_connects_again_gets_the_records_that_it_had_acquired(broker: Broker) -> None:
    """It gets them at once, before the acquisition lock times out."""
    earliest(broker)
    append(broker, 3)
    member = join(broker)
    assert member.acquire() == [(0, 2, 1)]
    member.close()
    until(lambda: not broker.metrics()["ConnectionCount"], 0.001)
    member.client, member.session = WireClient(broker.bootstrap_servers), 0
    assert member.acquire() == [(0, 2, 2)]


def test_the_number_of_sessions_is_limited(tmp_path: Path) -> None:
    config = {"group.share.max.share.sessions": 2, "group.share.max.size": 3}
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config, clock=ManualClock()) as broker:
        broker.topics.create("t", 1)
        members = [join(broker) for _ in range(3)]
        assert Member(broker).heartbeat().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        codes = [member.fetch().error_code for member in members]
        assert codes == [0, 0, ErrorCode.SHARE_SESSION_LIMIT_REACHED]
        assert members[0].fetch(epoch=0).error_code == 0
        members[1].fetch(epoch=-1)
        assert members[2].fetch().error_code == 0


def test_partitions_that_do_not_exist(broker: Broker) -> None:
    earliest(broker)
    append(broker)
    member = join(broker, partitions=1)
    known, member.topic_id = member.topic_id, uuid.UUID(int=7)
    response = member.fetch(max_wait_ms=60_000)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    member.topic_id, member.partitions, member.session = known, [0, 5], 0
    response = member.fetch(max_wait_ms=60_000)
    found = {part.partition_index: part.error_code for part in response.responses[0].partitions}
    assert found == {0: 0, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    stranger = Member(broker, group="unknown")
    response = stranger.fetch(max_wait_ms=60_000)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for fields in ({"group_id": None}, {"member_id": None}, {"member_id": "m" * 37}):
        given = {"group_id": "g", "member_id": "m", "share_session_epoch": 0}
        found = stranger.client.call(ApiKey.SHARE_FETCH, 1, **(given | fields))
        assert found.error_code == ErrorCode.INVALID_REQUEST
        found = stranger.client.call(ApiKey.SHARE_ACKNOWLEDGE, 1, **(given | fields))
        assert found.error_code == ErrorCode.INVALID_REQUEST


# ---- the stored state --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", [0, 1, 500])
def test_acknowledgements_survive_a_kill_of_the_broker(tmp_path: Path, updates: int) -> None:
    """updates: the number of update records between two snapshots."""
    config = {**CONFIG, "share.coordinator.snapshot.update.records.per.snapshot": updates}
    broker = Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config, clock=ManualClock())
    with broker:
        broker.topics.create("t", 2)
        earliest(broker)
        append(broker, 10)
        member = join(broker)
        assert member.acquire() == [(0, 9, 1)]
        for first, last, kind in ((0, 1, ACCEPT), (3, 3, ACCEPT), (4, 4, REJECT), (5, 5, RELEASE), (7, 7, ACCEPT)):
            assert code_of(member.acknowledge(first, last, kind)) is ErrorCode.NONE
        member.close()
        broker.kill()
        broker.start()
        assert start_and_lag(broker) == (2, 5)
        group = broker.group("g")
        assert group is not None and [each.member_id for each in group.members] == [member.id]
        again = Member(broker)
        again.id, again.epoch = member.id, member.epoch
        assert again.heartbeat().error_code == 0
        counts = {2: 1, 5: 2, 6: 1, 8: 1, 9: 1} if updates == 500 else {2: 2, 5: 2, 6: 2, 8: 2, 9: 2}
        found = {offset: count for first, last, count in again.acquire() for offset in range(first, last + 1)}
        assert found == counts
        assert again.acquire((2, 2, [ACCEPT]), (5, 6, [ACCEPT]), (8, 9, [ACCEPT])) == []
        assert start_and_lag(broker) == (10, 0)


def test_a_start_offset_is_stored_before_the_first_acknowledgement(tmp_path: Path) -> None:
    """Otherwise a group that begins at the log end would skip the records that were appended in the meantime."""
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], clock=ManualClock()) as broker:
        broker.topics.create("t", 1)
        append(broker, 3)
        assert join(broker).acquire() == []
        append(broker, 2)
        broker.kill()
        broker.start()
        assert join(broker).acquire() == [(3, 4, 1)]


def test_the_state_of_lost_records_does_not_apply_to_new_records(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=CONFIG, clock=ManualClock()) as broker:
        broker.topics.create("t", 1)
        earliest(broker)
        append(broker)
        append(broker, 9)
        member = join(broker)
        assert member.acquire() == [(0, 9, 1)]
        assert code_of(member.acknowledge(0, 9, ACCEPT)) is ErrorCode.NONE
        broker.kill()
        log = tmp_path / "data" / "t-0" / f"{0:020}.log"
        os.truncate(log, log.stat().st_size - 10)
        broker.start()
        member = join(broker)
        assert member.acquire() == []
        append(broker, 4)
        assert member.acquire() == [(1, 4, 1)]
        assert code_of(member.acknowledge(1, 2, ACCEPT)) is ErrorCode.NONE
        broker.kill()
        broker.start()
        assert join(broker).acquire() == [(3, 4, 1)]


def test_old_states_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.coordinator.share.state_log._PRUNE_RECORDS", 20)
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], clock=ManualClock()) as broker:
        broker.topics.create("t", 2)
        earliest(broker)
        append(broker, 200)
        member = join(broker, partitions=2)
        assert member.acquire(max_records=200) == [(0, 199, 1)]
        for offset in range(100):
            assert code_of(member.acknowledge(offset, offset, ACCEPT)) is ErrorCode.NONE
        log = broker.logs.log("__share_group_state", 0)
        assert log.log_end_offset > 100 > log.log_end_offset - log.log_start_offset
        broker.kill()
        broker.start()
        assert start_and_lag(broker) == (100, 100)
        assert {part.partition_index for part in offsets(broker).topics[0].partitions} == {0, 1}


def test_a_power_cut_after_a_prune_loses_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states that a prune deletes are on disk, as the twentieth record is flushed: so must be those that it writes
    instead. All that is not on disk is cut off."""
    monkeypatch.setattr("klog.coordinator.share.state_log._PRUNE_RECORDS", 20)
    config = {"log.flush.interval.messages": 20}
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config, clock=ManualClock()) as broker:
        broker.topics.create("t", 1)
        earliest(broker)
        append(broker, 200)
        member = join(broker)
        assert member.acquire(max_records=200) == [(0, 199, 1)]
        log, acknowledged = broker.logs.log("__share_group_state", 0), 0
        while log.log_start_offset == 0:
            assert code_of(member.acknowledge(acknowledged, acknowledged, ACCEPT)) is ErrorCode.NONE
            acknowledged += 1
        on_disk = log.maybe_convert_to_offset_metadata(log.recovery_point)
        path = Path(log.path) / f"{on_disk.segment_base_offset:020}.log"
        broker.kill()
        os.truncate(path, on_disk.position)
        broker.start()
        assert start_and_lag(broker)[0] == acknowledged


def test_states_are_pruned_whatever_wrote_them(
    broker: Broker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements and timeouts of acquisition locks alternate, so every twentieth record is written by a timeout."""
    monkeypatch.setattr("klog.coordinator.share.state_log._PRUNE_RECORDS", 20)
    earliest(broker, **{"share.delivery.count.limit": "1000"})
    append(broker, 100)
    member = join(broker)
    assert member.acquire(max_records=100) == [(0, 99, 1)]
    clock.advance(10_000)
    for first in range(60):
        assert member.acquire(max_records=100)[0][:2] == (first, 99)
        assert code_of(member.acknowledge(first, first, ACCEPT)) is ErrorCode.NONE
        clock.advance(10_000)
        assert member.heartbeat().error_code == 0
    log = broker.logs.log("__share_group_state", 0)
    assert log.log_end_offset > 100 > log.log_end_offset - log.log_start_offset


def test_a_group_that_could_not_be_written_has_no_partitions(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What members acknowledged there would be delivered again: the group begins them when it is written."""
    earliest(broker)
    append(broker)
    with monkeypatch.context() as patch:
        patch.setattr(GroupTable, "append", fail_to_append)
        member = Member(broker)
        assert member.heartbeat().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (part,) = member.fetch().responses[0].partitions
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert member.heartbeat().error_code == 0
    assert member.acquire() == [(0, 0, 1)]


def test_offsets_are_altered_and_deleted_while_there_are_no_members(broker: Broker) -> None:
    append(broker, 10)
    alter, delete = messages.AlterShareGroupOffsets.Request, messages.DeleteShareGroupOffsets.Request

    def altered(offset: int, partition: int = 0, topic: str = "t") -> Any:
        asked = alter.Partition(partition_index=partition, start_offset=offset)
        topics = [alter.Topic(topic_name=topic, partitions=[asked])]
        with WireClient(broker.bootstrap_servers) as client:
            return client.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)

    def deleted(topic: str = "t") -> Any:
        topics = [delete.Topic(topic_name=topic)]
        with WireClient(broker.bootstrap_servers) as client:
            return client.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)

    assert offsets(broker).error_code == deleted().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for arguments, code in (((4,), 0), ((4, 2), 3), ((4, 0, "nothing"), 3), ((-2,), ErrorCode.INVALID_REQUEST)):
        assert altered(*arguments).responses[0].partitions[0].error_code == code
    assert start_and_lag(broker) == (4, 6)
    topics = [
        messages.DescribeShareGroupOffsets.Request.Topic(topic_name=name, partitions=[0, 1]) for name in ("t", "u")
    ]
    found = [
        (part.start_offset, part.error_code)
        for each in offsets(broker, topics=topics).topics
        for part in each.partitions
    ]
    assert found == [(4, 0), (-1, 0), (-1, 3), (-1, 3)]
    member = join(broker)
    assert member.acquire() == [(4, 9, 1)]
    assert altered(0).error_code == deleted().error_code == ErrorCode.NON_EMPTY_GROUP
    assert (
        member.client.call(ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code
        == ErrorCode.NON_EMPTY_GROUP
    )
    member.heartbeat(epoch=-1)
    assert altered(2).responses[0].partitions[0].error_code == 0
    assert join(broker).acquire() == [(2, 9, 1)]
    broker.kill()
    broker.start()
    assert start_and_lag(broker) == (2, 8)


def test_an_altered_offset_may_be_left_to_the_configuration(broker: Broker) -> None:
    """With -1, as in Kafka."""
    append(broker, 10)
    alter = messages.AlterShareGroupOffsets.Request
    with WireClient(broker.bootstrap_servers) as client:
        for offset in (4, -1):
            partitions = [alter.Partition(partition_index=0, start_offset=offset)]
            topics = [alter.Topic(topic_name="t", partitions=partitions)]
            found = client.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)
            assert found.responses[0].partitions[0].error_code == 0
            assert start_and_lag(broker) == ((4, 6) if offset == 4 else (-1, -1))
    broker.kill()
    broker.start()
    assert start_and_lag(broker) == (-1, -1)
    earliest(broker)
    assert join(broker).acquire() == [(0, 9, 1)]


def test_offsets_that_cannot_be_altered_leave_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alter = messages.AlterShareGroupOffsets.Request
    snapshot = ShareStateLog.snapshot

    def altered(broker: Broker, group: str, offset: int, numbers: Iterable[int]) -> Any:
        asked = [alter.Partition(partition_index=each, start_offset=offset) for each in numbers]
        topics = [alter.Topic(topic_name="t", partitions=asked)]
        with WireClient(broker.bootstrap_servers) as client:
            return client.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=topics)

    def codes(response: Any) -> dict[int, int]:
        assert response.error_code == 0
        return {each.partition_index: each.error_code for each in response.responses[0].partitions}

    def starts(broker: Broker, group: str) -> dict[int, int]:
        return {each.partition_index: each.start_offset for each in offsets(broker, group).topics[0].partitions}

    def fail_to_write(log: ShareStateLog, shared: Shared, *more: Any) -> None:
        if shared.key.partition % 2:
            raise OSError("of the test")
        snapshot(log, shared, *more)

    failed = ErrorCode.KAFKA_STORAGE_ERROR
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=CONFIG, clock=ManualClock()) as broker:
        broker.topics.create("t", 6)
        assert codes(altered(broker, "g", 1, range(4))) == dict.fromkeys(range(4), 0)
        with monkeypatch.context() as patch:
            patch.setattr(ShareStateLog, "snapshot", fail_to_write)
            expected = {0: 0, 1: failed, 2: 0, 3: failed, 4: 0, 5: failed}
            assert codes(altered(broker, "g", 2, range(6))) == codes(altered(broker, "new", 2, range(6))) == expected
        assert starts(broker, "g") == {0: 2, 1: 1, 2: 2, 3: 1, 4: 2}
        assert starts(broker, "new") == {0: 2, 2: 2, 4: 2}
        with monkeypatch.context() as patch:
            patch.setattr(GroupTable, "append", fail_to_append)
            assert altered(broker, "new", 3, range(6)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert starts(broker, "new") == {0: 2, 2: 2, 4: 2}


def test_deleted_offsets_and_groups_are_not_restored(broker: Broker, clock: ManualClock) -> None:
    earliest(broker)
    append(broker, 2)
    member = join(broker)
    assert member.acquire() == [(0, 1, 1)]
    assert code_of(member.acknowledge(0, 1, ACCEPT)) is ErrorCode.NONE
    member.heartbeat(epoch=-1)
    kind = messages.DeleteShareGroupOffsets.Request
    with WireClient(broker.bootstrap_servers) as client:
        topics = [kind.Topic(topic_name="t"), kind.Topic(topic_name="u")]
        found = client.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)
        assert [each.error_code for each in found.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert offsets(broker).topics == []
        member = join(broker)
        assert member.acquire() == [(0, 1, 1)]
        member.heartbeat(epoch=-1)
        broker.topics.delete("t")
        assert offsets(broker).topics == []
        assert client.call(ApiKey.DELETE_GROUPS, 2, groups_names=["g"]).results[0].error_code == 0
    broker.kill()
    broker.start()
    assert broker.groups() == []
    broker.topics.create("t", 1)
    append(broker)
    assert join(broker).acquire() == [(0, 0, 1)]


def test_a_fetch_does_not_wait_for_more_than_it_may_have(broker: Broker) -> None:
    earliest(broker)
    append(broker, 2)
    append(broker, 2)
    found = join(broker).acquire(min_bytes=1 << 20, max_bytes=100, max_wait_ms=2 * int(PATIENCE * 1000))
    assert found == [(0, 1, 1)]


def test_a_fetch_does_not_wait_at_the_end_of_an_older_segment(broker: Broker) -> None:
    earliest(broker)
    append(broker)
    broker.logs.log("t").roll()
    append(broker)
    found = join(broker).acquire(min_bytes=1 << 20, max_wait_ms=2 * int(PATIENCE * 1000))
    assert found == [(0, 0, 1)]


def test_a_fetch_that_waits_for_min_bytes_reads_nothing(broker: Broker) -> None:
    earliest(broker)
    member, log = join(broker), broker.logs.log("t")
    append(broker)
    member.send(min_bytes=log.size + 1, max_wait_ms=2 * int(PATIENCE * 1000))
    until(lambda: broker.metrics()["PurgatorySize.Fetch"])
    assert log.metrics().get("TotalFetchRequestsPerSec", 0) == 0
    append(broker)
    assert acquired(member.receive()) == [(0, 1, 1)]


def test_authorization_is_checked(tmp_path: Path) -> None:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config, clock=ManualClock()) as broker:
        broker.topics.create("t", 1)
        member = Member(broker)
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert member.heartbeat().error_code == denied
        assert member.fetch().error_code == member.acknowledge(0, 0, ACCEPT).error_code == denied
        described = member.client.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["g"])
        assert described.groups[0].error_code == offsets(broker).error_code == denied
        for api in (ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS):
            assert member.client.call(api, 0, group_id="g").error_code == denied


def test_only_the_right_one_of_several_brokers_serves_a_group(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], brokers=2, clock=ManualClock()) as broker:
        broker.topics.create("t", 2)
        members = [Member(broker, address=address) for address in broker.bootstrap_servers.split(",")]
        codes = [member.heartbeat().error_code for member in members]
        assert sorted(codes) == [0, ErrorCode.NOT_COORDINATOR]
        joined = members[codes.index(0)]
        for member in members:
            member.id = joined.id
        results = [member.fetch(max_wait_ms=0).responses for member in members]
        refused = [response[0].partitions[0] for response in results if response]
        assert [part.error_code for part in refused] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        leader = refused[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (broker.node_id, 0)
