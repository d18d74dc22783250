"""The cleaner under tight limits: python -m bench.cleaner_limits {cgroup,keys,live} [--json FILE] [--directory DIR] ...

    cgroup   cleans a cold log of 8 GiB in a memory cgroup of 2 GiB (needs root). Prints the rate of the last quarter of
             each pass relative to the first; the speed relative to a plain loop that reads the same bytes twice in the
             same group and writes as many as stay; and how much of the active segment, which was just read, stays in
             memory
    keys     cleans 100 million keys of 8 bytes with a map that holds only a part of them, so that it takes several
             rounds. Checks the result, and prints the memory per key
    live     appends during a cleaning of the same log, with a throttle and without: p50, p99, max

Each runs in its own processes. Results are printed, not compared with a peer, since a run takes minutes; --size,
--records and --seconds make it smaller. Files are made below --directory, by default a temporary one, and removed
at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import klog
from bench.contest import Unavailable
from bench.memory_cgroup import memory_cgroup, peak_bytes, run_in
from bench.workloads import FIRST_TIMESTAMP, noise
from klog.manager.throttle import Throttle
from klog.progress import Event

Figures = dict[str, Any]
_MIB = 1 << 20
_HOT_KEYS = 1000
_UNIQUE_EVERY = 8
_VALUE_BYTES = 1024
_PIECE = 1 << 20
_PERCENTILES = (50, 99, 100)


class Stopped(Exception):
    """Ends a cleaning that has run for long enough."""


# ---- logs ------------------------------------------------------------------------------------------------------------


def _binary(cells: np.ndarray) -> pa.Array:
    """Return rows of bytes as a binary column."""
    count, width = cells.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(cells)])


def _numbers(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64).view(np.uint8).reshape(len(values), 8)


def _append(log: klog.Log, keys: np.ndarray, values: np.ndarray) -> None:
    times = pa.array(np.full(len(keys), FIRST_TIMESTAMP), pa.int64()).cast(pa.timestamp("ms", "UTC"))
    log.append(pa.record_batch({"key": _binary(_numbers(keys)), "value": _binary(values), "timestamp": times}))


def _config(segment_bytes: int, map_bytes: int) -> dict[str, object]:
    return {
        "cleanup.policy": "compact",
        "segment.bytes": segment_bytes,
        "log.cleaner.dedupe.buffer.size": map_bytes,
        "file.delete.delay.ms": 0,
    }


def _open(directory: Path, map_bytes: int = 128 * _MIB, segment_bytes: int = 256 * _MIB, **more: Any) -> klog.Log:
    return klog.Log.open(directory, config=_config(segment_bytes, map_bytes), **more)


def make_log(directory: Path, size: int, segment_bytes: int) -> tuple[int, int]:
    """Write a log of about `size` bytes with values of 1 KiB: one record of eight has a key of its own, the others
    share a thousand keys. Its active segment has some further records. Drops the log from the page cache. Returns the
    number of unique keys, and of the records in the active segment."""
    piece = min(32_768, max(1, size // _VALUE_BYTES // 64) * _UNIQUE_EVERY)
    values = np.frombuffer(noise(piece * _VALUE_BYTES), np.uint8).reshape(piece, _VALUE_BYTES)
    chance, done = np.random.default_rng(8), 0
    with _open(directory, segment_bytes=segment_bytes) as log:
        while log.size < size:
            keys = chance.integers(0, _HOT_KEYS, piece)
            keys[::_UNIQUE_EVERY] = _HOT_KEYS + done + np.arange(0, piece, _UNIQUE_EVERY)
            _append(log, keys, values)
            done += piece
        log.roll()
        _append(log, np.arange(-piece, 0), values)
        log.flush()
        for segment in log.segments:
            _drop(segment.path)
    return done // _UNIQUE_EVERY, piece


def _drop(path: str | Path) -> None:
    """Drop a file from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


# ---- cgroup ----------------------------------------------------------------------------------------------------------


