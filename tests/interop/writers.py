"""Log directories that klog writes for Kafka to check, with every record that was appended.

Each writer takes an empty directory and returns what it appended, per topic, in order. All are small and seeded: the
same bytes in every run, except `killed`, whose log ends where the signal occurred.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import klog
from klog import Record
from klog.clock import ManualClock

START_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER_NAMES = ("trace", "", "Grüße", "0", "a header name of some length, so that its varint takes more than it needs")


@dataclass
class Written:
    """One log.dir: `topics` maps a topic to the records appended to partition 0, `config` to its settings."""

    directory: Path
    topics: dict[str, list[Record]] = field(default_factory=dict)
    config: dict[str, dict[str, object]] = field(default_factory=dict)
    stamped: set[str] = field(default_factory=set)  # topics with LogAppendTime
    now_ms: int = START_MS

    def partition(self, topic: str) -> Path:
        return self.directory / f"{topic}-0"


def records_of_every_shape(count: int, seed: int, *, value_bytes: int = 120) -> list[Record]:
    """Null, empty, binary and text keys and values; 0 to 5 headers; timestamps equal, falling, ahead, zero, none."""
    pick = random.Random(seed)
    made = []
    for number in range(count):
        key = pick.choice([None, b"", b"key-%d" % (number % 7), pick.randbytes(pick.randrange(1, 40))])
        value = pick.choice(
            [
                None,
                b"",
                b"plain text %d " % number * 3,
                pick.randbytes(pick.randrange(1, value_bytes)),
                b"x" * pick.randrange(1, 4 * value_bytes),
                "déjà vu ✓".encode(),
            ]
        )
        headers = [
            (pick.choice(HEADER_NAMES), pick.choice([None, b"", pick.randbytes(5)]))
            for _ in range(pick.choice([0, 0, 1, 5]))
        ]
        drift = pick.choice([0, 0, 1, 17, -5000, 1_800_000])  # an hour ahead is message.timestamp.after.max.ms
        timestamp = pick.choice([START_MS + number * 10 + drift] * 8 + [0, START_MS])
        made.append(Record(key=key, value=value, timestamp=timestamp, headers=headers))
    return made


def _append(log: klog.Log, written: Written, topic: str, records: list[Record], compression: object) -> None:
    log.append(records, compression=compression)
    written.topics.setdefault(topic, []).extend(records)


def codecs(directory: Path) -> Written:
    """One topic per codec, and one that changes codec from append to append; batches of 1 to 3000 records."""
    written = Written(directory)
    with klog.open(directory, create=True, clock=ManualClock(START_MS)) as logs:
        for index, codec in enumerate((*CODECS, "mixed")):
            topic = f"codec-{codec}"
            settings: dict[str, object] = {"index.interval.bytes": 512, "retention.ms": -1}
            logs.create_topic(topic, config=settings)
            written.config[topic] = settings
            for part, count in enumerate((1, 2, 40, 3000, 1, 200)):
                batch_codec = CODECS[part % len(CODECS)] if codec == "mixed" else codec
                made = records_of_every_shape(count, 1000 * index + part)
                _append(logs.log(topic), written, topic, made, None if batch_codec == "none" else batch_codec)
    return written


def levels(directory: Path) -> Written:
    """The lowest and the highest level of each codec with levels, over compressible and incompressible bytes."""
    written = Written(directory)
    with klog.open(directory, create=True, clock=ManualClock(START_MS)) as logs:
        settings: dict[str, object] = {"retention.ms": -1}
        logs.create_topic("levels", config=settings)
        written.config["levels"] = settings
        for seed, compression in enumerate(
            (("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 17), ("zstd", -5), ("zstd", 19))
        ):
            made = records_of_every_shape(300, 77 + seed)
            _append(logs.log("levels"), written, "levels", made, compression)
    return written


def segments(directory: Path) -> Written:
    """Rolled by size, by a full index and by time; index entries for every batch, for few, and for none."""
    written = Written(directory)
    shapes: dict[str, dict[str, object]] = {
        "by-size": {"internal.segment.bytes": 4096, "index.interval.bytes": 100},
        "every-batch": {"internal.segment.bytes": 16384, "index.interval.bytes": 0},
        "index-full": {"segment.index.bytes": 96, "index.interval.bytes": 64},
        "by-time": {"segment.ms": 1000, "index.interval.bytes": 300},
        "no-entries": {"index.interval.bytes": 1 << 20},
        "preallocated": {"internal.segment.bytes": 8192, "preallocate": "true", "index.interval.bytes": 200},
    }
    clock = ManualClock(START_MS)
    with klog.open(directory, create=True, clock=clock) as logs:
        for seed, (topic, shape) in enumerate(shapes.items()):
            settings = {**shape, "retention.ms": -1}
            logs.create_topic(topic, config=settings)
            written.config[topic] = settings
            made = records_of_every_shape(420, 500 + seed, value_bytes=60)
            for begin in range(0, len(made), 7):
                codec = CODECS[begin // 7 % 5] if topic == "every-batch" else None
                _append(logs.log(topic), written, topic, made[begin : begin + 7], None if codec == "none" else codec)
                clock.advance(3000)
        written.now_ms = START_MS + len(shapes) * 60 * 3000
    return written


def append_time(directory: Path) -> Written:
    """LogAppendTime, with and without codecs."""
    written = Written(directory)
    clock = ManualClock(START_MS)
    settings: dict[str, object] = {
        "message.timestamp.type": "LogAppendTime",
        "internal.segment.bytes": 6000,
        "index.interval.bytes": 200,
        "retention.ms": -1,
    }
    with klog.open(directory, create=True, clock=clock) as logs:
        logs.create_topic("stamped", config=settings)
        written.config["stamped"] = settings
        written.stamped.add("stamped")
        for part, codec in enumerate((None, "gzip", "snappy", "lz4", "zstd", None) * 3):
            _append(logs.log("stamped"), written, "stamped", records_of_every_shape(12, 900 + part), codec)
            clock.advance(250)
    written.now_ms = START_MS + 18 * 250
    return written


def big(directory: Path) -> Written:
    """Values of a megabyte and more, alone in a batch and with small ones; a segment smaller than one append."""
    written = Written(directory)
    pick = random.Random(4)
    settings: dict[str, object] = {
        "max.message.bytes": 4_000_000,
        "internal.segment.bytes": 5_000_000,
        "retention.ms": -1,
    }
    with klog.open(directory, create=True, clock=ManualClock(START_MS)) as logs:
        logs.create_topic("big", config=settings)
        written.config["big"] = settings
        for codec in (None, "gzip", "snappy", "lz4", "zstd"):
            values = [pick.randbytes(1 << 20), b"y" * (2 << 20), b"small", pick.randbytes(70_000)]
            made = [Record(key=b"k%d" % n, value=value, timestamp=START_MS + n) for n, value in enumerate(values)]
            _append(logs.log("big"), written, "big", made, codec)
    return written


def sessions(directory: Path) -> Written:
    """Opened, appended to and closed five times; an empty topic, and one that only was flushed and rolled."""
    written = Written(directory)
    settings: dict[str, object] = {"internal.segment.bytes": 8192, "index.interval.bytes": 256, "retention.ms": -1}
    clock = ManualClock(START_MS)
    with klog.open(directory, create=True, clock=clock) as logs:
        for topic in ("reopened", "empty", "rolled"):
            logs.create_topic(topic, config=settings)
            written.config[topic] = settings
            written.topics[topic] = []
    for session in range(5):
        with klog.open(directory, clock=clock, durability="sync" if session == 3 else "os") as logs:
            for part in range(4):
                made = records_of_every_shape(9, 10 * session + part)
                _append(logs.log("reopened"), written, "reopened", made, "lz4" if part % 2 else None)
            if session == 2:
                _append(logs.log("rolled"), written, "rolled", records_of_every_shape(3, 321), None)
                logs.log("rolled").flush()
                logs.log("rolled").roll()
    return written


KILLED_PROGRAM = """
import sys
import klog
from klog.clock import ManualClock
from tests.interop.writers import START_MS, records_of_every_shape
logs = klog.open(sys.argv[1], create=True, clock=ManualClock(START_MS))
settings = {"internal.segment.bytes": 65536, "index.interval.bytes": 400, "retention.ms": -1}
logs.create_topic("killed", config=settings)
log = logs.log("killed")
for part in range(100_000):
    info = log.append(records_of_every_shape(25, part), compression=[None, "lz4", "zstd"][part % 3])
    print(info.last_offset, flush=True)
