"""A log that producers write and compact() cleans: the tests of statements about the cleaner use it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import klog
from klog.cleaner import CompactionStats
from klog.clock import ManualClock
from klog.record import RecordBatch, decode, encode
from tests.cleaner.logs import NOW, open_log
from tests.support.batches import marker

RETENTION_MS = 86_400_000
CHECKPOINT = "cleaner-offset-checkpoint"
CONFIG: dict[str, Any] = {
    "segment.bytes": 65536,
    "delete.retention.ms": RETENTION_MS,
    "producer.id.expiration.ms": 2**31 - 1,
}


def key(number: int) -> bytes:
    return b"%d" % number


class Story:
    """The log, its producers' next sequences, and queries for the remaining records. Keys are numbers, values are the
    offsets of the records."""

    def __init__(self, parent: Path, **config: Any) -> None:
        self.parent = parent
        self.config = {**CONFIG, **config}
        self.clock = ManualClock(NOW)
        self.sequences: dict[int, int] = defaultdict(int)
        self.log = self._open()

    def _open(self, **more: Any) -> klog.Log:
        return open_log(self.parent / "t-0", clock=self.clock, config=self.config, **more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.log.close()

    def reload(self) -> None:
        """Close, and open as after a crash that made nothing durable: the log knows only what its batches contain."""
        self.log.close()
        for path in (self.parent / "t-0").glob("*.snapshot"):
            path.unlink()
        self.log = self._open(clean_shutdown=False, recovery_point=0)

    # ---- writing ---------------------------------------------------------------------------------------------------

    def put(self, *keys: int, value: bytes | None = b"") -> None:
        """Append each record in a batch of its own."""
        for number in keys:
            text = b"%d" % self.log.log_end_offset if value == b"" else value
            self.log.append([(key(number), text, self.clock.wall_ms())])

    def produce(
        self, pid: int, *keys: int, transactional: bool = False, sequence: int | None = None
    ) -> klog.AppendInfo:
        """Append a batch of an idempotent producer, or of its transaction. sequence: repeats an earlier one."""
        base = self.sequences[pid] if sequence is None else sequence
        batch = encode(
            [(key(number), key(number), NOW) for number in keys],
            producer_id=pid,
            producer_epoch=0,
            base_sequence=base,
            is_transactional=transactional,
        )
        self.sequences[pid] = max(self.sequences[pid], base + len(keys))
        return self.log.append_batches(batch)

    def transact(self, pid: int, *keys: int) -> None:
        self.produce(pid, *keys, transactional=True)

    def commit(self, pid: int) -> None:
        self.log.append_batches(marker(pid, 0, "commit"), origin="coordinator")

    def abort(self, pid: int) -> None:
        self.log.append_batches(marker(pid, 0, "abort"), origin="coordinator")

    def replicate(self, offset: int, *keys: int) -> None:
        """Append a batch with given offsets, as a follower does."""
        records = [(key(number), b"%d" % (offset + n), NOW) for n, number in enumerate(keys)]
        self.log.append_batches(encode(records, base_offset=offset, leader_epoch=0), origin="replication")

    # ---- cleaning --------------------------------------------------------------------------------------------------

    def clean(self, *, after: int = 0, afresh: bool = False, **more: Any) -> CompactionStats:
        """Clean the log. after: ms to wait first. afresh: clean from the log start, as if never cleaned."""
        self.clock.advance(after)
        if afresh:
            (self.parent / CHECKPOINT).unlink(missing_ok=True)
        return self.log.compact(**{"roll": True, **more})

    def clean_twice(self) -> None:
        """Two passes over the whole log: the first sets delete horizons, the second runs after them."""
        self.clean(afresh=True)
        self.clean(after=RETENTION_MS + 1, afresh=True)

    # ---- what is left ----------------------------------------------------------------------------------------------

    @property
    def batches(self) -> list[RecordBatch]:
        """All batches in the files, including empty ones and markers."""
        return [
            batch
            for segment in self.log.segments
            for batch in decode(Path(segment.path).read_bytes()[: segment.size], path=segment.path)
        ]

    @property
    def ends(self) -> list[int]:
        """B: the last offset of each batch."""
        return [batch.last_offset for batch in self.batches]

    @property
    def offsets(self) -> list[int]:
        """O: the offsets of records with a key and a value, including markers."""
        return [
            record.offset
            for batch in self.batches
            for record in batch
            if record.key is not None and record.value is not None
        ]

    @property
    def keys(self) -> list[int]:
        """The keys of the data records among them."""
        return [
            int(record.key or b"")
            for batch in self.batches
            if not batch.is_control
            for record in batch
            if record.key is not None and record.value is not None
        ]

    @property
    def last_sequences(self) -> dict[int, int]:
        """The last sequence of each producer, as the files record it."""
        return {
            batch.producer_id: batch.base_sequence + batch.last_offset - batch.base_offset
            for batch in self.batches
            if batch.producer_id >= 0 and not batch.is_control
        }

    @property
    def aborted(self) -> list[tuple[int, int, int]]:
        """(producer id, first offset, marker's offset) of each aborted transaction."""
        return [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in self.log.aborted_transactions()]

    @property
    def temporary(self) -> list[str]:
        """Files that exist only during a cleaning."""
        return [path.name for path in Path(self.log.path).iterdir() if path.suffix in (".cleaned", ".swap")]

    def write_segments(self, count: int, keys: Iterable[int] | None = None) -> None:
        """Write records until the log has this many segments, the last with one record. By default each record's key is
        its offset."""
        numbers = iter(keys) if keys is not None else None
        while len(self.log.segments) < count:
            self.put(self.log.log_end_offset if numbers is None else next(numbers))
