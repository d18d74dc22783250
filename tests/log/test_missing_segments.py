"""A segment in the middle has lost its `.log`: strict refuses to open the log if another file of the segment exists."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptLog
from tests.support.logs import NOW, tree

SMALL = {"segment.bytes": 300, "index.interval.bytes": 0, "retention.ms": -1}


def several_segments(path: Path, policy: str = "delete") -> list[Path]:
    """Write segments of three records each. Returns their .log files in order."""
    with klog.Log.open(path, config=SMALL | {"cleanup.policy": policy}, clock=ManualClock(NOW)) as log:
        for number in range(12):
            log.append([(b"%d" % number, b"v" * 20)])
        assert len(log.segments) > 3
    return sorted(path.glob("*.log"))


def opened(path: Path, clean: bool, policy: str | None = "delete", **options: str) -> klog.Log:
    config = None if policy is None else SMALL | {"cleanup.policy": policy}
    return klog.Log.open(path, config=config, clean_shutdown=clean, clock=ManualClock(NOW), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("policy", ["delete", "compact", None])
@pytest.mark.parametrize("left", [".index", ".timeindex"])
def test_an_index_shows_that_its_log_is_missing(tmp_path: Path, clean: bool, policy: str | None, left: str) -> None:
    """With any config, also if the gap could come from the cleaner, and also below the recovery point."""
    path = tmp_path / "t-0"
    log = several_segments(path, policy or "delete")[1]
    for file in path.glob(f"{log.stem}.*"):
        if file.suffix != left:
            file.unlink()
    before = tree(path)
    with pytest.raises(CorruptLog, match="the segment that begins at 3 is missing") as caught:
        opened(path, clean, policy)
    assert (caught.value.path, caught.value.offset, caught.value.kind) == (str(log), 3, "gap")
    assert tree(path) == before
    with opened(path, clean, policy, recovery="kafka") as again:
        assert [record.offset for record in again.read()] == [0, 1, 2, *range(6, 12)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_marked_for_deletion_in_the_middle_is_kept(tmp_path: Path, clean: bool) -> None:
    """The file has the missing records: a load that refuses to open the log must not unlink it."""
    path = tmp_path / "t-0"
    log = several_segments(path)[1]
    log.rename(f"{log}.deleted")
    before = tree(path)
    with pytest.raises(CorruptLog, match=rf"{log.name}\.deleted is there: rename it back"):
        opened(path, clean)
    assert tree(path) == before
    Path(f"{log}.deleted").rename(log)
    with opened(path, clean) as again:
        assert [record.offset for record in again.read()] == list(range(12))


@pytest.mark.parametrize("number", [0, -1])
def test_the_first_and_the_last_segment_may_have_been_deleted(tmp_path: Path, number: int) -> None:
    """By retention or a truncation that a crash interrupted."""
    path = tmp_path / "t-0"
    several_segments(path)[number].unlink()
    with opened(path, False) as log:
        assert log.count() == 9
        assert log.verify().problems == []


def test_a_cleaned_segment_whose_deletion_a_crash_interrupted(tmp_path: Path) -> None:
    """A compaction renames the .log first; its replacement may end below."""
    path = tmp_path / "t-0"
    old = several_segments(path, "compact")[1]
    old.rename(f"{old}.deleted")
    with opened(path, False, "compact") as log:
        assert log.count() == 9
    assert not list(path.glob(f"{old.stem}.*index"))
