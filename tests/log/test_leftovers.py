"""Files that a killed process leaves beside the live files of a log."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import klog
from klog.disk import Files, RealFiles
from klog.errors import CorruptLog
from klog.log.directory import checkpoint
from klog.log.directory._listing import Listing
from klog.log.load.leftovers import clear_leftovers
from klog.log.options import Policy
from klog.segment import names
from tests.support.batches import batch
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.damage import flip

FOREIGN = ("notes.tmp", "leader-epoch-checkpoint.tmp.old")


def test_only_klogs_own_temporaries_are_removed(tmp_path: Path) -> None:
    """S5: the temporary of Files.replace, in the partition and in its log.dir."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"v")])
    partition = tmp_path / "t-0"
    ours = [tmp_path / f"{name}.tmp" for name in checkpoint.NAMES]
    live = ("leader-epoch-checkpoint", "partition.metadata", "klog-gaps", f"{1:020d}.snapshot", f"{0:020d}.txnindex")
    ours += [partition / f"{name}.tmp" for name in live]
    theirs = [partition / name for name in FOREIGN]
    for path in (*ours, *theirs):
        path.write_bytes(b"half")
    with klog.open(tmp_path, read_only=True) as logs:
        assert logs.log("t").count() == 1
    assert all(path.exists() for path in ours)
    with klog.open(tmp_path) as logs:
        assert logs.log("t").count() == 1
        assert [path.name for path in (*ours, *theirs) if path.exists()] == [*FOREIGN]


def test_temporaries_are_recognized_by_name() -> None:
    assert names.is_temporary(f"{7:020d}.snapshot.tmp")
    assert not names.is_temporary(f"{7:020d}.snapshot")
    assert not names.is_temporary("x.tmp")


# ---- a replacement that was interrupted ------------------------------------------------------------------------------

