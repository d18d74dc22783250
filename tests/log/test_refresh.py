"""A read-only log beside a running writer: it sees rolls, its lookups stay short, and it reports that the records at
its position were deleted."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import klog
from klog import Log
from klog.clock import ManualClock
from klog.errors import LogTruncated, OffsetOutOfRange
from klog.log.load import loader
from klog.log.read.reader import FetchedChunk
from klog.record import encode, iter_records

T = 1_700_000_000_000


def writer(path: Path, **config: int) -> Log:
    return Log.open(
        path / "t-0", clock=ManualClock(T), config={name.replace("_", "."): v for name, v in config.items()}
    )


def reader(path: Path) -> Log:
    return Log.open(path / "t-0", clock=ManualClock(T), read_only=True)


def test_a_roll_within_one_tick_of_the_directory_time(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"a")])
        with reader(tmp_path) as follower:
            follower.refresh()
            before = os.stat(tmp_path / "t-0")
            log.roll()
            log.append([(None, b"b")])
            os.utime(tmp_path / "t-0", ns=(before.st_atime_ns, before.st_mtime_ns))
            follower.refresh()
            assert [record.value for record in follower.read()] == [b"a", b"b"]


def test_an_index_with_entries_beyond_the_readers_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with writer(tmp_path, index_interval_bytes=100) as log:
        for _ in range(4):
            log.append([(None, b"v" * 100)])
        with reader(tmp_path) as live, live.snapshot() as follower:
            follower.segments[-1].close()  # the index is read again
            for _ in range(4):
                log.append([(None, b"v" * 100)])
            index = follower.segments[-1].index
            assert index.entries and index.entry(index.entries - 1)[1] < follower.segments[-1].size
            assert [record.offset for record in follower.read(2)] == [2, 3]
    assert not [record for record in caplog.records if record.name.startswith("klog.")]


def test_lookups_of_a_follower_do_not_walk_the_whole_segment(tmp_path: Path) -> None:
    with writer(tmp_path) as log, reader(tmp_path) as follower:
        follower.refresh()
        for _ in range(8):
            log.append([(None, b"v" * 10_000)] * 50)
            follower.refresh()
            list(follower.read(follower.log_end_offset - 1))
        segment = follower.segments[-1]
        offset, position = segment.index.entry(segment.index.entries - 1)
        assert segment.size > 3 << 20 and segment.size - position < 2 << 20
        assert offset < follower.log_end_offset


def test_a_tail_overtaken_by_retention_raises(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"a")])
        log.roll()
        log.append([(None, b"b")])
        with reader(tmp_path) as follower:
            tail = follower.tail("earliest", timeout=1)
            for file in (tmp_path / "t-0").glob(f"{0:020d}.*"):
                file.unlink()
            with pytest.raises(OffsetOutOfRange):
                next(iter(tail))


def test_a_segment_recreated_under_its_old_name(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"first")])
    with reader(tmp_path) as follower:
        assert [record.value for record in follower.read()] == [b"first"]
        for file in (tmp_path / "t-0").iterdir():
            file.unlink()
        with writer(tmp_path) as log:
            follower.refresh()
            log.append([(None, b"second")])
            follower.refresh()
            assert [record.value for record in follower.read()] == [b"second"]


# ---- appends that the writer rolls back ------------------------------------------------------------------------------


def batches(*values: bytes, start: int = 0) -> bytes:
    return b"".join(encode([(None, value, T)], base_offset=start + i) for i, value in enumerate(values))


def bare(path: Path, data: bytes) -> Path:
    """The .log file of a partition that no process has open for writing."""
    (path / "t-0").mkdir()
    file = path / "t-0" / f"{0:020d}.log"
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("then", [(b"b", b"c"), (b"longer than it was",), (b"x" * 5000, b"y"), (b"x",) * 400])
def test_a_rolled_back_append_replaced_by_another(tmp_path: Path, then: tuple[bytes, ...]) -> None:
    """Between two refreshes the log end went back and forward again: no earlier byte may be used."""
    first = batches(b"a")
    file = bare(tmp_path, first + batches(b"taken back", b"x" * 100, start=1))
    with reader(tmp_path) as log:
        assert log.log_end_offset == 3 and len(list(log.read())) == 3
        with file.open("r+b") as raw:
            raw.truncate(len(first))
            raw.seek(len(first))
            raw.write(batches(*then, start=1))
        log.refresh()
        assert [record.value for record in log.read()] == [b"a", *then]


def test_a_header_written_before_its_records(tmp_path: Path) -> None:
    """In a preallocated file an unfinished batch is a header followed by zeros."""
    first, second = batches(b"a"), batches(b"v" * 9000, start=1)
    file = bare(tmp_path, first + bytes(20_000))
    with reader(tmp_path) as log:
        with file.open("r+b") as raw:
            for upto in (61, 4000, len(second) - 20):
                raw.seek(len(first))
                raw.write(second[:upto])
                raw.flush()
                log.refresh()
                assert [record.value for record in log.read()] == [b"a"]
            raw.seek(len(first))
            raw.write(second)
        log.refresh()
        assert [record.value for record in log.read()] == [b"a", b"v" * 9000]


def test_a_truncation_during_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are from before the cut, never a mixture; offsets beyond the new end are refused."""
    before, after = batches(*[b"%d" % i for i in range(50)]), batches(*[b"new %d" % i for i in range(30)])
    file = bare(tmp_path, before)
    with reader(tmp_path) as log:
        segment_type = type(log.segments[0])
        real = segment_type.read_chunk
        cuts = [after]

        def cutting(self: Any, position: int, max_bytes: int, *more: Any) -> Any:
            found = real(self, position, max_bytes, *more)
            if position and cuts:
                file.write_bytes(cuts.pop())
            return found

        monkeypatch.setattr(segment_type, "read_chunk", cutting)
        got: list[bytes] = []
        with pytest.raises(LogTruncated, match=r"\[0, 30\)"):
            got.extend(record.value for chunk in log.chunks(0, 50, max_bytes=300) for record in decoded(chunk))
        assert 0 < len(got) < 30 and got == [b"%d" % i for i in range(len(got))]
        file.write_bytes(before)
        log.refresh()
        cuts.append(batches(b"short"))
        with pytest.raises(OffsetOutOfRange, match=r"\[0, 1\)"):
            list(log.chunks(0, 50, max_bytes=300))


