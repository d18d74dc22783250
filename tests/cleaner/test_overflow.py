"""A cleaning of segments whose offsets exceed the range of their index, as cleaners of old Kafka versions left them."""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path

import pytest

import klog
from klog.cleaner.overflow import split_overflowed
from klog.clock import ManualClock
from klog.errors import CorruptBatch
from tests.cleaner.logs import NOW, append, open_log, values
from tests.support.abandon import abandon
from tests.support.batches import marker, transactional
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.failing_files import FailingFiles
from tests.support.steps import at_step

BEYOND = 2**31
CONFIG = {"cleanup.policy": "compact", "index.interval.bytes": 200, "segment.index.bytes": 4096}
FAR = [50, BEYOND + 60, 2 * BEYOND + 100]


def batches(start: int, count: int, first_key: int = 0) -> bytes:
    """Batches of three records; every run of batches repeats the keys."""
    return b"".join(
        klog.record.encode(
            [(b"k%d" % (first_key + 3 * n + i), b"%d" % (start + 3 * n + i), NOW) for i in range(3)],
            base_offset=start + 3 * n,
            leader_epoch=0,
        )
        for n in range(count)
    )


def overflowed(directory: Path, *, base: int = 50, active: bytes = b"") -> Path:
    """One segment with three runs far from each other, with more keys each, between a normal and the active segment."""
    directory.mkdir(parents=True)
    data = {0: batches(0, 2), base: b"".join(batches(start, 12 - 3 * n) for n, start in enumerate(FAR))}
    data[3 * BEYOND] = active or batches(3 * BEYOND, 1)
    for first, stored in data.items():
        (directory / f"{first:020d}.log").write_bytes(stored)
    return directory


def opened(directory: Path, files: object = None) -> klog.Log:
    return klog.Log.open(
        directory,
        config=CONFIG,
        clean_shutdown=True,
        recovery_point=4 * BEYOND,
        clock=ManualClock(NOW),
        **({} if files is None else {"files": files}),  # type: ignore[arg-type]
    )


