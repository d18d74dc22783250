"""Very many segments, few descriptors and maps: nothing of an unused segment is open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.many_segments import write_segments

ROOT = Path(__file__).resolve().parents[2]

# In a separate process: the limit is permanent, and only its own descriptors are counted.
CHILD = """
import json, os, random, resource, sys, tracemalloc
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import klog
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


def judge(measured: dict[str, Any]) -> None:
    assert measured["opened"][0] <= 4
    assert measured["opened"][1] <= 100
    assert measured["read"][0] <= 80, "a quarter of 256 descriptors, and some"
    assert measured["read"][1] <= 2 * 2048 + 300, "two maps for an index, and what reading loaded"
    assert measured["bytes_a_segment"] < 500


@pytest.mark.parametrize("mode", ["writing", "reading"])
def test_three_thousand_segments_under_256_descriptors(tmp_path: Path, mode: str) -> None:
    judge(opened_and_read(tmp_path, 3000, mode))


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["writing", "reading"])
def test_a_hundred_thousand_segments_under_256_descriptors(tmp_path: Path, mode: str) -> None:
    judge(opened_and_read(tmp_path, 100_000, mode))
