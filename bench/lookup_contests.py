"""The search for an offset in an index, in C.

    lookup in C         one search in a cached index of 1 or 10 MiB; the peer is Kafka's algorithm in C: the goal is 0.6
                        of its time; log_contests.py has the lookup through Python

The targets are random and the same for each contestant. Entries are 16 KiB apart and hold about 139 records each,
as batches of 100-byte values do.
"""

from __future__ import annotations

import array
import ctypes
import random
import struct

from bench.contest import Contest, Contestant, Factory
from bench.native import compiled

_KLOG, _KAFKA = 0, 1  # lookups.c
_TARGETS = 4096


def entries_of(count: int) -> tuple[bytes, int]:
    """Return an offset index of `count` entries, and its highest relative offset."""
    chance, offset, position = random.Random(count), 0, 0
    out = bytearray()
    for _ in range(count):
        offset += chance.randrange(130, 149)
        position += 1_000
        out += struct.pack(">ii", offset, position)
    return bytes(out), offset


def _in_c(mib: int, tiny: bool) -> Contest:
    library = compiled("lookups.c", "index.c")
    library.lookup_run.restype = ctypes.c_int64
    library.lookup_run.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32]
    entries, highest = entries_of(64 if tiny else mib << 17)
    chance = random.Random(mib)
    targets = array.array("i", (chance.randrange(highest + 1) for _ in range(16 if tiny else _TARGETS)))
    address, count = targets.buffer_info()

    def search(which: int) -> int:
        return int(library.lookup_run(which, entries, len(entries) // 8, address, count))

    def check() -> None:
        keys = [offset for (offset, _) in struct.iter_unpack(">ii", entries)]
        slots = [sum(key <= target for key in keys) - 1 for target in targets[:4]]
        assert [library.lookup_run(_KLOG, entries, len(keys), address + 4 * i, 1) for i in range(4)] == slots
        assert search(_KLOG) == search(_KAFKA)

    return Contest(
        f"lookup in C, {mib} MiB",
        count,
        0,
        (
            Contestant("csrc, guess and gallop", lambda: search(_KLOG), goal=1.67),
            Contestant("binary search, as Kafka's", lambda: search(_KAFKA)),
        ),
        check,
    )


FACTORIES: dict[str, Factory] = {
    "lookup in C, 1 MiB": lambda tiny, folder: _in_c(1, tiny),
    "lookup in C, 10 MiB": lambda tiny, folder: _in_c(10, tiny),
}
