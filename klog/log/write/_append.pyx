# cython: auto_pickle=False
"""Appending: of records, encoded here, and of encoded batches. append_batches.py describes the steps A1 to A11.

The fast path is a Tail, which does all or nothing. Then the full path, append_batches.py, continues with the checked
batches.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from klog.locks cimport CallLock
from klog.log.state._counters cimport Counters
from klog.log.state._log_core cimport LogCore
from klog.log.write._append_info cimport AppendInfo, followed, grouped, led, nothing
from klog.log.state._append_policy cimport AppendPolicy
from klog.log.write._tail cimport Tail, tail_of
from klog.record._arguments cimport check_buffer
from klog.record._builder cimport BatchGroup, Encoder
from klog.record._encoded cimport EncodedBatches
from klog.record._leader cimport ValidatedBatch, leaders_batch

from functools import partial

from klog.arguments import whole
from klog.clock import SystemClock
from klog.errors import KlogError
from klog.log.write._commit import Ticket
from klog.log.write.append_batches import follow_locked, group_locked, lead_locked
from klog.log.write.flush import flush_if_due_locked
from klog.log.write.inputs import prepared

cdef enum:
    LOOK_MS = 10
    GROUP_BYTES = 8 << 20           # of records that are not all in memory

cdef int64_t NO_BOUND = <int64_t>1 << 62


cdef int64_t wall_ms(clock) except? -1:
    """clock.wall_ms(). For a SystemClock without the Python call, which takes a tenth of a short append."""
    cdef timespec at
    if type(clock) is SystemClock and clock_gettime(CLOCK_REALTIME, &at) == 0:
        return <int64_t>at.tv_sec * 1000 + at.tv_nsec // 1_000_000
    return clock.wall_ms()


# Records --------------------------------------------------------------------------------------------------------------

def append(LogCore log, records, compression):
    """Append records. See Log.append."""
    cdef AppendInfo info = None, appended
    cdef BatchGroup group
    cdef EncodedGroups groups = encoded_groups(log, records, compression)
    while (group := groups.next()) is not None:
        appended = append_group(log, group, groups.now)
        info = appended if info is None else info.joined(appended)
    if is_time_to_look(log, groups.now):
        log.options.scheduler.run_due()
    return nothing(log.log_end_offset, log.log_start_offset) if info is None else info


@cython.final
@cython.freelist(8)
cdef class EncodedGroups:
    """Encodes records. Iterates (group, time of the encoding): the arguments of append_group()."""

    cdef LogCore log
    cdef Encoder encoder
    cdef int64_t now
    cdef bint whole         # all records are in memory, and make one group
    cdef bint begun

    def __init__(self):
        raise TypeError("get it from encoded_groups()")

    cdef BatchGroup next(self):
        """The next group, None at the end."""
        if self.begun:
            if self.whole:
                return None
            PyErr_CheckSignals()    # an iterator in C may be endless
            self.now = wall_ms(self.log.clock)     # a generator may take hours
            self.log.append_policy.use_time(self.encoder, self.now)
        self.begun = True
        return self.log.append_policy.next_group(self.encoder, NO_BOUND if self.whole else GROUP_BYTES)

    def __iter__(self):
        return self

    def __next__(self):
        group = self.next()
        if group is None:
            raise StopIteration
        return group, self.now


cpdef EncodedGroups encoded_groups(LogCore log, records, compression):
    """Begin to encode records. Raises unless the log can be changed."""
    cdef EncodedGroups groups = EncodedGroups.__new__(EncodedGroups)    # arguments would cost a tuple
    if not log.health.takes_appends():
        log.check_writable()
    groups.log, groups.now, groups.whole = log, wall_ms(log.clock), True
    if type(records) is not list and type(records) is not tuple:
        records, groups.whole = prepared(records)
    groups.encoder = log.append_policy.encoder(records, compression, groups.now)
    return groups


def encoded_whole(LogCore log not None, records, compression):
    """Encode a non-empty list as one group. Returns the arguments of append_group()."""
    return next(encoded_groups(log, records, compression))


cpdef AppendInfo append_group(LogCore log, BatchGroup group, int64_t now):
    """Append an encoded group atomically."""
    cdef Counters counters = log.counters
    cdef int64_t began = counters.append_begins(log.clock)
    try:
        info = group_appended(log, group, now)
    except Exception:
        counters.count_failed_append()
        raise
    counters.append_ends(began, log.clock)
    return info


cdef AppendInfo group_appended(LogCore log, BatchGroup group, int64_t now):
    cdef CallLock lock = log.lock
    if log.commits is not None:
        log.check_writable()
        return log.commits.through(log, Ticket(group, now))
    lock.take()
    try:
        lock.begin(log, "an append")
        return append_group_locked(log, group, now)
    finally:
        lock.give()


cpdef AppendInfo append_group_locked(LogCore log, BatchGroup group, int64_t now):
    """The same under the log's lock, for append_group and for commits."""
    cdef Counters counters = log.counters
    cdef Tail tail = tail_of(log)
    cdef bint simple
    if tail is None:
        log.check_writable()
    else:
        group.number(log.end_of_append(), tail.epoch)
    now = timed(log, group, now)
    simple = tail is not None and tail.write_group(log, group, now)
    if not simple:
        group_locked(log, group, now)
    counters.count_led(group.count, group.nbytes)
    if not simple:
        flush_if_due(log)
    return grouped(group, now if log.append_policy.stamps else -1, log.log_start_offset)


