"""ConsumerGroup: the state of a group of KIP-848, as its records have it.

    epoch         rises with every change that asks for another assignment: members, subscriptions, topics
    target        the assignment of each member, computed at target_epoch
    members       each with its own epoch and what it has of its target (consumer_member.py)
    resolved      the topics of each regular expression that members subscribe to

  G1  The state is changed by apply() only, with changes that are in the log (consumer_records.py). Requests compute
      changes (consumer_draft.py) and change nothing.
  G2  A partition has at most one owner: the member with it in `assigned` or `revoking`.

State: Empty without members; Assigning while epoch > target_epoch; Reconciling until all members have their targets;
then Stable.
Kafka: ConsumerGroup, ModernGroup; the replay methods of GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klog.coordinator.groups import consumer_records as records
from klog.coordinator.groups.consumer_member import ConsumerMember, partitions_of
from klog.coordinator.groups.refusal import Refused
from klog.protocol import ErrorCode, messages
from klog.values import dataclass

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

    from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
    from klog.coordinator.groups.consumer_member import Target
    from klog.coordinator.groups.group import Kind, Records
    from klog.security.context import Topics

_COMMIT_VERSION_MIN = 9
_CONSUMER_MEMBER, _CLASSIC_MEMBER = 1, 0


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that a regular expression matched, and when, in ms since 1970."""

    topics: frozenset[str]
    timestamp: int


