"""Sustained appends: a log to which more is appended than the disk can write at the same time, by each write policy.

    sustained append    1 MiB batches into a new log, as a follower takes them; the peer writes the same bytes in C,
                        with the same preallocation and the same write-behind window, and checks nothing
    sustained durable   16 KiB batches, each on disk before append returns, by klog.io.preallocate: blocks in
                        steps (the default, which is the peer), written zeros, nothing

The window and the file are small: the contest shows the cost of a policy, not its gain when gigabytes are dirty.
Everything is on disk before the next measurement begins.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from bench.append_contests import NewLog
from bench.contest import Contest, Contestant, Factory
from bench.native import compiled

_WINDOW, _FILE_BATCHES = 32 << 20, 256
_GOAL = 0.9
_POLICIES: dict[str, dict[str, Any]] = {
    "buffered": {},
    "dontcache": {"klog.io.write": "dontcache"},
    "direct": {"klog.io.write": "direct"},
}


def _sustained(tiny: bool, folder: Path) -> Contest:
    window = 64 << 10 if tiny else _WINDOW
    step = min(window // 8, 8 << 20)
    new = NewLog(folder, 1 << 20, 4 if tiny else _FILE_BATCHES, None, tiny=tiny, begun=True)
    write = compiled("sustained.c").sustained_run
    write.argtypes = [ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_int64] * 4]
    plain, one = folder / "plain", b"".join(batch for batch, _ in new.batches)

    def clear() -> None:
        new.close()
        if plain.exists():
            with plain.open("r+b") as file:
                os.fdatasync(file.fileno())
            plain.unlink()

    def policy(name: str, config: dict[str, Any], goal: float | None = None) -> Contestant:
        def before() -> None:
            clear()
            new.fresh(config)

        return Contestant(f"klog append_batches, {name}", new.follow, before=before, goal=goal)

    def loop(window: int) -> None:
        status = write(os.fsencode(plain), one, len(one), new.repeats, window, step)
        assert status == 0, os.strerror(-status)

    windowed = {"klog.io.write.behind.bytes": window}

    def check() -> None:
        for config in (windowed, *_POLICIES.values()):
            new.check(new.follow, config)
        clear()
        loop(window)
        assert plain.read_bytes() == one * new.repeats

    return Contest(
        "sustained append",
        new.count,
        new.bytes,
        (
            policy("window", windowed, _GOAL),
            *(policy(name, config) for name, config in _POLICIES.items()),
            Contestant("C: pwrite, no window", lambda: loop(0), before=clear),
            Contestant("C: pwrite, window", lambda: loop(window), before=clear),
        ),
        check,
        clear,
    )


def _durable(tiny: bool, folder: Path) -> Contest:
    new = NewLog(folder, 16 << 10, 1 if tiny else 8, None, tiny=tiny, begun=True)

    def preallocating(how: str) -> Contestant:
        def before() -> None:
            new.fresh({"klog.io.preallocate": how, "klog.io.preallocate.step.bytes": 16 << 20}, "sync")

        return Contestant(f"klog append_batches, {how}", new.follow, before=before)

    def check() -> None:
        for how in ("zeros", "none", "steps"):
            new.check(new.follow, {"klog.io.preallocate": how})

    contestants = tuple(preallocating(how) for how in ("zeros", "none", "steps"))
    return Contest("sustained durable", new.count, new.bytes, contestants, check, new.close)


FACTORIES: dict[str, Factory] = {"sustained append": _sustained, "sustained durable": _durable}
