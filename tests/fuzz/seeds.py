"""Small seeds for the fuzz targets, made of what Kafka wrote under tests/golden."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_BYTES_MAX = 2048
_COUNT_MAX = 80


def batches(data: bytes) -> Iterator[bytes]:
    """The batches of a good .log file, by their lengths alone."""
    at = 0
    while at + 61 <= len(data):
        size = struct.unpack_from(">i", data, at + 8)[0] + 12
        yield data[at : at + size]
        at += size


def golden_batches() -> Iterator[bytes]:
    for path in sorted(GOLDEN.glob("*/logdir/*/*.log")):
        yield from batches(path.read_bytes())


def _varint(data: bytes) -> bytes:
    return data[61:189]


def _decompress(data: bytes) -> bytes:
    return bytes((struct.unpack_from(">h", data, 21)[0] & 7,)) + data[61:]


def _files(*patterns: str) -> Iterator[bytes]:
    for pattern in patterns:
        for path in sorted(GOLDEN.glob(pattern)):
            yield path.read_bytes()[:_BYTES_MAX]


def _of(name: str) -> Iterator[bytes]:
    shape = {
        "columns": lambda batch: bytes(6) + batch,
        "varint": _varint,
        "decompress": _decompress,
        "decode": lambda batch: b"\0" + batch,
    }
    if name == "index":
        yield from (bytes(24) + data for data in _files("*/logdir/*/*.index", "*/logdir/*/*.timeindex"))
    elif name == "snapshot":
        yield from _files("*/logdir/*/*.snapshot")
    elif name == "checkpoint":
        yield from _files("*/logdir/*-checkpoint", "*/logdir/*/*-checkpoint", "*/logdir/*/partition.metadata")
    else:
        yield from (shape.get(name, bytes)(batch) for batch in golden_batches() if len(batch) <= _BYTES_MAX)


def make_seeds(folder: Path, name: str) -> None:
    """One file each, named by its content; of many that are alike in size the first."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes: set[int] = set()
    for seed in _of(name):
        if len(seed) not in sizes and len(sizes) < _COUNT_MAX:
            sizes.add(len(seed))
            (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
