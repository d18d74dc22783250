"""The work of a commit: the appends of durability="sync" that waited together, on disk with one fdatasync.

  C1  what the log shows, its end, high watermark and readers, moves once, behind the fdatasync
  C2  an append that is refused, or has no room, takes back what it has written, and concerns none of the others
  C3  a failed fdatasync fails every append of the group and is final for the directory; nothing is tried again
  C4  Ctrl-C in the middle leaves the log as it was before the group; the others' appends are done by the next leader.
      Another one, while that is being taken back, takes the log offline: nobody is told that his append is there
  C5  whatever Python runs in between, a signal's handler say, finds the log between two ends and must not touch it

Small encoded groups that are neighbours go out in one write, a copy of each behind the other: the page cache takes one
call of 16 KiB in a third of the time of sixteen. Under the log's lock; who waits for whom is _commit's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from klog.errors import KlogError, ReentrantCall, StorageOffline
from klog.log._core import AppendInfo
from klog.log.write._commit import Ticket, publish
from klog.log.write.append_batches import take_back_epochs
from klog.log.write.flush import flush_if_due_locked
from klog.record import join_groups

if TYPE_CHECKING:
    from klog.log.log import Log

_JOIN_BYTES = 1 << 20  # of one write; what is larger is worth no copy
_JOIN_EACH = 128 << 10


def commit_locked(log: Log, tickets: list[Ticket]) -> int:
    """Give every ticket its info, once that is on disk, or its error. Nanoseconds that the fdatasync took.

    An exception leaves tickets with neither, and the log as it was, or offline.
    """
    log._lock.begins(log, "an append")
    try:
        return _commit(log, tickets)
    finally:
        log._written_end = -1
        log._applied = []


def _commit(log: Log, tickets: list[Ticket]) -> int:
    try:
        log._check_writable()
        before, end, known = log._segments, log._log_end_offset, log._epochs._entries
        savepoint = log._savepoint_locked()
    except ReentrantCall:  # raised by a signal's handler: nothing has been done yet
        raise
    except (KlogError, OSError) as error:
        fail(log, tickets, error)
        return 0
    meters = log._metrics
    counted = meters.messages_in, meters.bytes_in, meters.replicated_bytes_in
    took = 0.0
    infos: list[AppendInfo | None] = [None] * len(tickets)
    log._applied = []
    log._written_end = end
    try:
        _write(log, tickets, infos)
        written = log._written_end
        if written > end and log._offline is None:
            began = log.clock.monotonic()
            log._guard(log._segments[-1].sync_data)
            took = log.clock.monotonic() - began
            meters.flush_times.note(took)
        if log._offline is not None:
            raise StorageOffline(f"{log.name} is offline since {log._offline}: close it and open it again")
        publish(log, tickets, infos, written)
        if written > end:
            log._end_moved_locked()
        flush_if_due_locked(log, log.clock.wall_ms())
        return round(took * 1e9)
    except BaseException as error:
        if back := log._written_end >= 0:
            done = False
            try:
                log._written_end = -1
                log._undo_locked(before, savepoint, error)
                for pending in reversed(log._applied):
                    pending.take_back()
                take_back_epochs(log, known)
                meters.messages_in, meters.bytes_in, meters.replicated_bytes_in = counted
                done = True
            finally:
                if not done and log._offline is None:
                    log._offline = "a commit was interrupted, and so was taking it back"
        if not isinstance(error, KlogError | OSError) or isinstance(error, ReentrantCall):
            if back and log._offline is None:
                for ticket in tickets:
                    ticket.error = None
            raise
        fail(log, tickets, error)
        return round(took * 1e9)


def fail(log: Log, tickets: list[Ticket], error: KlogError | OSError) -> None:
    """The same for everybody who has no error of his own; each raises it in his own thread, so each has his own."""
    for ticket in tickets:
        ticket.info = None
        if ticket.error is None:
            ticket.error = _again(log, error)


def _again(log: Log, error: KlogError | OSError) -> Exception:
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror, error.filename)
    try:
        log._check_writable()
    except KlogError as mine:
        return mine
    return StorageOffline(str(error)) if isinstance(error, StorageOffline) else KlogError(str(error))


def _write(log: Log, tickets: list[Ticket], infos: list[AppendInfo | None]) -> None:
    at = 0
    for run in _runs(tickets):
        if len(run) > 1 and (joined := _write_joined(log, run)):
            infos[at : at + len(run)] = joined
            at += len(run)
            continue
        for ticket in run:
            at += 1
            try:
                log._check_writable()
                if ticket.group is not None:
                    infos[at - 1] = log._append_group_locked(ticket.group, ticket.now)
                else:
                    infos[at - 1] = ticket.action()
            except ReentrantCall:  # it came over this append out of a signal's handler, and is of none of the tickets
                raise
            except Exception as error:  # refused, or its bytes found no room: taken back already
                ticket.error = error


def _runs(tickets: list[Ticket]) -> Iterator[list[Ticket]]:
    """Neighbours that can go out in one write, and all others one by one."""
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


def _write_joined(log: Log, run: list[Ticket]) -> list[AppendInfo]:
    """All of a run in one write; nothing where that did not go, and each is to be tried alone."""
    joined = join_groups([ticket.group for ticket in run])
    try:
        log._check_writable()
        whole = log._append_group_locked(joined, max(ticket.now for ticket in run))
    except OSError:
        if log._offline is not None:
            raise
        return []
    except ReentrantCall:
        raise
    except Exception:
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
