"""Small seeds for the fuzz targets, made from Kafka's files under tests/golden."""

from __future__ import annotations

import functools
import gzip
import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import programs
from tests.fuzz.hostile_directory import directory
from tests.fuzz.peer_seeds import SEEDS

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_BYTES_MAX = 2048
_COUNT_MAX = 100
_SMALL = 32


def batches(data: bytes) -> Iterator[bytes]:
    """The batches of a valid .log file, by their lengths only."""
    at = 0
    while at + 61 <= len(data):
        size = struct.unpack_from(">i", data, at + 8)[0] + 12
        yield data[at : at + size]
        at += size


def golden_batches() -> Iterator[bytes]:
    for path in sorted(GOLDEN.glob("*/logdir/*/*.log")):
        yield from batches(path.read_bytes())


def legacy_messages() -> Iterator[bytes]:
    """Messages of magic 1, some of them gzip wrappers."""
    for path in sorted(GOLDEN.glob("cleaner/legacy-v1/before/*/*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = struct.unpack_from(">i", data, at + 8)[0] + 12
            yield data[at : at + size]
            at += size


def _legacy() -> Iterator[bytes]:
    """The messages as they are, and those inside a wrapper after bytes that select its kind, attributes and offset."""
    for message in legacy_messages():
        yield bytes(12) + message
        if message[17] & 7:
            yield b"\3\1" + message[:8] + bytes(2) + gzip.decompress(message[34:])
            yield b"\7\x08" + message[:8] + b"\0\x09" + gzip.decompress(message[34:])
    # Magic 0 has no timestamp; its checksums are not checked.
    for message in legacy_messages():
        yield bytes(12) + message[:8] + struct.pack(">i", len(message) - 20) + message[12:16] + b"\0\0" + message[26:]


def _leader() -> Iterator[bytes]:
    """Payloads as producers send them, and messages of magic 0 and 1, plain and without their wrappers."""
    for batch in golden_batches():
        attributes, count = struct.unpack_from(">h", batch, 21)[0], struct.unpack_from(">i", batch, 57)[0]
        if len(batch) <= _BYTES_MAX and not attributes & 7:
            base = struct.unpack_from(">q", batch, 27)[0]
            yield struct.pack("<BBHqI", 0, 4, count, base, 1000) + batch[61:]
    for seed in _legacy():
        message = seed[12:]
        if len(message) > 16 and message[16] <= 1:
            kind = 1 | message[16] << 1 | (4 if seed[0] & 1 else 0)
            yield struct.pack("<BBHqI", kind, 3, 0, 0, 0) + message


def _clean() -> Iterator[bytes]:
    """Uncompressed payloads of golden batches, by each of some rules."""
    for number, batch in enumerate(golden_batches()):
        attributes, delta = struct.unpack_from(">hi", batch, 21)
        count = struct.unpack_from(">i", batch, 57)[0]
        if len(batch) <= _BYTES_MAX and not attributes & 7 and count < 1 << 16 and delta < 1 << 16:
            for rules in (0, 2, 4, 16, 2 + 16):
                choices = struct.pack(">BBHIBBHHH", attributes & 0xFF, rules, count, 3, number & 0xFF, 0, delta, 0, 0)
                yield choices + batch[61:]


def _varint(data: bytes) -> bytes:
    return data[61:189]


def _lz4(data: bytes) -> bytes:
    """The payload of a batch in lz4 as it is; of another one as bytes to be packed."""
    return bytes((0 if data[22] & 7 == 3 else 1, 0)) + data[61:]


def _decompress(data: bytes) -> bytes:
    return bytes((struct.unpack_from(">h", data, 21)[0] & 7,)) + data[61:]


def _segments() -> Iterator[bytes]:
    """Whole small segments of Kafka, for cleaning: records, transactions, markers, several keys."""
    for path in sorted(GOLDEN.glob("*/logdir/*/*.log")):
        data = path.read_bytes()
        if 61 < len(data) <= 2 * _BYTES_MAX:
            for rules in (0xFC, 0xFD, 0xFF):
                yield bytes((rules, 0)) + data


def _files(*patterns: str) -> Iterator[bytes]:
    for pattern in patterns:
        for path in sorted(GOLDEN.glob(pattern)):
            yield path.read_bytes()[:_BYTES_MAX]


def _damage() -> Iterator[bytes]:
    """No edit, and one of each file, by each of the rules that a stop and a policy make."""
    for rules in range(4):
        yield bytes((rules,))
        for file in range(18):
            kind = (file + rules) % 5
            given = b"\xff\0\x7f\x80" if kind in (0, 2) else b""
            yield struct.pack(">BBBHB", rules, file, kind, 61 * file + 16 * kind, len(given)) + given


_BASE_OFFSET, _LEADER_EPOCH, _KEY_OF_MARKER = 7, 15, 69
"""Bytes of a batch."""


def _past_bugs() -> Iterator[bytes]:
    """Damage that klog once did not report, or reported wrongly: tests/crash/FINDINGS.md."""
    for rules in range(3):
        files = directory(bool(rules & 1))
        names = sorted(files)
        edit = functools.partial(_edit, names)
        log = next(name for name in names if name.endswith(".log"))
        index, epochs = log.replace(".log", ".index"), log.rpartition("/")[0] + "/leader-epoch-checkpoint"
        second = len(next(batches(files[log])))
        where, marker = next(_markers(files))
        number = files["klog-topics.json"].index(b"700")
        for edits in (
            edit(log, 4, second + _BASE_OFFSET),  # lookups by time, and count(), went by it
            edit(log, 4, second + _BASE_OFFSET) + edit(index, 1, 0),  # a rebuilt index had an entry of it
            edit(log, 4, second + _LEADER_EPOCH),  # the start of an epoch moved
            edit(log, 4, second + _LEADER_EPOCH) + edit(epochs, 1, 0),  # a load took it over
            edit(log, 0, second, bytes(200)),  # pages that were not written back
            edit(log, 1, 0),  # the first segment is emptied
            edit(where, 4, marker + _KEY_OF_MARKER),  # aborted records were served
            edit("klog-topics.json", 4, number),  # read as another number
        ):
            yield bytes((rules,)) + edits


def _markers(files: dict[str, bytes]) -> Iterator[tuple[str, int]]:
    """The file and the position of each batch with a marker."""
    for name in sorted(files):
        at = 0
        for batch in batches(files[name]) if name.endswith(".log") else ():
            if batch[22] & 0x20:
                yield name, at
            at += len(batch)


def _edit(names: list[str], name: str, kind: int, position: int, given: bytes = b"") -> bytes:
    """As tests/fuzz/hostile_directory.py reads it."""
    return struct.pack(">BBHB", names.index(name), kind, position, len(given)) + given


def _of(name: str) -> Iterator[bytes]:
    shape = {
        "columns": lambda batch: bytes((0, 0, 0, 0, len(batch) & 1, 0)) + batch,
        "headers": lambda batch: bytes(4) + batch,
        "rows": lambda batch: bytes((len(batch) & 1, 40)) + batch,
        "lz4": _lz4,
        "varint": _varint,
        "decompress": _decompress,
        "decode": lambda batch: b"\0" + batch,
        "append": lambda batch: b"\0" + batch,
        "compact": lambda batch: b"\xfd\0" + batch,
    }
    if name == "index":
        yield from (bytes(24) + data for data in _files("*/logdir/*/*.index", "*/logdir/*/*.timeindex"))
    elif name == "snapshot":
        yield from _files("*/logdir/*/*.snapshot")
    elif name == "directory":
        yield from _past_bugs()
        yield from _damage()
    elif name == "legacy":
        yield from _legacy()
    elif name == "clean":
        yield from _clean()
    elif name == "wire":
        yield from programs.seeds()
    elif name in SEEDS:
        yield from SEEDS[name]()
    elif name == "leader":
        yield from _leader()
    elif name == "checkpoint":
        yield from _files("*/logdir/*-checkpoint", "*/logdir/*/*-checkpoint", "*/logdir/*/partition.metadata")
    else:
        if name in ("append", "compact", "decode", "segment"):
            yield from (shape.get(name, bytes)(message) for message in legacy_messages())
        if name == "compact":
            yield from _segments()
        yield from (shape.get(name, bytes)(batch) for batch in golden_batches() if len(batch) <= _BYTES_MAX)


def make_seeds(folder: Path, name: str) -> None:
    """One file each, named by its content; of several with the same size and beginning only the first."""
    folder.mkdir(parents=True, exist_ok=True)
    met: set[tuple[int, bytes]] = set()
    for seed in _of(name):
        like = len(seed), seed[:3] if len(seed) > _SMALL else seed
        if like not in met and len(met) < _COUNT_MAX:
            met.add(like)
            (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
