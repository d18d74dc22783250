"""A trial of records leaves a directory as it found it, and fails if an answer is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import CorruptData
from klog.progress import Event
from klog.trial import try_log
from klog.trial.records import CODECS, DURABILITIES, SIZE_MIN, check, pairs


def test_a_small_trial_measures_every_contest_and_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"kept")
    events: list[Event] = []
    report = try_log(tmp_path, size=SIZE_MIN, seconds=0.1, progress=events.append)
    assert os.listdir(tmp_path) == ["mine"]
    assert (tmp_path / "mine").read_bytes() == b"kept"
    assert [(one.contest, one.way) for one in report.results] == [
        *(("append 100 records", way) for way in DURABILITIES),
        *(("read", way) for way in ("records", "pairs", "batches")),
        *(("compact", way) for way in CODECS),
    ]
    assert all(figure > 0 for one in report.results for figure in one.figures.values())
    assert 0 < report.bytes_written <= 2 * SIZE_MIN
    assert events[-1].done == events[-1].total == 3


def _without_the_last(append: Callable[..., Any]) -> Callable[..., Any]:
    return lambda log, records, **more: append(log, records[:-1], **more)


@pytest.mark.parametrize("broken", ["append", "compact", "read"])
def test_a_wrong_answer_is_an_error(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """append loses a record of a call, compaction keeps all, a read ends one record earlier."""
    works = getattr(klog.Log, broken)
    faults = {
        "append": _without_the_last(works),
        "compact": lambda log, **_: works(log, dry_run=True),
        "read": lambda log: works(log, stop=log.log_end_offset - 1),
    }
    monkeypatch.setattr(klog.Log, broken, faults[broken])
    with pytest.raises(CorruptData, match="other records are read than were appended") as caught:
        try_log(tmp_path, size=SIZE_MIN, seconds=0.1)
    assert caught.value.path is not None and caught.value.path.startswith(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_check_finds_each_difference(tmp_path: Path) -> None:
    records = pairs(30, 3)
    assert len({value for _, value in records}) == 30 and len({key for key, _ in records}) == 3
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append(records)
        check(log, records)
        for other in (records[:-1], records[1:], [*records, records[0]], [*records[1:], records[0]]):
            with pytest.raises(CorruptData):
                check(log, other)


def test_a_size_too_small_for_a_result_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least"):
        try_log(tmp_path, size=SIZE_MIN - 1)
