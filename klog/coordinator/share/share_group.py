"""ShareGroup: the state of a share group, as its records have it.

    epoch         rises with every change that asks for another assignment: members, subscriptions, topics
    target        the assignment of each member, computed at target_epoch
    members       each with its own epoch; a member has its target from its next heartbeat on, as partitions are shared
    initialized   the partitions of which SharePartitions has a state; no member gets others

  G1  The state is changed by apply() only, with changes that are in the log. Requests compute changes.

State: Empty without members, else Stable. Kafka: ShareGroup, and the replay methods of GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.coordinator.groups.consumer_member import partitions_of
from klog.coordinator.groups.consumer_records import Change, encode_changes, id_of, id_text, target_of
from klog.coordinator.groups.refusal import Refused
from klog.coordinator.share.assignor import NAME
from klog.protocol import ErrorCode, messages
from klog.values import NamedTuple

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Mapping

    from klog.coordinator.groups.consumer_member import Target
    from klog.coordinator.groups.group import Kind, Records
    from klog.coordinator.share.config import ShareGroupConfig
    from klog.security.context import Topics

EPOCH = "share_group_metadata"
MEMBER = "share_group_member_metadata"
TARGET_EPOCH = "share_group_target_assignment_metadata"
TARGET = "share_group_target_assignment_member"
CURRENT = "share_group_current_member_assignment"
STATE = "share_group_state_partition_metadata"


class ShareMember(NamedTuple):
    """The state of one member in a group. Immutable: _replace() makes another."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    assigned: Mapping[uuid.UUID, frozenset[int]] = {}

    def metadata(self, group_id: str) -> Change:
        """The record of what does not depend on its assignment."""
        value = {
            "rack_id": self.rack_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "subscribed_topic_names": sorted(self.names),
        }
        return MEMBER, {"group_id": group_id, "member_id": self.member_id}, value

    def current(self, group_id: str) -> Change:
        """The record of its assignment."""
        value = {
            "member_epoch": self.epoch,
            "previous_member_epoch": self.previous_epoch,
            "state": 0,
            "assigned_partitions": topic_fields(self.assigned),
        }
        return CURRENT, {"group_id": group_id, "member_id": self.member_id}, value


def topic_fields(target: Mapping[uuid.UUID, Iterable[int]]) -> list[dict[str, Any]]:
    """The fields of topics with partitions in a record."""
    return [{"topic_id": id_text(topic_id), "partitions": some} for topic_id, some in partitions_of(target)]


def member_tombstones(group_id: str, member_id: str) -> list[Change]:
    """All records of a member, in the order in which they may be deleted."""
    return [(kind, {"group_id": group_id, "member_id": member_id}, None) for kind in (CURRENT, TARGET, MEMBER)]


