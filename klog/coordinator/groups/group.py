"""What groups of all kinds have in common: classic ones, those of KIP-848 ("consumer"), and those of KIP-932 ("share").

A group is a state machine: the lock, the timers and the log are the coordinator's. Only the coordinator calls it, under
its lock. Methods that can refuse return an ErrorCode, NONE if they do not. Kafka: Group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.protocol import ApiKey, ErrorCode, Message
    from klog.record import Record
    from klog.security.context import Context

    Handler = Callable[[Context, Any], Message | None]

Kind = Literal["classic", "consumer", "share"]
Records = list[tuple[bytes, bytes | None]]
"""Records for the group's partition of __consumer_offsets, in order: key and value, None for a tombstone."""


class Group(Protocol):
    """One group."""

    group_id: str
    kind: Kind

    @property
    def state(self) -> str:
        """Kafka's name of the state: "Empty", "Stable", "PreparingRebalance", "Reconciling", ..."""

    @property
    def protocol_type(self) -> str:
        """What its members are: "consumer", "connect", ...; "" before there was one."""

    @property
    def is_empty(self) -> bool:
        """Has it no members? Members that have an id but have not joined yet do not count."""

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> ErrorCode:
        """May this member commit offsets? epoch: generation or member epoch, -1 for none. version: of the request."""

    def has_owned_since(self, member_id: str, epoch: int, topic: str, partition: int) -> bool:
        """Has the member had this partition from an older epoch on until now? Then validate_commit() is too strict for
        it: the commit was under way when the member's epoch rose (KIP-1251)."""

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """May this member fetch offsets? member_id is None and epoch -1 in requests without a member."""

    def validate_offset_delete(self) -> ErrorCode:
        """May offsets of topics without a subscriber be deleted?"""

    def validate_delete(self) -> ErrorCode:
        """May the group be deleted? NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""

    def subscribes(self, topic: str) -> bool:
        """Does a member read this topic, as far as the group knows? Such offsets are neither deleted nor expired."""

    def expires_since(self, commit_timestamp: int) -> int | None:
        """The time, in ms since 1970, from which offsets.retention.minutes count for an offset that was committed at
        commit_timestamp; None if it does not expire now."""

    def describe(self) -> Message:
        """The Group of a DescribeGroups, ConsumerGroupDescribe or ShareGroupDescribe response, without
        authorized_operations."""

    def tombstones(self) -> Records:
        """The records that delete the group, without its offsets."""

    def deleted(self) -> None:
        """The tombstones are in the log: delete what is kept of the group elsewhere."""


class GroupKind(Protocol):
    """The requests and records of one kind of groups. GroupCoordinator.plug() takes one that klog.coordinator.groups
    does not have itself."""

    record_types: frozenset[int]
    """The types of its records: the int16 at the beginning of their keys."""

    def handlers(self) -> dict[ApiKey, Handler]:
        """The requests that it handles. They take the coordinator's lock themselves."""

    def replay(self, record: Record) -> None:
        """Apply a record while the coordinator loads, under its lock. An empty classic group may be there already, from
        committed offsets alone: replace it."""

    def loaded(self) -> None:
        """All records have been replayed: start timers. Under the lock, also if there were none."""

    def closed(self) -> None:
        """Respond to requests that wait. Under the lock; no timer fires any more."""
