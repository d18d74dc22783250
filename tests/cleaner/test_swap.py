"""The swap is stopped at any point: a load finds the old log or the new one, with the same value for every key."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from pathlib import Path

import pytest

import klog
from klog.cleaner import Dirt, KeyMap, clean_round
from klog.cleaner.swap import check_unchanged
from klog.disk import RealFiles
from klog.errors import CorruptLog, Overtaken, StorageOffline
from tests.cleaner.logs import append, done_in, fill, offsets, open_log, values
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.failing_files import FailingFiles

TEMPORARY = (".cleaned", ".swap", ".deleted")


def three_segments(directory: Path, *, emptied: bool = False) -> tuple[dict[bytes, bytes], list[int]]:
    """Write and close a log. emptied: a cleaning removes every record of the first three segments, which stay."""
    with open_log(directory) as log:
        fill(log)
        if emptied:
            append(log, [(b"key-%d" % i, b"again") for i in range(10)])
            log.roll()
            append(log, [(b"key-1", b"newest")])
        return values(log), offsets(log)


def config(emptied: bool) -> dict[str, int]:
    return {"segment.bytes": 4096} if emptied else {}


def compact(directory: Path, files: CrashFiles | None, emptied: bool = False) -> None:
    done_in(directory, klog.Log.compact, files, config=config(emptied))


def check(directory: Path, expected: dict[bytes, bytes], before: list[int], emptied: bool = False) -> None:
    """Open the log and check its records, leftovers and checkpoint; it can be cleaned again."""
    with open_log(directory, config=config(emptied), clean_shutdown=False) as log:
        assert values(log) == expected
        found = offsets(log)
        assert set(found) <= set(before)
        dirty_end = 147 if emptied else 135
        assert [offset for offset in found if offset >= dirty_end] == before[dirty_end:]
        assert (log.log_start_offset, log.log_end_offset) == (0, before[-1] + 1)
        assert log.recovery.bytes_truncated == 0
        log.compact()
        assert values(log) == expected
        assert len(offsets(log)) == 12
    names = [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    assert names == []
    assert [p for p in klog.verify(directory).problems if p.kind not in ("checkpoint", "leftover")] == []


def reads(directory: Path, expected: dict[bytes, bytes]) -> bool:
    """Open a log for reading, which changes nothing. False if the error says how the swap is finished."""
    try:
        with klog.Log.open(directory, read_only=True) as log:
            assert values(log) == expected
    except CorruptLog as error:
        if "open the log for writing once" not in str(error):
            raise
        return False
    return True


def steps_of(directory: Path, emptied: bool) -> list[str]:
    three_segments(directory, emptied=emptied)
    files = CrashFiles()
    compact(directory, files, emptied)
    return files.log


class SwapOrder(CrashFiles):
    """Checks what is durable before each rename of a swap."""

    checks = 0

    def rename(self, source: str, target: str) -> None:
        durable = {os.path.basename(name) for name in self.durable_names}
        if target.endswith(".swap"):
            assert self.is_synced(source), f"S5: {os.path.basename(source)} gets a name of a complete file"
        if target.endswith(".log.deleted"):
            assert any(name.endswith(".log.swap") for name in durable), "W1: an original goes before its replacement"
            self.checks += 1
        elif source.endswith(".log.swap"):
            assert not any(name.endswith(".cleaned") for name in durable), "a load would drop the .swap"
            self.checks += 1
        super().rename(source, target)


def test_the_disk_knows_the_swap_before_the_originals_go(tmp_path: Path) -> None:
    """W1: no order of renames in one directory is assumed; only its syncs count."""
    three_segments(tmp_path / "t-0")
    files = SwapOrder()
    files.keep(tmp_path)
    compact(tmp_path / "t-0", files)
    assert files.checks >= 2
    present = {str(path) for path in (tmp_path / "t-0").glob("*.log*")}
    logs = {name for name in files.durable_names if ".log" in os.path.basename(name)}
    assert {name for name in logs if not name.endswith(".deleted")} == {
        name for name in present if not name.endswith(".deleted")
    }, "the names of the new log are not durable when compact returns"


@pytest.mark.parametrize("emptied", [False, True])
def test_a_kill_anywhere_leaves_the_old_log_or_the_new_one(tmp_path: Path, emptied: bool) -> None:
    """CL39, W1, W3, W5: the process is killed before any operation of the cleaning, including those of opening the log.
    A reader finds the old or the new log, or raises an error."""
    refused = 0
    steps = steps_of(tmp_path / "whole" / "t-0", emptied)
    original = tmp_path / "original" / "t-0"
    expected, before = three_segments(original, emptied=emptied)
    assert len(steps) >= 30
    for stop_at in range(len(steps)):
        directory = tmp_path / f"{stop_at}" / "t-0"
        shutil.copytree(original, directory)
        with pytest.raises(PowerCut):
            compact(directory, CrashFiles(stop_at), emptied)
        try:
            refused += not reads(directory, expected)
            check(directory, expected, before, emptied)
        except BaseException as error:
            error.add_note(f"stop_at={stop_at}: before {steps[stop_at]}")
            raise
        shutil.rmtree(directory.parent)
    assert 0 < refused < 30


@pytest.mark.parametrize("emptied", [False, True])
def test_a_power_cut_anywhere_leaves_the_old_log_or_the_new_one(tmp_path: Path, emptied: bool) -> None:
    """CL39, W1, W4: the same holds if old names reappear because a rename was not synced, or if their replacements are
    missing."""
    steps = steps_of(tmp_path / "whole" / "t-0", emptied)
    original = tmp_path / "original" / "t-0"
    expected, before = three_segments(original, emptied=emptied)
    first = next(number for number, step in enumerate(steps) if ".cleaned" in step)
    for stop_at in range(first, len(steps) + 1):
        directory = tmp_path / f"{stop_at}" / "t-0"
        shutil.copytree(original, directory)
        files = CrashFiles(stop_at)
        files.keep(directory)
        try:
            compact(directory, files, emptied)
        except PowerCut:
            pass
        for state, root in files.states(directory.parent, tmp_path / "states", stop_at, randoms=1):
            try:
                check(root / "t-0", expected, before, emptied)
            except BaseException as error:
                error.add_note(f"stop_at={stop_at} state={state}: {files.log[-3:]}")
                raise
        shutil.rmtree(tmp_path / "states")
        shutil.rmtree(directory.parent)


def test_the_directory_is_synced_before_and_after_the_renames(tmp_path: Path) -> None:
    """W1: before any source is renamed, and after the last rename."""
    steps = steps_of(tmp_path / "t-0", False)
    swaps = [n for n, step in enumerate(steps) if step.startswith("rename") and step.endswith(".swap")]
    gone = [n for n, step in enumerate(steps) if step.startswith("rename") and step.endswith(".deleted")]
    final = [n for n, step in enumerate(steps) if step.startswith("rename") and ".swap " in step]
    syncs = [n for n, step in enumerate(steps) if step == "fsync t-0/"]
    written = [n for n, step in enumerate(steps) if step.startswith("fsync") and ".cleaned" in step]
    assert len(written) >= 3
    assert max(written) < min(swaps)
    assert any(max(swaps) < n < min(gone) for n in syncs)
    assert max(gone) < min(final)
    assert any(n > max(final) for n in syncs)


class FreeNames(RealFiles):
    """Checks that a name ending in .deleted is free when a file gets it; `freed` counts those that were not."""

    freed = 0

    def unlink(self, path: str) -> None:
        self.freed += path.endswith(".deleted") and os.path.exists(path)
        super().unlink(path)

    def rename(self, source: str, target: str) -> None:
        assert not (target.endswith(".deleted") and os.path.exists(target))
        super().rename(source, target)


def test_a_file_that_waits_for_its_deletion_goes_before_another_gets_its_name(tmp_path: Path) -> None:
    """W5: both cleanings replace the segment at 0, the second within file.delete.delay.ms of the first."""
    files = FreeNames()
    with open_log(tmp_path / "t-0", files=files) as log:
        for _ in range(2):
            fill(log)
            before, freed = values(log), files.freed
            log.compact(roll=True)
            assert values(log) == before
        assert files.freed > freed


SUFFIXES = ("", ".cleaned", ".swap", ".deleted")


def test_a_load_resolves_every_mixture_of_names_to_the_old_or_new_log(tmp_path: Path) -> None:
    """W2, W3: the sources, each present, marked for deletion or gone, beside their replacements at every stage: 3 x 27
    directories, of which those count that a cleaning can leave."""
    original = tmp_path / "original" / "t-0"
    expected, before = three_segments(original)
    cleaned = tmp_path / "cleaned" / "t-0"
    shutil.copytree(original, cleaned)
    compact(cleaned, None)
    new = [path for path in cleaned.iterdir() if path.name.startswith("0" * 20) and path.suffix != ".deleted"]
    for stage in (".cleaned", ".swap", "mixed"):
        for fates in itertools.product(("there", "going", "gone"), repeat=3):
            if stage != ".swap" and fates != ("there",) * 3:
                continue  # sources go only after every new file is .swap
            directory = tmp_path / "case" / "t-0"
            shutil.copytree(original, directory)
            for base, fate in zip((0, 45, 90), fates, strict=True):
                for path in list(directory.glob(f"{base:020d}.*")):
                    if fate == "gone":
                        path.unlink()
                    elif fate == "going":
                        path.rename(path.with_name(path.name + ".deleted"))
            for number, path in enumerate(sorted(new)):
                suffix = (".swap", ".cleaned")[number % 2] if stage == "mixed" else stage
                shutil.copy(path, directory / (path.name + suffix))
            try:
                check(directory, expected, before)
            except BaseException as error:
                error.add_note(f"{stage} {fates}")
                raise
            shutil.rmtree(directory.parent)


def test_a_swap_with_a_flipped_bit_or_a_torn_end_is_dropped(tmp_path: Path) -> None:
    """W2: the originals exist, and are used."""
    original = tmp_path / "original" / "t-0"
    expected, before = three_segments(original)
    cleaned = tmp_path / "cleaned" / "t-0"
    shutil.copytree(original, cleaned)
    compact(cleaned, None)
    data = (cleaned / f"{0:020d}.log").read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 4
    for number, bad in enumerate((bytes(flipped), data[:-7], data[:100], b"")):
        directory = tmp_path / f"{number}" / "t-0"
        shutil.copytree(original, directory)
        (directory / f"{0:020d}.log.swap").write_bytes(bad)
        check(directory, expected, before)


def test_a_disk_that_fails_anywhere_leaves_a_log_that_reads_and_opens(tmp_path: Path) -> None:
    """Before the first rename the log stays unchanged and can be used; after it, the log is offline until it is opened
    again."""
    original = tmp_path / "original" / "t-0"
    expected, before = three_segments(original)
    for nth in range(1, 200):
        directory = tmp_path / f"{nth}" / "t-0"
        shutil.copytree(original, directory)
        files = FailingFiles(nth, errno.ENOSPC)
        files.armed = False
        log = open_log(directory, files=files)
        files.armed = True
        try:
            log.compact()
        except OSError:
            assert len(files.failed) == 1
        else:
            if not files.failed:
                files.armed = False
                log.close()
                break
            assert files.failed[0] in ("rename", "unlink")  # of replaced files: they are unlinked at once
        files.armed = False
        assert values(log) == expected
        if log.offline is None:
            assert not [p.name for p in directory.iterdir() if p.suffix in (".cleaned", ".swap")]
            append(log, [(b"key-1", b"newest")])
            log.truncate_to(137)
            log.close()
        else:
            with pytest.raises(StorageOffline):
                append(log, [(b"key-1", b"never")])
            log.close()
        check(directory, expected, before)
        shutil.rmtree(directory.parent)
    else:
        pytest.fail("no attempt succeeded")
    assert nth > 10


class Interrupted(RealFiles):
    """Raises KeyboardInterrupt once, around the first rename to such a name, or after such a directory sync."""

    def __init__(self, step: str, suffix: str) -> None:
        super().__init__()
        self.step, self.suffix = step, suffix

    def rename(self, source: str, target: str) -> None:
        meant = target.endswith(self.suffix)
        self._interrupt("before", meant)
        super().rename(source, target)
        self._interrupt("renamed", meant)

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self._interrupt("synced", any(name.endswith(self.suffix) for name in os.listdir(path)))

    def _interrupt(self, step: str, meant: bool) -> None:
        if meant and step == self.step:
            self.step = ""
            raise KeyboardInterrupt


@pytest.mark.parametrize("suffix", [".swap", ".deleted"])
@pytest.mark.parametrize("step", ["before", "renamed", "synced"])
def test_an_interrupted_swap_refuses_further_writes(tmp_path: Path, step: str, suffix: str) -> None:
    """A load would choose one side of the swap, and records appended since would be lost."""
    expected, before = three_segments(tmp_path / "t-0")
    with open_log(tmp_path / "t-0", files=Interrupted(step, suffix)) as log:
        with pytest.raises(KeyboardInterrupt):
            log.compact()
        assert values(log) == expected
        with pytest.raises(StorageOffline):
            log.truncate_to(0)
    check(tmp_path / "t-0", expected, before)


def test_retention_during_a_cleaning_ends_only_the_round(tmp_path: Path) -> None:
    """CL2: the caller gets no error, the files are renamed once, and the next attempt cleans the rest."""
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "compact,delete"}) as log:
        fill(log)
        expected = values(log)
        taken = []

        def retention(event: object) -> None:
            if not taken and getattr(event, "stage", "") == "clean":
                taken.append(log.maybe_increment_log_start_offset(45))
                assert log.apply_retention() == 1

        stats = log.compact(progress=retention)
        assert taken == [True]
        assert (stats.rounds, log.log_start_offset, len(log.segments)) == (1, 45, 2)
        assert values(log) == expected
        assert len([p for p in (tmp_path / "t-0").iterdir() if p.name == f"{0:020d}.log.deleted"]) == 1


def test_changed_segments_are_not_swapped(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        sources = log.segments[:3]
        sizes = [segment.size for segment in sources]
        assert check_unchanged(log._core, log.path, sources, sizes) == 0
        with pytest.raises(Overtaken):
            check_unchanged(log._core, log.path + "x", sources, sizes)
        with pytest.raises(Overtaken):
            check_unchanged(log._core, log.path, sources, [1, *sizes[1:]])
        log.truncate_to(100)
        with pytest.raises(Overtaken):
            check_unchanged(log._core, log.path, sources, sizes)


def test_a_truncated_log_gets_a_new_cleanable_range(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        range_ = Dirt(0, 135, 0, log.size)
        log.truncate_to(100)
        with pytest.raises(Overtaken, match="135"):
            clean_round(log._core, range_, KeyMap(24 * 100), 0)


@pytest.mark.parametrize("change", ["retention", "truncation"])
def test_a_log_that_has_lost_the_segments_of_a_range_gets_a_new_one(tmp_path: Path, change: str) -> None:
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "compact,delete"}) as log:
        fill(log)
        end = log.segments[1].base_offset
        range_ = Dirt(0, end, 0, log.segments[0].size)
        if change == "retention":
            log.delete_records(end)
            log.apply_retention()
        else:
            log.truncate_to(end - 10)
            append(log, [(b"other", b"value")] * 20)
        with pytest.raises(Overtaken, match=str(end)):
            clean_round(log._core, range_, KeyMap(24 * 100), 0)
        log.compact(roll=True)
        assert log.segments[0].size and len(offsets(log)) == len(values(log))


def test_a_truncation_during_a_round_restarts_it(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        cut = []

        def truncate(event: object) -> None:
            if not cut and getattr(event, "stage", "") == "clean":
                cut.append(log.truncate_to(60))

        stats = log.compact(progress=truncate)
        assert cut == [True]
        assert (stats.rounds, stats.first_dirty_offset) == (1, 45)
        assert offsets(log)[-1] == log.log_end_offset - 1 == 59
        assert values(log) == {b"key-%d" % i: b"value-%d" % (50 + i) for i in range(10)}
        assert not [p.name for p in (tmp_path / "t-0").iterdir() if p.suffix in (".cleaned", ".swap")]


@pytest.mark.parametrize("suffix", [".cleaned", ".swap", ".deleted"])
def test_a_directory_in_place_of_a_file_raises_and_stays(tmp_path: Path, suffix: str) -> None:
    """It is neither a leftover file nor a failed disk: the log stays in use, and opens again."""
    with open_log(tmp_path / "t-0") as log:
        fill(log)
        count = log.count()
        blocked = Path(log.segments[0].path + suffix)
        blocked.mkdir()
        (blocked / "precious").write_bytes(b"x")
        if suffix == ".cleaned":
            for act in (log.compact, lambda: log.purge_key(b"key-1")):
                with pytest.raises(IsADirectoryError, match="move it away") as caught:
                    act()
                assert caught.value.filename == str(blocked)
            assert log.offline is None
            append(log, [(b"k", b"v")])
            count += 1
    with open_log(tmp_path / "t-0", clean_shutdown=False) as log:
        assert log.count() == count
    assert (blocked / "precious").exists()
