"""A commit: writes the queued appends of durability="sync" and makes them durable with one fdatasync.

  C1  log end and high watermark move once, after the fdatasync
  C2  an append that is refused, or finds no disk space, undoes its own write and does not affect the others
  C3  a failed fdatasync fails every append of the group and is final for the directory; nothing is retried
  C4  Ctrl-C during a commit undoes the whole group; the next leader appends the tickets of the other threads.
      A second Ctrl-C during the undo takes the log offline, and no append of the group succeeds
      So does an exception of a signal handler between the write of a ticket and the return from it
  C5  Python code that runs during a commit, such as a signal handler, must not call the log: its end is not settled

Small encoded groups next to each other are copied into one buffer and written at once: the page cache takes one call
of 16 KiB in a third of the time of sixteen. Under the log's lock. The queue and its leader are in _commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from klog.errors import KlogError, ReentrantCall, StorageOffline
from klog.log.state._log_core import LogCore
from klog.log.write._append import append_group_locked
from klog.log.write._append_info import AppendInfo
from klog.log.write._commit import Ticket, publish
from klog.log.write.append_batches import take_back_epochs
from klog.log.write.failures import guard
from klog.log.write.flush import flush_if_due_locked
from klog.log.write.log_end import end_moved_locked
from klog.log.write.undo import savepoint_locked, undo_locked
from klog.record import join_groups

_JOIN_BYTES = 1 << 20  # limit of one joined write; copying more does not pay
_JOIN_EACH = 128 << 10


def commit_locked(log: LogCore, tickets: list[Ticket]) -> int:
    """Append all tickets and set the info or error of each. Returns the nanoseconds that the fdatasync took.

    If it raises, the tickets have neither, and the log is as before, or offline.
    """
    log.lock.begins(log, "an append")
    try:
        return _commit(log, tickets)
    finally:
        log.end_commit()


def _commit(log: LogCore, tickets: list[Ticket]) -> int:
    try:
        log.check_writable()
        before, end, known = log.segments, log.log_end_offset, log.epochs.entries
        savepoint = savepoint_locked(log)
    except ReentrantCall:  # raised in a signal handler: nothing has been done yet
        raise
    except (KlogError, OSError) as error:
        fail(log, tickets, error)
        return 0
    metrics = log.counters
    counted = metrics.appended_counts
    took = 0.0
    infos: list[AppendInfo | None] = [None] * len(tickets)
    log.begin_commit()
    try:
        _write(log, tickets, infos)
        written = log.written_end
        if written > end and log.health.offline is None:
            began = log.clock.monotonic()
            guard(log, log.segments[-1].sync_data)
            took = log.clock.monotonic() - began
            metrics.flush_times.note(took)
        log.health.check_online()
        publish(log, tickets, infos, written)
        if written > end:
            end_moved_locked(log)
        flush_if_due_locked(log)
        return round(took * 1e9)
    except BaseException as error:
        if back := log.written_end >= 0:
            done = False
            try:
                log.leave_commit()
                undo_locked(log, before, savepoint, error)
                for pending in reversed(log.applied):
                    pending.take_back()
                take_back_epochs(log, known)
                metrics.take_back(counted)
                done = True
            finally:
                if not done and log.health.offline is None:
                    log.health.go_offline("a commit was interrupted, and so was its undo")
        if not isinstance(error, KlogError | OSError) or isinstance(error, ReentrantCall):
            if back and log.health.offline is None:
                for ticket in tickets:
                    ticket.error = None
            raise
        fail(log, tickets, error)
        return round(took * 1e9)


def fail(log: LogCore, tickets: list[Ticket], error: KlogError | OSError) -> None:
    """Fail every ticket that has no error yet. Each gets its own exception object, since each thread raises it."""
    for ticket in tickets:
        ticket.info = None
        if ticket.error is None:
            ticket.error = _again(log, error)


def _again(log: LogCore, error: KlogError | OSError) -> Exception:
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror, error.filename)
    try:
        log.check_writable()
    except KlogError as mine:
        return mine
    return StorageOffline(str(error)) if isinstance(error, StorageOffline) else KlogError(str(error))


def _write(log: LogCore, tickets: list[Ticket], infos: list[AppendInfo | None]) -> None:
    at = 0
    for run in _runs(tickets):
        if len(run) > 1 and (joined := _write_joined(log, run)):
            infos[at : at + len(run)] = joined
            at += len(run)
            continue
        for ticket in run:
            at += 1
            end = log.written_end
            try:
                if ticket.group is not None:
                    infos[at - 1] = append_group_locked(log, ticket.group, ticket.now)
                else:
                    infos[at - 1] = ticket.action()
            except ReentrantCall:  # raised by a signal handler during this append: not an error of a ticket
                raise
            except Exception as error:  # refused, or no disk space: undone already
                if log.written_end != end:  # C4
                    raise
                ticket.error = error


def _runs(tickets: list[Ticket]) -> Iterator[list[Ticket]]:
    """Runs of tickets that can be written at once; every other ticket is a run of its own."""
    run: list[Ticket] = []
    size = 0
    for ticket in tickets:
        small = ticket.group is not None and ticket.group.nbytes <= _JOIN_EACH
        if run and (not small or size + ticket.group.nbytes > _JOIN_BYTES):
            yield run
            run, size = [], 0
        if small:
            run.append(ticket)
            size += ticket.group.nbytes
        else:
            yield [ticket]
    if run:
        yield run


def _write_joined(log: LogCore, run: list[Ticket]) -> list[AppendInfo]:
    """Append a run with one write. Returns an empty list if that failed: then each ticket is to be appended alone."""
    joined, end = join_groups([ticket.group for ticket in run]), log.written_end
    try:
        whole = append_group_locked(log, joined, max(ticket.now for ticket in run))
    except ReentrantCall:
        raise
    except Exception as error:
        if log.written_end != end or (isinstance(error, OSError) and log.health.offline is not None):
            raise
        return []
    first = whole.first_offset
    infos = []
    for ticket in run:
        group = ticket.group
        info = AppendInfo(
            first,
            first + group.count - 1,
            group.count,
            group.max_timestamp if whole.log_append_time < 0 else whole.log_append_time,
            whole.log_append_time,
            log_start_offset=whole.log_start_offset,
            valid_bytes=group.nbytes,
            last_leader_epoch=whole.last_leader_epoch,
        )
        infos.append(info)
        first += group.count
    return infos
