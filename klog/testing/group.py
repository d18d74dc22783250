"""A group of a TestBroker: its state, members, offsets and lag, and waiting for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog import arguments
from klog.testing.topic import partitions_of
from klog.testing.waiting import wait_for

if TYPE_CHECKING:
    from klog.broker import Broker
    from klog.coordinator.groups.description import GroupDescription, MemberDescription

DEAD = "Dead"
_STATES = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", DEAD)


class GroupUnderTest:
    """Made by TestBroker.group(name). Each property is that of now. Any thread."""

    def __init__(self, broker: Broker, group_id: str) -> None:
        self._broker = broker
        self.group_id = arguments.text("group", group_id)

    def __repr__(self) -> str:
        offsets = ", ".join(f"{topic}-{number}: {offset}" for (topic, number), offset in sorted(self.offsets.items()))
        return f"<group {self._shown()}, committed {offsets or 'nothing'}>"

    @property
    def state(self) -> str:
        """Kafka's name of the state: "Empty", "Stable", "PreparingRebalance", ...; "Dead" for an unknown group."""
        found = self._described()
        return DEAD if found is None else found.state

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        """The members: member_id, instance_id, client_id, client_host, partitions."""
        found = self._described()
        return () if found is None else found.members

    @property
    def offsets(self) -> dict[tuple[str, int], int]:
        """The committed offsets: {(topic, partition): offset}."""
        found = self._described()
        return {} if found is None else found.offsets

    def lag(self, topic: str, partition: int | None = None) -> int:
        """How many records of a topic, or of one partition, the group has not committed yet. Without a committed offset
        all records of a partition count. 0 for a topic that does not exist. Raises UnknownTopicOrPartition for a
        partition that the topic does not have, TypeError."""
        logs, offsets = self._broker.logs, self.offsets
        lag = 0
        for number in partitions_of(logs, topic, partition):
            log = logs.log(topic, number)
            lag += max(0, log.high_watermark - max(offsets.get((topic, number), 0), log.log_start_offset))
        return lag

    def wait(self, state: str = "Stable", *, members: int | None = None, timeout: float = 10.0) -> GroupUnderTest:
        """Wait until the group has this state, and this many members. Returns the group. Raises TimeoutError."""
        arguments.chosen("state", state, _STATES)
        if members is not None:
            arguments.whole("members", members, 0)

        def is_there() -> bool:
            found = self._described()
            if found is None:
                return state == DEAD and not members
            return found.state == state and members in (None, len(found.members))

        wanted = state if members is None else f"{state} with {members} members"
        wait_for(is_there, timeout, lambda: f"group {self.group_id}: {wanted} expected; it is {self._shown()}")
        return self

    def wait_lag(self, topic: str, lag: int = 0, *, timeout: float = 10.0) -> GroupUnderTest:
        """Wait until at most `lag` records of a topic are not committed. Returns the group. Raises TimeoutError."""
        arguments.whole("lag", lag, 0)
        wait_for(
            lambda: topic in self._broker.logs.topics() and self.lag(topic) <= lag,
            timeout,
            lambda: f"group {self.group_id}: a lag of {lag} in {topic} expected; {self._shown_lag(topic)}",
        )
        return self

    def _described(self) -> GroupDescription | None:
        return self._broker.group(self.group_id)

    def _shown_lag(self, topic: str) -> str:
        return f"it is {self.lag(topic)}" if topic in self._broker.logs.topics() else "there is no such topic"

    def _shown(self) -> str:
        return f"{self.group_id}: {self.state}, {len(self.members)} members"
