"""The transaction markers that a damaged log has lost, found by its transaction indexes.

Without its marker a transaction would end with the next marker of its producer: the records of an aborted one would be
committed, or those of a committed one aborted. A .txnindex has the offsets of each aborted transaction. If the next one
of a producer begins after its open transaction, that one was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klog.errors import CorruptData
from klog.inspect.entries import TxnEntry, parse_txn_index
from klog.inspect.files import classify, names_in, read_small
from klog.log.state.producers import ProducerState
from klog.record import encode
from klog.record.control import marker
from klog.repairing.sound_batches import Batch
from klog.segment.names import TXN_INDEX, file_path
from klog.values import NamedTuple


class LostMarker(NamedTuple):
    """A marker to write at an offset that no batch has. kind: "abort" or "commit"."""

    offset: int
    kind: str
    producer_id: int
    state: ProducerState

    def encoded(self, leader_epoch: int) -> bytes:
        """Return its batch, with the time of the producer's last one."""
        key, value = marker(self.kind, max(self.state.coordinator_epoch, 0))
        return encode(
            [(key, value, self.state.timestamp)],
            base_offset=self.offset,
            leader_epoch=leader_epoch,
            producer_id=self.producer_id,
            producer_epoch=self.state.epoch,
            is_transactional=True,
            is_control=True,
        )


class LostMarkers:
    """Those of one partition. One thread."""

    def __init__(self, path: str) -> None:
        """path: of the partition's directory. An index that cannot be read is left out."""
        self._aborted: dict[int, list[TxnEntry]] = {}
        for name in names_in(path):
            found = classify(name)
            if found.kind == "txnindex" and found.leftover is None and found.base_offset is not None:
                for entry in _entries(file_path(path, found.base_offset, TXN_INDEX)):
                    self._aborted.setdefault(entry.producer_id, []).append(entry)

    def __bool__(self) -> bool:
        """True if a transaction was aborted."""
        return bool(self._aborted)

    def between(
        self, producers: Mapping[int, ProducerState], start: int, end: int | None, following: Sequence[Batch]
    ) -> list[LostMarker]:
        """Return the markers that are lost from offset `start` to below `end`, in order; None: at the end of the log,
        where they get the next offsets. producers: those of the batches below start; following: the batches from `end`
        on, as far as they are known."""
        aborts: list[LostMarker] = []
        commits: list[LostMarker] = []  # with the last offset that they may have
        for producer_id in sorted(producers.keys() & self._aborted.keys()):
            state = producers[producer_id]
            opened, after = state.current_txn_first_offset, self._next(producer_id, start)
            if opened is None or after is None:
                continue
            if after.first_offset <= opened:
                if end is None or after.last_offset < end:
                    aborts.append(LostMarker(after.last_offset, "abort", producer_id, state))
            elif not any(each.ends == producer_id and each.base_offset < after.first_offset for each in following):
                commits.append(LostMarker(after.first_offset - 1, "commit", producer_id, state))
        if end is None:
            return [each._replace(offset=start + number) for number, each in enumerate(aborts + commits)]
        return _placed(aborts, commits, range(start, end))

    def _next(self, producer_id: int, start: int) -> TxnEntry | None:
        """Return the aborted transaction of a producer whose marker is the first one from an offset on."""
        found = (entry for entry in self._aborted[producer_id] if entry.last_offset >= start)
        return min(found, key=lambda entry: entry.last_offset, default=None)


def _placed(aborts: list[LostMarker], commits: list[LostMarker], lost: range) -> list[LostMarker]:
    """Return the markers, each at a lost offset of its own. If there are too few, the transactions that were followed
    first have lost their markers here, and the others may have lost them later."""
    placed = {each.offset: each for each in aborts}
    for each in sorted(commits, key=lambda each: each.offset):
        last = min(each.offset, lost[-1])
        free = next((offset for offset in range(last, lost.start - 1, -1) if offset not in placed), None)
        if free is not None:
            placed[free] = each._replace(offset=free)
    return [placed[offset] for offset in sorted(placed)]


def _entries(path: str) -> list[TxnEntry]:
    try:
        found = parse_txn_index(read_small(path), path)
        return [entry for entry in found if 0 <= entry.first_offset <= entry.last_offset]
    except (CorruptData, OSError):
        return []
