"""The control records of KRaft's metadata log and snapshots: their fields, and encoding and decoding.

    key    := version:i16 type:i16
    value  := version:i16 field* tags       arrays and strings compact: an unsigned varint of their length + 1 first
    tags   := count:varint (tag:varint size:varint byte*)*         fields of newer writers: skipped

    read_kraft(control_type, value)     value of such a record → LeaderChange, SnapshotHeader, ...
    .record()                           the reverse: (key, value) for `encode(..., is_control=True)`

Kafka: LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord; KIP-595, 630,
853.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Final, TypeVar

from klog.errors import CorruptBatch
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

_NO_TAGS: Final = b"\0"
_VARINT_MAX: Final = 5
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The new leader, the ids of all voters, and of those that voted for it."""

    leader_id: int
    voters: tuple[int, ...] = ()
    granting_voters: tuple[int, ...] = ()

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value, as Kafka writes them: version 0, without the voters' directories."""
        value = struct.pack(">hi", 0, self.leader_id) + _ids(self.voters) + _ids(self.granting_voters) + _NO_TAGS
        return control_key("leader_change"), value


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """First record of a snapshot: the append time, in ms, of the last batch in it."""

    last_contained_log_timestamp: int

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        value = struct.pack(">hq", 0, self.last_contained_log_timestamp) + _NO_TAGS
        return control_key("snapshot_header"), value


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """Last record of a complete snapshot."""

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        return control_key("snapshot_footer"), struct.pack(">h", 0) + _NO_TAGS


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """The version of the quorum's protocol."""

    kraft_version: int

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        return control_key("kraft_version"), struct.pack(">hh", 0, self.kraft_version) + _NO_TAGS


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
        return control_key("kraft_voters"), struct.pack(">h", 0) + _array(self.voters, _voter) + _NO_TAGS


KRaftRecord = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters


def read_kraft(control_type: str | None, value: bytes | None) -> KRaftRecord | None:
    """Parse the value of a control record; None for transaction markers, unknown types and data.

    Newer versions are read as the newest one known here, as in Kafka. Raises CorruptBatch for truncated bytes or a
    negative version.
    """
    read = _READ.get(control_type or "")
    if read is None:
        return None
    fields = _Fields(value or b"", control_type or "")
    version = fields.number(">h")
    if version < 0:
        raise CorruptBatch(f"the value of a {control_type} record has version {version}")
    found = read(fields, version)
    fields.tags()
    return found


class _Fields:
    """Reads the fields of a value one after the other."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise CorruptBatch(f"the value of a {self._what} record ends inside a field")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, layout: str) -> int:
        (found,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return int(found)

    def varint(self) -> int:
        found = 0
        for place in range(_VARINT_MAX):
            (byte,) = self.take(1)
            found |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return found
        raise CorruptBatch(f"the value of a {self._what} record holds a varint of more than {_VARINT_MAX} bytes")

    def array(self, read: Callable[[], _T]) -> tuple[_T, ...]:
        count = self.varint() - 1
        if not 0 <= count <= len(self._data) - self._at:  # an entry has at least a byte
            raise CorruptBatch(f"the value of a {self._what} record claims an array of {count} entries")
        return tuple(read() for _ in range(count))

    def text(self) -> str:
        return self.take(self.varint() - 1).decode("utf-8", "surrogateescape")

    def directory(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.take(16))

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _read_leader_change(fields: _Fields, version: int) -> LeaderChange:
    def voter() -> int:
        voter_id = fields.number(">i")
        if version >= 1:
            fields.directory()
        fields.tags()
        return voter_id

    return LeaderChange(fields.number(">i"), fields.array(voter), fields.array(voter))


def _read_voters(fields: _Fields, version: int) -> KRaftVoters:
    def endpoint() -> Endpoint:
        found = Endpoint(fields.text(), fields.text(), fields.number(">H"))
        fields.tags()
        return found

    def voter() -> Voter:
        voter_id, directory_id, endpoints = fields.number(">i"), fields.directory(), fields.array(endpoint)
        low, high = fields.number(">h"), fields.number(">h")
        fields.tags()
        fields.tags()
        return Voter(voter_id, directory_id, endpoints, low, high)

    return KRaftVoters(fields.array(voter))


_READ: Final[dict[str, Callable[[_Fields, int], KRaftRecord]]] = {
    "leader_change": _read_leader_change,
    "snapshot_header": lambda fields, version: SnapshotHeader(fields.number(">q")),
    "snapshot_footer": lambda fields, version: SnapshotFooter(),
    "kraft_version": lambda fields, version: KRaftVersion(fields.number(">h")),
    "kraft_voters": _read_voters,
}


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _array(entries: tuple[_T, ...], write: Callable[[_T], bytes]) -> bytes:
    return _varint(len(entries) + 1) + b"".join(map(write, entries))


def _ids(ids: tuple[int, ...]) -> bytes:
    return _array(ids, lambda voter_id: struct.pack(">i", voter_id) + _NO_TAGS)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return _varint(len(data) + 1) + data


def _endpoint(endpoint: Endpoint) -> bytes:
    return _text(endpoint.name) + _text(endpoint.host) + struct.pack(">H", endpoint.port) + _NO_TAGS


def _voter(voter: Voter) -> bytes:
    versions = struct.pack(">hh", voter.min_supported_version, voter.max_supported_version) + _NO_TAGS
    head = struct.pack(">i", voter.voter_id) + voter.directory_id.bytes
    return head + _array(voter.endpoints, _endpoint) + versions + _NO_TAGS
