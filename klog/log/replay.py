"""From batches to epochs, producers and aborted transactions: what recovery and loading learn from a segment."""

from __future__ import annotations

from collections.abc import Iterable

from klog.disk import LogFile
from klog.log.epochs import LeaderEpochs
from klog.log.producers import Producers
from klog.record import decode
from klog.segment import AbortedTransaction, Header


def replay(
    headers: Iterable[Header], file: LogFile, producers: Producers | None, epochs: LeaderEpochs | None, start: int
) -> list[AbortedTransaction]:
    """Apply batches from offset `start` on; the transactions that abort markers among them ended, in order.

    headers: those that Scan.notable lists. epochs None: leave them alone; producers None likewise.
    """
    aborted: list[AbortedTransaction] = []
    for header in headers:
        if epochs is not None:
            epochs.learn(header.leader_epoch, header.base_offset)
        if producers is None or header.producer_id < 0 or header.last_offset < start:
            continue
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
            continue  # by the cleaner: its outcome has been applied long ago
        ended = _marker(header, file, producers)
        if ended is not None:
            aborted.append(ended)
    return aborted


def _marker(header: Header, file: LogFile, producers: Producers) -> AbortedTransaction | None:
    batch = next(decode(file.read(header.position, header.size), path=file.path, file_position=header.position))
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