def bases(log: klog.Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def offsets(log: klog.Log) -> list[int]:
    return [record.offset for record in log.read(isolation="log_end")]


def survivors() -> list[int]:
    """Check the records of the keys: 27 to 35 occur once, 18 to 26 twice, lower ones three times and in the active
    segment (which is not counted)."""
    return [*range(50 + 27, 50 + 36), *range(FAR[1] + 18, FAR[1] + 27), *range(FAR[2], FAR[2] + 18)]


def test_an_overflowed_segment_is_split_and_then_cleaned(tmp_path: Path) -> None:
    """CL38: a load after a clean stop keeps the segment. The cleaning splits it, begins again, and keeps the latest
    value of every key."""
    with opened(overflowed(tmp_path / "t-0")) as log:
        assert bases(log) == [0, 50, 3 * BEYOND]
        before, end = values(log), log.log_end_offset
        reader = iter(log.read())
        seen = [next(reader).offset for _ in range(10)]
        stats = log.compact()
        assert (stats.rounds, stats.first_dirty_offset) == (1, 3 * BEYOND)
        assert bases(log) == [0, *FAR, 3 * BEYOND]
        assert values(log) == before
        assert offsets(log) == [*survivors(), *range(3 * BEYOND, 3 * BEYOND + 3)]
        assert set(offsets(log)) <= {*seen, *(record.offset for record in reader)}
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        for offset in offsets(log):
            assert next(iter(log.read(offset))).offset == offset
        names = sorted(path.name for path in (tmp_path / "t-0").iterdir())
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        for segment in log.segments:
            index = Path(segment.path).with_suffix(".index").read_bytes()[: 8 * segment.index.entries]
            assert all(index[at] < 128 for at in range(0, len(index), 8))
    with opened(tmp_path / "t-0") as log:
        assert (bases(log), values(log)) == ([0, *FAR, 3 * BEYOND], before)
        assert [p for p in klog.verify(tmp_path / "t-0").problems if p.kind not in ("checkpoint", "gap")] == []


def test_splitting_loses_no_record(tmp_path: Path) -> None:
    """CL38: the cleaning is stopped after the split, which adds a segment for each run; a dry run adds none."""
    with opened(overflowed(tmp_path / "t-0")) as log:
        before = offsets(log)
        data = b"".join(Path(segment.path).read_bytes() for segment in log.segments)
        log.compact(dry_run=True)
        assert bases(log) == [0, 50, 3 * BEYOND]

        def stop_after_the_split(event: object) -> None:
            if len(log.segments) > 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            log.compact(progress=stop_after_the_split)
        assert bases(log) == [0, *FAR, 3 * BEYOND]
        assert offsets(log) == before[6:]  # the segment before it has already been cleaned
        assert b"".join(Path(segment.path).read_bytes() for segment in log.segments) == data[len(batches(0, 2)) :]


def test_no_split_if_the_remaining_offsets_fit(tmp_path: Path) -> None:
    """CL38: no record of the distant runs is left."""
    directory = tmp_path / "t-0"
    overflowed(directory)
    with opened(directory) as log:
        log.append([(b"k%d" % n, b"last", NOW) for n in range(27)])
        log.compact(roll=True)
        assert bases(log) == [0, 50, 3 * BEYOND, log.log_end_offset]
        assert offsets(log) == [*range(50 + 27, 50 + 36), *range(3 * BEYOND + 3, 3 * BEYOND + 30)]


def test_a_base_offset_too_far_below_all_batches(tmp_path: Path) -> None:
    """CL38: the segment is renamed to its first batch's base offset, and split after that if needed."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    far = [FAR[1], FAR[2]]
    data = {0: b"".join(batches(start, 4) for start in far), 3 * BEYOND: batches(3 * BEYOND, 1)}
    for first, stored in data.items():
        (directory / f"{first:020d}.log").write_bytes(stored)
    with opened(directory) as log:
        before = values(log)
        log.compact(roll=True)
        assert values(log) == before
        assert bases(log)[0] == FAR[1]
        assert offsets(log)[:3] == [FAR[2] + 3, FAR[2] + 4, FAR[2] + 5]
    with opened(directory) as log:
        assert values(log) == before


def test_many_overflowed_segments(tmp_path: Path) -> None:
    """CL38: one call splits them one after the other."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for n in range(11):
        base = 2 * n * BEYOND
        data = batches(base, 2, 100 * n) + batches(base + BEYOND + 1, 2, 100 * n + 50)
        (directory / f"{base:020d}.log").write_bytes(data)
    end = 22 * BEYOND
    (directory / f"{end:020d}.log").write_bytes(b"")
    with opened(directory) as log:
        before = offsets(log)
        assert len(before) == 11 * 12
        assert log.compact().first_dirty_offset == end
        assert bases(log) == sorted([*range(0, end, 2 * BEYOND), *range(BEYOND + 1, end, 2 * BEYOND), end])
        assert offsets(log) == before


def test_transactions_survive_the_split(tmp_path: Path) -> None:
    """CL38: aborted records stay invisible; their markers and index entries stay."""
    directory = tmp_path / "t-0"
    with open_log(directory, config={"segment.bytes": 1 << 20}) as log:
        append(log, [(b"first", b"1")])
        log.append_batches(transactional(7, 0, 0, key=b"aborted"))
        log.append_batches(marker(7, 0, "abort"), origin="coordinator")
        append(log, [(b"second", b"2")])
        log.roll(3 * BEYOND)
    path = directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + batches(BEYOND + 50, 2))
    for cache in directory.glob(f"{0:020d}.*index"):
        cache.unlink()
    with klog.Log.open(directory, config=CONFIG, clean_shutdown=True, clock=ManualClock(NOW)) as log:
        before = [record.key for record in log.read(isolation="read_committed")]
        assert b"aborted" not in before
        log.compact()
        assert bases(log) == [0, BEYOND + 50, 3 * BEYOND]
        assert [record.key for record in log.read(isolation="read_committed")] == before
        assert [entry.last_offset for entry in log.aborted_transactions()] == [2]


def test_a_flipped_bit_causes_no_split(tmp_path: Path) -> None:
    """The base offset is outside the checksum: this is damage, which stops the cleaning."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    data = bytearray(batches(0, 5))
    data[len(batches(0, 4)) + 3] ^= 0x10
    (directory / f"{0:020d}.log").write_bytes(data)
    (directory / f"{2**40:020d}.log").write_bytes(batches(2**40, 1))
    with opened(directory) as log:
        with pytest.raises(CorruptBatch, match="one bit"):
            log.compact()
        assert (bases(log), Path(log.segments[0].path).read_bytes()) == ([0, 2**40], data)
        assert not list(directory.glob("*.cleaned"))


EVERY = pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.deep)])


@EVERY
def test_a_kill_anywhere_during_a_split(tmp_path: Path, step: int) -> None:
    """CL38, W1, W3: after a kill a load finds all records or the cleaned ones, with every key's last value."""
    whole = CrashFiles()
    with opened(overflowed(tmp_path / "whole" / "t-0")) as log:
        expected, before = values(log), offsets(log)
    log = opened(tmp_path / "whole" / "t-0", whole)
    log.compact()
    abandon(log)
    first = next(number for number, step in enumerate(whole.log) if ".cleaned" in step)
    assert whole.steps - first > 20
    for stop_at in range(first, whole.steps, step):
        directory = overflowed(tmp_path / f"{stop_at}" / "t-0")
        opened(directory).close()
        log = opened(directory, CrashFiles(stop_at))
        with pytest.raises(PowerCut):
            log.compact()
        abandon(log)
        with klog.Log.open(directory, config=CONFIG, clean_shutdown=False, clock=ManualClock(NOW)) as log:
            assert values(log) == expected, whole.log[stop_at]
            assert set(offsets(log)) <= set(before)
            log.compact()
            assert offsets(log) == [*survivors(), *range(3 * BEYOND, 3 * BEYOND + 3)], whole.log[stop_at]
        shutil.rmtree(directory.parent)


