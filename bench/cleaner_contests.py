"""klog's compaction beside Kafka's own cleaner in a warm JVM, over the same files (jvm/KafkaCleaner.java).

The log has ten records of each key, batches of 16 KiB, four closed segments, and an active one with a single record.
One round cleans all closed segments: it reads every record, leaves out nine of ten, and writes and syncs the rest. Each
measurement begins with the same directory; its segments are links to the same files, whose pages stay in memory.
Opening and closing the log is not measured. Both cleaners have a map of 128 MiB, one thread and no throttle. A cleaning
reads everything twice, so for compressed batches the limit is decompressing twice.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import lz4.frame

import klog
from bench.contest import Contest, Contestant, Factory
from bench.kafka_loop import VERSION, KafkaJvm
from bench.workloads import FIRST_TIMESTAMP, Tuple, copies, cycling, memcpy, noise, workload
from klog import record

_MAP_BYTES = 128 << 20
_BATCH_BYTES = 16_384
_HEADER_BYTES = 61
_COPIES_OF_A_KEY = 10
_WARM_UP_CLEANINGS = 3
_COPY_BYTES = 1 << 20


def _chunks(name: str, count: int) -> Iterator[list[Tuple]]:
    """Yield `count` records over a tenth as many keys, in random order, some thousand at a time."""
    load = workload(name, tiny=False)
    chance, values = random.Random(f"{name}/{count}"), [value for _, value, _ in load.tuples()]
    keys = [b"k%08d" % number for number in range(count // _COPIES_OF_A_KEY)] * _COPIES_OF_A_KEY
    chance.shuffle(keys)
    for start in range(0, len(keys), len(values)):
        some = keys[start : start + len(values)]
        yield [(key, values[n], FIRST_TIMESTAMP + start + n) for n, key in enumerate(some)]


class _Dirty:
    """A directory that can be cleaned any number of times."""

    def __init__(self, name: str, compression: str | None, bytes_wanted: int, folder: Path) -> None:
        value_bytes = workload(name, tiny=False).value_bytes
        self.keys = bytes_wanted // (value_bytes + 16) // _COPIES_OF_A_KEY
        self.config: dict[str, object] = {
            "cleanup.policy": "compact",
            "internal.segment.bytes": max(bytes_wanted // 4, 2 * _BATCH_BYTES),
            "max.message.bytes": _BATCH_BYTES,
            "retention.ms": -1,
            "log.cleaner.threads": 1,
            "log.cleaner.dedupe.buffer.size": _MAP_BYTES,
        }
        self._source = folder / "dirty" / "dirty-0"
        self._source.parent.mkdir()
        with klog.Log.open(self._source, config=self.config) as log:
            for chunk in _chunks(name, self.keys * _COPIES_OF_A_KEY):
                log.append(chunk, compression=compression)
            log.roll()
            self.size, self.records = log.size, log.log_end_offset
            log.append([(b"last", b"", FIRST_TIMESTAMP)])
            self.end = log.log_end_offset

    def fresh(self, at: Path) -> Path:
        """Restore the directory at `at` and return it: links to the files that no cleaner writes to, copies of the
        rest."""
        shutil.rmtree(at.parent, ignore_errors=True)
        at.mkdir(parents=True)
        for path in self._source.iterdir():
            if path.suffix == ".log" and path.stat().st_size > _BATCH_BYTES:
                os.link(path, at / path.name)
            else:
                shutil.copy2(path, at)
        return at

    def payloads(self) -> list[bytes]:
        """Return the payloads of all compressed batches, as stored."""
        batches = [batch for log in self._source.glob("*.log") for batch in record.decode(log.read_bytes())]
        return [bytes(batch.raw[_HEADER_BYTES:]) for batch in batches if batch.compression != "none"]


def _records(directory: Path) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {
        each.offset: (each.key, each.value)
        for path in sorted(directory.glob("*.log"))
        for each in record.iter_records(path.read_bytes())
    }


def _compact(name: str, compression: str | None, tiny: bool, folder: Path, *, goal: float | None = None) -> Contest:
    dirty = _Dirty(name, compression, (1 << 18) if tiny else (128 << 20), folder)
    mine, theirs = folder / "klog" / "dirty-0", folder / "kafka" / "dirty-0"
    kafka = KafkaJvm("KafkaCleaner", str(dirty.config["internal.segment.bytes"]), str(_MAP_BYTES))
    state: dict[str, klog.Log] = {}

    def close() -> None:
        if "log" in state:
            state.pop("log").close()

    def before() -> None:
        close()
        state["log"] = klog.Log.open(
            dirty.fresh(mine), config=dirty.config, clean_shutdown=True, recovery_point=dirty.end
        )

    def run() -> float:
        started = time.perf_counter()
        stats = state["log"].compact(rounds=1)
        seconds = time.perf_counter() - started
        assert (stats.records_after, stats.first_dirty_offset) == (dirty.keys + 1, dirty.records)
        return seconds

    def ask() -> float:
        answer = kafka.ask(f"clean {theirs} {dirty.end}")
        assert (answer.records, answer.bytes) == (dirty.records, dirty.size)
        return answer.seconds

    def check() -> None:
        for _ in range(_WARM_UP_CLEANINGS):
            dirty.fresh(theirs)
            ask()
        before()
        run()
        close()
        logs = sorted(path.name for path in theirs.glob("*.log"))
        assert logs == sorted(path.name for path in mine.glob("*.log"))
        if compression is None:
            assert all((mine / log).read_bytes() == (theirs / log).read_bytes() for log in logs)
        else:
            assert _records(mine) == _records(theirs)

    payloads = [] if compression is None else dirty.payloads()

    def decompress_twice() -> None:
        for _ in range(2):
            for payload in payloads:
                lz4.frame.decompress(payload)

    copy_next = cycling(memcpy(_COPY_BYTES), copies(noise(_COPY_BYTES)))

    def copy_all() -> None:
        for _ in range(max(1, dirty.size // _COPY_BYTES)):
            copy_next()

    return kafka.contest(
        f"kafka compact {compression or 'none'} {name}",
        dirty.records,
        dirty.size,
        (
            Contestant("klog Log.compact", run, before=before, own_clock=True, goal=goal),
            Contestant(f"Kafka {VERSION} Cleaner", ask, before=lambda: dirty.fresh(theirs), own_clock=True),
        ),
        check,
        close,
        Contestant("lz4 alone, twice", decompress_twice) if payloads else Contestant("memcpy", copy_all),
    )


FACTORIES: dict[str, Factory] = {
    "kafka compact none 100B": lambda tiny, folder: _compact("100B", None, tiny, folder, goal=8),
    "kafka compact none 1KiB": lambda tiny, folder: _compact("1KiB", None, tiny, folder, goal=3),
    "kafka compact lz4 100B": lambda tiny, folder: _compact("100B", "lz4", tiny, folder),
    "kafka compact lz4 1KiB": lambda tiny, folder: _compact("1KiB", "lz4", tiny, folder),
}
