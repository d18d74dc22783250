"""The part of a log that is in the page cache, and the share of the read bytes that came from there."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.disk import RealFiles
from klog.disk.residency import Residency
from klog.errors import LogClosed, UnknownTopicOrPartition
from klog.log.read import page_cache
from klog.log.read.page_cache import picture
from tests.support.faulty_io import FaultyIo
from tests.support.logs import settle
from tests.support.page_cache import PAGE, make_cold, make_hot, resident_below, resident_pages
from tests.support.resources import open_descriptors

pytestmark = pytest.mark.disk

READS = {"PageCacheSampledReadBytes", "PageCacheHitReadBytes"}
LOOKED = {"PageCacheBytes", "PageCacheDirtyBytes", "PageCacheWritebackBytes", "PageCacheEvictedBytes"}


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log of four segments, all on the disk."""
    with klog.open(tmp_path / "d", create=True, config={"log.segment.bytes": 1 << 20}) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        for _ in range(35):
            log.append([(None, os.urandom(100_000))])
        assert len(log.segments) == 4
    settle()  # otherwise a reader checks the last segment once more
    return tmp_path / "d"


def log_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("t-0/*.log"))


def test_page_cache_reports_each_segment_and_the_total(directory: Path) -> None:
    paths = log_files(directory)
    for path in paths:
        make_cold(path)
    with klog.Log.open(directory / "t-0", read_only=True) as log:
        for path in paths:
            make_cold(path)
        make_hot(paths[1])
        make_hot(paths[2], 0, 5 * PAGE)
        found = log.page_cache()
        assert [segment.path for segment in found.segments] == [str(path) for path in paths]
        assert [segment.base_offset for segment in found.segments] == [segment.base_offset for segment in log.segments]
        counts = [sum(resident_pages(path)) * PAGE for path in paths]
        assert [segment.residency.cached_bytes for segment in found.segments] == counts
        assert counts[0] == counts[3] == 0 and counts[2] == 5 * PAGE
        assert found.residency.cached_bytes == sum(counts)
        assert found.residency.size == log.size
        assert (found.topic, found.partition, found.path) == ("t", 0, str(directory / "t-0"))
        assert {segment.heat for segment in found.segments} == {()}


def test_a_picture_of_hot_and_cold(directory: Path) -> None:
    paths = log_files(directory)
    with klog.Log.open(directory / "t-0", read_only=True) as log:
        for path in paths:
            make_cold(path)
        make_hot(paths[1])
        make_hot(paths[2], 0, 128 * PAGE)
        found = log.page_cache(cells=4)
        assert found.segments[0].heat == (0.0,) * 4
        assert found.segments[1].heat == (1.0,) * 4
        assert found.segments[2].heat[0] == 1.0 and found.segments[2].heat[3] == 0.0
        row = found.picture(8)
        assert len(row) == 8 and row[0] == 0.0 and row[-1] == 0.0 and max(row) == 1.0


def test_a_picture_averages_its_parts() -> None:
    assert picture([(10, [1.0, 0.0]), (10, [0.5])], 4) == pytest.approx([1.0, 0.0, 0.5, 0.5])
    assert picture([(30, [1.0]), (10, [0.0])], 2) == pytest.approx([1.0, 0.5])
    assert picture([(1, [1.0]), (1, [0.0]), (1, [0.0])], 2) == pytest.approx([2 / 3, 0.0])
    assert picture([(5, [0.25])], 3) == pytest.approx([0.25] * 3)
    assert picture([], 5) == picture([(0, [])], 5) == []
    many = picture([(7, [0.5] * 3)] * 1000, 32)
    assert many == pytest.approx([0.5] * 32)


def test_a_query_reads_nothing_into_memory(directory: Path) -> None:
    with klog.Log.open(directory / "t-0", read_only=True) as log, klog.open(directory, read_only=True) as logs:
        for path in log_files(directory):
            make_cold(path)
        make_hot(log_files(directory)[2], 100 * PAGE, PAGE)
        before = resident_below(directory)
        log.page_cache(cells=16)
        log.metrics(page_cache=True)
        logs.page_cache(cells=16)
        assert resident_below(directory) == before


