"""A system call, a disk or a batch that fails during a cleaning: the log stays readable and the error is reported.

Before the swap the log stays unchanged and can be used. An error that is final for the disk takes the log offline, and
the next load finds the old log or the new one. tests/cleaner/test_swap.py does the same with the operations of Files.
"""

from __future__ import annotations

import ast
import dataclasses
import errno
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import klog
from klog.disk import RealFiles
from klog.errors import CorruptBatch, StorageOffline
from tests.crash.compaction import CHECKPOINT, CONFIG, Cleaning, Setup, content_of, left_over
from tests.support.abandon import abandon
from tests.support.child import in_child
from tests.support.crash_files import CrashFiles
from tests.support.faulty_io import FaultyIo
from tests.support.resources import memory_limit

SETUP = Setup(False, CONFIG, {})
KINDS = {
    "ENOSPC": {"error": errno.ENOSPC},
    "EDQUOT": {"error": errno.EDQUOT},
    "EIO": {"error": errno.EIO},
    "EINTR": {"error": errno.EINTR},
    "ENOMEM": {"error": errno.ENOMEM},
    "short": {"at_most": 7},
}
CALLS = {
    "pwrite": ("ENOSPC", "EDQUOT", "EIO", "EINTR", "short"),
    "pread": ("EIO", "EINTR", "ENOMEM"),
    "preadv2": ("EIO",),
    "fsync": ("EIO", "ENOSPC"),
    "ftruncate": ("ENOSPC", "EIO"),
}
CASES = [(call, kind) for call, kinds in CALLS.items() for kind in kinds]
FINAL = {("pwrite", "EIO"), ("ftruncate", "EIO"), ("fsync", "EIO"), ("fsync", "ENOSPC")}