"""
KILLED_SETTINGS: dict[str, object] = {"internal.segment.bytes": 65536, "index.interval.bytes": 400, "retention.ms": -1}


def run_until_killed(directory: Path, after_appends: int) -> int:
    """A process appends without end; SIGKILL after this many acknowledgements. Returns the last acknowledged offset."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_PROGRAM, str(directory)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    acknowledged = -1
    try:
        for count, line in enumerate(process.stdout, 1):
            acknowledged = int(line)
            if count == after_appends:
                break
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")[:-1]
        acknowledged = max([acknowledged, *(int(line) for line in rest if line)])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert acknowledged >= 0, "the writer ended before its first append"
    return acknowledged


def killed(directory: Path) -> Written:
    """A writer gets SIGKILL, klog reopens the directory (recovering it) and closes it."""
    acknowledged = run_until_killed(directory, after_appends=120)
    written = Written(directory)
    written.config["killed"] = KILLED_SETTINGS
    with klog.open(directory, clock=ManualClock(START_MS)) as logs:
        end = logs.log("killed").log_end_offset
        assert end > acknowledged, "an acknowledged record is missing"
        everything = [record for part in range(end // 25) for record in records_of_every_shape(25, part)]
        assert end % 25 == 0, "half an append is visible although each was one batch"
        written.topics["killed"] = everything
    return written


WRITERS: dict[str, Callable[[Path], Written]] = {
    writer.__name__: writer for writer in (codecs, levels, segments, append_time, big, sessions, killed)
}