def test_a_writer_sees_what_is_dirty(tmp_path: Path) -> None:
    with klog.open(tmp_path / "d", create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        for _ in range(5):  # the kernel may begin to write back at any moment
            log.append([(None, os.urandom(200_000))])
            found = log.page_cache().residency
            if (found.dirty_bytes or 0) + (found.writeback_bytes or 0) > 150_000:
                break
        else:
            pytest.fail(f"{found}")
        log.flush()
        found = log.page_cache().residency
        assert found.dirty_bytes == found.writeback_bytes == 0
        assert found.cached_bytes == found.memory_bytes >= log.size


def test_a_segment_deleted_during_a_query_is_left_out(directory: Path) -> None:
    with klog.Log.open(directory / "t-0", read_only=True) as log:
        os.unlink(log.segments[1].path)
        assert len(log.page_cache().segments) == 3


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("at", ["listed", "measure"])
def test_a_topic_deleted_during_a_query_is_left_out(
    directory: Path, monkeypatch: pytest.MonkeyPatch, at: str, read_only: bool
) -> None:
    with klog.open(directory) as writer, klog.open(directory, read_only=True) as reading:
        writer.append("t", [(b"k", b"v")])
        writer.create_topic("u", config={"file.delete.delay.ms": 0})
        writer.append("u", [(b"k", b"v")])
        logs = reading if read_only else writer
        deleted = [logs.log(topic) for topic in "tu"][1]
        before = getattr(page_cache, at)

        def delete(*arguments: object) -> object:
            if "u" in writer.topics():
                writer.delete_topic("u")
                with contextlib.suppress(LogClosed, UnknownTopicOrPartition):
                    deleted.read()
            return before(*arguments)

        monkeypatch.setattr(page_cache, at, delete)
        if at == "listed":
            assert [log.topic for log in logs.page_cache()] == ["t"]
        else:
            assert set(logs.metrics(page_cache=True)["PageCacheBytes"]) == {"t-0"}


def test_a_query_takes_no_handles_from_readers(directory: Path) -> None:
    with klog.Log.open(directory / "t-0", read_only=True) as log:
        before = open_descriptors()
        log.page_cache(cells=4)
        assert open_descriptors() <= before


def test_metrics_query_the_kernel_only_on_request(directory: Path, kernel: FaultyIo) -> None:
    with klog.Log.open(directory / "t-0", files=RealFiles(kernel.table)) as log:
        names = set(log.metrics())
        assert names >= READS and not names & LOOKED
        assert kernel.calls("cachestat") == 0
        looked = log.metrics(page_cache=True)
        assert set(looked) == names | LOOKED
        assert looked["PageCacheBytes"] == log.page_cache().residency.cached_bytes
        kernel.rule("cachestat", error=errno.ENOSYS)
        assert set(log.metrics(page_cache=True)) == names | {"PageCacheBytes"}  # mincore reports nothing else
    with pytest.raises(klog.errors.LogClosed):
        log.page_cache()


def test_the_hit_ratio_of_chunk_reads(directory: Path) -> None:
    with klog.Log.open(directory / "t-0") as log:
        assert {log.metrics()[name] for name in READS} == {0}
        for _ in range(8):
            assert sum(len(chunk.buffer) for chunk in log.chunks(0, log.log_end_offset)) == log.size
        found = log.metrics()
        assert found["PageCacheSampledReadBytes"] == found["PageCacheHitReadBytes"] > 500_000
        sampler = log.segments[0].segment_dir.sampler
        while sampler.reads % 16 != 15:
            next(log.chunks(0, 1))
        make_cold(log.segments[0].path)
        next(log.chunks(0, 1))
        missed = log.metrics()
        sampled, hit = (missed[name] - found[name] for name in sorted(READS, reverse=True))
        assert 0 <= hit < sampled / 2  # the search for the batch has read the first pages


def test_fetches_are_sampled_too(directory: Path) -> None:
    with klog.Log.open(directory / "t-0") as log:
        sizes = [log.fetch(0, 200_000).size for _ in range(32)]
        found = log.metrics()
        assert found["PageCacheSampledReadBytes"] == found["PageCacheHitReadBytes"] == 2 * sizes[0] > 0


def test_the_manager_includes_logs_that_are_not_loaded(directory: Path, tmp_path: Path) -> None:
    with klog.open([directory, tmp_path / "e"], create=True) as logs:
        logs.create_topic("a", partitions=2)
        found = logs.page_cache()
        assert [(log.topic, log.partition) for log in found] == [("a", 0), ("a", 1), ("t", 0)]
        assert len(found[2].segments) == 4 and found[2].residency.size > 3_000_000
        assert "t-0" not in logs.metrics()["Size"]
        assert [(log.topic, log.partition) for log in logs.page_cache("a")] == [("a", 0), ("a", 1)]
        with pytest.raises(klog.errors.UnknownTopicOrPartition, match="no topic 'x'"):
            logs.page_cache("x")


def test_an_empty_log(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        found = log.page_cache(cells=4)
        assert found.residency == Residency() and len(found.segments) == 1
        assert found.picture(4) == []


def test_import_of_klog_does_not_import_the_residency_module() -> None:
    import subprocess

    code = "import sys, klog; print(*(m for m in sys.modules if m in ('klog.disk.residency', 'klog.disk.monitor')))"
    root = str(Path(klog.__file__).parent.parent)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert found.stdout == "\n"


def test_a_new_log_reads_no_zeros_of_its_index_files(tmp_path: Path) -> None:
    """The device's read-ahead of a hole: 32 pages by default, 2,048 on some machines, for each partition."""
    with klog.Log.open(tmp_path / "t-0") as log:
        for n in range(3):
            log.append([(None, bytes(5000), 1_700_000_000_000 + n)])
        for path in sorted((tmp_path / "t-0").glob("*index")):
            assert path.stat().st_size > 1 << 20
            assert sum(resident_pages(path)) <= 1, path
