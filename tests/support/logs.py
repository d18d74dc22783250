"""Small logs for tests: opened in one line, read back as plain tuples."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import klog
from klog.clock import Clock, ManualClock

Row = tuple[int, bytes | None, bytes | None, int]
NOW = 1_700_000_000_000


@contextmanager
def one_log(path: Path, clock: Clock | None = None, /, topic: str = "events", **config: Any) -> Iterator[klog.Log]:
    """The log of partition 0 of a topic of the log.dir, both created if missing. Config in snake_case."""
    with klog.open(path, create=True, clock=clock or ManualClock(NOW)) as logs:
        if topic not in logs.topics():
            logs.create_topic(topic, config=config)
        yield logs.log(topic)


def rows(log: klog.Log, *args: Any, **options: Any) -> list[Row]:
    return [(record.offset, record.key, record.value, record.timestamp) for record in log.read(*args, **options)]


def values(log: klog.Log, *args: Any, **options: Any) -> list[bytes | None]:
    return [record.value for record in log.read(*args, **options)]


def settle() -> None:
    """Wait until the file system's clock has advanced. Before that, a reader cannot tell from the times of a file that
    it is unchanged."""
    time.sleep(0.02)


def bases(log: klog.Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def tree(path: Path) -> dict[str, bytes | str]:
    """Every file below a directory with its bytes, symlinks with their target."""
    return {
        str(file.relative_to(path)): str(file.readlink()) if file.is_symlink() else file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_symlink() or file.is_file()
    }


WHERE = ("of the writer", "beside it")


@contextmanager
def seen(opened: Any, where: str) -> Iterator[Any]:
    """A log or manager as a reader in one of WHERE has it: the writer's own, or another one that is read-only."""
    if where == WHERE[0]:
        yield opened
        return
    again = klog.Log.open if isinstance(opened, klog.Log) else klog.open
    with again(opened.path, read_only=True) as beside:
        yield beside
