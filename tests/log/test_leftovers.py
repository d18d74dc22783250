"""Files that a killed process leaves beside the live files of a log."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

import klog
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
