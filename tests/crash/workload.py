"""What the crash tests do to a log.dir, and what must be true of it afterwards.

The expectation lives outside the engine: the list of values in the order of append, how many of them append() has
acknowledged, how many flush() or close() has promised to survive a power cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import klog
from klog.clock import ManualClock
from klog.disk import Files
from tests.support.abandon import abandon

TOPIC = "events"
CONFIG = {"segment.bytes": 700, "segment.index.bytes": 200, "index.interval.bytes": 100, "cleanup.policy": "delete"}


@dataclasses.dataclass
class Expected:
    """values: every value handed to append, in order. acknowledged, durable: how many of them append(), and flush() or
    close() after it, have returned for."""

    values: list[bytes] = dataclasses.field(default_factory=list)
    acknowledged: int = 0
    durable: int = 0


def open_logs(path: Path, files: Files | None = None, **options: object) -> klog.LogManager:
    return klog.open(path, create=True, files=files, clock=ManualClock(), **options)


def steps(
    path: Path,
    files: Files,
    expected: Expected,
    durability: str,
    policy: Mapping[str, object] | None = None,
    value_bytes: int = 47,
) -> Iterator[None]:
    """A writer's life, one operation per step: appends that roll, flushes, a clean stop, a start, more appends.

    policy: klog.io.* keys of the topic.
    """
    serial = 0
    for life in range(2):
        logs = open_logs(path, files, durability=durability)
        try:
            if TOPIC not in logs.topics():
                logs.create_topic(TOPIC, config={**CONFIG, **(policy or {})})
            log = logs.log(TOPIC)
            yield
            for size in (1, 3, 1, 12, 2, 1, 6):
                values = [b"%06d:" % (serial + i) + b"x" * (value_bytes - 7) for i in range(size)]
                serial += size
                expected.values += values
                log.append([(b"k", value) for value in values], compression="lz4" if size == 12 else None)
                expected.acknowledged = len(expected.values)
                if durability == "sync":
                    expected.durable = expected.acknowledged
                yield
                if size in (3, 6):
                    log.flush()
                    expected.durable = expected.acknowledged
                    yield
            if life == 0:
                log.roll()
                yield
            logs.close()
            expected.durable = expected.acknowledged
            yield
        finally:
            abandon(logs)


def check(path: Path, expected: Expected, at_least: int, **options: object) -> int:
    """Open what is there: a prefix of what was appended, batch by batch, holding at least `at_least` values; then the
    log works on. Returns how many values there were."""
    with open_logs(path, **options) as logs:
        if TOPIC not in logs.topics():
            assert at_least == 0, "the topic is gone"
            return 0
        log = logs.log(TOPIC)
        found = [record.value for record in log.read()]
        assert found == expected.values[: len(found)], "not a prefix of what was appended"
        assert len(found) >= at_least, f"{len(found)} values left of {at_least} promised"
        assert log.count() == len(found) == log.log_end_offset
        for offset in range(0, len(found), 5):
            assert next(iter(log.read(offset))).value == expected.values[offset]
        info = log.append([(None, b"after")])
        assert info.first_offset == len(found)
    with open_logs(path) as logs:
        log = logs.log(TOPIC)
        assert log.recovery.clean_shutdown
        assert [record.value for record in log.read()] == [*found, b"after"]
    return len(found)
