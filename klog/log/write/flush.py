"""Flushing a log: when it is due, and how it runs beside appends.

  F1  the recovery point moves only to an offset below which data, indexes and directory are on disk (S9); it stays if
      the log was truncated, renamed or moved meanwhile
  F2  a failed sync is final for the directory and raised to the caller (S2)
  F3  one sync of a log's files at a time: the kernel reports an error once per open file, so a second sync at the same
      time would succeed on a disk that has failed. A thread that holds the log's lock waits for the running sync

A flush takes the log's lock only to read and set offsets; appends continue while the disk works. A caller that already
holds the lock keeps it, and so does every flush of durability="sync", where a commit would wait for the flush anyway.

A flush is due once flush.messages records or klog.flush.bytes bytes are not on disk, or after flush.ms. With a
LogManager that has a thread, the last two only queue the log: the next round of the thread flushes all queued logs.
Kafka: UnifiedLog.flush, LocalLog.flush, LogManager.flushDirtyLogs.
"""

from __future__ import annotations

import contextlib

from klog.errors import KlogError, ReentrantCall
from klog.log.read.positions import whole_number
from klog.log.state._log_core import LogCore
from klog.log.write.failures import guard_sync
from klog.log.write.undo import wait_for_sync_locked
from klog.logger import logger_of

_log = logger_of("log")


def flush(log: LogCore, offset: int | None) -> None:
    """Flush up to an offset (None: all), beside appends where possible."""
    log.lock.check(log, "a flush")
    log.check_writable()
    if log.commits is not None or log.lock._is_owned():
        with log.lock:
            log.check_idle("a flush")
            guard_sync(log, lambda: flush_locked(log, offset))
        return
    with log.lock.beside:  # one flush at a time; taken before the log's lock
        _flush_beside(log, offset)


def _flush_beside(log: LogCore, offset: int | None) -> None:
    me = object()
    try:
        with log.lock:
            log.check_writable()
            end = log.log_end_offset if offset is None else min(whole_number("offset", offset), log.log_end_offset)
            active = log.segments[-1]
            if not active.active or end <= active.base_offset or log.flush_state.recovery_point < active.base_offset:
                guard_sync(log, lambda: flush_locked(log, offset))  # nothing to do, or the names after a crash
                return
            if end <= log.flush_state.recovery_point and offset is not None:
                return
            file, point = active.file, min(end, active.next_offset)
            generation, directory = log.generation, log.directory.path
            moment = log.flush_state.moment(log.counters.appended())
            log.sync_lock.begin(me)
        began = log.clock.monotonic()
        guard_sync(log, lambda: active.sync_beside(file))
        guard_sync(log, lambda: sync_directory(log, directory))
    finally:
        log.sync_lock.end(me)
    with log.lock:
        log.health.check_online()
        log.counters.flush_times.note(log.clock.monotonic() - began)
        if log.closed or log.generation != generation or log.directory.path != directory:
            return
        log.flush_state.flushed_beside(point, moment)
        on_flush = log.directory.on_flush
    if on_flush is not None:
        guard_sync(log, lambda: on_flush(log))


def sync_directory(log: LogCore, directory: str) -> None:
    """Sync the entries of a log's directory. Needs no lock of the log."""
    with contextlib.suppress(FileNotFoundError):  # renamed or deleted meanwhile: the open files are on disk
        log.options.files.fsync_dir(directory)


def flush_locked(log: LogCore, offset: int | None = None) -> None:
    """Flush up to an offset (None: all) under the log's lock. Closed segments are on disk: a roll syncs them, and a
    load those that a killed process has left."""
    end = log.log_end_offset if offset is None else min(whole_number("offset", offset), log.log_end_offset)
    if end <= log.flush_state.recovery_point and (offset is not None or not log.segments[-1].active):
        return  # everything is on disk since the last clean shutdown
    wait_for_sync_locked(log)
    began = log.clock.monotonic()
    if end > log.segments[-1].base_offset or offset is None:
        log.segments[-1].sync()
    sync_directory(log, log.directory.path)
    log.counters.flush_times.note(log.clock.monotonic() - began)
    # A truncation inside a batch leaves the log end above the last batch: nothing between them is on disk.
    point = min(end, log.segments[-1].next_offset)
    log.flush_state.flushed(point, log.flush_state.moment(log.counters.appended()))
    if log.directory.on_flush is not None:
        log.directory.on_flush(log)


def flush_if_due_locked(log: LogCore) -> None:
    """Flush after an append if a flush is due."""
    config, owner = log.config, log.directory.owner
    if log.log_end_offset - log.flush_state.recovery_point >= config.flush_messages or (
        is_due(log) and not (owner is not None and owner.flush_soon(log))
    ):
        try:
            guard_sync(log, lambda: flush_locked(log))
        except (OSError, KlogError) as error:  # the records are in the log: a passing error must not fail the append
            if log.health.offline is not None or isinstance(error, ReentrantCall):
                raise  # raised by a signal handler, which is meant to end this call
            _log.warning("event=flush_postponed log=%s reason=%s", log.name, error)


def is_due(log: LogCore) -> bool:
    """Have flush.ms passed, or klog.flush.bytes been written, since the last flush?"""
    config = log.config
    bytes_max: int = config.klog_flush_bytes
    waited = log.flush_state.has_waited(config.flush_ms)
    return bool(waited or (bytes_max and log.unflushed_bytes >= bytes_max))
