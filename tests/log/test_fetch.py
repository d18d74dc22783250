"""Fetch: the start and the end of the bytes, the other results, and how the bytes are sent."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import LogFile, RealFiles, view_of
from klog.errors import CorruptBatch, OffsetOutOfRange
from klog.log import FetchData
from klog.log.read.fetch import read_up_to
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.record import decode, encode
from klog.record.control import marker as marker_record
from tests.support.batches import marker, transactional
from tests.support.child import in_child
from tests.support.faulty_io import FaultyIo
from tests.support.logs import one_log
from tests.support.patience import PATIENCE, until

T = 1_700_000_000_000


def stored(path: Path, *batches: bytes, bases: tuple[int, ...] = ()) -> Path:
    """A partition of these batches, a segment for each of `bases` and one for the first batch."""
    directory = path / "t-0"
    directory.mkdir(parents=True)
    files: dict[int, bytes] = {}
    base = -1
    for batch in batches:
        offset = int.from_bytes(batch[:8])
        if base < 0 or offset in bases:
            base = offset
        files[base] = files.get(base, b"") + batch
    for base, data in files.items():
        (directory / f"{base:020d}.log").write_bytes(data)
    return directory


def single(offset: int, value: bytes = b"value") -> bytes:
    return encode([(None, value, T)], base_offset=offset)


def first_offset(data: FetchData) -> int:
    """The offset of the first record at or above the requested one."""
    return next(record.offset for batch in decode(data.memory()) for record in batch if record.offset >= data.offset)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[klog.Log]:
    """Ten batches of two records, five a segment."""
    with one_log(tmp_path) as log:
        for i in range(10):
            log.append([(b"k", b"%d" % i), (b"k", b"%d" % i)])
            if i == 4:
                log.roll()
        yield log


# ---- start and end ---------------------------------------------------------------------------------------------------


def test_a_read_below_the_log_end_is_never_empty(log: klog.Log) -> None:
    """UL6: LOG_END reads are never empty in [log start, log end), and name the requested offset."""
    for offset in range(20):
        data = log.fetch(offset)
        assert data.size and data.offset == data.position.offset == offset
        assert first_offset(data) == offset


def test_offsets_outside_the_log_are_refused(tmp_path: Path) -> None:
    """UL11: nothing at the log end; an error one offset further, and below the log start."""
    with klog.Log.open(tmp_path / "t-0", log_start_offset=1024) as log:
        log.append([(None, b"x")])
        assert (log.log_start_offset, log.log_end_offset) == (1024, 1025)
        at_end = log.fetch(1025)
        assert (at_end.size, at_end.position.offset, at_end.log_end_offset) == (0, 1025, 1025)
        for offset in (1026, 1023, 0, -1):
            with pytest.raises(OffsetOutOfRange, match=r"\[1024, 1025\)"):
                log.fetch(offset)


@pytest.mark.parametrize("isolation", ["high_watermark", "read_committed"])
def test_at_and_above_the_bound_a_fetch_is_empty_and_no_error(tmp_path: Path, isolation: Any) -> None:
    """UL7, UL8: reads below the bound are not empty, reads from the bound to the log end are."""
    with one_log(tmp_path) as log:
        for i in range(10):
            log.append([(b"k", b"%d" % i)])
            if i == 4:
                log.roll()
    for bound in range(11):
        with klog.Log.open(tmp_path / "events-0", read_only=True, high_watermark=bound) as log:
            for offset in range(11):
                data = log.fetch(offset, isolation=isolation)
                assert (data.size > 0) == (offset < bound), (bound, offset)
                assert data.high_watermark == data.last_stable_offset == bound
                assert all(batch.next_offset <= bound for batch in decode(data.memory()))


def test_a_fetch_from_the_position_of_the_high_watermark_agrees(log: klog.Log) -> None:
    """UL5: a snapshot has the position of the high watermark; a fetch from there, and an empty one up to it, agree."""
    for offset in (0, 2, 10, 18, 20):
        log.update_high_watermark(offset)
        mark = log.fetch_offset_snapshot().high_watermark
        assert mark.offset == offset and not mark.is_message_only
        assert log.fetch(offset).position == mark
        assert log.fetch(offset, isolation="high_watermark").position == mark
    log.append([(b"k", b"later")])
    assert log.fetch(20).position == log.fetch_offset_snapshot().high_watermark


def test_a_moving_high_watermark_bounds_reads(log: klog.Log) -> None:
    """UL7: below it there is data, from it to the log end none, wherever it moves."""
    for mark in range(0, 21, 2):
        log.update_high_watermark(mark)
        for offset in range(21):
            data = log.fetch(offset, isolation="high_watermark")
            assert (data.size > 0) == (offset < mark) and data.high_watermark == mark
            assert log.fetch(offset).size > 0 or offset == 20


def test_an_open_transaction_bounds_read_committed_reads(log: klog.Log) -> None:
    """UL8: below the last stable offset there is data, from it to the log end none."""
    log.append_batches(transactional(7, 0, 0, 3))
    log.append([(b"k", b"after it")])
    assert (log.last_stable_offset, log.log_end_offset, log.high_watermark) == (20, 24, 24)
    for offset in range(25):
        data = log.fetch(offset, isolation="read_committed")
        assert (data.size > 0) == (offset < 20) and data.last_stable_offset == 20
    log.append_batches(marker(7, 0, "abort"), origin="coordinator")
    fetched = log.fetch(20, isolation="read_committed")
    assert [entry[:2] for entry in fetched.aborted_transactions] == [(7, 20)]
    assert next(decode(fetched.memory())).base_offset == 20


def test_bytes_max(tmp_path: Path) -> None:
    """UL12: 0 bytes without min_one return nothing; 1 byte is less than the first batch, and the result reports that.

    Kafka returns one byte of the batch then, which its servers remove again; klog returns whole batches.
    """
    with one_log(tmp_path) as log:
        log.append([(None, b"some value")])
        none = log.fetch(0, 0, min_one_message=False)
        assert (none.size, none.memory(), none.position) == (0, b"", OffsetMetadata(0, 0, 0))
        one = log.fetch(0, 1, min_one_message=False)
        assert (one.size, one.first_entry_incomplete) == (0, True)
        whole = log.fetch(0, 1)
        assert (whole.size, whole.first_entry_incomplete) == (log.size, False)


def test_sparse_offsets(tmp_path: Path) -> None:
    """UL13: for every offset and every number of bytes the first record at or above the offset comes first."""
    offsets = [*range(50), *range(50, 350, 7)]
    directory = stored(tmp_path, *(single(offset) for offset in offsets), bases=(20, 71, 148, 225))
    with klog.Log.open(directory, config={"cleanup.policy": "compact", "index.interval.bytes": 80}) as log:
        for start in range(offsets[-1] + 1):
            wanted = next(offset for offset in offsets if offset >= start)
            for bytes_max in (1, 100, 100_000):
                data = log.fetch(start, bytes_max)
                assert first_offset(data) == wanted
                batches = list(decode(data.memory()))
                assert len(batches) == 1 or data.size <= bytes_max
            assert log.fetch(start, 100_000, min_one_message=False).size > 0


def test_a_gap_at_the_end_of_a_segment(tmp_path: Path) -> None:
    """UL14: an offset in the gap returns the beginning of the next segment."""
    with klog.Log.open(
        stored(tmp_path, single(0), single(1), single(10), single(11), bases=(9, 10)),
        config={"cleanup.policy": "compact"},
    ) as log:
        for offset in range(2, 11):
            data = log.fetch(offset)
            assert first_offset(data) == 10 and data.position == OffsetMetadata(offset, 10, 0)


def test_compressed_batches_come_whole(tmp_path: Path) -> None:
    """UL15: of gzip batches [0, 1] and [2, 3], fetches at 0 and 1 begin at record 0, at 2 and 3 at record 2."""
    with one_log(tmp_path) as log:
        for i in range(2):
            log.append([(b"k", b"%d" % i)] * 2, compression="gzip")
        starts = [next(iter(next(decode(log.fetch(offset).memory())))).offset for offset in range(4)]
    assert starts == [0, 0, 2, 2]


def test_records_without_value_or_time(tmp_path: Path) -> None:
    """UL16: a record without value and one without timestamp are appended and read back."""
    with one_log(tmp_path) as log:
        log.append([(b"k", None), klog.Record(b"k", b"v", timestamp=-1)])
        records = [record for batch in decode(log.fetch(0).memory()) for record in batch]
        assert [(record.value, record.timestamp) for record in records] == [(None, log.clock.wall_ms()), (b"v", -1)]


def test_a_hundred_segments_one_after_the_other(tmp_path: Path) -> None:
    """UL17: fetches across 100 segments of one record return every key, value and time; the recovery point follows the
    rolls."""
    with one_log(tmp_path) as log:
        for i in range(100):
            log.append([(b"key %d" % i, b"value %d" % i, T + i)])
            log.roll()
            assert log.recovery_point >= log.segments[-1].base_offset
        offset, got = 0, []
        while offset < 100:
            for batch in decode(log.fetch(offset, 1 << 20).memory()):
                got += [(record.key, record.value, record.timestamp) for record in batch]
                offset = batch.next_offset
        assert got == [(b"key %d" % i, b"value %d" % i, T + i) for i in range(100)]


def test_a_bound_without_a_position_returns_nothing(tmp_path: Path) -> None:
    """LL9: up to (4, segment 4, byte 0) offset 3 returns one record; 4 is empty with the bound's position, 5 with its
    own; a bound without a position or on an older segment returns nothing."""
    with klog.Log.open(stored(tmp_path, *(single(i) for i in range(5)), bases=(4,)), read_only=True) as log:

        def read(offset: int, bound: OffsetMetadata) -> FetchData:
            found = FetchData(offset, 5, 5, 0, 5, OffsetMetadata(offset))
            read_up_to(found, log.segments, bound, 1 << 20, True)
            return found

        bound = OffsetMetadata(4, 4, 0)
        assert [batch.base_offset for batch in decode(read(3, bound).memory())] == [3]
        assert (read(4, bound).size, read(4, bound).position) == (0, bound)
        assert (read(5, bound).size, read(5, bound).position) == (0, OffsetMetadata(5, 4, log.segments[-1].size))
        assert read(3, OffsetMetadata(4)).size == 0
        assert read(4, OffsetMetadata(5, 0, 200)).size == 0
        assert read(3, OffsetMetadata(5, 4, 0)).size == log.segments[0].size - 3 * len(single(0))


def test_a_segment_finds_the_first_batch_from_an_offset_on(tmp_path: Path) -> None:
    """LS2: an empty segment and an offset after the last one have none; below the first it is the first; in a gap the
    next."""
    size = len(single(50))
    with klog.Log.open(
        stored(tmp_path, single(50), single(51), single(60), bases=(50,)), config={"cleanup.policy": "compact"}
    ) as log:
        (segment,) = log.segments
        found = {offset: segment.locate(offset) for offset in (48, 50, 51, 52, 60, 61)}
        places = {offset: header and header.position for offset, header in found.items()}
        assert places == {48: 0, 50: 0, 51: size, 52: 2 * size, 60: 2 * size, 61: None}
        log.roll()
        assert log.segments[-1].locate(61) is None and log.fetch(61).size == 0


@pytest.mark.parametrize("min_one", [True, False])
def test_a_fetch_of_no_bytes_has_the_position_where_it_would_begin(tmp_path: Path, min_one: bool) -> None:
    """LS3: with a size below one byte the result is empty, with the batch's position; at the log end there is none."""
    size = len(single(50))
    with klog.Log.open(
        stored(tmp_path, single(50), single(51)), config={"cleanup.policy": "compact"}, read_only=True
    ) as log:
        for offset, position in ((48, 0), (50, 0), (51, size)):
            found = FetchData(offset, 52, 52, 0, 52, OffsetMetadata(offset))
            read_up_to(found, log.segments, OffsetMetadata(52, 50, position), 1 << 20, min_one)
            assert (found.size, found.position) == (0, OffsetMetadata(offset, 50, position))
        assert log.segments[0].locate(52) is None and log.segments[0].locate(60) is None


