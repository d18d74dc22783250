"""Every CRC-32C kernel that this processor has, in C, against a single chain of its crc32 instruction.

The data stays in the L1 cache. Each call continues from the checksum of the call before, so that a call is measured
from its first byte to its result: independent calls would overlap at their ends. All kernels, the dispatched one too,
must return the same checksum before any is timed. Kernels that the processor does not support are skipped. Without the
crc32 instruction (x86-64 only) the contest has no peer and is left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import google_crc32c

from bench.contest import Contest, Contestant, Factory, Unavailable
from bench.native import compiled
from bench.workloads import noise

_DISPATCHED, _ONE_STREAM = -1, -2  # checksums.c
_DATA_BYTES = 16 << 10
_TIMES = 64  # passes over the data in one call from Python

# The goal of a kernel, by its name and the size of a piece.
_GOALS = {
    ("sse4.2", 1 << 14): 2.5,
    ("vpclmul-256", 1 << 10): 2.5,
    ("vpclmul-512", 1 << 10): 4.5,
    ("vpclmul-512", 1 << 14): 7,
}


def kernels(library: ctypes.CDLL) -> dict[str, int]:
    """Return name and number of each kernel that this processor supports, the slowest first."""
    library.checksum_name.restype = ctypes.c_char_p
    found, number = {}, 0
    while (name := library.checksum_name(number)) is not None:
        if library.checksum_there(number):
            found[name.decode()] = number
        number += 1
    return found


def _contest(size: int, name: str) -> Contest:
    library = compiled("checksums.c", "crc32c.c")
    if not library.checksum_there(_ONE_STREAM):
        raise Unavailable("the crc32 instruction (x86-64 with SSE4.2)")
    library.checksum_run.restype = ctypes.c_uint32
    library.checksum_run.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    data = noise(_DATA_BYTES)
    there = {**kernels(library), "the dispatched one": _DISPATCHED}

    def runner(number: int) -> Callable[[], int]:
        return lambda: library.checksum_run(number, data, len(data), size, _TIMES)

    def check() -> None:
        expected = google_crc32c.value(data * _TIMES)
        for kernel, number in (*there.items(), ("one stream", _ONE_STREAM)):
            assert runner(number)() == expected, kernel
            assert library.checksum_run(number, b"123456789", 9, 9, 1) == 0xE3069283, kernel

    return Contest(
        f"crc32c kernels {name}",
        0,
        len(data) * _TIMES,
        (
            *(
                Contestant(f"csrc, {kernel}", runner(number), goal=_GOALS.get((kernel, size)))
                for kernel, number in there.items()
            ),
            Contestant("one crc32q stream", runner(_ONE_STREAM)),
        ),
        check,
    )


FACTORIES: dict[str, Factory] = {
    "crc32c kernels 1KiB": lambda tiny, folder: _contest(1 << 10, "1KiB"),
    "crc32c kernels 16KiB": lambda tiny, folder: _contest(1 << 14, "16KiB"),
}
