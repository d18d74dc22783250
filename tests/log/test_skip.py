"""recovery="skip": a reader of a log with damage in its last segment comes to the valid batches after the damage."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import klog
from klog.errors import CorruptBatch, CorruptLog
from tests.support.damage import flip

EACH, COUNT = 2, 8  # records of a batch, batches
EVERY = [(offset, b"%d" % offset) for offset in range(EACH * COUNT)]
BEYOND = 6  # a flip of one of these bytes, the highest of a base offset, puts the last batch beyond its segment


class Batches:
    """A log of COUNT batches in one segment. Batch n has the time 1000 n."""

    def __init__(self, path: Path, index_interval: int = 4096) -> None:
        self.path = path / "t-0"
        config = {"index.interval.bytes": index_interval}
        with klog.Log.open(self.path, clean_shutdown=True, config=config) as log:
            for number in range(COUNT):
                log.append([(b"k", b"%d" % (EACH * number + n), 1000 * number) for n in range(EACH)])
            (chunk,) = log.read().chunks()
            self.positions = [batch.position for batch in klog.record.decode(chunk.buffer)]
            self.file = Path(log.segments[-1].path)
        self.data = self.file.read_bytes()

    def open(self, recovery: str = "skip") -> klog.Log:
        return klog.Log.open(self.path, read_only=True, recovery=recovery)  # type: ignore[arg-type]


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path)


def readable(log: klog.Log) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all that can be read: past damage at the offset that the error names."""
    found: list[tuple[int, bytes | None]] = []
    start = 0
    while True:
        try:
            found.extend((record.offset, record.value) for record in log.read(start))
            return found
        except CorruptBatch as error:
            following = error.next_offset
        assert following is not None and following > start
        start = following


