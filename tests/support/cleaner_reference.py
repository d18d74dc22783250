"""A slow and simple model of one cleaning round: which batches and records survive, and in which segments.

It is written only from the rules (Kafka: Cleaner, CleanedTransactionMetadata, MemoryRecords.filterTo), with dicts and
lists, without klog's cleaner. It trusts its input: the range to clean, the active producers, the aborted transactions.
It does not model bytes.

    M1  the record at a key's last offset in the dirty range replaces all earlier records of that key, also those below
        the range
    M2  records above the last offset in the map are kept
    M3  a tombstone is removed after the delete horizon of its batch, a marker after its own once no batch of its
        transaction is left
    M4  a batch with an active producer's last sequence, or at the end of the range, is kept, even without records

Where Kafka breaks its own rules, `mistaken` does the same. Kafka reads a range that begins inside a segment from the
index entry below it, but uses the aborted transactions of the whole segment. A transaction whose marker is before that
entry never ends for Kafka, and records that its producer commits afterwards are not put into the map: old values stay,
and reappear when the tombstone that should have removed them is removed. klog follows M1. Kafka also ignores
transactions whose marker is below the log start, and keeps their records, which no reader can read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from klog.record import RecordBatch

AbortedTransaction = tuple[int, int, int, int]  # producer, first offset, last offset (its marker), last stable offset


@dataclass(frozen=True)
class Source:
    """A segment before the cleaning. next_offset: the base offset of the next segment."""

    base_offset: int
    next_offset: int
    batches: Sequence[RecordBatch]
    size: int
    index: Sequence[tuple[int, int]]
    time_index_size: int
    modified_ms: int


@dataclass(frozen=True)
class Task:
    """sources: the segments below the last one. [dirty, uncleanable): the range of the map; uncleanable is the base
    offset of a segment. producers: (offset of the last data batch or -1, epoch) of each active one."""

    sources: Sequence[Source]
    dirty: int
    uncleanable: int
    now_ms: int
    producers: Mapping[int, tuple[int, int]]
    aborted: Sequence[AbortedTransaction]
    keys_max: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    log_start: int = 0
    mistaken: bool = False

    @property
    def known_aborted(self) -> Sequence[AbortedTransaction]:
        return [entry for entry in self.aborted if entry[2] >= self.log_start] if self.mistaken else self.aborted


@dataclass(frozen=True)
class Kept:
    """A remaining batch: its range of offsets, the offsets of its records, its delete horizon."""

    base_offset: int
    last_offset: int
    offsets: tuple[int, ...]
    horizon_ms: int | None


@dataclass
class Cleaned:
    base_offset: int
    sources: list[Source]
    batches: list[Kept] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)


@dataclass
class Transactions:
    """Tracks which data was aborted, and whether a marker's transaction still has data. It gets batch after batch."""

    aborted: list[AbortedTransaction]
    ongoing: dict[int, tuple[AbortedTransaction, bool]] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)

    def _begin_below(self, offset: int) -> None:
        while self.aborted and self.aborted[0][1] <= offset:
            transaction = self.aborted.pop(0)
            self.ongoing.setdefault(transaction[0], (transaction, False))

    def discards_data(self, batch: RecordBatch) -> bool:
        self._begin_below(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self.ongoing:
            self.ongoing[batch.producer_id] = (self.ongoing[batch.producer_id][0], True)
            return True
        self.committed.add(batch.producer_id)
        return False

    def discards_marker(self, batch: RecordBatch, into: list[AbortedTransaction]) -> bool:
        self._begin_below(batch.last_offset)
        if batch.count == 0:
            return True
        if batch.control_type == "abort":
            transaction, met = self.ongoing.pop(batch.producer_id, (None, False))
            if met and transaction is not None:
                into.append(transaction)
            return not met
        if batch.control_type == "commit":
            met = batch.producer_id in self.committed
            self.committed.discard(batch.producer_id)
            return not met
        return False


def offset_map(task: Task) -> tuple[dict[bytes, int], int]:
    """M1: key -> last offset, and the offset up to which the map is complete."""
    keys: dict[bytes, int] = {}
    latest = -1
    dirty = [it for it in task.sources if it.next_offset > task.dirty and it.base_offset < task.uncleanable]
    first = dirty[0].base_offset if dirty and task.mistaken else task.dirty
    ending = [it for it in task.known_aborted if it[2] >= first and it[1] < task.uncleanable]
    transactions = Transactions(sorted(ending, key=lambda item: item[1]))
    for source in dirty:
        start = max((position for offset, position in source.index if offset <= task.dirty), default=0)
        for batch in source.batches:
            if batch.position < start:
                continue
            if batch.is_control:
                transactions.discards_marker(batch, [])
            elif not transactions.discards_data(batch):
                for record in batch:
                    if record.key is not None and record.offset >= task.dirty:
                        if len(keys) >= task.keys_max:
                            return keys, latest
                        keys[record.key] = latest = record.offset
            if batch.last_offset >= task.dirty:
                latest = batch.last_offset
        latest = source.next_offset - 1
    return keys, latest


def groups(task: Task, end: int) -> list[list[Source]]:
    """The segments that begin below `end`, grouped from the left as far as sizes and offsets allow."""
    made: list[list[Source]] = []
    sources = [source for source in task.sources if source.base_offset < end]
    for source in sources:
        span_end = task.uncleanable if source is sources[-1] else source.next_offset
        if made and _fits(task, made[-1], source, span_end):
            made[-1].append(source)
        else:
            made.append([source])
    return made


def _fits(task: Task, group: list[Source], source: Source, span_end: int) -> bool:
    both = [*group, source]
    return (
        sum(each.size for each in both) <= task.segment_bytes
        and sum(8 * len(each.index) for each in both) <= task.index_bytes
        and sum(each.time_index_size for each in both) <= task.index_bytes
        and (source.size == 0 or span_end - 1 - group[0].base_offset <= 2**31 - 1)
    )


def clean(task: Task) -> tuple[int, list[Cleaned]]:
    """Where the next round begins, and the segments that replace those below it."""
    keys, latest = offset_map(task)
    transactions = Transactions([])
    clean_below = [source for source in task.sources if source.base_offset < task.dirty]
    old_horizon = clean_below[-1].modified_ms - task.delete_retention_ms if clean_below else 0
    made = []
    for group in groups(task, latest + 1):
        cleaned = Cleaned(group[0].base_offset, group)
        for source in group:
            overlapping = [
                it for it in task.known_aborted if it[2] >= source.base_offset and it[1] < source.next_offset
            ]
            transactions.aborted = sorted({*transactions.aborted, *overlapping}, key=lambda item: item[1])
            for batch in source.batches:
                kept = _filter(
                    batch, task, keys, latest, transactions, cleaned.aborted, source.modified_ms > old_horizon
                )
                if kept is not None:
                    cleaned.batches.append(kept)
        made.append(cleaned)
    return latest + 1, made


def _filter(
    batch: RecordBatch,
    task: Task,
    keys: Mapping[bytes, int],
    latest: int,
    transactions: Transactions,
    aborted: list[AbortedTransaction],
    keep_old_tombstones: bool,
) -> Kept | None:
    horizon = batch.delete_horizon_ms
    passed = horizon is not None and horizon <= task.now_ms
    if batch.is_control:
        emptied = transactions.discards_marker(batch, aborted)
        discarded = emptied and passed
    else:
        emptied, discarded = False, transactions.discards_data(batch)
    kept = []
    for record in () if discarded else batch:
        if not batch.is_control and record.offset <= latest:  # M2
            if record.key is None or record.offset < keys.get(record.key, -1):
                continue
            if record.value is None and (passed if batch.magic == 2 else not keep_old_tombstones):  # M3
                continue
        kept.append(record)
    if kept:
        due = batch.magic == 2 and horizon is None and (emptied or any(record.value is None for record in kept))
        offsets = tuple(record.offset for record in kept)
        base = offsets[0] if batch.magic < 2 else batch.base_offset
        return Kept(base, batch.last_offset, offsets, task.now_ms + task.delete_retention_ms if due else horizon)
    return Kept(batch.base_offset, batch.last_offset, (), None) if _stays_empty(batch, task) else None


def _stays_empty(batch: RecordBatch, task: Task) -> bool:
    """M4."""
    if batch.producer_id >= 0 and batch.producer_id in task.producers:
        last_offset, epoch = task.producers[batch.producer_id]
        if last_offset == batch.last_offset if last_offset >= 0 else batch.is_control and batch.producer_epoch == epoch:
            return True
    return batch.next_offset == task.uncleanable
