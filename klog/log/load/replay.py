"""Replays the batches of a segment into leader epochs, producers and aborted transactions, for a load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from klog.disk import AlignedBuffer, LogFile, read_parts
from klog.errors import CorruptBatch
from klog.log.state._producer_entry import BATCHES_KEPT
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.producers import Producers
from klog.record import decode
from klog.segment import AbortedTransaction, Header

_MARKERS_AT_ONCE = 256


def replay(
    headers: Iterable[Header],
    file: LogFile,
    producers: Producers,
    epochs: LeaderEpochCache | None,
    start: int,
    unreadable: list[Header] | None = None,
) -> list[AbortedTransaction]:
    """Apply batches from offset `start` on. Returns the transactions that they abort, in order.

    headers: those of Scan.notable. epochs None: do not change them. unreadable: gets the markers that cannot be read,
    whose transactions stay open; None: raise CorruptBatch for them.
    """
    aborted: list[AbortedTransaction] = []
    of_producers: list[Header] = []
    learned = None
    for header in headers:
        if epochs is not None and header.leader_epoch != learned:
            learned = header.leader_epoch
            epochs.learn(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0 and header.last_offset >= start:
            of_producers.append(header)
    remembered = _remembered(of_producers)
    markers = _Markers(file, [header for header in remembered if header.is_control and header.count])
    for header in remembered:
        if not header.is_control:
            producers.update_data(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp,
                header.is_transactional,
            )
            continue
        if header.count == 0:
            producers.note_emptied(header.producer_id)
            continue  # emptied by the cleaner: the marker was applied long ago
        try:
            ended = _end(header, markers.next(), file.path, producers)
        except CorruptBatch:
            if unreadable is None:
                raise
            unreadable.append(header)
            continue
        if ended is not None:
            aborted.append(ended)
    return aborted


def is_commit(marker: Header, file: LogFile) -> bool:
    """Does a marker commit its transaction? False also if it cannot be read."""
    with contextlib.suppress(CorruptBatch):
        batch = next(decode(_Markers(file, [marker]).next(), path=file.path, file_position=marker.position))
        return any(record.control_type == "commit" for record in batch)
    return False


def _remembered(headers: list[Header]) -> list[Header]:
    """The batches of producers that affect the state: of idempotent ones the first, which makes the producer known,
    and the last five. So a log of idempotent producers costs little more than its read."""
    totals: dict[tuple[int, int], int] = {}
    plain: list[tuple[Header, tuple[int, int] | None]] = []
    for header in headers:
        key = None
        if not (header.is_control or header.is_transactional):
            key = header.producer_id, header.producer_epoch
            totals[key] = totals.get(key, 0) + 1
        plain.append((header, key))
    kept, left = [], dict(totals)
    for header, key in plain:
        if key is not None:
            left[key] -= 1
            if totals[key] - 1 > left[key] >= BATCHES_KEPT:
                continue
        kept.append(header)
    return kept


class _Markers:
    """Reads the bytes of markers in order, neighbours together."""

    def __init__(self, file: LogFile, headers: list[Header]) -> None:
        self._file = file
        self._left = [(header.position, header.size) for header in reversed(headers)]
        self._read: list[AlignedBuffer | OSError] = []

    def next(self) -> AlignedBuffer:
        """The bytes of the next marker. Raises OSError."""
        if not self._read:
            some = [self._left.pop() for _ in range(min(_MARKERS_AT_ONCE, len(self._left)))]
            self._read = read_parts(self._file, some)[::-1]
        found = self._read.pop()
        if isinstance(found, OSError):
            raise found
        return found


def _end(header: Header, marker: AlignedBuffer, path: str, producers: Producers) -> AbortedTransaction | None:
    batch = next(decode(marker, path=path, file_position=header.position))
    for record in batch:
        if record.control_type not in ("commit", "abort"):
            return None
        value = record.value or b""
        coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True) if len(value) >= 6 else -1
        return producers.end_transaction(
            header.producer_id,
            header.producer_epoch,
            header.last_offset,
            record.timestamp,
            coordinator_epoch,
            record.control_type == "abort",
        )
    return None
