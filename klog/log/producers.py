"""Producer state: what each producer id last wrote, and which transactions are open. `.snapshot` files keep it.

    file  := version:i16=1 crc:u32 count:i32 entry*             crc-32c over everything behind it
    entry := producer_id:i64 epoch:i16 last_sequence:i32 last_offset:i64 offset_delta:i32 timestamp:i64
             coordinator_epoch:i32 current_txn_first_offset:i64                                      46 bytes

  N.snapshot is the state after all batches below offset N. Recomputed by replay whenever it is missing or bad.

Here it is rebuilt, kept, and handed on; checking a producer's sequences at append is the leader's work.
Kafka: ProducerStateManager, ProducerStateEntry.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from klog.codec import crc32c
from klog.disk import Files
from klog.errors import CorruptSnapshot
from klog.segment import AbortedTransaction

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")


@dataclass(frozen=True, slots=True)
class ProducerState:
    """One producer. -1 where a field is unknown; last_offset is that of its last data batch."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int | None = None


def parse_snapshot(data: bytes, path: str) -> dict[int, ProducerState]:
    """The producers of a snapshot's bytes. Raises CorruptSnapshot."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a snapshot", path=path, position=0)
    version, crc, count = _HEAD.unpack_from(data)
    if version != 1:
        raise CorruptSnapshot(f"snapshot version {version}, 1 expected", path=path, position=0)
    if crc32c(data[6:]) != crc:
        raise CorruptSnapshot("checksum does not match", path=path, position=2)
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries announced in {len(data)} bytes", path=path, position=6)
    producers = {}
    for position in range(_HEAD.size, len(data), _ENTRY.size):
        pid, epoch, sequence, offset, delta, timestamp, coordinator, txn = _ENTRY.unpack_from(data, position)
        producers[pid] = ProducerState(epoch, sequence, offset, delta, timestamp, coordinator, None if txn < 0 else txn)
    return producers


def is_snapshot_size(size: int) -> bool:
    """Can a snapshot be that many bytes long?"""
    return size >= _HEAD.size and (size - _HEAD.size) % _ENTRY.size == 0


def format_snapshot(producers: dict[int, ProducerState]) -> bytes:
    """The bytes of a snapshot."""
    body = struct.pack(">i", len(producers)) + b"".join(
        _ENTRY.pack(
            pid,
            state.epoch,
            state.last_sequence,
            state.last_offset,
            state.offset_delta,
            state.timestamp,
            state.coordinator_epoch,
            -1 if state.current_txn_first_offset is None else state.current_txn_first_offset,
        )
        for pid, state in producers.items()
    )
    return struct.pack(">hI", 1, crc32c(body)) + body


def write_snapshot(files: Files, path: str, producers: dict[int, ProducerState]) -> None:
    """Replace a snapshot, durably. One that says the same already stays: a torn one does not say it."""
    data = format_snapshot(producers)
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        if file.read(len(data) + 1) == data:
            return
    files.replace(path, data)


def _advance(sequence: int, delta: int) -> int:
    """A sequence number plus delta, in Kafka's circle 0 .. 2^31-1."""
    return (sequence + delta) & 0x7FFFFFFF


class Producers:
    """The producers of one log. Under the log's lock."""

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        self.end_offset = 0

    def load(self, states: dict[int, ProducerState], offset: int) -> None:
        """Start from a snapshot taken at offset."""
        self.states = dict(states)
        self.end_offset = offset

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction whose last batch is older than expiration_ms."""
        self.states = {
            pid: state
            for pid, state in self.states.items()
            if state.current_txn_first_offset is not None or now_ms - state.timestamp < expiration_ms
        }

    def update_data(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset_delta: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """A data batch of a producer, as replication replays it: nothing is refused."""
        before = self.states.get(producer_id)
        txn = before.current_txn_first_offset if before else None
        if is_transactional and txn is None:
            txn = base_offset
        self.states[producer_id] = ProducerState(
            epoch,
            -1 if base_sequence < 0 else _advance(base_sequence, last_offset_delta),
            base_offset + last_offset_delta,
            last_offset_delta,
            timestamp,
            before.coordinator_epoch if before else -1,
            txn,
        )

    def end_transaction(
        self, producer_id: int, epoch: int, offset: int, timestamp: int, coordinator_epoch: int, aborted: bool
    ) -> AbortedTransaction | None:
        """A marker at offset. The aborted transaction, if it ended one."""
        before = self.states.get(producer_id, ProducerState(epoch))
        if before.epoch != epoch:  # transaction version 2: the marker's new epoch starts a new sequence
            before = dataclasses.replace(before, epoch=epoch, last_sequence=-1, last_offset=-1, offset_delta=0)
        first = before.current_txn_first_offset
        self.states[producer_id] = dataclasses.replace(
            before, timestamp=timestamp, coordinator_epoch=coordinator_epoch, current_txn_first_offset=None
        )
        if first is None or not aborted:
            return None
        open_elsewhere = self.first_open_transaction
        return AbortedTransaction(producer_id, first, offset, offset + 1 if open_elsewhere is None else open_elsewhere)

    @property
    def first_open_transaction(self) -> int | None:
        """First offset of the oldest transaction without a marker."""
        return _least(state.current_txn_first_offset for state in self.states.values())


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
