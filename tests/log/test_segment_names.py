"""A segment whose name disagrees with its batches: nothing is skipped or cut without an error.

recovery="strict" refuses it with an error that names the file, before anything has changed. recovery="kafka" reads
every record that Kafka reads, or refuses a directory that a broker's load refuses, too.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from tests.support.batches import transactional
from tests.support.logs import NOW, tree

BASES, END = [0, 8, 15, 20, 27, 32, 39, 44], 48
HOW = [{"clean_shutdown": True}, {"clean_shutdown": False}, {"read_only": True}]
CLOSE_BY = [(15, -4), (15, -3), (15, -1), (15, 1), (15, 3), (44, -4), (44, -1), (44, 1), (44, 3), (0, 1), (0, 5)]


def written(path: Path) -> None:
    with klog.Log.open(path, clock=ManualClock(NOW), config={"segment.bytes": 400}) as log:
        for number in range(24):
            log.append([(b"k", b"%d" % log.log_end_offset * 10, NOW + number)] * (1 if number % 2 else 3))
        assert ([segment.base_offset for segment in log.segments], log.log_end_offset) == (BASES, END)


def rename(path: Path, base: int, step: int) -> Path:
    for file in list(path.glob(f"{base:020d}.*")):
        file.rename(path / f"{base + step:020d}{file.suffix}")
    return path / f"{base + step:020d}.log"


def opened(path: Path, **options: Any) -> klog.Log:
    return klog.Log.open(path, clock=ManualClock(NOW), config={"segment.bytes": 400}, **options)


@pytest.mark.parametrize("options", HOW, ids=str)
@pytest.mark.parametrize(("base", "step"), [*CLOSE_BY, (15, 200), (44, 200)])
def test_strict_refuses_a_wrong_name(tmp_path: Path, base: int, step: int, options: dict[str, Any]) -> None:
    path = tmp_path / "t-0"
    written(path)
    wrong = rename(path, base, step)
    before = tree(path)
    with pytest.raises(CorruptLog) as caught:
        opened(path, recovery_point=0, **options)
    assert caught.value.position is not None and caught.value.offset is not None
    if step < 200:
        assert "Nothing was changed" in str(caught.value)
        assert (caught.value.path, caught.value.position, caught.value.offset) == (str(wrong), 0, base)
        assert f"{base:020d}.*" in str(caught.value)
    assert {name: data for name, data in tree(path).items() if name.endswith(".log")} == {
        name: data for name, data in before.items() if name.endswith(".log")
    }


@pytest.mark.parametrize("options", HOW, ids=str)
@pytest.mark.parametrize(("base", "step"), CLOSE_BY)
def test_kafka_reads_all_records_or_refuses(tmp_path: Path, base: int, step: int, options: dict[str, Any]) -> None:
    path = tmp_path / "t-0"
    written(path)
    wrong = rename(path, base, step)
    size, error, found = wrong.stat().st_size, None, 0
    try:
        with opened(path, recovery_point=0, recovery="kafka", **options) as log:
            first = log.log_start_offset
            assert (first, log.log_end_offset) == (step if base == 0 else 0, END)
            assert [record.offset for record in log.read()] == list(range(first, END))
            for offset in range(first, END):
                with contextlib.suppress(CorruptBatch):  # read from there, the batch may look damaged
                    assert next(iter(log.read(offset))).offset == offset
                    found += 1
            assert found > (END - first) // 2
    except CorruptLog as caught:
        error = caught
    if error is not None:
        assert (error.path, step > 0, options) == (str(wrong), True, {"clean_shutdown": False})
        assert f"the first batch begins at offset {base}, below" in error.reason
    assert wrong.stat().st_size == size


def test_a_gap_before_a_segment_is_not_a_wrong_name(tmp_path: Path) -> None:
    """As compaction and replication leave it."""
    path = tmp_path / "t-0"
    written(path)
    for suffix in ("log", "index", "timeindex"):
        (path / f"{15:020d}.{suffix}").unlink()
    rename(path, 20, -2)
    with opened(path, recovery="strict", clean_shutdown=True) as log:
        assert [record.offset for record in log.read()] == [*range(15), *range(20, END)]
        assert next(iter(log.read(17))).offset == 20


def test_replay_continues_after_a_wrong_name(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with opened(path) as log:
        for number in range(6):
            log.append_batches(transactional(7, 0, 2 * number, 2))
        bases = [segment.base_offset for segment in log.segments]
        state = log.producers
    rename(path, bases[1], -1)
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    with opened(path, recovery="kafka", clean_shutdown=True) as log:
        assert log.producers == state


def test_a_last_segment_named_above_its_batches_cannot_be_rolled(tmp_path: Path) -> None:
    """A broker opens it after a clean stop, and fails at the roll, too. It is damage, not a mistake of the caller."""
    path = tmp_path / "t-0"
    written(path)
    wrong = rename(path, 44, 30)
    with opened(path, recovery="kafka", clean_shutdown=True) as log:
        assert log.log_end_offset == 74
        with pytest.raises(CorruptLog, match="only batches below its base offset") as caught:
            log.roll()
        assert (caught.value.path, caught.value.offset) == (str(wrong), 74)
        assert log.offline is None
        assert log.append([(b"k", b"v")]).first_offset == 74
