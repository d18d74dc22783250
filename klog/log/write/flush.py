"""When a log is flushed, and how: beside its appends, as far as that goes.

  F1  the recovery point moves only to what was on disk, data, indexes and directory, when it moves (S9); where the log
      was truncated, renamed or moved meanwhile, it stays
  F2  a failed sync is final for the directory, and told to whoever asked for it (S2)
  F3  one sync of a log's files at a time: the kernel tells of an error once per open file, so a second one beside it
      would come back well from a disk that has failed. Who holds the log's lock waits for the one under way

A flush takes the log's lock for the numbers alone; while the disk works, appends go on. Whoever holds the lock already,
and every flush of durability="sync", where a commit would wait for it anyway, keeps it.

A flush is due once flush.messages records or klog.flush.bytes bytes are not on disk, or flush.ms is over. With a
LogManager that has a thread, the last two only queue the log up: its next round flushes all that wait there. Kafka:
UnifiedLog.flush, LocalLog.flush, LogManager.flushDirtyLogs.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from klog.errors import KlogError, ReentrantCall, StorageOffline
from klog.log.options import NO_BOUND
from klog.log.read.positions import whole_number
from klog.log.state.segments import number_of

if TYPE_CHECKING:
    from klog.log.log import Log


_log = logging.getLogger("klog.log")


def flush(log: Log, offset: int | None) -> None:
    """What Log.flush documents."""
    log._lock.check(log, "a flush")
    log._check_writable()
    if log._commits is not None or log._lock._is_owned():
        with log._lock:
            log._check_idle("a flush")
            log._guard_sync(lambda: flush_locked(log, offset))
        return
    with log._lock.beside:  # one after the other; before the log's lock
        _flush_beside(log, offset)


def _flush_beside(log: Log, offset: int | None) -> None:
    me = object()
    try:
        with log._lock:
            log._check_writable()
            end = log._log_end_offset if offset is None else min(whole_number("offset", offset), log._log_end_offset)
            active = log._segments[-1]
            if not active.active or end <= active.base_offset or log._recovery_point < active.base_offset:
                log._guard_sync(lambda: flush_locked(log, offset))  # nothing to do, or segments that a crash has left
                return
            if end <= log._recovery_point and offset is not None:
                return
            file, point = active.file, min(end, active.next_offset)
            generation, directory = log._generation, log._directory
            now, size = log.clock.wall_ms(), log._metrics.appended_bytes
            log._sync_lock.begin(me)
        began = log.clock.monotonic()
        log._guard_sync(lambda: active.sync_beside(file))
        log._guard_sync(lambda: sync_directory(log, directory))
    finally:
        log._sync_lock.end(me)
    with log._lock:
        if log._offline is not None:
            raise StorageOffline(f"{log.name} is offline since {log._offline}: close it and open it again")
        log._metrics.flush_times.note(log.clock.monotonic() - began)
        if log._closed or log._generation != generation or log._directory != directory:
            return
        log._recovery_point = max(log._recovery_point, point)
        log._flushed_ms, log._metrics.flushed_bytes = now, size
        on_flush = log._on_flush
    if on_flush is not None:
        log._guard_sync(lambda: on_flush(log))


def sync_directory(log: Log, directory: str) -> None:
    """The names in a log's directory. No lock of the log's is needed."""
    with contextlib.suppress(FileNotFoundError):  # renamed meanwhile, or gone: what is open is on disk
        log._options.files.fsync_dir(directory)


def flush_locked(log: Log, offset: int | None = None) -> None:
    """All of it under the log's lock."""
    end = log._log_end_offset if offset is None else min(whole_number("offset", offset), log._log_end_offset)
    if end <= log._recovery_point and (offset is not None or not log._segments[-1].active):
        return  # as the last stop has left it
    wait_locked(log)
    began = log.clock.monotonic()
    if end > log._segments[-1].base_offset or offset is None:
        sync_closed_locked(log)
        log._segments[-1].sync()
    else:
        sync_closed_locked(log, end)
    sync_directory(log, log._directory)
    log._metrics.flush_times.note(log.clock.monotonic() - began)
    # A truncation inside a batch has left the log end above the last one: of what lies between, nothing is on disk.
    log._recovery_point = min(end, log._segments[-1].next_offset)
    log._flushed_ms, log._metrics.flushed_bytes = log.clock.wall_ms(), log._metrics.appended_bytes
    if log._on_flush is not None:
        log._on_flush(log)


def wait_locked(log: Log) -> None:
    """F3: no sync is under way behind this, as long as the log's lock is held. StorageOffline if one has failed."""
    log._sync_lock.wait()
    if log._offline is not None:
        raise StorageOffline(f"{log.name} is offline since {log._offline}: close it and open it again")


def sync_closed_locked(log: Log, below: int = NO_BOUND) -> None:
    """Closed segments above the recovery point: another process wrote them, before a crash."""
    segments = log._segments
    for number in range(number_of(segments, log._recovery_point), len(segments) - 1):
        segment = segments[number]
        if segment.base_offset >= below:
            break
        if segment.next_offset > log._recovery_point:
            segment.sync()


def flush_if_due_locked(log: Log, now: int) -> None:
    """Behind an append."""
    config, owner = log._config, log._owner
    if log._log_end_offset - log._recovery_point >= config.flush_messages or (
        is_due(log, now) and not (owner is not None and owner.flush_soon(log))
    ):
        try:
            log._guard_sync(lambda: flush_locked(log))
        except (OSError, KlogError) as error:  # the records are in the log: what passes must not refuse them
            if log._offline is not None or isinstance(error, ReentrantCall):
                raise  # a handler's: whoever wrote it wants it to end what it has come over
            _log.warning("event=flush_postponed log=%s reason=%s", log.name, error)


def is_due(log: Log, now: int) -> bool:
    """Is flush.ms over, or have klog.flush.bytes come together?"""
    config = log._config
    bytes_max: int = config.klog_flush_bytes
    return bool(now - log._flushed_ms >= config.flush_ms or (bytes_max and log.unflushed_bytes >= bytes_max))