class ShareGroup:
    """One group. Under the lock of its coordinator. on_deleted: called when it is deleted, after its tombstones."""

    kind: Kind = "share"
    protocol_type = "share"

    def __init__(
        self, group_id: str, topics: Topics, config: ShareGroupConfig, on_deleted: Callable[[ShareGroup], object]
    ) -> None:
        self.group_id = group_id
        self.topics = topics
        self.config = config
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self._on_deleted = on_deleted
        self._members: dict[str, ShareMember] = {}
        self._target: dict[str, Target] = {}
        self._initialized: dict[uuid.UUID, frozenset[int]] = {}
        self._refresh_due_ms = 0  # not in records: when a heartbeat checks the topics again

    def configure(self, config: ShareGroupConfig) -> None:
        """Take over a changed configuration."""
        self.config = config

    # ---- queries ---------------------------------------------------------------------------------------------------

    @property
    def members(self) -> Mapping[str, ShareMember]:
        """The members by id."""
        return self._members

    @property
    def target(self) -> Mapping[str, Target]:
        """The target assignments by member id."""
        return self._target

    @property
    def initialized(self) -> Mapping[uuid.UUID, frozenset[int]]:
        """The partitions that have a state."""
        return self._initialized

    def member(self, member_id: str) -> ShareMember:
        """A member by its id. Raises Refused, UNKNOWN_MEMBER_ID."""
        found = self._members.get(member_id)
        if found is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def is_refresh_due(self, now_ms: int) -> bool:
        """Is it time to check the topics again?"""
        return now_ms >= self._refresh_due_ms

    def refreshed(self, now_ms: int) -> None:
        """Note that the topics were checked."""
        self._refresh_due_ms = now_ms + self.config.refresh_interval_ms

    def request_refresh(self) -> None:
        """Topics have changed, or what a heartbeat found out about them is not in the log: the next one checks them."""
        self._refresh_due_ms = 0

    def deleted(self) -> None:
        """Its tombstones are in the log."""
        self._on_deleted(self)

    # ---- Group -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return "Stable" if self._members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self._members

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def has_owned_since(self, member_id: str, epoch: int, topic: str, partition: int) -> bool:
        return False

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def subscribes(self, topic: str) -> bool:
        return any(topic in member.names for member in self._members.values())

    def expires_since(self, commit_timestamp: int) -> int | None:
        return commit_timestamp

    def describe(self) -> messages.ShareGroupDescribe.Response.Group:
        made = messages.ShareGroupDescribe.Response
        return made.Group(
            group_id=self.group_id,
            group_state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            assignor_name=NAME,
            members=[
                made.Member(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.names),
                    assignment=made.Assignment(
                        topic_partitions=[
                            made.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=some)
                            for topic_id, some in partitions_of(member.assigned)
                            if (name := self.topics.name_of(topic_id)) is not None
                        ]
                    ),
                )
                for member in self._members.values()
            ],
        )

    def tombstones(self) -> Records:
        key = {"group_id": self.group_id}
        changes = [change for member_id in self._members for change in member_tombstones(self.group_id, member_id)]
        return encode_changes([*changes, *((kind, key, None) for kind in (TARGET_EPOCH, STATE, EPOCH))])

    # ---- changes ---------------------------------------------------------------------------------------------------

    def state_change(self, initialized: Mapping[uuid.UUID, Iterable[int]], names: Mapping[uuid.UUID, str]) -> Change:
        """The change to other partitions with a state. names: those of topics that are new."""
        value = {
            "initializing_topics": [],
            "initialized_topics": [
                {**each, "topic_name": names.get(id_of(each["topic_id"])) or self._name_of(each["topic_id"])}
                for each in topic_fields(initialized)
            ],
            "deleting_topics": [],
        }
        return STATE, {"group_id": self.group_id}, value

    def _name_of(self, topic_id: str) -> str:
        return self.topics.name_of(id_of(topic_id)) or ""

    def apply(self, changes: Iterable[Change]) -> None:
        """Take over changes that are in the log."""
        for kind, key, value in changes:
            member_id = key.get("member_id", "")
            if kind == EPOCH:
                self.epoch = 0 if value is None else value["epoch"]
                self.metadata_hash = 0 if value is None else value["metadata_hash"]
            elif kind == TARGET_EPOCH:
                self.target_epoch = -1 if value is None else value["assignment_epoch"]
            elif kind == STATE:
                topics = [] if value is None else value["initialized_topics"]
                self._initialized = {id_of(each["topic_id"]): frozenset(each["partitions"]) for each in topics}
            elif kind == TARGET:
                if value is None:
                    self._target.pop(member_id, None)
                else:
                    self._target[member_id] = target_of(value)
            elif kind == MEMBER and value is None:
                self._members.pop(member_id, None)
            else:
                member = self._members.get(member_id)
                if member is None and value is None:
                    continue
                self._members[member_id] = _changed(member or ShareMember(member_id), kind, value)


def _changed(member: ShareMember, kind: str, value: dict[str, Any] | None) -> ShareMember:
    if value is None:
        return member._replace(epoch=-1, previous_epoch=-1, assigned={})
    if kind == MEMBER:
        return member._replace(
            rack_id=value["rack_id"],
            client_id=value["client_id"],
            client_host=value["client_host"],
            names=frozenset(value["subscribed_topic_names"]),
        )
    return member._replace(
        epoch=value["member_epoch"],
        previous_epoch=value["previous_member_epoch"],
        assigned={id_of(each["topic_id"]): frozenset(each["partitions"]) for each in value["assigned_partitions"]},
    )
