"""A kernel, a disk or a batch that fails in the middle of a cleaning: the log is readable, and it is said what happened.

Before the swap the log goes on as it was; what the disk says is final takes it offline, and the next load finds the old
log or the new one. tests/cleaner/test_swap.py has the same for operations of Files.
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
from tests.crash.compaction import CHECKPOINT, CONFIG, Cleaning, Way, left_over, look
from tests.support.abandon import abandon
from tests.support.child import in_child
from tests.support.crash_files import CrashFiles
from tests.support.faulty_io import FaultyIo

WAY = Way(False, CONFIG, {})
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
    """Where a sync costs nothing, if there is such a place."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        yield Cleaning(Path(place) / "cleaning", WAY)


def fail_and_check(cleaning: Cleaning, kernel: FaultyIo, call: str, kind: str, nth: int) -> bool:
    """Was there an nth call, which failed?"""
    kernel.heal()
    root = cleaning.copy()
    log = cleaning.way.log(cleaning.way.open(root, files=RealFiles(kernel.table)))
    rule = kernel.rule(call, nth=nth, times=1, **KINDS[kind])
    told: OSError | None = None
    try:
        log.compact()
    except OSError as error:
        told = error
    met = kernel.hits(rule) > 0
    kernel.heal()
    if not met or kind in ("EINTR", "short"):
        assert told is None
    if told is not None:
        assert told.errno == KINDS[kind]["error"]
        assert str(root) in str(told.filename)
        assert (log.offline is not None) == ((call, kind) in FINAL)
    cleaning.check_content(look(log, cleaning.dirty_end))
    if log.offline is None:
        assert [name for name in left_over(root) if not name.endswith(".deleted")] == []
        log.append([(b"key-2", b"newest", None)])
        log.truncate_to(cleaning.before.span[1])
        log.compact()
        cleaning.check_outcome(look(log, cleaning.dirty_end))
        log.close()
    else:
        with pytest.raises(StorageOffline):
            log.append([(b"never", b"")])
        abandon(log)
    cleaning.check(root)
    return met


@pytest.mark.parametrize(("call", "kind"), CASES)
def test_every_call_of_the_kernel_fails(cleaning: Cleaning, call: str, kind: str) -> None:
    """F17, F19, F20, F23: the nth of a cleaning, for n = 1, 2, ... until it goes by untouched."""
    with FaultyIo() as kernel:
        nth = 1
        while fail_and_check(cleaning, kernel, call, kind, nth):
            nth += 1
        assert nth > 1


def test_a_failed_sync_of_what_was_cleaned_is_final_and_no_stop_is_called_clean(tmp_path: Path) -> None:
    """S2, F19: nothing is lost; the directory stays offline until it is opened again, and has no marker."""
    cleaning = Cleaning(tmp_path / "cleaning", Way(True, CONFIG, {}))
    root = cleaning.copy()
    with FaultyIo() as kernel:
        logs = klog.open(root, clock=klog.clock.ManualClock(cleaning.way.at), files=RealFiles(kernel.table))
        log = logs.log("t")
        kernel.rule("fsync", error=errno.EIO, times=1)
        with pytest.raises(OSError, match=r"\.cleaned") as told:
            log.compact()
        assert told.value.errno == errno.EIO
        assert log.offline
        cleaning.check_content(look(log, cleaning.dirty_end))
        with pytest.raises(OSError, match="Input/output"):
            logs.close()
        abandon(logs)
    assert not (root / ".kafka_cleanshutdown").exists()
    cleaning.check(root)


def test_no_room_for_the_checkpoint_leaves_what_was_cleaned(cleaning: Cleaning) -> None:
    """F17: it is told, and the next cleaning begins where this one has."""
    with FaultyIo() as kernel:

        def opened() -> klog.Log:
            kernel.heal()
            return cleaning.way.log(cleaning.way.open(cleaning.copy(), files=RealFiles(kernel.table)))

        with opened() as log:
            writes = kernel.calls("pwrite")
            log.compact()
            writes = kernel.calls("pwrite") - writes
        log = opened()
        root = Path(log.path).parent
        before = (root / CHECKPOINT).read_bytes()
        kernel.rule("pwrite", error=errno.ENOSPC, nth=writes, times=1)
        with pytest.raises(OSError, match="No space") as told:
            log.compact()
        assert CHECKPOINT in told.value.filename
        assert log.offline is None
        assert (root / CHECKPOINT).read_bytes() == before
        cleaning.check_outcome(look(log, cleaning.dirty_end))
        log.append([(b"more", b"")])
        log.truncate_to(cleaning.before.span[1])
        log.close()
    cleaning.check(root)


def test_a_cleaning_needs_no_more_room_than_what_it_leaves(cleaning: Cleaning) -> None:
    """F17: each byte of the cleaned segments is written once, beside the old ones, and none before it is known."""
    files = CrashFiles()
    log = cleaning.way.log(cleaning.way.open(cleaning.copy(), files=files))
    log.compact()
    writes = [step for step in files.log if step.startswith("write ") and ".log.cleaned" in step]
    assert sum(int(step.split("+")[1]) for step in writes) == sum(segment.size for segment in log.segments[:-1]) > 0
    abandon(log)