class ConsumerGroup:
    """One group. Under the lock of its coordinator."""

    kind: Kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, topics: Topics, config: ConsumerGroupConfig) -> None:
        self.group_id = group_id
        self.topics = topics
        self.config = config
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp = 0
        self.has_partition_metadata = False  # a record of Kafka 4.0, to be deleted
        self._members: dict[str, ConsumerMember] = {}
        self._target: dict[str, Target] = {}
        self._resolved: dict[str, Resolved] = {}
        self._static: dict[str, str] = {}
        self._owners: dict[uuid.UUID, dict[int, str]] = {}
        self._subscribed: frozenset[str] | None = None
        # Not in records: when a heartbeat checks the topics again, and what the patterns were matched against.
        self._refresh_due_ms = 0
        self._names_resolved: int | None = None

    def configure(self, config: ConsumerGroupConfig) -> None:
        """Take over a changed configuration."""
        self.config = config

    # ---- queries ---------------------------------------------------------------------------------------------------

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        """The members by id."""
        return self._members

    @property
    def target(self) -> Mapping[str, Target]:
        """The target assignments by member id."""
        return self._target

    @property
    def resolved(self) -> Mapping[str, Resolved]:
        """The topics of the regular expressions."""
        return self._resolved

    @property
    def names_resolved(self) -> int | None:
        """What resolved_against() was last called with."""
        return self._names_resolved

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member of an instance id; None if there is none."""
        member_id = self._static.get(instance_id)
        return None if member_id is None else self._members.get(member_id)

    def member(self, member_id: str) -> ConsumerMember:
        """A member by its id. Raises Refused, UNKNOWN_MEMBER_ID."""
        found = self._members.get(member_id)
        if found is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def owner(self, topic_id: uuid.UUID, partition: int) -> str | None:
        """The id of the member that owns a partition; None for a free one."""
        return self._owners.get(topic_id, {}).get(partition)

    def owned(self) -> Iterable[tuple[uuid.UUID, int, str]]:
        """Every partition that has an owner, with the id of that member."""
        return (
            (topic_id, partition, owner)
            for topic_id, topic in self._owners.items()
            for partition, owner in topic.items()
        )

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member subscribes to; an expression that is not resolved yet has none."""
        resolved = self._resolved.get(member.regex) if member.regex else None
        return member.names if resolved is None else member.names | resolved.topics

    def subscribed(self) -> frozenset[str]:
        """The names of the topics of all members."""
        if self._subscribed is None:
            self._subscribed = frozenset().union(*map(self.topics_of, self._members.values()))
        return self._subscribed

    @property
    def classic_members(self) -> list[ConsumerMember]:
        """The members with the classic protocol."""
        return [member for member in self._members.values() if member.classic is not None]

    def is_refresh_due(self, now_ms: int) -> bool:
        """Is it time to check the topics again?"""
        return now_ms >= self._refresh_due_ms

    def refreshed(self, now_ms: int) -> None:
        """Note that the topics were checked."""
        self._refresh_due_ms = now_ms + self.config.refresh_interval_ms

    def resolved_against(self, names: int) -> None:
        """The expressions were resolved against these names of topics, given by their hash."""
        self._names_resolved = names

    def request_refresh(self) -> None:
        """Topics have changed, or what a heartbeat found out about them is not in the log: the next one checks them."""
        self._refresh_due_ms = 0
        self._names_resolved = None

    # ---- Group -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if not self._members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self._members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self._members

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> ErrorCode:
        if epoch < 0 and not self._members:
            return ErrorCode.NONE
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE  # a producer that does not give the metadata of its group
        member = self._members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and member.classic is None and version < _COMMIT_VERSION_MIN:
            return ErrorCode.UNSUPPORTED_VERSION
        return self._validate_epoch(member, epoch)

    def has_owned_since(self, member_id: str, epoch: int, topic: str, partition: int) -> bool:
        member = self._members.get(member_id)
        topic_id = self.topics.topic_id(topic)
        if member is None or topic_id is None:
            return False
        since = member.assignment_epoch(topic_id, partition)
        return since is not None and since <= epoch <= member.member_epoch

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = None if member_id is None else self._members.get(member_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else self._validate_epoch(member, epoch)

    @staticmethod
    def _validate_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
        if epoch == member.member_epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def subscribes(self, topic: str) -> bool:
        return topic in self.subscribed()

    def expires_since(self, commit_timestamp: int) -> int | None:
        return commit_timestamp

    def describe(self) -> messages.ConsumerGroupDescribe.Response.Group:
        made = messages.ConsumerGroupDescribe.Response
        return made.Group(
            group_id=self.group_id,
            group_state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            assignor_name=self.preferred_assignor(self._members.values()),
            members=[
                made.Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.names),
                    subscribed_topic_regex=member.regex,
                    assignment=self._described(member.assigned),
                    target_assignment=self._described(self._target.get(member.member_id, {})),
                    member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
                )
                for member in self._members.values()
            ],
        )

    def _described(
        self, partitions: Mapping[uuid.UUID, Iterable[int]]
    ) -> messages.ConsumerGroupDescribe.Response.Assignment:
        made = messages.ConsumerGroupDescribe.Response
        return made.Assignment(
            topic_partitions=[
                made.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=some)
                for topic_id, some in partitions_of(partitions)
                if (name := self.topics.name_of(topic_id)) is not None
            ]
        )

    def preferred_assignor(self, members: Iterable[ConsumerMember]) -> str:
        """The server assignor that most of these members ask for."""
        counts: dict[str, int] = {}
        for member in members:
            if member.server_assignor in self.config.assignors:
                counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
        # Equal counts: the order of the configuration decides, not that of the members.
        return max(self.config.assignors, key=lambda name: counts.get(name, 0))

    def deleted(self) -> None:
        """Nothing else is kept of it."""

    def tombstones(self) -> Records:
        return records.encode_changes(self.deletion())

    def deletion(self) -> list[records.Change]:
        """The changes that delete the group."""
        keys = [{"group_id": self.group_id, "member_id": member_id} for member_id in self._members]
        changes: list[records.Change] = [(records.CURRENT, key, None) for key in keys]
        changes += [(records.TARGET, key, None) for key in keys]
        changes.append(records.group_tombstone(records.TARGET_EPOCH, self.group_id))
        changes += [(records.MEMBER, key, None) for key in keys]
        changes += [records.regular_expression_tombstone(self.group_id, regex) for regex in sorted(self._resolved)]
        if self.has_partition_metadata:
            changes.append(records.group_tombstone(records.PARTITION_METADATA, self.group_id))
        changes.append(records.group_tombstone(records.EPOCH, self.group_id))
        return changes

    # ---- changes ---------------------------------------------------------------------------------------------------

    def apply(self, changes: Iterable[records.Change]) -> None:
        """Take over changes that are in the log."""
        for kind, key, value in changes:
            self._APPLY[kind](self, key, value)

    def _apply_epoch(self, _key: dict[str, Any], value: dict[str, Any] | None) -> None:
        if value is not None:
            self.epoch = value["epoch"]
            self.metadata_hash = value.get("metadata_hash", 0)
            return
        self.epoch = self.metadata_hash = 0

    def _apply_partition_metadata(self, _key: dict[str, Any], value: dict[str, Any] | None) -> None:
        self.has_partition_metadata = value is not None

    def _apply_target_epoch(self, _key: dict[str, Any], value: dict[str, Any] | None) -> None:
        self.target_epoch = -1 if value is None else value["assignment_epoch"]
        self.target_timestamp = 0 if value is None else value.get("assignment_timestamp", 0)

    def _apply_target(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        if value is None:
            self._target.pop(key["member_id"], None)
        else:
            self._target[key["member_id"]] = records.target_of(value)

    def _apply_regex(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        self._subscribed = None
        if value is None:
            self._resolved.pop(key["regular_expression"], None)
        else:
            self._resolved[key["regular_expression"]] = Resolved(frozenset(value["topics"]), value["timestamp"])

    def _apply_member(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        member_id = key["member_id"]
        if value is not None:
            member = self._members.get(member_id) or ConsumerMember.new(member_id)
            self._put(records.with_metadata(member, value))
        elif (gone := self._members.pop(member_id, None)) is not None:
            self._subscribed = None
            self._release(gone)
            if gone.instance_id is not None and self._static.get(gone.instance_id) == member_id:
                del self._static[gone.instance_id]

    def _apply_current(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        member_id = key["member_id"]
        member = self._members.get(member_id)
        if value is not None:
            self._put(records.with_assignment(member or ConsumerMember.new(member_id), value))
        elif member is not None:
            self._put(member.evolve(member_epoch=-1, previous_member_epoch=-1, assigned={}, revoking={}))

    _APPLY: Final = {
        records.EPOCH: _apply_epoch,
        records.PARTITION_METADATA: _apply_partition_metadata,
        records.TARGET_EPOCH: _apply_target_epoch,
        records.TARGET: _apply_target,
        records.MEMBER: _apply_member,
        records.CURRENT: _apply_current,
        records.REGEX: _apply_regex,
    }

    def _put(self, member: ConsumerMember) -> None:
        old = self._members.get(member.member_id)
        self._members[member.member_id] = member
        self._subscribed = None
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if old is None or old.assigned is not member.assigned or old.revoking is not member.revoking:
            if old is not None:
                self._release(old)
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))

    def _release(self, member: ConsumerMember) -> None:
        """Free the partitions of a member. Another one may own them already: a log that was compacted while the cleaner
        was stopped can have an old record of this member."""
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                topic = self._owners.get(topic_id, {})
                for partition in partitions:
                    if topic.get(partition) == member.member_id:
                        del topic[partition]
                if not topic:
                    self._owners.pop(topic_id, None)

    def snapshot(self) -> dict[str, Any]:
        """The whole state that is in records, for comparisons."""
        return {
            "epoch": self.epoch,
            "metadata_hash": self.metadata_hash,
            "target_epoch": self.target_epoch,
            "members": dict(self._members),
            "target": dict(self._target),
            "resolved": dict(self._resolved),
            "static": dict(self._static),
            "owners": {topic_id: dict(topic) for topic_id, topic in self._owners.items()},
        }
