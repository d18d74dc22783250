# cython: auto_pickle=False
"""Appending: of records, encoded here, and of encoded batches. append_batches.py describes the steps A1 to A11.

Most appends find an open segment with enough space, the epoch of the last append and no listener. They need only a
write and some numbers, and the full path would cost more than both. The fast path, Tail, does exactly that, or nothing:
then the full path continues with the checked batches. Tail lists all that needs the full path, which is Python code:
append_batches.py.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from klog._c.batch cimport kl_batch_t
from klog._c.index cimport kl_indexer_fit, kl_indexer_must_roll
from klog.disk._io cimport LogFile
from klog.locks cimport CallLock
from klog.log.state._counters cimport Counters
from klog.log.state._flush_state cimport FlushState
from klog.log.state._log_core cimport LogCore
from klog.log.state._producer_entry cimport ProducerEntry
from klog.log.write._append_info cimport AppendInfo, followed, grouped, led
from klog.record._arguments cimport check_buffer
from klog.record._builder cimport BatchGroup, Encoder
from klog.record._encoded cimport EncodedBatches
from klog.record._leader cimport ValidatedBatch, leaders_batch
from klog.record._table cimport BatchTable
from klog.segment._index cimport IndexPair
from klog.segment._state cimport SegmentState

from functools import partial

from klog.arguments import whole
from klog.clock import SystemClock
from klog.errors import KlogError
from klog.log.write._commit import Ticket
from klog.log.write.append_batches import follow_locked, group_locked, lead_locked
from klog.log.write.inputs import prepared
from klog.log.write.undo import undo_locked

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
    cdef EncodedGroups groups = EncodedGroups.__new__(EncodedGroups, log, records, compression)
    while (group := groups.next()) is not None:
        appended = append_group(log, group, groups.now)
        info = appended if info is None else info.joined(appended)
    if is_time_to_look(log, groups.now):
        log.options.scheduler.run_due()
    return nothing(log) if info is None else info


@cython.final
cdef class EncodedGroups:
    """Encodes records. Iterates (group, time of the encoding): the arguments of append_group()."""

    cdef LogCore log
    cdef Encoder encoder
    cdef int64_t now
    cdef bint whole         # all records are in memory, and make one group
    cdef bint begun

    def __cinit__(self, LogCore log not None, records, compression):
        log.check_writable()
        self.log = log
        self.now = wall_ms(log.options.clock)
        self.whole = True
        if type(records) is not list and type(records) is not tuple:
            records, self.whole = prepared(records)
        self.encoder = log.append_policy.encoder(records, compression, self.now)

    cdef BatchGroup next(self):
        """The next group, None at the end."""
        if self.begun:
            if self.whole:
                return None
            PyErr_CheckSignals()    # an iterator in C may be endless
            self.now = wall_ms(self.log.options.clock)     # a generator may take hours
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


def encoded_whole(LogCore log, records, compression):
    """Encode a non-empty list as one group. Returns the arguments of append_group()."""
    return next(EncodedGroups(log, records, compression))


cpdef AppendInfo append_group(LogCore log, BatchGroup group, int64_t now):
    """Append an encoded group atomically."""
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
    cdef Counters counters
    cdef Tail tail = tail_of(log)
    if tail is None:
        log.check_writable()
        return group_locked(log, group, timed(log, group, now))
    group.number(log.end_of_append(), tail.epoch)
    now = timed(log, group, now)
    if not tail.write_group(log, group, now):
        return group_locked(log, group, now)
    counters = log.counters
    counters.messages_in += group.count
    counters.bytes_in += group.nbytes
    return grouped(group, now if log.append_policy.stamps else -1, log.log_start_offset)


cdef int64_t timed(LogCore log, BatchGroup group, int64_t now) except? -1:
    """The time of an append of records that were encoded at `now`. As in Kafka it is the time that LogAppendTime sets."""
    cdef int64_t time
    if not log.append_policy.stamps:
        return now
    time = wall_ms(log.options.clock)
    if time != now:
        group.set_append_time(time)
    return time


# Encoded batches ------------------------------------------------------------------------------------------------------

def append_batches(LogCore log, buffer, str origin, leader_epoch):
    """Append encoded batches by the fast path if possible, else by the full path. See Log.append_batches."""
    if leader_epoch is not None and (type(leader_epoch) is not int or not 0 <= leader_epoch <= INT32_MAX):
        leader_epoch = whole("leader_epoch", leader_epoch, 0, INT32_MAX)
    check_buffer("buffer", buffer)
    try:
        if origin == "client" or origin == "coordinator":
            return lead(log, buffer, origin, leader_epoch)
        if origin == "replication" or origin == "raft":
            return follow(log, buffer, origin, leader_epoch)
    except KlogError as error:
        log.counters.refused(error, memoryview(buffer).nbytes)
        raise
    raise ValueError(f"origin={origin!r}: choose from 'client', 'replication', 'coordinator', 'raft'")


cdef AppendInfo lead(LogCore log, buffer, str origin, leader_epoch):
    if log.commits is None:
        return lead_alone(log, buffer, origin, leader_epoch)
    log.check_writable()
    info = log.commits.through(log, Ticket(action=partial(lead_alone, log, buffer, origin, leader_epoch)))
    log.options.scheduler.run_due()
    return info


cpdef AppendInfo lead_alone(LogCore log, buffer, str origin, leader_epoch):
    """Append the batch of a client or coordinator. Takes the log's lock; a commit holds it already."""
    cdef ValidatedBatch batch
    cdef AppendInfo info
    cdef Counters counters
    cdef Tail tail
    cdef dict entries = None
    cdef int64_t end, last, now
    cdef int32_t epoch
    cdef bint look = False, simple
    cdef CallLock lock = log.lock
    lock.take()
    try:
        if log.commits is None:        # else its commit has begun
            lock.begin(log, "an append")
        tail = tail_of(log)
        if tail is None:
            log.check_writable()
        config = log.config
        now = wall_ms(log.options.clock)
        end = log.end_of_append()
        if leader_epoch is not None:
            epoch = leader_epoch
        elif tail is not None:
            epoch = tail.epoch
        else:
            latest = log.epochs.latest
            epoch = log.epochs.default if latest is None else latest
        batch = leaders_batch(buffer, config, end, now, origin, epoch, config.max_message_bytes)
        simple = tail is not None and batch is not None and epoch == tail.epoch
        if simple and batch.header.producer_id >= 0:
            entries = tail.entries_after(batch, origin == "client")
            simple = entries is not None
        if simple:
            last = batch.header.base_offset + batch.header.last_offset_delta
            if tail.write(log, batch, last, batch.max_timestamp, entries, now):
                look = log.commits is None and is_time_to_look(log, now)
                counters = log.counters
                counters.messages_in += batch.header.count
                counters.bytes_in += batch.nbytes
                return led(batch, epoch, log.log_start_offset)
        look = log.commits is None and is_time_to_look(log, now)
        info = lead_locked(log, batch, epoch, origin, now)
        return info
    finally:
        lock.give()
        if look:
            log.options.scheduler.run_due()