def test_a_chunk_mixed_from_before_and_after_a_cut_is_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = batches(*[b"old"] * 20), batches(*[b"new"] * 20)
    file = bare(tmp_path, before)
    with reader(tmp_path) as log:
        segment_type = type(log.segments[0])
        real = segment_type.read_chunk
        done: list[bool] = []

        def torn(self: Any, position: int, max_bytes: int, *more: Any) -> Any:
            if not done:
                middle = len(before) // 40  # inside the first batch, whose checksum then fails
                file.write_bytes(after[:middle] + before[middle:])
                found = real(self, position, max_bytes, *more)
                file.write_bytes(after)
                done.append(True)
                return found
            return real(self, position, max_bytes, *more)

        monkeypatch.setattr(segment_type, "read_chunk", torn)
        assert [record.value for record in log.read(0, 20)] == [b"new"] * 20


def decoded(chunk: FetchedChunk) -> list[Any]:
    return list(iter_records(chunk.buffer, start=chunk.start, stop=chunk.stop))


def test_segments_that_are_deleted_beside_a_reader(tmp_path: Path) -> None:
    """Every call is repeated on the remaining segments; a read that begins below them raises."""
    with writer(tmp_path) as log:
        for i in range(4):
            log.append([(None, b"%d" % i, T + i)])
            log.roll()
        with reader(tmp_path) as follower:
            reading = follower.read(0)
            for base in (0, 1):
                for file in (tmp_path / "t-0").glob(f"{base:020d}.*"):
                    file.rename(f"{file}.deleted")
            assert follower.offset_for_timestamp(T) == (T + 2, 2)
            assert follower.count() == 2 and follower.log_start_offset == 2
            with pytest.raises(OffsetOutOfRange, match=r"\[2, 4\)"):
                list(reading)
            for call in (lambda: follower.fetch(1), lambda: follower.read(1)):
                with pytest.raises(OffsetOutOfRange):
                    call()
            assert [record.value for record in follower.read(2)] == [b"2", b"3"]


