"""A consumer group without a broker: topics in memory, heartbeats as method calls, and consumers that follow the protocol."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.coordinator.groups.consumer_group import ConsumerGroup
from klog.coordinator.groups.consumer_heartbeat import Client, Outcome, check_heartbeat, fence, heartbeat, leave
from klog.coordinator.groups.refusal import Refused
from klog.protocol import ErrorCode, messages

if TYPE_CHECKING:
    from klog.coordinator.groups.consumer_records import Change
    from klog.log import Log

Request = messages.ConsumerGroupHeartbeat.Request
Response = messages.ConsumerGroupHeartbeat.Response
Partitions = set[tuple[str, int]]


class FakeTopics:
    """Topics that have an id and a number of partitions, but no logs."""

    def __init__(self, **topics: int) -> None:
        self._counts: dict[str, int] = {}
        self._ids: dict[str, uuid.UUID] = {}
        for name, count in topics.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._ids[name] = uuid.uuid4()

    def grow(self, name: str, count: int) -> None:
        assert count >= self._counts[name]
        self._counts[name] = count

    def delete(self, name: str) -> None:
        del self._counts[name], self._ids[name]

    def log(self, topic: str, partition: int) -> Log | None:
        return None

    def partitions(self, topic: str) -> int | None:
        return self._counts.get(topic)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self._ids.get(topic)

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, found in self._ids.items() if found == topic_id), None)

    def names(self) -> list[str]:
        return sorted(self._counts)

    def ensure_internal(self, topic: str) -> None:
        raise AssertionError(topic)


class Harness:
    """One group. The records of every step are replayed into a second group, whose state must be the same."""

    def __init__(self, topics: FakeTopics, **config: Any) -> None:
        config.setdefault("refresh_interval_ms", 0)
        self.topics = topics
        self.config = ConsumerGroupConfig(**config)
        self.group = ConsumerGroup("g", topics, self.config)
        self.copy = ConsumerGroup("g", topics, self.config)
        self.now_ms = 1_700_000_000_000
        self.denied: set[str] = set()
        self.outcome = Outcome()

    def client(self) -> Client:
        return Client("client", "/127.0.0.1", self.now_ms, self.now_ms - 10**12, lambda name: name not in self.denied)

    def take(self, outcome: Outcome) -> list[Change]:
        self.outcome = outcome
        for group in (self.group, self.copy):
            group.apply(outcome.changes)
        return outcome.changes

    def send(self, version: int = 1, **fields: Any) -> Response:
        request = Request(group_id="g", **fields)
        check_heartbeat(request, version, self.config.assignors)
        handle = heartbeat if request.member_epoch >= 0 else leave
        before = self.group.snapshot()
        response, outcome = handle(self.group, request, self.client())
        assert self.group.snapshot() == before  # G1: a request itself changes nothing
        self.take(outcome)
        self.check()
        return response

    def join(self, member_id: str, *names: str, **fields: Any) -> Response:
        fields.setdefault("rebalance_timeout_ms", 10_000)
        fields.setdefault("subscribed_topic_names", list(names) if names else None)
        return self.send(member_id=member_id, member_epoch=0, topic_partitions=[], **fields)

    def beat(
        self, member_id: str, epoch: int | None = None, owned: Partitions | None = None, **fields: Any
    ) -> Response:
        if epoch is None:
            epoch = self.group.member(member_id).member_epoch
        return self.send(member_id=member_id, member_epoch=epoch, topic_partitions=self.reported(owned), **fields)

    def leave(self, member_id: str, **fields: Any) -> Response:
        fields.setdefault("member_epoch", -1)
        return self.send(member_id=member_id, **fields)

    def fence(self, *member_ids: str) -> list[Change]:
        changes = self.take(fence(self.group, member_ids, self.now_ms))
        self.check()
        return changes

    def check(self) -> None:
        assert self.copy.snapshot() == self.group.snapshot()
        owned = [
            (topic_id, partition)
            for member in self.group.members.values()
            for some in (member.assigned, member.revoking)
            for topic_id, partitions in some.items()
            for partition in partitions
        ]
        assert len(owned) == len(set(owned))  # G2: one owner for each partition
        assert {(topic_id, partition) for topic_id, partition, _ in self.group.owned()} == set(owned)

    # ---- partitions by the names of topics -------------------------------------------------------------------------

    def reported(self, owned: Partitions | None) -> list[Request.TopicPartitions] | None:
        if owned is None:
            return None
        found: dict[uuid.UUID, list[int]] = {}
        for name, partition in sorted(owned):
            found.setdefault(self.topics.topic_id(name) or uuid.UUID(int=1), []).append(partition)
        return [Request.TopicPartitions(topic_id=key, partitions=some) for key, some in found.items()]

    def named(self, assignment: Response.Assignment | None) -> Partitions | None:
        if assignment is None:
            return None
        return self.by_name((topic.topic_id, topic.partitions) for topic in assignment.topic_partitions)

    def by_name(self, partitions: Iterable[tuple[uuid.UUID, Iterable[int]]]) -> Partitions:
        return {
            (name, partition)
            for topic_id, some in partitions
            if (name := self.topics.name_of(topic_id)) is not None
            for partition in some
        }

    def assigned(self, member_id: str) -> Partitions:
        return self.by_name(self.group.member(member_id).assigned.items())

    def target(self, member_id: str) -> Partitions:
        return self.by_name(self.group.target.get(member_id, {}).items())


class Consumer:
    """A member that follows the protocol: it revokes partitions before it takes new ones, and reports the partitions that it
    owns after each change."""

    def __init__(self, harness: Harness, member_id: str, *names: str, regex: str | None = None, **fields: Any) -> None:
        self.harness = harness
        self.member_id = member_id
        self.names = list(names)
        self.regex = regex
        self.fields = fields
        self.epoch = 0
        self.owned: Partitions = set()
        self.wanted: Partitions = set()
        self._report = False
        self._changed = False
        self._full = False

    def subscribe(self, *names: str) -> None:
        self.names = list(names)
        self._changed = True

    def beat(self) -> None:
        """Send one heartbeat, then revoke the partitions that are no longer assigned."""
        if self.epoch == 0:
            response = self.harness.join(
                self.member_id,
                subscribed_topic_names=self.names if self.regex is None else None,
                subscribed_topic_regex=self.regex,
                **self.fields,
            )
        else:
            response = self.harness.beat(
                self.member_id,
                self.epoch,
                self.owned if self._report or self._changed or self._full else None,
                subscribed_topic_names=self.names if self.regex is None and (self._changed or self._full) else None,
                subscribed_topic_regex=self.regex if self._full else None,
                rebalance_timeout_ms=10_000 if self._full else -1,
                **{name: value for name, value in self.fields.items() if name == "instance_id"},
            )
            self._report = self._changed = self._full = False
        self.epoch = response.member_epoch
        wanted = self.harness.named(response.assignment)
        if wanted is not None:
            self.wanted = wanted
            if self.owned != wanted:
                self._report = True
                self.owned &= wanted

    def take(self) -> None:
        """Take the assigned partitions. The next heartbeat reports them."""
        if self.owned != self.wanted:
            self.owned = set(self.wanted)
            self._report = True

    def lost(self, epoch: int, owned: Partitions) -> None:
        """Lose the response to the last heartbeat. The next heartbeat reports every field.

        The consumer gives up partitions that were assigned earlier and that it has not taken yet. The lost response may
        have been without them, and another member may own them, since this one had reported that it does not. Kafka's
        consumer takes them until its next heartbeat; the protocol does not prevent that.
        """
        self.epoch, self.owned, self.wanted = epoch, owned, set(owned)
        self._full = True

    def fenced(self) -> None:
        """Give up all partitions, and join again with the next heartbeat."""
        self.epoch, self.owned, self.wanted = 0, set(), set()
        self._report = self._changed = self._full = False


def settle(
    consumers: Iterable[Consumer],
    rounds: int = 20,
    before: Callable[[], object] = lambda: None,
    refused: Iterable[ErrorCode] = (),
) -> None:
    """Let all consumers send heartbeats until nothing changes. before: called in each round. refused: error codes after
    which a consumer joins again."""
    consumers = list(consumers)
    for _ in range(rounds):
        states = [(consumer.epoch, set(consumer.owned)) for consumer in consumers]
        before()
        for consumer in consumers:
            try:
                consumer.beat()
            except Refused as error:
                if error.code not in refused:
                    raise
                consumer.fenced()
            consumer.take()
        if states == [(consumer.epoch, consumer.owned) for consumer in consumers]:
            return
    raise AssertionError(f"the group has not settled after {rounds} rounds of heartbeats")
