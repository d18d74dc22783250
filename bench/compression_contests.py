"""klog.codec against the codecs' own C code: JSON events in payloads of 16 KiB and of 1 MiB.

klog.codec.compress and decompress are called as klog.record calls them, checks and bounds included, and return a new
buffer each time. The peer (bench/codecs.c) is the library alone in a C loop over the same payloads: it reuses the
context and one output buffer, and checks nothing. The difference is the cost of klog's checks, of the library version
in its wheels, and of Python's buffers; a wheel may have a newer library than the system, and then klog may be faster.

If this machine does not have a library, its contests are left out by name; tools/install_tools.sh names the packages.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence

from bench.contest import Contest, Contestant, Factory, Unavailable
from bench.native import compiled
from klog.codec.compress import CODECS, compress, decompress, decompressed_bytes_max

KIB, MIB = 1 << 10, 1 << 20
LIBRARIES = {
    "lz4": ("liblz4.so.1", "liblz4"),
    "zstd": ("libzstd.so.1", "libzstd, level 3"),
    "gzip": ("libz.so.1", "zlib, level 6"),
    "snappy": ("libsnappy.so.1", "snappy"),
}
_SIZES = {"16KiB": 16 * KIB, "1MiB": MIB}
_PLAIN_BYTES = 2 * MIB  # decompressed bytes of all payloads of a contest


def events(size: int, seed: int) -> bytes:
    """Return lines of JSON of about 290 bytes, cut at `size`: like an application's log."""
    chance = random.Random(seed)
    made: list[str] = []
    total, moment = 0, 1_357_035_300_000
    while total < size:
        moment += chance.randrange(2_000)
        line = (
            f'{{"id":"{chance.getrandbits(64):016x}","time":{moment},"type":"{chance.choice(_TYPES)}",'
            f'"flight":{{"carrier":"{chance.choice(_CARRIERS)}","number":{chance.randrange(9_000)},'
            f'"tail":"N{chance.randrange(90_000)}","origin":"{chance.choice(_PORTS)}","dest":"{chance.choice(_PORTS)}"}},'
            f'"delay":{chance.randrange(-20, 240)},"at":[{chance.uniform(24, 49):.4f},{chance.uniform(-124, -66):.4f}],'
            f'"session":"{chance.getrandbits(96):024x}","trace":"{chance.getrandbits(80):020x}",'
            f'"tags":["{chance.choice(_TAGS)}","{chance.choice(_TAGS)}"],"gate":"{chance.choice("ABCD")}{chance.randrange(60)}"}}'
        )
        made.append(line)
        total += len(line) + 1
    return "\n".join(made).encode()[:size]


_TYPES = ("departure", "arrival", "boarding", "pushback", "taxi", "cancelled", "diverted")
_CARRIERS = ("AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN", "9E")
_PORTS = ("JFK", "LGA", "EWR", "ATL", "BOS", "DEN", "LAX", "MCO", "MIA", "ORD", "SFO", "SEA", "IAH", "FLL")
_TAGS = ("domestic", "weather", "crew", "late-aircraft", "security", "on-time", "codeshare")


class _Bytes(ctypes.Structure):
    _fields_ = (("at", ctypes.c_char_p), ("size", ctypes.c_size_t))


class Library:
    """The library of one codec. One call handles a list of inputs."""

    def __init__(self, codec: str, capacity: int) -> None:
        name, self.title = LIBRARIES[codec]
        loaded = compiled("codecs.c")
        self._number = loaded.codec_open(codec.encode(), name.encode())
        if self._number < 0:
            raise Unavailable(name)
        self._run = loaded.codec_run
        self._run.restype = ctypes.c_size_t
        self._run.argtypes = [
            *(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int),
            *(ctypes.c_void_p, ctypes.c_size_t),
        ]
        self._out = ctypes.create_string_buffer(capacity)

    def run(self, undo: bool, inputs: ctypes.Array[_Bytes]) -> int:
        """Compress all inputs, or decompress them (undo). Returns the size of the last result."""
        made: int = self._run(self._number, undo, inputs, len(inputs), self._out, len(self._out))
        assert made, f"{self.title} failed"
        return made

    def one(self, undo: bool, data: bytes) -> bytes:
        made = self.run(undo, inputs([data]))
        return self._out.raw[:made]


def inputs(payloads: Sequence[bytes]) -> ctypes.Array[_Bytes]:
    """Return an array of payloads for C. The caller must keep the payloads alive."""
    return (_Bytes * len(payloads))(*(_Bytes(payload, len(payload)) for payload in payloads))


def _payloads(codec: str, size: int, tiny: bool) -> tuple[list[bytes], list[bytes]]:
    """Return the plain payloads, and the same as klog compresses them."""
    count = 2 if tiny else _PLAIN_BYTES // size
    plain = [events(size // 16 if tiny else size, seed) for seed in range(count)]
    return plain, [bytes(compress(CODECS.index(codec), data)) for data in plain]


def _contest(codec: str, size_name: str, undo: bool, tiny: bool) -> Contest:
    number = CODECS.index(codec)
    plain, packed = _payloads(codec, _SIZES[size_name], tiny)
    size = len(plain[0])
    library = Library(codec, 2 * size + 4 * KIB)
    table = inputs(packed if undo else plain)
    views = [memoryview(data) for data in (packed if undo else plain)]

    def klog_compress() -> None:
        for view in views:
            compress(number, view, None)

    def klog_decompress() -> None:
        for view in views:
            decompress(number, view, decompressed_bytes_max(len(view)))

    def check() -> None:
        for data, payload in zip(plain, packed, strict=True):
            assert library.one(True, payload) == data, "the library reads what klog writes"
            theirs = library.one(False, data)
            assert bytes(decompress(number, theirs, size)) == data, "and klog reads what the library writes"
            assert abs(len(theirs) - len(payload)) <= len(payload) // 20, "at the same level"

    verb, run, goal = ("decompress", klog_decompress, 0.7) if undo else ("compress", klog_compress, 0.9)
    peer = Contestant(f"{library.title}, C loop", lambda: library.run(undo, table))
    return Contest(
        f"{verb} {codec} {size_name}",
        0,
        size * len(plain),
        (Contestant(f"klog.codec.{verb}", run, goal=goal), peer),
        check,
        limit=peer,
    )


def _factory(codec: str, size_name: str, undo: bool) -> Factory:
    return lambda tiny, folder: _contest(codec, size_name, undo, tiny)


FACTORIES: dict[str, Factory] = {
    f"{'decompress' if undo else 'compress'} {codec} {size_name}": _factory(codec, size_name, undo)
    for codec in LIBRARIES
    for undo in (False, True)
    for size_name in _SIZES
}
