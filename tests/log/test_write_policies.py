"""klog.io.write and klog.io.write.behind.bytes: every policy writes the same log, and which errors are final."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import klog
from klog import Log, record
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import StorageOffline
from tests.support.examples import OF_FIXTURES
from tests.support.faulty_io import FaultyIo
from tests.support.logs import NOW
from tests.support.page_cache import make_cold, resident_pages

pytestmark = pytest.mark.disk

DATA = random.Random(3).randbytes(1 << 20)
MIB = 1 << 20
POLICIES: dict[str, dict[str, object]] = {
    "dontcache": {"klog.io.write": "dontcache"},
    "direct": {"klog.io.write": "direct"},
    "direct and zeros": {"klog.io.write": "direct", "klog.io.preallocate": "zeros"},
    "zeros": {"klog.io.preallocate": "zeros", "klog.io.preallocate.step.bytes": 100_000},
    "none": {"klog.io.preallocate": "none"},
    "behind": {"klog.io.write.behind.bytes": 64 << 10},
    "behind and direct": {"klog.io.write.behind.bytes": 64 << 10, "klog.io.write": "direct"},
    "behind and zeros": {"klog.io.write.behind.bytes": 64 << 10, "klog.io.preallocate": "zeros"},
}
BEHIND = {"klog.io.write.behind.bytes": 256 << 10}


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def opened(path: Path, config: dict[str, object], table: int = 0, **more: Any) -> Log:
    return Log.open(path / "t-0", config=config, files=RealFiles(table), clock=ManualClock(NOW), **more)


def request(size: int) -> bytes:
    """A client's batch with one record of so many bytes."""
    return record.encode([(None, DATA[:size], NOW)])


def repeat(append: Callable[[], object]) -> None:
    for _ in range(500):
        append()


def log_bytes(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "t-0").glob("*.log"))}


def test_the_default_is_the_page_cache_alone() -> None:
    policy = klog.LogConfig().io
    assert (policy.write, policy.write_behind_bytes, policy.preallocate) == ("buffered", 0, "steps")
    assert klog.LogConfig({"klog.io.write": "direct"}).io.write == "direct"