def of_others(number: int) -> list[tuple[int, bytes]]:
    """The records of the other batches."""
    return [(offset, value) for offset, value in EVERY if offset // EACH != number]


def opens(batches: Batches, recovery: str) -> bool:
    try:
        batches.open(recovery).close()
    except CorruptLog:
        return False
    return True


def check(batches: Batches, at: int, bit: int) -> bool:
    """Check what is read after a flip of this bit. Returns whether strict refuses the log."""
    batches.file.write_bytes(flip(batches.data, at, bit))
    number = sum(position <= at for position in batches.positions) - 1
    field = at - batches.positions[number]
    refused = not opens(batches, "strict")
    if number == COUNT - 1 and field < BEYOND and not opens(batches, "skip"):
        return refused  # `klog repair` restores it
    with batches.open() as log:
        found, end = readable(log), log.log_end_offset
    assert set(of_others(number)) <= set(found)
    if number < COUNT - 1 or field >= 8:  # else no batch after it shows that its base offset is wrong
        assert set(found) <= set(EVERY)
    if number < COUNT - 1:
        assert end == EACH * COUNT
    return refused


@pytest.mark.parametrize("number", [0, 4, COUNT - 2, COUNT - 1])
def test_a_flip_of_a_bit_of_a_header_hides_no_other_batch(batches: Batches, number: int) -> None:
    """Lengths are flipped bit by bit: they lead into the middle of later batches."""
    start = batches.positions[number]
    bits = [(at, bit) for at in range(61) for bit in (range(8) if 8 <= at < 12 else (at % 8,))]
    refused = [check(batches, start + at, bit) for at, bit in bits]
    assert any(refused)


@pytest.mark.parametrize(("number", "interval"), [(1, 4096), (4, 4096), (COUNT - 1, 4096), (COUNT - 1, 200)])
def test_a_base_offset_that_is_too_low_hides_no_other_batch(tmp_path: Path, number: int, interval: int) -> None:
    """Also where the scan begins at an index entry before it."""
    batches = Batches(tmp_path, interval)
    for bit in range(4):
        if EACH * number >> bit & 1:
            batches.file.write_bytes(flip(batches.data, batches.positions[number] + 7, bit))
            with batches.open() as log:
                assert set(of_others(number)) <= set(readable(log))
                assert log.log_end_offset == EACH * (COUNT - (number == COUNT - 1))
                assert len(log.recovery.details) == 1


def test_a_base_offset_of_the_batch_before_hides_no_record(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append([(b"k", b"%d" % n) for n in range(4)])
        at = log.segments[-1].size
        log.append([(b"k", b"last")])
        file = Path(log.segments[-1].path)
    file.write_bytes(flip(file.read_bytes(), at + 7, 2))
    with klog.Log.open(tmp_path / "t-0", read_only=True, recovery="skip") as log:
        assert log.log_end_offset == 4
        assert set(readable(log)) >= {(n, b"%d" % n) for n in range(4)}


def test_a_base_offset_out_of_range_is_refused_after_other_damage(batches: Batches) -> None:
    """Else the log would end far beyond its records."""
    data = flip(batches.data, batches.positions[4] + 7, 3)
    batches.file.write_bytes(flip(data, batches.positions[-1] + 3, 4))
    assert not opens(batches, "skip")


@pytest.mark.deep
def test_a_flip_of_any_bit_hides_no_other_batch(batches: Batches) -> None:
    refused = [check(batches, at, bit) for at in range(len(batches.data)) for bit in range(8)]
    assert any(refused) and not all(refused)


def test_damage_in_several_places(batches: Batches) -> None:
    data = batches.data
    for number in (1, 2, 5):
        data = flip(data, batches.positions[number] + 8, 6)
    batches.file.write_bytes(data)
    left = [(offset, value) for offset, value in EVERY if offset // EACH not in (1, 2, 5)]
    with batches.open() as log:
        assert readable(log) == left
        assert len(log.recovery.details) == 2
        assert all("a truncated batch at byte" in line for line in log.recovery.details)
        assert "the log goes on at offset 12" in log.recovery.details[1]
    assert batches.file.read_bytes() == data


def test_a_strict_reader_refuses_what_a_wrong_length_hides(batches: Batches) -> None:
    """The length of the first batch leads into the middle of a later one, where bytes look like a batch with a huge
    offset: then the valid batches are below the offsets of the scan."""
    for bit in range(16):
        batches.file.write_bytes(flip(batches.data, batches.positions[0] + 10 + bit // 8, bit % 8))
        assert not opens(batches, "strict"), bit


@pytest.mark.parametrize("indexed", [True, False])
def test_a_lookup_by_time_does_not_end_at_the_damage(batches: Batches, indexed: bool) -> None:
    if not indexed:
        for each in batches.path.glob("*index"):
            each.unlink()
    batches.file.write_bytes(flip(batches.data, batches.positions[3] + 8, 6))
    with batches.open() as log:
        found = log.offset_for_timestamp(2000)
        assert found is not None and found.offset == 2 * EACH
        with pytest.raises(CorruptBatch) as caught:
            log.offset_for_timestamp(1000 * (COUNT - 1))
        assert (caught.value.offset, caught.value.position) == (3 * EACH, batches.positions[3])
        assert log.offset_for_timestamp(1000 * COUNT) is None


def test_a_torn_tail_ends_the_log(batches: Batches) -> None:
    """It looks like an append in progress; no record after it was ever promised."""
    batches.file.write_bytes(batches.data[:-10])
    with batches.open() as log:
        assert readable(log) == of_others(COUNT - 1)
        assert "left out, log ends at 14" in log.recovery.reason


def test_a_reader_follows_a_writer_after_the_damage(batches: Batches) -> None:
    """The damage is done while a writer has the log open: it does not read what it has written."""
    with klog.Log.open(batches.path) as writer:
        with open(batches.file, "r+b") as file:
            file.seek(batches.positions[3] + 8)
            file.write(b"\x40")
        with batches.open() as log:
            assert readable(log) == of_others(3)
            writer.append([(b"k", b"new")])
            assert readable(log) == [*of_others(3), (EACH * COUNT, b"new")]


def test_a_reader_that_another_process_gets_skips_too(batches: Batches) -> None:
    batches.file.write_bytes(flip(batches.data, batches.positions[3] + 8, 6))
    with batches.open() as log:
        again = pickle.loads(pickle.dumps(log))
        with again:
            assert readable(again) == of_others(3)
        records = iter(pickle.loads(pickle.dumps(log.read(4 * EACH))))
        assert [record.offset for record in records] == list(range(4 * EACH, EACH * COUNT))


def test_a_log_dir(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.file.write_bytes(flip(batches.data, batches.positions[3] + 8, 6))
    with klog.open(tmp_path, read_only=True) as logs, pytest.raises(CorruptLog, match='"skip" past it'):
        logs.log("t")
    with klog.open(tmp_path, read_only=True, recovery="skip") as logs:
        assert readable(logs.log("t")) == of_others(3)


def test_only_a_reader_can_skip(tmp_path: Path) -> None:
    for call, path in ((klog.open, tmp_path), (klog.Log.open, tmp_path / "t-0")):
        with pytest.raises(ValueError, match="recovery='skip', read_only=False: .* use read_only=True"):
            call(path, recovery="skip")  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []
