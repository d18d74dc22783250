"""After a load the newest segment's indexes match its .log: Kafka's loader uses them unchecked."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock

T = 1_700_000_000_000
CONFIG = {"index.interval.bytes": 0}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One segment of eight batches, each with an entry in both indexes; closed."""
    directory = tmp_path_factory.mktemp("original") / "t-0"
    with klog.Log.open(directory, config=CONFIG, clock=ManualClock(T)) as log:
        for number in range(8):
            log.append([(b"key", b"value", T + number)] * 2)
    return directory


def entries(path: Path, layout: str) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(layout, path.read_bytes()))


def check(directory: Path) -> None:
    """Only entries of whole batches, the closing time entry, no zeros after them."""
    with klog.Log.open(directory, read_only=True) as log:
        begins, position = [], 0
        for batch in log.read().batches():
            begins.append((batch.last_offset, position))
            position += batch.size
    index, times = directory / f"{0:020d}.index", directory / f"{0:020d}.timeindex"
    assert entries(index, ">II") == begins[1:]
    wanted = [(T + number, offset) for number, (offset, _) in enumerate(begins)]
    assert entries(times, ">qI") == wanted[1:] or (len(wanted) == 1 and entries(times, ">qI") == wanted)


def test_a_torn_tail_is_cut_from_the_indexes_too(original: Path, tmp_path: Path) -> None:
    """Cut at every byte of the last batches, opened as after a clean stop, and closed or left open; the load
    alone repairs the indexes."""
    size = (original / f"{0:020d}.log").stat().st_size
    for cut in range(size // 2, size):
        directory = tmp_path / "t-0"
        shutil.copytree(original, directory)
        with open(directory / f"{0:020d}.log", "r+b") as file:
            file.truncate(cut)
        log = klog.Log.open(directory, config=CONFIG, clean_shutdown=True, clock=ManualClock(T))
        check(directory)
        log.close()
        check(directory)
        shutil.rmtree(directory)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["padded", "cut", "gone", "flipped", "raised"])
def test_wrong_indexes_are_repaired(original: Path, tmp_path: Path, suffix: str, damage: str) -> None:
    directory = tmp_path / "t-0"
    shutil.copytree(original, directory)
    path = directory / f"{0:020d}{suffix}"
    data = path.read_bytes()
    if damage == "padded":
        path.write_bytes(data + bytes(240))
    elif damage == "cut":
        path.write_bytes(data[:-5])
    elif damage == "flipped":
        path.write_bytes(data[:-1] + bytes((data[-1] ^ 4,)))
    elif damage == "raised":  # the key of the last entry: still above the one before
        path.write_bytes(data[:-5] + bytes((data[-5] ^ 8 if suffix == ".timeindex" else data[-5] ^ 16,)) + data[-4:])
    else:
        path.unlink()
    klog.Log.open(directory, config=CONFIG, clean_shutdown=True, clock=ManualClock(T)).close()
    check(directory)


def test_a_closed_segment_has_its_largest_timestamp_in_the_time_index(tmp_path: Path) -> None:
    """I3: also if it is too short for an entry of its own."""
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(T)) as log:
        log.append([(b"k", b"v", T)])
        log.append([(b"k", b"v", T + 9)])
        log.roll()
        log.append([(b"k", b"v", T + 1)])
        assert entries(tmp_path / "t-0" / f"{0:020d}.timeindex", ">qI") == [(T + 9, 1)]
