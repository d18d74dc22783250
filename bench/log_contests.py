"""One partition's log on disk: append, recovery, read, verify, lookup. The peers are bare loops over the same bytes.

Files are written just before they are read, so everything is in the page cache: the contests measure klog's own work.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory
from bench.workloads import workload
from klog import record
from klog.segment._index import IndexPair

MIB = 1 << 20
_BLOCK = MIB
_CONFIG = {"segment.bytes": 16 * MIB, "retention.ms": -1}
_ONE_SEGMENT = {"segment.bytes": 1 << 30, "retention.ms": -1}


def _append(name: str, tiny: bool, folder: Path) -> Contest:
    """Append the same MiB of records again and again to a new log; the peer writes a new file.

    There is one segment, because a roll flushes the segment that it closes, and the peer's loop has no such fdatasync.
    """
    load = workload(name, tiny=tiny)
    tuples, times = load.tuples(), 2 if tiny else 32
    encoded = record.encode(tuples)
    directory, plain = folder / "append-0", folder / "plain"
    state: dict[str, klog.Log] = {}

    def fresh() -> None:
        close()
        state["log"] = klog.Log.open(directory, config=_ONE_SEGMENT)

    def close() -> None:
        if "log" in state:
            state.pop("log").close()
        shutil.rmtree(directory, ignore_errors=True)

    def append() -> None:
        log = state["log"]
        for _ in range(times):
            log.append(tuples)

    def encode_and_write() -> None:
        _write(plain, lambda: record.encode(tuples), times)

    def check() -> None:
        fresh()
        append()
        log = state["log"]
        assert log.log_end_offset == times * load.count == log.count()
        assert [(r.key, r.value, r.timestamp) for r in log.read()] == tuples * times
        _write(plain, lambda: encoded, times)
        assert plain.stat().st_size == times * len(encoded)

    writing = Contestant(
        "pwrite of the encoded bytes", lambda: _write(plain, lambda: encoded, times), lambda: _remove(plain)
    )
    return Contest(
        f"append {name}",
        times * load.count,
        times * load.bytes,
        (
            Contestant("klog Log.append of tuples", append, before=fresh),
            Contestant("klog.record.encode, then pwrite", encode_and_write, before=lambda: _remove(plain)),
            writing,
        ),
        check,
        close,
        limit=writing,
    )


def _recover(tiny: bool, folder: Path) -> Contest:
    """Open a log that was not closed cleanly: every batch is checked, indexes are rebuilt."""
    directory, records, size = written(folder / "recover-0", "100B", tiny)

    state: dict[str, klog.Log] = {}

    def recover() -> None:
        state["log"] = klog.Log.open(directory, config=_CONFIG, clean_shutdown=False, recovery_point=0)

    def close() -> None:
        if "log" in state:
            state.pop("log").close()

    def check() -> None:
        recover()
        log = state["log"]
        assert log.recovery.segments_scanned == len(log.segments)
        assert log.recovery.bytes_truncated == 0
        assert log.log_end_offset == records
        assert sum(map(len, _read_blocks(directory))) == size

    reading = Contestant("pread loop, 1 MiB", lambda: read_all(directory))
    return Contest(
        "recover 100B",
        records,
        size,
        (
            Contestant("klog Log.open after a crash", recover, before=close, goal=0.7),
            reading,
        ),
        check,
        close,
        limit=reading,
    )


def _read(name: str, tiny: bool, folder: Path) -> Contest:
    """Read from the first record to the last: raw batches (mapped and copied), Arrow columns, records."""
    directory, records, size = written(folder / "read-0", name, tiny)
    log = klog.Log.open(directory, config=_CONFIG)

    def fetch() -> None:
        offset, end = 0, log.log_end_offset
        while offset < end:
            batches = log.fetch(offset, _BLOCK).memory()
            offset = _next_offset(batches)

    def copies() -> int:
        return sum(len(chunk.buffer) for chunk in log.read().chunks())

    def columns() -> int:
        return sum(chunk.num_rows for chunk in log.read().columns())

    def check() -> None:
        raw, offset = [], 0
        while offset < log.log_end_offset:
            raw.append(bytes(log.fetch(offset, _BLOCK).memory()))
            offset = _next_offset(raw[-1])
        stored = b"".join(_read_blocks(directory))
        assert b"".join(raw) == b"".join(bytes(chunk.buffer) for chunk in log.read().chunks()) == stored
        assert copies() == size
        assert columns() == records == sum(1 for _ in log.read())

    reading = Contestant("pread loop, 1 MiB", lambda: read_all(directory))
    return Contest(
        f"read {name}",
        records,
        size,
        (
            Contestant("klog Log.fetch, 1 MiB", fetch, goal=0.9),
            Contestant("klog Log.read().chunks(), copied", copies, goal=0.9),
            Contestant("klog Log.read().columns()", columns),
            Contestant("klog Log.read(), every record", lambda: sum(1 for _ in log.read())),
            reading,
        ),
        check,
        log.close,
        limit=reading,
    )


def _verify(tiny: bool, folder: Path) -> Contest:
    """Check every record of a log: by klog.verify, which also compares the indexes and all other files with them, and
    by reading and validating chunks."""
    directory, records, size = written(folder / "verify-0", "100B", tiny)
    log = klog.Log.open(directory, config=_CONFIG, read_only=True)

    def validate() -> int:
        return sum(record.validate(chunk.buffer) for chunk in log.read().chunks())

    def check() -> None:
        assert not klog.verify(directory).problems
        assert validate() == records == log.count()
        copy = folder / "damaged" / "verify-0"
        shutil.copytree(directory, copy)
        with (copy / f"{0:020}.log").open("r+b") as file:
            file.seek(size // 2 if tiny else MIB)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        assert klog.verify(copy).problems

    reading = Contestant("pread loop, 1 MiB", lambda: read_all(directory))
    return Contest(
        "verify 100B",
        records,
        size,
        (
            Contestant("klog Log.read().chunks(), validated", validate, goal=0.33),
            Contestant("klog.verify", lambda: klog.verify(directory), goal=0.33),
            reading,
        ),
        check,
        log.close,
        limit=reading,
    )


def _slice(tiny: bool, folder: Path) -> Contest:
    """Return 64 KiB of batches as memory without a copy: of an existing fetch, and of a new fetch each time."""
    directory, _, _ = written(folder / "slice-0", "100B", tiny)
    log = klog.Log.open(directory, config=_CONFIG)
    chance, times = random.Random(7), 16 if tiny else 1024
    offsets = [chance.randrange(log.log_end_offset) for _ in range(times)]
    found = [log.fetch(offset, 64 << 10) for offset in offsets]
    base = found[0].position.segment_base_offset
    found = [one for one in found if one.position.segment_base_offset == base]  # one file, one map
    offsets = [one.offset for one in found]
    path = directory / f"{base:020}.log"
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = memoryview(mapped)
    ranges = [(one.position.position, one.position.position + one.size) for one in found]

    def fetch() -> None:
        for offset in offsets:
            log.fetch(offset, 64 << 10).memory()

    def memory() -> None:
        for one in found:
            one.memory()

    def cut() -> None:
        for start, stop in ranges:
            whole[start:stop]

    def check() -> None:
        for offset, one, (start, stop) in zip(offsets, found, ranges, strict=True):
            assert one.memory() == log.fetch(offset, 64 << 10).memory() == whole[start:stop]
            assert stop > start

    def close() -> None:
        log.close()
        whole.release()
        mapped.close()

    return Contest(
        "slice 64KiB",
        len(found),
        0,
        (
            Contestant("klog FetchData.memory()", memory, goal=0.5),
            Contestant("klog Log.fetch and its memory()", fetch),
            Contestant("slice of a memoryview of mmap", cut),
        ),
        check,
        close,
    )


def _lookup(tiny: bool, folder: Path) -> Contest:
    """Look up random offsets in the index of one segment; the peer is the same search in Python."""
    directory, _, _ = written(folder / "lookup-0", "100B", tiny)
    base = min(path for path in directory.glob("*.index"))
    pair = IndexPair(str(base), str(base.with_suffix(".timeindex")), 0)
    view = mmap.mmap(os.open(base, os.O_RDONLY), 0, access=mmap.ACCESS_READ)
    chance, count = random.Random(7), 64 if tiny else 1024
    highest = pair.entry(pair.entries - 1)[0] if pair.entries else 0
    offsets = [chance.randrange(highest + 1) for _ in range(count)]

    def floor_in_python(offset: int) -> tuple[int, int]:
        low, high = 0, pair_entries
        while low < high:
            middle = (low + high) // 2
            if struct.unpack_from(">i", view, 8 * middle)[0] <= offset:
                low = middle + 1
            else:
                high = middle
        return struct.unpack_from(">ii", view, 8 * (low - 1)) if low else (0, 0)

    def klog_search() -> None:
        for offset in offsets:
            pair.floor(offset)

    def python_search() -> None:
        for offset in offsets:
            floor_in_python(offset)

    def check() -> None:
        assert pair.entries > 0
        for offset in offsets:
            assert pair.floor(offset) == floor_in_python(offset)

    def close() -> None:
        pair.close()
        view.close()

    pair_entries = pair.entries
    return Contest(
        "lookup",
        count,
        0,
        (Contestant("klog offset index", klog_search), Contestant("binary search in Python", python_search)),
        check,
        close,
    )


def written(directory: Path, name: str, tiny: bool) -> tuple[Path, int, int]:
    """Write and close a log of 64 MiB (tiny: some KB). Returns its directory, records and bytes on disk."""
    load = workload(name, tiny=tiny)
    tuples, times = load.tuples(), 40 if tiny else 64
    config = {**_CONFIG, "segment.bytes": 2 * MIB} if tiny else _CONFIG
    with klog.Log.open(directory, config=config) as log:
        for _ in range(times):
            log.append(tuples)
        log.flush()
    return directory, times * load.count, sum(path.stat().st_size for path in directory.glob("*.log"))


def _write(path: Path, block: Callable[[], bytes], times: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        position = 0
        for _ in range(times):
            position += os.pwrite(descriptor, block(), position)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def read_all(directory: Path) -> None:
    """Read all .log files into one buffer that is aligned to a page, a MiB at a time."""
    with mmap.mmap(-1, _BLOCK) as buffer:
        for path in sorted(directory.glob("*.log")):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                position = 0
                while read := os.preadv(descriptor, [buffer], position):
                    position += read
            finally:
                os.close(descriptor)


def _read_blocks(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


def _next_offset(batches: bytes | memoryview) -> int:
    """Return the offset after the last batch of the buffer, from the headers alone."""
    position, following = 0, 0
    while position < len(batches):
        base, length = struct.unpack_from(">qi", batches, position)
        (last_delta,) = struct.unpack_from(">i", batches, position + 23)
        following = base + last_delta + 1
        position += 12 + length
    return following


FACTORIES: dict[str, Factory] = {
    "append 100B": lambda tiny, folder: _append("100B", tiny, folder),
    "append 1KiB": lambda tiny, folder: _append("1KiB", tiny, folder),
    "recover 100B": _recover,
    "read 100B": lambda tiny, folder: _read("100B", tiny, folder),
    "read 1KiB": lambda tiny, folder: _read("1KiB", tiny, folder),
    "slice 64KiB": _slice,
    "verify 100B": _verify,
    "lookup": _lookup,
}
