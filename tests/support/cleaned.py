"""What a cleaning did to a partition directory, as values that can be compared, and what the model makes of the same."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import klog
from klog.clock import ManualClock
from klog.record import RecordBatch, decode
from tests.support.cleaner_reference import AbortedTransaction, Kept, Source, Task
from tests.support.dirty_logs import Plan

_ENTRY = struct.Struct(">II")
_ABORTED = struct.Struct(">hqqqq")


def batches_of(path: Path) -> list[RecordBatch]:
    return list(decode(path.read_bytes(), path=str(path)))


def kept_in(path: Path) -> list[Kept]:
    """The batches of a .log file, by what the model tells of each."""
    return [
        Kept(batch.base_offset, batch.last_offset, tuple(record.offset for record in batch), batch.delete_horizon_ms)
        for batch in batches_of(path)
    ]


def aborted_in(path: Path) -> list[AbortedTransaction]:
    """The entries of a .txnindex file, none where there is no file."""
    data = path.read_bytes() if path.exists() else b""
    assert len(data) % _ABORTED.size == 0
    return [(entry[1], entry[2], entry[3], entry[4]) for entry in _ABORTED.iter_unpack(data)]


def index_of(path: Path, base_offset: int) -> list[tuple[int, int]]:
    """The entries of a closed segment's .index file: offset and position."""
    data = path.read_bytes() if path.exists() else b""
    return [(base_offset + offset, position) for offset, position in _ENTRY.iter_unpack(data)]


def open_planned(directory: Path, plan: Plan, config: Mapping[str, object]) -> klog.Log:
    """The log as it is when a planned cleaning begins."""
    return klog.Log.open(
        directory,
        config={
            **config,
            "log.cleaner.threads": 1,
            "log.cleaner.dedupe.buffer.size": 24 * plan.slots,
            "log.cleaner.io.buffer.load.factor": plan.load_factor,
            "log.cleaner.io.buffer.size": plan.io_buffer_size,
        },
        clean_shutdown=True,
        recovery_point=plan.log_end_offset,
        log_start_offset=plan.log_start_offset,
        high_watermark=plan.high_watermark,
        clock=ManualClock(plan.now_ms),
    )


def task(directory: Path, plan: Plan, config: Mapping[str, Any], dirty: int, uncleanable: int) -> Task:
    """What the model is asked about a directory, which this opens, rolls if the plan says so, and closes."""
    with open_planned(directory, plan, config) as log:
        if plan.roll and log.segments[-1].size:
            log.roll()
        segments = list(log.segments)
        sources = [
            Source(
                segment.base_offset,
                following.base_offset,
                batches_of(Path(segment.path)),
                segment.size,
                index_of(Path(segment.path).with_suffix(".index"), segment.base_offset),
                _size(Path(segment.path).with_suffix(".timeindex")),
                Path(segment.path).stat().st_mtime_ns // 1_000_000,
            )
            for segment, following in itertools.pairwise(segments)
        ]
        return Task(
            sources,
            dirty,
            uncleanable,
            plan.now_ms,
            {producer: (state.last_offset, state.epoch) for producer, state in log.producers.items()},
            [entry for segment in segments for entry in aborted_in(Path(segment.path).with_suffix(".txnindex"))],
            int(plan.slots * plan.load_factor),
            int(config["delete.retention.ms"]),
            int(config["internal.segment.bytes"]),
            int(config["segment.index.bytes"]),
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
