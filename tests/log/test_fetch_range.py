"""A range of offsets as the batches of one segment after the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.disk import HandleCache
from klog.errors import CorruptBatch, LogClosed, OffsetOutOfRange
from klog.record import decode
from tests.support.batches import marker, transactional
from tests.support.logs import one_log
from tests.support.resources import open_descriptors
from tests.support.sockets import Reader, pair


@pytest.fixture
def log(tmp_path: Path) -> Iterator[klog.Log]:
    """Offsets 0 to 59, three a batch, four batches a segment."""
    with one_log(tmp_path, retention_bytes=500) as log:
        for i in range(20):
            log.append([(b"k", b"%d" % (3 * i + j)) for j in range(3)])
            if i % 4 == 3:
                log.roll()
        yield log


def batches(data: klog.FetchRange) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.next_offset) for part in data for batch in decode(part.memory())]


def test_every_range_has_the_batches_that_hold_its_offsets(log: klog.Log) -> None:
    for start in range(61):
        for stop in range(62):
            data = log.fetch_range(start, stop)
            expected = [(first, first + 3) for first in range(0, 60, 3) if first < stop and first + 3 > start < stop]
            assert batches(data) == expected, (start, stop)
            assert data.size == sum(part.size for part in data)
            assert [part.offset for part in data] == [
                max(start, first) for first in range(0, 60, 12) if first < stop and first + 12 > start < stop
            ]
            assert len(data) == len(list(data))
    assert batches(log.fetch_range(0)) == batches(log.fetch_range(0, 1 << 62)) == [(i, i + 3) for i in range(0, 60, 3)]


def test_ranges_outside_the_log_are_refused(log: klog.Log) -> None:
    with pytest.raises(OffsetOutOfRange):
        log.fetch_range(61)
    log.delete_records(5)
    with pytest.raises(OffsetOutOfRange):
        log.fetch_range(4)
    assert batches(log.fetch_range(5, 6)) == [(3, 6)]
    log.close()
    with pytest.raises(LogClosed):
        log.fetch_range(5)


def test_a_range_ends_at_the_isolation_bound(log: klog.Log) -> None:
    """Also where the bound lies inside a batch, so that it has no position."""
    for mark in (0, 3, 24, 27, 60):
        log.update_high_watermark(mark)
        for stop in (None, mark, 60):
            data = log.fetch_range(0, stop, isolation="high_watermark")
            assert batches(data) == [(first, first + 3) for first in range(0, mark, 3)]
            assert data.stop == mark
    log.update_high_watermark(25)
    assert batches(log.fetch_range(0, isolation="high_watermark"))[-1] == (21, 24)
    assert batches(log.fetch_range(24, 25, isolation="high_watermark")) == []
    log.update_high_watermark(26)
    assert batches(log.fetch_range(21, 25, isolation="high_watermark")) == [(21, 24)]


def test_aborted_transactions_of_each_slice(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        for sequence in (0, 2):
            log.append_batches(transactional(7, 0, sequence, 2))
            log.append_batches(marker(7, 0, "abort"), origin="coordinator")
            log.roll()
        parts = list(log.fetch_range(0, isolation="read_committed"))
        assert [[one.first_offset for one in part.aborted_transactions] for part in parts] == [[0], [3]]
        assert [part.aborted_transactions for part in log.fetch_range(0)] == [(), ()]


def test_a_range_is_sent_as_one(log: klog.Log) -> None:
    data = log.fetch_range(4, 50)
    expected = b"".join(bytes(part.memory()) for part in data)
    for sent in (data, klog.Outgoing([data])):
        with pair("tcp") as (ours, theirs):
            reader = Reader(theirs)
            assert sent.send_to(ours) == data.size == len(expected)
            ours.close()
            assert reader.finished() == expected
    with pair("tcp") as (ours, theirs):
        reader, out = Reader(theirs), klog.Outgoing([b"head", data, b"tail", data])
        out.send_to(ours)
        ours.close()
        assert reader.finished() == b"head" + expected + b"tail" + expected


def test_a_range_is_sent_in_an_event_loop(log: klog.Log) -> None:
    data = log.fetch_range(0)
    expected = b"".join(bytes(part.memory()) for part in data)

    async def work() -> None:
        with pair("unix") as (ours, theirs):
            ours.setblocking(False)
            with pytest.raises(ValueError, match="Outgoing"):
                data.send_to(ours)
            assert await data.send_to_async(ours) == data.size
            assert theirs.recv(data.size, socket.MSG_WAITALL) == expected

    asyncio.run(work())


def test_a_segment_that_is_deleted_before_it_is_sent(log: klog.Log) -> None:
    """The holder of an opened slice keeps its file."""
    data = log.fetch_range(0)
    slices = iter(data)
    first = next(slices)
    expected = bytes(first.memory())
    log.delete_records(40)
    assert log.apply_retention() > 0
    for piece in data._pieces:  # as after file.delete.delay.ms
        piece.segment.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(piece.segment.path)
    with pytest.raises(OffsetOutOfRange, match="12 is outside"):
        next(slices)
    assert first.memory() == expected


def test_many_segments_take_one_descriptor(tmp_path: Path) -> None:
    """O2, R2: beside those that the log itself keeps for reuse."""
    with one_log(tmp_path) as log:
        for i in range(40):
            log.append([(b"k", b"%d" % i)])
            log.roll()
        path = log.path
    with klog.Log.open(path, read_only=True) as log:
        data = log.fetch_range(0)
        handles = log.segments[0].segment_dir.handles
        handles.files = HandleCache(files=2).files
        before = open_descriptors()
        assert all(len(open_descriptors() - before) <= 3 for _ in data)
        assert len(data) == 40


@pytest.mark.parametrize("read_only", [False, True])
def test_a_segment_that_is_truncated_before_it_is_sent(log: klog.Log, read_only: bool) -> None:
    """R3: bytes that were written at the same position since then are not sent."""
    reader = klog.Log.open(log.path, read_only=True) if read_only else log
    try:
        data = reader.fetch_range(0)
        slices, out = iter(data), klog.Outgoing([data])
        first = next(slices)
        log.truncate_to(15)
        for i in range(30):
            log.append([(b"k", b"longer than before %d" % i)])
            if i % 4 == 3:
                log.roll()
        with pytest.raises(CorruptBatch, match="fetch again from offset 12 ") as caught:
            next(slices)
        assert caught.value.offset == 12
        with pair("unix") as (ours, _), pytest.raises(CorruptBatch, match="fetch again"):
            out.send_to(ours)
        assert out.sent == 0
        assert [batch.base_offset for batch in decode(first.memory())] == [0, 3, 6, 9]
        assert batches(reader.fetch_range(12, 15)) == [(12, 15)]
    finally:
        reader.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_segment_that_is_compacted_before_it_is_sent(tmp_path: Path, read_only: bool) -> None:
    with one_log(tmp_path, cleanup_policy="compact") as log:
        for _ in range(3):
            for key in range(20):
                log.append([(b"%d" % key, bytes(100))])
            log.roll()
        reader = klog.Log.open(log.path, read_only=True) if read_only else log
        data = reader.fetch_range(0)
        reader._core.directory.segment_dir.handles.renew()
        log.compact()
        for gone in Path(log.path).glob("*.deleted"):  # as after file.delete.delay.ms
            gone.unlink()
        with pytest.raises(CorruptBatch, match="fetch again"):
            list(data)
        assert reader.fetch_range(0).size > 0
        reader.close()


def test_a_missing_file_is_named(log: klog.Log) -> None:
    data = log.fetch_range(0)
    log._core.directory.segment_dir.handles.renew()
    Path(log.segments[0].path).unlink()
    with pytest.raises(FileNotFoundError):
        list(data)


def test_a_slice_that_cannot_be_opened_can_be_retried(log: klog.Log) -> None:
    data = log.fetch_range(0)
    expected = b"head" + b"".join(bytes(part.memory()) for part in data) + b"tail"
    out = klog.Outgoing([b"head", data, b"tail"])
    log._core.directory.segment_dir.handles.renew()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pair("unix") as (ours, theirs):
        reader = Reader(theirs)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            for _ in range(2):
                with pytest.raises(OSError, match="Too many open files"):
                    out.send_to(ours)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert out.sent == 4
        assert out.send_to(ours) == out.size - 4
        ours.close()
        assert reader.finished() == expected
