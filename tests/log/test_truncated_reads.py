"""No reader joins records from before and after a truncation, though the log has grown beyond its position again."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import LogTruncated
from klog.log.write import truncate
from tests.support.batches import marker, transactional
from tests.support.groups import BATCH
from tests.support.logs import WHERE, one_log, seen

OLD, NEW = [(None, b"old")], [(None, b"new")]  # of the same size
READS: dict[str, Callable[[klog.Log], Iterator[Any]]] = {
    "chunks": lambda log: log.chunks(0, 8, max_bytes=1),
    "records": lambda log: iter(log.read(0)),
    "pairs": lambda log: log.read(0).pairs(),
    "batches": lambda log: log.read(0).batches(),
    "columns": lambda log: log.read(0).columns(),
    "batch headers": lambda log: iter(log.read(0).batch_headers()),
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[klog.Log]:
    """Eight batches of one record, two in each segment: those that read a whole chunk get two."""
    with one_log(tmp_path, segment_bytes=2 * (BATCH + 3)) as log:
        append(log, OLD, 8)
        yield log


@pytest.fixture(params=WHERE)
def reader(request: pytest.FixtureRequest, log: klog.Log) -> Iterator[klog.Log]:
    with seen(log, request.param) as found:
        yield found


def append(log: klog.Log, records: Any, count: int) -> None:
    for _ in range(count):
        log.append(records)


@pytest.mark.parametrize("end", [5, 6, 8], ids=["below its position", "at it", "above it"])
@pytest.mark.parametrize("kind", READS)
def test_a_read_raises_after_a_truncation_below_it(log: klog.Log, reader: klog.Log, kind: str, end: int) -> None:
    found = READS[kind](reader)
    for _ in range(3 if kind in {"columns", "batch headers"} else 6):
        next(found)
    log.truncate_to(5)
    append(log, NEW, end - 5)
    with pytest.raises(LogTruncated, match="was truncated below offset 6") as caught:
        next(found)
    assert (caught.value.offset, caught.value.diverging_offset, caught.value.log_end_offset) == (6, 5, end)
    assert repr(pickle.loads(pickle.dumps(caught.value))) == repr(caught.value)


@pytest.mark.parametrize("kind", READS)
def test_a_read_goes_on_after_a_truncation_above_it(log: klog.Log, reader: klog.Log, kind: str) -> None:
    found = READS[kind](reader)
    taken = [next(found)]
    log.truncate_to(3)
    append(log, NEW, 5)
    taken += found
    assert len(taken) == (4 if kind in {"columns", "batch headers"} else 8)


COMMITTED: dict[str, Callable[[klog.Log], Iterator[Any]]] = {
    "records": lambda log: iter(log.read(0, isolation="read_committed")),
    "pairs": lambda log: log.read(0, isolation="read_committed").pairs(),
    "batches": lambda log: log.read(0, isolation="read_committed").batches(),
    "columns": lambda log: log.read(0, isolation="read_committed").columns(),
    "tail": lambda log: iter(log.tail(0, isolation="read_committed", timeout=0)),
}


def undecided(log: klog.Log, kind: str) -> int:
    """Append a record and a transaction, each in a segment of its own, and a marker. Returns where the marker is."""
    log.roll()
    log.append(OLD)
    log.roll()
    log.append_batches(transactional(7, 0, 0, 2))
    log.roll()
    at = log.append_batches(marker(7, 0, kind), origin="coordinator").first_offset
    log.append(OLD)
    return at


@pytest.mark.parametrize("ended", ["abort", "commit"])
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "made"])
@pytest.mark.parametrize("kind", COMMITTED)
def test_a_transaction_without_its_marker_is_undecided_again(
    log: klog.Log, reader: klog.Log, kind: str, begun: bool, ended: str
) -> None:
    at = undecided(log, ended)
    found = COMMITTED[kind](reader)
    if begun:
        next(found)
    log.truncate_to(at)
    assert reader.last_stable_offset == at - 2
    taken = list(found)
    assert len(taken) == (5 if kind == "columns" else 9) - begun


@pytest.mark.parametrize("ended", ["abort", "commit"])
def test_a_transaction_is_undecided_before_its_marker_is_removed(
    log: klog.Log, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that begins in the middle of a truncation does not look again."""
    remove, seen = truncate.remove_locked, list[int]()
    at = undecided(log, ended)
    log.roll()

    def look(*args: Any) -> None:
        seen.append(log.last_stable_offset)
        remove(*args)

    monkeypatch.setattr(truncate, "remove_locked", look)
    log.truncate_to(at)
    assert seen == [at - 2]


def test_a_read_ends_at_a_high_watermark_that_a_truncation_has_lowered(log: klog.Log) -> None:
    log.update_high_watermark(8)
    found = iter(log.read(0))
    next(found)
    log.truncate_to(4)
    append(log, NEW, 4)
    assert [record.offset for record in found] == [1, 2, 3]


def test_a_read_goes_on_after_its_last_batch_was_cleaned(tmp_path: Path) -> None:
    """A reader beside the cleaner loads the log again, as after a truncation."""
    config = {"cleanup.policy": "compact", "min.compaction.lag.ms": 0}
    with klog.Log.open(tmp_path / "t-0", config=config) as log:
        for number in range(4):
            log.append([(b"same", b"%d" % number), (b"%d" % number, b"v")])
        log.roll()
        log.append([(b"same", b"last")])
        with klog.Log.open(log.path, read_only=True) as beside:
            reads = [each.chunks(0, 9, max_bytes=1) for each in (log, beside)]
            assert [next(found).stop for found in reads] == [2, 2]
            stats = log.compact(roll=True)
            assert stats.records_before - stats.records_after == 4
            assert [[chunk.start for chunk in found] for found in reads] == [[2, 4, 6, 8]] * 2