# ---- aborted transactions --------------------------------------------------------------------------------------------


def test_an_aborted_transaction_that_spans_segments_is_named(tmp_path: Path) -> None:
    """UL81: records of an aborted transaction in two segments, its marker in a third: a fetch from 0 names it."""

    def data(offset: int) -> bytes:
        return encode(
            [(b"k", b"v", T)],
            base_offset=offset,
            producer_id=900,
            producer_epoch=0,
            base_sequence=offset,
            is_transactional=True,
        )

    abort = encode(
        [(*marker_record("abort", 0), T)],
        base_offset=4,
        producer_id=900,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    directory = stored(tmp_path, *(data(i) for i in range(4)), abort, single(5), bases=(2, 4))
    with klog.Log.open(directory) as log:
        fetched = log.fetch(0, isolation="read_committed")
        assert [(entry.producer_id, entry.first_offset) for entry in fetched.aborted_transactions] == [(900, 0)]
        assert log.fetch(3, isolation="read_committed").aborted_transactions == fetched.aborted_transactions
        assert log.fetch(5, isolation="read_committed").aborted_transactions == ()
        assert log.fetch(0).aborted_transactions == ()


# ---- the bytes -------------------------------------------------------------------------------------------------------


def test_a_view_of_a_log_open_for_writing_is_not_a_copy(log: klog.Log) -> None:
    closed, active = log.fetch(0), log.fetch(10)
    for data in (closed, active):
        view = data.memory()
        assert view.readonly and bytes(view) == Path(log.segments[data is active].path).read_bytes()[: data.size]
        assert type(view.obj).__name__ == "FileView"
    with klog.Log.open(log.path, read_only=True) as reader:
        assert type(reader.fetch(0).memory().obj).__name__ == "AlignedBuffer"
        assert reader.fetch(0).memory() == closed.memory()


def test_a_view_is_a_memoryview_like_any_other(tmp_path: Path) -> None:
    """It is not made by slicing, for speed; it has every property of a slice."""
    stored = bytes(range(256)) * 40
    (tmp_path / "a").write_bytes(stored)
    file = RealFiles().open(str(tmp_path / "a"))
    for start, size in ((0, len(stored)), (1, 4096), (5000, 1), (len(stored), 0), (0, 0), (777, 3333)):
        view, expected = view_of(file, start, size), stored[start : start + size]
        assert view is not None
        assert view == expected and bytes(view) == view.tobytes() == expected and hash(view) == hash(expected)
        assert (view.nbytes, view.shape, view.strides, len(view)) == (size, (size,), (1,), size)
        assert view.readonly and view.contiguous and view.c_contiguous and view.f_contiguous
        assert view[3:-3:2] == expected[3:-3:2] and view[::-1].tobytes() == expected[::-1]
        assert view.cast("c").nbytes == size and list(view) == list(expected)
        assert bytes(memoryview(view)) == b"".join([view]) == expected
        if size:
            assert (view[0], view[-1]) == (expected[0], expected[-1])
            with pytest.raises(IndexError):
                view[size]
        view.release()
    del file


def test_a_view_keeps_its_bytes_during_appends(log: klog.Log) -> None:
    view = log.fetch(10).memory()
    before = bytes(view)
    for _ in range(300):
        log.append([(b"k", b"v" * 10_000)])
    assert bytes(view) == before
    whole = log.fetch(10, 1 << 23)
    assert whole.size > 2 << 20 and bytes(whole.memory()) == Path(log.segments[-1].path).read_bytes()[: whole.size]


def test_views_beyond_the_mapped_length_of_a_growing_file(tmp_path: Path) -> None:
    """The buffer that a view was cut from can be read, too, and ends with the map and the file."""
    with one_log(tmp_path) as log:
        for size in (10_000, 500_000, 100, *[900_000] * 4, 100):
            log.append([(b"k", b"%d" % (size % 7) * size)])
        stored = Path(log.segments[0].path).read_bytes()
        file = log.segments[0].file
        for start, end in ((0, 100), (400_000, 500_000), (3_000_000, len(stored)), (5, 5)):
            view = view_of(file, start, end - start)
            assert view is not None and view.readonly and bytes(view) == stored[start:end]
            assert bytes(memoryview(view.obj)) == stored[: len(memoryview(view.obj))]
        assert view_of(file, 0, len(stored) + 1) is None
    path = tmp_path / "grows"
    with path.open("wb") as grown:
        grown.truncate(1000)
        file = LogFile(os.open(path, os.O_RDONLY), str(path))
        assert view_of(file, 0, 1000) == bytes(1000)
        grown.truncate(5 << 20)
        view = view_of(file, 1000, 1000)  # of the same map, which is shorter than the file has become
        assert view is not None and bytes(memoryview(view.obj)) == bytes(1 << 20)


@pytest.mark.parametrize("cut", [0, 1, 4095, 4096, 4097, 100_000])
def test_a_view_keeps_its_bytes_when_the_file_is_cut_under_it(tmp_path: Path, cut: int) -> None:
    """The removed part is replaced by a copy at the same addresses: no SIGBUS, no zeros, whatever the page."""
    with one_log(tmp_path) as log:
        for i in range(20):
            log.append([(b"k", b"%05d" % i * 2000)])
        data = log.fetch(0)
        view, part = data.memory(), data.memory()[90_000:]
        before = bytes(view)
        segment = log.segments[0]
        files = log._core.options.files
        files.truncate(segment.file, cut)
        assert bytes(view) == before and bytes(part) == before[90_000:]
        files.truncate(segment.file, cut)  # no change
        with pytest.raises(CorruptBatch, match="truncated"):
            data.memory()
        os.pwrite(segment.file.fileno(), before[cut:], cut)
        assert bytes(data.memory()) == before == bytes(view)  # through a map of its own
        files.truncate(segment.file, cut)
        assert bytes(view) == before
        os.pwrite(segment.file.fileno(), before[cut:], cut)


def test_views_while_a_file_is_cut_and_filled_again(tmp_path: Path) -> None:
    """Threads read views while another one cuts: every view keeps its bytes."""
    problems: list[BaseException] = []
    done, checked = threading.Event(), list[int]()
    with one_log(tmp_path) as log:
        log.append([(b"k", b"x" * 200_000)])
        data, file = log.fetch(0), log.segments[0].file
        before = bytes(data.memory())

        def read_views() -> None:
            try:
                while not done.is_set():
                    try:
                        view = data.memory()
                    except CorruptBatch:
                        continue
                    if view.obj.__class__.__name__ == "FileView":
                        checked.append(threading.get_ident())
                        assert len(view) == len(before) and view[-1] == before[-1] and view[5000] == before[5000]
            except BaseException as problem:
                problems.append(problem)

        def cut_and_fill() -> None:
            log._core.options.files.truncate(file, 4000)
            os.pwrite(file.fileno(), before[4000:], 4000)

        threads = [threading.Thread(target=read_views) for _ in range(2)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # so that a cut may come before a new map is registered
        try:
            for thread in threads:
                thread.start()
            for _ in range(200):
                cut_and_fill()
            until(lambda: cut_and_fill() or problems or len(set(checked)) == 2)  # type: ignore[func-returns-value]
        finally:
            done.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)
    assert not problems


def test_maps_are_released_with_their_last_view(tmp_path: Path) -> None:
    def maps() -> int:
        return sum(
            ".log" in line and str(tmp_path) in line for line in Path("/proc/self/maps").read_text().splitlines()
        )

    with one_log(tmp_path) as log:
        log.append([(b"k", b"v")])
        view = log.fetch(0).memory()
        assert maps() == 1
        other = log.fetch(0).memory()
        assert maps() == 1 and other == view
        log.roll()
        log.segments[0].close()
        assert maps() == 1
        del view
        assert maps() == 1
        del other
        assert maps() == 0
        view = log.fetch(0).memory()
        before = bytes(view)
        assert maps() == 1
    assert maps() == 0 and view == before


def kinds(*views: memoryview) -> set[str]:
    return {type(view.obj).__name__ for view in views}


def test_views_are_copies_once_the_log_is_closed(tmp_path: Path) -> None:
    """The next holder of the lock may shorten the files: that would be a SIGBUS for the holder of a view."""
    with one_log(tmp_path) as log:
        for i in range(40):
            log.append([(b"k", b"%05d" % i * 40_000)])
        path = Path(log.segments[0].path)
        stored = path.read_bytes()
        found = [log.fetch(offset, 1) for offset in range(40)]
        views = [data.memory() for data in found]
        assert kinds(*views) == {"FileView"}
        kept = [views[3], views[4][7:], views[39]]
        del views
        whole = log.fetch(0, 1 << 30).memory()
    os.truncate(path, 0)
    assert whole == stored
    del whole
    size = len(stored) // 40
    assert kept == [stored[3 * size : 4 * size], stored[4 * size + 7 : 5 * size], stored[39 * size :]]
    with pytest.raises(CorruptBatch, match="truncated"):
        found[0].memory()
    path.write_bytes(stored)
    view = found[1].memory()
    assert view == stored[size : 2 * size] and kinds(view) == {"AlignedBuffer"}


def test_closing_copies_only_the_bytes_of_views(tmp_path: Path) -> None:
    def kib() -> int:
        status = Path("/proc/self/smaps_rollup").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("Anonymous:"))

    with one_log(tmp_path) as log:
        for i in range(64):
            log.append([(b"k", b"%05d" % i * 200_000)])
        kept = [log.fetch(i, 1).memory() for i in range(64)][50]
        log.flush()
        log.roll()
        before = kib()
    assert kib() - before < 16 << 10
    assert kept[-6:-1] == b"00050"