def test_a_first_lookup_in_a_deleted_segment(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        for i in range(3):
            log.append([(None, b"%d" % i, T + i)])
            log.roll()
        with reader(tmp_path) as follower:
            for file in (tmp_path / "t-0").glob(f"{0:020d}.*"):
                file.unlink()
            with pytest.raises(OffsetOutOfRange, match=r"\[1, 3\)"):
                follower.fetch(0)


def test_the_log_start_follows_the_checkpoint(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"%d" % i) for i in range(5)])
        with reader(tmp_path) as follower:
            for start in (3, 2, 99):  # without a truncation it never goes back, and never beyond the log
                (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
                follower.refresh()
                assert follower.log_start_offset == 3
            assert [record.value for record in follower.read()] == [b"3", b"4"]
            log.truncate_to(4)  # the reader loads again, but a broker lowers its checkpoint only later
            (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 99\n")
            assert [record.value for record in follower.read()] == []
            log.append([(None, b"new")])
            assert [record.value for record in follower.read()] == [b"new"]


def test_a_log_start_that_the_caller_gives_stays(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"%d" % number) for number in range(5)])
        log.append([(None, b"last")])
        with Log.open(tmp_path / "t-0", clock=ManualClock(T), read_only=True, log_start_offset=3) as follower:
            assert [record.offset for record in follower.read()] == [3, 4, 5]
            log.truncate_to(5)
            assert [record.offset for record in follower.read()] == [3, 4]


