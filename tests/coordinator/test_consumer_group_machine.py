"""A consumer group with random members: they join, revoke late, lose responses, die, leave and come back, while topics get
more partitions. Harness replays every record into a second group after each step."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klog.coordinator.groups.refusal import Refused
from klog.protocol import ErrorCode
from tests.coordinator.consumers import Consumer, FakeTopics, Harness, settle

TOPICS = ("foo", "bar", "baz")
SUBSCRIPTIONS = st.sampled_from([("foo",), ("foo", "bar"), ("bar", "baz"), ("foo", "bar", "baz"), ("missing",)])
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
index = st.integers(0, 100)


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.epoch = 0
        self.epochs: Counter[str] = Counter()
        self.alive: list[Consumer] = []
        self.dead: list[Consumer] = []
        self.away: list[Consumer] = []  # static members that have left for now

    @initialize(interval=st.sampled_from([0, 1000]), same=st.booleans())
    def start(self, interval: int, same: bool) -> None:
        self.same = same
        self.harness = Harness(FakeTopics(foo=4, bar=3), assignment_interval_ms=interval)

    def some(self, consumers: list[Consumer], number: int) -> Consumer:
        return consumers[number % len(consumers)]

    def beat(self, consumer: Consumer) -> None:
        try:
            consumer.beat()
        except Refused as refused:
            if refused.code not in FENCED:
                raise
            consumer.fenced()

    # ---- steps -----------------------------------------------------------------------------------------------------

    @rule(names=SUBSCRIPTIONS, static=st.booleans(), regex=st.sampled_from([None, "ba.", "foo|b.*", "x"]))
    def join(self, names: tuple[str, ...], static: bool, regex: str | None) -> None:
        if len(self.alive) + len(self.dead) + len(self.away) >= 6:
            return
        self.number += 1
        fields = {"instance_id": f"i{self.number}"} if static else {}
        if self.same:
            names, regex = ("foo", "bar"), None
        consumer = Consumer(self.harness, f"m{self.number}", *names, regex=regex, **fields)
        self.alive.append(consumer)
        self.beat(consumer)

    @precondition(lambda self: self.alive)
    @rule(number=index, take=st.booleans())
    def heartbeat(self, number: int, take: bool) -> None:
        consumer = self.some(self.alive, number)
        self.beat(consumer)
        if take:
            consumer.take()

    @precondition(lambda self: self.alive)
    @rule(number=index)
    def take(self, number: int) -> None:
        self.some(self.alive, number).take()

    @precondition(lambda self: self.alive)
    @rule(number=index)
    def heartbeat_whose_response_is_lost(self, number: int) -> None:
        consumer = self.some(self.alive, number)
        epoch, owned = consumer.epoch, set(consumer.owned)
        if epoch == 0:
            return
        self.beat(consumer)
        if consumer.epoch != 0:
            consumer.lost(epoch, owned)

    @precondition(lambda self: self.alive)
    @rule(number=index, names=SUBSCRIPTIONS)
    def subscribe(self, number: int, names: tuple[str, ...]) -> None:
        consumer = self.some(self.alive, number)
        if consumer.regex is None and not self.same:
            consumer.subscribe(*names)

    @precondition(lambda self: self.alive)
    @rule(number=index)
    def die(self, number: int) -> None:
        """A dead member may process its partitions until its session ends."""
        consumer = self.some(self.alive, number)
        self.alive.remove(consumer)
        self.dead.append(consumer)

    @precondition(lambda self: self.dead)
    @rule(number=index)
    def session_ends(self, number: int) -> None:
        consumer = self.some(self.dead, number)
        self.dead.remove(consumer)
        if consumer.member_id in self.harness.group.members:
            self.harness.fence(consumer.member_id)

    @precondition(lambda self: self.alive)
    @rule(number=index, for_good=st.booleans())
    def leave(self, number: int, for_good: bool) -> None:
        consumer = self.some(self.alive, number)
        if consumer.epoch == 0:
            return
        self.alive.remove(consumer)
        static = "instance_id" in consumer.fields
        if static and not for_good:
            consumer.fenced()
            self.away.append(consumer)
            if consumer.member_id in self.harness.group.members:
                self.harness.leave(consumer.member_id, member_epoch=-2, **consumer.fields)
        elif consumer.member_id in self.harness.group.members:
            self.harness.leave(consumer.member_id, **(consumer.fields if static else {}))

    @precondition(lambda self: self.away)
    @rule(number=index)
    def come_back(self, number: int) -> None:
        old = self.some(self.away, number)
        self.away.remove(old)
        self.number += 1
        consumer = Consumer(self.harness, f"m{self.number}", *old.names, regex=old.regex, **old.fields)
        self.alive.append(consumer)
        self.beat(consumer)

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def grow(self, name: str, more: int) -> None:
        before = self.harness.topics.partitions(name)
        if before is None:
            self.harness.topics.create(name, more)
        elif before < 9:
            self.harness.topics.grow(name, before + more)

    @rule(ms=st.sampled_from([1, 500, 2000]))
    def time_passes(self, ms: int) -> None:
        self.harness.now_ms += ms

    @precondition(lambda self: self.alive)
    @rule()
    def all_settle(self) -> None:
        """The dead members are removed and the others follow the protocol. Then all partitions are assigned, and evenly."""
        for consumer in (*self.dead, *self.away):
            if consumer.member_id in self.harness.group.members:
                self.harness.fence(consumer.member_id)
        self.dead, self.away = [], []

        def time() -> None:
            self.harness.now_ms += 1000

        settle(self.alive, rounds=40, before=time, refused=FENCED)
        group, topics = self.harness.group, self.harness.topics
        assert group.state == "Stable"
        assert {member.member_epoch for member in group.members.values()} == {group.epoch}
        wanted = {(name, partition) for name in group.subscribed() for partition in range(topics.partitions(name) or 0)}
        assert set().union(*(consumer.owned for consumer in self.alive)) == wanted
        for consumer in self.alive:
            assert consumer.owned == self.harness.assigned(consumer.member_id)
            assert {name for name, _ in consumer.owned} <= group.topics_of(group.member(consumer.member_id))
        if len({(frozenset(consumer.names), consumer.regex) for consumer in self.alive}) == 1:
            sizes = [len(consumer.owned) for consumer in self.alive]
            assert max(sizes) - min(sizes) <= 1
        self.check_that_heartbeats_write_nothing()

    def check_that_heartbeats_write_nothing(self) -> None:
        """The next heartbeats of a stable group write no records."""
        for consumer in self.alive:
            consumer.beat()
            assert self.harness.outcome.changes == []

    # ---- invariants ------------------------------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = Counter(pair for consumer in (*self.alive, *self.dead) for pair in consumer.owned)
        assert not owned or max(owned.values()) == 1, owned

    @invariant()
    def epochs_rise(self) -> None:
        if not hasattr(self, "harness"):
            return
        group = self.harness.group
        assert group.epoch >= self.epoch
        assert group.target_epoch <= group.epoch
        self.epoch = group.epoch
        for member_id, member in group.members.items():
            assert member.member_epoch <= group.epoch
            if member.member_epoch >= 0:
                assert member.member_epoch >= self.epochs[member_id]
                self.epochs[member_id] = member.member_epoch


TestConsumerGroup = ConsumerGroupMachine.TestCase
