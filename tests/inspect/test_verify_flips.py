"""verify finds one flipped bit at any position in a small log directory, except in bytes that no other file contradicts.

The test flips a bit in every byte of every file, but of a .log in every fourth batch. Inside payloads it flips only some
bytes, since the checksum covers all of them alike.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.inspect import verify
from tests.support import golden

# For each file, the bytes in which verify cannot find a flip (see the docstring of klog.inspect.verify).
NOT_DETECTED = {
    # A removed partition may still have its entry, and a crash leaves a high watermark beyond the log end: notes.
    "recovery-point-offset-checkpoint": lambda data: _partitions(data),
    "replication-offset-checkpoint": lambda data: [*_partitions(data), *_digits(data)],
    "meta.properties": lambda data: range(len(data)),
    ".kafka_cleanshutdown": lambda data: _digits(data),
    "partition.metadata": lambda data: range(21, 43),
    "leader-epoch-checkpoint": lambda data: range(6, 7),  # the start of the first epoch
    "bootstrap.checkpoint": lambda data: _epochs(data),
}


def _digits(data: bytes) -> Iterator[int]:
    return (at for at, byte in enumerate(data) if chr(byte).isdigit())


def _partitions(data: bytes) -> Iterator[int]:
    """The topic and the partition in each entry of a checkpoint, which has two lines before them."""
    at = 0
    for number, line in enumerate(data.splitlines(keepends=True)):
        if number >= 2:
            name, partition, _ = line.split(b" ")
            yield from range(at, at + len(name))
            yield from range(at + len(name) + 1, at + len(name) + 1 + len(partition))
        at += len(line)


def _batches(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(data):
        size = struct.unpack_from(">i", data, at + 8)[0] + 12
        yield at, size
        at += size


def _epochs(data: bytes) -> Iterator[int]:
    return (at + byte for at, _ in _batches(data) for byte in range(12, 16))


def _positions(path: Path, data: bytes) -> Iterator[int]:
    if path.suffix != ".log":
        yield from range(len(data))
        return
    for at, size in list(_batches(data))[::4]:
        yield from range(at, at + 61)
        yield from range(at + 61, at + size, 97)


def _only(directory: Path, partition: str) -> Path:
    """Delete all partitions but one, to keep the test short. Return the directory."""
    for path in directory.iterdir():
        if path.is_dir() and path.name != partition:
            for inner in path.iterdir():
                inner.unlink()
            path.rmdir()
        elif path.name.endswith("-offset-checkpoint"):
            topic = partition.rpartition("-")[0]
            lines = [line for line in path.read_text().splitlines()[2:] if line.startswith(topic + " ")]
            path.write_text(f"0\n{len(lines)}\n" + "".join(line + "\n" for line in lines))
    return directory


def _missed_flips(directory: Path, bits: tuple[int, ...]) -> dict[str, list[int]]:
    assert verify(directory).problems == []
    missed: dict[str, list[int]] = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        data = path.read_bytes()
        not_detected = set(NOT_DETECTED[path.name](data)) if path.name in NOT_DETECTED else set()
        descriptor = os.open(path, os.O_WRONLY)
        try:
            for at in _positions(path, data):
                if at in not_detected:
                    continue
                for bit in bits:
                    os.pwrite(descriptor, bytes([data[at] ^ 1 << bit]), at)
                    if not verify(directory).problems:
                        missed.setdefault(path.name, []).append(at)
                os.pwrite(descriptor, data[at : at + 1], at)
        finally:
            os.close(descriptor)
        assert path.read_bytes() == data
    return missed


def test_every_flip_in_plain_batches_indexes_snapshots_and_texts_is_found(tmp_path: Path) -> None:
    directory = _only(golden.copy_logdir("epochs", tmp_path), "terms-0")
    assert _missed_flips(directory, (3,)) == {}


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_every_flip_in_transactions_is_found(tmp_path: Path) -> None:
    directory = _only(golden.copy_logdir("txn-v1", tmp_path), "orders-0")
    # With this flip, the entry has the offset of the first record with the batch's largest timestamp, and not that of the
    # batch's last record. Kafka up to 3.7 wrote such entries, so they are valid.
    first_of_equals = {"00000000000000000339.timeindex": [11], "00000000000000000405.timeindex": [35, 71]}
    assert _missed_flips(directory, (0,)) == first_of_equals
