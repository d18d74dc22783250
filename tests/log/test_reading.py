"""Reading batches from the disk: reads past the page cache, the read cache, and failing reads."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.disk.read_cache import ReadCache
from klog.errors import CorruptBatch, ReadFailed, StorageOffline
from klog.log.state._log_core import LogCore
from klog.log.write import append_batches
from klog.record import BatchGroup
from tests.support.faulty_io import FaultyIo

READ_FAILURES_MAX = 3

DIRECT = {"klog.io.read": "direct", "klog.io.read.cache.bytes": 1 << 22}


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def fill(log: klog.Log, count: int, size: int = 100, compression: str | None = None) -> None:
    for _ in range(count):
        first = log.log_end_offset
        log.append([(b"%d" % (first + i), bytes(size)) for i in range(10)], compression=compression)


def keys(log: klog.Log, start: int = 0, **how: Any) -> list[bytes | None]:
    return [record.key for record in log.read(start, **how)]


# ---- past the page cache ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [0, 1 << 22])
def test_direct_readers_see_what_was_appended_a_moment_ago(tmp_path: Path, kernel: FaultyIo, cache: int) -> None:
    """Mixed buffered writes and direct reads of one file are coherent, at every unaligned end."""
    config = {"klog.io.read": "direct", "klog.io.read.cache.bytes": cache, "segment.bytes": 700_000}
    with klog.Log.open(tmp_path / "t-0", config=config, files=RealFiles(kernel.table)) as log:
        for _ in range(60):
            fill(log, 1, 3001)
            last = log.log_end_offset - 1
            assert keys(log, max(last - 35, 0))[-1] == b"%d" % last
        assert len(log.segments) > 2
        assert kernel.calls("pread") > 50  # past the page cache: cached bytes take one preadv2
        assert keys(log) == [b"%d" % n for n in range(600)]


def test_a_repeated_direct_read_comes_from_the_cache(tmp_path: Path, kernel: FaultyIo) -> None:
    with klog.Log.open(tmp_path / "t-0", config=DIRECT, files=RealFiles(kernel.table)) as log:
        fill(log, 50)
        first = keys(log)
        before = kernel.calls("preadv2")
        assert keys(log) == first
        assert kernel.calls("preadv2") - before <= 2  # the search for the first batch
        assert log.metrics()["ReadCacheHits"] == 1
        assert log.size <= log.metrics()["ReadCacheBytes"] <= 1.25 * log.size
        fill(log, 1)
        assert keys(log) == [b"%d" % n for n in range(510)]


def test_the_cache_counts_the_memory_that_it_holds(tmp_path: Path) -> None:
    """K1: reads use a pool, in pieces of 1 MiB."""
    limit = 1 << 22
    config = {"klog.io.read": "direct", "klog.io.read.cache.bytes": limit, "segment.bytes": 1 << 16}
    with klog.Log.open(tmp_path / "t-0", config=config) as log:
        fill(log, 400, 1000)
        kept = list[int]()
        for _ in range(2):
            for chunk in log.chunks(0, log.log_end_offset, max_bytes=8192):
                kept.append(len(chunk.buffer))
        cache = log._core.reading.cache(log._core)
        assert cache is not None
        held = sum(value[0][0].held_bytes for value in cache._held.values())
        assert len(cache._held) > 100 and held == cache.counts().bytes <= limit
        assert held <= 1.25 * sum(len(value[0][0]) for value in cache._held.values())
        assert keys(log) == [b"%d" % n for n in range(4000)]


# ---- the read cache --------------------------------------------------------------------------------------------------


def test_a_batch_is_decompressed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with klog.Log.open(tmp_path / "t-0", config={"klog.io.read.cache.bytes": 1 << 20}) as log:
        fill(log, 5, compression="zstd")
        expected = keys(log)
        assert (log.metrics()["ReadCacheHits"], log.metrics()["ReadCacheMisses"]) == (0, 5)
        assert keys(log) == expected
        assert sum(columns.num_rows for columns in log.read().columns()) == 50
        assert [record.key for batch in log.read().batches() for record in batch] == expected
        assert (log.metrics()["ReadCacheHits"], log.metrics()["ReadCacheMisses"]) == (15, 5)
        assert keys(log, scan=True) == expected
        assert log.metrics()["ReadCacheHits"] == 15  # R4


def test_cached_records_are_checked_against_the_stored_batch(tmp_path: Path) -> None:
    """P5: a flipped bit is found although the records are in the cache."""
    with klog.Log.open(tmp_path / "t-0", config={"klog.io.read.cache.bytes": 1 << 20}) as log:
        fill(log, 1, compression="lz4")
        assert len(keys(log)) == 10
        path = Path(log.segments[0].path)
        with path.open("r+b") as file:
            file.seek(80)
            byte = file.read(1)[0]
            file.seek(80)
            file.write(bytes([byte ^ 4]))
        with pytest.raises(CorruptBatch, match="checksum"):
            keys(log)


def test_the_cache_is_bounded_ages_and_counts() -> None:
    """K1."""
    clock = ManualClock()
    cache = ReadCache(100, 1000, clock)
    for number in range(5):
        cache.keep("a", number, b"x", 30)
    assert [cache.find("a", number) for number in range(5)] == [None, None, b"x", b"x", b"x"]
    assert cache.find("a", 2) == b"x"
    cache.keep("b", 0, b"y", 30)
    assert cache.find("a", 3) is None  # the one used longest ago
    cache.keep("b", 1, b"z", 101)
    assert cache.find("b", 1) is None
    clock.advance(999)
    assert cache.find("b", 0) == b"y"
    clock.advance(1)
    assert cache.find("b", 0) is None
    counts = cache.counts()
    assert (counts.hits, counts.misses, counts.evictions, counts.expirations) == (5, 5, 3, 1)
    assert (counts.entries, counts.bytes) == (2, 60)
    cache.retain({"b"})
    assert cache.counts().bytes == 0


def test_a_rolled_back_append_is_not_cached(tmp_path: Path) -> None:
    """R1: a read during a failing append has its bytes in its chunk, beyond the log end."""
    with klog.Log.open(tmp_path / "t-0", config=DIRECT) as log:
        fill(log, 2)
        write_parts = append_batches._write_parts

        def fail(core: LogCore, group: BatchGroup, now: int) -> None:
            write_parts(core, group, now)
            (chunk,) = log.chunks(0, log.log_end_offset)
            assert b"gone" in bytes(chunk.buffer)
            append_batches._write_parts = write_parts
            raise OSError(errno.ENOSPC, "no space")

        append_batches._write_parts = fail
        log.set_offsets_listener(lambda offset: None)  # for the full path: the fast one does not fail after the write
        with pytest.raises(OSError, match="no space"):
            log.append([(b"gone", bytes(50))] * 10)
        log.append([(b"come", bytes(50))] * 10)
        assert keys(log)[20:] == [b"come"] * 10


def test_a_truncation_clears_the_cache(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", config=DIRECT) as log:
        fill(log, 2)
        assert len(keys(log)) == 20
        log.truncate_to(10)
        assert len(keys(log)) == 10
        log.append([(b"other", bytes(100))] * 10)
        assert keys(log)[10:] == [b"other"] * 10
        log.truncate_fully_and_start_at(3)
        assert keys(log, 3) == []
        assert log.metrics()["ReadCacheBytes"] == 0


def test_many_threads_share_a_cache(tmp_path: Path) -> None:
    config = {"klog.io.read.cache.bytes": 3000, "klog.io.read": "direct", "segment.bytes": 1 << 12}
    with klog.Log.open(tmp_path / "t-0", config=config) as log:
        fill(log, 20, compression="gzip")
        expected = keys(log)
        wrong: list[object] = []

        def read() -> None:
            for _ in range(10):
                if keys(log) != expected:
                    wrong.append(1)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert log.metrics()["ReadCacheBytes"] <= 3000


class Cached(RuleBasedStateMachine):
    """A log with a read cache gives the same results as one without, whatever happens to both (K2, R1 to R3)."""

    @initialize(policy=st.sampled_from([{"klog.io.read": "direct"}, {}]), size=st.sampled_from([2000, 1 << 20]))
    def begin(self, policy: dict[str, Any], size: int) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        common = {"segment.bytes": 1500, "retention.ms": -1, "file.delete.delay.ms": 0}
        kept = {**common, **policy, "klog.io.read.cache.bytes": size, "klog.io.read.cache.ms": 5000}
        self.logs = [
            klog.Log.open(Path(self.folder.name) / f"{name}-0", config=config, clock=self.clock)
            for name, config in (("plain", common), ("kept", kept))
        ]
        self.number = 0
        for log in self.logs:
            log.update_high_watermark(0)

    def teardown(self) -> None:
        if hasattr(self, "logs"):
            for log in self.logs:
                log.close()
            self.folder.cleanup()

    @rule(count=st.integers(1, 4), codec=st.sampled_from(["none", "lz4", "zstd"]), fails=st.booleans())
    def append(self, count: int, codec: str, fails: bool) -> None:
        for _ in range(count):
            self.number += 1
            records = [(b"%d" % self.number, b"%d" % (self.number * i) * 9) for i in range(3)]
            for log in self.logs:
                if fails:
                    self.fail_append(log, records)
                log.append(records, compression=codec)

    def fail_append(self, log: klog.Log, records: list[tuple[bytes, bytes]]) -> None:
        """The records are written, read beyond the log end, and rolled back; other records are then written at the same
        position."""
        write_parts = append_batches._write_parts

        def fail(core: LogCore, group: BatchGroup, now: int) -> None:
            write_parts(core, group, now)
            list(log.chunks(log.log_start_offset, log.log_end_offset))
            append_batches._write_parts = write_parts
            raise OSError(errno.ENOSPC, "no space")

        append_batches._write_parts = fail
        log.set_offsets_listener(lambda offset: None)  # for the full path: the fast one does not fail after the write
        with pytest.raises(OSError, match="no space"):
            log.append([(b"gone", value) for _, value in records])
        log.set_offsets_listener(None)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        for log in self.logs:
            log.truncate_to(log.log_start_offset + int(share * (log.log_end_offset - log.log_start_offset)))

    @rule(share=st.floats(0, 1))
    def move_high_watermark(self, share: float) -> None:
        for log in self.logs:
            log.maybe_increment_high_watermark(int(share * log.log_end_offset))

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        for log in self.logs:
            span = log.high_watermark - log.log_start_offset
            log.maybe_increment_log_start_offset(log.log_start_offset + int(share * span))
            log.apply_retention()

    @rule(offset=st.integers(0, 100))
    def truncate_fully(self, offset: int) -> None:
        for log in self.logs:
            log.truncate_fully_and_start_at(offset)

    @rule(ms=st.sampled_from([1000, 6000]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(share=st.floats(0, 1), isolation=st.sampled_from(["log_end", "high_watermark", "read_committed"]))
    def read(self, share: float, isolation: Any) -> None:
        answers = []
        for log in self.logs:
            start = log.log_start_offset + int(share * (log.log_end_offset - log.log_start_offset))
            found = [(r.offset, r.key, r.value) for r in log.read(start, isolation=isolation)]
            assert all(offset < log.bound(isolation) for offset, _, _ in found)
            answers.append(found)
            columns = [columns.num_rows for columns in log.read(start, isolation=isolation).columns()]
            assert sum(columns) == len(found)
        assert answers[0] == answers[1]

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "logs"):
            metrics = self.logs[1].metrics()
            assert metrics["ReadCacheBytes"] <= self.logs[1].config.io.read_cache_bytes


TestCached = Cached.TestCase
TestCached.settings = settings(max_examples=15, stateful_step_count=25)


# ---- reads that fail -------------------------------------------------------------------------------------------------


def cold(kernel: FaultyIo) -> None:
    """Drops everything from the page cache."""
    kernel.rule("preadv2", error=errno.EAGAIN)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_failed_read_only_fails_its_fetch(tmp_path: Path, kernel: FaultyIo, number: int) -> None:
    """F20: that read fails with error 56 and its position; the log stays open."""
    with klog.Log.open(tmp_path / "t-0", files=RealFiles(kernel.table)) as log:
        fill(log, 5)
    with klog.Log.open(
        tmp_path / "t-0", files=RealFiles(kernel.table)
    ) as log:  # it does not know the position of any batch yet
        cold(kernel)
        bad = kernel.rule("pread", error=number)
        for ask in (lambda: keys(log), lambda: log.fetch(3), lambda: log.count(3, 17)):
            with pytest.raises(ReadFailed, match="at byte .*; .*open the log again") as caught:
                ask()
            assert (caught.value.code, caught.value.errno) == (56, number)
            assert caught.value.filename == log.segments[0].path
            assert caught.value.position >= 0
        kernel.lift(bad)
        assert len(keys(log)) == 50
        fill(log, 1)
        assert len(keys(log)) == 60


def test_repeated_failed_reads_take_the_directory_offline(tmp_path: Path, kernel: FaultyIo) -> None:
    """F20: one successful read in between resets the count; readers may continue to read."""
    through: list[bool] = []
    with (
        contextlib.suppress(OSError),  # of the stop, which finds the directory offline
        klog.open(tmp_path, create=True, files=RealFiles(kernel.table)) as logs,
    ):
        logs.create_topic("t")
        log = logs.log("t", 0)
        fill(log, 5)
        cold(kernel)
        for failures in (READ_FAILURES_MAX - 1, READ_FAILURES_MAX):
            bad = kernel.rule("pread", error=errno.EIO)
            for _ in range(failures):
                assert log.offline is None
                with pytest.raises(ReadFailed):
                    keys(log)
            kernel.lift(bad)
            if failures < READ_FAILURES_MAX:
                assert len(keys(log)) == 50
        assert "reads in a row failed" in (log.offline or "")
        assert list(logs.offline_directories) == [str(tmp_path)]
        with pytest.raises(StorageOffline):
            fill(log, 1)
        assert len(keys(log)) == 50
        through.append(True)
    assert through


def test_short_reads_are_continued(tmp_path: Path, kernel: FaultyIo) -> None:
    """F23."""
    with klog.Log.open(tmp_path / "t-0", files=RealFiles(kernel.table)) as log:
        fill(log, 5)
        kernel.rule("preadv2", at_most=7)
        kernel.rule("pread", error=errno.EINTR, times=3)
        kernel.rule("pread", at_most=11)
        assert keys(log) == [b"%d" % n for n in range(50)]


@pytest.mark.parametrize("policy", [{}, DIRECT])
def test_a_file_shortened_by_another_process_is_an_error(tmp_path: Path, policy: dict[str, Any]) -> None:
    with klog.Log.open(tmp_path / "t-0", config=policy) as log:
        fill(log, 5)
        path = Path(log.segments[0].path)
        whole = path.read_bytes()
        path.open("r+b").truncate(len(whole) // 2)
        with pytest.raises(CorruptBatch):
            keys(log)
        path.write_bytes(whole)
        assert len(keys(log)) == 50


def test_read_ahead_is_requested_once_per_window(tmp_path: Path, kernel: FaultyIo) -> None:
    config = {"klog.io.read.ahead.bytes": 1 << 17}
    with klog.Log.open(tmp_path / "t-0", config=config, files=RealFiles(kernel.table)) as log:
        fill(log, 40, 1000)
        assert log.size > 400_000
        before = kernel.calls("fadvise")
        assert sum(1 for _ in log.chunks(0, 400, max_bytes=32768)) > 10
        assert kernel.calls("fadvise") - before == 4  # 64 KiB, then 128 KiB each, and the rest
