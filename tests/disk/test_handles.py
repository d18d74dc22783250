"""Lru and HandleCache: few handles stay open, and none is closed while in use."""

from __future__ import annotations

import os
import random
import threading
from collections import OrderedDict
from pathlib import Path

import pytest

from klog.disk import HandleCache, RealFiles
from klog.disk._lru import Lru
from tests.support.patience import PATIENCE


class Handle:
    alive = 0

    def __init__(self) -> None:
        type(self).alive += 1

    def __del__(self) -> None:
        type(self).alive -= 1


def test_an_entry_is_found_until_it_is_dropped() -> None:
    cache, first, second = Lru(8), Handle(), Handle()
    assert cache.find("a") is None
    assert cache.keep("a", first) is first
    assert cache.keep("b", second) is second
    assert cache.find("a") is first
    cache.drop("a")
    cache.drop("never there")
    assert cache.find("a") is None
    assert cache.find("b") is second
    assert len(cache) == 1


def test_at_most_limit_handles_are_held() -> None:
    cache = Lru(3)
    for number in range(10):
        cache.keep(number, Handle())
    assert Handle.alive == len(cache) == 3
    del cache
    assert Handle.alive == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_the_least_recently_used_is_evicted_first(limit: int) -> None:
    chance, cache, expected = random.Random(limit), Lru(limit), OrderedDict[int, object]()
    for _ in range(2000):
        key = chance.randrange(10)
        if chance.random() < 0.1:
            cache.drop(key)
            expected.pop(key, None)
            continue
        found = cache.find(key)
        assert found is expected.get(key)
        if found is None:
            expected[key] = cache.keep(key, object())
            if len(expected) > limit:
                expected.popitem(last=False)
        expected.move_to_end(key)
    assert {key: cache.find(key) for key in range(10) if cache.find(key)} == dict(expected)


def test_a_limit_below_one_raises() -> None:
    with pytest.raises(ValueError, match="limit=0"):
        Lru(0)


def test_of_two_racing_threads_the_first_entry_is_kept() -> None:
    cache, barrier = Lru(8), threading.Barrier(4)
    got: list[object] = []

    def race() -> None:
        handle = cache.find("a") or Handle()
        barrier.wait(PATIENCE)  # every thread has missed before any adds
        got.append(cache.keep("a", handle))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    assert len(set(map(id, got))) == 1


def test_a_handle_in_use_survives_eviction(tmp_path: Path) -> None:
    files = RealFiles()
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    cache = HandleCache(files=1)
    first = cache.files.keep("a", files.open(str(tmp_path / "a")))
    fd = first.fileno()
    for name in "bc":
        cache.files.keep(name, files.open(str(tmp_path / name)))
    assert cache.files.find("a") is None
    assert bytes(first.read(0, 1)) == b"a"
    del first
    try:
        assert os.readlink(f"/proc/self/fd/{fd}") != str(tmp_path / "a")
    except FileNotFoundError:
        pass


def test_the_limit_follows_rlimit_nofile(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, held in ((256, 64), (20, 16), (1 << 20, 512), (-1, 512)):
        monkeypatch.setattr("resource.getrlimit", lambda _, allowed=allowed: (allowed, allowed))
        assert HandleCache().files.limit == held