def test_too_many_open_files_anywhere(cleaning: Cleaning) -> None:
    """F21: the log is as it was and goes on, or it is through; one descriptor more each time."""

    def limited(root: Path, spare: int) -> str:
        log = cleaning.way.log(cleaning.way.open(root))
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        free = set(range(highest + 1)) - {int(name) for name in os.listdir("/proc/self/fd")}
        for _ in free:
            os.open("/dev/null", os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + spare, hard))
        said = ""
        try:
            log.compact()
        except OSError as error:
            said = str(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        assert log.offline is None
        assert [name for name in left_over(root) if not name.endswith(".deleted")] == []
        log.append([(b"more", b"")])
        log.truncate_to(cleaning.before.span[1])
        log.compact()
        cleaning.check_outcome(look(log, cleaning.dirty_end))
        log.close()
        return said

    for spare in range(20):
        root = cleaning.copy()
        said = in_child(lambda root=root, spare=spare: limited(root, spare))  # type: ignore[misc]
        assert isinstance(said, str), (spare, said)
        cleaning.check(root)
        if not said:
            assert spare > 2
            return
        assert "Too many open files" in said
        assert str(root) in said
    pytest.fail("it never got through")


def test_a_flipped_bit_anywhere_stops_it_and_nothing_is_given_a_fresh_checksum(cleaning: Cleaning) -> None:
    """P5, F8: it says which file, byte and offset; the log goes on, and is cleaned once the bit is back."""
    chance = random.Random("flips")
    root = cleaning.copy()
    with cleaning.way.open(root) as opened:
        log = cleaning.way.log(opened)
        closed = [(segment.path, segment.size) for segment in log.segments[:-1]]
    before = {path: Path(path).read_bytes() for path, _ in closed}
    starts = {path: sorted(batch.position for batch in klog.record.decode(data)) for path, data in before.items()}
    flips = [(path, chance.randrange(size), 1 << chance.randrange(8)) for path, size in closed for _ in range(15)]
    for path, position, bit in flips:
        start = max(at for at in starts[path] if at <= position)
        if position - start in (*range(8), *range(12, 17)):
            continue  # offset, epoch, magic: no checksum guards them
        bad = bytes([before[path][position] ^ bit])
        with cleaning.way.open(root) as opened:
            log = cleaning.way.log(opened)
            put(path, position, bad)
            with pytest.raises(CorruptBatch) as told:
                log.compact()
            error = told.value
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
    """What work() says when this process may have so many bytes more than it has."""
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size + spare, hard))
    try:
        work()
    except MemoryError as error:
        return f"MemoryError {error}"
    except OSError as error:  # of a mapping
        return f"{errno.errorcode[error.errno or 0]} {error}"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return ""


def test_a_map_larger_than_memory_says_which_key_to_lower(cleaning: Cleaning) -> None:
    """F22: nothing has happened, and with memory it goes on."""
    root = cleaning.copy()
    way = dataclasses.replace(cleaning.way, broker={"log.cleaner.dedupe.buffer.size": 8 << 30})

    def work() -> str:
        with way.open(root) as opened:
            log = way.log(opened)
            said = with_memory(1 << 30, log.compact)
            assert left_over(root) == []
            log.compact()
            cleaning.check_outcome(look(log, cleaning.dirty_end))
        return said

    said = in_child(work)
    assert isinstance(said, str), said
    assert "log.cleaner.dedupe.buffer.size" in said
    cleaning.check(root)


LARGE = 40 << 20  # malloc keeps nothing for later of what is larger than 32 MiB
LARGE_WAY = Way(
    False,
    {**CONFIG, "segment.bytes": 128 << 20, "max.message.bytes": 64 << 20},
    {"log.cleaner.dedupe.buffer.size": 24 * 1000},
)


def starve(root: Path) -> list[str]:
    """What each cleaning said that had a little more memory than the one before, the last of which went through."""
    said = []
    with LARGE_WAY.open(root) as opened:
        log = LARGE_WAY.log(opened)
        for spare in range(8, 408, 40):
            said.append(with_memory(spare << 20, log.compact))
            assert log.offline is None
            assert [name for name in left_over(root) if not name.endswith(".deleted")] == []
            if not said[-1]:
                break
        found = {record.key: len(record.value or b"") for record in log.read()}
        assert found == {b"a": 3, b"b": 3, b"large": LARGE}
        log.append([(b"goes", b"on")])
    return said


def test_no_memory_for_a_large_batch_ends_a_cleaning_and_nothing_else(tmp_path: Path) -> None:
    """F22: in a process that has nothing left over of others' memory."""
    with LARGE_WAY.open(tmp_path) as opened:
        log = LARGE_WAY.log(opened)
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
    said = ast.literal_eval(run.stdout)
    assert len(said) > 1, said
    assert said[-1] == ""
    assert {word.split()[0] for word in said[:-1]} <= {"MemoryError", "ENOMEM"}, said


def put(path: str, position: int, data: bytes) -> None:
    """Change bytes of a file in place."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)
