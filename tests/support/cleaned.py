"""The result of cleaning a partition directory as comparable values, and the model's result for the same directory."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.record import RecordBatch, decode
from tests.support.cleaner_reference import AbortedTransaction, Cleaned, Kept, Source, Task
from tests.support.dirty_logs import Plan
from tests.support.golden import Differences

_ENTRY = struct.Struct(">II")
_ABORTED = struct.Struct(">hqqqq")


def batches_of(path: Path) -> list[RecordBatch]:
    return list(decode(path.read_bytes(), path=str(path)))


def kept_in(path: Path) -> list[Kept]:
    """The batches of a .log file, as the model describes them."""
    return [
        Kept(batch.base_offset, batch.last_offset, tuple(record.offset for record in batch), batch.delete_horizon_ms)
        for batch in batches_of(path)
    ]


def aborted_in(path: Path) -> list[AbortedTransaction]:
    """The entries of a .txnindex file, none if there is no file."""
    data = path.read_bytes() if path.exists() else b""
    assert len(data) % _ABORTED.size == 0
    return [(entry[1], entry[2], entry[3], entry[4]) for entry in _ABORTED.iter_unpack(data)]


def index_of(path: Path, base_offset: int) -> list[tuple[int, int]]:
    """The entries of a closed segment's .index file: offset and position."""
    data = path.read_bytes() if path.exists() else b""
    return [(base_offset + offset, position) for offset, position in _ENTRY.iter_unpack(data)]


def open_planned(
    directory: Path, plan: Plan, config: Mapping[str, object], clock: ManualClock | None = None
) -> klog.Log:
    """Open the log as a planned cleaning needs it."""
    return klog.Log.open(
        directory,
        config={
            **config,
            "file.delete.delay.ms": 0,
            "log.cleaner.threads": 1,
            "log.cleaner.dedupe.buffer.size": 24 * plan.slots,
            "log.cleaner.io.buffer.load.factor": plan.load_factor,
            "log.cleaner.io.buffer.size": plan.io_buffer_size,
        },
        clean_shutdown=True,
        recovery_point=plan.log_end_offset,
        log_start_offset=plan.log_start_offset,
        high_watermark=plan.high_watermark,
        clock=clock or ManualClock(plan.now_ms),
    )


def task(directory: Path, plan: Plan, config: Mapping[str, Any]) -> Task:
    """The model's input for a directory. The log is opened, rolled if the plan requires it, and closed."""
    with open_planned(directory, plan, config) as log:
        if plan.roll and log.segments[-1].size:
            log.roll()
        return task_of(log, plan, config)


def task_of(log: klog.Log, plan: Plan, config: Mapping[str, Any]) -> Task:
    """The model's input for an open log.

    The checkpoint is used if it lies in the log; the range ends where a segment begins, at or below the last stable
    offset, the last segment, and the first segment younger than the lag.
    """
    segments = list(log.segments)
    bases = [segment.base_offset for segment in segments]
    path = Path(log.path).parent / "cleaner-offset-checkpoint"
    words = path.read_text().split() if path.exists() else []
    checkpoint = int(words[-1]) if words else -1
    dirty = checkpoint if log.log_start_offset <= checkpoint <= log.log_end_offset else log.log_start_offset
    bounds = [log.last_stable_offset, bases[-1]]
    lag = int(config["min.compaction.lag.ms"])
    if lag > 0:
        closed = itertools.pairwise(segments)
        bounds += [
            it.base_offset for it, after in closed if after.base_offset > dirty and _newest_ms(it) > plan.now_ms - lag
        ]
    return Task(
        [_source(segment, following.base_offset) for segment, following in itertools.pairwise(segments)],
        dirty,
        max(base for base in bases if base <= max(dirty, min(bounds))),
        plan.now_ms,
        {producer: (state.last_offset, state.epoch) for producer, state in log.producers.items()},
        [entry for segment in segments for entry in aborted_in(Path(segment.path).with_suffix(".txnindex"))],
        int(plan.slots * plan.load_factor),
        int(config["delete.retention.ms"]),
        int(config["internal.segment.bytes"]),
        int(config["segment.index.bytes"]),
        log.log_start_offset,
    )


def _modified_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


def _newest_ms(segment: Any) -> int:
    return segment.max_timestamp if segment.max_timestamp >= 0 else _modified_ms(Path(segment.path))


def _source(segment: Any, next_offset: int) -> Source:
    path = Path(segment.path)
    index, times = path.with_suffix(".index"), path.with_suffix(".timeindex")
    return Source(
        segment.base_offset,
        next_offset,
        batches_of(path),
        segment.size,
        index_of(index, segment.base_offset),
        _size(times),
        _modified_ms(path),
    )


