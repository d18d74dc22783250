"""Isolation levels: up to which offset a reader sees records.

A log that is open for writing knows its producers at all times. A reader beside a writer computes them on demand, from
the snapshots and the batches after them. Kafka: UnifiedLog.lastStableOffset, FetchIsolation.
"""

from __future__ import annotations

from typing import Literal, get_args

from klog.arguments import chosen
from klog.log.load.inputs import inputs_of
from klog.log.load.rebuild import producers_at, replay_up_to
from klog.log.read.steady import steadily
from klog.log.state import high_watermark
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetSnapshot
from klog.log.state.producers import Producers

Isolation = Literal["log_end", "high_watermark", "read_committed"]
ISOLATIONS: tuple[str, ...] = get_args(Isolation)


def unknown_isolation(given: object) -> TypeError | ValueError:
    """The exception for an invalid isolation."""
    try:
        chosen("isolation", given, ISOLATIONS)
    except (TypeError, ValueError) as error:
        return error
    raise AssertionError(given)


def bound(log: LogCore, isolation: Isolation) -> int:
    """The exclusive bound of an isolation level."""
    if not isinstance(isolation, str):
        raise unknown_isolation(isolation)
    if isolation == "log_end":
        return log.log_end_offset
    if isolation == "high_watermark":
        return log.high_watermark
    if isolation == "read_committed":
        return last_stable_offset(log)
    raise unknown_isolation(isolation)


def last_stable_offset(log: LogCore) -> int:
    """The exclusive bound of read_committed: below it no transaction is open, and none has a marker at or above the
    high watermark."""
    high, producers = log.high_watermark, producer_state(log)
    if log.read_only:  # a writable log is notified by high_watermark.moved_locked
        with log.lock:
            producers.on_high_watermark_updated(high)
    first = producers.first_unstable_offset
    return high if first is None else min(max(first.offset, log.log_start_offset), high)


def producer_state(log: LogCore) -> Producers:
    """The producers at the log end. A read-only log computes them on demand, and continues from there."""
    producers = log.producers
    if log.read_only and (producers.end_offset != log.log_end_offset or _has_fallen(log)):
        with log.lock:
            producers = steadily(log, lambda: _producers_at_end(log))
            producers.expire(log.clock.wall_ms(), log.options.broker.producer_id_expiration_ms)
            log.use_producers(producers)
            log.aborted_finder.forget()  # the replay may have found markers that are missing in an index
    return producers


def _has_fallen(log: LogCore) -> bool:
    """Has a reader's high watermark fallen, for example from the log end to the broker's first checkpoint? Then
    transactions that the producers have forgotten count again."""
    return bool(log.producers.high_watermark > log.high_watermark)


def _producers_at_end(log: LogCore) -> Producers:
    start, end, known = log.log_start_offset, log.log_end_offset, log.producers
    # Those of a new load are empty. A marker that could not be read may be readable now.
    if start < known.end_offset <= end and not known.unreadable and not _has_fallen(log):
        producers = Producers(like=known)  # other threads may be reading the old ones
        replay_up_to(producers, log.segments, end)
        return producers
    trusted = end
    if not log.options.clean_shutdown:
        point = log.options.recovery_point
        trusted = max((s.base_offset for s in log.segments if s.base_offset <= point), default=start)
    return producers_at(inputs_of(log), log.segments, start, end, trusted, log.high_watermark)


def snapshot_locked(log: LogCore) -> OffsetSnapshot:
    """The log's offsets at this moment, with positions."""
    return OffsetSnapshot(
        log.log_start_offset,
        high_watermark.end_of(log),
        high_watermark.positioned_locked(log),
        high_watermark.metadata_of(log, last_stable_offset(log)),
    )