cdef AppendInfo follow(LogCore log, buffer, str origin, leader_epoch):
    cdef EncodedBatches batches = EncodedBatches.__new__(EncodedBatches)
    cdef bint raft = origin == "raft"
    try:
        if raft:
            batches.look(buffer, log.config.max_message_bytes, INT32_MAX, -1 if leader_epoch is None else leader_epoch)
        else:
            batches.look(buffer, -1, INT32_MAX if leader_epoch is None else leader_epoch, -1)
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
    cdef AppendInfo info
    cdef Counters counters
    cdef Tail tail
    cdef dict entries = None
    cdef int64_t end, now
    cdef bint raft = origin == "raft", look = False, simple
    cdef CallLock lock = log.lock
    lock.take()
    try:
        if log.commits is None:        # else its commit has begun
            lock.begin(log, "an append")
        tail = tail_of(log)
        now = wall_ms(log.options.clock)
        if tail is None:
            log.check_writable()
        elif batches.n != 0 and not batches.has_legacy and (
            batches.one_leader_epoch and batches.last_leader_epoch == tail.epoch
        ):
            end = log.end_of_append()
            simple = batches.first_offset == end or (batches.first_offset > end and not raft)
            if simple and batches.has_producers:
                entries = tail.entries_after(batches, False)
                simple = entries is not None
            if simple and tail.write(log, batches, batches.last_offset, batches.max_timestamp, entries, now):
                look = log.commits is None and is_time_to_look(log, now)
                counters = log.counters
                counters.replicated_bytes_in += batches.nbytes
                return followed(batches, log.log_start_offset)
        look = log.commits is None and is_time_to_look(log, now)
        info = follow_locked(log, batches, origin, now)
        return info
    finally:
        lock.give()
        if look:
            log.options.scheduler.run_due()