def compare_with_model(differences: Differences, directory: Path, asked: Task, made: list[Cleaned]) -> None:
    """Compare the cleaned directory with the model's outcome."""
    replaced = {source.base_offset for segment in made for source in segment.sources}
    kept = [source.base_offset for source in asked.sources if source.base_offset not in replaced]
    expected = sorted([segment.base_offset for segment in made] + kept)
    there = sorted(int(path.stem) for path in directory.glob("*.log"))
    differences.equal("segments", there[: len(expected)], expected)
    differences.equal("count of segments", len(there), len(expected) + 1)
    for segment in made:
        path = directory / f"{segment.base_offset:020}.log"
        if path.exists():
            differences.equal_lists(path.name, kept_in(path), segment.batches)
            aborted = aborted_in(path.with_suffix(".txnindex"))
            differences.equal_lists(
                f"aborted in {path.name}",
                [(it[0], it[2]) for it in aborted],
                [(it[0], it[2]) for it in segment.aborted],
            )


def has_codecs(directory: Path) -> bool:
    return any(batch.compression != "none" for path in directory.glob("*.log") for batch in batches_of(path))


def keys_and_values(directory: Path) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of all data records, in order."""
    return [
        (record.key, record.value)
        for path in sorted(directory.glob("*.log"))
        for batch in batches_of(path)
        if not batch.is_control
        for record in batch
    ]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def files_differ(mine: Path, theirs: Path, *, bytes_alike: bool) -> list[str]:
    """The differences between two directories that klog and Kafka have cleaned in the same manner, and closed.

    Two implementations of a codec compress to different bytes, so that sizes and indexes differ, too. Then batches are
    compared field by field and record by record.
    """
    names, others = {path.name for path in mine.iterdir()}, {path.name for path in theirs.iterdir()}
    found = [f"{name}: only there" for name in sorted(others - names)]
    found += [f"{name}: not there" for name in sorted(names - others)]
    for name in sorted(names & others):
        got, expected = (mine / name).read_bytes(), (theirs / name).read_bytes()
        if got == expected:
            continue
        if name.endswith(".txnindex"):
            found += [
                f"{name}: {text}" for text in _aborted_differ(aborted_in(mine / name), aborted_in(theirs / name), mine)
            ]
        elif bytes_alike or name.endswith(".snapshot") or name.startswith(("leader-", "partition.")):
            found.append(
                f"{name}: {len(got)} bytes, there {len(expected)}" + _first_difference(mine / name, theirs / name)
            )
        elif name.endswith(".log"):
            found += [name + text for text in [_first_difference(mine / name, theirs / name)] if text]
    return found


def _aborted_differ(got: list[AbortedTransaction], expected: list[AbortedTransaction], directory: Path) -> list[str]:
    """Compare the aborted transactions. In klog an entry begins with the first remaining batch of its transaction, if
    klog has read that batch. A last stable offset may be lower than Kafka's: then readers only search further."""
    if [(entry[0], entry[2]) for entry in got] != [(entry[0], entry[2]) for entry in expected]:
        return [f"{got}, there {expected}"]
    batches = [
        batch for path in sorted(directory.glob("*.log")) for batch in batches_of(path) if batch.is_transactional
    ]
    return [
        f"{entry}, there {there}"
        for entry, there in zip(got, expected, strict=True)
        if entry[1] < there[1]
        or entry[3] > there[3]
        or any(batch.producer_id == entry[0] and there[1] <= batch.base_offset < entry[1] for batch in batches)
    ]


# The fields of a batch that do not depend on its compression.
_FIELDS = (
    "base_offset", "last_offset", "count", "magic", "compression", "timestamp_type", "base_timestamp", "max_timestamp",
    "delete_horizon_ms", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "is_transactional", "is_control",
)  # fmt: skip


def _first_difference(mine: Path, theirs: Path) -> str:
    """The first difference between two .log files; "" if only their sizes differ, and for other files."""
    if mine.suffix != ".log":
        return ""
    got, expected = batches_of(mine), batches_of(theirs)
    for one, other in zip(got, expected, strict=False):
        for name in _FIELDS:
            if getattr(one, name) != getattr(other, name):
                return f": batch {one.base_offset}: {name} {getattr(one, name)}, there {getattr(other, name)}"
        for record, there in zip(one, other, strict=True):
            if record != there:
                return f": {record}, there {there}"
    return "" if len(got) == len(expected) else f": {len(got)} batches, there {len(expected)}"
