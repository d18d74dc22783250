"""Small logs to clean, and checks that hold before, during and after a cleaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from tests.support.abandon import abandon
from tests.support.crash_files import CrashFiles
from tests.support.damage import flip

CONFIG: Mapping[str, Any] = {
    "cleanup.policy": "compact",
    "segment.bytes": 16384,
    "segment.index.bytes": 1024,
    "index.interval.bytes": 256,
    "max.message.bytes": 4096,
    "delete.retention.ms": 1000,
}
NOW = 1_700_000_000_000


def open_log(directory: Path, *, clock: ManualClock | None = None, files: Any = None, **more: Any) -> klog.Log:
    config = {**CONFIG, **more.pop("config", {})}
    directory.parent.mkdir(parents=True, exist_ok=True)
    return klog.Log.open(directory, config=config, clock=clock or ManualClock(NOW), files=files or RealFiles(), **more)


def append(log: klog.Log, pairs: Iterable[tuple[bytes | None, bytes | None]], batch: int = 3, **more: Any) -> None:
    """Append the records in batches of a few."""
    pairs = list(pairs)
    for start in range(0, len(pairs), batch):
        log.append([(key, value, NOW) for key, value in pairs[start : start + batch]], **more)


def latest(log: klog.Log) -> dict[bytes, bytes | None]:
    """The state of a reader after the whole log: the latest value of each key."""
    return {record.key: record.value for record in log.read(isolation="log_end")}


def values(log: klog.Log) -> dict[bytes, bytes]:
    """The same as latest(), with tombstones applied."""
    return {key: value for key, value in latest(log).items() if value is not None}


def offsets(log: klog.Log) -> list[int]:
    return [record.offset for record in log.read(isolation="log_end", include_control=True)]


def fill(log: klog.Log, *, keys: int = 10, segments: int = 3, records: int = 45) -> None:
    """Write closed segments that repeat the same keys, and an active segment."""
    number = 0
    for _ in range(segments):
        append(log, [(b"key-%d" % ((number + i) % keys), b"value-%d" % (number + i)) for i in range(records)])
        number += records
        log.roll()
    append(log, [(b"key-1", b"newest"), (b"last", b"in the active segment")])


def damage(log: klog.Log, segment: int = 1) -> Path:
    """Flip one bit of a record in a segment that fill() has written. Returns the file."""
    path = Path(log.segments[segment].path)
    path.write_bytes(flip(path.read_bytes(), 300))
    return path


def done_in(directory: Path, act: Callable[[klog.Log], object], files: CrashFiles | None = None, **more: Any) -> None:
    """Open a log, run the function on it and close it.

    If the function raises while the files are CrashFiles, the log is not closed, as if the process had died."""
    log = open_log(directory, files=files, **more)
    try:
        act(log)
    except BaseException:
        abandon(log)
        raise
    if files is not None:
        abandon(log)
    else:
        log.close()
