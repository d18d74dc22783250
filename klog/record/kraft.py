"""The control records of KRaft's metadata log and snapshots: their fields, and encoding and decoding.

    read_kraft(control_type, value)     value of such a record → LeaderChange, SnapshotHeader, ...
    .record()                           the reverse: (key, value) for `encode(..., is_control=True)`

The value is a message of klog.protocol, whose first field is its version. Kafka: LeaderChangeMessage,
SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord; KIP-595, 630, 853.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any, Final

from klog.errors import CorruptBatch, CorruptFrame
from klog.protocol import decode_from, encode, messages, versions_of
from klog.record.control import control_key
from klog.values import dataclass

__all__ = [
    "Endpoint",
    "KRaftRecord",
    "KRaftVersion",
    "KRaftVoters",
    "LeaderChange",
    "SnapshotFooter",
    "SnapshotHeader",
    "Voter",
    "read_kraft",
]

_VERSION: Final = struct.Struct(">h")
_MESSAGES: Final = {
    "leader_change": "LeaderChangeMessage",
    "snapshot_header": "SnapshotHeaderRecord",
    "snapshot_footer": "SnapshotFooterRecord",
    "kraft_version": "KRaftVersionRecord",
    "kraft_voters": "VotersRecord",
}


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The new leader, the ids of all voters, and of those that voted for it."""

    leader_id: int
    voters: tuple[int, ...] = ()
    granting_voters: tuple[int, ...] = ()

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value, as Kafka writes them: version 0, without the voters' directories."""
        voter = messages.LeaderChangeMessage.Voter
        value = messages.LeaderChangeMessage(
            leader_id=self.leader_id,
            voters=[voter(voter_id=each) for each in self.voters],
            granting_voters=[voter(voter_id=each) for each in self.granting_voters],
        )
        return control_key("leader_change"), encode(value, 0)


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """First record of a snapshot: the append time, in ms, of the last batch in it."""

    last_contained_log_timestamp: int

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        value = messages.SnapshotHeaderRecord(last_contained_log_timestamp=self.last_contained_log_timestamp)
        return control_key("snapshot_header"), encode(value, 0)


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """Last record of a complete snapshot."""

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        return control_key("snapshot_footer"), encode(messages.SnapshotFooterRecord(), 0)


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """The version of the quorum's protocol."""

    kraft_version: int

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        return control_key("kraft_version"), encode(messages.KRaftVersionRecord(kraft_version=self.kraft_version), 0)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address on which a voter listens."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """One member of the quorum, and the protocol versions it supports."""

    voter_id: int
    directory_id: uuid.UUID
    endpoints: tuple[Endpoint, ...] = ()
    min_supported_version: int = 0
    max_supported_version: int = 1


@dataclass(frozen=True, slots=True)
class KRaftVoters:
    """The members of the quorum."""

    voters: tuple[Voter, ...]

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        return control_key("kraft_voters"), encode(messages.VotersRecord(voters=list(map(_voter, self.voters))), 0)


KRaftRecord = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters


def read_kraft(control_type: str | None, value: bytes | None) -> KRaftRecord | None:
    """Parse the value of a control record; None for transaction markers, unknown types and data.

    Newer versions are read as the newest one known here, as in Kafka. Raises CorruptBatch for truncated bytes or a
    negative version.
    """
    name = _MESSAGES.get(control_type or "")
    if name is None:
        return None
    value = value or b""
    try:
        (version,) = _VERSION.unpack_from(value)
    except struct.error:
        raise CorruptBatch(f"the value of a {control_type} record has fewer than 2 bytes") from None
    if version < 0:
        raise CorruptBatch(f"the value of a {control_type} record has version {version}")
    try:
        fields, _ = decode_from(getattr(messages, name), min(version, versions_of(name)[1]), value, 0)
    except CorruptFrame as error:
        raise CorruptBatch(f"the value of a {control_type} record cannot be decoded: {error}") from None
    return _record(fields)


def _record(fields: Any) -> KRaftRecord:
    if isinstance(fields, messages.LeaderChangeMessage):
        voters, granting = fields.voters, fields.granting_voters
        return LeaderChange(fields.leader_id, *(tuple(each.voter_id for each in ids) for ids in (voters, granting)))
    if isinstance(fields, messages.SnapshotHeaderRecord):
        return SnapshotHeader(fields.last_contained_log_timestamp)
    if isinstance(fields, messages.SnapshotFooterRecord):
        return SnapshotFooter()
    if isinstance(fields, messages.KRaftVersionRecord):
        return KRaftVersion(fields.kraft_version)
    return KRaftVoters(
        tuple(
            Voter(
                each.voter_id,
                each.voter_directory_id,
                tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in each.endpoints),
                each.kraft_version_feature.min_supported_version,
                each.kraft_version_feature.max_supported_version,
            )
            for each in fields.voters
        )
    )


def _voter(voter: Voter) -> messages.VotersRecord.Voter:
    kind = messages.VotersRecord
    return kind.Voter(
        voter_id=voter.voter_id,
        voter_directory_id=voter.directory_id,
        endpoints=[kind.Endpoint(name=each.name, host=each.host, port=each.port) for each in voter.endpoints],
        kraft_version_feature=kind.KRaftVersionFeature(
            min_supported_version=voter.min_supported_version, max_supported_version=voter.max_supported_version
        ),
    )
