"""Replays epochs, transactions and producers from the batches of a partition, and compares them with their files.

  E1  leader epochs do not fall from batch to batch
  E2  the epoch of a batch is that of the cache's entry for its offset (below the first entry: at most its epoch), and
      no entry begins inside a batch; it may begin in a gap that a truncation has left
  X1  each abort marker that ends a transaction with a batch from the log start on has a .txnindex entry, with the
      transaction's first offset and the last stable offset after it; and each entry has its marker
  P1  a snapshot of offset N holds nothing from N on, and agrees with the batches below N

The replay begins at the first batch, from the snapshot at its segment's base. `complete` means that nothing is missing:
it began at offset 0 or from a snapshot, and no offset is missing since. Compaction leaves gaps; after a gap only
invariants that do not depend on the missing records are checked. Kafka: ProducerStateManager, LeaderEpochFileCache,
TransactionIndex.
"""

from __future__ import annotations

from klog.inspect.entries import ProducerEntry, TxnEntry
from klog.record import RecordBatch
from klog.report import Report
from klog.values import dataclass, replace

NO_PRODUCER = ProducerEntry(-1, -1, -1, -1, 0, -1, -1, -1)


@dataclass(frozen=True, slots=True)
class Abort:
    """A transaction that a marker aborted. data: the replay has seen batches with its records. forgotten: the cleaner
    has met none, and has removed the entry.

    A load or a truncation may have replayed the log from its log start on. So what is known of transactions that began
    below it may begin later: highest_first and highest_stable are the largest values that an entry may have. Of a
    transaction that lies below it nothing may be known: then highest_first is the marker's offset.
    """

    position: int
    producer_id: int
    first_offset: int
    highest_first: int
    last_offset: int
    last_stable_offset: int
    highest_stable: int
    data: bool
    forgotten: bool


class EpochCheck:
    """E1, E2 over all batches of a partition, in order."""

    def __init__(self, report: Report, path: str, entries: list[tuple[int, int]] | None, log_start: int) -> None:
        self._report, self._path, self._entries = report, path, entries
        self._log_start = log_start
        self._at = -1
        self._last = -1
        self._first: int | None = None
        self._end = 0  # of the last batch

    def batch(self, path: str, position: int, batch: RecordBatch, *, complete: bool) -> None:
        """Check the next sound batch, of the file at path. complete: no offset is missing so far."""
        epoch, offset = batch.leader_epoch, batch.base_offset
        end_before, self._end = self._end, batch.next_offset
        if self._first is None:
            self._first = offset
        if epoch < -1:
            self._bad(path, position, offset, f"leader epoch {epoch}; none is below -1")
        if epoch < 0:  # converted from magic 0 or 1
            return
        if epoch < self._last:
            self._bad(path, position, offset, f"leader epoch {epoch} after {self._last}; epochs never fall")
            return
        entries = self._entries
        if entries is not None:
            while self._at + 1 < len(entries) and entries[self._at + 1][1] <= offset:
                self._at += 1
                start = entries[self._at][1]
                # The first entry moves with the log start, also into a batch.
                if complete and self._at > 0 and self._first < start < end_before:
                    self._report.add(
                        "epoch",
                        self._path,
                        f"epoch {entries[self._at][0]} from {start}, but no batch begins there",
                        offset=start,
                    )
            if not entries and batch.next_offset <= self._log_start:
                pass  # deleted records need no entry
            elif not entries:
                self._bad(path, position, offset, f"leader epoch {epoch}, but leader-epoch-checkpoint has no entry")
                self._entries = None
            elif self._at >= 0 and (now := entries[self._at])[0] != epoch:
                self._bad(
                    path,
                    position,
                    offset,
                    f"leader epoch {epoch}, but leader-epoch-checkpoint has {now[0]} from {now[1]}",
                )
                return
            elif self._at < 0 and epoch > entries[0][0]:
                self._bad(
                    path,
                    position,
                    offset,
                    f"leader epoch {epoch} before epoch {entries[0][0]} of leader-epoch-checkpoint",
                )
                return
        self._last = epoch

    def _bad(self, path: str, position: int, offset: int, message: str) -> None:
        self._report.add("epoch", path, message, position=position, offset=offset)