@EVERY
def test_a_power_cut_anywhere_during_a_split(tmp_path: Path, step: int) -> None:
    """CL38, W1, W4: the same holds if old names reappear because a rename was not synced, or if their replacements are
    missing."""
    directory = overflowed(tmp_path / "original" / "t-0")
    with opened(directory) as log:
        expected, before = values(log), offsets(log)
    whole = CrashFiles()
    shutil.copytree(directory, tmp_path / "whole" / "t-0")
    log = opened(tmp_path / "whole" / "t-0", whole)
    log.compact()
    abandon(log)
    first = next(number for number, made in enumerate(whole.log) if ".cleaned" in made)
    for stop_at in range(first, whole.steps + 1, step):
        place = tmp_path / f"{stop_at}" / "t-0"
        shutil.copytree(directory, place)
        files = CrashFiles(stop_at)
        files.keep(place)
        log = opened(place, files)
        with contextlib.suppress(PowerCut):
            log.compact()
        abandon(log)
        for state, root in files.states(place.parent, tmp_path / "states", stop_at, randoms=1):
            note = stop_at, state, files.log[-3:]
            with klog.Log.open(root / "t-0", config=CONFIG, clean_shutdown=False, clock=ManualClock(NOW)) as log:
                assert values(log) == expected, note
                assert set(offsets(log)) <= set(before), note
                log.compact()
                assert offsets(log) == [*survivors(), *range(3 * BEYOND, 3 * BEYOND + 3)], note
        shutil.rmtree(tmp_path / "states")
        shutil.rmtree(place.parent)


@EVERY
def test_a_full_disk_keeps_the_original_segment(tmp_path: Path, step: int) -> None:
    """F3: the parts are unlinked and the segment stays; with free space the cleaning succeeds."""
    for nth in range(1, 200, step):
        directory = overflowed(tmp_path / f"{nth}" / "t-0")
        files = FailingFiles(nth, errno.ENOSPC)
        files.armed = False
        log = opened(directory, files)
        expected = values(log)
        files.armed = True
        try:
            log.compact()
        except OSError:
            files.armed = False
        else:
            if not files.failed:
                files.armed = False
                log.close()
                break
        files.armed = False
        assert values(log) == expected
        if log.offline is None:
            assert not list(directory.glob("*.cleaned"))
        log.close()
        with klog.Log.open(directory, config=CONFIG, clean_shutdown=False, clock=ManualClock(NOW)) as log:
            assert values(log) == expected
        shutil.rmtree(directory.parent)
    assert nth > 15


@pytest.mark.parametrize("base", [0, FAR[1]], ids=["renamed", "split"])
def test_an_interrupt_at_any_line_keeps_log_and_directory_consistent(tmp_path: Path, base: int) -> None:
    """A log in use has the same segments as its directory, or is offline and its next load finds every record."""
    original = tmp_path / "original" / "t-0"
    original.mkdir(parents=True)
    (original / f"{base:020d}.log").write_bytes(batches(FAR[1], 2) + batches(2 * FAR[2], 2))
    (original / f"{6 * BEYOND:020d}.log").write_bytes(batches(6 * BEYOND, 1))

    def interrupt() -> None:
        raise KeyboardInterrupt

    number, came, offline = 0, True, 0
    while came:
        directory = tmp_path / str(number) / "t-0"
        shutil.copytree(original, directory)
        log = opened(directory)
        segment, before = log.segments[0], offsets(log)
        try:
            came, _ = at_step(number, interrupt, lambda log=log, segment=segment: split_overflowed(log._core, segment))
        except KeyboardInterrupt:
            came = True
        if log.offline is None:
            assert sorted(path.name for path in directory.glob("*.log")) == [f"{b:020d}.log" for b in bases(log)], (
                number
            )
            assert offsets(log) == before, number
            log.append([(b"k", b"after", NOW)])
            before.append(log.log_end_offset - 1)
            log.flush()
        else:
            offline += 1
        abandon(log)
        with opened(directory) as log:
            assert offsets(log) == before, number
        shutil.rmtree(directory.parent)
        number += 1
    assert number > 100
    assert offline > 10


def test_the_parts_of_a_split_are_named_from_the_highest_base_down(tmp_path: Path) -> None:
    """W1: a broker's load drops each .swap above a .cleaned, and finishes the others without the rest of the split."""
    directory, files = overflowed(tmp_path / "t-0"), CrashFiles()
    files.keep(tmp_path)
    with opened(directory, files) as log:
        split_overflowed(log._core, log.segments[1])
    renames = [step.split()[2] for step in files.log if step.startswith("rename")]
    swaps = [name for name in renames if name.endswith(".log.swap")]
    assert swaps == [f"{base:020d}.log.swap" for base in reversed(FAR)]
