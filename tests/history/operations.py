"""What clients did: the operations of a history. Times are seconds of one monotonic clock.

    Send          one record; its transaction's id, or None
    End           the end of a transaction: `ok` it is committed, `fail` it is aborted, `unknown` either
    Poll          records of one partition that a consumer got by one call
    Owned         the partitions that a member of a group was given in a generation
    Commit        an offset that a group was to remember
    Committed     an offset that the broker has for a group
    Ended         the end of a partition: the last stable offset under read_committed, else the high watermark

An outcome is a fact, not a guess: `ok` the broker said so, `fail` it certainly did not happen, `unknown` anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Partition = tuple[str, int]
Outcome = Literal["ok", "fail", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """began, ended: when the client asked, and when it knew the outcome."""

    client: str
    began: float
    ended: float


@dataclass(frozen=True, kw_only=True)
class Send(Operation):
    """value: unique among all sends. offset: known only of an `ok`, and not always. number: the order of the client's
    sends."""

    partition: Partition
    value: str
    outcome: Outcome
    number: int
    offset: int | None = None
    key: str | None = None
    idempotent: bool = False
    transaction: str | None = None


@dataclass(frozen=True, kw_only=True)
class End(Operation):
    """began: when the end was asked for, so that no value may be read under read_committed before."""

    transaction: str
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Poll(Operation):
    """session: changes when the consumer is given partitions or moves its position, so that order is owed only within
    one. number: the order of the client's polls. group: None for a consumer that chose its partitions."""

    partition: Partition
    records: tuple[tuple[int, str], ...]
    session: int
    number: int
    committed_only: bool
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class Owned(Operation):
    group: str
    generation: int
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, kw_only=True)
class Commit(Operation):
    group: str
    partition: Partition
    offset: int
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Committed(Operation):
    group: str
    partition: Partition
    offset: int


@dataclass(frozen=True, kw_only=True)
class Ended(Operation):
    partition: Partition
    offset: int
    committed_only: bool
