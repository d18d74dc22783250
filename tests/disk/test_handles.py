"""HandleCache: few handles stay open, and none is closed under its user."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from klog.disk import HandleCache, RealFiles


class Handle:
    alive = 0

    def __init__(self) -> None:
        type(self).alive += 1

    def __del__(self) -> None:
        type(self).alive -= 1


def test_the_same_key_gives_the_same_handle() -> None:
    cache = HandleCache()
    first = cache.get("a", Handle)
    assert cache.get("a", Handle) is first
    assert cache.get("b", Handle) is not first


def test_at_most_limit_handles_are_held() -> None:
    cache = HandleCache(3)
    for number in range(10):
        cache.get(number, Handle)
    assert Handle.alive == 3
    del cache
    assert Handle.alive == 0


def test_the_least_recently_used_goes_first() -> None:
    cache = HandleCache(2)
    opened: list[str] = []

    def opener(key: str) -> object:
        opened.append(key)
        return Handle()

    for key in "abaca":
        cache.get(key, lambda key=key: opener(key))
    assert opened == ["a", "b", "c"]  # c pushed b out, since a had been asked for again
    cache.get("b", lambda: opener("b"))
    assert opened == ["a", "b", "c", "b"]


def test_a_handle_in_use_outlives_its_place_in_the_cache(tmp_path: Path) -> None:
    files = RealFiles()
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode())
    cache = HandleCache(1)
    first = cache.get("a", lambda: files.open(str(tmp_path / "a")))
    fd = first.fileno()
    for name in "bc":
        cache.get(name, lambda name=name: files.open(str(tmp_path / name)))
    assert bytes(first.read(0, 1)) == b"a"
    del first
    try:
        assert os.readlink(f"/proc/self/fd/{fd}") != str(tmp_path / "a")
    except FileNotFoundError:
        pass


def test_dropping_forgets_one_key() -> None:
    cache = HandleCache()
    first = cache.get("a", Handle)
    kept = cache.get("b", Handle)
    cache.drop("a")
    cache.drop("never there")
    assert cache.get("a", Handle) is not first
    assert cache.get("b", Handle) is kept


def test_threads_that_race_for_one_key_get_one_handle() -> None:
    cache = HandleCache()
    barrier = threading.Barrier(4)
    got: list[object] = []

    def opener() -> object:
        barrier.wait(timeout=10)  # everybody has missed before anybody has opened
        return Handle()

    threads = [threading.Thread(target=lambda: got.append(cache.get("a", opener))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    assert len(set(map(id, got))) == 1
