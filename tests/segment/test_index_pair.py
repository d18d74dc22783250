"""IndexPair: which batches get entries, the results of lookups, and the effect of truncation, growth and trimming."""

from __future__ import annotations

import bisect
import errno
import os
import random
import struct
from pathlib import Path

import pytest

from klog.errors import CorruptIndex
from klog.segment import IndexPair
from tests.support.faulty_io import FaultyIo
from tests.support.groups import BATCH, group_of
from tests.support.resources import open_descriptors

CAPACITY = 1200


def make(directory: Path, base: int = 0, *, capacity: int = CAPACITY, interval: int = 0, **options: int) -> IndexPair:
    options.setdefault("writable", True)
    return IndexPair(
        str(directory / "index"), str(directory / "timeindex"), base, capacity=capacity, interval=interval, **options
    )


def entries(index: IndexPair) -> list[tuple[int, int]]:
    return [index.entry(i) for i in range(index.entries)]


def time_entries(index: IndexPair) -> list[tuple[int, int]]:
    return [index.time_entry(i) for i in range(index.time_entries)]


def add(index: IndexPair, timestamps: list[int], position: int = 0, first_offset: int | None = None) -> int:
    """Append one batch per timestamp; return the position after it."""
    group = group_of(timestamps, index.base_offset + position // BATCH if first_offset is None else first_offset)
    index.reserve(group.n)
    index.add(group, 0, group.n, position)
    return position + group.nbytes


def stored(directory: Path) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Both files as the format page reads them, up to the zeros."""
    offsets = list(struct.iter_unpack(">ii", (directory / "index").read_bytes()))
    times = list(struct.iter_unpack(">qi", (directory / "timeindex").read_bytes()))
    while offsets and offsets[-1] == (0, 0):
        offsets.pop()
    while times and times[-1] == (0, 0):
        times.pop()
    return offsets, times


# ---- which batches get entries ---------------------------------------------------------------------------------------


def test_kafkas_example_of_the_interval(tmp_path: Path) -> None:
    """Interval 100, single-record batches: the third batch since the last entry gets the next one, across appends."""
    index = make(tmp_path, interval=100)
    end = add(index, [10, 11, 12, 13])
    assert entries(index) == [(2, 2 * BATCH)]
    end = add(index, [14], end)
    assert entries(index) == [(2, 2 * BATCH), (4, 4 * BATCH)]
    add(index, [15, 16, 17], end)
    assert entries(index) == [(2, 2 * BATCH), (4, 4 * BATCH), (6, 6 * BATCH)]
    assert time_entries(index) == [(12, 2), (14, 4), (16, 6)]
    assert stored(tmp_path) == ([(2, 2 * BATCH), (4, 4 * BATCH), (6, 6 * BATCH)], [(12, 2), (14, 4), (16, 6)])


def test_an_entry_needs_more_than_the_interval(tmp_path: Path) -> None:
    index = make(tmp_path, interval=2 * BATCH)
    add(index, [1, 2, 3, 4])
    assert entries(index) == [(3, 3 * BATCH)]


def test_the_first_batch_never_gets_an_entry(tmp_path: Path) -> None:
    index = make(tmp_path)
    add(index, [1])
    assert (index.entries, index.time_entries) == (0, 0)


def test_entries_are_relative_to_the_base_offset(tmp_path: Path) -> None:
    base = 5_000_000_000
    index = make(tmp_path, base)
    add(index, [1, 2, 3])
    assert entries(index) == [(base + 1, BATCH), (base + 2, 2 * BATCH)]
    assert stored(tmp_path) == ([(1, BATCH), (2, 2 * BATCH)], [(2, 1), (3, 2)])


def test_an_offset_beyond_31_bits_of_the_base_gets_no_entry(tmp_path: Path) -> None:
    """Its relative offset would overflow to a negative number; the log rolls before that, this is a second check."""
    index = make(tmp_path)
    add(index, [1, 2])
    index.add(group_of([3], 2**31 - 1), 0, 1, 2 * BATCH)
    index.add(group_of([4], 2**31), 0, 1, 3 * BATCH)
    assert entries(index) == [(1, BATCH), (2**31 - 1, 2 * BATCH)]


def test_a_time_entry_has_the_largest_timestamp_and_its_earliest_batch(tmp_path: Path) -> None:
    index = make(tmp_path)
    add(index, [50, 90, 70, 90, 80, 95])
    assert time_entries(index) == [(90, 1), (95, 5)]  # timestamps that do not rise are skipped
    assert (index.max_timestamp, index.max_timestamp_offset) == (95, 5)


def test_records_without_timestamp_leave_the_time_index_empty(tmp_path: Path) -> None:
    index = make(tmp_path)
    add(index, [-1, -1, -1])
    index.close_entries()
    assert (index.entries, index.time_entries) == (2, 0)
    assert index.max_timestamp == -1
    assert index.first_timestamp == -1


def test_the_first_timestamp_is_the_first_batchs(tmp_path: Path) -> None:
    index = make(tmp_path)
    assert index.first_timestamp is None
    add(index, [70, 50])
    assert index.first_timestamp == 70


def test_the_last_time_slot_is_kept_for_the_closing_entry(tmp_path: Path) -> None:
    """TI2: with one free slot the index is full; only the closing entry may use that slot."""
    index = make(tmp_path, capacity=48)  # 6 offset slots, 4 time slots
    add(index, [1, 2, 3, 4, 5, 6])
    assert index.entries == 5
    assert time_entries(index) == [(2, 1), (3, 2), (4, 3)]
    index.close_entries()
    assert time_entries(index) == [(2, 1), (3, 2), (4, 3), (6, 5)]
    index.close_entries()
    assert index.time_entries == 4


def test_the_closing_entry_is_not_repeated(tmp_path: Path) -> None:
    index = make(tmp_path)
    add(index, [1, 2, 3])
    index.close_entries()
    assert time_entries(index) == [(2, 1), (3, 2)]


# ---- whether batches fit ---------------------------------------------------------------------------------------------


def fits(
    index: IndexPair,
    timestamps: list[int],
    size: int,
    *,
    segment_bytes: int = 10**9,
    ms: int = 10**9,
    waited: int = 0,
    offset: int = 0,
) -> int:
    return index.fit(group_of(timestamps, offset), 0, size, segment_bytes, ms, waited)


def test_batches_fit_to_the_byte(tmp_path: Path) -> None:
    index = make(tmp_path)
    assert fits(index, [1] * 5, 0, segment_bytes=3 * BATCH) == 3
    assert fits(index, [1] * 5, BATCH, segment_bytes=3 * BATCH) == 2
    assert fits(index, [1] * 5, BATCH, segment_bytes=3 * BATCH - 1) == 1
    assert fits(index, [1] * 5, 3 * BATCH, segment_bytes=3 * BATCH) == 0


def test_fitting_counts_the_index_entries_to_come(tmp_path: Path) -> None:
    assert fits(make(tmp_path, capacity=32), [-1] * 9, 0) == 5  # 4 offset slots, the first batch needs none
    (tmp_path / "b").mkdir()
    assert fits(make(tmp_path / "b", capacity=48), [1, 2, 3, 4, 5, 6], 0) == 4  # 3 time slots besides the reserved one


def test_fits_changes_nothing(tmp_path: Path) -> None:
    index = make(tmp_path)
    before = index.state()
    fits(index, [1, 2, 3], 0)
    assert index.state() == before
    assert stored(tmp_path) == ([], [])


def test_time_counts_from_the_first_timestamp_or_from_the_clock_without_one(tmp_path: Path) -> None:
    index = make(tmp_path)
    add(index, [1000])
    assert fits(index, [1100], BATCH, ms=100, waited=10**6) == 1
    assert fits(index, [1101], BATCH, ms=100, waited=0) == 0
    assert fits(index, [0], BATCH, ms=100) == fits(index, [-1], BATCH, ms=100) == 1
    (tmp_path / "b").mkdir()
    bare = make(tmp_path / "b")
    add(bare, [-1])
    assert fits(bare, [2**62], BATCH, ms=100, waited=100) == 1
    assert fits(bare, [-1], BATCH, ms=100, waited=101) == 0


def test_an_empty_segment_accepts_a_batch_at_any_age(tmp_path: Path) -> None:
    assert fits(make(tmp_path), [5], 0, ms=1, waited=10**9) == 1


@pytest.mark.parametrize(
    ("base", "offset", "expected"),
    [(0, 2**31 - 1, 1), (100, 99, 0), (0, 2**31, 0), (1, 0, 0), (100, 10, 0), (2**31, 0, 0), (2**31, 2**32, 0)],
)
def test_only_31_bits_above_the_base_fit(tmp_path: Path, base: int, offset: int, expected: int) -> None:
    """LS1: an offset that the index cannot represent is refused: the caller rolls."""
    assert fits(make(tmp_path, base), [1], 0, offset=offset) == expected


# ---- lookups ---------------------------------------------------------------------------------------------------------


def test_an_empty_index_returns_its_base_offset(tmp_path: Path) -> None:
    """OI1, OI2, TI1: without entries, a lookup returns the base offset at byte 0, no timestamp, and no entry."""
    index = make(tmp_path, 45)
    assert index.floor(45) == index.floor(10**12) == index.floor(0) == (45, 0)
    assert index.time_floor(10**15) == (-1, 45)
    assert index.upper_bound(0) is None
    for use in (index.entry, index.time_entry):
        for i in (-1, 0):
            with pytest.raises(IndexError):
                use(i)


def test_lookups_agree_with_bisect(tmp_path: Path) -> None:
    """OI1, TI1: more entries than the 8 KiB that Kafka searches first, with gaps."""
    random_ = random.Random(7)
    base, count = 1000, 3000
    index = make(tmp_path, base, capacity=64_000)
    offset, position, time = base, 0, 1000
    wanted: list[tuple[int, int, int]] = []
    for i in range(count):
        add(index, [time], position, offset)
        if i:
            wanted.append((offset, position, time))
        offset, position, time = (
            offset + random_.randint(1, 5),
            position + random_.randint(BATCH, 900),
            time + random_.randint(1, 9),
        )
    assert entries(index) == [entry[:2] for entry in wanted]
    offsets, positions, times = ([entry[i] for entry in wanted] for i in range(3))
    for probe in (
        *range(base - 2, base + 60),
        *range(offset - 60, offset + 2),
        *random_.sample(range(base, offset), 500),
    ):
        at = bisect.bisect_right(offsets, probe) - 1
        assert index.floor(probe) == ((offsets[at], positions[at]) if at >= 0 else (base, 0)), probe
    for probe in (*range(990, 1060), *random_.sample(range(time), 500), time + 1):
        at = bisect.bisect_right(times, probe) - 1
        assert index.time_floor(probe) == ((times[at], offsets[at]) if at >= 0 else (-1, base)), probe
    for probe in (0, 1, *random_.sample(range(position), 500), positions[-1], positions[-1] + 1, 2**40):
        at = bisect.bisect_left(positions, probe)
        assert index.upper_bound(probe) == (offsets[at] if at < len(offsets) else None), probe


FAR = 10**6


@pytest.mark.parametrize("keys", [[5], [*range(1, 101)], [1, FAR], [1, *range(FAR, FAR + 100)], [*range(1, 101), FAR]])
def test_lookups_among_few_keys_agree_with_bisect(tmp_path: Path, keys: list[int]) -> None:
    """A key far from the others misleads the interpolation. The timestamps are large."""
    index, now = make(tmp_path, capacity=4096), 1_700_000_000_000
    add(index, [-1])
    for key in keys:
        add(index, [now + key], key * BATCH, key)
    for probe in (*keys, keys[0] - 1, keys[-1] + 1):
        at = bisect.bisect_right(keys, probe) - 1
        assert index.floor(probe) == ((keys[at], keys[at] * BATCH) if at >= 0 else (0, 0)), probe
        assert index.time_floor(now + probe) == ((now + keys[at], keys[at]) if at >= 0 else (-1, 0)), probe
        at = bisect.bisect_left(keys, probe)
        assert index.upper_bound(probe * BATCH) == (keys[at] if at < len(keys) else None), probe


def test_kafkas_example_of_upper_bounds(tmp_path: Path) -> None:
    """OI3: it returns the first entry at or after a byte. Kafka passes (position, size); the byte is their sum."""
    index = make(tmp_path, 45)
    add(index, [1], 0)
    for number, position in enumerate((10, 23, 37)):
        add(index, [2 + number], position, 46 + number)
    assert [index.upper_bound(at) for at in (5, 10, 22, 23, 24, 38, 200)] == [46, 46, 47, 47, 48, None, None]


def test_a_full_index_and_offsets_that_do_not_rise(tmp_path: Path) -> None:
    """OI2, TI2: entries cannot be added directly. One batch too many, or out of order, leaves the index unchanged."""
    index = make(tmp_path, capacity=48)  # six offset slots, four time slots, one of them reserved
    end = add(index, [10, 20, 30, 40, 50, 60, 70, 80, 90])
    assert [offset for offset, _ in entries(index)] == [1, 2, 3, 4, 5, 6]
    assert time_entries(index) == [(20, 1), (30, 2), (40, 3)]
    assert fits(index, [100], end) == 0
    index.close_entries()
    assert time_entries(index)[-1] == (90, 8)
    for i in (6, 7, -1):
        with pytest.raises(IndexError):
            index.entry(i)
    with pytest.raises(IndexError):
        index.time_entry(4)
    other = IndexPair("", "", 0, writable=True, capacity=CAPACITY, interval=0)
    end = add(other, [10, 20, 30])
    before = entries(other), time_entries(other)
    add(other, [25, 15], end, 1)  # offsets 1 and 2 again, with older timestamps
    assert (entries(other), time_entries(other)) == before


def test_entries_between_lookups(tmp_path: Path) -> None:
    """OI1, TI1: lookups below the first entry, at an entry, between two entries, and above the last."""
    index = filled(tmp_path)
    assert [index.floor(offset) for offset in (0, 1, 5, 9, 50)] == [(0, 0), (1, 68), (5, 340), (9, 612), (9, 612)]
    assert [index.time_floor(time) for time in (19, 20, 25, 99, 100, 999)] == [
        (-1, 0), (20, 1), (20, 1), (90, 8), (100, 9), (100, 9),
    ]  # fmt: skip


def test_large_relative_offsets_are_sane(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(struct.pack(">iiii", 1, 68, 2**24, 136))
    (tmp_path / "timeindex").write_bytes(struct.pack(">qiqi", 50, 1, 60, 2**24))
    index = make(tmp_path, capacity=-1, writable=False)
    index.check(500)
    assert (index.entries, index.time_entries) == (2, 2)


def test_an_offset_equal_to_the_base_is_sane(tmp_path: Path) -> None:
    """OI5: for example, the entry of a batch that begins after byte 0 in a compacted segment."""
    (tmp_path / "index").write_bytes(struct.pack(">ii", 0, 68))
    (tmp_path / "timeindex").write_bytes(b"")
    index = make(tmp_path, 45, capacity=-1, writable=False)
    index.check(500)
    assert entries(index) == [(45, 68)]


def test_a_read_only_pair_refuses_entries(tmp_path: Path) -> None:
    """OI2: an append, which would have to allocate space first, raises."""
    filled(tmp_path).trim()
    index = make(tmp_path, capacity=-1, writable=False)
    before = stored(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        add(index, [500, 600, 700], 10 * BATCH)
    assert stored(tmp_path) == before
    assert index.entries == 9


# ---- truncation, growth, trimming ------------------------------------------------------------------------------------


def filled(directory: Path, *, capacity: int = CAPACITY) -> IndexPair:
    """Entries at offsets 1 to 9 with timestamps 20 to 100."""
    index = make(directory, capacity=capacity)
    add(index, list(range(10, 110, 10)))
    return index


@pytest.mark.parametrize(("offset", "left"), [(100, 9), (10, 9), (9, 8), (5, 4), (1, 0), (0, 0), (-5, 0)])
def test_truncation_drops_entries_at_and_above(tmp_path: Path, offset: int, left: int) -> None:
    """OI4, TI3: a truncation removes no entry beyond the end, the entry at the offset, or all entries."""
    index = filled(tmp_path)
    index.truncate_to(offset)
    assert entries(index) == [(i, i * BATCH) for i in range(1, left + 1)]
    assert time_entries(index) == [(i * 10 + 10, i) for i in range(1, left + 1)]
    assert stored(tmp_path) == ([(i, i * BATCH) for i in range(1, left + 1)], time_entries(index))  # zeros after them
    assert index.max_timestamp == (left * 10 + 10 if left else -1)


def test_entries_can_be_added_after_a_truncation(tmp_path: Path) -> None:
    """OI4: the new entries come after the remaining ones."""
    index = filled(tmp_path)
    index.truncate_to(5)
    add(index, [900, 901], 5 * BATCH)
    assert entries(index)[-2:] == [(4, 4 * BATCH), (6, 6 * BATCH)]  # the interval starts again
    assert time_entries(index)[-1] == (901, 6)


def test_trim_and_grow_keep_the_entries_and_the_unwritten_state(tmp_path: Path) -> None:
    index = filled(tmp_path)
    add(index, [55], 10 * BATCH)
    before = entries(index), time_entries(index), index.max_timestamp, index.first_timestamp
    index.trim()
    assert ((tmp_path / "index").stat().st_size, (tmp_path / "timeindex").stat().st_size) == (10 * 8, 9 * 12)
    assert (entries(index), time_entries(index), index.max_timestamp, index.first_timestamp) == before
    index.grow(1003)
    assert ((tmp_path / "index").stat().st_size, (tmp_path / "timeindex").stat().st_size) == (1000, 996)
    assert (entries(index), time_entries(index), index.max_timestamp, index.first_timestamp) == before
    add(index, [500], 11 * BATCH)
    assert entries(index)[-1] == (11, 11 * BATCH)


def test_growing_keeps_a_timestamp_without_an_entry(tmp_path: Path) -> None:
    index = make(tmp_path, interval=10**6)
    add(index, [10, 99, 5])
    index.grow(2 * CAPACITY)
    assert (index.max_timestamp, index.max_timestamp_offset, index.first_timestamp) == (99, 1, 10)
    index.close_entries()
    assert time_entries(index) == [(99, 1)]


def test_resizing_returns_whether_it_changed_anything(tmp_path: Path) -> None:
    """TI3: False for the same number of entries, or for bytes that make up the same number."""
    index = make(tmp_path, capacity=1003)
    assert index.entries_max == 125
    assert [index.resize(size) for size in (1000, 1003, 996, 1007)] == [False, False, True, True]
    assert [index.resize(size) for size in (2000, 500, 0)] == [True, True, True]
    assert (index.entries_max, index.full) == (0, True)
    assert index.resize(96)
    assert (index.entries_max, index.full) == (12, False)
    assert ((tmp_path / "index").stat().st_size, (tmp_path / "timeindex").stat().st_size) == (96, 96)


def test_growing_to_less_than_the_entries_keeps_them(tmp_path: Path) -> None:
    index = filled(tmp_path)
    index.grow(16)
    assert (index.entries, index.time_entries) == (9, 9)


def test_reset_empties_and_resizes(tmp_path: Path) -> None:
    index = filled(tmp_path)
    index.reset(96)
    assert (index.entries, index.time_entries, index.max_timestamp, index.first_timestamp) == (0, 0, -1, None)
    assert (tmp_path / "index").read_bytes() == bytes(96)
    assert (tmp_path / "timeindex").read_bytes() == bytes(96)
    add(index, [1, 2])
    assert entries(index) == [(1, BATCH)]


def test_restore_undoes_later_entries(tmp_path: Path) -> None:
    index = make(tmp_path)
    end = add(index, [10, 20, 30])
    state, files = index.state(), stored(tmp_path)
    add(index, [40, 50, 60], end)
    index.restore(state)
    assert stored(tmp_path) == files
    assert (entries(index), time_entries(index)) == ([(1, BATCH), (2, 2 * BATCH)], [(20, 1), (30, 2)])
    assert index.max_timestamp == 30
    assert index.state() == state
    with pytest.raises(ValueError, match="not a state"):
        index.restore(state[:-1])


def test_restore_after_a_trim_does_not_write_past_the_file(tmp_path: Path) -> None:
    """A roll that is undone: the files were trimmed and grown since the state was taken."""
    index = filled(tmp_path)
    state = index.state()
    index.close_entries()
    index.trim()
    index.grow(CAPACITY)
    index.restore(state)
    assert len(entries(index)) == 9
    add(index, [500, 501], 10 * BATCH)
    assert entries(index)[-1] == (11, 11 * BATCH)


# ---- files that another process has changed --------------------------------------------------------------------------


def test_reopening_counts_entries_up_to_the_zeros(tmp_path: Path) -> None:
    filled(tmp_path).close()
    assert (tmp_path / "index").stat().st_size == CAPACITY
    index = make(tmp_path, capacity=-1, writable=False)
    index.check(10 * BATCH)
    assert (index.entries, index.time_entries, index.max_timestamp) == (9, 9, 100)


def test_a_copy_stops_at_the_first_page_of_zeros_and_closes_the_file(tmp_path: Path) -> None:
    filled(tmp_path, capacity=2 << 20).close()
    index = IndexPair(str(tmp_path / "index"), str(tmp_path / "timeindex"), 0, copy=True)
    index.check(10 * BATCH)
    for name in ("index", "timeindex"):
        (tmp_path / name).write_bytes(b"")  # another process trims it: a mapping would be a SIGBUS here
    assert entries(index) == [(i, i * BATCH) for i in range(1, 10)]
    assert index.floor(5) == (5, 5 * BATCH)


def test_a_pair_without_files_lives_in_memory(tmp_path: Path) -> None:
    index = IndexPair("", "", 0, writable=True, capacity=400, interval=0)
    add(index, [1, 2, 3])
    assert index.floor(2) == (2, 2 * BATCH)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "data", "match", "kind"),
    [
        ("index", struct.pack(">iiii", 1, 68, 1, 136), "does not rise", "index"),
        ("index", struct.pack(">iiii", 1, 68, 2, 68), "does not rise", "index"),
        ("index", struct.pack(">ii", -4, 68), "does not rise", "index"),
        ("index", struct.pack(">ii", -1, 68), "does not rise", "index"),
        ("index", struct.pack(">iiii", 0, 0, 2, 68), "does not rise", "index"),
        ("index", struct.pack(">ii", 1, 1000), "points at byte 1000 of a log of 500", "index"),
        ("index", struct.pack(">iib", 1, 68, 1), "9 bytes are not a whole number", "index"),
        ("timeindex", struct.pack(">qiqi", 50, 1, 50, 2), "does not rise", "timeindex"),
        ("timeindex", struct.pack(">qiqi", 50, 3, 60, 2), "does not rise", "timeindex"),
        ("timeindex", struct.pack(">qi", -9, 1), "does not rise", "timeindex"),
        ("timeindex", struct.pack(">qi", -1, 1), "does not rise", "timeindex"),
        ("timeindex", b"\0" * 13, "13 bytes are not a whole number", "timeindex"),
    ],
)
def test_invalid_files_are_reported(tmp_path: Path, name: str, data: bytes, match: str, kind: str) -> None:
    """TI4, OI5: a length that is not a multiple, an entry below the base offset, entries that do not rise."""
    (tmp_path / "index").write_bytes(b"")
    (tmp_path / "timeindex").write_bytes(b"")
    (tmp_path / name).write_bytes(data)
    index = make(tmp_path, capacity=-1, writable=False)
    with pytest.raises(CorruptIndex, match=match) as caught:
        index.check(500)
    assert caught.value.kind == kind
    assert caught.value.path == str(tmp_path / name)


def test_a_zero_first_slot_of_the_time_index_means_no_entry(tmp_path: Path) -> None:
    """After a crash the file is not trimmed. If the zeros were read as an entry, the segment would seem to be from
    1970."""
    (tmp_path / "index").write_bytes(bytes(800))
    (tmp_path / "timeindex").write_bytes(bytes(1200))
    index = make(tmp_path, capacity=-1, writable=False)
    index.check(0)
    assert (index.entries, index.time_entries, index.max_timestamp) == (0, 0, -1)


@pytest.mark.parametrize("name", ["index", "timeindex"])
def test_index_files_are_regular_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / name).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        make(tmp_path)
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_blocks_are_allocated_before_the_first_store(tmp_path: Path) -> None:
    """S11: a store into a hole on a full disk is a signal; allocating first makes it an OSError."""
    index = make(tmp_path, capacity=1 << 20)
    for name in ("index", "timeindex"):
        assert (tmp_path / name).stat().st_blocks == 0
    index.reserve(1)
    for name in ("index", "timeindex"):
        assert (tmp_path / name).stat().st_blocks * 512 >= 65_536
        assert (tmp_path / name).read_bytes() == bytes(
            (1 << 20) // (8 if name == "index" else 12) * (8 if name == "index" else 12)
        )
    index.reserve(10_000)
    assert (tmp_path / "index").stat().st_blocks * 512 >= 80_000


def test_reserving_more_slots_than_exist_is_allowed(tmp_path: Path) -> None:
    index = make(tmp_path, capacity=48)
    index.reserve(1000)
    assert [(tmp_path / name).stat().st_size for name in ("index", "timeindex")] == [48, 48]
    add(index, [1, 2, 3, 4, 5, 6])
    assert index.entries == 5


def test_after_close_lookups_find_nothing(tmp_path: Path) -> None:
    """OI5: after it is unmapped, nothing is read from it: there are no entries."""
    index = filled(tmp_path)
    index.sync()
    index.close()
    index.close()
    assert index.floor(5) == (0, 0)
    assert index.time_floor(50) == (-1, 0)
    for use in (index.entry, index.time_entry):
        with pytest.raises(IndexError):
            use(0)


def in_memory(directory: Path) -> tuple[IndexPair, Path, Path]:
    """Entries in memory, and the files to store them in."""
    index = IndexPair("", "", 0, writable=True, capacity=1200, interval=0)
    add(index, list(range(1, 11)))
    index.close_entries()
    return index, directory / "index", directory / "timeindex"


@pytest.mark.parametrize("before", [None, b"", b"\1" * 7, b"\1" * 72, b"\1" * 5000])
def test_entries_are_stored_over_any_content(tmp_path: Path, before: bytes | None) -> None:
    index, offsets, times = in_memory(tmp_path)
    if before is not None:
        offsets.write_bytes(before)
        times.write_bytes(before)
    index.store(str(offsets), str(times))
    assert offsets.stat().st_size == 8 * index.entries == 72
    assert times.stat().st_size == 12 * index.time_entries == 108
    again = make(tmp_path, capacity=-1, writable=False)
    assert (entries(again), time_entries(again)) == (entries(index), time_entries(index))


def test_files_that_already_hold_the_entries_are_not_written(tmp_path: Path) -> None:
    index, offsets, times = in_memory(tmp_path)
    index.store(str(offsets), str(times))
    before = [(path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in (offsets, times)]
    index.store(str(offsets), str(times))
    assert [(path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in (offsets, times)] == before


def test_a_pair_holds_no_descriptor_and_raises_if_its_file_was_replaced(tmp_path: Path) -> None:
    held = open_descriptors()
    index = make(tmp_path)
    add(index, [1, 2, 3])
    assert open_descriptors() <= held
    os.rename(tmp_path / "index", tmp_path / "other")
    (tmp_path / "index").write_bytes(b"")
    with pytest.raises(OSError, match="another file has replaced"):
        index.trim()
    assert (tmp_path / "index").read_bytes() == b""


def test_a_pair_follows_its_files_to_another_directory(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    index = make(tmp_path / "old")
    add(index, [1, 2, 3])
    os.rename(tmp_path / "old", tmp_path / "new")
    index.moved(str(tmp_path / "new" / "index"), str(tmp_path / "new" / "timeindex"))
    index.trim()
    assert (tmp_path / "new" / "index").stat().st_size == 16


def test_an_entry_at_the_end_of_the_log_is_refused(tmp_path: Path) -> None:
    """I2: no batch begins at that position."""
    index = make(tmp_path)
    add(index, [1, 2, 3])
    last = index.entry(index.entries - 1)[1]
    index.check(last + 1)
    with pytest.raises(CorruptIndex, match=f"points at byte {last} of a log of {last} bytes"):
        index.check(last)


# ---- file systems without fallocate(2) -----------------------------------------------------------------------------


def test_without_fallocate_blocks_are_written_before_entries_are_stored(tmp_path: Path) -> None:
    """A store into a hole of a full disk would be a SIGBUS."""
    with FaultyIo() as kernel:
        kernel.rule("fallocate", error=errno.EOPNOTSUPP)
        index = make(tmp_path, capacity=1 << 20, table=kernel.table)
        add(index, [5, 6, 7])
        assert [os.stat(path).st_blocks * 512 for path in tmp_path.iterdir()] == [65536, 65536]
        found = entries(index), time_entries(index)
        full = kernel.rule("pwrite", error=errno.ENOSPC)
        index.reserve(100)  # its blocks are there
        with pytest.raises(OSError, match="No space left"):
            index.reserve(10_000)
        kernel.lift(full)
        index.close()
        index = make(tmp_path, capacity=1 << 20, table=kernel.table)
        index.reserve(10_000)
        assert (entries(index), time_entries(index)) == found
        assert len(found[0]) == 2 and len(found[1]) == 2
        index.close()
