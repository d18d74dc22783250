"""Replays a coordinator's topic, __consumer_offsets or __transaction_state, as the coordinator does when it loads it.

  K1  the latest record of a key counts; a tombstone removes the key, and what is pending of it
  K2  a record in a transaction counts once the transaction is committed, unless a later one of its key has replaced it
      by then; it is pending until its marker, and an abort drops it
  K3  damage and records of unknown types are problems; the replay continues after them

Kafka: CoordinatorLoaderImpl, OffsetMetadataManager.replay, replayEndTransactionMarker.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from klog.errors import CorruptBatch, CorruptData
from klog.inspect.batches import Found
from klog.inspect.partition_files import Located, damage_of, items, settled
from klog.internal_topics import Decoded, decode
from klog.record import RecordBatch
from klog.values import dataclass, field

Key = tuple[Any, ...]
"""The type of a record, and the fields of its key."""


@dataclass(frozen=True, slots=True)
class Latest:
    """A record that counts, or is pending. offset: its offset in the coordinator's topic."""

    offset: int
    record: Decoded


@dataclass(slots=True)
class Replayed:
    """latest: by key, with no tombstones. pending: of open transactions, by producer id. problems: as text."""

    latest: dict[Key, Latest] = field(default_factory=dict)
    pending: dict[int, dict[Key, Latest]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def replay(found: Iterable[Located], topic: str) -> Replayed:
    """Replay the partitions of a topic."""
    state = Replayed()
    for located in found:
        if located.topic == topic:
            _add(state, settled(located.path, partial(_replay_partition, located), Replayed()))
    return state


def _add(state: Replayed, found: Replayed) -> None:
    """Add a partition, which has all records of its keys. Markers of a transaction are in each of its partitions."""
    state.latest.update(found.latest)
    for producer_id, waiting in found.pending.items():
        state.pending.setdefault(producer_id, {}).update(waiting)
    state.problems += found.problems


def _replay_partition(located: Located) -> Replayed:
    state = Replayed()
    try:
        for path, item in items(located.path):
            error = damage_of(item)
            if error is not None:
                state.problems.append(str(error))
            elif isinstance(item, Found):
                replay_batch(state, path, item.batch, located.topic)
    except CorruptData as error:
        state.problems.append(str(error))
    return state


def replay_batch(state: Replayed, path: str, batch: RecordBatch, topic: str) -> None:
    """Replay the next batch of a partition. path: for the texts of problems."""
    producer_id = batch.producer_id
    if batch.is_control:
        if batch.control_type in ("commit", "abort"):
            _end(state, producer_id, committed=batch.control_type == "commit")
        return
    into = state.pending.setdefault(producer_id, {}) if batch.is_transactional else None
    try:
        for record in batch:
            try:
                decoded = decode(record, topic)
            except CorruptData as error:
                state.problems.append(f"{error.reason} ({path}, offset {record.offset})")
                continue
            if decoded is not None and decoded.key is not None:
                key = (decoded.type.removeprefix("legacy_"), *decoded.key.values())
                latest = Latest(record.offset if record.offset is not None else -1, decoded)
                if into is None:
                    _apply(state, key, latest)
                else:
                    into[key] = latest
    except CorruptBatch as error:
        state.problems.append(str(error))


def _end(state: Replayed, producer_id: int, *, committed: bool) -> None:
    for key, latest in state.pending.pop(producer_id, {}).items():
        known = state.latest.get(key)
        if committed and (known is None or known.offset < latest.offset):
            _apply(state, key, latest)


def _apply(state: Replayed, key: Key, latest: Latest) -> None:
    if latest.record.value is None:
        for waiting in (state.latest, *state.pending.values()):
            waiting.pop(key, None)
    else:
        state.latest[key] = latest
