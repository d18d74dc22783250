"""The interface that the tests use instead of a client library. Each library has an adapter. All calls block, with bounded
waits.

An error code of the broker is raised as Refused, whatever the library raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.support.patience import PATIENCE

__all__ = [
    "SESSION_MS",
    "WAIT_SECONDS",
    "Admin",
    "Client",
    "Consumer",
    "Header",
    "Login",
    "Message",
    "Partition",
    "Producer",
    "Refused",
]

WAIT_SECONDS = PATIENCE
SESSION_MS = 60_000  # session timeout of a group's member, longer than any pause on a busy machine
Partition = tuple[str, int]
Header = tuple[str, bytes | None]


class Refused(Exception):
    """The broker returned this error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


@dataclass(frozen=True)
class Message:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int


@dataclass(frozen=True)
class Login:
    """A user for SASL on a listener without TLS."""

    mechanism: str
    user: str
    password: str


class Producer(Protocol):
    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue one record."""

    def flush(self) -> list[tuple[int, int]]:
        """Wait for the records that were sent since the last flush. Returns (partition, offset) of each, in that order.
        With acks=0 these values have no meaning."""

    def begin(self) -> None: ...

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Consumer) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Consumer(Protocol):
    def assign(self, offsets: Mapping[Partition, int]) -> None: ...

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def poll(self, seconds: float) -> list[Message]: ...

    def seek(self, partition: Partition, offset: int) -> None: ...

    def assignment(self) -> set[Partition]: ...

    def commit(self, offsets: Mapping[Partition, int]) -> None: ...

    def committed(self, partition: Partition) -> int | None: ...

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        """The first offset whose timestamp is not before this one; None if there is none."""

    def bounds(self, partition: Partition) -> tuple[int, int]:
        """The log start offset, and the end of what this consumer may read (exclusive)."""

    def close(self) -> None: ...


class Admin(Protocol):
    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; Refused(3) if there is no such topic."""

    def topics(self) -> set[str]: ...

    def delete_topic(self, topic: str) -> None: ...

    def config(self, topic: str) -> dict[str, str | None]:
        """Every configuration key of the topic."""

    def set_config(self, topic: str, name: str, value: str) -> None: ...

    def groups(self) -> set[str]: ...

    def group_state(self, group: str) -> tuple[str, int]:
        """The state ("Stable", "Empty", "Dead") and the number of members."""

    def group_offsets(self, group: str) -> dict[Partition, int]: ...

    def delete_records(self, partition: Partition, before: int) -> int:
        """Delete the records below the offset `before`; -1 means all. Returns the new log start offset."""

    def delete_group(self, group: str) -> None: ...

    def latest(self, partition: Partition) -> int: ...

    def at_max_timestamp(self, partition: Partition) -> int:
        """The offset of the record with the greatest timestamp."""

    def close(self) -> None: ...


class Client(Protocol):
    name: str
    lacks: frozenset[str]  # calls of Admin that the library does not offer; "consumer protocol" for KIP-848

    def producer(
        self, *, codec: str = "none", acks: str = "all", idempotent: bool = False, transactional_id: str | None = None
    ) -> Producer:
        """With a transactional id, init_transactions() has been called. A request may have up to 8 MiB."""

    def consumer(
        self, group: str | None = None, *, isolation: str = "read_uncommitted", protocol: str = "classic"
    ) -> Consumer:
        """A consumer that starts at the log start offset if none is committed, never commits by itself, and discovers new
        partitions."""

    def admin(self) -> Admin: ...