class ProducerReplay:
    """Producers and open transactions after the batches so far.

    log_start: state of producers below it may be missing in a snapshot, because a truncation replays from there.
    """

    def __init__(self, seed: list[ProducerEntry] | None, log_start: int) -> None:
        self.complete = seed is not None
        self._log_start = log_start
        self._below: set[int] = set()  # producers with batches below the log start
        self.producers: dict[int, ProducerEntry] = {}
        self._open: dict[int, tuple[int, bool]] = {}  # producer → first offset, data seen
        self._later: dict[int, int] = {}  # producer → first offset at or above the log start
        for entry in seed or ():
            self.producers[entry.producer_id] = entry
            if entry.current_txn_first_offset >= 0:
                self._open[entry.producer_id] = (entry.current_txn_first_offset, True)
        self._seen: set[int] = set()

    def gap(self) -> None:
        """Report that offsets are missing here."""
        self.complete = False

    def batch(self, position: int, batch: RecordBatch) -> Abort | None:
        """Add the next sound batch. Returns an Abort if it aborts a transaction."""
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        if batch.base_offset < self._log_start:
            self._below.add(producer_id)
        if batch.is_control:
            return self._control(position, batch) if batch.count else None
        if batch.is_transactional:
            first, data = self._open.get(producer_id, (batch.base_offset, False))
            self._open[producer_id] = (first, data or batch.count > 0)
            if batch.base_offset >= self._log_start:
                self._later.setdefault(producer_id, batch.base_offset)
        self._seen.add(producer_id)
        known = self.producers.get(producer_id, NO_PRODUCER)
        last_sequence = batch.base_sequence
        if last_sequence >= 0:
            last_sequence = (last_sequence + batch.last_offset - batch.base_offset) & 0x7FFFFFFF
        self.producers[producer_id] = ProducerEntry(
            producer_id,
            batch.producer_epoch,
            last_sequence,
            batch.last_offset,
            batch.last_offset - batch.base_offset,
            batch.max_timestamp,
            known.coordinator_epoch,
            self._open.get(producer_id, (-1, False))[0],
        )
        return None

    def _control(self, position: int, batch: RecordBatch) -> Abort | None:
        kind = batch.control_type
        if kind not in ("abort", "commit"):
            return None
        producer_id = batch.producer_id
        self._seen.add(producer_id)
        known = self.producers.get(producer_id, NO_PRODUCER)
        if known.epoch == batch.producer_epoch:
            self.producers[producer_id] = replace(known, current_txn_first_offset=-1)
        else:
            self.producers[producer_id] = replace(NO_PRODUCER, producer_id=producer_id, epoch=batch.producer_epoch)
        transaction, later = self._open.pop(producer_id, None), self._later.pop(producer_id, batch.last_offset)
        if transaction is None or kind == "commit":
            return None
        first, data = transaction
        below = first < self._log_start
        end = batch.last_offset + 1
        stable = min((other for other, _ in self._open.values()), default=end)
        highest = min((self._highest(other, end) for other in self._open), default=end)
        return Abort(
            position,
            producer_id,
            first,
            later if below else first,
            batch.last_offset,
            stable,
            highest,
            data and not (below and later == batch.last_offset),
            batch.delete_horizon_ms is not None,
        )

    def _highest(self, producer_id: int, end: int) -> int:
        """Return the largest first offset that a replay from the log start on may have for an open transaction."""
        first = self._open[producer_id][0]
        return first if first >= self._log_start else self._later.get(producer_id, end)

    def check_snapshot(self, report: Report, path: str, offset: int, entries: list[ProducerEntry]) -> None:
        """Check the entries of the snapshot `offset` against the batches below it (P1), which must all have been
        added."""
        for number, entry in enumerate(entries):
            position = 10 + 46 * number
            if entry.last_offset >= offset or entry.current_txn_first_offset >= offset:
                latest = max(entry.last_offset, entry.current_txn_first_offset)
                report.add(
                    "snapshot",
                    path,
                    f"producer {entry.producer_id} with offset {latest}, which is not below the snapshot's offset "
                    f"{offset}",
                    position=position,
                )
                continue
            known = self.producers.get(entry.producer_id)
            if not self.complete or (known is not None and entry.producer_id not in self._seen):
                continue
            if entry.producer_id in self._below:
                continue
            if known is None:
                report.add(
                    "snapshot", path, f"producer {entry.producer_id}, but the log has no batch of it", position=position
                )
                continue
            for name in ("epoch", "last_sequence", "last_offset", "current_txn_first_offset"):
                stored, found = getattr(entry, name), getattr(known, name)
                if stored != found:
                    report.add(
                        "snapshot",
                        path,
                        f"producer {entry.producer_id}: {name} {stored}, expected {found} by the log",
                        position=position,
                        offset=offset,
                    )
                    break


def check_txn_index(
    report: Report, path: str, log_path: str, entries: list[TxnEntry], aborts: list[Abort], *, complete: bool,
    base_offset: int, next_offset: int, log_start: int,
) -> None:  # fmt: skip
    """Check the entries of one segment's .txnindex against the aborts in its batches (X1)."""
    expected = {abort.last_offset: abort for abort in aborts}
    before = -1
    for entry in entries:
        message = None
        abort = expected.pop(entry.last_offset, None)
        if entry.last_offset <= before:
            message = f"marker {entry.last_offset} after {before}; markers must rise"
        elif not base_offset <= entry.last_offset < next_offset:
            message = f"marker {entry.last_offset} is outside the segment [{base_offset}, {next_offset})"
        elif not 0 <= entry.first_offset < entry.last_offset:
            message = f"first offset {entry.first_offset} is not below the marker {entry.last_offset}"
        elif not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            message = f"last stable offset {entry.last_stable_offset} is beyond the marker {entry.last_offset}"
        elif abort is not None and entry.producer_id != abort.producer_id:
            message = f"producer {entry.producer_id}, expected {abort.producer_id} by the log"
        elif abort is None and complete:
            message = f"no transaction of producer {entry.producer_id} is aborted at offset {entry.last_offset}"
        elif (
            abort is not None
            and not abort.first_offset <= entry.first_offset <= abort.highest_first
            and (complete or entry.first_offset > abort.highest_first)
        ):
            message = f"first offset {entry.first_offset}, expected {abort.first_offset} by the log"
        elif (
            abort is not None
            and complete
            and not abort.last_stable_offset <= entry.last_stable_offset <= abort.highest_stable
        ):
            message = f"last stable offset {entry.last_stable_offset}, expected {abort.last_stable_offset} by the log"
        before = max(before, entry.last_offset)
        if message is not None:
            report.add("txnindex", path, message, position=entry.slot, offset=entry.last_offset)
    for abort in expected.values():
        deleted = abort.first_offset < log_start and abort.highest_first == abort.last_offset
        needed = abort.data or (complete and not deleted)
        if abort.last_offset >= log_start and needed and not abort.forgotten:
            report.add(
                "txnindex",
                path,
                f"no entry for the transaction of producer {abort.producer_id}, offsets {abort.first_offset} to "
                f"{abort.last_offset}, which the marker at position {abort.position} of {log_path} aborts",
                offset=abort.last_offset,
            )
