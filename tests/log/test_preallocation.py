"""Preallocation in steps, as written zeros, or none: the log is the same, whatever bytes follow its end in the file."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog import Log
from klog.clock import ManualClock
from klog.disk import RealFiles
from tests.support.abandon import abandon
from tests.support.faulty_io import FaultyIo
from tests.support.logs import NOW, one_log, values

ZEROS = {"klog.io.preallocate": "zeros"}
LARGE = os.urandom(50_000)


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def log_file(log: Log) -> Path:
    return Path(log.segments[-1].path)


def test_zeros_follow_the_log_end_until_the_log_is_closed(tmp_path: Path) -> None:
    """F5, LS15: the file is longer than the log, which no reader sees; roll, truncation and close cut it."""
    with one_log(tmp_path, **ZEROS) as log:
        log.append([(None, b"first")])
        path = log_file(log)
        assert path.stat().st_size == 64 << 10
        assert path.read_bytes()[log.size :] == bytes((64 << 10) - log.size)
        log.append([(None, LARGE), (None, LARGE)])
        assert path.stat().st_size == max(128 << 10, log.size)
        assert values(log) == [b"first", LARGE, LARGE]
        assert log.verify().ok
        assert not klog.verify(tmp_path).ok  # without the log, verify does not know its end
        log.truncate_to(1)
        log.append([(None, b"second")])
        assert path.stat().st_size > log.size
        log.roll()
        assert path.stat().st_size == log.segments[0].size
        log.append([(None, b"third")])
        assert values(log) == [b"first", b"second", b"third"]
    with one_log(tmp_path) as log:
        assert values(log) == [b"first", b"second", b"third"]
        assert log.recovery.clean_shutdown
        assert sum(file.stat().st_size for file in path.parent.glob("*.log")) == log.size
        assert log.verify().problems == []


def test_only_the_zeros_of_a_killed_writer_are_cut(tmp_path: Path) -> None:
    """F5: NULs are never a valid batch, so they are cut as the tail of a crash."""
    logs = klog.open(tmp_path, create=True, clock=ManualClock(NOW))
    logs.create_topic("events", config=ZEROS)
    log = logs.log("events")
    for number in range(3):
        log.append([(None, b"%d" % number)])
    path, size = log_file(log), log.size
    abandon(logs)
    assert path.stat().st_size > size
    with one_log(tmp_path) as log:
        assert values(log) == [b"0", b"1", b"2"]
        assert path.stat().st_size == size
        log.append([(None, b"3")])
    with one_log(tmp_path) as log:
        assert values(log) == [b"0", b"1", b"2", b"3"]


def test_a_reader_beside_the_writer_sees_batches_and_no_zeros(tmp_path: Path) -> None:
    """It opens the log during the writes, follows it, and its tail does not treat zeros as new records."""
    with one_log(tmp_path, **ZEROS) as log:
        log.append([(None, b"0")])
        with klog.open(tmp_path, read_only=True, clock=ManualClock(NOW)) as logs:
            reader = logs.log("events")
            assert values(reader) == [b"0"]
            assert reader.log_end_offset == 1
            for number in range(1, 200):
                log.append([(None, b"%d" % number * 300)])
                reader.refresh()
                assert reader.log_end_offset == number + 1
            assert values(reader) == values(log)
            log.truncate_to(100)
            log.append([(None, b"again")])
            reader.refresh()
            assert values(reader) == values(log)
            log.roll()
            log.append([(None, b"rolled")])
            reader.refresh()
            assert values(reader) == values(log)


def test_none_allocates_no_blocks(tmp_path: Path, kernel: FaultyIo) -> None:
    files = RealFiles(kernel.table)
    with Log.open(tmp_path / "t-0", config={"klog.io.preallocate": "none"}, files=files) as log:
        log.append([(None, LARGE)])
        kernel.heal()  # the indexes are already preallocated
        for _ in range(19):
            log.append([(None, LARGE)])
        assert kernel.calls("fallocate") == 0
        assert kernel.calls("pwrite") == 19
        assert log_file(log).stat().st_size == log.size
        assert values(log) == [LARGE] * 20


@pytest.mark.parametrize("step", [4096, 200_000])
def test_no_step_is_larger_than_the_largest(tmp_path: Path, kernel: FaultyIo, step: int) -> None:
    config = {"klog.io.preallocate.step.bytes": step}
    with Log.open(tmp_path / "t-0", config=config, files=RealFiles(kernel.table)) as log:
        log.append([(None, b"x")])
        kernel.heal()
        size = log.size
        while log.size < size + 10 * step:
            log.append([(None, LARGE[: step // 4])])
        assert 9 <= kernel.calls("fallocate") <= 13  # including one for each index
        assert log_file(log).stat().st_blocks * 512 <= log.size + step + (64 << 10)


@pytest.mark.parametrize("policy", ["steps", "zeros"])
def test_failed_preallocation_on_a_full_disk_refuses_no_append_that_fits(
    tmp_path: Path, kernel: FaultyIo, policy: str
) -> None:
    """F15: only the write itself may fail, and then it is rolled back."""
    config = {"klog.io.preallocate": policy}
    with Log.open(tmp_path / "t-0", config=config, files=RealFiles(kernel.table)) as log:
        log.append([(None, b"0")])
        full = [kernel.rule(name, error=errno.ENOSPC) for name in ("fallocate", "pwritev2")]
        for _ in range(4):
            log.append([(None, LARGE)])
        full.append(kernel.rule("pwrite", error=errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            log.append([(None, LARGE)])
        assert log.offline is None
        assert log_file(log).stat().st_size == log.size
        for rule in full:
            kernel.lift(rule)
        log.append([(None, b"1")])
        assert values(log) == [b"0", *[LARGE] * 4, b"1"]


def test_a_disk_error_while_preallocating_fails_the_append_and_leaves_nothing(tmp_path: Path, kernel: FaultyIo) -> None:
    """F19."""
    with Log.open(tmp_path / "t-0", config=ZEROS, files=RealFiles(kernel.table)) as log:
        log.append([(None, b"0")])
        kernel.rule("pwritev2", error=errno.EIO, times=1)
        with pytest.raises(OSError, match="Input/output"):
            log.append([(None, LARGE), (None, LARGE)])
        assert values(log) == [b"0"] and "Input/output" in str(log.offline)
    with Log.open(tmp_path / "t-0", config=ZEROS) as log:
        log.append([(None, b"1")])
        assert values(log) == [b"0", b"1"]


def test_a_new_policy_applies_from_the_next_append_on(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(None, b"0")])
        assert log_file(log).stat().st_size == log.size
        logs.alter_topic("events", ZEROS)
        log.append([(None, LARGE), (None, LARGE)])
        assert log_file(log).stat().st_size > log.size
        logs.alter_topic("events", {"klog.io.preallocate": "none"})
        log.append([(None, b"2")])
        assert values(log) == [b"0", LARGE, LARGE, b"2"]


@pytest.mark.parametrize("policies", list(itertools.permutations(("none", "steps", "zeros"))), ids="-".join)
def test_the_policy_may_change_within_a_segment(tmp_path: Path, policies: tuple[str, ...]) -> None:
    """Bytes written without preallocation are never treated as zeros written ahead."""
    wanted = []
    with one_log(tmp_path) as log:
        for number, policy in enumerate((*policies, *policies)):
            log.update_config(log.config.replace({"klog.io.preallocate": policy}))
            for size in (10, 70_000, 10):
                wanted.append(b"%d" % number * size)
                log.append([(None, wanted[-1])])
            log.flush()
            assert values(log) == wanted
            assert log.verify().problems == []
    with one_log(tmp_path) as log:
        assert values(log) == wanted


def test_a_file_that_may_not_grow_for_zeros_takes_what_fits(tmp_path: Path, kernel: FaultyIo) -> None:
    """F15: a file size limit bounds the log, not the zeros ahead of it."""
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW), files=RealFiles(kernel.table)) as logs:
        logs.create_topic("events", config=ZEROS)
        log = logs.log("events")
        log.append([(None, b"first")])
        ahead = kernel.rule("pwritev2", error=errno.EFBIG)
        log.append([(None, LARGE), (None, LARGE)])
        assert kernel.hits(ahead) >= 1
        assert values(log) == [b"first", LARGE, LARGE]
        kernel.heal()
