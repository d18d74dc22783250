"""Handles and HandleCache: few handles stay open, none is closed while in use, and the process's limits are kept."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from klog.disk import HandleCache, Handles, RealFiles, Reusable
from klog.disk._handles import FILES, INDEXES, Holder, share
from tests.support.patience import PATIENCE


class Handle(Reusable):
    alive = 0

    def __init__(self) -> None:
        type(self).alive += 1

    def __del__(self) -> None:
        type(self).alive -= 1


class Key(Holder):
    def __init__(self, name: int = 0) -> None:
        self.name = name


class Reference:
    """The rule in Python: a list whose first element the hand is at."""

    def __init__(self, limit: int) -> None:
        self.limit, self.ring = limit, list[list[Any]]()  # [key, weight, used]

    def find(self, key: int) -> bool:
        for entry in self.ring:
            if entry[0] == key:
                entry[2] = True
                return True
        return False

    def keep(self, key: int, weight: int) -> None:
        self.ring.append([key, weight, False])
        while sum(entry[1] for entry in self.ring) > self.limit and len(self.ring) > 1:
            while self.ring[0][2]:
                self.ring.append([*self.ring.pop(0)[:2], False])
            self.ring.pop(0)

    def drop(self, key: int) -> None:
        self.ring = [entry for entry in self.ring if entry[0] != key]


@pytest.mark.parametrize("of_files", [True, False])
def test_a_value_of_a_deleted_cache_can_be_dropped(of_files: bool) -> None:
    cache, other, key = Handles(of_files, 8), Handles(of_files, 8), Key()
    value = cache.keep(key, Handle())
    del cache
    assert other.find(key) is value
    other.drop(key)
    assert other.find(key) is None and len(other) == 0
    assert other.keep(key, value) is value and len(other) == 1


@pytest.mark.parametrize("of_files", [True, False])
def test_a_value_is_found_until_it_is_dropped(of_files: bool) -> None:
    cache, first, second = Handles(of_files, 8), Handle(), Handle()
    a, b = Key(), Key()
    assert cache.find(a) is None
    assert cache.keep(a, first) is first
    assert cache.keep(b, second) is second
    assert cache.find(a) is first
    cache.drop(a)
    cache.drop(Key())
    assert cache.find(a) is None
    assert cache.find(b) is second
    assert len(cache) == 1
    cache.clear()
    assert len(cache) == 0
    assert cache.find(b) is None


def test_a_file_and_an_index_of_one_holder_are_apart() -> None:
    files, indexes, key = Handles(True, 8), Handles(False, 8), Key()
    file, index = files.keep(key, Handle()), indexes.keep(key, Handle())
    assert (files.find(key), indexes.find(key)) == (file, index)
    files.drop(key)
    assert (files.find(key), indexes.find(key)) == (None, index)


def test_at_most_limit_values_are_held() -> None:
    cache, keys = Handles(True, 3), [Key() for _ in range(10)]
    for key in keys:
        cache.keep(key, Handle())
    assert Handle.alive == len(cache) == 3
    del cache
    assert [key for key in keys if Handles(True, 1).find(key)], "those that are held stay with their holder"
    del keys, key
    assert Handle.alive == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_one_that_was_used_is_evicted_after_those_that_were_not(limit: int) -> None:
    chance, cache, expected = random.Random(limit), Handles(False, limit), Reference(limit)
    keys = [Key(number) for number in range(10)]
    for _ in range(3000):
        key = keys[chance.randrange(len(keys))]
        if chance.random() < 0.1:
            cache.drop(key)
            expected.drop(key.name)
            continue
        if chance.random() < 0.02:  # it is removed with its holder
            expected.drop(key.name)
            keys[key.name] = key = Key(key.name)
        found = cache.find(key)
        assert (found is not None) == expected.find(key.name)
        if found is None:
            weight = chance.randrange(1, 4)
            cache.keep(key, Handle(), weight)
            expected.keep(key.name, weight)
        assert len(cache) == len(expected.ring)


def test_a_limit_below_one_raises() -> None:
    for limit in (0, -2):
        with pytest.raises(ValueError, match=f"limit={limit}"):
            Handles(True, limit)


def test_a_value_is_held_for_one_holder() -> None:
    cache, value = Handles(True, 8), Handle()
    cache.keep(Key(), value)  # this holder is gone again, the value is not
    key = Key()
    cache.keep(key, value)
    with pytest.raises(ValueError, match="held for another segment"):
        cache.keep(Key(), value)


def test_of_two_racing_threads_the_first_value_is_kept() -> None:
    cache, key, barrier = Handles(True, 8), Key(), threading.Barrier(4)
    got: list[object] = []

    def race() -> None:
        handle = cache.find(key) or Handle()
        barrier.wait(PATIENCE)  # every thread has missed before any adds
        got.append(cache.keep(key, handle))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    assert len(set(map(id, got))) == 1


def test_what_is_held_goes_with_its_holder() -> None:
    """H2: also if the garbage collector frees the holder, and the value still exists after that."""
    cache = Handles(True, 8)
    held = []
    for _ in range(3):
        key = Key()
        key.itself = key  # type: ignore[attr-defined]
        held.append(cache.keep(key, Handle()))
    del key
    gc.collect()
    assert len(cache) == 0
    assert Handle.alive == 3
    held.clear()
    assert Handle.alive == 0


def test_a_handle_in_use_survives_eviction(tmp_path: Path) -> None:
    files, keys = RealFiles(), [Key() for _ in "abc"]
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    cache = HandleCache(files=1)
    first = cache.files.keep(keys[0], files.open(str(tmp_path / "a")))
    fd = first.fileno()
    for name, key in zip("bc", keys[1:], strict=True):
        cache.files.keep(key, files.open(str(tmp_path / name)))
    assert cache.files.find(keys[0]) is None
    assert bytes(first.read(0, 1)) == b"a"
    del first
    try:
        assert os.readlink(f"/proc/self/fd/{fd}") != str(tmp_path / "a")
    except FileNotFoundError:
        pass


@pytest.mark.parametrize(
    ("allowed", "held"),
    [(20, 16), (256, 64), (1024, 256), (8191, 2047), (8192, 4096), (20_000, 15_000), (1 << 20, 16_384)],
)
def test_a_share_of_the_descriptors_is_used(allowed: int, held: int) -> None:
    assert share(allowed) == held


def test_the_caches_of_a_process_share_its_limits() -> None:
    """Otherwise each of three logs with many segments would use a share of its own."""
    assert HandleCache().files is HandleCache().files is FILES
    assert HandleCache().indexes is INDEXES
    assert HandleCache(files=5).files.limit == 5


# Limits and descriptors are those of a process, so each of these has one of its own. It prints what it has found.
HOLD = """
import json, os, resource, sys
from klog.disk import RealFiles
from klog.disk._handles import FILES, Holder
path, files, holders = sys.argv[1], RealFiles(), []

def allow(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def hold(count):
    for _ in range(count):
        holders.append(Holder())
        file = files.open(path)
        FILES.keep(holders[-1], file)
    return len(FILES)
"""


def measured(tmp_path: Path, script: str) -> Any:
    (tmp_path / "file").write_bytes(b"some bytes")
    done = subprocess.run(
        [sys.executable, "-c", HOLD + script, str(tmp_path / "file")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_a_limit_that_changes_later_is_followed(tmp_path: Path) -> None:
    """As soon as 64 more files were opened."""
    script = "allow(1000); a = hold(600); allow(600); b = hold(200); allow(400); c = hold(200)\nprint([a, b, c])"
    assert measured(tmp_path, script) == [250, 150, 100]


def test_held_files_are_closed_when_the_process_has_no_descriptor_left(tmp_path: Path) -> None:
    """H4: also below a limit that was set lower than the descriptors that are open."""
    script = """
allow(400); hold(90)
others = []
try:
    while True:
        others.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    held = len(FILES)
one = files.open(path)
print(json.dumps([held, len(FILES), bytes(one.read(0, 4)).decode()]))
"""
    assert measured(tmp_path, script) == [90, 0, "some"]
