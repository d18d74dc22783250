"""klog's log beside Kafka's own engine in one warm JVM, over the same files and the same batches (jvm/KafkaLog.java).

    open        1,000 partitions of 64 KiB, and one partition of many segments, after a clean stop: klog by its manager,
                which also loads the files of the log.dir; Kafka by UnifiedLog.create of each partition
    recover     the same loaders after a crash: they check every checksum and rebuild both indexes
    translate   an offset to the position of its batch: search the index, then read headers from its entry on

Both use one thread, with everything in the page cache and without fsync. The JVM measures Kafka's time itself.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import klog
from bench.contest import Contest, Contestant, Factory
from bench.kafka_loop import KafkaJvm
from bench.log_contests import read_all
from bench.workloads import Tuple, workload
from klog.segment import HeaderIterator

SEGMENT_BYTES = 64 << 20
_BATCH_RECORDS = 132  # 16 KiB of values of 100 bytes
_CONFIG = {"retention.ms": -1}


def _batches(tuples: list[Tuple]) -> list[list[Tuple]]:
    """Return the records in groups of 16 KiB, as clients send them."""
    return [tuples[start : start + _BATCH_RECORDS] for start in range(0, len(tuples), _BATCH_RECORDS)]


class Opened:
    """A log.dir that klog and Kafka open alternately, never both at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "logs"
        self._logs: klog.LogManager | None = None

    def close(self) -> None:
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def open(self) -> int:
        """Open the directory and load every log. Returns the sum of their log end offsets."""
        self._logs = klog.open(self.path)
        return sum(log.log_end_offset for log in self._logs.logs())


def fill_partitions(root: Path, partitions: int, segments: int, segment_bytes: int) -> int:
    """Write partitions of 64 KiB, or of many segments, and close them. Returns the log end offset, the same in all."""
    batch = workload("100B", tiny=False).tuples()[:_BATCH_RECORDS]
    times = segments if segments > 1 else 4
    with klog.open(root, create=True) as logs:
        for number in range(partitions):
            logs.create_topic(f"t{number:05}", config={**_CONFIG, "segment.bytes": segment_bytes})
            _fill(logs.log(f"t{number:05}"), batch, times)
    return times * len(batch)


def _open(name: str, partitions: int, segments: int, folder: Path, *, segment_bytes: int, goal: float) -> Contest:
    opened, jvm = Opened(folder), KafkaJvm("KafkaLog", str(SEGMENT_BYTES))
    end = fill_partitions(opened.path, partitions, segments, segment_bytes)

    def check() -> None:
        assert jvm.warm_up(f"open {opened.path} {end}").records == partitions
        assert opened.open() == partitions * end
        with klog.open(opened.path, read_only=True) as logs:
            assert sum(len(log.segments) for log in logs.logs()) == partitions * segments
        opened.close()

    return jvm.contest(
        name,
        partitions * segments,
        0,
        (
            Contestant("klog.open, every log loaded", opened.open, before=opened.close, goal=goal),
            jvm.contestant("UnifiedLog.create", f"open {opened.path} {end}", before=opened.close),
        ),
        check,
        opened.close,
    )


def _fill(log: klog.Log, batch: list[Tuple], times: int) -> None:
    for _ in range(times):
        log.append(batch)


def _recover(tiny: bool, folder: Path) -> Contest:
    directory = folder / "logs" / "recover-0"
    directory.parent.mkdir()
    config = {**_CONFIG, "segment.bytes": SEGMENT_BYTES}
    load = workload("100B", tiny=False)
    batches, times = _batches(load.tuples()), 1 if tiny else 256
    with klog.Log.open(directory, config=config) as log:
        for _ in range(times):
            for batch in batches:
                log.append(batch)
        size, end = log.size, log.log_end_offset
    jvm = KafkaJvm("KafkaLog", str(SEGMENT_BYTES))
    state: dict[str, klog.Log] = {}

    def recover() -> None:
        state["log"] = klog.Log.open(directory, config=config, clean_shutdown=False, recovery_point=0)

    def close() -> None:
        if "log" in state:
            state.pop("log").close()

    def check() -> None:
        answer = jvm.warm_up(f"recover {directory.parent} {end}")
        assert (answer.records, answer.bytes) == (1, size)
        recover()
        log = state["log"]
        assert (log.log_end_offset, log.recovery.bytes_scanned, log.recovery.bytes_truncated) == (end, size, 0)
        close()

    return jvm.contest(
        "kafka recover 100B",
        end,
        size,
        (
            Contestant("klog Log.open after a crash", recover, before=close, goal=4),
            jvm.contestant("UnifiedLog.create", f"recover {directory.parent} {end}", before=close),
        ),
        check,
        close,
        Contestant("pread loop, 1 MiB", lambda: read_all(directory)),
    )


def _translate(name: str, batch_records: int, tiny: bool, folder: Path) -> Contest:
    """Translate random offsets of one segment, whose index is in the caches."""
    directory, count = folder / "translate-0", 64 if tiny else 4096
    batch = workload("100B", tiny=False).tuples()[:batch_records]
    times = 1 if tiny else (32 << 20) // (len(batch) * 124 + 61)
    log = klog.Log.open(directory, config={**_CONFIG, "segment.bytes": 1 << 30})
    _fill(log, batch, times)
    log.close()
    copy = folder / "copy" / "translate-0"
    shutil.copytree(directory, copy)
    jvm = KafkaJvm("KafkaLog", str(1 << 30))
    log = klog.Log.open(directory, config={**_CONFIG, "segment.bytes": 1 << 30})
    (segment,) = log.segments
    chance = random.Random(count)
    offsets = [chance.randrange(log.log_end_offset) for _ in range(count)]

    def look_up() -> None:
        for offset in offsets:
            segment.locate(offset)

    def check() -> None:
        assert jvm.warm_up(f"translate {copy} {count}").records == count
        positions = {header.base_offset: header.position for header in _headers(log)}
        for offset in offsets[:64]:
            header = segment.locate(offset)
            assert header is not None
            assert header.base_offset == offset - offset % len(batch)
            assert positions[header.base_offset] == header.position

    return jvm.contest(
        f"kafka translate {name}",
        count,
        0,
        (
            Contestant("klog offset -> batch", look_up, goal=4),
            jvm.contestant("translateOffset", f"translate {copy} {count}"),
        ),
        check,
        log.close,
    )


def _headers(log: klog.Log) -> HeaderIterator:
    (segment,) = log.segments
    return HeaderIterator(segment.file, 0, segment.size)


FACTORIES: dict[str, Factory] = {
    "kafka open partitions": lambda tiny, folder: _open(
        "kafka open partitions", 4 if tiny else 1000, 1, folder, segment_bytes=SEGMENT_BYTES, goal=4
    ),
    "kafka open segments": lambda tiny, folder: _open(
        "kafka open segments", 1, 10 if tiny else 10_000, folder, segment_bytes=20_000, goal=3
    ),
    "kafka recover 100B": _recover,
    "kafka translate 16KiB": lambda tiny, folder: _translate("16KiB", _BATCH_RECORDS, tiny, folder),
    "kafka translate 4KiB": lambda tiny, folder: _translate("4KiB", 33, tiny, folder),
    "kafka translate 100B": lambda tiny, folder: _translate("100B", 1, tiny, folder),
}
