"""Segments with offsets beyond the range of their indexes are split at load, also across crashes; a batch
whose base offset has a flipped bit does not count as an overflow."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock, SystemClock
from klog.config import LogConfig
from klog.disk import HandleCache, RealFiles
from klog.errors import CorruptLog
from klog.log.directory._listing import Listing
from klog.log.load.inputs import Inputs, new_segment
from klog.log.load.leftovers import clear_leftovers
from klog.log.load.overflow import copy_part, split_segment
from klog.record import encode
from klog.segment import names
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.legacy_reference import Message, encode_message, reseal, wrap

T = 1_700_000_000_000
BEYOND = 2**31
CONFIG = {"index.interval.bytes": 200, "segment.index.bytes": 4096, "retention.ms": -1, "cleanup.policy": "compact"}


def batch(offset: int, count: int = 3) -> bytes:
    records = [(b"k%d" % n, b"value of %d" % n, T + n % 1000) for n in range(offset, offset + count)]
    return encode(records, base_offset=offset, leader_epoch=0)


def run_of(start: int, batches: int) -> bytes:
    return b"".join(batch(start + 3 * n) for n in range(batches))


OVERFLOWED = run_of(10, 20) + run_of(BEYOND + 50, 20) + run_of(2 * BEYOND + 100, 20)
FIRST_PARTS = [10, BEYOND + 50, 2 * BEYOND + 100]


def make(directory: Path, segments: dict[int, bytes]) -> Path:
    directory.mkdir(parents=True)
    for base, data in segments.items():
        (directory / f"{base:020d}.log").write_bytes(data)
    return directory


def open_log(directory: Path, **options: object) -> klog.Log:
    options = {"clean_shutdown": False, "recovery": "kafka", **options}
    return klog.Log.open(directory, config=CONFIG, clock=ManualClock(T + 10_000), **options)  # type: ignore[arg-type]


def offsets(log: klog.Log) -> list[int]:
    return [record.offset for record in log.read()]


def three_segments(directory: Path) -> tuple[Path, list[int]]:
    """As in Kafka's own tests: an overflowed segment between two valid ones."""
    last = 3 * BEYOND
    data = {0: run_of(0, 3), 10: OVERFLOWED, last: run_of(last, 2)}
    directory = make(directory, data)
    starts = [*range(0, 9, 3), *(start + 3 * n for start in FIRST_PARTS for n in range(20)), last, last + 3]
    return directory, [offset + n for offset in starts for n in range(3)]


def inputs_for(directory: Path, files: RealFiles | None = None) -> Inputs:
    return Inputs(
        str(directory), LogConfig(CONFIG), files or RealFiles(), HandleCache(), SystemClock(), "kafka", False, 0, 0,
        86_400_000, False,
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["kafka", "strict"])
def test_an_overflowed_segment_is_split_and_keeps_its_records(tmp_path: Path, policy: str) -> None:
    """UL96, LC15: more segments, the same records in the same bytes, every offset found; nothing is split twice."""
    directory, expected = three_segments(tmp_path / "t-0")
    before = {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}
    with open_log(directory, recovery=policy) as log:
        assert [segment.base_offset for segment in log.segments] == [0, *FIRST_PARTS, 3 * BEYOND]
        assert offsets(log) == expected
        assert "split at 10, 2147483698, 4294967396" in log.recovery.reason
        assert log.recovery.bytes_truncated == 0
        for offset in expected:
            assert next(iter(log.read(offset))).offset == offset
        for segment in log.segments:
            index = (directory / names.file_name(segment.base_offset, ".index")).read_bytes()
            assert all(index[at] < 128 for at in range(0, len(index), 8))
        after = b"".join(Path(segment.path).read_bytes() for segment in log.segments)
        assert after == b"".join(before.values())
    with open_log(directory, recovery=policy) as log:
        assert "split" not in log.recovery.reason
        assert offsets(log) == expected


def test_a_segment_that_does_not_overflow_is_not_split(tmp_path: Path) -> None:
    """LC15: splitting it is an invalid argument, and changes nothing."""
    directory = make(tmp_path / "t-0", {10: OVERFLOWED})
    inputs = inputs_for(directory)
    segment = new_segment(inputs, 10, writable=True)
    segment.size = len(OVERFLOWED)
    parts = split_segment(inputs, segment)
    assert [part.base_offset for part in parts] == FIRST_PARTS
    for part in parts:
        with pytest.raises(ValueError, match="does not overflow"):
            split_segment(inputs, part)
    assert len(list(directory.glob("*.log"))) == 3