@pytest.fixture(scope="module")
def cleaning() -> Iterator[Cleaning]:
    """Run a cleaning in a directory where a sync costs nothing, if there is one."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        yield Cleaning(Path(place) / "cleaning", SETUP)


def fail_and_check(cleaning: Cleaning, kernel: FaultyIo, call: str, kind: str, nth: int) -> bool:
    """Fail the nth call. Return whether there was one."""
    kernel.heal()
    root = cleaning.copy()
    log = cleaning.setup.log(cleaning.setup.open(root, files=RealFiles(kernel.table)))
    rule = kernel.rule(call, nth=nth, times=1, **KINDS[kind])
    caught: OSError | None = None
    try:
        log.compact()
    except OSError as error:
        caught = error
    met = kernel.hits(rule) > 0
    kernel.heal()
    if not met or kind in ("EINTR", "short"):
        assert caught is None
    if caught is not None:
        assert caught.errno == KINDS[kind]["error"]
        assert str(root) in str(caught.filename)
        assert (log.offline is not None) == ((call, kind) in FINAL)
    cleaning.check_content(content_of(log, cleaning.dirty_end))
    if log.offline is None:
        assert [name for name in left_over(root) if not name.endswith(".deleted")] == []
        log.append([(b"key-2", b"newest", None)])
        log.truncate_to(cleaning.before.span[1])
        log.compact()
        cleaning.check_outcome(content_of(log, cleaning.dirty_end))
        log.close()
    else:
        with pytest.raises(StorageOffline):
            log.append([(b"never", b"")])
        abandon(log)
    cleaning.check(root)
    return met


@pytest.mark.parametrize(("call", "kind"), CASES)
def test_every_system_call_may_fail(cleaning: Cleaning, call: str, kind: str) -> None:
    """F17, F19, F20, F23: the nth call of a cleaning fails, for n = 1, 2, ... until a cleaning has fewer calls."""
    with FaultyIo() as kernel:
        nth = 1
        while fail_and_check(cleaning, kernel, call, kind, nth):
            nth += 1
        assert nth > 1


def test_a_failed_sync_of_a_cleaned_file_takes_the_directory_offline(tmp_path: Path) -> None:
    """S2, F19: nothing is lost; the directory stays offline until it is opened again, without a clean-shutdown file."""
    cleaning = Cleaning(tmp_path / "cleaning", Setup(True, CONFIG, {}))
    root = cleaning.copy()
    with FaultyIo() as kernel:
        logs = klog.open(root, clock=klog.clock.ManualClock(cleaning.setup.at), files=RealFiles(kernel.table))
        log = logs.log("t")
        kernel.rule("fsync", error=errno.EIO, times=1)
        with pytest.raises(OSError, match=r"\.cleaned") as caught:
            log.compact()
        assert caught.value.errno == errno.EIO
        assert log.offline
        cleaning.check_content(content_of(log, cleaning.dirty_end))
        with pytest.raises(OSError, match="Input/output"):
            logs.close()
        abandon(logs)
    assert not (root / ".kafka_cleanshutdown").exists()
    cleaning.check(root)


def test_a_full_disk_at_the_checkpoint_keeps_the_cleaned_segments(cleaning: Cleaning) -> None:
    """F17: the error is reported, and the next cleaning begins where this one began."""
    with FaultyIo() as kernel:

        def opened() -> klog.Log:
            kernel.heal()
            return cleaning.setup.log(cleaning.setup.open(cleaning.copy(), files=RealFiles(kernel.table)))

        with opened() as log:
            writes = kernel.calls("pwrite")
            log.compact()
            writes = kernel.calls("pwrite") - writes
        log = opened()
        root = Path(log.path).parent
        before = (root / CHECKPOINT).read_bytes()
        kernel.rule("pwrite", error=errno.ENOSPC, nth=writes, times=1)
        with pytest.raises(OSError, match="No space") as caught:
            log.compact()
        assert CHECKPOINT in caught.value.filename
        assert log.offline is None
        assert (root / CHECKPOINT).read_bytes() == before
        cleaning.check_outcome(content_of(log, cleaning.dirty_end))
        log.append([(b"more", b"")])
        log.truncate_to(cleaning.before.span[1])
        log.close()
    cleaning.check(root)


def test_a_cleaning_writes_only_the_bytes_it_keeps(cleaning: Cleaning) -> None:
    """F17: a cleaning writes each byte of the cleaned segments once, beside the old ones, and nothing before that."""
    files = CrashFiles()
    log = cleaning.setup.log(cleaning.setup.open(cleaning.copy(), files=files))
    log.compact()
    writes = [step for step in files.log if step.startswith("write ") and ".log.cleaned" in step]
    assert sum(int(step.split("+")[1]) for step in writes) == sum(segment.size for segment in log.segments[:-1]) > 0
    abandon(log)


def test_emfile_at_any_open(cleaning: Cleaning) -> None:
    """F21: with each limit on descriptors the cleaning succeeds, or it fails and the log stays unchanged."""

    def limited(root: Path, spare: int) -> str:
        log = cleaning.setup.log(cleaning.setup.open(root))
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        free = set(range(highest + 1)) - {int(name) for name in os.listdir("/proc/self/fd")}
        for _ in free:
            os.open("/dev/null", os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + spare, hard))
        reports = ""
        try:
            log.compact()
        except OSError as error:
            reports = str(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        assert log.offline is None
        assert [name for name in left_over(root) if not name.endswith(".deleted")] == []
        log.append([(b"more", b"")])
        log.truncate_to(cleaning.before.span[1])
        log.compact()
        cleaning.check_outcome(content_of(log, cleaning.dirty_end))
        log.close()
        return reports

    for spare in range(20):
        root = cleaning.copy()
        reports = in_child(lambda root=root, spare=spare: limited(root, spare))  # type: ignore[misc]
        assert isinstance(reports, str), (spare, reports)
        cleaning.check(root)
        if not reports:
            assert spare > 2
            return
        assert "Too many open files" in reports
        assert str(root) in reports
    pytest.fail("no attempt succeeded")


def test_a_flipped_bit_stops_the_cleaning_and_gets_no_new_checksum(cleaning: Cleaning) -> None:
    """P5, F8: the error has file, position and offset. The log can still be used, and is cleaned after the bit is
    restored."""
    chance = random.Random("flips")
    root = cleaning.copy()
    with cleaning.setup.open(root) as opened:
        log = cleaning.setup.log(opened)
        closed = [(segment.path, segment.size) for segment in log.segments[:-1]]
    before = {path: Path(path).read_bytes() for path, _ in closed}
    starts = {path: sorted(batch.position for batch in klog.record.decode(data)) for path, data in before.items()}
    flips = [(path, chance.randrange(size), 1 << chance.randrange(8)) for path, size in closed for _ in range(15)]
    for path, position, bit in flips:
        start = max(at for at in starts[path] if at <= position)
        if position - start in (*range(8), *range(12, 17)):
            continue  # offset, epoch, magic: outside the checksum
        bad = bytes([before[path][position] ^ bit])
        with cleaning.setup.open(root) as opened:
            log = cleaning.setup.log(opened)
            put(path, position, bad)
            with pytest.raises(CorruptBatch) as caught:
                log.compact()
            error = caught.value
            assert (error.path, error.position) == (path, start), (path, position, bit)
            assert error.offset is not None
            assert log.offline is None
            log.append([(b"more", b"")])
            log.truncate_to(cleaning.before.span[1])
            assert Path(path).read_bytes()[position : position + 1] == bad
            assert left_over(root) == []
            put(path, position, before[path][position : position + 1])
    cleaning.check(root)


def with_memory(spare: int, work: Callable[[], object]) -> str:
    """Run work() with a memory limit this much above the memory that the process has. Returns its report."""
    try:
        with memory_limit(spare):
            work()
    except MemoryError as error:
        return f"MemoryError {error}"
    except OSError as error:  # from mmap
        return f"{errno.errorcode[error.errno or 0]} {error}"
    return ""


def test_a_map_larger_than_memory_raises_naming_the_config_key(cleaning: Cleaning) -> None:
    """F22: nothing has changed, and the cleaning succeeds with enough memory."""
    root = cleaning.copy()
    setup = dataclasses.replace(cleaning.setup, broker={"log.cleaner.dedupe.buffer.size": 8 << 30})

    def work() -> str:
        with setup.open(root) as opened:
            log = setup.log(opened)
            reports = with_memory(1 << 30, log.compact)
            assert left_over(root) == []
            log.compact()
            cleaning.check_outcome(content_of(log, cleaning.dirty_end))
        return reports

    reports = in_child(work)
    assert isinstance(reports, str), reports
    assert "log.cleaner.dedupe.buffer.size" in reports
    cleaning.check(root)


LARGE = 40 << 20  # malloc returns blocks above 32 MiB to the kernel
LARGE_SETUP = Setup(
    False,
    {**CONFIG, "segment.bytes": 128 << 20, "max.message.bytes": 64 << 20},
    {"log.cleaner.dedupe.buffer.size": 24 * 1000},
)


def starve(root: Path) -> list[str]:
    """Clean with more and more memory until a cleaning succeeds. Returns the report of each."""
    reports = []
    with LARGE_SETUP.open(root) as opened:
        log = LARGE_SETUP.log(opened)
        for spare in range(8, 408, 40):
            reports.append(with_memory(spare << 20, log.compact))
            assert log.offline is None
            assert [name for name in left_over(root) if not name.endswith(".deleted")] == []
            if not reports[-1]:
                break
        found = {record.key: len(record.value or b"") for record in log.read()}
        assert found == {b"a": 3, b"b": 3, b"large": LARGE}
        log.append([(b"goes", b"on")])
    return reports


def test_no_memory_for_a_large_batch_ends_only_the_cleaning(tmp_path: Path) -> None:
    """F22: the cleanings run in a process of their own, which has no free memory of other tests."""
    with LARGE_SETUP.open(tmp_path) as opened:
        log = LARGE_SETUP.log(opened)
        log.append([(b"a", b"old"), (b"b", b"old"), (b"large", bytes(LARGE))])
        log.append([(b"a", b"new")])
        log.roll()
    script = f"""if True:
        from pathlib import Path
        from tests.cleaner.test_faults import starve
        print(starve(Path({str(tmp_path)!r})))
    """
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).resolve().parents[2], text=True, stdout=subprocess.PIPE
    )
    assert run.returncode == 0
    reports = ast.literal_eval(run.stdout)
    assert len(reports) > 1, reports
    assert reports[-1] == ""
    assert {word.split()[0] for word in reports[:-1]} <= {"MemoryError", "ENOMEM"}, reports


def put(path: str, position: int, data: bytes) -> None:
    """Change bytes of a file in place."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)