def test_a_log_start_beyond_what_the_reader_has_read(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"a")])
        with reader(tmp_path) as follower:
            assert follower.log_end_offset == 1
            log.append([(None, b"b")] * 4)
            (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 3\n")
            follower.refresh()
            assert (follower.log_start_offset, follower.log_end_offset) == (3, 5)


@pytest.mark.parametrize("new_start", [0, 2])
def test_a_truncation_to_below_the_log_start_is_followed(tmp_path: Path, new_start: int) -> None:
    """The new records have offsets that the reader knows as deleted."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        log.append([(None, b"old"), (None, b"old"), (None, b"old")])
        log.delete_records(3)
        log.flush()
    with klog.open(tmp_path) as logs, reader(tmp_path) as follower:
        log = logs.log("t")
        assert (follower.log_start_offset, follower.log_end_offset) == (3, 3)
        log.truncate_fully_and_start_at(new_start)
        assert (follower.log_start_offset, follower.log_end_offset) == (new_start, new_start)
        log.append([(None, b"new")])
        assert [(record.offset, record.value) for record in follower.read()] == [(new_start, b"new")]


def test_a_new_leader_epoch_is_seen(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append([(None, b"a")])
        with reader(tmp_path) as follower:
            log._core.epochs.assign(7, 1)
            log._core.epochs.flush()
            follower.refresh()
            assert follower.leader_epochs == [(0, 0), (7, 1)]


# ---- segments that a cleaner replaces --------------------------------------------------------------------------------

COMPACT = {"cleanup.policy": "compact", "segment.bytes": 90_000, "file.delete.delay.ms": 0}


def two_generations(directory: Path) -> Log:
    """Keys 0 to 199 at offsets 0 to 199, the even ones once more after them: compacted, the first segment has only the
    odd ones, at half their positions."""
    log = Log.open(directory, config=COMPACT, clock=ManualClock(T))
    for keys in (range(200), range(0, 200, 2), [999]):
        for key in keys:
            log.append([(b"%03d" % key, bytes(300), T)])
        log.roll()
    return log


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("known", ["nothing", "index", "both"])
def test_a_compaction_beside_a_reader(tmp_path: Path, direct: bool, known: str) -> None:
    """A position of one file is never used in the other, whichever files of the segment the reader has open."""
    config = COMPACT | ({"klog.io.read": "direct"} if direct else {})
    with two_generations(tmp_path / "t-0") as log:
        odd = [*range(51, 200, 2), *range(200, 301)]
        with Log.open(tmp_path / "t-0", config=config, clock=ManualClock(T), read_only=True) as follower:
            follower.refresh()
            if known != "nothing":
                assert next(iter(follower.read(40))).offset == 40
                running = follower.read(0, 200).chunks(20_000)
                got = [record.offset for record in decoded(next(running))]
            log.compact()
            if known == "index":
                follower._core.options.handles.files.drop(follower.segments[0])
            assert {record.offset for record in follower.read(50)} >= set(odd)
            assert int.from_bytes(follower.fetch(51, 1 << 20).memory()[:8]) == 51
            assert follower.count(50, 200) in (75, 150)
            follower.refresh()
            assert [record.offset for record in follower.read(50)] == odd
            if known != "nothing":
                assert got[0] == 0
                got += [record.offset for chunk in running for record in decoded(chunk)]
                assert set(got) >= set(range(1, 200, 2)) and got == sorted(set(got))


def test_a_compaction_brings_no_deleted_record_back(tmp_path: Path) -> None:
    """The reader has followed the log start when the segments that hold it are replaced."""
    clock = ManualClock(T)
    with klog.open(tmp_path, create=True, clock=clock) as logs:
        logs.start()
        logs.create_topic("t", config=COMPACT | {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 1})
        log = logs.log("t")
        for keys in (range(20), range(0, 20, 2), [999]):
            for key in keys:
                log.append([(b"%03d" % key, bytes(300), T)])
            log.roll()
        with reader(tmp_path) as follower:
            log.delete_records(5)
            clock.advance(60_000)  # the checkpoint is written
            assert follower.log_start_offset == 5
            log.compact()
            assert [record.offset for record in follower.read()] == [5, 7, 9, 11, 13, 15, 17, 19, *range(20, 31)]
            assert follower.log_start_offset == 5


def test_another_file_of_the_same_length(tmp_path: Path) -> None:
    file = bare(tmp_path, batches(b"a"))
    (tmp_path / "t-0" / f"{1:020d}.log").write_bytes(batches(b"z", start=1))
    with reader(tmp_path) as log:
        assert [record.value for record in log.read()] == [b"a", b"z"]
        log.refresh()
        other = tmp_path / "t-0" / "other"
        other.write_bytes(batches(b"b"))
        other.rename(file)
        log.refresh()
        assert [record.value for record in log.read()] == [b"b", b"z"]


def test_a_reader_waits_while_a_compaction_swaps_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old segments are renamed, and the new one does not have its final name yet: the reader waits, and does not
    skip the segment. Here the new one gets that name while the reader waits."""
    file = bare(tmp_path, batches(b"a"))
    (tmp_path / "t-0" / f"{1:020d}.log").write_bytes(batches(b"z", start=1))
    swap = file.with_name(file.name + ".swap")
    with reader(tmp_path) as log:
        log.refresh()
        for look in (lambda: reader(tmp_path), lambda: log.refresh() or log):  # type: ignore[func-returns-value]
            file.rename(swap)
            with monkeypatch.context() as patch:
                patch.setattr(loader, "time", SimpleNamespace(sleep=lambda seconds: swap.rename(file)))
                with look() as seen:
                    assert [record.value for record in seen.read(0)] == [b"a", b"z"]
