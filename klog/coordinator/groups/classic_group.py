"""ClassicGroup: members, states and generations of a group whose members assign the partitions themselves.

    Empty ─► PreparingRebalance ─► CompletingRebalance ─► Stable
               members join          the leader assigns
      ▲                │                    │                │
      └────────────────┴──── (no members) ──┴────────────────┘   any of them ─► Dead: deleted

  C1  a generation is one set of members, one protocol that all of them support, and one leader; generations rise
  C2  a member has at most one id, and a group.instance.id at most one member
  C3  in PreparingRebalance no member has a SyncGroup request that waits, in Stable none has any that waits

An id of a member that has not joined with it yet is pending: versions 4 and later of JoinGroup ask for the second
request. Under the coordinator's lock. Kafka: ClassicGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups.group_keys import group_tombstone
from klog.coordinator.groups.subscription import subscribed_topics
from klog.protocol import ErrorCode, messages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Literal

    from klog.coordinator.groups.classic_member import ClassicMember, Protocols
    from klog.coordinator.groups.deadlines import Deadline
    from klog.coordinator.groups.group import Kind, Records
    from klog.protocol.messages import DescribeGroups, JoinGroup
    from klog.security.context import Context

    State = Literal["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"
CONSUMER = "consumer"


class ClassicGroup:
    """One group. joining: the deadline of a rebalance; syncing: that of the SyncGroup requests after it."""

    kind: Kind = "classic"

    def __init__(self, group_id: str, joining: Deadline, syncing: Deadline, now_ms: int) -> None:
        self.group_id = group_id
        self.joining = joining
        self.syncing = syncing
        self.state: str = EMPTY
        self.was_empty = True  # the rebalance that is going on is the first one
        self.state_timestamp = now_ms
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.pending: dict[str, Deadline] = {}  # ids that have not joined yet
        self.not_synced: set[str] = set()
        self._member_added = False  # since the first rebalance was last delayed
        self._delay_left_ms = 0
        self._static: dict[str, str] = {}
        self._joining_count = 0
        self._supported: dict[str, int] = {}
        self._topics: frozenset[str] | None = None

    # ---- queries -----------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state == EMPTY

    @property
    def joining_count(self) -> int:
        """The number of members whose JoinGroup requests wait."""
        return self._joining_count

    @property
    def all_joined(self) -> bool:
        """Have all members and all ids that were given out joined?"""
        return self._joining_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member(self, instance_id: str) -> str | None:
        """The id of the member with a group.instance.id."""
        return self._static.get(instance_id)

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Can a member with these protocols join?"""
        if self.state == EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported.get(name, 0) == count for name in protocols)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Is this a member, and the one with its group.instance.id?"""
        if instance_id is not None:
            existing = self._static.get(instance_id)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # ---- what all groups have ----------------------------------------------------------------------------------------

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> ErrorCode:
        if epoch < 0 and self.state == EMPTY:
            return ErrorCode.NONE  # a consumer that assigns its partitions itself, or an administrator
        if epoch >= 0 or member_id or instance_id is not None:
            code = self.check_member(member_id, instance_id)
            if code is not ErrorCode.NONE:
                return code
            if epoch != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state == COMPLETING and not transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def has_owned_since(self, member_id: str, epoch: int, topic: str, partition: int) -> bool:
        return False  # a generation assigns all partitions anew

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state == DEAD else ErrorCode.NONE

    def validate_offset_delete(self) -> ErrorCode:
        if self.state == EMPTY or (self.state != DEAD and self.protocol_type == CONSUMER):
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state == DEAD else ErrorCode.NON_EMPTY_GROUP

    def validate_delete(self) -> ErrorCode:
        if self.state == EMPTY:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state == DEAD else ErrorCode.NON_EMPTY_GROUP

    def subscribes(self, topic: str) -> bool:
        if self._topics is not None:
            return topic in self._topics
        return self.protocol_type == CONSUMER

    def expires_since(self, commit_timestamp: int) -> int | None:
        if not self.protocol_type:
            return commit_timestamp
        if self.state == EMPTY:
            return self.state_timestamp if self.state_timestamp >= 0 else commit_timestamp
        if self.state == STABLE and self.protocol_type == CONSUMER and self._topics is not None:
            return commit_timestamp
        return None

    def describe(self) -> DescribeGroups.Response.Group:
        protocol = self.protocol if self.state == STABLE else None
        return messages.DescribeGroups.Response.Group(
            error_code=ErrorCode.NONE,
            group_id=self.group_id,
            group_state=self.state,
            protocol_type=self.protocol_type,
            protocol_data=protocol or "",
            members=[member.describe(protocol) for member in self.members.values()],
        )

    def deleted(self) -> None:
        """Nothing else is kept of it."""

    def tombstones(self) -> Records:
        return [group_tombstone(self.group_id)]

    # ---- members -----------------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        """Add a member that supports the group's protocols. Its group.instance.id has no member."""
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        self._member_added = True
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self._joining_count += member.joining is not None
        waiting = self.pending.pop(member.member_id, None)
        if waiting is not None:
            waiting.cancel()

    def update(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Take over the fields of a member's JoinGroup request."""
        self._count(member, -1)
        member.update(protocols, rebalance_timeout_ms, session_timeout_ms)
        self._count(member, 1)

    def wait_for_join(self, member: ClassicMember, context: Context) -> None:
        """A member's JoinGroup request waits from now on."""
        self._joining_count += member.joining is None
        member.wait_for_join(context)

    def joined(self, member: ClassicMember, response: JoinGroup.Response) -> None:
        """Respond to a member's JoinGroup request that waits."""
        self._joining_count -= member.joining is not None
        member.joined(response)

    def remove(self, member: ClassicMember, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member. Its requests that wait get the error."""
        self._joining_count -= member.joining is not None
        member.refuse(code)
        member.gone()
        del self.members[member.member_id]
        self._count(member, -1)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self.not_synced.discard(member.member_id)

    def replace_static(self, old: ClassicMember, new: ClassicMember) -> None:
        """A member with a group.instance.id has a new id. What waits for the old one is fenced."""
        assert old.instance_id is not None
        self._joining_count -= old.joining is not None
        old.refuse(ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        old.gone()
        was_leader = self.leader == old.member_id
        self.members = {
            new.member_id if name == old.member_id else name: new if member is old else member
            for name, member in self.members.items()
        }
        self._count(old, -1)
        self._count(new, 1)
        self._joining_count += new.joining is not None
        self._static[old.instance_id] = new.member_id
        self.not_synced.discard(old.member_id)
        if was_leader:
            self.leader = new.member_id

    def add_pending(self, member_id: str, deadline: Deadline) -> None:
        """An id was given out. deadline: for the JoinGroup request with it."""
        self.pending[member_id] = deadline

    def remove_pending(self, member_id: str) -> None:
        """Forget an id that was given out."""
        deadline = self.pending.pop(member_id, None)
        if deadline is not None:
            deadline.cancel()

    def _count(self, member: ClassicMember, step: int) -> None:
        for name, _ in member.protocols:
            count = self._supported.get(name, 0) + step
            if count:
                self._supported[name] = count
            else:  # members choose their names: those of all that there ever were would add up
                del self._supported[name]

    # ---- states ------------------------------------------------------------------------------------------------------

    def enter(self, state: State, now_ms: int) -> None:
        """Change the state."""
        self.was_empty = self.state == EMPTY
        self.state = state
        self.state_timestamp = now_ms

    def delay_first_rebalance(self, delay_ms: int) -> None:
        """The first rebalance is delayed: by delay_ms now, and again while members come, up to the rebalance
        timeout."""
        self._member_added = False
        self._delay_left_ms = max(self.rebalance_timeout_ms - delay_ms, 0)

    def extend_delay(self, delay_ms: int) -> int:
        """How long the first rebalance is delayed once more; 0 if it is not."""
        if not self.was_empty or not self._member_added or not self._delay_left_ms:
            return 0
        self._member_added = False
        delay_ms = min(delay_ms, self._delay_left_ms)
        self._delay_left_ms -= delay_ms
        return delay_ms

    def select_protocol(self, old: ClassicMember | None = None, new: ClassicMember | None = None) -> str | None:
        """The protocol with the most votes of those that all members support. new: as if it replaced the member
        old."""
        members = [member for member in self.members.values() if member is not old]
        if new is not None:
            members.append(new)
        support: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                support[name] = support.get(name, 0) + 1
        candidates = {name for name, supporting in support.items() if supporting == len(members)}
        votes: dict[str, int] = {}
        for member in members:
            choice = member.vote(candidates)
            if choice is not None:
                votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__) if votes else None

    def elect_joined_leader(self) -> bool:
        """Make a member the leader that has joined the rebalance. False if none has."""
        leader = None if self.leader is None else self.members.get(self.leader)
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.joining is not None), None)
        if leader is None or joined is None:
            return False
        self.leader = joined
        return True

    def next_generation(self, now_ms: int) -> None:
        """All members have joined (C1). Without members the group is empty."""
        self.generation = self.generation + 1 if self.generation < 2**31 - 1 else 1
        self.not_synced.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self._topics = self._subscribed()
            self.enter("CompletingRebalance", now_ms)
        else:
            self.protocol = None
            self._topics = self._subscribed()
            self.enter("Empty", now_ms)

    def sync_from(self, member_id: str) -> None:
        """A member's SyncGroup request has come."""
        self.not_synced.discard(member_id)
        if not self.not_synced:
            self.syncing.cancel()

    def expect_sync(self) -> None:
        """All members have to send a SyncGroup request, within the rebalance timeout."""
        self.not_synced.update(self.members)
        self.syncing.set(self.rebalance_timeout_ms)

    def expect_no_sync(self) -> None:
        """A rebalance begins."""
        self.not_synced.clear()
        self.syncing.cancel()

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Set the assignments; members without one get an empty one."""
        for member in self.members.values():
            member.assign(assignments.get(member.member_id, b""))

    def restore(
        self, generation: int, protocol_type: str, protocol: str | None, leader: str | None, state_timestamp: int,
        members: Iterable[ClassicMember],
    ) -> None:  # fmt: skip
        """Take over what a record has, in a new group: stable, or empty without members."""
        self.generation = generation
        for member in members:
            self.add(member)
        self.protocol_type = protocol_type
        self.protocol = protocol
        self.leader = leader if leader in self.members else next(iter(self.members), None)
        self.state = STABLE if self.members else EMPTY
        self.was_empty = not self.members
        self.state_timestamp = state_timestamp
        self._topics = self._subscribed()

    def close(self, code: ErrorCode, now_ms: int) -> None:
        """The group is deleted, or its coordinator stops: respond to all that waits."""
        for member in self.members.values():
            member.refuse(code, member.member_id)
            member.gone()
        for deadline in (*self.pending.values(), self.joining, self.syncing):
            deadline.cancel()
        self._joining_count = 0
        self.pending.clear()
        self.enter("Dead", now_ms)

    def _subscribed(self) -> frozenset[str] | None:
        """The topics of a group of consumers; None if a subscription is not a consumer's."""
        if self.protocol_type != CONSUMER:
            return None
        found: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol))
            if topics is None:
                return None
            found.update(topics)
        return frozenset(found)
