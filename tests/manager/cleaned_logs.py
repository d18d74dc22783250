"""Small topics for the background cleaner, under a manual clock, and checks of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.log.directory import checkpoint

NOW = 1_700_000_000_000
BACKOFF_MS = 15_000
CONFIG: dict[str, Any] = {
    "cleanup.policy": "compact",
    "segment.bytes": 16384,
    "segment.index.bytes": 1024,
    "index.interval.bytes": 256,
    "max.message.bytes": 4096,
    "delete.retention.ms": 1000,
    "file.delete.delay.ms": 0,
}
BROKER: dict[str, Any] = {"log.cleaner.dedupe.buffer.size": 1 << 20}


def opened(directory: Path, clock: Any, config: dict[str, Any] | None = None, **more: Any) -> klog.LogManager:
    return klog.open(directory, create=True, clock=clock, config={**BROKER, **(config or {})}, **more)


def topic(logs: klog.LogManager, name: str, **config: Any) -> klog.Log:
    logs.create_topic(name, config={**CONFIG, **{key.replace("_", "."): value for key, value in config.items()}})
    return logs.log(name)


def dirty(log: klog.Log, *, rounds: int = 4, keys: int = 5, value: bytes = b"v") -> None:
    """Write a closed segment with repeated keys, and records in the active segment after it."""
    for number in range(rounds):
        log.append([(b"key-%d" % key, b"%s-%d" % (value, number)) for key in range(keys)])
    log.roll()
    log.append([(b"active", b"x")])


def values(log: klog.Log) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in log.read(isolation="log_end")]


def first_dirty(log: klog.Log) -> int | None:
    return checkpoints(Path(log.path).parent).get((log.topic, log.partition))


def checkpoints(directory: Path) -> dict[tuple[str, int], int]:
    return checkpoint.read_offsets(str(directory / checkpoint.CLEANER))


def is_clean(log: klog.Log) -> bool:
    """Whether each key of the closed segments occurs once."""
    end = log.segments[-1].base_offset
    keys = [record.key for record in log.read(isolation="log_end") if record.offset < end]
    return len(keys) == len(set(keys))


def pass_time(clock: ManualClock, times: int = 1) -> None:
    for _ in range(times):
        clock.advance(BACKOFF_MS)