cdef int64_t timed(LogCore log, BatchGroup group, int64_t now) except? -1:
    """The time of an append of records that were encoded at `now`. As in Kafka it is the time that LogAppendTime
    sets."""
    cdef int64_t time
    if not log.append_policy.stamps:
        return now
    time = wall_ms(log.clock)
    if time != now:
        group.set_append_time(time)
    return time


# Encoded batches ------------------------------------------------------------------------------------------------------

def append_batches(LogCore log, buffer, str origin, leader_epoch):
    """Append encoded batches by the fast path if possible, else by the full path. See Log.append_batches."""
    cdef Counters counters = log.counters
    cdef AppendInfo info
    cdef int64_t began
    cdef bint leads
    if leader_epoch is not None and (type(leader_epoch) is not int or not 0 <= leader_epoch <= INT32_MAX):
        leader_epoch = whole("leader_epoch", leader_epoch, 0, INT32_MAX)
    check_buffer("buffer", buffer)
    leads = origin == "client" or origin == "coordinator"
    if not leads and origin != "replication" and origin != "raft":
        raise ValueError(f"origin={origin!r}: choose from 'client', 'replication', 'coordinator', 'raft'")
    began = counters.append_begins(log.clock)
    try:
        info = lead(log, buffer, origin, leader_epoch) if leads else follow(log, buffer, origin, leader_epoch)
    except Exception as error:
        counters.count_failed_append()
        if isinstance(error, KlogError):
            log.counters.refused(error, memoryview(buffer).nbytes)
        raise
    counters.append_ends(began, log.clock)
    return info


cdef AppendInfo lead(LogCore log, buffer, str origin, leader_epoch):
    if log.commits is None:
        return lead_alone(log, buffer, origin, leader_epoch)
    log.check_writable()
    info = log.commits.through(log, Ticket(action=partial(lead_alone, log, buffer, origin, leader_epoch)))
    log.options.scheduler.run_due()
    return info


cpdef AppendInfo lead_alone(LogCore log, buffer, str origin, leader_epoch):
    """Append the batch of a client or coordinator. Takes the log's lock; a commit holds it already."""
    cdef int64_t now
    cdef Tail tail = begin(log, &now)
    try:
        return led_locked(log, tail, buffer, origin, leader_epoch, now)
    finally:
        end(log, now)


