"""The report of a dry run: the keys that waste the most bytes, the segments that cannot be cleaned and why, and the
effect of a roll."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import klog
from klog.cleaner import Held
from klog.cleaner._waste import Waste
from klog.clock import ManualClock
from tests.cleaner.logs import NOW, append, fill, open_log
from tests.support.batches import transactional


def test_counts_are_exact_while_every_key_has_a_counter() -> None:
    """W2"""
    waste, truth = Waste(64), Counter[bytes]()
    chance = random.Random(1)
    for offset in range(2000):
        key = b"%d" % chance.randrange(48)
        truth[key] += 7
        waste.add(key, 7, offset)
    assert [size for size, _, _ in waste.top(48)] == sorted(truth.values(), reverse=True)
    assert sum(records for _, records, _ in waste.top(48)) == 2000
    assert waste.reduced_by == 0
    assert waste.top(0) == []


def test_with_too_many_keys_counts_stay_within_the_reported_error() -> None:
    """W1, W3: frequent keys are found among a hundred times as many keys as there are counters."""
    chance, where = random.Random(2), {}
    waste, truth = Waste(64), Counter[bytes]()
    for offset in range(20_000):
        key = b"often-%d" % chance.randrange(4) if chance.random() < 0.4 else b"%d" % chance.randrange(5000)
        size = chance.randrange(1, 100)
        truth[key] += size
        where[offset] = key
        waste.add(key, size, offset)
    top = waste.top(48)
    for size, records, offset in top:
        assert truth[where[offset]] - waste.reduced_by <= size <= truth[where[offset]]
        assert records >= 1
    assert {where[offset] for _, _, offset in top[:4]} == {b"often-%d" % n for n in range(4)}
    assert 0 < waste.reduced_by <= 2 * sum(truth.values()) / 48


def test_invalid_numbers_of_counters_raise() -> None:
    for slots in (0, 2, 48, -64):
        with pytest.raises(ValueError, match="power of two"):
            Waste(slots)


def test_the_keys_that_waste_most_bytes_are_reported(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        append(log, [(b"big", b"x" * 500), (b"often", b"1"), (b"once", b"y" * 900)])
        append(log, [(b"often", b"2")] * 9 + [(b"big", b"x"), (b"", b"1"), (b"", b"2")])
        result = log.compact(dry_run=True, roll=True)
        assert [(each.key, each.records) for each in result.wasted] == [(b"big", 1), (b"often", 9), (b"", 1)]
        assert (result.wasted[0].bytes > 500, result.wasted_error) == (True, 0)
        assert [each.key for each in log.compact(dry_run=True, roll=True, top=1).wasted] == [b"big"]
        assert log.compact(dry_run=True, roll=True, top=0).wasted == ()
        assert log.compact(roll=True).wasted == ()


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_a_dry_run_with_a_roll_counts_the_active_segment(tmp_path: Path, codec: str | None) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        append(log, [(b"key-2", b"newer")] * 5, compression=codec)
        names = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
        result = log.compact(dry_run=True, roll=True)
        assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == names
        assert len(log.segments) == 4
        done = log.compact(roll=True)
        assert (result.bytes_before, result.bytes_after, result.records_before, result.records_after) == (
            done.bytes_before, done.bytes_after, done.records_before, done.records_after,
        )  # fmt: skip
        assert (result.first_dirty_offset, result.held) == (done.first_dirty_offset, ()) == (142, done.held)


@pytest.mark.parametrize("start", [1, 7, 20, 135])
def test_a_dry_run_counts_no_records_below_the_log_start(tmp_path: Path, start: int) -> None:
    """The cleaning reads them, keeps some and drops others."""
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        append(log, [(b"key-2", b"newer")] * 5)
        log.maybe_increment_log_start_offset(start)
        result, done = log.compact(dry_run=True, roll=True), log.compact(roll=True)
        assert (result.records_before, result.records_after) == (done.records_before, done.records_after)
        assert done.records_after == log.count()


def test_a_dry_run_of_a_read_only_log(tmp_path: Path) -> None:
    """The writer may run in another process."""
    with open_log(tmp_path / "t-0") as writer:
        fill(writer)
        append(writer, [(b"key-1", b"1")] * 3)
        with open_log(tmp_path / "t-0", read_only=True) as log:
            result = log.compact(dry_run=True, roll=True)
        done = writer.compact(dry_run=True, roll=True)
        assert (result.bytes_after, result.records_after, result.wasted) == (
            done.bytes_after, done.records_after, done.wasted,
        )  # fmt: skip


def test_a_dry_run_of_a_log_that_was_never_written_to(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact"})
    with klog.open(tmp_path, read_only=True) as logs:
        stats = logs.log("t").compact(dry_run=True)
        assert (stats.bytes_before, stats.records_after, stats.held) == (0, 0, ())
        assert logs.log("t").purge_key(b"k", dry_run=True).records_removed == 0


def test_uncleanable_ranges_are_reported_with_their_reason(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        active = log.segments[-1].size
        assert log.compact(dry_run=True).held == (Held("the active segment", 135, active),)
        log.append_batches(transactional(7, 0, 0, base_offset=137), origin="replication")
        log.roll()
        append(log, [(b"key-1", b"1")])
        size = log.segments[3].size
        assert log.compact(dry_run=True).held == (
            Held("an open transaction", 135, size),
            Held("the active segment", 138, log.segments[-1].size),
        )
        assert log.compact(dry_run=True, roll=True).held == (
            Held("an open transaction", 135, size + log.segments[-1].size),
        )
    clock = ManualClock(NOW + 500)
    with open_log(tmp_path / "u-0", clock=clock, config={"min.compaction.lag.ms": 1000}) as log:
        fill(log)
        closed = sum(segment.size for segment in log.segments[:-1])
        assert log.compact(dry_run=True).held[0] == Held("min.compaction.lag.ms", 0, closed)
    with open_log(tmp_path / "v-0") as log:
        fill(log)
        log.update_high_watermark(50)
        assert log.compact().held[0].reason == "records above the high watermark"


def test_the_result_type_is_exported_by_klog(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        assert isinstance(log.compact(dry_run=True), klog.CompactionStats)
