"""Very many segments with few descriptors and maps: no file of an unused segment is open."""

from __future__ import annotations

import bisect
import json
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import klog
from bench.many_segments import write_segments
from tests.support.frames import frames_of
from tests.support.syscalls import count_syscalls

ROOT = Path(__file__).resolve().parents[2]

# In a separate process: the limit is permanent, and only its own descriptors are counted.
CHILD = """
import json, os, random, resource, sys, tracemalloc
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import klog
klog.Log  # its modules are no part of what is measured
path, count, writing = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "writing"

def held():
    return len(os.listdir("/proc/self/fd")), sum(1 for _ in open("/proc/self/maps"))

before, measured = held(), {}
tracemalloc.start()
log = klog.Log.open(path, config={"retention.ms": -1}, clean_shutdown=True, read_only=not writing)
measured["bytes_a_segment"] = tracemalloc.get_traced_memory()[0] / count
tracemalloc.stop()
measured["opened"] = [now - then for now, then in zip(held(), before)]
assert (len(log.segments), log.log_start_offset, log.log_end_offset) == (count, 0, count)
step = max(1, count // 20_000)
for offset in range(0, count, step):
    data = log.fetch(offset, 1 << 20)
    assert int.from_bytes(data.memory()[:8]) == offset
assert sum(1 for _ in log.read(stop=min(count, 20_000))) == min(count, 20_000)
assert all(s.max_timestamp > 0 for s in log.segments[:: step * 4])
measured["read"] = [now - then for now, then in zip(held(), before)]
if writing:
    assert log.append([(b"k", b"v")]).first_offset == count
    log.roll()
    log.append([(b"k", b"v")])
    assert len(log.segments) == count + 2, "the first was old, the second rolled"
log.close()
print(json.dumps(measured))
"""


def opened_and_read(tmp_path: Path, count: int, mode: str) -> dict[str, Any]:
    write_segments(tmp_path / "t-0", count)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "t-0"), str(count), mode],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def check_measured(measured: dict[str, Any]) -> None:
    assert measured["opened"][0] <= 4
    assert measured["opened"][1] <= 100
    assert measured["read"][0] <= 80, "a quarter of 256 descriptors, and some"
    assert measured["read"][1] <= 2 * 2048 + 300, "two maps for an index, and what reading loaded"
    assert measured["bytes_a_segment"] < 500


@pytest.mark.parametrize("mode", ["writing", "reading"])
def test_three_thousand_segments_under_256_descriptors(tmp_path: Path, mode: str) -> None:
    check_measured(opened_and_read(tmp_path, 3000, mode))


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["writing", "reading"])
def test_a_hundred_thousand_segments_under_256_descriptors(tmp_path: Path, mode: str) -> None:
    check_measured(opened_and_read(tmp_path, 100_000, mode))


# Every segment is opened once, and then fetched, one after the other. Without `indexes`, only one index stays open.
FETCH = """
import gc, os, resource, sys
path, count, fetches, mode, allowed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import klog
from klog.disk import HandleCache
gc.disable()
log = klog.Log.open(path, config={"retention.ms": -1}, clean_shutdown=True, read_only="reading" in mode)
if "indexes" not in mode:
    log.segments[0].segment_dir.handles.indexes = HandleCache(indexes=1).indexes
for offset in [*range(count), *range(fetches)]:
    assert log.fetch(offset % count, 1).position.segment_base_offset == offset % count
os._exit(0)
"""
FETCHES = 1600


def calls_of_a_fetch(directory: Path, count: int, mode: str, allowed: int) -> float:
    few, many = (
        count_syscalls(FETCH, str(directory), str(count), str(fetches), mode, str(allowed)) for fetches in (0, FETCHES)
    )
    return (many - few) / FETCHES


@pytest.mark.parametrize("mode", ["writing, indexes", "reading, indexes"])
def test_a_fetch_over_a_thousand_segments_has_the_calls_of_one_over_ten(tmp_path: Path, mode: str) -> None:
    """One read, and one more in 16 fetches to estimate what comes from the page cache."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= hard < 8192:
        pytest.skip("needs: a hard limit of 8,192 descriptors")
    calls = {}
    for count in (10, 1000):
        write_segments(tmp_path / f"t-{count}", count)
        calls[count] = calls_of_a_fetch(tmp_path / f"t-{count}", count, mode, 8192)
    assert calls[10] <= (3.1 if mode.startswith("reading") else 1.1)  # a reader checks twice for a change
    assert calls[1000] == pytest.approx(calls[10], abs=0.05)


@pytest.mark.parametrize(
    ("mode", "most"),
    [
        ("writing, indexes", 4),  # the read; of the file: open, fstat, and close of the one evicted
        ("reading, indexes", 6),  # and two checks for a change
        ("writing", 11),  # of each small index: open, fstat, pread if it is not empty, close
        ("reading", 14),  # and stat: is the .log still the same file (S4)?
    ],
)
def test_the_calls_of_a_fetch_that_finds_nothing_open(tmp_path: Path, mode: str, most: int) -> None:
    """Of 64 descriptors 16 are used, so each fetch opens its file."""
    write_segments(tmp_path / "t-0", 100)
    assert most - 0.5 < calls_of_a_fetch(tmp_path / "t-0", 100, mode, 64) <= most + 0.1


@pytest.mark.parametrize("largest", [1, 3, 200])
def test_the_segment_of_an_offset_is_found_where_segments_are_uneven(tmp_path: Path, largest: int) -> None:
    """By the fast path, which enters no frame but its own."""
    chance = random.Random(largest)
    with klog.Log.open(tmp_path / "t-0", config={"retention.ms": -1}) as log:
        for number in range(60):
            log.append([(None, b"v", 1)] * (1 if number % 7 else chance.randrange(1, largest + 1)))
            log.roll()
        log.append([(None, b"v", 1)])
        bases = [segment.base_offset for segment in log.segments]
        for offset in range(log.log_end_offset):
            log.fetch(offset)
        for offset in chance.sample(range(log.log_end_offset), log.log_end_offset):
            found = log.fetch(offset)
            assert found.position.segment_base_offset == bases[bisect.bisect(bases, offset) - 1]
            assert sum(frames_of(lambda offset=offset: log.fetch(offset)).values()) <= 1
