"""A log with tiny segments compared with a list: appends, reads, rolls, truncations, deletions, clean and unclean
stops, lost and wiped caches."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import klog
from klog.clock import ManualClock
from klog.record import decode
from tests.support.abandon import abandon
from tests.support.examples import examples
from tests.support.in_memory import memory
from tests.support.logs import NOW

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=8)), max_size=2).map(tuple)
timestamps = st.sampled_from([None, -1, 1]) | st.integers(NOW - 40_000, NOW + 40_000)
records = st.lists(st.tuples(maybe_bytes, maybe_bytes, timestamps, headers), min_size=1, max_size=20)
compressions = st.sampled_from(["none", "none", "gzip", "snappy", "lz4", "zstd"])
CACHES = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "-offset-checkpoint")
damage = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["unlink", "empty", "zeros"])), max_size=6)


class LogMachine(RuleBasedStateMachine):
    """model: (key, value, timestamp, headers) by offset, including deleted records; None for an offset without a
    record. start: the log start."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="klog-machine-", dir=memory()))
        self.clock = ManualClock(NOW)
        self.model: list[tuple[Any, ...] | None] = []
        self.start = 0
        self.manager: klog.LogManager | None = None
        self.reader: klog.Log | None = None

    @initialize(
        segment=st.integers(500, 3000),
        index=st.sampled_from([4, 24, 60, 200, 4096]),
        interval=st.sampled_from([0, 0, 100, 4096]),
        batch=st.sampled_from([500, 1_048_588]),
        append_time=st.booleans(),
        delay=st.sampled_from([0, 10_000]),
    )
    def create(self, segment: int, index: int, interval: int, batch: int, append_time: bool, delay: int) -> None:
        self.append_time = append_time
        self.manager = self.open()
        config = {
            "segment.bytes": segment,
            "segment.index.bytes": index,
            "index.interval.bytes": interval,
            "max.message.bytes": batch,
            "segment.ms": 30_000,
            "segment.jitter.ms": 5_000,
            "retention.ms": 60_000,
            "file.delete.delay.ms": delay,
            "message.timestamp.type": "LogAppendTime" if append_time else "CreateTime",
        }
        self.manager.create_topic("t", config=config)

    def open(self, **options: Any) -> klog.LogManager:
        return klog.open(self.path, create=True, clock=self.clock, **options)

    @property
    def log(self) -> klog.Log:
        assert self.manager is not None
        return self.manager.log("t")

    def offset(self, share: float, beyond: int = 0) -> int:
        return self.start + round(share * (len(self.model) - self.start + beyond))

    def rows(self, found: Any) -> list[tuple[Any, ...]]:
        return [(r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in found]

    def wanted(self, start: int, stop: int) -> list[tuple[Any, ...]]:
        return [(offset, *self.row(offset)) for offset in range(start, min(stop, len(self.model)))]

    def row(self, offset: int) -> tuple[Any, ...]:
        row = self.model[offset]
        assert row is not None
        return row

    def since(self, ms: int, start: int) -> Any:
        """Return (timestamp, offset) of the first record at ms or later, or None."""
        hits = ((self.row(offset)[2], offset) for offset in range(start, len(self.model)))
        return next((hit for hit in hits if hit[0] >= ms), None)

    # ---- writing ---------------------------------------------------------------------------------------------------

    @rule(records=records, compression=compressions, lazy=st.booleans())
    def append(self, records: list[tuple[Any, ...]], compression: str, lazy: bool) -> None:
        info = self.log.append(iter(records) if lazy else records, compression=compression)
        now = self.clock.wall_ms()
        first = len(self.model)
        for key, value, timestamp, record_headers in records:
            stored = now if self.append_time or timestamp is None else timestamp
            self.model.append((key, value, stored, record_headers))
        assert (info.first_offset, info.last_offset, info.count) == (first, len(self.model) - 1, len(records))
        assert info.max_timestamp == max(self.row(offset)[2] for offset in range(first, len(self.model)))

    @rule(records=records)
    def append_that_fails(self, records: list[tuple[Any, ...]]) -> None:
        def source() -> Any:
            yield from records
            raise RuntimeError

        for broken in (source(), [*records, ("text", b"")]):
            try:
                self.log.append(broken)
            except (RuntimeError, TypeError):
                continue
            raise AssertionError("no exception was raised")

    @rule()
    def roll(self) -> None:
        assert self.log.roll().base_offset == len(self.model)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == len(self.model)

    # ---- deletions -------------------------------------------------------------------------------------------------

    @rule(at=st.floats(0, 1))
    def truncate(self, at: float) -> None:
        """Truncate to the base offset of a batch: a batch that holds the offset is removed completely."""
        edges = [batch.base_offset for batch in self.log.read(isolation="log_end").batches()]
        offset = [*edges, len(self.model)][round(at * len(edges))]
        assert self.log.truncate_to(offset) == (offset < len(self.model))
        del self.model[offset:]
        self.start = min(self.start, offset)

    @rule(at=st.floats(0, 2))
    def truncate_fully(self, at: float) -> None:
        offset = round(at * len(self.model))
        self.log.truncate_fully_and_start_at(offset)
        del self.model[offset:]
        self.model += [None] * (offset - len(self.model))
        self.start = offset

    @rule(at=st.floats(0, 1))
    def delete_records(self, at: float) -> None:
        self.start = self.offset(at)
        assert self.log.delete_records(self.start) == self.start

    @rule()
    def retain(self) -> None:
        now = self.clock.wall_ms()
        before = [(segment.base_offset, segment.next_offset, segment.max_timestamp) for segment in self.log.segments]
        count = self.log.apply_retention()
        for _, end, youngest in before[:count]:
            assert end <= self.start or youngest < 0 or now - youngest > 60_000
        for _, end, youngest in before[count:-1][:1]:
            assert end > self.start and (youngest < 0 or now - youngest <= 60_000)
        self.start = max(self.start, self.log.segments[0].base_offset)
        assert self.log.log_start_offset == self.start

    @rule(ms=st.integers(0, 20_000))
    def advance_clock(self, ms: int) -> None:
        self.clock.advance(ms)

    # ---- reading ---------------------------------------------------------------------------------------------------

    @rule(start=st.floats(0, 1), stop=st.floats(0, 1))
    def read(self, start: float, stop: float) -> None:
        first, last = self.offset(start), self.offset(stop, beyond=3)
        assert self.rows(self.log.read(first, last)) == self.wanted(first, last)
        assert self.log.count(first, last) == len(self.wanted(first, last))

    @rule(start=st.floats(0, 1))
    def read_columns(self, start: float) -> None:
        first = self.offset(start)
        got = sum(columns.num_rows for columns in self.log.read(first).columns())
        assert got == len(self.model) - first

    @rule(start=st.floats(0, 1), max_bytes=st.sampled_from([0, 100, 700, 1 << 20]), minimum=st.booleans())
    def fetch(self, start: float, max_bytes: int, minimum: bool) -> None:
        offset = self.offset(start)
        data = self.log.fetch(offset, max_bytes, min_one_message=minimum)
        batches = list(decode(data.memory()))
        assert data.size == sum(batch.size for batch in batches)
        assert data.size <= max_bytes or (minimum and len(batches) == 1)
        if offset == len(self.model):
            assert not batches
        elif minimum or max_bytes == 1 << 20:
            assert batches[0].base_offset <= offset <= batches[0].last_offset
        if batches:
            found = [record for batch in batches for record in batch]
            assert self.rows(found) == self.wanted(batches[0].base_offset, batches[-1].next_offset)

    @rule(
        ms=st.sampled_from([0, 1, NOW, 2**62]) | st.integers(NOW - 41_000, NOW + 41_000),
        near=st.integers(-1, 1),
        at=st.floats(0, 1),
    )
    def find_time(self, ms: int, near: int, at: float) -> None:
        if self.start < len(self.model):  # also around an existing timestamp
            for probe in (ms, max(self.row(min(self.offset(at), len(self.model) - 1))[2] + near, 0)):
                assert self.log.offset_for_timestamp(probe) == self.since(probe, self.start), probe
                if self.reader is not None:
                    self.reader.refresh()
                    found = self.reader.offset_for_timestamp(probe)
                    assert found == self.since(probe, self.reader.log_start_offset), probe

    @rule()
    def follow(self) -> None:
        """A read-only log, opened before these appends and rolls, reads while the writer is open."""
        if self.reader is None:
            self.reader = klog.Log.open(self.path / "t-0", read_only=True, clock=self.clock)
        self.reader.refresh()
        start = self.reader.log_start_offset  # from the checkpoint, which may lag behind the writer
        assert start <= self.start
        assert self.rows(self.reader.read()) == self.wanted(start, len(self.model))

    @rule()
    def verify(self) -> None:
        assert [problem for problem in self.log.verify().problems if problem.kind != "leftover"] == []

    # ---- stops and starts --------------------------------------------------------------------------------------------

    def damage_caches(self, damage: list[tuple[int, str]]) -> None:
        """Delete or wipe files that are caches of the .log files."""
        names = sorted(path for path in self.path.rglob("*") if path.name.endswith(CACHES))
        for number, how in damage:
            if not names:
                return
            path = names.pop(number % len(names))
            if how == "unlink":
                path.unlink()
            elif how == "empty":
                os.truncate(path, 0)
            elif path.suffix in (".index", ".timeindex"):
                path.write_bytes(bytes(path.stat().st_size))

    @rule(damage=damage)
    def stop_and_start(self, damage: list[tuple[int, str]]) -> None:
        assert self.manager is not None
        self.close_reader()
        self.manager.close()
        self.manager = None
        self.damage_caches(damage)
        with self.open(read_only=True) as logs:
            log = logs.log("t")
            assert log.log_start_offset <= self.start
            assert self.rows(log.read(isolation="log_end")) == self.wanted(log.log_start_offset, len(self.model))
        self.manager = self.open()
        assert self.log.recovery.clean_shutdown
        self.check_after_start()

    @rule(damage=damage)
    def die_and_start(self, damage: list[tuple[int, str]]) -> None:
        assert self.manager is not None
        self.close_reader()
        _ = self.log
        abandon(self.manager)
        self.manager = None
        self.damage_caches(damage)
        self.manager = self.open()
        assert not self.log.recovery.clean_shutdown
        assert self.log.recovery.bytes_truncated == 0
        self.check_after_start()

    def check_after_start(self) -> None:
        assert self.log.log_start_offset <= self.start  # kept by a checkpoint, which may be lost
        self.start = self.log.log_start_offset
        assert self.rows(self.log.read()) == self.wanted(self.start, len(self.model))
        if self.start < len(self.model):
            assert [epoch for epoch, _ in self.log.leader_epochs] == [0]

    def close_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    # ---- invariants --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.manager is not None)
    @invariant()
    def bounds_and_sizes_are_consistent(self) -> None:
        log = self.log
        assert log.log_end_offset == log.high_watermark == log.last_stable_offset == len(self.model)
        segments = log.segments
        assert segments[0].base_offset <= self.start == log.log_start_offset
        assert [s.next_offset for s in segments] == [*(s.base_offset for s in segments[1:]), len(self.model)]
        assert all(segment.size for segment in segments[:-1])
        assert log.size == sum(segment.size for segment in segments)
        for segment in segments:
            times = [self.row(offset)[2] for offset in range(segment.base_offset, segment.next_offset)]
            assert segment.max_timestamp == max(times, default=-1)

    def teardown(self) -> None:
        self.close_reader()
        if self.manager is not None:
            abandon(self.manager)
        shutil.rmtree(self.path)


TestLogMachine = pytest.mark.timeout(3600)(LogMachine.TestCase)
TestLogMachine.settings = settings(max_examples=examples(deep=2000), stateful_step_count=30)
