"""ConsumerMember: the state of one member in a consumer group.

    assigned   the partitions that the member may fetch, each with the epoch at which it was assigned
    revoking   partitions that it had and must give up; it owns them until it no longer reports them

A member never changes: evolve() returns another. Kafka: ConsumerGroupMember, MemberState.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from klog.values import dataclass, replace

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2  # a static member that will come back


class MemberState(IntEnum):
    """Where a member is on its way to its target assignment; the numbers are those of the records."""

    STABLE = 0  # it has its target assignment
    UNREVOKED_PARTITIONS = 1  # it must give up partitions first
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that other members must give up
    UNKNOWN = 127  # written by a newer Kafka

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


# Topic id to partitions: those of a target assignment, and those that a member owns with their assignment epochs.
Target = dict["uuid.UUID", frozenset[int]]
Owned = dict["uuid.UUID", dict[int, int]]


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What only a member with the classic protocol has. protocols: name and subscription, the preferred one first."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a consumer group. The containers are shared between members and never changed."""

    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    names: frozenset[str]
    regex: str
    server_assignor: str | None
    assigned: Owned
    revoking: Owned
    classic: ClassicMetadata | None

    @classmethod
    def new(cls, member_id: str) -> ConsumerMember:
        """A member that has not joined yet."""
        return cls(
            member_id=member_id,
            member_epoch=0,
            previous_member_epoch=-1,
            state=MemberState.STABLE,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=-1,
            client_id="",
            client_host="",
            names=frozenset(),
            regex="",
            server_assignor=None,
            assigned={},
            revoking={},
            classic=None,
        )

    def evolve(self, **changes: Any) -> ConsumerMember:
        """This member with other values of some fields."""
        return replace(self, **changes)

    def at_epoch(self, member_epoch: int, **changes: Any) -> ConsumerMember:
        """This member at the next epoch; it keeps the one that it had."""
        return replace(self, member_epoch=member_epoch, previous_member_epoch=self.member_epoch, **changes)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Has it all of its target assignment of this epoch?"""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def owns_partitions_of(self, partitions: Iterable[tuple[uuid.UUID, Iterable[int]]]) -> bool:
        """Are all these partitions assigned to it?"""
        return all(partition in self.assigned.get(topic_id, ()) for topic_id, some in partitions for partition in some)

    def same_partitions(self, other: ConsumerMember) -> bool:
        """Have both the same assigned partitions?"""
        return self.assigned.keys() == other.assigned.keys() and all(
            partitions.keys() == other.assigned[topic_id].keys() for topic_id, partitions in self.assigned.items()
        )

    def assignment_epoch(self, topic_id: uuid.UUID, partition: int) -> int | None:
        """The epoch at which a partition was assigned to it; None if it does not own the partition."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def partitions_of(owned: Mapping[uuid.UUID, Iterable[int]]) -> list[tuple[uuid.UUID, list[int]]]:
    """Topic ids and their partitions, in order."""
    return [(topic_id, sorted(partitions)) for topic_id, partitions in sorted(owned.items())]
