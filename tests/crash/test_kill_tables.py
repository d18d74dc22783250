"""SIGKILL or a failing disk stops klog.spark.materialize at any point: the next call finds a whole table, and readers
of the target see each record once at any time.

The ordinary run stops at a sample of the steps; `deep` at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

import klog
from klog.errors import CorruptData
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.failing_files import FailingFiles
from tests.support.killer import killed_at
from tests.support.tables import check_seen, in_log, latest_of, manifest, materialize, shown, stored, table

SAMPLES = pytest.mark.parametrize("sample", [pytest.param(0, marks=[pytest.mark.deep, pytest.mark.timeout(1200)]), 12])
LATEST = pytest.mark.parametrize("latest", [False, True], ids=["history", "latest"])
TARGET_BYTES = 3000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A log and its materialized table; the log has newer records that the table lacks."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2, config={"segment.bytes": 4096})
        logs.append("t", records(0, 90))
    for latest in (False, True):
        materialize(tmp_path / "data", tmp_path / f"before-{latest}", latest=latest, target_bytes=TARGET_BYTES)
    with klog.open(tmp_path / "data") as logs:
        logs.append("t", records(90, 150))
    return tmp_path


def records(first: int, count: int) -> list[tuple[bytes, bytes | None]]:
    return [(b"k%d" % (n * n % 101), None if n % 7 == 3 else b"value %d " % n * 5) for n in range(first, first + count)]


def copied(home: Path, latest: bool) -> Path:
    target = home / "out"
    shutil.rmtree(target, ignore_errors=True)
    # Both names of a file stay names of one file, as a call leaves them.
    shutil.copytree(home / f"before-{latest}", target, copy_function=os.link)
    return target


def check(home: Path, target: Path, latest: bool) -> bool:
    """Check the target after a stop, and that the next call completes it. Returns whether the new records were
    added."""
    rows = in_log(home / "data")
    new = latest_of(rows) if latest else sorted(rows)
    old = sorted(stored(home / f"before-{latest}"))
    kept = sorted(stored(target))
    assert kept in (old, new)
    seen = sorted(shown(target))
    if kept == old:
        assert seen == old
    else:
        check_seen(seen, old, new, latest)
    assert sorted(table(home / "data", target)) == new
    materialize(home / "data", target, target_bytes=TARGET_BYTES)
    assert sorted(stored(target)) == sorted(shown(target)) == new
    found = manifest(target)
    names = {path.name for path in (target / "_klog" / "files").iterdir()}
    assert names == {*(file.name for file in found.files), *found.kept} and found.number == 2
    return kept == new


@LATEST
@SAMPLES
def test_a_kill_at_any_call_leaves_a_whole_table(home: Path, sample: int, latest: bool) -> None:
    def work(target: Path) -> Callable[[Callable[[], None]], object]:
        def run(armed: Callable[[], None]) -> None:
            armed()
            materialize(home / "data", target, target_bytes=TARGET_BYTES)

        return run

    calls = killed_at(0, work(copied(home, latest))).calls
    assert len(calls) > 25
    outcomes = set()
    for nth in (*range(1, len(calls) + 1, len(calls) // sample if sample else 1), len(calls), len(calls) + 1):
        target = copied(home, latest)
        end = killed_at(nth, work(target))
        added = check(home, target, latest)
        assert added or end.killed
        outcomes.add(added)
    assert outcomes == {False, True}


NAMES = ("open", "create", "fsync", "replace", "rename", "link", "unlink", "fsync_dir")


@LATEST
@pytest.mark.parametrize(("only", "stride"), [(NAMES, 1), (("write",), 9)], ids=["names", "torn writes"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_failure_of_the_disk_leaves_a_whole_table(
    home: Path, error: int, only: tuple[str, ...], stride: int, latest: bool
) -> None:
    """A Parquet file is written in many pieces: some of them fail."""
    for nth in range(1, 200, stride):
        target = copied(home, latest)
        files = FailingFiles(nth, error, torn=True)
        files.only = only
        try:
            materialize(home / "data", target, target_bytes=TARGET_BYTES, files=files)
        except OSError as raised:
            noted = "commit 2 is done" in "".join(getattr(raised, "__notes__", []))
            assert (manifest(target).number == 2) == noted or files.failed[0] == "fsync_dir"
        assert check(home, target, latest) or files.failed
        if not files.failed:
            assert nth > 5
            return
    raise AssertionError("no run had fewer operations")


def test_a_call_that_goes_on_after_a_stopped_one_keeps_what_that_has_done(home: Path) -> None:
    """The stopped call has replaced the manifest, or shown the table, but has not synced the directory (A3)."""
    for stop in ("fsync _klog/", "fsync out/"):
        target = copied(home, latest=False)
        files = CrashFiles()
        files.keep(target)
        with killed_before(files, stop):
            materialize(home / "data", target, target_bytes=TARGET_BYTES, files=files)
        assert materialize(home / "data", target, target_bytes=TARGET_BYTES, files=files).version == 2
        new = sorted(in_log(home / "data"))
        for state in files.cut(target).fixed():
            left = state.lay_out(home / f"{stop[6:-1]} {state.name}")
            assert manifest(left).number == 2
            assert sorted(stored(left)) == sorted(shown(left)) == new, state.name


@contextlib.contextmanager
def killed_before(files: CrashFiles, last: str) -> Iterator[None]:
    """The process dies before the last disk operation of this kind in the call."""
    plain, seen = files.step, len(files.log)

    def step(what: str) -> None:
        if what == last and any(one.startswith("rename") for one in files.log[seen:]):
            raise PowerCut(what)
        plain(what)

    with mock.patch.object(files, "step", step), contextlib.suppress(PowerCut):
        yield


def test_the_first_call_may_stop_anywhere(home: Path) -> None:
    """Before there is a manifest, the target is empty."""
    target = home / "new"

    def work(armed: Callable[[], None]) -> None:
        armed()
        materialize(home / "data", target, target_bytes=TARGET_BYTES)

    count = len(killed_at(0, work).calls)
    for nth in (*range(1, 7), *range(7, count + 1, count // 6)):
        shutil.rmtree(target, ignore_errors=True)
        assert killed_at(nth, work).killed
        try:
            found = manifest(target)
        except AssertionError:
            assert not list(target.glob("*.parquet"))
        else:
            assert found.number == 1
        materialize(home / "data", target, target_bytes=TARGET_BYTES)
        assert sorted(shown(target)) == sorted(in_log(home / "data"))


def test_a_table_whose_files_are_gone_is_not_shown(home: Path) -> None:
    target = copied(home, latest=False)
    for path in (target / "_klog" / "files").iterdir():
        path.unlink()
    with pytest.raises(CorruptData, match="a file of the table is missing"):
        materialize(home / "data", target)
