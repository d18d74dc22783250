"""A replica's log compared with a model: leader and follower appends, high watermark, truncation, deletion, restarts.

The model has batches, not files. The machine asks the log which batches a segment holds. It computes from sizes and
timestamps which segments retention may delete.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import klog
from klog.clock import ManualClock
from klog.errors import OffsetOutOfRange, OffsetsOutOfOrder, UnexpectedAppendOffset
from klog.log import closing
from klog.record import encode
from tests.support.examples import examples
from tests.support.in_memory import memory
from tests.support.logs import NOW

RETENTION_MS, RETENTION_BYTES, DELAY_MS = 60_000, 4_000, 5_000
counts = st.lists(st.integers(1, 6), min_size=1, max_size=4)
ages = st.integers(-50_000, 0)


@dataclass(frozen=True)
class Batch:
    """Offsets [base, stop), all of one epoch and one timestamp."""

    base: int
    stop: int
    epoch: int
    timestamp: int


class PartitionMachine(RuleBasedStateMachine):
    """batches: those in the files, in order. start, end, high_watermark. epochs: as in Kafka's cache."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="klog-machine-", dir=memory()))
        self.clock = ManualClock(NOW)
        self.batches: list[Batch] = []
        self.start = self.end = self.high_watermark = 0
        self.saved_start = 0
        self.epochs: list[tuple[int, int]] = []
        self.led = 0  # the highest epoch that a truncation has removed
        self.epoch = 0
        self.epoch_in_gap = False
        self.log: klog.Log | None = None

    @initialize(
        segment=st.integers(700, 2000), index=st.sampled_from([24, 96, 4096]), interval=st.sampled_from([0, 200])
    )
    def create(self, segment: int, index: int, interval: int) -> None:
        self.config = {
            "segment.bytes": segment,
            "segment.index.bytes": index,
            "index.interval.bytes": interval,
            "segment.ms": 30_000,
            "retention.ms": RETENTION_MS,
            "retention.bytes": RETENTION_BYTES,
            "file.delete.delay.ms": DELAY_MS,
        }
        self.log = self.open()

    def open(self, **options: Any) -> klog.Log:
        options.setdefault("high_watermark", self.high_watermark)
        return klog.Log.open(self.path / "t-0", config=self.config, clock=self.clock, **options)

    @property
    def open_log(self) -> klog.Log:
        assert self.log is not None
        return self.log

    # ---- the model -------------------------------------------------------------------------------------------------

    def encoded(self, batch: Batch, base: int) -> bytes:
        rows = [(b"k%d" % offset, b"v%d" % offset, batch.timestamp) for offset in range(batch.base, batch.stop)]
        return encode(rows, base_offset=base, leader_epoch=batch.epoch)

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.end = batch.stop
        self.assign(batch.epoch, batch.base)

    def assign(self, epoch: int, offset: int) -> None:
        if not self.epochs or epoch != self.epochs[-1][0] or offset < self.epochs[-1][1]:
            self.epochs = [entry for entry in self.epochs if entry[0] < epoch and entry[1] < offset]
            self.epochs.append((epoch, offset))

    def assign_epochs_of_batches(self) -> None:
        for batch in self.batches:
            self.assign(batch.epoch, batch.base)

    def trim_epochs(self) -> None:
        """As Kafka's truncateFromStart does at the log start."""
        before = [entry for entry in self.epochs if entry[1] <= self.start]
        if before:
            self.epochs = [(before[-1][0], self.start), *(entry for entry in self.epochs if entry[1] > self.start)]

    def visible(self, start: int, stop: int) -> list[tuple[int, bytes, int]]:
        return [
            (offset, b"v%d" % offset, batch.timestamp)
            for batch in self.batches
            for offset in range(max(batch.base, start, self.start), min(batch.stop, stop))
        ]

    # ---- appends ---------------------------------------------------------------------------------------------------

    @rule(counts=counts, gap=st.sampled_from([0, 0, 0, 1, 7]), epoch_step=st.sampled_from([0, 0, 1, 3]), age=ages)
    def replicate(self, counts: list[int], gap: int, epoch_step: int, age: int) -> None:
        self.epoch += epoch_step
        base, data, new = self.end + gap, b"", []
        for count in counts:
            new.append(Batch(base, base + count, self.epoch, self.clock.wall_ms() + age))
            data += self.encoded(new[-1], base)
            base += count + gap
        info = self.open_log.append_batches(data, origin="replication")
        for batch in new:
            self.add(batch)
        assert (info.first_offset, info.last_offset) == (new[0].base, new[-1].stop - 1)

    @rule(count=st.integers(1, 6), epoch_step=st.sampled_from([0, 0, 2]), age=ages)
    def produce(self, count: int, epoch_step: int, age: int) -> None:
        self.epoch += epoch_step
        batch = Batch(self.end, self.end + count, self.epoch, self.clock.wall_ms() + age)
        info = self.open_log.append_batches(self.encoded(batch, 0), leader_epoch=self.epoch)
        self.add(batch)
        assert (info.first_offset, info.last_offset, info.count) == (batch.base, batch.stop - 1, count)

    @precondition(lambda self: self.end > 0)
    @rule(back=st.integers(1, 5))
    def replicate_existing_offsets(self, back: int) -> None:
        base = max(self.end - back, 0)
        with pytest.raises(UnexpectedAppendOffset):
            self.open_log.append_batches(encode([(b"k", b"v", NOW)], base_offset=base), origin="replication")

    @rule()
    def replicate_out_of_order(self) -> None:
        twice = encode([(b"k", b"v", NOW)], base_offset=self.end + 3)
        with pytest.raises(OffsetsOutOfOrder):
            self.open_log.append_batches(twice + twice, origin="replication")

    @rule()
    def roll(self) -> None:
        self.open_log.roll()

    @rule(ms=st.integers(0, 20_000))
    def advance_clock(self, ms: int) -> None:
        self.clock.advance(ms)

    # ---- the high watermark and the log start ------------------------------------------------------------------------

    @rule(share=st.floats(0, 1.2))
    def move_high_watermark(self, share: float) -> None:
        wanted = round(share * self.end)
        self.high_watermark = min(max(wanted, self.start), self.end)
        assert self.open_log.update_high_watermark(wanted) == self.high_watermark

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        before = round(share * (self.end + 2))
        if before > self.high_watermark:
            with pytest.raises(OffsetOutOfRange):
                self.open_log.delete_records(before)
            return
        self.open_log.delete_records(before)
        if before > self.start:
            self.start = self.saved_start = before
            self.trim_epochs()

    @rule()
    def retain(self) -> None:
        log = self.open_log
        segments = [(s.base_offset, s.size, s.max_timestamp) for s in log.segments]
        bounds = [base for base, _, _ in segments[1:]] + [self.end]
        gone = 0
        start = self.start
        for reason in ("start", "size", "time"):
            over = sum(size for _, size, _ in segments[gone:]) - RETENTION_BYTES
            while gone < len(segments):
                _, size, newest = segments[gone]
                last = gone == len(segments) - 1
                if reason == "start":
                    fits = not last and bounds[gone] <= start
                elif reason == "size":
                    fits = over >= 0 and over - size >= 0
                else:
                    fits = newest >= 0 and self.clock.wall_ms() - newest > RETENTION_MS
                if not fits or self.high_watermark < bounds[gone] or (last and size == 0):
                    break
                over -= size
                start = max(start, bounds[gone])
                gone += 1
        assert log.apply_retention() == gone, segments
        if gone:
            self.batches = [batch for batch in self.batches if batch.base >= bounds[gone - 1]]
            if start > self.start:
                self.start = start
                self.trim_epochs()
            self.high_watermark = max(self.high_watermark, self.start)

    @rule()
    def deleted_files_are_unlinked_after_their_delay(self) -> None:
        self.clock.advance(DELAY_MS + 1)
        assert [path.name for path in self.path.rglob("*.deleted")] == []

    # ---- truncation ------------------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1.1))
    def truncate(self, share: float) -> None:
        target = round(share * self.end)
        first = self.open_log.segments[0].base_offset
        assert self.open_log.truncate_to(target) == (target < self.end)
        if target >= self.end:
            self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        elif first > target:
            self.restart_at(target, target)
        else:
            self.batches = [batch for batch in self.batches if batch.stop <= target]
            self.start = min(self.start, target)
            self.saved_start = min(self.saved_start, target)  # the checkpoint is lowered before the records are removed
            if self.batches and self.batches[-1].stop < self.start:
                self.batches = []
            had_epochs = bool(self.epochs)
            self.led = max(self.led, self.epochs[-1][0]) if had_epochs else self.led
            self.epochs = [entry for entry in self.epochs if entry[1] < target]
            if had_epochs and not self.epochs:  # the remaining records have epochs, even if the log start is above
                self.assign_epochs_of_batches()
                self.trim_epochs()
            self.epoch_in_gap |= bool(self.epochs) and self.epochs[-1][1] >= self.on_disk()
            self.end, self.high_watermark = target, min(self.high_watermark, target)

    @rule(offset=st.integers(0, 60), inside=st.booleans())
    def truncate_fully(self, offset: int, inside: bool) -> None:
        start = offset // 2 if inside else None
        self.open_log.truncate_fully_and_start_at(offset, start)
        self.restart_at(offset, offset if start is None else start)

    def restart_at(self, offset: int, start: int) -> None:
        if self.epochs:
            self.led = max(self.led, self.epochs[-1][0])
        self.batches, self.epochs = [], []
        self.end = self.high_watermark = offset
        self.start = start
        self.saved_start = min(self.saved_start, start)

    # ---- reading ---------------------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1), isolation=st.sampled_from(["log_end", "high_watermark", "read_committed"]))
    def read(self, share: float, isolation: Any) -> None:
        first = self.start + round(share * (self.end - self.start))
        stop = self.end if isolation == "log_end" else self.high_watermark
        found = [(r.offset, r.value, r.timestamp) for r in self.open_log.read(first, isolation=isolation)]
        assert found == self.visible(first, stop)

    @precondition(lambda self: self.start > 0)
    @rule()
    def read_deleted_records(self) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.open_log.read(self.start - 1)

    @rule(epoch=st.integers(0, 12))
    def end_of_epoch(self, epoch: int) -> None:
        starts = dict(self.epochs)
        higher = [start for other, start in self.epochs if other > epoch]
        lower = [other for other, _ in self.epochs if other <= epoch]
        if self.epochs and epoch == self.epochs[-1][0]:
            wanted = epoch, self.end
        elif not higher:
            wanted = -1, -1
        elif not lower:
            wanted = epoch, next(iter(starts.values()))
        else:
            wanted = max(lower), min(higher)
        assert self.open_log.end_offset_for(epoch) == wanted

    @rule(ago=st.integers(0, 80_000))
    def find_time(self, ago: int) -> None:
        wanted = self.clock.wall_ms() - ago
        hits = ((timestamp, offset) for offset, _, timestamp in self.visible(0, self.end) if timestamp >= wanted)
        assert self.open_log.offset_for_timestamp(wanted) == next(hits, None)

    @rule()
    def verify(self) -> None:
        """A truncation inside a batch or a gap leaves a log end without a batch, and possibly an epoch that begins
        below it and above the last batch. A crash restores an older log start than the epoch file has."""
        known = {"leftover", "gap"}
        if self.epoch_in_gap:
            known |= {"epoch"}
        if self.epochs and self.batches and self.epochs[0][1] > self.batches[0].base:
            known |= {"epoch"}
        assert [problem for problem in self.open_log.verify().problems if problem.kind not in known] == []

    # ---- stops and starts --------------------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.open_log.close()
        self.saved_start = self.start if self.start > self.open_log.segments[0].base_offset else 0
        self.reopen(self.start, clean_shutdown=True)

    @rule()
    def die_and_start(self) -> None:
        owner = self.open_log._core.directory.owner
        closing.disown(self.open_log._core)
        closing.abandon(self.open_log._core)
        owner._unlock()
        self.reopen(self.saved_start, clean_shutdown=False)
        assert self.open_log.recovery.bytes_truncated == 0

    def on_disk(self) -> int:
        """Return the log end that the files have."""
        return max(self.open_log.segments[-1].base_offset, self.batches_end())

    def batches_end(self) -> int:
        return self.batches[-1].stop if self.batches else 0

    def reopen(self, start: int, clean_shutdown: bool) -> None:
        """Open the log again. An epoch without records and a log end without a batch are not on disk."""
        self.end = max(self.on_disk(), start)
        self.start = max(start, self.open_log.segments[0].base_offset)
        self.log = self.open(clean_shutdown=clean_shutdown)
        self.high_watermark = min(max(self.high_watermark, self.start), self.end)
        emptied = 0 < self.start == self.end  # the last epoch of deleted records begins at the log end
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end + emptied]
        if not self.epochs:  # an empty epoch file counts as lost, and so does a file with only the log end
            self.assign_epochs_of_batches()
        if start:
            self.trim_epochs()
        found = self.open_log.leader_epochs
        if found and found != self.epochs:  # the last is that of a leader without a record
            epoch, begins = found[-1]
            assert 0 < epoch <= self.led and self.batches_end() <= begins <= self.end
            self.assign(epoch, begins)

    # ---- invariants --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.log is not None)
    @invariant()
    def state_is_that_of_the_model(self) -> None:
        log = self.open_log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (
            self.start,
            self.end,
            self.high_watermark,
        )
        assert log.leader_epochs == self.epochs
        segments = log.segments
        assert log.size == sum(segment.size for segment in segments)
        for segment in segments:
            times = [b.timestamp for b in self.batches if segment.base_offset <= b.base < segment.next_offset]
            assert segment.max_timestamp == max(times, default=-1)

    def teardown(self) -> None:
        if self.log is not None:
            self.log.close()
        shutil.rmtree(self.path)


TestPartitionMachine = pytest.mark.timeout(3600)(PartitionMachine.TestCase)
TestPartitionMachine.settings = settings(max_examples=examples(deep=2000), stateful_step_count=40)