def _quarters(samples: list[tuple[float, int]]) -> list[float]:
    """Return bytes a second in each quarter of the bytes, from samples (seconds, bytes so far)."""
    total = samples[-1][1]
    at = [next(sample for sample in samples if sample[1] >= total * part // 4) for part in range(5)]
    return [(b[1] - a[1]) / max(b[0] - a[0], 1e-9) for a, b in itertools.pairwise(at)]


def _cached(log: klog.Log) -> int:
    return log.page_cache().segments[-1].residency.cached_bytes


def clean_once(directory: Path) -> Figures:
    """Clean a log and return the figures. Its active segment is read before."""
    samples: dict[str, list[tuple[float, int]]] = {"index": [], "clean": []}
    with _open(directory, clean_shutdown=True, recovery_point=1 << 62) as log:
        before, size = log.size, log.segments[-1].size
        Path(log.segments[-1].path).read_bytes()
        hot = _cached(log)
        started = time.perf_counter()
        for stage in samples.values():
            stage.append((started, 0))

        def report(event: Event) -> None:
            samples[event.stage].append((time.perf_counter(), event.done))

        stats = log.compact(progress=report)
        seconds = time.perf_counter() - started
        cleaned = sum(segment.size for segment in log.segments[:-1])
        return {
            "bytes": before,
            "bytes_after": stats.bytes_after,
            "records_after": stats.records_after,
            "seconds": seconds,
            "quarters": {stage: _quarters(of) for stage, of in samples.items()},
            "active_bytes": size,
            "active_cached": [hot, _cached(log)],
            "cleaned_bytes": cleaned,
        }


def copy_once(directory: Path, bytes_written: int) -> Figures:
    """Return the disk's own time for the same work: read all closed segments twice, write and sync so many bytes."""
    paths = sorted(directory.glob("*.log"))[:-1]
    buffer, started = bytearray(_PIECE), time.perf_counter()
    for _ in range(2):
        for path in paths:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
    with (directory / "copy").open("wb", buffering=0) as file:
        for _ in range(bytes_written // _PIECE):
            file.write(buffer)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - started
    (directory / "copy").unlink()
    return {"seconds": seconds}


def cgroup(folder: Path, size: int, limit: int) -> Figures:
    directory = folder / "limits-0"
    unique, active = make_log(directory, size, max(size // 32, 1 << 16))
    wanted = sum((directory / name).stat().st_size for name in os.listdir(directory) if name.endswith(".log"))
    try:
        with memory_cgroup(limit) as group:
            plain = json.loads(run_in(group, _self("_copy", directory, str(wanted // _UNIQUE_EVERY))))
            for path in directory.glob("*.log"):
                _drop(path)
        with memory_cgroup(limit) as group:
            done = json.loads(run_in(group, _self("_clean", directory)))
            done["peak"] = peak_bytes(group)
    except Unavailable as missing:
        done, plain = json.loads(run_in(None, _self("_clean", directory))), None
        done["needs"] = str(missing)
    more = done["records_after"] - unique - active  # the keys that the other records share
    assert 0 < more <= _HOT_KEYS, "the wrong records are left"
    with _open(directory) as log:
        assert log.verify().problems == []
    quarters = done["quarters"]
    done["last_over_first"] = {stage: rates[3] / rates[0] for stage, rates in quarters.items()}
    done["over_plain"] = None if plain is None else plain["seconds"] / done["seconds"]
    return done


# ---- keys ------------------------------------------------------------------------------------------------------------


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    return 0


def clean_keys(directory: Path, map_bytes: int) -> Figures:
    with _open(directory, map_bytes, clean_shutdown=True, recovery_point=1 << 62) as log:
        before = peak = _status("RssAnon")

        def report(event: Event) -> None:
            nonlocal peak
            peak = max(peak, _status("RssAnon"))

        started = time.perf_counter()
        stats = log.compact(progress=report)
        return {
            "seconds": time.perf_counter() - started,
            "rounds": stats.rounds,
            "records_after": stats.records_after,
            "anonymous_bytes": peak - before,
        }


def keys(folder: Path, count: int, map_bytes: int) -> Figures:
    """Clean a log of `count` keys, a quarter of which are written a second time. Checks the result."""
    directory, again = folder / "keys-0", count // 4
    with _open(directory, segment_bytes=max(min(256 * _MIB, count), 1 << 16)) as log:
        for start in range(0, count + again, 1 << 20):
            numbers = np.arange(start, min(start + (1 << 20), count + again))
            _append(log, np.where(numbers < count, numbers, (numbers - count) * 4), _numbers(numbers))
        log.roll()
        log.append([(b"last", bytes(8), FIRST_TIMESTAMP)])
        size = log.size
    done = json.loads(run_in(None, _self("_keys", directory, str(map_bytes))))
    found = total = wrong = 0
    with _open(directory) as log:
        for columns in log.read(stop=count + again).columns(["offset", "key", "value"]):
            batch = pa.record_batch(columns)
            offset = batch.column(0).to_numpy()
            key, value = (_int64(batch.column(number)) for number in (1, 2))
            expected = np.where(offset < count, offset, (offset - count) * 4)
            wrong += int(np.count_nonzero((value != offset) | (key != expected)))
            found, total = found + len(value), total + int(value.sum())
    replaced = 4 * (again - 1) * again // 2  # the sum of the offsets whose keys were written again
    assert (found, wrong) == (count, 0), f"{found} records for {count} keys, {wrong} of them wrong"
    assert total == (count + again - 1) * (count + again) // 2 - replaced, "an older value has stayed"
    slots = map_bytes // 24
    done |= {"keys": count, "bytes": size, "map_bytes": map_bytes, "keys_a_round": slots * 9 // 10}
    done["records_a_second"] = (count + again) / done["seconds"]
    done["bytes_a_key"] = done["anonymous_bytes"] / min(count, done["keys_a_round"])
    return done


def _int64(column: pa.Array) -> np.ndarray:
    return np.frombuffer(column.buffers()[2], np.int64)[: len(column)]


# ---- live ------------------------------------------------------------------------------------------------------------


def _latencies(log: klog.Log, seconds: float, running: Callable[[], bool]) -> list[float]:
    """Append ten records of 100 bytes every two milliseconds, for `seconds` or while running() is true. Returns the
    seconds of each append."""
    records, taken = [(b"live-%d" % n, bytes(100), None) for n in range(10)], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end and running():
        started = time.perf_counter()
        log.append(records)
        taken.append(time.perf_counter() - started)
        time.sleep(0.002)
    return taken


def _cleaning(log: klog.Log, rate: float | None, stop: threading.Event) -> Iterator[None]:
    """Clean in this thread until the log is clean or `stop` is set. rate: most bytes a second; None: no limit."""
    throttle = None if rate is None else Throttle(rate, time.monotonic)
    done: dict[str, int] = {}

    def report(event: Event) -> None:
        size, done[event.stage] = event.done - done.get(event.stage, 0), event.done
        if stop.is_set():
            raise Stopped
        if throttle is not None and (wait := throttle.count(size)) > 0:
            time.sleep(wait)

    try:
        log.compact(progress=report)
    except Stopped:
        yield


def _beside(directory: Path, durability: str, rate: float | None, seconds: float) -> Figures:
    """Return the figures of appends to a log. rate: 0 without a cleaning, None during a cleaning without a throttle."""
    stop = threading.Event()
    with _open(directory, durability=durability) as log:
        cleaner = threading.Thread(target=lambda: list(_cleaning(log, rate, stop)))
        if rate != 0:
            cleaner.start()
        taken = _latencies(log, seconds, lambda: rate == 0 or cleaner.is_alive())
        stop.set()
        if rate != 0:
            cleaner.join()
        last = {record.key: record.offset for record in log.read(log.log_end_offset - 10)}
        assert len(last) == 10
    found = [float(np.percentile(taken, part)) for part in _PERCENTILES] if taken else [0.0] * len(_PERCENTILES)
    return {"appends": len(taken), **dict(zip(("p50", "p99", "max"), found, strict=True))}


def live(folder: Path, size: int, seconds: float, rate: float) -> Figures:
    """Return the figures for each durability: alone, during a cleaning without a throttle, and with one."""
    answer: Figures = {}
    for durability in ("os", "sync"):
        for name, bytes_a_second in (("alone", 0), ("unthrottled", None), ("throttled", rate)):
            directory = folder / "live-0"
            make_log(directory, size, max(size // 8, 1 << 16))
            answer[f"{durability} {name}"] = _beside(directory, durability, bytes_a_second, seconds)
            shutil.rmtree(directory)
    return answer


# ---- the table -------------------------------------------------------------------------------------------------------


def _self(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "bench.cleaner_limits", *map(str, arguments)]


def _rate(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e6:,.0f} MB/s"


def _lines(what: str, done: Figures) -> Iterator[str]:
    if what == "cgroup":
        rate = _rate(done["bytes"] / done["seconds"])
        yield f"{done['bytes'] / 1e9:.2f} GB in {done['seconds']:.1f} s: {rate} of input"
        for stage, rates in done["quarters"].items():
            ratio = done["last_over_first"][stage]
            yield f"  {stage:<6} by quarters {', '.join(map(_rate, rates))}; last over first {ratio:.2f}"
        before, after = done["active_cached"]
        yield f"  of the active segment's {done['active_bytes']:,} bytes in memory: {before:,}, then {after:,}"
        if done["over_plain"] is not None:
            yield f"  of the speed of a plain loop over the same bytes in the same group: {done['over_plain']:.2f}"
        yield f"  needs: {done['needs']}" if "needs" in done else f"  most memory of the group: {done['peak']:,} bytes"
    elif what == "keys":
        yield (
            f"{done['keys']:,} keys, {done['bytes'] / 1e9:.2f} GB, a map of {done['map_bytes'] / _MIB:,.0f} MiB: "
            f"{done['rounds']} rounds, {done['seconds']:.1f} s, {done['records_a_second']:,.0f} records/s"
        )
        yield f"  {done['anonymous_bytes'] / _MIB:,.0f} MiB of memory, {done['bytes_a_key']:.1f} bytes a key of a round"
    else:
        yield f"{'appends of 10 records':<24}{'number':>8}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}"
        for name, figures in done.items():
            cells = "".join(f"{figures[name] * 1e3:10.3f}" for name in ("p50", "p99", "max"))
            yield f"{name:<24}{figures['appends']:>8}{cells}"


def main(arguments: list[str]) -> int:
    if arguments and arguments[0].startswith("_"):
        what, directory, *more = arguments
        work = {"_clean": clean_once, "_copy": copy_once, "_keys": clean_keys}[what]
        print(json.dumps(work(Path(directory), *map(int, more))))
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m bench.cleaner_limits", description="the cleaner under tight limits"
    )
    parser.add_argument("what", choices=("cgroup", "keys", "live"))
    parser.add_argument("--directory", type=Path, help="where its files are made and removed")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--size", type=int, help="bytes of the log: 8 GiB (cgroup), 1 GiB (live)")
    parser.add_argument("--limit", type=int, default=2 << 30, help="bytes of the cgroup")
    parser.add_argument("--records", type=int, default=100_000_000, help="keys (keys)")
    parser.add_argument("--map", type=int, default=1 << 30, help="bytes of the map (keys)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of appends (live)")
    parser.add_argument("--rate", type=float, default=64 * _MIB, help="bytes a second of the throttle (live)")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="klog-limits-", dir=asked.directory) as folder:
        if asked.what == "cgroup":
            done = cgroup(Path(folder), asked.size or 8 << 30, asked.limit)
        elif asked.what == "keys":
            done = keys(Path(folder), asked.records, asked.map)
        else:
            done = live(Path(folder), asked.size or 1 << 30, asked.seconds, asked.rate)
    print("\n".join(_lines(asked.what, done)))
    if asked.json:
        asked.json.write_text(json.dumps(done, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