@settings(max_examples=15, deadline=None, suppress_health_check=OF_FIXTURES)
@given(
    st.lists(
        st.tuples(st.sampled_from(["tuples", "batch", "roll", "flush", "truncate", "reopen"]), st.integers(0, 250_000)),
        max_size=12,
    )
)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_any_sequence_of_appends_writes_the_bytes_that_the_default_writes(
    tmp_path_factory: pytest.TempPathFactory, policy: dict[str, object], steps: list[tuple[str, int]]
) -> None:
    """Whatever happens between them; a reader in the same process sees the same."""
    written = []
    for config in ({}, policy):
        path = tmp_path_factory.mktemp("log")
        config = {**config, "segment.bytes": 400_000, "max.message.bytes": 400_000}
        log = opened(path, config)
        for what, size in steps:
            if what == "tuples":
                log.append([(b"k", DATA[:size]), (None, DATA[: size // 5])])
            elif what == "batch":
                log.append_batches(request(size))
            elif what == "truncate":
                log.truncate_to(log.log_end_offset * size // 250_000)
            elif what == "reopen":
                log.close()
                log = opened(path, config)
            else:
                getattr(log, what)()
        values = [one.value for one in log.read()]
        log.close()
        assert log.offline is None
        written.append((log_bytes(path), values))
    assert written[0] == written[1]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("how", ["tuples", "batch"])
def test_a_full_disk_rolls_back_only_the_append(
    tmp_path: Path, kernel: FaultyIo, policy: dict[str, object], how: str
) -> None:
    """F15: at each call that an append makes, in the middle of a write too."""
    failures = 0
    for nth in range(1, 6):
        path = tmp_path / str(nth)
        path.mkdir()
        with opened(path, policy, kernel.table) as log:
            log.append([(None, b"before"), (None, DATA[:5000])])
            for name in ("pwrite", "pwritev2"):  # the first rule that matches applies
                kernel.rule(name, error=errno.ENOSPC, nth=nth, times=1)
                kernel.rule(name, at_most=90_000)
            before = log_bytes(path)["0" * 20 + ".log"][: log.size]
            failed = 0
            try:
                log.append([(None, DATA[:250_000])]) if how == "tuples" else log.append_batches(request(250_000))
            except OSError as error:
                failed = error.errno or -1
            if failed:
                failures += 1
                assert failed == errno.ENOSPC
                assert log_bytes(path)["0" * 20 + ".log"] == before
                assert log.log_end_offset == 2
            kernel.heal()
            assert log.offline is None
            log.append([(None, b"after")])
            values = [b"before", DATA[:5000], *([] if failed else [DATA[:250_000]]), b"after"]
            assert [one.value for one in log.read()] == values
        with opened(path, {}) as log:
            assert [one.value for one in log.read()] == values
    assert failures


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_kernel_without_dontcache_writes_to_the_cache_and_counts_it(
    tmp_path: Path, kernel: FaultyIo, code: int
) -> None:
    """Tried once per file."""
    with opened(tmp_path, {"klog.io.write": "dontcache"}, kernel.table) as log:
        for segment in (1, 2):
            kernel.heal()
            refused = kernel.rule("pwritev2", error=code, times=1)
            for _ in range(2):
                log.append_batches(request(1000))
            assert kernel.hits(refused) == 1
            assert kernel.calls("pwritev2") == 2  # refused, and again as a plain one
            assert log.metrics()["WriteFallbacks"] == segment
            log.roll()
        assert log.count() == 4


def test_dontcache_leaves_nothing_in_the_page_cache(tmp_path: Path) -> None:
    with opened(tmp_path, {"klog.io.write": "dontcache"}) as log:
        for _ in range(10):
            log.append_batches(request(900_000))
        if log.metrics()["WriteFallbacks"]:
            pytest.skip("needs: RWF_DONTCACHE, Linux 6.14 and a file system that has it")
        log.flush()
        pages = resident_pages(log.segments[0].path)
        assert sum(pages) < len(pages) / 4
        assert log.count() == 10


def test_direct_bypasses_the_page_cache_for_large_appends(tmp_path: Path) -> None:
    with opened(tmp_path, {"klog.io.write": "direct"}) as log:
        log.append_batches(request(1000))
        for _ in range(10):
            log.append_batches(request(900_000))
        metrics = log.metrics()
        if metrics["WriteFallbacks"]:
            pytest.skip("needs: a file system with O_DIRECT for the temporary folder")
        assert metrics["DirectWriteBytes"] > 10 * (900_000 - 8192)
        pages = resident_pages(log.segments[0].path)
        assert sum(pages) < len(pages) / 4
        log.roll()
        assert log.metrics()["DirectWriteBytes"] == metrics["DirectWriteBytes"]
        assert log.count() == 11


def test_a_file_system_without_o_direct_works_through_the_cache(tmp_path: Path, kernel: FaultyIo) -> None:
    with opened(tmp_path, {"klog.io.write": "direct"}, kernel.table) as log:
        log.append_batches(request(1000))
        log.append_batches(request(60_000))  # through the cache: too small for O_DIRECT
        kernel.rule("pwrite", error=errno.EINVAL, nth=2, times=1)  # the head of the next goes through the cache
        log.append_batches(request(500_000))
        metrics = log.metrics()
        assert (metrics["DirectWriteBytes"], metrics["WriteFallbacks"]) == (0, 1)
        assert [len(one.value or b"") for one in log.read()] == [1000, 60_000, 500_000]


@pytest.mark.parametrize("write", ["dontcache", "direct"])
def test_a_fetch_by_map_sees_what_was_just_written_past_the_cache(tmp_path: Path, write: str) -> None:
    """One file, written with two methods and read with three: pread, map, another process's descriptor."""
    with opened(tmp_path, {"klog.io.write": write}) as log:
        held = []
        for number in range(12):
            log.append_batches(request(150_000 + number))
            data = log.fetch(number, max_bytes=MIB)
            held.append((number, data.memory()))
        for number, view in held:
            (batch,) = record.decode(view)
            assert [one.value for one in batch] == [DATA[: 150_000 + number]]
        with Log.open(tmp_path / "t-0", read_only=True) as reader:
            assert [len(one.value or b"") for one in reader.read()] == [150_000 + n for n in range(12)]


# ---- write-behind ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["tuples", "batches", "small batches"])
def test_bytes_before_the_window_leave_the_cache_and_the_rest_stays(tmp_path: Path, how: str) -> None:
    """The tail of a closed segment stays cached."""
    with opened(tmp_path, BEHIND) as log:
        path = log.segments[0].path
        while log.size < 8 * MIB:
            if how == "tuples":
                log.append([(None, DATA[:100_000])])
            else:
                log.append_batches(request(100_000 if how == "batches" else 3000))
        metrics = log.metrics()
        assert log.size - 64 * 1024 - 200_000 <= metrics["WriteBehindBytes"] <= log.size
        assert log.size - 700_000 <= metrics["DropBehindBytes"] <= log.size - (256 << 10)
        count = log.count()
        log.roll()
        make_cold(path, 0, 6 * MIB)
        assert all(resident_pages(path)[-50:])
        assert log.metrics()["DropBehindBytes"] == metrics["DropBehindBytes"]
        log.append_batches(request(5))
        assert log.count() == count + 1


def test_write_behind_drops_pages_itself(tmp_path: Path) -> None:
    with opened(tmp_path, BEHIND) as log:
        path = log.segments[0].path
        while log.size < 32 * MIB:
            log.append_batches(request(500_000))
        pages = resident_pages(path)
        assert sum(pages) < len(pages) / 2


def test_without_a_window_there_is_no_write_behind(tmp_path: Path, kernel: FaultyIo) -> None:
    with opened(tmp_path, {}, kernel.table) as log:
        while log.size < 3 * MIB:
            log.append_batches(request(100_000))
        assert kernel.calls("sync_file_range") == kernel.calls("fadvise") == 0
        metrics = log.metrics()
        assert not any(metrics[name] for name in ("WriteBehindBytes", "DropBehindBytes", "DirectWriteBytes"))


@pytest.mark.parametrize("how", ["tuples", "batches", "replication"])
def test_a_failed_write_behind_is_final(tmp_path: Path, kernel: FaultyIo, how: str) -> None:
    """F19, S4: the error is reported only once, so the log takes no more appends, and reads go on."""
    log = opened(tmp_path, BEHIND, kernel.table)
    kernel.rule("sync_file_range", error=errno.EIO, nth=20, times=1)

    def append() -> None:
        if how == "tuples":
            log.append([(None, DATA[:30_000])])
        elif how == "batches":
            log.append_batches(request(30_000))
        else:
            batch = bytearray(request(30_000))
            batch[:8] = log.log_end_offset.to_bytes(8, "big")
            log.append_batches(batch, origin="replication", leader_epoch=0)

    with pytest.raises(OSError, match="write-behind") as caught:
        repeat(append)
    appended = log.log_end_offset
    assert appended > 10
    assert caught.value.filename == log.segments[0].path
    assert caught.value.errno == errno.EIO
    assert log.offline is not None
    assert log.log_end_offset == appended == log.count()
    for call in (lambda: log.append([(None, b"x")]), lambda: log.append_batches(request(5)), log.flush):
        with pytest.raises(StorageOffline, match="write-behind"):
            call()
    log.close()
    with opened(tmp_path, {}, recovery_point=0, clean_shutdown=False) as log:
        assert log.count() == appended


def test_a_failed_write_behind_takes_the_directory_offline(tmp_path: Path, kernel: FaultyIo) -> None:
    """F19: with every log in it."""
    files = RealFiles(kernel.table)
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW), files=files) as logs:
        logs.create_topic("a", config=BEHIND)
        logs.create_topic("b")
        logs.append("b", [(None, b"x")])
        kernel.rule("sync_file_range", error=errno.EIO, nth=5, times=1)
        log = logs.log("a")
        with pytest.raises(OSError, match="write-behind"):
            repeat(lambda: log.append([(None, DATA[:30_000])]))
        with pytest.raises(StorageOffline):
            logs.append("b", [(None, b"y")])
        with pytest.raises(OSError, match="write-behind"):
            logs.close()


def test_a_file_system_without_write_behind_is_not_an_error(tmp_path: Path, kernel: FaultyIo) -> None:
    kernel.rule("sync_file_range", error=errno.ENOSYS)
    with opened(tmp_path, BEHIND, kernel.table) as log:
        while log.size < 2 * MIB:
            log.append_batches(request(100_000))
        assert kernel.calls("sync_file_range") == 1
        assert log.metrics()["WriteBehindBytes"] == 0


def test_the_window_follows_a_truncation_and_another_policy(tmp_path: Path, kernel: FaultyIo) -> None:
    with opened(tmp_path, BEHIND, kernel.table) as log:
        for _ in range(20):
            log.append_batches(request(50_000))
        log.truncate_to(5)
        dropped = log.metrics()["DropBehindBytes"]
        for _ in range(20):
            log.append_batches(request(50_000))
        assert log.metrics()["DropBehindBytes"] > dropped
        log.update_config(klog.LogConfig())
        calls = kernel.calls("sync_file_range")
        for _ in range(20):
            log.append_batches(request(50_000))
        assert kernel.calls("sync_file_range") == calls
        assert log.count() == 45
        assert [one.value for one in log.read(44)] == [DATA[:50_000]]
