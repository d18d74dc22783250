"""Compaction: the map of keys, and both passes over a log.

    keys in the map     2 million keys of 20 bytes, 10% of them different, put and then looked up; the peer is a map
                        like that of Kafka's cleaner (MD5), also in C: the goal is 4 times its rate
    keys hashed         klog's two keyed hashes, of keys of 9 and 40 bytes: AES-128-CMAC where the processor
                        supports it, SipHash-1-3-128 elsewhere
    compact             both passes over a log of 100-byte records in the page cache, 10% of its keys different, nothing
                        written: the goal is 0.07 of the rate of a copy of its bytes in memory
    compact lz4, zstd   the same of compressed batches, against the codec alone: each payload decompressed twice, the
                        rest compressed. Where every key is different nothing is compressed: batches are copied
                        unchanged, and klog decompresses them once, to collect their keys

The contests use a dry run, so that each measurement has the same log. A dry run only omits writing a tenth of the
bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory, Unavailable
from bench.native import compiled
from bench.workloads import workload
from klog import record
from klog.codec import CODECS, compress, decompress

_KLOG, _MD5 = 0, 1  # keymaps.c
_KEY_BYTES = 20
_HEADER_BYTES = 61
_PLAIN_MAX = 1 << 24


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

    def run(which: int) -> int:
        return int(library.keymaps_run(which, joined, count, _KEY_BYTES, slots))

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
        forecast = log.compact(dry_run=True)
        assert (forecast.records_before, forecast.records_after) == (count, len(set(keys)))

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


def _hash(size: int, tiny: bool) -> Contest:
    library = compiled("keymaps.c", "keymap.c")
    library.keymaps_hash.restype = ctypes.c_uint64
    library.keymaps_hash.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
    count = 64 if tiny else 32_000
    keys = [random.Random(number).randbytes(size) for number in range(count)]
    joined = b"".join(keys)

    def run(kernel: int) -> int:
        return int(library.keymaps_hash(kernel, joined, count, size))

    def check() -> None:
        for kernel in (0, 1):  # in groups, as one by one
            alone = (library.keymaps_hash(kernel, key, 1, size) for key in keys)
            assert run(kernel) == sum(alone) % 2**64
        assert run(0) != run(1)

    if run(1) == 0:
        raise Unavailable("AES instructions")
    return Contest(
        f"keys hashed {size}B",
        count,
        len(joined),
        (Contestant("AES-128-CMAC", lambda: run(1)), Contestant("SipHash-1-3-128", lambda: run(0))),
        check,
    )


def _batches(log: klog.Log) -> list[tuple[int, bytes]]:
    """Return (codec, payload) of each batch."""
    return [
        (CODECS.index(batch.compression), bytes(batch.raw[_HEADER_BYTES:]))
        for segment in log.segments
        for batch in record.decode(Path(segment.path).read_bytes())
    ]


def _compressed(codec: str, share: int, tiny: bool, folder: Path) -> Contest:
    """Return a contest over compressed batches. There is one key for each `share` records."""
    count = 2000 if tiny else 300_000
    values = [value for _, value, _ in workload("100B", tiny=False).tuples()]
    keys = [b"%09d" % number for number in range(count // share)] * share
    random.Random(count).shuffle(keys)
    records = [(key, values[n % len(values)], 1_700_000_000_000 + n) for n, key in enumerate(keys)]
    config = {"cleanup.policy": "compact", "segment.bytes": 1 << 30, "max.message.bytes": 16384}

    def made(name: str) -> klog.Log:
        log = klog.Log.open(folder / name, config=config)
        log.append(records, compression=codec)
        log.roll()
        return log

    log, other = made("compressed-0"), made("cleaned-0")
    stored = _batches(log)
    other.compact()
    left = _batches(other)
    plain = [(number, bytes(decompress(number, payload, _PLAIN_MAX))) for number, payload in left]
    other.close()

    def check() -> None:
        assert len(stored) > 1
        assert log.compact(dry_run=True, top=0).records_after == count // share
        assert (left == stored) == (share == 1)

    def codec_alone() -> None:
        for _ in range(2):
            for number, payload in stored:
                decompress(number, payload, _PLAIN_MAX)
        for number, payload in plain if share > 1 else ():
            compress(number, payload)

    return Contest(
        f"compact {codec} 100B, {'10% different' if share > 1 else 'all different'}",
        count,
        sum(len(payload) for _, payload in stored),
        (
            Contestant("Log.compact", lambda: log.compact(dry_run=True, top=0)),
            Contestant(f"{codec} alone", codec_alone),
        ),
        check,
        log.close,
    )


FACTORIES: dict[str, Factory] = {
    "keys in the map": _map,
    "keys hashed 9B": lambda tiny, folder: _hash(9, tiny),
    "keys hashed 40B": lambda tiny, folder: _hash(40, tiny),
    "compact 100B": _both_passes,
    "compact lz4 100B, 10% different": lambda tiny, folder: _compressed("lz4", 10, tiny, folder),
    "compact lz4 100B, all different": lambda tiny, folder: _compressed("lz4", 1, tiny, folder),
    "compact zstd 100B, 10% different": lambda tiny, folder: _compressed("zstd", 10, tiny, folder),
    "compact zstd 100B, all different": lambda tiny, folder: _compressed("zstd", 1, tiny, folder),
}
