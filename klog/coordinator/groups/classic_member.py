"""ClassicMember: a member of a classic group, and its requests that wait for the other members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.logger import logger_of
from klog.protocol import ErrorCode, messages

if TYPE_CHECKING:
    from collections.abc import Container

    from klog.coordinator.groups.deadlines import Deadline
    from klog.protocol import Message
    from klog.protocol.messages import DescribeGroups, JoinGroup, SyncGroup
    from klog.security.context import Context

Protocols = list[tuple[str, bytes]]
"""The protocols that a member supports, the preferred one first: name, and the member's metadata for it."""
# From this version of JoinGroup on a new dynamic member has to join again, with the id that the response has (KIP-394).
MEMBER_ID_REQUIRED_VERSION = 4
_log = logger_of("coordinator")


class ClassicMember:
    """One member. Under the coordinator's lock. Kafka: ClassicGroupMember."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.joining: Context | None = None  # a JoinGroup request that waits
        self.syncing: Context | None = None  # a SyncGroup request that waits
        self.is_new = False  # its first JoinGroup waits: it does not know its id yet, so it cannot send heartbeats
        self.session: Deadline | None = None

    # ---- life --------------------------------------------------------------------------------------------------------

    def watch(self, session: Deadline) -> None:
        """Set the deadline that ends the member."""
        self.session = session

    def alive(self) -> None:
        """Begin the session timeout again."""
        if self.session is not None:
            self.session.set(self.session_timeout_ms)

    def gone(self) -> None:
        """The member has left: no deadline."""
        if self.session is not None:
            self.session.cancel()

    @property
    def waits(self) -> bool:
        """Does a request of it wait, so that it cannot send heartbeats? A new member may be gone all the same."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    # ---- protocols ---------------------------------------------------------------------------------------------------

    def update(self, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Take over the fields of a JoinGroup request."""
        self.protocols = protocols
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata for a protocol; empty for one that the member does not support."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str | None:
        """The preferred protocol among those that all members support."""
        return next((name for name, _ in self.protocols if name in candidates), None)

    def assign(self, assignment: bytes) -> None:
        """Set the assignment that the leader has made."""
        self.assignment = assignment

    # ---- requests that wait ------------------------------------------------------------------------------------------

    def wait_for_join(self, context: Context, *, is_new: bool = False) -> None:
        """A JoinGroup request waits from now on. If an earlier one still waits, the client has sent it again on
        another connection: it is answered."""
        self.refuse_join(ErrorCode.REBALANCE_IN_PROGRESS, self.member_id)
        self.joining = context
        self.is_new = self.is_new or is_new

    def joined(self, response: JoinGroup.Response) -> None:
        """Respond to the JoinGroup request that waits."""
        context, self.joining = self.joining, None
        if context is not None:
            self.is_new = False
            respond(context, response)

    def wait_for_sync(self, context: Context) -> None:
        """A SyncGroup request waits from now on. An earlier one is answered."""
        self.refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)
        self.syncing = context

    def synced(self, protocol_type: str | None, protocol: str | None) -> bool:
        """Respond with the assignment to the SyncGroup request that waits. False if none does."""
        context, self.syncing = self.syncing, None
        if context is None:
            return False
        respond(context, self.sync_response(protocol_type, protocol))
        return True

    def refuse(self, code: ErrorCode, member_id: str = "") -> None:
        """Respond to all requests that wait with an error."""
        self.refuse_join(code, member_id)
        self.refuse_sync(code)

    def refuse_join(self, code: ErrorCode, member_id: str = "") -> None:
        """Respond to the JoinGroup request that waits with an error."""
        context, self.joining = self.joining, None
        if context is not None:
            respond(context, join_refused(context, code, member_id))

    def refuse_sync(self, code: ErrorCode) -> bool:
        """Respond to the SyncGroup request that waits with an error. False if none does."""
        context, self.syncing = self.syncing, None
        if context is None:
            return False
        respond(context, sync_refused(code))
        return True

    # ---- responses ---------------------------------------------------------------------------------------------------

    def sync_response(self, protocol_type: str | None, protocol: str | None) -> SyncGroup.Response:
        """The assignment, for SyncGroup."""
        return messages.SyncGroup.Response(
            error_code=ErrorCode.NONE,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignment=self.assignment,
        )

    def describe(self, protocol: str | None) -> DescribeGroups.Response.Member:
        """The member for DescribeGroups. protocol: None unless the group is stable."""
        return messages.DescribeGroups.Response.Member(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol is None else self.metadata(protocol),
            member_assignment=self.assignment,
        )


def respond(context: Context, response: Message) -> None:
    """Respond to a request that has waited. A connection that fails now must not stop what its group is doing."""
    try:
        context.respond(response)
    except Exception:
        _log.exception("event=response_failed client=%r", context.client_id)


def join_refused(context: Context, code: ErrorCode, member_id: str = "") -> JoinGroup.Response:
    """A JoinGroup response with an error."""
    return messages.JoinGroup.Response(
        error_code=code,
        generation_id=-1,
        protocol_name=None if context.version >= 7 else "",
        member_id=member_id,
    )


def sync_refused(code: ErrorCode) -> SyncGroup.Response:
    """A SyncGroup response with an error."""
    return messages.SyncGroup.Response(error_code=code)