cdef AppendInfo led_locked(LogCore log, Tail tail, buffer, str origin, leader_epoch, int64_t now):
    cdef AppendPolicy policy = log.append_policy
    cdef ValidatedBatch batch
    cdef Counters counters = log.counters
    cdef dict entries = None
    cdef int32_t epoch
    cdef bint simple
    if leader_epoch is not None:
        epoch = leader_epoch
    elif tail is not None:
        epoch = tail.epoch
    else:
        epoch = log.epochs.current
    batch = leaders_batch(buffer, policy.of_leader, log.end_of_append(), now, origin, epoch, policy.request_bytes_max)
    if batch is None:
        return nothing(log.end_of_append(), log.log_start_offset)
    simple = tail is not None and epoch == tail.epoch
    if simple and batch.header.producer_id >= 0:
        entries = tail.entries_after(batch, origin == "client")
        simple = entries is not None
    last = batch.header.base_offset + batch.header.last_offset_delta
    simple = simple and tail.write(log, batch, last, batch.max_timestamp, entries, now)
    if not simple and (duplicate := lead_locked(log, batch, epoch, origin, now)) is not None:
        return duplicate
    counters.count_led(batch.header.count, batch.nbytes)
    if not simple:
        flush_if_due(log)
    return led(batch, epoch, log.log_start_offset)


cdef AppendInfo follow(LogCore log, buffer, str origin, leader_epoch):
    cdef EncodedBatches batches = EncodedBatches.__new__(EncodedBatches)
    cdef bint raft = origin == "raft"
    try:
        if raft:
            batches.check(buffer, log.config.max_message_bytes, INT32_MAX, -1 if leader_epoch is None else leader_epoch)
        else:
            batches.check(buffer, -1, INT32_MAX if leader_epoch is None else leader_epoch, -1)
        if log.commits is None:
            return follow_alone(log, batches, origin)
        log.check_writable()
        info = log.commits.through(log, Ticket(action=partial(follow_alone, log, batches, origin)))
        log.options.scheduler.run_due()
        return info
    finally:
        batches.release()


cpdef AppendInfo follow_alone(LogCore log, EncodedBatches batches, str origin):
    """Append the batches of a leader. Takes the log's lock; a commit holds it already."""
    cdef int64_t now
    cdef Tail tail = begin(log, &now)
    try:
        return followed_locked(log, tail, batches, origin, now)
    finally:
        end(log, now)


cdef AppendInfo followed_locked(LogCore log, Tail tail, EncodedBatches batches, str origin, int64_t now):
    cdef Counters counters = log.counters
    cdef dict entries = None
    cdef int64_t end = log.end_of_append()
    cdef bint simple = tail is not None and not batches.has_legacy and (
        batches.one_leader_epoch and batches.last_leader_epoch == tail.epoch
        and (batches.first_offset == end or (batches.first_offset > end and origin != "raft")))
    if batches.n == 0:
        return nothing(end, log.log_start_offset)
    if simple and batches.has_producers:
        entries = tail.entries_after(batches, False)
        simple = entries is not None
    simple = simple and tail.write(log, batches, batches.last_offset, batches.max_timestamp, entries, now)
    if not simple:
        follow_locked(log, batches, origin, now)
    counters.count_replicated(batches.nbytes)
    if not simple:
        flush_if_due(log)
    return followed(batches, log.log_start_offset)


cdef int flush_if_due(LogCore log) except -1:
    """A11 of the full path; what needs a flush takes it. A commit flushes once, after all its appends."""
    if log.written_end < 0:
        flush_if_due_locked(log)
    return 0


cdef Tail begin(LogCore log, int64_t *now):
    """Take the log's lock for an append of encoded batches. Returns the Tail, None for the full path."""
    cdef Tail tail
    log.lock.take()
    try:
        if log.commits is None:        # else its commit has begun
            log.lock.begin(log, "an append")
        tail = tail_of(log)
        if tail is None:
            log.check_writable()
        now[0] = wall_ms(log.clock)
        return tail
    except BaseException:
        log.lock.give()
        raise


cdef int end(LogCore log, int64_t now) except -1:
    """Release the lock. Then look for due tasks, unless a commit goes on."""
    log.lock.give()
    if log.commits is None and is_time_to_look(log, now):
        log.options.scheduler.run_due()
    return 0


cdef bint is_time_to_look(LogCore log, int64_t now) noexcept:
    """Have LOOK_MS passed since an append checked for due tasks? The check takes half the time of a short append."""
    return log.takes_time(now, LOOK_MS)
