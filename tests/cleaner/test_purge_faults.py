"""A purge that is stopped at any point leaves each segment unchanged or purged, the oldest first, and its audit
contains only true statements."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import klog
from klog.cleaner import read_audit
from klog.disk import RealFiles
from klog.errors import ReadFailed, StorageOffline
from tests.cleaner.logs import append, done_in, fill, open_log
from tests.support.abandon import abandon
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.failing_files import FailingFiles
from tests.support.faulty_io import FaultyIo

READ_FAILURES_MAX = 3

KEY = b"key-1"
Records = list[tuple[int, bytes | None, bytes | None]]


def read_all(log: klog.Log) -> Records:
    return [(record.offset, record.key, record.value) for record in log.read(isolation="log_end")]


def three_segments(directory: Path) -> Records:
    with open_log(directory) as log:
        fill(log)
        return read_all(log)


def purge(directory: Path, files: CrashFiles) -> None:
    done_in(directory, lambda log: log.purge_key(KEY), files)


def check(directory: Path, before: Records) -> None:
    """Open the log, and check that the oldest segments have lost only the records of the key, and that the purge can be
    repeated."""
    lines = [line["outcome"] for line in read_audit(directory.parent)]
    held = {base: [it for it in before if it[1] == KEY and base <= it[0] < base + 45] for base in (0, 45, 90)}
    with open_log(directory, clean_shutdown=False) as log:
        found = read_all(log)
        assert [it for it in found if it[1] != KEY] == [it for it in before if it[1] != KEY]
        left = [it for it in found if it[1] == KEY and it[0] < 135]
        assert left in ([it for base in them for it in held[base]] for them in ((0, 45, 90), (45, 90), (90,), ()))
        assert lines in ([], ["begun"], ["begun", "done"], ["begun", "failed"])
        if left != [it for base in held for it in held[base]]:
            assert lines[:1] == ["begun"]
        if lines[-1:] == ["done"]:
            assert left == []
            assert not [path.name for path in directory.iterdir() if path.name.endswith(".log.deleted")]
        assert (log.log_start_offset, log.log_end_offset, log.recovery.bytes_truncated) == (0, 137, 0)
        assert log.purge_key(KEY).records_removed == len(left)
        assert [it for it in read_all(log) if it[1] == KEY and it[0] < 135] == []
    assert read_audit(directory.parent)[-1]["outcome"] == "done"
    assert [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")] == []
    assert [p for p in klog.verify(directory).problems if p.kind not in ("checkpoint", "leftover")] == []


def steps_of(directory: Path) -> list[str]:
    three_segments(directory)
    files = CrashFiles()
    purge(directory, files)
    return files.log


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.deep)])
def test_a_kill_anywhere(tmp_path: Path, every: int) -> None:
    steps = steps_of(tmp_path / "whole" / "t-0")
    before = three_segments(tmp_path / "original" / "t-0")
    first = next(number for number, step in enumerate(steps) if "klog-audit" in step)
    assert len(steps) > first + 40
    for stop_at in range(first, len(steps), every):
        directory = tmp_path / f"{stop_at}" / "t-0"
        shutil.copytree(tmp_path / "original", directory.parent)
        with pytest.raises(PowerCut):
            purge(directory, CrashFiles(stop_at))
        try:
            check(directory, before)
        except BaseException as error:
            error.add_note(f"stop_at={stop_at}: before {steps[stop_at]}")
            raise
        shutil.rmtree(directory.parent)


@pytest.mark.deep
def test_a_power_cut_anywhere(tmp_path: Path) -> None:
    """A1, A3: all that an audit line `done` states is on disk before the line."""
    steps = steps_of(tmp_path / "whole" / "t-0")
    before = three_segments(tmp_path / "original" / "t-0")
    first = next(number for number, step in enumerate(steps) if "klog-audit" in step)
    for stop_at in range(first, len(steps) + 1):
        directory = tmp_path / f"{stop_at}" / "t-0"
        shutil.copytree(tmp_path / "original", directory.parent)
        files = CrashFiles(stop_at)
        files.keep(directory.parent)
        try:
            purge(directory, files)
        except PowerCut:
            pass
        for state, root in files.states(directory.parent, tmp_path / "states", stop_at, randoms=1):
            try:
                check(Path(root) / "t-0", before)
            except BaseException as error:
                error.add_note(f"stop_at={stop_at} state={state}: {files.log[-3:]}")
                raise
        shutil.rmtree(tmp_path / "states")
        shutil.rmtree(directory.parent)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.deep)])
def test_a_disk_that_fails_anywhere(tmp_path: Path, every: int) -> None:
    """ENOSPC at the Nth operation, including those of the audit: before the first rename the log stays unchanged and
    can be used."""
    before = three_segments(tmp_path / "original" / "t-0")
    kept = [it for it in before if it[1] != KEY]
    for nth in range(1, 200, every):
        directory = tmp_path / f"{nth}" / "t-0"
        shutil.copytree(tmp_path / "original", directory.parent)
        files = FailingFiles(nth, errno.ENOSPC)
        files.armed = False
        log = open_log(directory, files=files)
        files.armed = True
        try:
            log.purge_key(KEY)
        except OSError:
            assert len(files.failed) == 1
        else:
            if not files.failed:
                files.armed = False
                log.close()
                break
            assert files.failed[0] in ("rename", "unlink")  # of replaced files: they are unlinked at once, or reported
        files.armed = False
        assert [it for it in read_all(log) if it[1] != KEY] == kept
        if log.offline is None:
            append(log, [(b"key-2", b"newest")])
            log.truncate_to(137)
        else:
            with pytest.raises(StorageOffline):
                append(log, [(b"key-2", b"never")])
        log.close()
        check(directory, before)
        shutil.rmtree(directory.parent)
    else:
        pytest.fail("no attempt succeeded")
    assert nth > 30


@pytest.mark.parametrize(
    ("call", "number", "final"),
    [
        ("pwrite", errno.EIO, True),
        ("pwrite", errno.ENOSPC, False),
        ("ftruncate", errno.EIO, True),
        ("fsync", errno.EIO, True),
        ("fsync", errno.ENOSPC, True),
    ],
)
def test_write_and_sync_errors_count_as_in_a_compaction(tmp_path: Path, call: str, number: int, final: bool) -> None:
    """P6, S2, F17, F19: the nth system call on a .cleaned file or the audit fails. As in a compaction, the log goes
    offline, or can be used and has no leftover files."""
    before = three_segments(tmp_path / "original" / "t-0")
    failed_in = set()
    with FaultyIo() as kernel:
        for nth in range(1, 100):
            directory = tmp_path / f"{nth}" / "t-0"
            shutil.copytree(tmp_path / "original", directory.parent)
            log = open_log(directory, files=RealFiles(kernel.table))
            rule, raised = kernel.rule(call, error=number, nth=nth, times=1), None
            try:
                log.purge_key(KEY)
            except OSError as error:
                raised = error
                failed_in.add(Path(error.filename).suffix)
            met = kernel.hits(rule) > 0
            kernel.heal()
            assert (None if raised is None else raised.errno) == (number if met else None)
            assert (log.offline is not None) == (met and final)
            if log.offline is None:
                assert left_over(directory) == []
                append(log, [(b"key-2", b"newest")])
                log.truncate_to(137)
                log.close()
            else:
                abandon(log)
            check(directory, before)
            shutil.rmtree(directory.parent)
            if not met:
                break
        else:
            pytest.fail("no attempt succeeded")
    assert nth > 3
    assert ".cleaned" in failed_in
    assert failed_in == {".cleaned"} if call == "ftruncate" else failed_in >= {".jsonl"}


def left_over(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]


@pytest.mark.parametrize("dry_run", [False, True])
def test_failed_reads_of_a_purge_count_as_any_failed_reads(tmp_path: Path, dry_run: bool) -> None:
    """P6, F20: each is reported, and several in a row take the log offline."""
    before = three_segments(tmp_path / "t-0")
    with FaultyIo() as kernel:
        log = open_log(tmp_path / "t-0", files=RealFiles(kernel.table))
        kernel.rule("preadv2", error=errno.EAGAIN)  # no page is in the page cache
        kernel.rule("pread", error=errno.EIO)
        for _ in range(READ_FAILURES_MAX):
            assert log.offline is None
            with pytest.raises(ReadFailed):
                log.purge_key(KEY, dry_run=dry_run)
        assert "reads in a row failed" in (log.offline or "")
        kernel.heal()
        abandon(log)
    check(tmp_path / "t-0", before)
