"""The Python API under atheris: python -m tests.fuzz.face NAME [libFuzzer's options] [corpus ...]

Input bytes decode to values or raise klog's own errors for bad bytes; anything else ends the run. Without atheris the
targets can still be called: the suite replays kept inputs.
"""

from __future__ import annotations

import contextlib
import gc
import os
import struct
import sys
import tempfile
from collections.abc import Callable
from types import FunctionType

from klog.cleaner._clean import KeySurvey, Rewriter
from klog.cleaner._keymap import KeyMap
from klog.cleaner.transactions import CleanedTransactions
from klog.codec.compress import decompress
from klog.config import LogConfig
from klog.disk._io import LogFile
from klog.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, UnsupportedBatch, UnsupportedCompression
from klog.record import columns, decode, iter_records, validate, validate_append
from klog.segment import AbortedTransaction, IndexPair
from klog.segment._scan import scan_checked, scan_headers
from tests.fuzz import files, peers
from tests.fuzz.hostile_directory import directory_target
from tests.fuzz.produce import produce_target
from tests.support.reseal import reseal

_BYTES_MAX = 1 << 22
_NOW = 1_700_000_000_000
_CONFIGS = tuple(
    LogConfig(given)
    for given in (
        {"message.timestamp.after.max.ms": 2**63 - 1},
        {"cleanup.policy": "compact", "message.timestamp.after.max.ms": 2**63 - 1},
        {"compression.type": "lz4", "message.timestamp.after.max.ms": 2**63 - 1},
        {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
    )
)


def decode_target(data: bytes) -> None:
    """Read a buffer of batches with each reader: all readers agree. If the first byte is odd, lengths and checksums are
    recomputed before."""
    if not data:
        return
    data = reseal(data[1:]) if data[0] & 1 else data[1:]
    with contextlib.suppress(CorruptBatch):
        list(decode(data, allow_partial=True))
    rows = total = None
    with contextlib.suppress(CorruptBatch):
        total = sum(1 for r in iter_records(data, start=-(2**63), include_control=True) if (r.key, r.headers))
    with contextlib.suppress(CorruptBatch):
        rows = columns(data, start=-(2**63), include_control=True).num_rows
    assert rows == total, (rows, total)
    with contextlib.suppress(CorruptBatch):
        assert validate(data) == total


def append_target(data: bytes) -> None:
    """rules:u8 produced: a leader raises a KlogError, or stores a batch that a reader accepts. The first byte has the
    same meaning as above."""
    if not data:
        return
    config = _CONFIGS[data[0] >> 1 & 3]
    produced = reseal(data[1:]) if data[0] & 1 else data[1:]
    with contextlib.suppress(CorruptBatch, InvalidRecord, InvalidTimestamp, UnsupportedCompression):
        stored = validate_append(produced, config, offset=7, now=_NOW)
        assert validate(stored) == stored.count == stored.last_offset - 6


def decompress_target(data: bytes) -> None:
    """codec:u8 payload"""
    if data:
        with contextlib.suppress(CorruptBatch):
            assert len(decompress(data[0] & 7, data[1:], _BYTES_MAX)) <= _BYTES_MAX


def segment_target(data: bytes) -> None:
    """A .log file, scanned as recovery does; its valid prefix is valid. Valid messages of magic 0 and 1 stop it."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        log = LogFile(os.dup(file.fileno()), "fuzz.log")
        try:
            scan = scan_checked(log, 0, len(data), 0)
            headers = scan_headers(log, 0, len(data), 0)
        except UnsupportedBatch:
            return
        finally:
            log.close()
    assert 0 <= scan.end <= len(data)
    assert 0 <= headers.end <= len(data)
    assert scan.batches == sum(1 for _ in decode(data[: scan.end]))


class _Kept:
    """Receives the batches that a rewriting keeps."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: memoryview, position: int) -> None:
        assert position == len(self.data)
        self.data += data


def _compacted(data: bytes, start: int, latest_of: KeyMap, aborted: list[AbortedTransaction]) -> bytes:
    """Run both passes over a segment of the offsets [0, 2^31), as in a cleaning round. Returns the remaining
    batches."""
    kept = _Kept()
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        log = LogFile(os.dup(file.fileno()), "fuzz.log")
        try:
            noted, written = CleanedTransactions(), CleanedTransactions()
            noted.add(aborted)
            written.add(aborted)
            KeySurvey(latest_of, start, noted).note(log, 0, len(data), 0, 2**31)
            rewriter = Rewriter(latest_of, _NOW, 1000, 2**31, written, {1000: (3, 0), 2000: (None, 0)})
            rewriter.begin(kept, IndexPair("", "", 0, writable=True, capacity=1 << 20, interval=4096))
            rewriter.rewrite(log, len(data), 0, 2**31, False)
        finally:
            log.close()
    assert len(kept.data) == rewriter.size
    return bytes(kept.data)


def compact_target(data: bytes) -> None:
    """rules:u8 start:u8 segment: raises CorruptBatch, or leaves a subset of the records, without duplicates, that can
    be compacted again. The first byte has the same meaning as above."""
    if len(data) < 2:
        return
    segment = reseal(data[2:]) if data[0] & 1 else data[2:]
    pids = {struct.unpack_from(">q", segment, 43)[0]} if data[0] & 2 and len(segment) >= 51 else set()
    aborted = [AbortedTransaction(pid, 0, 2**31, 2**31) for pid in pids]
    keys = KeyMap(24 * (1 + (data[0] >> 2)), secret=b"k" * 16)
    with contextlib.suppress(CorruptBatch, UnsupportedBatch, UnsupportedCompression):
        left = _compacted(segment, data[1], keys, aborted)
        assert len(left) <= len(segment) * 4 + _BYTES_MAX
        before = {(r.offset, r.key, r.value) for r in iter_records(segment, start=0, include_control=True)}
        after = [(r.offset, r.key, r.value) for r in iter_records(left, start=0, include_control=True)]
        assert before.issuperset(after)
        validate(left)
        assert _compacted(left, data[1], KeyMap(1 << 16, secret=b"k" * 16), aborted) is not None


TARGETS: dict[str, Callable[[bytes], None]] = {
    "append": append_target,
    "checkpoint": files.checkpoint_target,
    "compact": compact_target,
    "decode": decode_target,
    "decompress": decompress_target,
    "directory": directory_target,
    "frame": peers.frame_target,
    "internal": peers.internal_target,
    "own": files.own_target,
    "produce": produce_target,
    "scram": peers.scram_target,
    "segment": segment_target,
    "snapshot": files.snapshot_target,
    "texts": files.texts_target,
    "tls": peers.tls_target,
    "txnindex": files.txnindex_target,
}


_MEASURED = {
    "checkpoint": ("klog.log.directory.",),
    "compact": ("klog.cleaner.", "klog.codec."),
    "directory": ("klog.log.", "klog.manager.", "klog.segment.", "klog.codec."),
    "frame": ("klog.protocol.", "klog.coordinator."),
    "internal": ("klog.internal_topics.", "klog.coordinator."),
    "own": ("klog.log.", "klog.manager."),
    "produce": ("klog.log.", "klog.record."),
    "scram": ("klog.security.",),
    "snapshot": ("klog.log.state.",),
    "texts": ("klog.config.", "klog.log.directory."),
    "tls": ("klog.network.",),
    "txnindex": ("klog.segment.",),
}
"""The packages whose Python code is measured, "klog.codec." for the others. libFuzzer covers the native modules in
C."""
PROGRAM = "KLOG_FUZZ_PROGRAM"
"""Environment: the program by which libFuzzer starts this one again."""


def functions_of(name: str) -> list[FunctionType]:
    """What is measured for a target. It runs once, to import what it needs."""
    TARGETS[name](bytes(1))
    packages = _MEASURED.get(name, ("klog.codec.",))
    return [one for one in gc.get_objects() if type(one) is FunctionType and str(one.__module__).startswith(packages)]


def main() -> None:
    import atheris

    name = sys.argv.pop(1)
    sys.argv[0] = os.environ.get(PROGRAM, sys.argv[0])
    for function in functions_of(name):
        atheris.instrument_func(function)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