def test_the_gap_between_two_parts_is_not_a_missing_segment(tmp_path: Path) -> None:
    """Also where the topic is not compacted, and a gap between two files would be refused."""
    directory = make(tmp_path / "t-0", {10: OVERFLOWED})
    config = {**CONFIG, "cleanup.policy": "delete"}
    with klog.Log.open(directory, config=config, clean_shutdown=False, clock=ManualClock(T)) as log:
        assert [segment.base_offset for segment in log.segments] == FIRST_PARTS


def test_a_split_keeps_the_gaps_that_are_known(tmp_path: Path) -> None:
    """Those before the segment, and those after it."""
    directory, expected = three_segments(tmp_path / "t-0")
    known = ((9, 10), (2 * BEYOND + 160, 3 * BEYOND))
    (directory / "klog-gaps").write_text("0\n2\n" + "".join(f"{end} {base}\n" for end, base in known))
    config = {**CONFIG, "cleanup.policy": "delete"}
    for _ in range(2):
        with klog.Log.open(directory, config=config, clean_shutdown=False, clock=ManualClock(T)) as log:
            assert offsets(log) == expected


@pytest.mark.parametrize("data", [run_of(BEYOND + 7, 4), batch(BEYOND - 2, 3)], ids=["beyond", "across"])
def test_a_segment_with_all_batches_out_of_range_takes_the_first_ones_base(tmp_path: Path, data: bytes) -> None:
    """UL96: the split gives one segment with another name; also if only the last offset is out of range."""
    base = int.from_bytes(data[:8])
    directory = make(tmp_path / "t-0", {0: data})
    for suffix in (".index", ".timeindex", ".txnindex"):
        (directory / f"{0:020d}{suffix}").write_bytes(b"")
    with open_log(directory) as log:
        assert [segment.base_offset for segment in log.segments] == [base]
        assert offsets(log) == [base + n for n in range(len(data) // len(batch(base)) * 3)]
    assert not list(directory.glob(f"{0:020d}.*"))


class IndexesGo(CrashFiles):
    """Checks that no index can be left without its .log."""

    renamed = 0

    def rename(self, source: str, target: str) -> None:
        if source.endswith(f"{12:020d}.log"):
            assert source.replace(".log", ".index") not in self.durable_names
            self.renamed += 1
        super().rename(source, target)


@pytest.mark.parametrize("point", [0, 12])
def test_the_gap_before_a_segment_that_takes_another_base_is_not_a_missing_segment(tmp_path: Path, point: int) -> None:
    """Where the topic is not compacted: neither for a load after a kill at any operation nor for one after a whole one.
    With a recovery point of 12 the first load does not recover the segment before."""
    base = BEYOND + 50

    def load(directory: Path, files: RealFiles) -> None:
        config = {**CONFIG, "cleanup.policy": "delete"}
        with klog.Log.open(
            directory, config=config, clean_shutdown=False, recovery_point=point, clock=ManualClock(T), files=files
        ) as log:
            assert [segment.base_offset for segment in log.segments] == [0, base]
            assert offsets(log) == [*range(9), *range(base, base + 12)]

    def prepared(place: Path) -> Path:
        directory = make(place / "t-0", {0: run_of(0, 3), 12: run_of(base, 4)})
        (directory / "klog-gaps").write_text("0\n1\n9 12\n")
        (directory / f"{12:020d}.index").write_bytes(b"")
        return directory

    whole, directory = IndexesGo(), prepared(tmp_path / "whole")
    whole.keep(tmp_path)
    load(directory, whole)
    assert whole.renamed == 1
    load(directory, RealFiles())
    for stop_at in range(whole.steps):
        directory = prepared(tmp_path / f"{stop_at}")
        with pytest.raises(PowerCut):
            load(directory, CrashFiles(stop_at))
        load(directory, RealFiles())


def test_a_clean_start_reads_an_overflowed_segment_as_it_is(tmp_path: Path) -> None:
    """As in Kafka, which does not check: only the next unclean start splits it. Appends continue in a new segment."""
    directory = make(tmp_path / "t-0", {10: OVERFLOWED})
    for policy in ("kafka", "strict"):
        with open_log(directory, clean_shutdown=True, recovery=policy) as log:
            assert [segment.base_offset for segment in log.segments] == [10]
            assert len(offsets(log)) == 180
    times = (directory / f"{10:020d}.timeindex").read_bytes()
    assert times and all(times[at + 8] < 128 for at in range(0, len(times), 12))
    with open_log(directory, clean_shutdown=True) as log:
        end = log.log_end_offset
        assert log.append([(b"k", b"v")]).first_offset == end
        assert [segment.base_offset for segment in log.segments] == [10, end]
    with open_log(directory, read_only=True, recovery="strict") as log:
        assert len(offsets(log)) == 181


@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_bit_in_the_last_base_offset_is_not_an_overflow(tmp_path: Path, clean: bool) -> None:
    """The field is outside the checksum. strict refuses before anything has changed, kafka leaves the batch."""
    data = bytearray(run_of(0, 5))
    position = len(data) - len(batch(12))
    data[position + 3] ^= 0x10
    directory = make(tmp_path / "t-0", {0: bytes(data)})
    for read_only in (True, False):
        with pytest.raises(CorruptLog, match="beyond the range of a segment") as caught:
            open_log(directory, recovery="strict", clean_shutdown=clean, read_only=read_only)
        assert caught.value.position == position
    assert (directory / f"{0:020d}.log").read_bytes() == data
    with open_log(directory, clean_shutdown=clean) as log:
        assert [segment.base_offset for segment in log.segments] == [0]
        assert offsets(log)[:12] == list(range(12))
    assert (directory / f"{0:020d}.log").read_bytes() == data


def test_a_torn_tail_after_an_overflow_is_cut_first(tmp_path: Path) -> None:
    directory = make(tmp_path / "t-0", {10: OVERFLOWED + batch(2 * BEYOND + 160)[:-5]})
    with open_log(directory, recovery="strict") as log:
        assert [segment.base_offset for segment in log.segments] == FIRST_PARTS
        assert len(offsets(log)) == 180
        assert log.recovery.bytes_truncated == len(batch(2 * BEYOND + 160)) - 5


def test_appending_from_a_file_stops_at_the_first_batch_that_overflows(tmp_path: Path) -> None:
    """LS17: the copy returns how many bytes the segment took; one with a higher base takes the rest."""
    source_path = tmp_path / "source"
    source_path.write_bytes(OVERFLOWED)
    files = RealFiles()
    source = files.open(str(source_path))
    position, copies = 0, []
    for base in FIRST_PARTS:
        target = files.open(str(tmp_path / str(base)), write=True, create=True)
        copied = copy_part(source, position, len(OVERFLOWED), base, target)
        assert copied == len(run_of(base, 20))
        position += copied
        assert copy_part(source, len(OVERFLOWED), len(OVERFLOWED), base, target) == 0
        copies.append((tmp_path / str(base)).read_bytes())
        target.close()
    source.close()
    assert b"".join(copies) == OVERFLOWED


def test_an_append_far_beyond_the_end_rolls_to_its_own_segment(tmp_path: Path) -> None:
    """LC14: a compacted log may hold only 0 and 2^31 + 1. The second goes into a segment with its own base and a
    snapshot; later appends stay there, and every index entry is positive."""
    directory = make(tmp_path / "t-0", {0: batch(0, 1) + batch(BEYOND + 1, 1) + run_of(BEYOND + 2, 40)})
    with open_log(directory) as log:
        assert [segment.base_offset for segment in log.segments] == [0, BEYOND + 1]
        assert (directory / names.file_name(BEYOND + 1, ".snapshot")).exists()
        info = log.append([(b"k%d" % n, b"v" * 50) for n in range(100)])
        assert info.first_offset == BEYOND + 122
        assert [segment.base_offset for segment in log.segments] == [0, BEYOND + 1]
        assert offsets(log) == [0, *range(BEYOND + 1, BEYOND + 222)]
    index = (directory / names.file_name(BEYOND + 1, ".index")).read_bytes()
    assert index and all(index[at] < 128 for at in range(0, len(index), 8))


def wrapper(offsets_: list[int]) -> bytes:
    """Magic 1: the inner offsets count from 0, the wrapper has the offset of the last."""
    base = offsets_[0]
    inner = [encode_message(Message(1, n, b"k", b"v%d" % n, T)) for n in offsets_]
    inner = [reseal((n - base).to_bytes(8, "big") + one[8:]) for n, one in zip(offsets_, inner, strict=True)]
    return wrap(1, offsets_[-1], inner, timestamp=T)


def test_wrappers_of_magic_1_are_split_at_their_first_record(tmp_path: Path) -> None:
    """LC14: the sets of Kafka's test: [0, 2^31 + 2] cannot be one batch, so [0], [2^31 + 1 ...], [2^31 + 3 ...]."""
    sets = [[0, 1, 2], [3], [BEYOND + 1, BEYOND + 2], [BEYOND + 3, BEYOND + 5]]
    directory = make(tmp_path / "t-0", {0: b"".join(map(wrapper, sets))})
    with open_log(directory) as log:
        assert [segment.base_offset for segment in log.segments] == [0, BEYOND + 1]
        assert offsets(log) == [offset for one in sets for offset in one]


# ---- crashes in the middle ------------------------------------------------------------------------------------------


def crash_points(tmp_path: Path) -> int:
    whole = CrashFiles()
    directory, _ = three_segments(tmp_path / "whole" / "t-0")
    split(directory, whole)
    return whole.steps


def split(directory: Path, files: RealFiles) -> None:
    inputs = inputs_for(directory, files)
    segment = new_segment(inputs, 10, writable=True)
    segment.size = len(OVERFLOWED)
    split_segment(inputs, segment)


@pytest.mark.parametrize("policy", ["kafka", "strict"])
def test_a_kill_anywhere_in_a_split_loses_nothing(tmp_path: Path, policy: str) -> None:
    """LC16, W1: killed before any operation of the split; the next load finds the whole log, split."""
    for stop_at in range(crash_points(tmp_path)):
        directory, expected = three_segments(tmp_path / f"{stop_at}" / "t-0")
        with pytest.raises(PowerCut):
            split(directory, CrashFiles(stop_at))
        with open_log(directory, recovery=policy) as log:
            assert [segment.base_offset for segment in log.segments] == [0, *FIRST_PARTS, 3 * BEYOND], stop_at
            assert offsets(log) == expected, stop_at
        assert not [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]


def test_a_power_cut_anywhere_in_a_split_loses_nothing(tmp_path: Path) -> None:
    """LC16, W1, W4: the same where unsynced names return, or their replacements are lost."""
    for stop_at in range(crash_points(tmp_path) + 1):
        directory, expected = three_segments(tmp_path / f"{stop_at}" / "t-0")
        files = CrashFiles(stop_at)
        files.keep(directory)
        try:
            split(directory, files)
        except PowerCut:
            pass
        for state, root in files.states(directory.parent, tmp_path / "states", stop_at, randoms=1):
            with open_log(root / "t-0") as log:
                assert offsets(log) == expected, (stop_at, state, files.log[-3:])
        shutil.rmtree(tmp_path / "states")


def final_renames(steps: list[str]) -> list[int]:
    return [number for number, step in enumerate(steps) if step.startswith("rename") and ".swap " in step]


class SwapOrder(CrashFiles):
    """Checks that the original goes once all parts have durably the names with which a load finishes them."""

    removed = 0

    def unlink(self, path: str) -> None:
        if path.endswith(f"{10:020d}.log"):
            assert len([name for name in self.durable_names if name.endswith(".log.swap")]) == 3
            self.removed += 1
        super().unlink(path)


def test_the_parts_of_a_split_count_before_the_original_goes(tmp_path: Path) -> None:
    """S6, W1. From the highest base down: a broker's load drops each .swap above a .cleaned, and finishes the others."""
    directory, _ = three_segments(tmp_path / "t-0")
    files = SwapOrder()
    split(directory, files)
    assert files.removed == 1
    swaps = [step.split()[2] for step in files.log if step.startswith("rename") and step.endswith(".swap")]
    assert swaps == [f"{base:020d}.log.swap" for base in reversed(FIRST_PARTS)]


def test_each_part_is_final_on_disk_before_the_next_is_renamed(tmp_path: Path) -> None:
    """LC16: otherwise a crash could leave a finished part between two .swap files, and a load would treat it as
    replaced."""
    directory, _ = three_segments(tmp_path / "t-0")
    files = CrashFiles()
    split(directory, files)
    renames = final_renames(files.log)
    assert len(renames) == 3
    assert [files.log[number + 1] for number in renames] == ["fsync t-0/"] * 3
    swapped = make(tmp_path / "u-0", {})
    for base, data in PARTS.items():
        (swapped / f"{base:020d}.log.swap").write_bytes(data)
        (swapped / f"{base:020d}.index.swap").write_bytes(b"")
    files = CrashFiles()
    clear_leftovers(Listing(str(swapped)), files, "strict", lambda text: None)
    at = final_renames(files.log)
    assert len(at) == 6
    assert [files.log[number + 1] for number in at[1::2]] == ["fsync u-0/"] * 3
    assert len(list(swapped.iterdir())) == 6


PARTS = {10: run_of(10, 20), BEYOND + 50: run_of(BEYOND + 50, 20), 2 * BEYOND + 100: run_of(2 * BEYOND + 100, 20)}
STAGES = {
    "all cleaned": [".cleaned"] * 3,
    "one swap": [".cleaned", ".cleaned", ".swap"],
    "two swaps": [".cleaned", ".swap", ".swap"],
    "all swap, the original there": [".swap"] * 3,
    "all swap, the original gone": [".swap"] * 3,
    "one final": ["", ".swap", ".swap"],
    "the last is final": [".swap", ".swap", ""],
    "all final": ["", "", ""],
}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_that_kafka_can_leave_loads(tmp_path: Path, stage: str) -> None:
    """LC16: five stages and those between them; always all keys."""
    original = stage in ("all cleaned", "one swap", "two swaps", "all swap, the original there")
    directory = make(tmp_path / "t-0", {10: OVERFLOWED} if original else {})
    for (base, data), suffix in zip(PARTS.items(), STAGES[stage], strict=True):
        (directory / f"{base:020d}.log{suffix}").write_bytes(data)
    with open_log(directory) as log:
        assert [segment.base_offset for segment in log.segments] == FIRST_PARTS
        assert len(offsets(log)) == 180


def test_the_loader_handles_every_subset_of_names(tmp_path: Path) -> None:
    """W1-W4: each of three segments of a replacement plain, .cleaned, .swap, .deleted or absent, with the originals
    or without. It loads, strict or not, and shows whole batches of one or the other, each offset at most once; with all
    originals, nothing is missing."""
    olds = {0: run_of(0, 4), 12: run_of(12, 4), 24: run_of(24, 4)}
    replacements = {0: batch(0) + batch(9), 12: batch(15), 24: run_of(24, 2)}
    number = 0
    for shape in itertools.product(("", ".cleaned", ".swap", ".deleted", None), repeat=3):
        for kept in (olds, {0: olds[0]}, {}):
            if any(suffix == "" and base in kept for base, suffix in zip(replacements, shape, strict=True)):
                continue
            number += 1
            directory = make(tmp_path / str(number) / "t-0", kept)
            for (base, data), suffix in zip(replacements.items(), shape, strict=True):
                if suffix is not None:
                    (directory / f"{base:020d}.log{suffix}").write_bytes(data)
            with open_log(directory) as log:
                got = offsets(log)
            assert got == sorted(set(got)), (shape, len(kept))
            whole = ".swap" in shape and ".cleaned" not in shape
            survivors = set(range(36)) if kept == olds and not whole else set()
            if kept == olds and whole:  # the swaps replace the range they span, as in Kafka
                swaps = [base for base, suffix in zip(replacements, shape, strict=True) if suffix == ".swap"]
                gone = [base for base in olds if swaps[0] <= base < {0: 12, 12: 18, 24: 30}[swaps[-1]]]
                survivors = set(range(36)) - {n for base in gone for n in range(base, base + 12)}
            assert survivors <= set(got), (shape, len(kept), got)
            shutil.rmtree(directory.parent)
    assert number > 150
