"""A disk trial leaves a directory as it found it, and stays within its limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klog.progress import Event
from klog.trial import try_disk
from klog.trial.disk import SIZE_MIN
from klog.trial.own_directory import own_directory


def test_a_small_trial_measures_every_contest_and_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"kept")
    events: list[Event] = []
    report = try_disk(tmp_path, size=SIZE_MIN, seconds=0.1, progress=events.append)
    assert os.listdir(tmp_path) == ["mine"]
    assert (tmp_path / "mine").read_bytes() == b"kept"
    contests = list(dict.fromkeys(one.contest for one in report.results))
    assert [name.split(" of ")[0] for name in contests] == [
        "append 4 KiB", "append 64 KiB", "append 1 MiB", "durable append 4 KiB", "sequential read", "random read",
        "send 1 MiB slices",
    ]  # fmt: skip
    for contest in contests:
        ways = [one for one in report.results if one.contest == contest]
        assert len(ways) > 1 and ways[0].ratio == 1
        assert all(figure > 0 for one in ways for figure in one.figures.values())
    assert {"cold", "cold, 4 MiB ahead", "cold, direct"} <= {one.way for one in report.results}
    assert 0 < report.bytes_written <= 2 * SIZE_MIN
    assert report.advice and report.directory == str(tmp_path)
    assert events[-1].done == events[-1].total == len(contests)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_no_files_are_left_however_it_ends(tmp_path: Path, error: type[BaseException]) -> None:
    """Ctrl-C in the middle of a contest, or a disk error."""
    seen = 0

    def interrupt(event: Event) -> None:
        nonlocal seen
        seen += 1
        if seen == 9:
            assert len(os.listdir(tmp_path)) == 1
            raise error("stop")

    with pytest.raises(error, match="stop"):
        try_disk(tmp_path, size=SIZE_MIN, seconds=0.1, progress=interrupt)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_raises_before_anything_is_written(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    with (
        pytest.raises(OSError, match=r"klog bench: a smaller --size; klog tune: --no-disk") as caught,
        own_directory(tmp_path, 2 * found.f_bavail * found.f_frsize, SIZE_MIN),
    ):
        pytest.fail("it began")
    assert caught.value.filename == str(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_size_too_small_for_a_result_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least"):
        try_disk(tmp_path, size=SIZE_MIN - 1)
