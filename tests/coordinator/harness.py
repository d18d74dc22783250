"""A group coordinator over a LogManager with a manual clock, and methods that send it requests.

Requests and responses are encoded and decoded in their version. A field that the version does not have is lost, as on a
connection.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.coordinator.groups import GroupConfig, GroupCoordinator
from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.protocol import ApiKey, ErrorCode, Message, decode, encode, messages
from klog.scheduler import Scheduler
from tests.support.batches import marker
from tests.support.topics import ManagerTopics

TOPIC = "__consumer_offsets"
CONSUMER = "consumer"
Allowed = Callable[[str, str, str], bool]


class Call:
    """One request: a klog.security.Context, and the response as soon as there is one."""

    def __init__(self, api: ApiKey, version: int, client_id: str, allowed: Allowed) -> None:
        self.api = api
        self.version = version
        self.client_id = client_id
        self.client_host = "/127.0.0.1"
        self.principal = "User:ANONYMOUS"
        self.listener = "PLAINTEXT"
        self.connection: object | None = None
        self._allowed = allowed
        self.responses: list[Any] = []

    def respond(self, response: Message, *, throttle_ms: int = 0) -> None:
        data = encode(response, self.version)
        self.responses.append(decode(type(response), self.version, data))
        assert len(self.responses) == 1, "a request has one response"

    def authorized(self, operation: str, resource_type: str, name: str) -> bool:
        return self._allowed(operation, resource_type, name)

    @property
    def done(self) -> bool:
        return bool(self.responses)

    @property
    def response(self) -> Any:
        assert self.responses, "the request still waits"
        return self.responses[0]

    @property
    def code(self) -> ErrorCode:
        return next(code for code in ErrorCode if code == self.response.error_code)


class Groups:
    """The coordinator under test. restart() replaces it by another one that loads the same log."""

    def __init__(
        self,
        path: Path,
        *,
        partitions: int = 1,
        topics: Mapping[str, int] | None = None,
        config: Mapping[str, int] | None = None,
        consumers: Mapping[str, Any] | None = None,
        transactions: Any = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.manager = klog.open(path, create=True, clock=self.clock, recovery="kafka")
        self.topics = ManagerTopics(self.manager, internal_partitions=partitions)
        for name, count in (topics or {"t": 3}).items():
            self.manager.create_topic(name, count, exist_ok=True)
        self._config = GroupConfig(**(config or {}))
        self._consumers = ConsumerGroupConfig(**(consumers or {}))
        self._transactions = transactions
        self.allowed: Allowed = lambda operation, kind, name: True
        self.calls: list[Call] = []
        self._handlers: dict[ApiKey, Any] = {}
        self._names = itertools.count()
        self.coordinator = self.start()

    def start(self) -> GroupCoordinator:
        self.scheduler = Scheduler(self.clock)
        self.coordinator = GroupCoordinator(
            self.topics,
            self.scheduler,
            self.clock,
            self._config,
            consumers=self._consumers,
            transactions=self._transactions,
        )
        self.coordinator.load()
        self._handlers = self.coordinator.handlers()
        return self.coordinator

    def restart(self) -> None:
        """Start another coordinator without closing the old one, as after a crash."""
        self.scheduler.stop()
        self.start()

    def close(self) -> None:
        self.coordinator.close()
        self.scheduler.stop()
        self.manager.close()

    # ---- requests ----------------------------------------------------------------------------------------------------

    def call(self, api: ApiKey, version: int | None = None, *, client_id: str = "client", **fields: Any) -> Call:
        request = getattr(messages, api.message).Request
        version = api.high if version is None else version
        call = Call(api, version, client_id, self.allowed)
        self.calls.append(call)
        response = self._handlers[api](call, decode(request, version, encode(request(**fields), version)))
        if response is not None:
            call.respond(response)
        return call

    def join(
        self,
        group: str,
        member: str = "",
        *,
        version: int = 9,
        protocols: Mapping[str, bytes] | None = None,
        instance: str | None = None,
        session: int = 10_000,
        rebalance: int = 20_000,
        protocol_type: str = CONSUMER,
        client_id: str = "client",
    ) -> Call:
        Protocol = messages.JoinGroup.Request.Protocol
        listed = {"range": b"meta"} if protocols is None else protocols
        return self.call(
            ApiKey.JOIN_GROUP,
            version,
            client_id=client_id,
            group_id=group,
            member_id=member,
            group_instance_id=instance,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance if version >= 1 else -1,
            protocol_type=protocol_type,
            protocols=[Protocol(name=name, metadata=metadata) for name, metadata in listed.items()],
        )

    def enter(self, group: str, **more: Any) -> Call:
        """Join as a new member: get a member id first if the version requires it, then join with it."""
        first = self.join(group, **more)
        if first.done and first.code is ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(group, first.response.member_id, **more)
        return first

    def sync(
        self,
        group: str,
        joined: Any,
        assignments: Mapping[str, bytes] | None = None,
        *,
        version: int = 5,
        instance: str | None = None,
        protocol_type: str | None = CONSUMER,
    ) -> Call:
        """joined: the response of JoinGroup."""
        Assignment = messages.SyncGroup.Request.Assignment
        return self.call(
            ApiKey.SYNC_GROUP,
            version,
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[Assignment(member_id=name, assignment=part) for name, part in (assignments or {}).items()],
        )

    def heartbeat(self, group: str, member: str, generation: int, *, instance: str | None = None) -> ErrorCode:
        return self.call(
            ApiKey.HEARTBEAT, group_id=group, member_id=member, generation_id=generation, group_instance_id=instance
        ).code

    def leave(self, group: str, *members: str, version: int = 5, instance: str | None = None) -> Any:
        if version < 3:
            return self.call(ApiKey.LEAVE_GROUP, version, group_id=group, member_id=members[0]).response
        Member = messages.LeaveGroup.Request.Member
        listed = [Member(member_id=member, group_instance_id=instance) for member in members]
        return self.call(ApiKey.LEAVE_GROUP, version, group_id=group, members=listed).response

    def stable(self, group: str, count: int = 1, **more: Any) -> list[Any]:
        """A stable group of new members. Returns their JoinGroup responses, the leader's first."""
        waiting = [self.enter(group, **more) for _ in range(count)]
        joined = {call.response.member_id: call.response for call in waiting if call.done}
        for member in list(joined):  # each member that joins makes the earlier ones join again
            if len(joined) < count or joined[member].generation_id < max(r.generation_id for r in joined.values()):
                waiting.append(self.join(group, member, **more))
        latest = {call.response.member_id: call.response for call in waiting}
        generation = max(response.generation_id for response in latest.values())
        assert {response.generation_id for response in latest.values()} == {generation}
        ordered = sorted(latest.values(), key=lambda response: response.member_id != response.leader)
        parts = {response.member_id: b"part of " + response.member_id.encode() for response in ordered}
        for response in reversed(ordered):
            self.sync(group, response, parts if response.member_id == response.leader else None)
        return ordered

    def stable_after(self, delay_ms: int, group: str, **more: Any) -> list[Any]:
        """A stable group of one member, if the first rebalance is delayed by delay_ms. Returns its JoinGroup response."""
        call = self.enter(group, **more)
        self.clock.advance(delay_ms)
        self.sync(group, call.response)
        return [call.response]

    # ---- offsets -----------------------------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        member: str = "",
        generation: int = -1,
        version: int = 9,
        **more: Any,
    ) -> dict[tuple[str, int], ErrorCode]:
        Request = messages.OffsetCommit.Request
        topics = [
            Request.Topic(
                name=topic,
                partitions=[Request.Partition(partition_index=number, committed_offset=offset, committed_metadata="m")],
            )
            for (topic, number), offset in offsets.items()
        ]
        call = self.call(
            ApiKey.OFFSET_COMMIT,
            version,
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            topics=topics,
            **more,
        )
        return codes(call.response)

    def txn_commit(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        producer: tuple[int, int] = (7, 0),
        version: int = 5,
        **more: Any,
    ) -> dict[tuple[str, int], ErrorCode]:
        Request = messages.TxnOffsetCommit.Request
        topics = [
            Request.Topic(
                name=topic,
                partitions=[Request.Partition(partition_index=number, committed_offset=offset, committed_metadata="m")],
            )
            for (topic, number), offset in offsets.items()
        ]
        call = self.call(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id="txn",
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=topics,
            **more,
        )
        return codes(call.response)

    def end(self, group: str, committed: bool, producer: tuple[int, int] = (7, 0)) -> None:
        """End a transaction as the transaction coordinator does: the group coordinator appends the marker."""
        partition = self.coordinator.table.log.partition_for(group)
        log = self.topics.log(TOPIC, partition)
        assert log is not None
        data = marker(*producer, "commit" if committed else "abort", at=self.clock.wall_ms())
        append = partial(log.append_batches, data, origin="coordinator")
        self.coordinator.complete_transaction(partition, producer[0], committed, append)

    def offsets(self, group: str, *, stable: bool = False) -> dict[tuple[str, int], int | ErrorCode]:
        """All partitions with an offset in a group: the offset, or the error code."""
        Group = messages.OffsetFetch.Request.Group
        call = self.call(ApiKey.OFFSET_FETCH, 9, groups=[Group(group_id=group, topics=None)], require_stable=stable)
        (found,) = call.response.groups
        assert found.error_code == 0
        return {
            (topic.name, each.partition_index): ErrorCode(each.error_code) if each.error_code else each.committed_offset  # type: ignore[call-arg]
            for topic in found.topics
            for each in topic.partitions
        }

    def state(self, group: str) -> str:
        (found,) = self.call(ApiKey.DESCRIBE_GROUPS, groups=[group]).response.groups
        state: str = found.group_state
        return state

    # ---- log ---------------------------------------------------------------------------------------------------------

    def records(self) -> Iterator[Any]:
        """The records of __consumer_offsets, decoded."""
        from klog.internal_topics import decode as decode_record

        for partition in range(self.topics.partitions(TOPIC) or 0):
            log = self.topics.log(TOPIC, partition)
            assert log is not None
            for record in log.read():
                yield decode_record(record, TOPIC)


def codes(response: Any) -> dict[tuple[str, int], ErrorCode]:
    """The error codes of a response by partition."""
    return {
        (topic.name, each.partition_index): next(code for code in ErrorCode if code == each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


@contextmanager
def groups(path: Path, **more: Any) -> Iterator[Groups]:
    """A coordinator in a directory, closed at the end."""
    made = Groups(path, **more)
    try:
        yield made
    finally:
        made.close()
