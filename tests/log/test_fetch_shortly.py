"""The fast path of a fetch has the same result as the full path, with few reads and without Python frames."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import klog
from klog.disk import RealFiles
from klog.errors import OffsetOutOfRange
from klog.log import FetchData
from klog.log.read.fetch import Isolation, fetch
from klog.log.write._append import lead_alone
from klog.log.write._commit import Ticket
from klog.log.write.commit import commit_locked
from klog.record import decode, encode
from tests.support.batches import NOW, marker, transactional
from tests.support.damage import flip
from tests.support.examples import examples
from tests.support.faulty_io import FaultyIo
from tests.support.frames import frames_of

CONFIG = {"segment.bytes": 40_000, "index.interval.bytes": 500, "segment.index.bytes": 4096}
ISOLATIONS: list[Isolation] = ["log_end", "high_watermark", "read_committed"]

sizes = st.sampled_from([1, 90, 1100, 5000, 9000])
steps = st.one_of(
    st.tuples(st.just("append"), st.lists(st.tuples(st.integers(1, 5), sizes), min_size=1, max_size=12)),
    st.tuples(st.just("replicate"), st.lists(st.tuples(st.integers(0, 3), sizes), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["truncate", "delete_records", "high_watermark"]), st.floats(0, 1)),
    st.tuples(st.sampled_from(["roll", "reopen", "transaction", "commit"]), st.none()),
)


class Machine:
    def __init__(self, path: Path, files: RealFiles | None = None, config: dict[str, Any] | None = None) -> None:
        self.path, self.files, self.config = path / "t-0", files, {**CONFIG, **(config or {})}
        self.log = self.open()
        self.ongoing: list[int] = []  # producers with an open transaction, also ones that were truncated
        self.producers = 0

    def open(self) -> klog.Log:
        return klog.Log.open(self.path, config=self.config, files=self.files)

    def take(self, name: str, what: Any) -> None:
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        if name == "append":
            for count, size in what:
                log.append([(None, b"v" * size)] * count)
        elif name == "replicate":  # with gaps, several batches in one append
            parts, offset = [], end
            for gap, size in what:
                parts.append(encode([(None, b"r" * size, NOW)], base_offset=offset + gap))
                offset += gap + 1
            log.append_batches(b"".join(parts), origin="replication")
        elif name == "truncate":
            log.truncate_to(start + round(what * (end - start)))
        elif name == "delete_records":
            log.delete_records(start + round(what * (log.high_watermark - start)))
        elif name == "high_watermark":
            log.update_high_watermark(start + round(what * (end - start)))
        elif name == "roll":
            log.roll()
        elif name == "reopen":
            log.close()
            self.log = self.open()
        elif name == "transaction":
            self.producers += 1
            self.ongoing.append(self.producers)
            log.append_batches(transactional(self.producers, 0, 0), origin="client")
        elif self.ongoing:
            log.append_batches(marker(self.ongoing.pop(0), 0, "abort"), origin="coordinator")

    def check(self, offset: int, max_bytes: int, isolation: Isolation, min_one: bool) -> int | None:
        """Compare both paths. Returns the offset after the slice."""
        log = self.log
        try:
            expected = fetch(log._core, offset, max_bytes, isolation, min_one)
        except OffsetOutOfRange as error:
            with pytest.raises(OffsetOutOfRange, match=str(error.offset)):
                log.fetch(offset, max_bytes, isolation=isolation, min_one_message=min_one)
            return None
        found = log.fetch(offset, max_bytes, isolation=isolation, min_one_message=min_one)
        assert found == expected
        assert found.last_stable_offset == expected.last_stable_offset
        batches = list(decode(found.memory()))
        assert sum(batch.size for batch in batches) == found.size
        return batches[-1].next_offset if batches else None


@settings(max_examples=examples(deep=2000))
@given(
    st.lists(steps, min_size=1, max_size=12),
    st.sampled_from([1, 100, 3000, 20_000, 1 << 20]),
    st.sampled_from(ISOLATIONS),
    st.booleans(),
    st.integers(1, 9),
)
def test_both_paths_agree(
    taken: list[tuple[str, Any]], max_bytes: int, isolation: Isolation, min_one: bool, stride: int
) -> None:
    """They are compared after each step, with fetches at offsets that are far apart, and with fetches that continue
    where the last slice ended."""
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        for name, what in taken:
            machine.take(name, what)
            start, end = machine.log.log_start_offset, machine.log.log_end_offset
            for offset in range(start, end + 1, max(stride, (end - start) // 15)):
                machine.check(offset, max_bytes, isolation, min_one)
            offset = start
            for _ in range(30):
                found = machine.check(offset, max_bytes, isolation, min_one)
                if found is None:
                    break
                offset = found
        machine.log.close()


@settings(max_examples=examples(deep=1000))
@given(
    st.lists(steps, min_size=1, max_size=12),
    st.sampled_from([1, 3000, 1 << 20]),
    st.sampled_from(ISOLATIONS),
)
def test_both_paths_agree_for_a_reader(taken: list[tuple[str, Any]], max_bytes: int, isolation: Isolation) -> None:
    """It computes the state of the producers on demand. Compared before and after that, beside the writer."""
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        with klog.Log.open(machine.path, config=CONFIG, read_only=True) as reader:
            for name, what in taken:
                machine.take(name, what)
                reader.refresh()
                start, end = reader.log_start_offset, reader.log_end_offset
                for offset in range(start, end + 1, max(1, (end - start) // 5)):
                    found = [reader.fetch(offset, max_bytes, isolation=isolation) for _ in range(2)]
                    expected = fetch(reader._core, offset, max_bytes, isolation, True)
                    assert found == [expected, expected]
                    assert [each.last_stable_offset for each in found] == [expected.last_stable_offset] * 2
        machine.log.close()


@pytest.mark.parametrize(
    "end", [40, 120]
)  # the fast path uses the positions of the newest batches, or only the ends of slices
@pytest.mark.parametrize("how", ["truncate", "compact", "reopen", "undo"])
def test_places_are_forgotten_when_bytes_move(tmp_path: Path, how: str, end: int) -> None:
    """The positions of the newest batches, and the ends of slices, are used only until other bytes may be there."""
    with FaultyIo() as io:
        machine = Machine(tmp_path, files=RealFiles(table=io.table), config={"cleanup.policy": "compact"})
        for number in range(30):
            machine.log.append([(b"k%d" % (number % 7), b"v" * (100 + 9 * number))])
        for offset in range(12, 17):
            assert machine.check(offset, 1000, "log_end", True)
        if how == "truncate":
            machine.log.truncate_to(12)
        elif how == "compact":
            machine.log.roll()
            machine.log.append([(b"k", b"v")])
            stats = machine.log.compact()
            assert stats.records_after < stats.records_before
        elif how == "reopen":
            machine.take("reopen", None)
            machine.log.truncate_to(12)
        else:
            io.rule("pwrite", error=errno.ENOSPC, times=1)
            with pytest.raises(OSError):
                machine.log.append([(b"k", b"v" * 50)])
        while machine.log.log_end_offset < end:
            machine.log.append([(b"k", b"w" * (400 - 3 * machine.log.log_end_offset))])
        for max_bytes in (1 << 20, 1, 3000):
            assert all(machine.check(offset, max_bytes, "log_end", True) for offset in range(12, end))
        machine.log.close()


def counted(
    io: FaultyIo, log: klog.Log, offset: int, max_bytes: int, isolation: Isolation = "high_watermark"
) -> tuple[int, int, FetchData]:
    """(reads, Python frames) of a fetch."""
    found: list[FetchData] = []
    before = io.calls("pread") + io.calls("preadv2")
    frames = frames_of(lambda: found.append(log.fetch(offset, max_bytes, isolation=isolation))).total()
    return io.calls("pread") + io.calls("preadv2") - before, frames, found[0]


def test_a_slice_is_sent_without_python_code(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append([(b"k", b"v" * 100)] * 10)
        data = log.fetch(0)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert not frames_of(lambda: data.send_to(ours))
            assert not frames_of(lambda: data.send_to(ours, start=100))
            assert theirs.recv(1 << 20) == bytes(data.memory()) + bytes(data.memory()[100:])


@pytest.mark.parametrize(
    ("size", "records"), [(100, 1), (1900, 1), (4000, 1), (4000, 10), (7000, 10), (16_000, 1), (16_000, 10)]
)
def test_a_fetch_takes_one_frame_and_few_reads(tmp_path: Path, size: int, records: int) -> None:
    """A fetch at a random offset: one read to find its start, and one to find its end if that is not at once after its
    first batch. A fetch that continues where the last one ended: no read for the start. Near the log end: no read. One
    read in sixteen is sampled, which takes one more read."""
    with FaultyIo() as io, klog.Log.open(tmp_path / "t-0", files=RealFiles(table=io.table)) as log:
        count, batch = 3_000_000 // size, encode([(None, b"v" * (size // records))] * records)
        for _ in range(count):
            log.append_batches(batch)
        log.fetch(0)  # opens
        end = count * records
        for max_bytes, most in ((1, 1), (len(batch), 1), (len(batch) + 20, 1), (16_384, 2), (1 << 20, 2)):
            reads = [counted(io, log, offset, max_bytes)[:2] for offset in range(1, end // 2, end // 40)]
            assert {frames for _, frames in reads} == {1}
            assert sum(read for read, _ in reads) <= most * len(reads) + len(reads) // 16 + 1
            reads, offset = [], 5 * records
            for _ in range(3 if max_bytes == 1 << 20 else 30):
                read, frames, found = counted(io, log, offset, max_bytes)
                reads.append((read, frames))
                offset = list(decode(found.memory()))[-1].next_offset
            assert sum(read for read, _ in reads) <= len(reads) + 1 + len(reads) // 16 + 1
            if max_bytes == 16_384:  # the end of such a slice is before the log end
                continue
            reads = [counted(io, log, offset, max_bytes)[:2] for offset in range(end - 60 * records, end + 1, records)]
            assert sum(read for read, _ in reads) <= len(reads) // 16 + 1
        if len(batch) < 5000:  # one read takes the headers of two more batches
            reads = [counted(io, log, offset, 3 * len(batch))[:2] for offset in range(1, end // 2, end // 40)]
            assert sum(read for read, _ in reads) <= 2 * len(reads) + len(reads) // 16 + 1


def test_a_read_committed_fetch_without_aborted_transactions_costs_what_another_does(tmp_path: Path) -> None:
    """Also in a log of many segments. The first fetch notes which segments have none."""
    with FaultyIo() as io:
        files = RealFiles(table=io.table)
        with klog.Log.open(tmp_path / "t-0", config={"segment.bytes": 40_000}, files=files) as log:
            for _ in range(300):
                log.append([(b"k", b"v" * 900)])
            assert len(log.segments) > 5
            for max_bytes, most in ((1, 1), (3000, 2)):
                offsets = range(0, 200, 7)
                for offset in offsets:  # opens
                    log.fetch(offset, max_bytes, isolation="read_committed")
                reads = [counted(io, log, offset, max_bytes, "read_committed")[:2] for offset in offsets]
                assert {frames for _, frames in reads} == {1}
                assert sum(read for read, _ in reads) <= most * len(reads) + len(reads) // 16 + 1
            log.append_batches(transactional(1, 0, 0))
            assert log.fetch(299, isolation="read_committed").aborted_transactions == ()
            log.append_batches(marker(1, 0, "abort"), origin="coordinator")
            aborted = log.fetch(299, isolation="read_committed").aborted_transactions
            assert [(each.producer_id, each.first_offset, each.last_offset) for each in aborted] == [(1, 300, 301)]
            assert log.fetch(0, 3000, isolation="read_committed").aborted_transactions == ()
            log.roll()
            log.append([(b"k", b"v")])
            assert log.fetch(299, isolation="read_committed").aborted_transactions == aborted
            assert log.fetch(302, isolation="read_committed").aborted_transactions == ()


def test_a_read_committed_fetch_of_a_reader_costs_what_another_does(tmp_path: Path) -> None:
    """Once the state of its producers is computed, by the first fetch."""
    with FaultyIo() as io:
        files = RealFiles(table=io.table)
        with klog.Log.open(tmp_path / "t-0", config={"segment.bytes": 40_000}, files=files) as log:
            for _ in range(200):
                log.append([(b"k", b"v" * 900)])
            log.append_batches(transactional(1, 0, 0))
            with log.snapshot() as reader:
                for offset in (1, 50, 120):
                    assert reader.fetch(offset, 3000, isolation="read_committed").last_stable_offset == 200
                    reads, frames, found = counted(io, reader, offset, 3000, "read_committed")
                    assert frames == 1 and reads <= 3 and found.size > 0
                    assert found == fetch(reader._core, offset, 3000, "read_committed", True)
            log.append_batches(marker(1, 0, "abort"), origin="coordinator")
            with log.snapshot() as reader:
                for _ in range(2):
                    found = reader.fetch(200, isolation="read_committed")
                    assert (found.last_stable_offset, found.size > 0) == (202, True)
                    assert [each.first_offset for each in found.aborted_transactions] == [200]


@pytest.mark.parametrize("what", ["length", "base_offset", "last_offset_delta", "magic"])
def test_damage_leaves_no_record_out(tmp_path: Path, what: str) -> None:
    """A fetch or a read of a damaged log begins with the batch of its offset, or raises CorruptBatch."""
    at = {"base_offset": 7, "length": 10, "magic": 16, "last_offset_delta": 26}[what]
    with klog.Log.open(tmp_path / "t-0", config={"index.interval.bytes": 500}) as log:
        for number in range(300):
            log.append_batches(encode([(None, b"%d" % number * 50)] * 2))
        batches = [(batch.position, batch.base_offset) for batch in log.read().batches()]
        path = Path(log.segments[0].path)
    sound, compared = path.read_bytes(), Counter[str]()
    for number, bit in itertools.product((150, 151), (0, 3)):  # every second batch has an index entry
        path.write_bytes(flip(sound, batches[number][0] + at, bit))
        with klog.Log.open(tmp_path / "t-0", clean_shutdown=True) as log:
            for offset in (*range(320, 280, -1), *range(280, 320)):
                with contextlib.suppress(klog.errors.CorruptData):
                    assert [record.offset for record in log.read(offset)] == list(range(offset, 600))
                    compared["read"] += 1
                for max_bytes in (1, 2000, 10_000, 60_000, 1 << 20):
                    try:
                        found = log.fetch(offset, max_bytes)
                    except klog.errors.CorruptData:
                        continue
                    reaches = next(position for position, base in batches if base + 1 >= offset)
                    assert found.position.position <= reaches
                    compared["fetch"] += 1
            path.write_bytes(sound)
    assert compared["read"] > 50 and compared["fetch"] > 200


def test_a_fetch_below_the_log_start_is_refused(tmp_path: Path) -> None:
    """UL: the records are still in the segment."""
    with klog.Log.open(tmp_path / "t-0") as log:
        for number in range(4):
            log.append([(b"k", b"%d" % number)])
        log.delete_records(2)
        assert len(log.segments) == 1
        with pytest.raises(OffsetOutOfRange):
            log.fetch(1)
        assert log.fetch(2).size > 0


def test_places_of_an_interrupted_group_are_forgotten(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", durability="sync") as log:
        log.append([(None, b"first")])

        def append() -> object:
            return lead_alone(log._core, encode([(None, b"v" * 900)] * 4), "client", None)

        def interrupt() -> None:
            raise KeyboardInterrupt

        with log._core.lock, pytest.raises(KeyboardInterrupt):
            commit_locked(log._core, [Ticket(action=append), Ticket(action=interrupt)])
        for number in range(6):
            log.append([(None, b"v" * (90 - number))])
            for offset, max_bytes in itertools.product(range(number + 2), (1 << 20, 1, 300)):
                assert log.fetch(offset, max_bytes) == fetch(log._core, offset, max_bytes, "log_end", True)
