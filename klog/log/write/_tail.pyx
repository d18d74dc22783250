# cython: auto_pickle=False
"""The write of every append at the log end, and the fast path to it: a write and some numbers, or nothing.

Most appends find an open segment with enough space, the epoch of the last append and no listener. The full path would
cost more than the write. It is Python code, append_batches.py, which describes the steps A1 to A11.
"""

cimport cython
from libc.stdint cimport int32_t

from klog._c.index cimport kl_indexer_fit
from klog.log.state._counters cimport Counters
from klog.log.state._fields cimport EpochFields, TransactionFields
from klog.log.state._flush_state cimport FlushState
from klog.log.state._producer_entry cimport ProducerEntry

from klog.log.write.failures import uninterrupted
from klog.log.write.log_end import end_moved_locked
from klog.log.write.undo import undo_locked


cpdef int write_at_end(LogCore log, BatchTable batches, int64_t next_offset, int64_t now, dict entries, effects,
                       savepoint, write_parts) except -1:
    """A8 to A10 of one append: all of it or nothing, also after Ctrl-C. Under the log's lock.

    next_offset: the log end afterwards. entries: those of the batches' producers afterwards, None without producers.
    effects: what a commit or a failure takes back with take_back(). write_parts: writes the batches to several
    segments; None: the active one has space for all.

    savepoint: of the active segment, from the full path. Its effects are made by apply(), which returns an error to
    raise after the end has moved. None, from the fast path: after the write nothing can fail or be interrupted, since
    all objects are made before and the producers have entries.
    """
    cdef tuple before = log.segment_list.segments
    cdef SegmentState segment = <SegmentState>before[len(before) - 1]
    cdef ProducerFields producers = <ProducerFields>log.producers
    cdef int64_t end = log.end_of_append()
    failure = None
    if effects is not None and log.written_end >= 0:
        log.applied.append(effects)
    try:
        if write_parts is None:
            segment.write_batches(batches, 0, <int32_t>batches.n, now)
        else:
            write_parts(log, batches, now)
        if savepoint is not None and effects is not None:
            failure = effects.apply()
        producers.appended(next_offset, entries)
        if log.written_end >= 0:
            log.written_up_to(next_offset)
        else:
            log.advance(next_offset)
            if savepoint is not None:
                end_moved_locked(log)
            elif log.notifier._fds:
                log.notifier.notify()
    except BaseException as error:
        if log.end_of_append() == end:
            undo_locked(log, before, segment.savepoint() if savepoint is None else savepoint, error)
            if effects is not None and log.written_end >= 0:
                effects.take_back()     # if this is interrupted, the undo of the commit does it again
            elif effects is not None:
                uninterrupted(log, effects.take_back)
        else:
            producers.on_high_watermark_updated(log.high_watermark)     # the interruption may have prevented it
        raise
    if failure is not None:
        raise failure
    return 0