OLD = {base: batch(6, base_offset=base) + batch(6, base_offset=base + 6) for base in (0, 12, 24)}
NEW = batch(1, base_offset=5) + batch(6, base_offset=12) + batch(6, base_offset=30)
LAST = batch(4, base_offset=36)
KEPT = {5, *range(12, 18), *range(30, 40)}  # what the compaction keeps, and the records after it
BROKEN = {"": NEW, "torn": NEW[:-1], "flipped": flip(NEW, len(NEW) // 2), "empty": b""}


def half_way(directory: Path, fates: tuple[str, ...], swap: bytes, cleaned: int | None) -> Path:
    """fates: of each original, the suffix of its name, or "gone"."""
    directory.mkdir(parents=True)
    for (base, data), fate in zip(OLD.items(), fates, strict=True):
        if fate != "gone":
            (directory / f"{base:020d}.log{fate}").write_bytes(data)
    (directory / f"{0:020d}.log.swap").write_bytes(swap)
    (directory / f"{0:020d}.timeindex.swap").write_bytes(b"")
    (directory / f"{36:020d}.log").write_bytes(LAST)
    if cleaned is not None:
        (directory / f"{cleaned:020d}.log.cleaned").write_bytes(OLD.get(cleaned, LAST)[:30])
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    """All files except indexes, which are rebuilt where they are missing."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if "index" not in path.suffixes[0]}


def read(directory: Path) -> set[int]:
    with klog.Log.open(directory, clean_shutdown=False, config={"cleanup.policy": "compact"}) as log:
        return {record.offset for record in log.read() if record.offset is not None}


class DropOrder(CrashFiles):
    """O2: checks what is durable when a .log.swap is dropped, since the next load decides by it."""

    dropped = 0

    def unlink(self, path: str) -> None:
        if path.endswith(".log.swap"):
            found = {name.rpartition("/")[2] for name in self.durable_names}
            assert {f"{base:020d}.log" for base in OLD} <= found, "else the only whole records are .deleted"
            assert f"{0:020d}.timeindex.swap" not in found, "alone it would count as ready"
            self.dropped += 1
        super().unlink(path)


@pytest.mark.parametrize("alone", [True, False])
def test_a_damaged_replacement_goes_after_the_originals_are_back(tmp_path: Path, alone: bool) -> None:
    """S6: no order of the names in which they reach the disk loses records."""
    directory = half_way(tmp_path / "t-0", (".deleted",) * 3, BROKEN["flipped"], None)
    if alone:
        (directory / f"{0:020d}.timeindex.swap").unlink()
    files = DropOrder()
    files.keep(tmp_path)
    clear_leftovers(Listing(str(directory)), files, "strict", lambda _: None)
    assert files.dropped == 1
    assert read(directory) >= KEPT


def cleared(directory: Path, files: Files | None = None, policy: Policy = "strict") -> list[str]:
    """The lines that are noted."""
    lines: list[str] = []
    clear_leftovers(Listing(str(directory)), files or RealFiles(), policy, lines.append)
    return lines


def stopped_anywhere(tmp_path: Path, prepare: Callable[[Path], Path]) -> Iterator[Path]:
    """The directory, with its leftovers cleared at once, and after a power cut at each step."""
    whole = CrashFiles()
    directory = prepare(tmp_path / "whole" / "t-0")
    cleared(directory, whole)
    yield directory
    for stop_at in range(whole.steps):
        directory = prepare(tmp_path / f"{stop_at}" / "t-0")
        with pytest.raises(PowerCut):
            cleared(directory, CrashFiles(stop_at))
        cleared(directory)
        yield directory


def test_what_is_done_is_noted(tmp_path: Path) -> None:
    size, log, times = len(NEW), f"{0:020d}.log.swap", f"{0:020d}.timeindex.swap"
    finished = half_way(tmp_path / "finished" / "t-0", ("",) * 3, NEW, None)
    assert cleared(finished) == ["compaction finished: segments of [0, 36) replaced"]
    dropped = half_way(tmp_path / "dropped" / "t-0", ("",) * 3, NEW, 12)
    names_of_dropped = (times, log, f"{12:020d}.log.cleaned")
    assert cleared(dropped) == [f"{name} dropped: unfinished compaction" for name in names_of_dropped]
    restored = half_way(tmp_path / "restored" / "t-0", ("", ".deleted", ".deleted"), BROKEN["torn"], None)
    at = size - len(batch(6))
    assert cleared(restored) == [
        f"{log}: truncated at byte {at} of {size - 1}, the originals are kept",
        *(f"segment {base} restored: its replacement is damaged" for base in (24, 12)),
        *(f"{name} dropped: unfinished compaction" for name in (times, log)),
    ]
    marked = half_way(tmp_path / "marked" / "t-0", ("", ".deleted", ""), NEW, None)
    for path in marked.glob("*.swap"):
        path.unlink()
    (marked / f"{12:020d}.index").write_bytes(b"")
    assert cleared(marked) == [f"{12:020d}.index removed: it has no .log"]


@pytest.mark.parametrize("policy", ["strict", "kafka"])
def test_strict_refuses_a_damaged_replacement_without_originals(tmp_path: Path, policy: Policy) -> None:
    """O1"""
    directory = half_way(tmp_path / "t-0", ("gone",) * 3, BROKEN["flipped"], None)
    before = contents(directory)
    if policy == "strict":
        with pytest.raises(CorruptLog, match="the segments that it was to replace are gone"):
            cleared(directory)
        assert contents(directory) == before
    else:
        cleared(directory, policy=policy)
        assert (directory / f"{0:020d}.log").read_bytes() == BROKEN["flipped"]


@pytest.mark.parametrize("bit", range(32))
def test_a_wrong_last_offset_in_a_replacement_needs_no_refusal(tmp_path: Path, bit: int) -> None:
    """O1: the originals are there."""
    directory = half_way(tmp_path / "t-0", ("",) * 3, flip(NEW, 26 - bit // 8, bit % 8), None)
    cleared(directory)
    assert sorted(contents(directory)) == [f"{base:020d}.log" for base in (0, 12, 24, 36)]


@pytest.mark.parametrize("swap", ["", "empty"])
def test_a_reader_refuses_what_only_a_replacement_holds(tmp_path: Path, swap: str) -> None:
    """Also the base offset of one without records: the log begins there."""
    directory = half_way(tmp_path / "t-0", ("gone",) * 3, BROKEN[swap], None)
    with pytest.raises(CorruptLog, match="an unfinished compaction: offset 0 and others") as caught:
        klog.Log.open(directory, read_only=True)
    assert caught.value.offset == 0


def test_an_original_comes_back_with_all_its_files(tmp_path: Path) -> None:
    """Also the only one, in a log that has lost its newest segment."""
    directory = half_way(tmp_path / "t-0", (".deleted", "gone", "gone"), b"", None)
    (directory / f"{36:020d}.log").unlink()
    expected = [f"{0:020d}{suffix}" for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)]
    for name in expected[1:]:
        (directory / f"{name}.deleted").write_bytes(b"")
    cleared(directory)
    assert sorted(path.name for path in directory.iterdir()) == sorted(expected)


def test_an_index_of_the_original_does_not_stay_beside_an_empty_replacement(tmp_path: Path) -> None:
    """It would show that records were lost."""
    directory, config = tmp_path / "t-0", {"index.interval.bytes": 0, "cleanup.policy": "compact"}
    with klog.Log.open(directory, config=config) as log:
        for _ in range(3):
            log.append([(b"k", b"v")])
        log.roll()
    (directory / f"{0:020d}.log").unlink()
    (directory / f"{0:020d}.log.swap").write_bytes(b"")
    with klog.Log.open(directory, config=config) as log:
        assert (log.log_start_offset, log.log_end_offset, log.count()) == (0, 3, 0)


def test_an_interrupted_load_keeps_the_indexes_of_a_replacement(tmp_path: Path) -> None:
    """O2: the .log gets its name first, for a load removes indexes that are live beside a .log.swap."""
    for directory in stopped_anywhere(tmp_path, lambda path: half_way(path, ("",) * 3, NEW, None)):
        expected = [f"{0:020d}.log", f"{0:020d}.timeindex", f"{36:020d}.log"]
        assert sorted(path.name for path in directory.iterdir()) == expected


class GoneBefore(CrashFiles):
    """Checks that no other file that ends with `gone` is on disk when one that ends with `last` is unlinked."""

    def __init__(self, gone: str, last: str) -> None:
        super().__init__()
        self.gone, self.last, self.checked = gone, last, False

    def unlink(self, path: str) -> None:
        if path.endswith(self.last):
            assert not [name for name in self.durable_names if name.endswith(self.gone) and name != path]
            self.checked = True
        super().unlink(path)


def test_an_interrupted_load_keeps_what_two_replacements_split(tmp_path: Path) -> None:
    """O2: if the damaged one went first, the other would count as a whole replacement."""

    def prepare(directory: Path) -> Path:
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.log").write_bytes(OLD[0])
        (directory / f"{0:020d}.log.swap").write_bytes(batch(6))
        (directory / f"{6:020d}.log.swap").write_bytes(flip(batch(6, base_offset=6), 70))
        (directory / f"{6:020d}.timeindex.swap").write_bytes(b"")
        return directory

    for directory in stopped_anywhere(tmp_path, prepare):
        assert contents(directory) == {f"{0:020d}.log": OLD[0]}
    files = GoneBefore(".swap", f"{6:020d}.log.swap")
    files.keep(prepare(tmp_path / "synced" / "t-0"))
    cleared(tmp_path / "synced" / "t-0", files)
    assert files.checked


def test_an_interrupted_load_leaves_no_index_of_a_deleted_segment(tmp_path: Path) -> None:
    """O2: it would show that a .log was lost. One that does so already is not removed."""

    def prepare(directory: Path) -> Path:
        half_way(directory, ("", ".deleted", ""), NEW, None)
        for path in directory.glob("*.swap"):
            path.unlink()
        (directory / f"{12:020d}.index").write_bytes(b"")
        return directory

    for directory in stopped_anywhere(tmp_path, prepare):
        assert sorted(path.name for path in directory.iterdir()) == [f"{base:020d}.log" for base in (0, 24, 36)]
    files = GoneBefore(".index", ".log.deleted")
    files.keep(prepare(tmp_path / "synced" / "t-0"))
    cleared(tmp_path / "synced" / "t-0", files)
    assert files.checked and not [name for name in files.durable_names if name.endswith(".deleted")]
    lost = prepare(tmp_path / "lost" / "t-0")
    (lost / f"{12:020d}.log.deleted").rename(lost / f"{30:020d}.log.deleted")
    with pytest.raises(CorruptLog, match="the segment that begins at 12 is missing"):
        klog.Log.open(lost, clean_shutdown=True, config={"cleanup.policy": "compact"})


def test_a_link_to_a_directory_is_a_leftover_itself(tmp_path: Path) -> None:
    directory, other = half_way(tmp_path / "t-0", ("",) * 3, NEW, None), tmp_path / "other"
    other.mkdir()
    (directory / f"{99:020d}.log.deleted").symlink_to(other)
    (directory / f"{98:020d}.log.deleted").mkdir()
    cleared(directory)
    assert [path.name for path in directory.glob("*.deleted")] == [f"{98:020d}.log.deleted"]
    assert other.is_dir()


@pytest.mark.parametrize("policy", ["strict", "kafka"])
@pytest.mark.parametrize("fates", list(itertools.product(("", ".deleted", "gone"), repeat=3)))
def test_no_subset_of_names_loses_a_record(tmp_path: Path, fates: tuple[str, ...], policy: Policy) -> None:
    """O1, O2: three originals, each live, renamed or unlinked, beside a .swap that is complete or not, and a .cleaned
    with any base offset or none. Records that the compaction keeps are there if any file has them, however often the
    load is stopped."""
    for number, (how, cleaned) in enumerate(itertools.product(BROKEN, (None, 0, 12, 24, 36))):
        check_state(tmp_path / f"{number}", fates, how, cleaned, policy)
        shutil.rmtree(tmp_path / f"{number}")


def check_state(path: Path, fates: tuple[str, ...], how: str, cleaned: int | None, policy: Policy) -> None:
    where = f"{fates} {how} {cleaned}"
    whole = half_way(path / "whole" / "t-0", fates, BROKEN[how], cleaned)
    before, files = contents(whole), CrashFiles()
    try:
        clear_leftovers(Listing(str(whole)), files, policy, lambda text: None)
    except CorruptLog:
        assert policy == "strict"
        assert how
        assert "gone" in fates
        assert before.items() <= contents(whole).items() or ".deleted" in fates  # those are renamed back
        return
    assert not [name for name in contents(whole) if not name.endswith(".log")], where
    after = contents(whole)
    if not how or "gone" not in fates:
        assert read(whole) >= KEPT, where
    for stop_at in range(len(files.log)):
        directory = half_way(path / f"{stop_at}" / "t-0", fates, BROKEN[how], cleaned)
        with pytest.raises(PowerCut):
            clear_leftovers(Listing(str(directory)), CrashFiles(stop_at), policy, lambda text: None)
        clear_leftovers(Listing(str(directory)), CrashFiles(), policy, lambda text: None)
        assert contents(directory) == after, f"{where}, stopped before {files.log[stop_at]}"