def test_a_view_in_a_forked_child_is_its_own(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(b"k", b"first")])
        for i in range(20):
            log.append([(b"k", b"%05d" % i * 2000)])
        data = log.fetch(1, 1 << 20)
        view = data.memory()
        before = bytes(view)

        def child() -> tuple[bool, set[str]]:
            again = kinds(data.memory())
            os.truncate(log.segments[0].path, 100)
            return bytes(view) == before, again

        assert in_child(child) == (True, {"AlignedBuffer"})
        assert bytes(view) == before


# ---- to a socket -----------------------------------------------------------------------------------------------------


def received(sock: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size and (piece := sock.recv(1 << 16)):
        got += piece
    return bytes(got)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[klog.Log]:
    with one_log(tmp_path) as log:
        for i in range(30):
            log.append([(b"k", b"%d" % i * 50_000)])
        yield log


@pytest.mark.parametrize("timeout", [None, PATIENCE])
def test_send_to_a_blocking_socket(large: klog.Log, timeout: float | None) -> None:
    data = large.fetch(3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(timeout)
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(received(theirs, data.size)))
        thread.start()
        assert data.send_to(ours) == data.size
        thread.join()
        assert got == [bytes(data.memory())]


def test_send_to_a_nonblocking_socket(large: klog.Log) -> None:
    data = large.fetch(0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        done, got = data.send_to(ours), b""
        assert 0 < done < data.size
        assert data.send_to(ours, done) == 0
        while len(got) < data.size:
            got += theirs.recv(1 << 16)
            done += data.send_to(ours, done)
        assert got == data.memory() and done == data.size
        with pytest.raises(ValueError, match="start=-1"):
            data.send_to(ours, -1)


def test_a_send_to_a_stalled_receiver_times_out(large: klog.Log) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        with pytest.raises(TimeoutError, match=r"0\.01 s"):
            large.fetch(0).send_to(ours)


def test_an_empty_fetch_sends_nothing(log: klog.Log) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert log.fetch(20).send_to(ours) == 0


def test_send_in_an_event_loop(large: klog.Log) -> None:
    data = large.fetch(0)

    async def both() -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for sock in (ours, theirs):
                sock.setblocking(False)
            loop, got = asyncio.get_running_loop(), bytearray()
            sending = asyncio.ensure_future(data.send_to_async(ours))
            while len(got) < data.size:
                got += await loop.sock_recv(theirs, 1 << 16)
            assert await sending == data.size
            return bytes(got)

    assert asyncio.run(both()) == data.memory()

    async def blocks() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(ValueError, match="setblocking"):
            await data.send_to_async(ours)

    asyncio.run(blocks())


def test_sending_a_truncated_slice_is_an_error(large: klog.Log) -> None:
    data = large.fetch(0)
    file = large.segments[0].file
    before = os.pread(file.fileno(), large.size, 0)
    os.ftruncate(file.fileno(), 1000)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(CorruptBatch, match="truncated"):
        data.send_to(ours)
    os.pwrite(file.fileno(), before, 0)


def test_a_tls_socket_is_served_from_memory(large: klog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain socket pair that claims to be TLS: sendfile past its encryption would send plain text."""
    data = large.fetch(0, 100_000)

    class Tls(socket.socket):
        pass

    monkeypatch.setattr(ssl, "SSLSocket", Tls)
    plain, theirs = socket.socketpair()
    with Tls(fileno=plain.detach()) as ours, theirs:
        monkeypatch.setattr(os, "sendfile", None)
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(received(theirs, data.size)))
        thread.start()
        assert data.send_to(ours) == data.size
        thread.join()
        assert got == [bytes(data.memory())]


def test_the_first_fetch_of_a_reader_costs_what_a_fetch_costs(tmp_path: Path) -> None:
    """The last stable offset may need a replay of the whole log: only a read_committed fetch waits for that, or a
    caller that requests that offset."""
    with klog.Log.open(tmp_path / "t-0", config={"segment.bytes": 300}) as log:
        for _ in range(100):
            log.append_batches(single(0))
        log.append_batches(transactional(1, 0, 0))
        open_from = log.log_end_offset - 1
        log.append_batches(single(0))
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    with FaultyIo() as io:

        def reads() -> int:
            return io.calls("pread") + io.calls("preadv2")

        with klog.Log.open(tmp_path / "t-0", read_only=True, files=RealFiles(table=io.table)) as reader:
            before = reads()
            found = reader.fetch(5)
            assert 0 < reads() - before <= 6
            before = reads()
            assert (found.log_end_offset, found.last_stable_offset) == (log.log_end_offset, open_from)
            assert reads() - before >= len(reader.segments) > 20
            assert reader.fetch(open_from, isolation="read_committed").size == 0


def test_a_fetch_beside_a_truncation_remembers_no_position_of_a_removed_batch(tmp_path: Path) -> None:
    """It has found where offset 10 begins, and waits in its last read. Meanwhile longer records replace that batch, and
    another fetch begins to remember positions in the new ones."""
    with klog.Log.open(tmp_path / "t-0") as log:
        for number in range(20):
            log.append([(None, b"%d" % number, T)])
        log.roll()
    with FaultyIo() as kernel, klog.Log.open(tmp_path / "t-0", files=RealFiles(kernel.table)) as log:
        kernel.rule("preadv2", error=errno.EAGAIN)  # the GIL is released during each read
        log.update_high_watermark(10)
        for _ in range(2):  # the first one opens the files, too
            before = kernel.calls("pread")
            log.fetch(0, isolation="high_watermark")
        rule = kernel.rule("pread", nth=kernel.calls("pread") - before, times=1, delay_ms=PATIENCE * 1000)
        fetching = threading.Thread(target=lambda: log.fetch(0, isolation="high_watermark"))
        fetching.start()
        try:
            until(lambda: kernel.hits(rule))
            log.truncate_to(5)
            for _ in range(100):  # more than the newest batches, whose positions are kept with the index
                log.append([(None, b"v" * 50, T)])
            log.roll()
            log.update_high_watermark(log.log_end_offset)
            log.fetch(0)
        finally:
            kernel.release(rule)
            fetching.join()
        assert first_offset(log.fetch(10)) == 10