cpdef AppendInfo nothing(LogCore log):
    """The result of an append without records."""
    return AppendInfo(log.log_end_offset, log.log_end_offset - 1, 0, -1, -1)


cdef bint is_time_to_look(LogCore log, int64_t now) noexcept:
    """Have LOOK_MS passed since an append checked for due tasks? The check takes half the time of a short append."""
    return log.takes_time(now, LOOK_MS)


# The fast path --------------------------------------------------------------------------------------------------------

@cython.final
cdef class Tail:
    """The state of the log end for the fast path, valid while the log has the objects that this was made of. Under the
    log's lock.

    What needs the full path:

      tail_of, new_tail   a log that is not open for appends, has a listener, a transaction that ends with the move of the
                          log end, no leader epoch yet, or an active segment that does not take appends yet or begins
                          beyond the log end
      lead_alone          no whole batch, another leader epoch
      follow_alone        the same, messages of magic 0 and 1, offsets below the log end or, for raft, beyond it
      entries_after       a batch with a producer id that does not continue what this producer has sent: an unknown
                          producer, a duplicate, a sequence number out of order, a new producer epoch, the beginning of
                          a transaction, a marker
      takes, write        a roll, a flush that is due
      add                 a failure: the full path's undo
    """
    cdef object segments
    cdef object config
    cdef object entries
    cdef object producers
    cdef SegmentState segment
    cdef object active
    cdef LogFile file
    cdef IndexPair index
    cdef int64_t segment_bytes
    cdef int64_t segment_ms
    cdef int64_t created_ms
    cdef int64_t appended_ms    # appended_ms of the segment, -1 before the first append
    cdef int64_t flush_messages
    cdef int64_t flush_ms
    cdef int64_t flush_bytes    # 0 for no limit
    cdef int32_t epoch
    cdef bint plain             # the file is a LogFile and not a subclass

    cdef bint write(self, LogCore log, BatchTable batches, int64_t last_offset, int64_t max_timestamp,
                    dict entries, int64_t now) except -1:
        """A8 to A10, of batches that the segment takes whole or not at all. entries: those of their producers afterwards,
        None without producers. False: the full path is needed, and nothing has been done."""
        cdef kl_batch_t b
        cdef int64_t size = self.segment.size
        if not self.takes(log, batches, size, last_offset + 1, now):
            return False
        b.base_offset = last_offset
        b.last_offset_delta = 0
        b.max_timestamp = max_timestamp
        b.size = <int32_t>batches.nbytes
        if kl_indexer_must_roll(&self.index.x, &b, size, self.segment_bytes, self.segment_ms, self.waited(now)):
            return False
        self.add(log, batches, size, last_offset + 1, entries, now)
        return True

    cdef bint write_group(self, LogCore log, BatchGroup group, int64_t now) except -1:
        """The same for a group, whose batches may be in different segments: here they must be in one."""
        cdef int64_t size = self.segment.size, next_offset = group.first_offset + group.count
        cdef int32_t n = <int32_t>group.n
        if not self.takes(log, group, size, next_offset, now):
            return False
        if kl_indexer_fit(&self.index.x, group.batches, n, size, self.segment_bytes, self.segment_ms,
                          self.waited(now)) < n:
            return False
        self.add(log, group, size, next_offset, None, now)
        return True

    cdef bint takes(self, LogCore log, BatchTable batches, int64_t size, int64_t next_offset, int64_t now) except -1:
        """Can the segment have all these batches, and is no flush due after them?"""
        cdef FlushState flushes = log.flush_state
        cdef Counters counters
        if size + batches.nbytes > self.segment_bytes:
            return False
        if log.written_end >= 0:       # a commit flushes after its appends
            return True
        if next_offset - flushes.recovery_point >= self.flush_messages or now - flushes.flushed_ms >= self.flush_ms:
            return False
        if self.flush_bytes:
            counters = log.counters
            return counters.appended() + batches.nbytes - flushes.flushed_bytes < self.flush_bytes
        return True

    cdef dict entries_after(self, BatchTable batches, bint client):
        """A7: {producer id: its entry after these batches}. None: the full path must check them."""
        cdef ProducerEntry entry
        cdef kl_batch_t *b
        cdef Py_ssize_t i
        cdef dict known = self.producers.entries, after = {}
        for i in range(batches.n):
            b = &batches.batches[i]
            if b.producer_id < 0:
                continue
            producer_id = b.producer_id
            found = after.get(producer_id)
            entry = known.get(producer_id) if found is None else found
            if entry is None or not entry.continues(b, client):
                return None
            if found is None:
                after[producer_id] = entry = entry.copy()
            entry.take(b)
        return after

    cdef int64_t waited(self, int64_t now) noexcept:
        """The age of a segment whose records have no timestamps."""
        return now - self.created_ms if self.index.x.first_timestamp < 0 else 0

    cdef int add(self, LogCore log, BatchTable batches, int64_t size, int64_t next_offset, dict entries,
                 int64_t now) except -1:
        """Write at byte size, index, and move the log end. After the write nothing can fail or be interrupted: all
        objects are made before, and the producers have entries."""
        cdef object after = next_offset, time = now
        cdef dict known = self.producers.entries
        if entries is not None and log.written_end >= 0:
            log.applied.append(ReplacedEntries(known, entries))
        try:
            self.index.reserve(<int32_t>batches.n)
            if size + batches.nbytes > <int64_t>self.active.stop:
                self.active.make_room(size, size + batches.nbytes)
            if self.plain:
                self.file.write_at(batches.bytes_at, <size_t>batches.nbytes, size)
            else:
                self.file.write(batches, size)
        except BaseException as error:
            undo_locked(log, self.segments, self.segment.savepoint(), error)
            raise
        self.index.add(batches, 0, <int32_t>batches.n, size)
        self.segment.next_offset = next_offset
        self.segment.size = size + batches.nbytes
        if now != self.appended_ms:
            self.segment.appended_ms = time
            self.appended_ms = now
        if entries is not None:
            for producer_id, entry in entries.items():
                known[producer_id] = entry
        self.producers.end_offset = after
        if log.written_end >= 0:
            log.written_up_to(next_offset)
            return 0
        log.advance(next_offset)
        if log.bell._fds:
            log.bell.ring()
        return 0


