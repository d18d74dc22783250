"""The statements about records, segments and files in the cleaner, one by one."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import klog
from klog.cleaner import Dirt, KeyMap, RoundStats, clean_round, cleanable, dirt, write_first_dirty
from klog.cleaner.plan import SPAN_MAX, group
from klog.cleaner.rewriting import Source
from klog.cleaner.round import Round
from klog.errors import CorruptBatch
from klog.record import encode
from tests.cleaner.logs import NOW, append, open_log, values
from tests.cleaner.story import RETENTION_MS, Story, key
from tests.support.legacy_reference import Message, encode_message

MOST = 2**40
BEYOND = 2**63 - 1
SMALL = {"segment.bytes": 1024}


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with Story(tmp_path) as opened_story:
        yield opened_story


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Story]:
    with Story(tmp_path, **SMALL) as opened_story:
        yield opened_story


def map_beyond(keys: Iterable[int], latest: int) -> KeyMap:
    """A map with later offsets of these keys than the log has, and no other keys, up to an offset."""
    found = KeyMap(24 * 1000)
    found.put(named := [key(number) for number in keys], [BEYOND] * len(named))
    found.latest_offset = latest
    return found


def clean_by(log: klog.Log, keys: KeyMap) -> RoundStats:
    """Run pass 2 alone over all closed segments."""
    end = log.segments[-1].base_offset
    return clean_round(log._core, Dirt(end, end, log.size - log.segments[-1].size, 0), keys, NOW)


# ---- the basics ----------------------------------------------------------------------------------------------------


def test_records_with_a_later_offset_in_the_map_are_removed(small: Story) -> None:
    """CL1: the records of the keys 1, 3, 5, 7 and 9 are removed, and every byte of the segments is read once."""
    small.write_segments(4)
    written, log = small.keys, small.log
    assert written == list(range(log.log_end_offset))
    sizes = sum(segment.size for segment in log.segments[:3])
    stats = clean_by(log, map_beyond([1, 3, 5, 7, 9], log.segments[-1].base_offset - 1))
    gone = {1, 3, 5, 7, 9}
    # The map has no other key, so any offset of another key is its latest.
    assert small.keys == [number for number in written if number not in gone]
    assert (stats.bytes_read, stats.bytes_written) == (sizes, sum(s.size for s in log.segments[:-1]))


def test_a_cleaned_segment_has_no_preallocated_zeros(tmp_path: Path) -> None:
    """CL3: preallocate extends only the active segment."""
    with Story(tmp_path, preallocate=True) as story:
        story.put(0, 1, 0, 1, 0)
        story.clean()
        story.put(0)
        first, active = (os.stat(segment.path) for segment in story.log.segments)
        assert story.offsets == [3, 4, 5]
        assert first.st_size == story.log.segments[0].size > 0
        assert first.st_blocks * 512 < 65536 <= active.st_blocks * 512


def test_deleted_keys_are_removed(small: Story) -> None:
    """CL4: every other key is deleted, over several segments; the rest keep their latest value."""
    small.write_segments(2)
    end = small.log.log_end_offset
    small.put(*range(0, end, 2), value=None)
    small.write_segments(5)
    before = values(small.log)
    small.clean(roll=False)
    assert not set(small.keys) & set(range(0, end, 2))
    assert set(range(1, end, 2)) <= set(small.keys)
    assert values(small.log) == before


def test_the_counters_of_a_round(story: Story) -> None:
    """CL5: of five records two stay: end 5, read 5, written 2, without a key 0, in the map 5."""
    story.put(0, 1, 0, 1, 0)
    story.log.roll()
    size = story.log.size
    stats = clean_round(story.log._core, Dirt(0, 5, 0, size), KeyMap(4 * 24, 0.75), NOW)
    assert (stats.end, stats.records_read, stats.records_written, stats.keyless) == (5, 5, 2, 0)
    assert (stats.map_records_read, stats.map_bytes_read, stats.keys) == (5, size, 2)
    assert (stats.bytes_read, stats.bytes_written) == (size, story.log.size)
    assert stats.map_utilization == 2 / 4


def test_only_records_without_a_key_are_removed(tmp_path: Path) -> None:
    """CL6: written while the policy was delete; what is left has the size of the batches with keys."""
    with Story(tmp_path, **SMALL, **{"cleanup.policy": "delete"}) as story:
        while len(story.log.segments) < 2:
            append(story.log, [(None, b"%d" % story.log.log_end_offset)], batch=1)
        count, without = story.log.log_end_offset, story.log.size
        story.write_segments(3)
        keyed, total = story.keys, story.log.size
    with Story(tmp_path, **SMALL) as story:
        stats = story.clean(roll=False)
        assert (stats.keyless, story.keys, story.log.size) == (count, keyed, total - without)


def test_a_map_of_one_key_cleans_one_key_a_round(tmp_path: Path) -> None:
    """CL7: keys 0, 1, 0, 1, 0, from offset 2 on: [1, 0, 1, 0], [0, 1, 0], [1, 0]."""
    one_key = {"log.cleaner.dedupe.buffer.size": 2 * 24, "log.cleaner.io.buffer.load.factor": 0.75}
    with Story(tmp_path, **one_key) as story:
        story.put(0, 1, 0, 1, 0)
        story.log.roll()
        write_first_dirty(story.log._core, 2, story.log._core.rewritten)
        for end, keys in ((3, [1, 0, 1, 0]), (4, [0, 1, 0]), (5, [1, 0])):
            assert story.clean(rounds=1).first_dirty_offset == end
            assert (story.keys, story.offsets) == (keys, list(range(5 - len(keys), 5)))


def test_records_above_the_last_stable_offset_do_not_count(small: Story) -> None:
    """CL8: an open transaction in the third segment of seven: that one and the later ones stay unchanged, and their
    records remove no record below."""
    log, numbers = small.log, iter(range(10**6))
    small.write_segments(3, (next(numbers) % 10 for _ in range(1000)))
    small.transact(1, 3)
    small.write_segments(7, (next(numbers) % 10 for _ in range(1000)))
    bases = [segment.base_offset for segment in log.segments]
    range_ = cleanable(log.segments, None, 0, log.log_end_offset, log.last_stable_offset, 0, NOW)
    found = dirt(log.segments, range_)
    sizes = [segment.size for segment in log.segments]
    assert (found.first_uncleanable, found.cleanable_bytes) == (bases[2], sum(sizes[:2]))
    assert found.clean_bytes + found.cleanable_bytes + sum(sizes[2:]) == log.size
    half = dirt(log.segments, cleanable(log.segments, bases[1], 0, log.log_end_offset, log.last_stable_offset, 0, NOW))
    assert (half.clean_bytes, half.cleanable_bytes, half.ratio) == (*sizes[:2], sizes[1] / sum(sizes[:2]))
    above = [Path(segment.path).read_bytes() for segment in log.segments[2:]]
    small.clean(roll=False)
    assert small.log.segments[0].size < sum(sizes[:2])
    assert [Path(segment.path).read_bytes() for segment in log.segments[-5:]] == above
    assert sorted(small.keys[:10]) == list(range(10))
    assert max(small.offsets[:10]) < bases[2]


class Stopped(Exception):
    """Raised by the hook to stop the cleaning."""


@pytest.mark.parametrize("stage", ["index", "clean"])
def test_a_stopped_cleaning_leaves_the_log_unchanged(small: Story, stage: str) -> None:
    """CL9: the hook that is called after each chunk, in either pass, stops the cleaning."""
    small.write_segments(4, [0] * 100)
    directory = Path(small.log.path)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    def stop(event: klog.progress.Event) -> None:
        if event.stage == stage:
            raise Stopped

    with pytest.raises(Stopped):
        small.clean(roll=False, progress=stop)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert small.clean(roll=False).records_after == 2


def test_an_empty_batch_keeps_the_end_if_all_records_go(tmp_path: Path) -> None:
    """CL10: of three segments one is left, with one batch that ends where the next segment begins."""
    with Story(tmp_path, **SMALL) as story:
        story.write_segments(4)
    with Story(tmp_path) as story:
        log = story.log
        assert len(log.segments) == 4
        last = log.segments[-1].base_offset - 1
        clean_by(log, map_beyond(story.keys, last))
        check_emptied(story, last)


def check_emptied(story: Story, last: int) -> None:
    log = story.log
    assert len(log.segments) == 2
    empty, active = story.batches
    assert (empty.count, empty.last_offset, active.base_offset) == (0, last, last + 1)
    assert (log.segments[0].size, log.segments[0].next_offset) == (61, last + 1)


def test_chunks_without_kept_records(tmp_path: Path) -> None:
    """CL11: more than a chunk of aborted batches lies between kept ones; the cleaning continues."""
    large = os.urandom(200_000)
    with Story(tmp_path, **{"segment.bytes": 1 << 23, "max.message.bytes": 1 << 20}) as story:
        story.put(1)
        for number in range(16):
            batch = encode(
                [(b"k%d" % number, large, NOW)],
                producer_id=1,
                producer_epoch=0,
                base_sequence=number,
                is_transactional=True,
            )
            story.log.append_batches(batch)
        story.abort(1)
        story.put(2)
        read: list[int] = []
        story.clean(progress=lambda event: read.append(event.done))
        assert story.keys == [1, 2]
        assert story.ends == [0, 16, 17, 18]
        assert story.log.size < 1000
        assert len(read) >= 6


@pytest.mark.parametrize("size", [1 << 20, 5 << 20])
def test_batches_larger_than_a_chunk(tmp_path: Path, size: int) -> None:
    """CL12: also a batch that is larger than the current max.message.bytes."""
    config = {"segment.bytes": 1 << 24, "max.message.bytes": 1 << 23}
    with Story(tmp_path, **config) as story:
        for number in (1, 2, 1):
            append(story.log, [(key(number), bytes(size))])
    with Story(tmp_path, **config | {"max.message.bytes": 1024}) as story:
        story.clean()
        assert [(record.offset, len(record.value or b"")) for record in story.log.read()] == [(1, size), (2, size)]


@pytest.mark.parametrize("compression", ["gzip", "lz4"])
def test_what_is_left_of_a_batch_can_be_decompressed(tmp_path: Path, compression: str) -> None:
    """Without the record that did not shrink, the payload would become so small that readers take it for a bomb."""
    with Story(tmp_path, **{"segment.bytes": 1 << 27, "max.message.bytes": 1 << 24}) as story:
        zeros, noise = bytes(65 << 20), random.Random(2).randbytes(11 << 20)
        batch = encode([(key(1), zeros, NOW), (key(2), noise, NOW)], compression=compression)
        story.log.append_batches(batch)
        story.put(2)
        story.clean()
        assert [(record.offset, len(record.value or b"")) for record in story.log.read()] == [(0, 65 << 20), (2, 1)]


@pytest.mark.parametrize("what", ["magic", "beyond the end", "cut", "negative", "nothing"])
def test_an_impossible_batch_size_ends_the_cleaning(tmp_path: Path, what: str) -> None:
    """CL12: instead of allocating that much; the log stays unchanged, and the error names the position."""
    with Story(tmp_path, **{"segment.bytes": 1 << 21, "max.message.bytes": 1 << 21}) as story:
        append(story.log, [(b"a", bytes(1 << 20))])
        append(story.log, [(b"b", bytes(1000))])
        story.log.roll()
        append(story.log, [(b"c", b"")])
        path = Path(story.log.segments[0].path)
        with path.open("r+b") as file:
            if what == "magic":
                file.seek(16)
                file.write(b"\xff")
            elif what == "cut":
                file.truncate(1024)
            else:
                file.seek(8)
                file.write(struct.pack(">i", {"beyond the end": 2**31 - 100, "negative": -1, "nothing": 0}[what]))
        damaged = path.read_bytes()
        with pytest.raises(CorruptBatch) as caught:
            story.clean(roll=False)
        assert (caught.value.path, caught.value.position) == (str(path), 0)
        assert (path.read_bytes(), story.temporary) == (damaged, [])


def wrapped(magic: int, inner_magic: int, offset: int, keys: Sequence[int]) -> bytes:
    """As old cleaners left them: a wrapper around messages of another format. Values are the offsets."""
    inner = []
    for n, number in enumerate(keys):
        place = n if magic else offset + n
        stamp = NOW if inner_magic else -1
        inner.append(encode_message(Message(inner_magic, place, key(number), b"%d" % (offset + n), stamp)))
    payload = gzip.compress(b"".join(inner), mtime=0)
    return encode_message(Message(magic, offset + len(keys) - 1, None, payload, NOW if magic else -1, 1))


@pytest.mark.parametrize(("magic", "inner"), [(0, 0), (1, 1), (1, 0)])
def test_old_message_sets_keep_their_offsets(story: Story, magic: int, inner: int) -> None:
    """CL13: [25, 28] with keys twice, and [50, 51] without, also where the outer and the inner format differ."""
    story.log.append_batches(wrapped(magic, inner, 25, [0, 1, 0, 1]), origin="replication")
    story.log.append_batches(wrapped(magic, inner, 50, [3, 4]), origin="replication")
    story.clean()
    found = [(batch.magic, record.offset, record.value) for batch in story.batches for record in batch]
    assert found == [(2, offset, b"%d" % offset) for offset in (27, 28, 50, 51)]


def test_the_next_round_begins_after_gaps(tmp_path: Path) -> None:
    """CL14: 0 to 9, the next segment at 11: begins at 11. Over two gaps: where the active segment begins."""
    with Story(tmp_path / "one") as story:
        for offset in range(10):
            story.replicate(offset, offset)
        story.log.roll(11)
        story.replicate(11, 1015)
        stats = story.clean(roll=False)
        assert (stats.first_dirty_offset, stats.rounds) == (11, 1)
    with Story(tmp_path / "two") as story:
        for start in (0, 15):
            for offset in range(start, start + 10):
                story.replicate(offset, offset)
            story.log.roll(start + 15)
        story.replicate(30, 1015)
        stats = story.clean(roll=False)
        assert (stats.first_dirty_offset, stats.rounds) == (30, 1)


# ---- tombstones ----------------------------------------------------------------------------------------------------


def test_a_tombstones_retention_begins_with_its_first_cleaning(tmp_path: Path) -> None:
    """CL30: this does not depend on its own timestamp, nor on that of the data before it."""
    with Story(tmp_path, **{"message.timestamp.after.max.ms": BEYOND}) as story:
        story.log.append([(b"0", b"0", NOW + RETENTION_MS + 10_000)])
        story.clean()
        story.log.append([(b"0", None, NOW - RETENTION_MS - 10_000)])
        story.clean(after=7)
        assert [batch.delete_horizon_ms for batch in story.batches] == [NOW + 7 + RETENTION_MS]
        story.put(1)
        story.clean(after=RETENTION_MS - 1)
        assert story.ends == [1, 2]
        assert story.batches[0].count == 1
        story.put(2)
        story.clean(after=1)
        assert story.ends == [2, 3]


def test_a_delete_horizon_is_set_once(story: Story) -> None:
    """CL31: a later pass that rewrites the batch keeps the horizon, and the timestamps of all its records."""
    records = [(b"gone", None, NOW - 5000), (b"old", b"1", NOW + 77), (b"stays", b"2", NOW - 1)]
    story.log.append(records)
    story.clean()
    (batch,) = story.batches
    assert (batch.delete_horizon_ms, batch.count) == (NOW + RETENTION_MS, 3)
    assert batch.max_timestamp == NOW + 77
    story.log.append([(b"old", b"3", NOW)])
    story.clean(after=1000)
    first, _ = story.batches
    assert (first.delete_horizon_ms, first.count, first.max_timestamp) == (NOW + RETENTION_MS, 2, NOW - 1)
    assert [(r.key, r.timestamp) for r in story.log.read()][:2] == [(b"gone", NOW - 5000), (b"stays", NOW - 1)]
    story.log.append([(b"more", b"", NOW)])
    story.clean(after=RETENTION_MS - 1000)
    assert next((r.key, r.timestamp) for r in story.log.read()) == (b"stays", NOW - 1)


# ---- grouping, the map ---------------------------------------------------------------------------------------------


def sources(log: klog.Log) -> list[Source]:
    """All segments but the last."""
    limits = [segment.base_offset for segment in log.segments[1:]]
    return [Source.of(segment, limit) for segment, limit in zip(log.segments[:-1], limits, strict=True)]


def counts(log: klog.Log, size: int = MOST, index: int = MOST) -> list[int]:
    groups = group(sources(log), size, index, log.segments[-1].base_offset)
    assert [number for part in groups for number in part] == list(range(len(log.segments) - 1))
    return [len(part) for part in groups]


def test_segment_groups(tmp_path: Path) -> None:
    """CL32: ten of them: all, none, three by three by size and by index."""
    with Story(tmp_path, **{"segment.bytes": 300, "index.interval.bytes": 1}) as story:
        while len(story.log.segments) < 11:
            append(story.log, [(b"hello", b"hello")])
        log = story.log
        assert counts(log) == [10]
        assert counts(log, size=1) == counts(log, index=1) == [1] * 10
        for more in (0, 1):
            assert counts(log, size=sum(s.size for s in log.segments[:3]) + more) == [3, 3, 3, 1]
            assert counts(log, index=sum(s.index_bytes for s in sources(log)[:3]) + more) == [3, 3, 3, 1]


def test_sparse_segments_are_grouped_up_to_2_31_offsets(tmp_path: Path) -> None:
    """CL33: up to a last offset of 2^31 - 1 one group, one record more makes two. Three segments that span 2^31 each
    stay three until the first two are empty; then these are one group, and the next cleaning merges them."""
    with Story(tmp_path / "edge") as story:
        story.replicate(0, 1)
        story.log.roll()
        story.replicate(SPAN_MAX - 1, 1)
        story.replicate(SPAN_MAX, 1)
        story.log.roll()
        assert counts(story.log) == [2]
    with Story(tmp_path / "over") as story:
        story.replicate(0, 1)
        story.log.roll()
        story.replicate(SPAN_MAX, 1)
        story.replicate(SPAN_MAX + 1, 1)
        story.log.roll()
        assert counts(story.log) == [1, 1]
    with Story(tmp_path / "far") as story:
        for number in range(3):
            story.replicate(number * 2**31, 1)
            story.replicate((number + 1) * 2**31 - 1, 1)
        story.replicate(3 * 2**31, 1)
        log = story.log
        bases = [number * 2**31 for number in range(4)]
        assert [segment.base_offset for segment in log.segments] == bases
        assert counts(log) == [1, 1, 1]
        story.clean(roll=False)
        assert [segment.size > 0 for segment in log.segments] == [False, False, True, True]
        assert counts(log) == [2, 1]
        story.clean(roll=False, afresh=True)
        assert [segment.base_offset for segment in log.segments] == [0, *bases[2:]]
        assert story.offsets == [3 * 2**31 - 1, 3 * 2**31]


def test_grouping_does_not_use_an_empty_index(story: Story) -> None:
    """CL34: two segments whose indexes are empty, and together span more than 2^31 offsets, are two groups."""
    middle = 2**30
    story.replicate(0, 1)
    story.replicate(1, 1)
    story.log.roll(middle)
    story.replicate(middle, 1)
    story.replicate(2**31, 1)
    story.log.roll()
    assert [source.index_bytes for source in sources(story.log)] == [0, 0]
    assert counts(story.log) == [1, 1]


def survey(log: klog.Log, start: int, end: int, keys: KeyMap) -> RoundStats:
    """Run pass 1."""
    round_ = Round(log._core, Dirt(start, end, 0, 0), keys, NOW, None, False, None)
    round_.note_keys(log.segments)
    return round_.stats


def test_the_map_of_a_range(small: Story) -> None:
    """CL35: the keys of [start, end) at their offsets and no others; its latest offset is end - 1."""
    small.put(*range(500))
    small.log.roll()
    bases = [segment.base_offset for segment in small.log.segments]
    for start, end in ((0, bases[1]), (bases[1], bases[3]), (bases[3], 500)):
        keys = KeyMap(24 * 1000)
        stats = survey(small.log, start, end, keys)
        assert (len(keys), keys.latest_offset) == (end - start, end - 1)
        assert keys.get([key(number) for number in range(start, end)]) == list(range(start, end))
        assert keys.get([key(start - 1), key(end)]) == [-1, -1]
        assert (stats.map_records_read, stats.map_full) == (end - start, False)


@pytest.mark.parametrize("batch", [1, 5])
def test_the_map_of_a_part_of_a_segment(story: Story, batch: int) -> None:
    """CL36: three slots at load .75 take two keys: from 2 on those at 2 and 3, and not the one at 4, wherever batches
    begin."""
    append(story.log, [(key(number), b"v") for number in range(5)], batch=batch)
    story.log.roll()
    keys = KeyMap(3 * 24, 0.75)
    stats = survey(story.log, 2, 5, keys)
    assert (len(keys), keys.latest_offset, stats.map_full) == (2, 3, True)
    assert keys.get([key(number) for number in range(5)]) == [-1, -1, 2, 3, -1]
    assert stats.map_records_read <= 4


def test_the_map_of_distant_offsets(story: Story) -> None:
    """CL37: 0 and 7206178, in two segments."""
    story.replicate(0, 0)
    story.log.roll()
    story.replicate(7206178, 1)
    story.log.roll()
    keys = KeyMap(24 * 1000)
    survey(story.log, 0, 7206179, keys)
    assert (keys.latest_offset, len(keys)) == (7206178, 2)
    assert keys.get([key(0), key(1)]) == [0, 7206178]


# ---- crashes -------------------------------------------------------------------------------------------------------

CRASHES = {"segment.bytes": 300, "index.interval.bytes": 1}
STATES = [
    ("all .cleaned", True, lambda name: ".cleaned"),
    ("one .swap, the rest .cleaned", True, lambda name: ".swap" if name.endswith(".log") else ".cleaned"),
    ("all .swap, the sources there", True, lambda name: ".swap"),
    ("all .swap, the sources .deleted", False, lambda name: ".swap"),
    ("only the time index .swap", False, lambda name: ".swap" if name.endswith(".timeindex") else ""),
    ("complete, sources not yet unlinked", False, lambda name: ""),
]


def test_the_states_that_a_crash_can_leave(tmp_path: Path) -> None:
    """CL39: ten segments, odd keys gone from nine: states 1 and 2 load as all keys, the others as the cleaned ones; no
    file is left over, and the log can be used."""
    with Story(tmp_path / "original", **CRASHES) as story:
        story.write_segments(10)
        log = story.log
        before, bases = story.keys, [segment.base_offset for segment in log.segments]
        odd = [number for number in before if number % 2]
        clean_by(log, map_beyond(odd, bases[-1] - 1))
        after = story.keys
        assert after == [number for number in before if number % 2 == 0 or number >= bases[-1]]
        cleaned = {segment.base_offset for segment in log.segments[:-1]}
        assert len(cleaned) > 1  # what is left needs more than one segment
    for number, (state, sources_there, suffix_of) in enumerate(STATES):
        directory = tmp_path / f"{number}" / "t-0"
        shutil.copytree(tmp_path / "original" / "t-0", directory)
        assert list(directory.glob("*.log.deleted"))
        for path in sorted(directory.iterdir()):
            if path.suffix in (".log", ".index", ".timeindex") and int(path.stem) in cleaned:
                path.rename(path.with_name(path.name + suffix_of(path.name)))
        for path in sorted(directory.glob("*.deleted")) if sources_there else ():
            path.rename(path.with_suffix(""))
        with open_log(directory, config=CRASHES, clean_shutdown=False) as log:
            found = [int(record.key or b"") for record in log.read(isolation="log_end")]
            assert found == (before if number < 2 else after), state
            assert not [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
            log.append([(b"9999", b"")])
            log.compact(roll=True)
            assert [int(record.key or b"") for record in log.read()] == [*found, 9999], state
