"""A segment in the middle has lost its `.log`: strict refuses to open the log if another file of the segment exists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import klog
from klog.cli import cli
from klog.clock import ManualClock
from klog.errors import CorruptLog
from tests.support.batches import batch
from tests.support.logs import NOW, one_log, tree

SMALL = {"segment.bytes": 300, "index.interval.bytes": 0, "retention.ms": -1}


def several_segments(path: Path, policy: str = "delete") -> list[Path]:
    """Write segments of three records each. Returns their .log files in order."""
    with klog.Log.open(path, config=SMALL | {"cleanup.policy": policy}, clock=ManualClock(NOW)) as log:
        for number in range(12):
            log.append([(b"%d" % number, b"v" * 20)])
        assert len(log.segments) > 3
    return sorted(path.glob("*.log"))


def opened(path: Path, clean: bool, policy: str | None = "delete", **options: Any) -> klog.Log:
    config = None if policy is None else SMALL | {"cleanup.policy": policy}
    return klog.Log.open(path, config=config, clean_shutdown=clean, clock=ManualClock(NOW), **options)


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("policy", ["delete", "compact", None])
@pytest.mark.parametrize("left", [".index", ".timeindex"])
def test_an_index_shows_that_its_log_is_missing(
    tmp_path: Path, clean: bool, policy: str | None, left: str, read_only: bool
) -> None:
    """With any config, also if the gap could come from the cleaner, and also below the recovery point."""
    path = tmp_path / "t-0"
    log = several_segments(path, policy or "delete")[1]
    for file in path.glob(f"{log.stem}.*"):
        if file.suffix != left:
            file.unlink()
    before = tree(path)
    with pytest.raises(CorruptLog, match="the segment that begins at 3 is missing") as caught:
        opened(path, clean, policy, read_only=read_only)
    assert (caught.value.path, caught.value.offset, caught.value.kind) == (str(log), 3, "gap")
    assert tree(path) == before
    with opened(path, clean, policy, recovery="kafka", read_only=read_only) as again:
        assert [record.offset for record in again.read()] == [0, 1, 2, *range(6, 12)]


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_marked_for_deletion_in_the_middle_is_kept(tmp_path: Path, clean: bool, read_only: bool) -> None:
    """The file has the missing records: a load that refuses to open the log must not unlink it."""
    path = tmp_path / "t-0"
    log = several_segments(path)[1]
    log.rename(f"{log}.deleted")
    before = tree(path)
    with pytest.raises(CorruptLog, match=rf"{log.name}\.deleted is there: rename it back"):
        opened(path, clean, read_only=read_only)
    assert tree(path) == before
    Path(f"{log}.deleted").rename(log)
    with opened(path, clean) as again:
        assert [record.offset for record in again.read()] == list(range(12))


def test_a_deleted_segment_may_lie_in_a_gap(tmp_path: Path) -> None:
    """A follower truncates, and its leader goes on after a gap. The files of the segments that were truncated are left
    until the next load."""
    path, config = tmp_path / "t-0", SMALL | {"cleanup.policy": "delete", "segment.bytes": 240}
    with klog.Log.open(path, config=config, clock=ManualClock(NOW)) as log:
        for offset in range(12):
            log.append_batches(batch([b"old"], base_offset=offset), origin="replication")
        assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
        log.truncate_to(4)
        log.append_batches(batch([b"new" * 50], base_offset=20), origin="replication")
        log.roll()
        assert [segment.base_offset for segment in log.segments] == [0, 3, 20, 21]
        with klog.Log.open(path, config=config, clock=ManualClock(NOW), read_only=True) as reader:
            assert [record.offset for record in reader.read()] == [0, 1, 2, 3, 20]
    assert (path / f"{6:020d}.log.deleted").exists()
    with klog.Log.open(path, config=config, clock=ManualClock(NOW)) as log:
        assert [record.offset for record in log.read()] == [0, 1, 2, 3, 20]
        assert log.verify().problems == []


def test_the_readers_of_a_directory_notice_it(tmp_path: Path) -> None:
    """klog.open() and `klog cat`: with the path and the text of an open for writing."""
    with one_log(tmp_path, segment_bytes=300, index_interval_bytes=0, retention_ms=-1) as log:
        for number in range(12):
            log.append([(b"%d" % number, b"v" * 20)])
        lost = log.segments[1].path
    os.unlink(lost)
    before, texts = tree(tmp_path), set()
    for read_only in (True, False):
        with (
            klog.open(tmp_path, read_only=read_only, clock=ManualClock(NOW)) as logs,
            pytest.raises(CorruptLog) as caught,
        ):
            logs.log("events")
        texts.add(str(caught.value))
        assert caught.value.path == lost
    assert len(texts) == 1
    result = CliRunner().invoke(cli, ["cat", "--dir", str(tmp_path), "--topic", "events"])
    assert result.exit_code == 3 and "is missing, between others" in result.output, result.output
    assert {name: data for name, data in tree(tmp_path).items() if name.startswith("events-0/")} == {
        name: data for name, data in before.items() if name.startswith("events-0/")
    }


def test_a_reader_beside_a_writer_that_renames_files_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing is not of one moment: it may have the index of a segment that was deleted meanwhile."""
    path = tmp_path / "t-0"
    log = several_segments(path)[1]
    hidden = log.rename(tmp_path / "hidden")
    looks = 0

    def sleep(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            hidden.rename(log)

    monkeypatch.setattr("time.sleep", sleep)
    with opened(path, True, read_only=True) as reader:
        assert [record.offset for record in reader.read()] == list(range(12))
    assert looks == 3


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