@cython.final
cdef class ReplacedEntries:
    """What a commit takes back of an append by the fast path, also if that replaced nothing: entries of producers."""

    cdef dict known
    cdef dict before

    def __cinit__(self, dict known not None, dict replaced not None):
        self.known = known
        self.before = {producer_id: known[producer_id] for producer_id in replaced}

    def take_back(self):
        """Restore the entries."""
        self.known.update(self.before)


cdef Tail tail_of(LogCore log):
    """The log's Tail, None if the full path is needed."""
    cdef Tail tail = log.tail
    if not log.health.takes_appends() or log.watermark.listener is not None:
        return None
    if (
        tail is None
        or tail.segments is not log.segment_list.segments
        or tail.config is not log.config
        or tail.entries is not log.epochs._entries
        or tail.producers is not log.producers
        or tail.active is not tail.segment._active
    ):
        log.tail = tail = new_tail(log)
    if tail is None:
        return None
    transactions = tail.producers._transactions
    if transactions.first_unstable is not None and log.watermark.mark is None and transactions.has_unreplicated:
        return None
    return tail


cdef Tail new_tail(LogCore log):
    cdef Tail tail
    config, entries, segment = log.config, log.epochs._entries, log.segment_list.segments[len(log.segment_list.segments) - 1]
    active = segment._active
    if (
        active is None or not entries or active.config is not config
        or log.end_of_append() < segment.base_offset
    ):
        return None
    tail = Tail.__new__(Tail)
    tail.segments, tail.config, tail.entries = log.segment_list.segments, config, entries
    tail.producers = log.producers
    tail.segment, tail.active, tail.file, tail.index = segment, active, active.file, active.index
    tail.plain = type(active.file) is LogFile
    tail.segment_bytes, tail.segment_ms, tail.created_ms = active.size_max, active.age_max_ms, segment.created_ms
    tail.appended_ms = -1
    tail.flush_messages, tail.flush_ms, tail.flush_bytes = (
        config.flush_messages, config.flush_ms, config.klog_flush_bytes)
    tail.epoch = entries[len(entries) - 1][0]
    return tail
