"""A gap between two segments is damage, unless this log made it: klog-gaps lists such gaps after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.errors import CorruptLog
from klog.record import encode
from tests.support.abandon import abandon
from tests.support.crash_files import CrashFiles
from tests.support.logs import NOW

ROWS = [(b"k", b"v", NOW)] * 3


def with_gap(path: Path) -> Path:
    """Segments [0, 3) and [10, 13), and a crash."""
    log = klog.Log.open(path / "t-0", config={"segment.bytes": 100, "cleanup.policy": "delete"})
    log.append_batches(encode(ROWS), origin="replication")
    log.append_batches(encode(ROWS, base_offset=10), origin="replication")
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    owner, log._core.directory.owner = log._core.directory.owner, None
    abandon(log)
    owner._unlock()
    return path / "t-0"


def reopen(path: Path) -> list[int]:
    with klog.Log.open(path, config={"cleanup.policy": "delete"}, clean_shutdown=False, recovery_point=0) as log:
        return [record.offset for record in log.read()]


def test_a_replicated_gap_survives_a_crash(tmp_path: Path) -> None:
    path = with_gap(tmp_path)
    assert reopen(path) == [0, 1, 2, 10, 11, 12]
    assert [problem for problem in klog.verify(path).problems if problem.kind == "gap"] == []


def test_a_gap_that_a_truncation_inside_a_batch_left_survives_a_crash(tmp_path: Path) -> None:
    log = klog.Log.open(tmp_path / "t-0")
    log.append_batches(encode(ROWS))
    log.append_batches(encode(ROWS))
    log.truncate_to(5)
    log.roll()
    log.append(ROWS)
    owner, log._core.directory.owner = log._core.directory.owner, None
    abandon(log)
    owner._unlock()
    assert reopen(tmp_path / "t-0") == [0, 1, 2, 5, 6, 7]


@pytest.mark.parametrize(
    "text", [None, b"", b"0\n1\n2 10\n", b"0\n1\n3 11\n", b"0\n1\nx y\n", b"1\n1\n3 10\n", b"\xff"]
)
def test_an_unlisted_gap_is_damage(tmp_path: Path, text: bytes | None) -> None:
    path = with_gap(tmp_path)
    (path / "klog-gaps").unlink()
    if text is not None:
        (path / "klog-gaps").write_bytes(text)
    with pytest.raises(CorruptLog, match="records 3 to 9 are missing"):
        reopen(path)
    assert [problem.kind for problem in klog.verify(path).problems if problem.kind == "gap"] == ["gap"]


def test_gaps_left_by_the_cleaner_are_not_damage_after_a_change_of_policy(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", config={"segment.bytes": 100, "cleanup.policy": "compact"}) as log:
        for number in range(8):
            log.append([(b"%d" % (number // 6), b"v", NOW)])
        log.compact()
        ends = [(segment.next_offset, segment.size) for segment in log.segments]
        kept = [record.offset for record in log.read()]
    assert ends[0][1] == 0 and len(kept) < 8
    assert reopen(tmp_path / "t-0") == kept


@pytest.mark.parametrize("point", [9, 10])
def test_a_gap_that_reaches_above_the_cleaners_checkpoint_is_damage(tmp_path: Path, point: int) -> None:
    path = with_gap(tmp_path)
    (path / "klog-gaps").unlink()
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
    if point < 10:
        with pytest.raises(CorruptLog, match="records 3 to 9 are missing"):
            reopen(path)
    else:
        assert reopen(path) == [0, 1, 2, 10, 11, 12]


def test_gaps_below_the_first_segment_are_forgotten(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", config={"segment.bytes": 100, "retention.ms": -1}) as log:
        for base in (0, 10, 20):
            log.append_batches(encode(ROWS, base_offset=base), origin="replication")
        log.delete_records(20)
        log.apply_retention()
        log.append_batches(encode(ROWS, base_offset=30), origin="replication")
    assert (tmp_path / "t-0" / "klog-gaps").read_text() == "0\n1\n23 30\n"


@pytest.mark.parametrize("fully", [False, True])
def test_a_truncation_removes_the_gaps_above_it(tmp_path: Path, fully: bool) -> None:
    """These offsets may get records, and nothing may excuse the loss of these."""
    path = with_gap(tmp_path)
    with klog.Log.open(path, config={"cleanup.policy": "delete"}) as log:
        if fully:
            log.truncate_fully_and_start_at(0)
            log.append(ROWS)
        else:
            log.truncate_to(3)
        for count in (7, 3):
            log.roll()
            log.append([(b"k", b"v", NOW)] * count)
        assert [segment.base_offset for segment in log.segments] == [0, 3, 10]
    for lost in path.glob(f"{3:020}.*"):
        lost.unlink()
    with pytest.raises(CorruptLog, match="records 3 to 9 are missing"):
        reopen(path)


class GapOrder(CrashFiles):
    """Checks that the segment after a gap is durably gone before klog-gaps is replaced (T5 of truncate)."""

    armed = False
    replaced = 0

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        if self.armed and path.endswith("klog-gaps"):
            assert [Path(name).name for name in self.durable_names if name.endswith(".log")] == [f"{0:020}.log"]
            self.replaced += 1
        super().replace(path, data, private=private)


@pytest.mark.parametrize("offset", [0, 2])
def test_a_truncation_removes_a_gap_after_the_segment_that_follows_it(tmp_path: Path, offset: int) -> None:
    """Between the two, the load after a crash would take the gap for lost records."""
    path, files = with_gap(tmp_path), GapOrder()
    files.keep(tmp_path)
    with klog.Log.open(path, config={"cleanup.policy": "delete"}, files=files) as log:
        files.armed = True
        log.truncate_to(offset)
    assert files.replaced == 1 and (path / "klog-gaps").read_text() == "0\n0\n"
