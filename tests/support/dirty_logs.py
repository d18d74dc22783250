"""Partition directories for a cleaner, generated from one seed, with everything that a cleaner's decisions depend on.

write() appends as leaders and as followers do; plan() chooses the next cleaning. Time passes between them. Either klog
or Kafka may clean between two calls of write(): a DirtyLog keeps only the state of its producers, and reads the rest
from the directory.

Contents: few keys, so that most records are superseded; tombstones, empty keys and values, keys with the bytes of a
marker's, records without keys; a log start inside a segment; producers with sequences; transactions that commit, abort,
hang, end twice or have no record; markers of both transaction versions; all codecs; gaps between and inside batches;
batches with a delete horizon, and empty ones, as a follower gets them from a leader that has cleaned; several epochs;
small segments and indexes; old formats at the front of some.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.record import encode
from klog.record.control import control_key
from klog.record.control import marker as marker_record
from tests.support.batches import marker, old, transactional

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_NAME = "dirty-0"


@dataclass
class _Producer:
    """The state of a producer and its coordinator."""

    id: int
    transactional: bool
    bumps: bool  # transaction.version 2: the marker has the next epoch
    epoch: int = 0
    sequence: int = 0
    open: bool = False


@dataclass(frozen=True)
class Plan:
    """One cleaning. It begins at the checkpoint, or, if `afresh`, at the log start. `high_watermark` None: the log
    end."""

    now_ms: int
    log_end_offset: int
    log_start_offset: int
    roll: bool
    afresh: bool
    once: bool
    high_watermark: int | None
    slots: int
    load_factor: float
    io_buffer_size: int


@dataclass
class DirtyLog:
    """codecs: the codecs of its batches; with ("none",) the cleaned bytes do not depend on the codec implementation."""

    seed: int
    codecs: tuple[str, ...] | None = None
    now_ms: int = START_MS
    end: int = 0
    log_start: int = 0
    config: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = chance = random.Random(f"dirty {self.seed}")
        if self.codecs is None:
            self.codecs = chance.choice([("none",), ("none",), CODECS, (chance.choice(CODECS),)])
        self._retention_ms = chance.choice([0, 1000, 1000, 30_000, DAY_MS])
        self._stamped = chance.random() < 0.15
        self._segment_bytes = chance.choice([700, 1500, 1500, 4000, 20_000])
        self.config = {
            "cleanup.policy": chance.choice(["compact", "compact", "compact", "compact,delete"]),
            "retention.ms": -1,
            "internal.segment.bytes": self._segment_bytes,
            "segment.index.bytes": chance.choice([64, 256, 1024, 65_536]),
            "index.interval.bytes": chance.choice([0, 100, 512, 4096]),
            "max.message.bytes": 65_536,
            "delete.retention.ms": self._retention_ms,
            "min.compaction.lag.ms": chance.choice([0] * 6 + [700, 5000]),
            "message.timestamp.type": "LogAppendTime" if self._stamped else "CreateTime",
        }
        self._key_count = chance.choice([2, 6, 25, 25, 120])
        self._producers = [
            _Producer(1000 + n, transactional=chance.random() < 0.7, bumps=chance.random() < 0.5)
            for n in range(chance.choice([0, 1, 3, 6]))
        ]
        self._ending = chance.choice([0.1, 0.1, 0.3])
        self._trimmed = chance.random() < 0.15  # sometimes records are deleted up to some offset
        self._old = chance.random() < 0.08
        self._epoch = 0
        self._horizons: list[int] = []

    # ------------------------------------------------------------------------------------------------- appending

    def directory(self, parent: Path) -> Path:
        return parent / _NAME

    def write(self, directory: Path) -> None:
        """Append a random amount, in one session, and stop cleanly. Files get the clock's mtime."""
        clock = ManualClock(self.now_ms)
        with klog.Log.open(
            directory,
            config=self.config,
            clean_shutdown=True,
            recovery_point=self.end,
            log_start_offset=self.log_start,
            clock=clock,
        ) as log:
            self.append_to(log, clock)
            if self._trimmed and self._chance.random() < 0.4:
                there = [record.offset for record in log.read(include_control=True)]
                self.log_start = self._chance.choice(there or [self.log_start])
        _age(directory, self.now_ms)

    def append_to(self, log: klog.Log, clock: ManualClock) -> None:
        """The same for an open log, whose clock must be this one's."""
        chance = self._chance
        if self._old and not log.log_end_offset:
            self._append_old(log)
        for _ in range(chance.choice([0, 8, 25, 25, 60])):
            self._append_something(log)
            step = chance.choice([0, 0, 1, 20, 400])
            clock.advance(step)
            self.now_ms += step
        if chance.random() < 0.6:  # otherwise cleaning stops at the first transaction that stays open
            for producer in self._producers:
                if producer.open:
                    self._decide(log, producer)
        self.end = log.log_end_offset

    def _append_something(self, log: klog.Log) -> None:
        chance = self._chance
        if chance.random() < 0.04:
            self._epoch += chance.choice([1, 2])
        kind = chance.random()
        ready = [producer for producer in self._producers if producer.transactional]
        if kind < self._ending and ready:
            self._end_transaction(log, chance.choice(ready))
        elif kind < self._ending + 0.4 and self._producers:
            self._produce(log, chance.choice(self._producers))
        elif kind < self._ending + 0.47:
            self._replicate_oddity(log)
        elif kind < 0.85:
            compression = chance.choice(self.codecs or CODECS)
            log.append(self._records(keyed=True), compression=None if compression == "none" else compression)
        else:
            self._replicate(log, self._records())

    def _append_old(self, log: klog.Log) -> None:
        chance, at = self._chance, 0
        for _ in range(chance.randrange(1, 6)):
            count = chance.choice([1, 1, 4])
            codec = chance.choice([None, "gzip"])
            log.append_batches(old(chance.randrange(2), at, at + count - 1, codec), origin="replication")
            at += count

    def _produce(self, log: klog.Log, producer: _Producer) -> None:
        chance = self._chance
        if not producer.open and chance.random() < 0.05:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        within = producer.transactional and (producer.open or chance.random() < 0.9)
        taken = self._replicate(
            log,
            self._records(),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            is_transactional=within,
        )
        if taken:
            producer.sequence += taken
            producer.open = producer.open or within

    def _end_transaction(self, log: klog.Log, producer: _Producer) -> None:
        """Markers also end transactions without records, and sometimes repeat."""
        if producer.open or self._chance.random() < 0.3:
            self._decide(log, producer)

    def _decide(self, log: klog.Log, producer: _Producer) -> None:
        key, value = marker_record(self._chance.choice(["commit", "abort"]), 3)
        epoch = producer.epoch + 1 if producer.bumps else producer.epoch
        self._send(
            log,
            [(key, value, self.now_ms)],
            producer_id=producer.id,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
        )
        if producer.bumps:
            producer.epoch, producer.sequence = epoch, 0
        producer.open = False

    def _replicate_oddity(self, log: klog.Log) -> None:
        """Append a batch as a follower gets it from a leader that has cleaned: with a delete horizon, or empty."""
        chance = self._chance
        if chance.random() < 0.4:
            self._send(log, [], last_offset_delta=chance.choice([0, 3]), max_timestamp=self.now_ms - 50)
            return
        horizon = self.now_ms + chance.choice([-1, 0, 1, 500, self._retention_ms])
        self._horizons.append(horizon)
        self._replicate(log, self._records(tombstones=0.6), delete_horizon_ms=horizon)

    def _replicate(self, log: klog.Log, records: list[Any], **fields: Any) -> int:
        """Append as a follower. Returns how many offsets the batch takes; 0 if it is too large for a segment."""
        chance = self._chance
        hole = chance.choice([0] * 12 + [1, 7])
        last = len(records) - 1 + hole
        compression = chance.choice(self.codecs or CODECS)
        fields["compression"] = None if compression == "none" else compression
        try:
            self._send(log, records, last_offset_delta=last, **fields)
        except klog.errors.RecordBatchTooLarge:
            return 0
        return last + 1

    def _send(self, log: klog.Log, records: list[Any], **fields: Any) -> None:
        chance = self._chance
        gap = chance.choice([0] * 30 + [1, 5, 1000] + ([2**31 - 50, 2**31] if chance.random() < 0.1 else []))
        if self._stamped:
            fields |= {"timestamp_type": klog.TimestampType.LOG_APPEND_TIME, "log_append_time": self.now_ms}
            fields.pop("max_timestamp", None)
        batch = encode(records, base_offset=log.log_end_offset + gap, leader_epoch=self._epoch, **fields)
        log.append_batches(batch, origin="replication")

    def _records(self, *, keyed: bool = False, tombstones: float = 0.15) -> list[Any]:
        chance = self._chance
        made = []
        for _ in range(chance.choice([1, 1, 2, 3, 5] if self._segment_bytes < 1000 else [1, 2, 3, 6, 12])):
            number = int(self._key_count * chance.random() ** 2)
            key: bytes | None = b"k%d" % number + b"." * (number % 11)
            if number == 1:
                key = chance.choice([b"", control_key("commit"), control_key("abort")])
            if not keyed and chance.random() < 0.03:
                key = None
            value = None if chance.random() < tombstones else chance.randbytes(chance.choice([0, 1, 10, 10, 60]))
            headers = [("h", chance.choice([None, b"", b"x" * 9]))] * chance.choice([0, 0, 0, 0, 1, 2])
            timestamp = self.now_ms - chance.choice([0, 0, 1, 50, 5000])
            if not keyed and chance.random() < 0.03:
                timestamp = chance.choice([-1, 0, self.now_ms + 3_000_000, self.now_ms - 40 * DAY_MS])
            made.append(klog.Record(key=key, value=value, timestamp=timestamp, headers=headers))
        return made

    # -------------------------------------------------------------------------------------------------- cleaning

    def plan(self, *, once: bool | None = None) -> Plan:
        """The next cleaning. At its time, the delete horizons set by the previous one have just passed, will soon pass,
        or are far away."""
        chance = self._chance
        due = [horizon + step for horizon in self._horizons for step in (-1, 0) if horizon + step >= self.now_ms]
        jump = chance.choice([0, 1, 300, 5000, self._retention_ms, 2 * self._retention_ms + 7])
        self.now_ms = chance.choice(due) if due and chance.random() < 0.4 else self.now_ms + jump
        if chance.random() < 0.07:
            self.now_ms += DAY_MS + 5000  # producers expire
        self._horizons = [self.now_ms + self._retention_ms]
        many = 5 * self._key_count + 10
        return Plan(
            now_ms=self.now_ms,
            log_end_offset=self.end,
            log_start_offset=self.log_start,
            roll=chance.random() < 0.8,
            afresh=chance.random() < 0.35,
            once=chance.random() < 0.5 if once is None else once,
            high_watermark=None if chance.random() < 0.8 else chance.randrange(self.log_start, self.end + 1),
            slots=chance.choice([2, 5, many, many, 5000]),
            load_factor=chance.choice([0.9, 0.9, 0.75, 1.0]),
            io_buffer_size=chance.choice([100, 1000, 65_536]),
        )


