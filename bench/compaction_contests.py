"""Compaction: the map of keys, and both passes over a log.

    keys in the map     2 million keys of 20 bytes, 10% of them different, put and then looked up, against the map that
                        Kafka's cleaner has (MD5), in C like klog's: 4 times its rate is the goal
    compact             both passes over a log of 100-byte records in the page cache, 10% of its keys different, nothing
                        written: 0.07 of a copy of its bytes in memory is the goal

A dry run is what is raced, so that each turn finds the same log. What it leaves out is to write a tenth of the bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory
from bench.native import compiled

_KLOG, _MD5 = 0, 1  # keymaps.c
_KEY_BYTES = 20


def _keys(count: int, different: int) -> list[bytes]:
    chance = random.Random(count)
    return [b"key-%016d" % chance.randrange(different) for _ in range(count)]


def _map(tiny: bool, folder: Path) -> Contest:
    library = compiled("keymaps.c", "keymap.c")
    library.keymaps_run.restype = ctypes.c_int64
    library.keymaps_run.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]
    count = 1000 if tiny else 2_000_000
    keys = _keys(count, count // 10)
    joined, slots = b"".join(keys), count // 4

    def run(who: int) -> int:
        return int(library.keymaps_run(who, joined, count, _KEY_BYTES, slots))

    def check() -> None:
        last = {key: number for number, key in enumerate(keys)}
        assert run(_KLOG) == run(_MD5) == sum(last[key] for key in keys)
        made = ctypes.create_string_buffer(16)
        for size in (0, 20, 55, 56, 64, 150):
            library.keymaps_md5(joined, ctypes.c_size_t(size), made)
            assert made.raw == hashlib.md5(joined[:size], usedforsecurity=False).digest()

    return Contest(
        "keys in the map",
        2 * count,
        0,
        (
            Contestant("keyed hash, ordered probing", lambda: run(_KLOG), goal=4.0),
            Contestant("MD5 map in C, as Kafka's", lambda: run(_MD5)),
        ),
        check,
    )


def _both_passes(tiny: bool, folder: Path) -> Contest:
    count = 1000 if tiny else 2_000_000
    keys, value = _keys(count, count // 10), b"v" * 80
    config = {"cleanup.policy": "compact", "segment.bytes": 1 << 30}
    log = klog.Log.open(folder / "compact-0", config=config)
    for start in range(0, count, 100_000):
        log.append([(key, value, 1_700_000_000_000 + start) for key in keys[start : start + 100_000]])
    log.roll()
    size = log.size
    source, target = bytearray(b"x" * size), bytearray(size)

    def check() -> None:
        said = log.compact(dry_run=True)
        assert (said.records_before, said.records_after) == (count, len(set(keys)))

    def copy() -> None:
        target[:] = source

    return Contest(
        "compact 100B",
        count,
        size,
        (Contestant("Log.compact", lambda: log.compact(dry_run=True, top=0), goal=0.07), Contestant("memcpy", copy)),
        check,
        log.close,
    )


FACTORIES: dict[str, Factory] = {
    "keys in the map": _map,
    "compact 100B": _both_passes,
}
