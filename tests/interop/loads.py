"""Kafka's own loader over many directories in one JVM, and klog's view of a log in the same form.

    verdicts = kafka_loads(kafka_classes, [Given(directory, clean=False, now_ms=..., config={...}), ...])
    problems = differences(verdicts[0], klog_verdict(log))

Kafka writes into the directories that it opens, and closes them as a stopping broker does: pass copies.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import klog
from klog.errors import CorruptBatch
from tests.interop.kafka import KafkaClasses
from tests.support import golden


@dataclass(frozen=True)
class Given:
    """A partition directory, and what a broker would know about it from checkpoints and the clean-shutdown file."""

    path: Path
    clean: bool
    now_ms: int
    recovery_point: int = 0
    log_start_offset: int = 0
    config: Mapping[str, object] = field(default_factory=dict)  # Kafka's topic keys, not klog's
    producer_expiration_ms: int = 86_400_000


@dataclass(frozen=True)
class Verdict:
    """A log as a loader opened it. `error`: the loader refused it; the other fields are then empty.

    read_error: the offset at which a read found damage or a gap, None if there was none; records and digest cover the
    records before it. aborted: (producer id, first offset, last offset, last stable offset); producers: golden.expected_producers.
    bad_indexes: index files that fail Kafka's own checks, although its loader does not run them; klog repairs what it
    opens and has none.
    """

    error: str | None = None
    log_start_offset: int = -1
    log_end_offset: int = -1
    recovery_point: int = -1
    first_undecided_offset: int | None = None
    segments: tuple[tuple[int, int], ...] = ()  # base offset, bytes
    leader_epochs: tuple[tuple[int, int], ...] = ()
    producers: tuple[tuple[int, int, int, int, int | None, int], ...] = ()
    aborted: tuple[tuple[int, int, int, int], ...] = ()
    records: int = 0
    digest: str = ""
    read_error: int | None = None
    bad_indexes: tuple[str, ...] = ()


def kafka_loads(kafka_classes: KafkaClasses, directories: Sequence[Given]) -> list[Verdict]:
    """One verdict per directory, in order."""
    return [_verdict(answer) for answer in kafka_classes.loads([_case(given) for given in directories])]


def _case(given: Given) -> dict[str, object]:
    return {
        "path": str(given.path),
        "clean": given.clean,
        "now_ms": given.now_ms,
        "recovery_point": given.recovery_point,
        "log_start_offset": given.log_start_offset,
        "config": dict(_property(name, value) for name, value in given.config.items()),
        "producer_id_expiration_ms": given.producer_expiration_ms,
    }


def _property(name: str, value: object) -> tuple[str, str]:
    """Kafka accepts a segment.bytes below 1 MiB only under its internal name."""
    small = name == "segment.bytes" and int(str(value)) < 1 << 20
    return "internal.segment.bytes" if small else name, str(value)


def _verdict(answer: Any) -> Verdict:
    if "error" in answer:
        return Verdict(error=answer["error"])
    return Verdict(
        log_start_offset=answer["log_start_offset"],
        log_end_offset=answer["log_end_offset"],
        recovery_point=answer["recovery_point"],
        first_undecided_offset=answer["first_undecided_offset"],
        segments=tuple((base, size) for base, size in answer["segments"]),
        leader_epochs=tuple((epoch, start) for epoch, start in answer["leader_epochs"]),
        producers=tuple(golden.expected_producers(answer["producers"])),
        aborted=tuple((pid, first, last, stable) for pid, first, last, stable in answer["aborted"]),
        records=answer["records"],
        digest=answer["digest"],
        read_error=answer.get("read_error_at"),
        bad_indexes=tuple(answer["bad_indexes"]),
    )


def klog_verdict(log: klog.Log) -> Verdict:
    """The same fields of a log that klog has opened."""
    start, end = log.log_start_offset, log.log_end_offset
    undecided = [state[4] for state in golden.producer_tuples(log) if state[4] is not None]
    digest, count, read_error = hashlib.sha256(), 0, None
    try:
        for record in log.read(include_control=True, isolation="log_end"):
            digest.update(struct.pack(">qqq", record.offset, record.timestamp, record.producer_id))
            for part in (record.key, record.value):
                digest.update(struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part)
            count += 1
    except CorruptBatch as error:
        read_error = -1 if error.offset is None else error.offset
    return Verdict(
        log_start_offset=start,
        log_end_offset=end,
        recovery_point=log.recovery_point,
        first_undecided_offset=min(undecided, default=None),
        segments=tuple((segment.base_offset, segment.size) for segment in log.segments),
        leader_epochs=tuple(log.leader_epochs),
        producers=tuple(golden.producer_tuples(log)),
        aborted=tuple(
            (item.producer_id, item.first_offset, item.last_offset, item.last_stable_offset)
            for item in log.aborted_transactions(start, end)
        ),
        records=count,
        digest=digest.hexdigest(),
        read_error=read_error,
    )


def differences(kafka: Verdict, mine: Verdict, *, leave_out: Sequence[str] = ("recovery_point",)) -> list[str]:
    """A line per field in which two verdicts differ."""
    return [
        f"{name}: Kafka has {getattr(kafka, name)!r}, klog has {getattr(mine, name)!r}"
        for name in Verdict.__dataclass_fields__
        if name not in leave_out and getattr(kafka, name) != getattr(mine, name)
    ]