def _age(directory: Path, now_ms: int) -> None:
    """Set new files' mtime to the clock's time: old formats keep tombstones by the age of their file."""
    for path in directory.iterdir():
        if path.stat().st_mtime_ns // 1_000_000 > now_ms + 3650 * DAY_MS // 10:
            os.utime(path, ns=(now_ms * 1_000_000,) * 2)


DELETED = b"deleted"


def deletion_after_an_abort(directory: Path) -> dict[str, object]:
    """A key and, in a committed transaction, its tombstone, after an aborted transaction of that producer in one
    segment.

    A map of two keys ends its first round after the abort marker at 3, right before the tombstone at 4: the second
    round begins inside the segment, at an index entry after the marker. Returns the config.
    """
    config: dict[str, object] = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": 100_000,
        "index.interval.bytes": 0,
        "delete.retention.ms": 1000,
    }
    with klog.Log.open(directory, config=config, clean_shutdown=True, clock=ManualClock(START_MS)) as log:
        log.append([(DELETED, b"old", START_MS)])
        log.append([(b"another", b"value", START_MS)])
        log.append_batches(transactional(7, 0, 0, key=b"aborted", at=START_MS))
        log.append_batches(marker(7, 0, "abort", at=START_MS), origin="coordinator")
        log.append_batches(
            encode(
                [(DELETED, None, START_MS)],
                producer_id=7,
                producer_epoch=0,
                base_sequence=1,
                is_transactional=True,
            )
        )
        log.append_batches(marker(7, 0, "commit", at=START_MS), origin="coordinator")
        log.roll()
        log.append([(b"another", b"last", START_MS)])
        assert log.log_end_offset == 7
    return config