@cython.final
cdef class Tail:
    """The state of the log end for the fast path, valid while the log has the objects that this was made of. Under the
    log's lock.

    What needs the full path:

      tail_of, new_tail   a log that is not open for appends, has a listener, a transaction that ends with the move of
                          the log end, no leader epoch yet or one without a record, or an active segment that does not
                          take appends yet or begins beyond the log end
      led_locked          (_append) no whole batch, another leader epoch
      followed_locked     (_append) the same, messages of magic 0 and 1, offsets below the log end, for raft also beyond
      entries_after       a batch with a producer id that does not continue what this producer has sent: an unknown
                          producer, a duplicate, a sequence number out of order, a new producer epoch, the beginning of
                          a transaction, a marker
      takes, write        a roll, a flush that is due
    """

    cdef bint write(self, LogCore log, BatchTable batches, int64_t last_offset, int64_t max_timestamp,
                    dict entries, int64_t now) except -1:
        """write_at_end() of batches that the segment takes whole or not at all. False: the full path is needed, and
        nothing has been done."""
        cdef int64_t size = self.segment.size
        if not self.takes(log, batches, size, last_offset + 1):
            return False
        if self.index.must_roll(batches, last_offset, max_timestamp, size, self.segment_bytes, self.segment_ms,
                                self.waited(now)):
            return False
        effects = None if entries is None or log.written_end < 0 else ReplacedEntries(self.producers.entries, entries)
        write_at_end(log, batches, last_offset + 1, now, entries, effects, None, None)
        return True

    cdef bint write_group(self, LogCore log, BatchGroup group, int64_t now) except -1:
        """The same for a group, whose batches may be in different segments: here they must be in one."""
        cdef int64_t size = self.segment.size, next_offset = group.first_offset + group.count
        cdef int32_t n = <int32_t>group.n
        if not self.takes(log, group, size, next_offset):
            return False
        if kl_indexer_fit(&self.index.x, group.batches, n, size, self.segment_bytes, self.segment_ms,
                          self.waited(now)) < n:
            return False
        write_at_end(log, group, next_offset, now, None, None, None, None)
        return True

    cdef bint takes(self, LogCore log, BatchTable batches, int64_t size, int64_t next_offset) except -1:
        """Can the segment have all these batches, and is no flush due after them?"""
        cdef FlushState flushes = log.flush_state
        cdef Counters counters
        if size + batches.nbytes > self.segment_bytes:
            return False
        if log.written_end >= 0:       # a commit flushes after its appends
            return True
        if next_offset - flushes.recovery_point >= self.flush_messages or flushes.has_waited(self.flush_ms):
            return False
        if size + batches.nbytes >= self.flush_bytes > 0:  # what a roll has synced is in other segments
            counters = log.counters
            return counters.appended() + batches.nbytes - flushes.flushed_bytes < self.flush_bytes
        return True

    cdef dict entries_after(self, BatchTable batches, bint client):
        """A7: {producer id: its entry after these batches}. None: the full path must check them."""
        cdef ProducerEntry entry
        cdef kl_batch_t *b
        cdef Py_ssize_t i
        cdef object producer_id     # one int for all look-ups
        cdef dict known = self.producers.entries, after = {}
        for i in range(batches.n):
            b = &batches.batches[i]
            if b.producer_id < 0:
                continue
            producer_id = b.producer_id
            found = after.get(producer_id) if after else None
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
    cdef Tail tail = log.segment_list.tail
    cdef TransactionFields transactions
    if not log.health.takes_appends() or log.watermark.listener is not None:
        return None
    if (
        tail is None
        or tail.config is not log.config
        or tail.entries is not (<EpochFields?>log.epochs).entries
        or tail.producers is not log.producers
        or tail.active is not tail.segment._active
    ):
        tail = new_tail(log)
        log.segment_list.keep_tail(tail)
    if tail is None:
        return None
    transactions = tail.producers._transactions
    if transactions.first_unstable is not None and log.watermark.metadata is None and transactions.has_unreplicated:
        return None
    return tail


cdef Tail new_tail(LogCore log):
    cdef Tail tail
    config, entries, segment = log.config, log.epochs.entries, log.segment_list.segments[len(log.segment_list.segments) - 1]
    active = segment._active
    if (
        active is None or log.epochs.latest != log.epochs.current or active.config is not config
        or log.end_of_append() < segment.base_offset
    ):
        return None
    tail = Tail.__new__(Tail)
    tail.config, tail.entries = config, entries
    tail.producers = log.producers
    tail.segment, tail.active, tail.index = segment, active, active.index
    tail.segment_bytes, tail.segment_ms, tail.created_ms = active.size_max, active.age_max_ms, segment.created_ms
    tail.flush_messages, tail.flush_ms, tail.flush_bytes = (
        config.flush_messages, config.flush_ms, config.klog_flush_bytes)
    tail.epoch = entries[len(entries) - 1][0]
    return tail
