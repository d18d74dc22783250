# cython: auto_pickle=False
"""The core of an open log: its state, each part with one owner. All that works on a log takes a LogCore.

  segments, and the counters of their changes    SegmentList
  log start, log end, end of a running commit    LogCore
  recovery point, flushed bytes and time         FlushState
  high watermark, listener                       HighWatermark
  producers, transactions, snapshots             Producers
  leader epochs                                  LeaderEpochCache
  open, offline, unreadable, deleted, forked     Health
  path, SegmentDir, claim, owner of checkpoints  PartitionDir
  waiting commits                                CommitQueue
  what a reader knows of the writer's files      Follower

The fields are struct members for the hot paths. Python code may read them; it changes them by methods of their owners.
What must change together changes in one method, so that no thread and no signal handler sees a part of it. Order
of locks: a pause of cleanings, the log's `beside` lock, the log's lock, the sync lock.
"""

from libc.stdint cimport INT64_MAX, int64_t

from klog.locks cimport CallLock
from klog.log.state._fetch_positions cimport FetchPositions
from klog.log.state._flush_state cimport FlushState
from klog.log.state._health cimport Health
from klog.log.state._high_watermark cimport HighWatermark
from klog.log.state._segment_list cimport SegmentList
from klog.log.state._append_policy cimport policy_of

from klog.arguments import whole
from klog.errors import OffsetOutOfRange
from klog.log.state import forks
from klog.logger import logger_of

_log = logger_of("log")


cdef class LogCore:
    """The state of one open log.

    applied: effects of the running commit on producers, with a method take_back(). written_end: during a commit the end
    of what it has written, else -1. commits: the queue of durability="sync", else None.
    """

    def __init__(self, options, directory, *, counters, notifier, sends, commits, sync_lock, cleaning, reading,
                 newest_before, aborted_finder, follower):
        """Not loaded yet, and closed."""
        self.options, self.clock, self.directory, self.config = options, options.clock, directory, options.config
        self.name = f"{options.topic}-{options.partition}"
        self.append_policy = policy_of(options.config)
        self.lock = CallLock()
        self.segment_list = SegmentList()
        self.health = Health(self.name, options.read_only, forks.process_id())
        self.watermark = HighWatermark(options.offsets_listener)
        self.fetch_positions = FetchPositions()
        self.counters, self.notifier, self.sends = counters, notifier, sends
        self.commits, self.sync_lock, self.cleaning = commits, sync_lock, cleaning
        self.reading, self.newest_before, self.aborted_finder = reading, newest_before, aborted_finder
        self.follower = follower
        self.bound_end()
        if follower is not None and (options.end_max is None or options.held_by is not None):   # no snapshot
            self.watched = follower.watched
        self.written_end = -1
        self.applied = []

    def __repr__(self):
        state = "closed" if self.health.closed else "read-only" if self.health.read_only else "open"
        return f"<Log {self.name} [{self.log_start_offset}, {self.log_end_offset}) {state}>"

    def __reduce__(self):
        raise TypeError(f"{self!r} belongs to its process: send its path, and open that there with read_only=True")

    cdef int follow_writer(self) except -1:
        """Of a reader: follow the writer, unless its files are as at the last look."""
        if self.watched is not None and self.health.takes_reads() and not self.watched.unchanged():
            self.follower.follow(self)
        return 0

    @property
    def now(self):
        """The core itself, of a reader after it has followed the writer."""
        self.follow_writer()
        return self

    # What it is

    @property
    def topic(self):
        """The topic's name."""
        return self.options.topic

    @property
    def partition(self):
        """The partition's number."""
        return self.options.partition

    @property
    def path(self):
        """Path of the directory."""
        return self.directory.path

    @property
    def read_only(self):
        """Was it opened with read_only=True?"""
        return self.health.read_only

    @property
    def is_snapshot(self):
        """Does its log end stay where it is: at one moment, or until a commit in progress has ended?"""
        return self.end_max != INT64_MAX

    @property
    def closed(self):
        """Does it take no calls?"""
        return self.health.closed

    # Segments

    @property
    def segments(self):
        """The segments, oldest first: an immutable tuple."""
        return self.segment_list.segments

    @property
    def generation(self):
        """See SegmentList."""
        return self.segment_list.generation

    @property
    def rewritten(self):
        """See SegmentList."""
        return self.segment_list.rewritten

    @property
    def taken_back(self):
        """See SegmentList."""
        return self.segment_list.taken_back

    @property
    def moment(self):
        """The current Moment of the segments."""
        return self.segment_list.moment

    @property
    def size(self):
        """Bytes of all .log files."""
        sizes = self.segment_list.sizes
        return sizes.before(len(sizes.segments))

    # Offsets

    @property
    def append_end(self):
        """The offset of the next append: the log end or, in a commit, the end of what it has written."""
        return self.end_of_append()

    cdef int64_t end_of_append(self) noexcept:
        return self.log_end_offset if self.written_end < 0 else self.written_end

    @property
    def high_watermark(self):
        """The exclusive bound of what consumers read."""
        return self.high_watermark_now()

    cdef int64_t high_watermark_now(self) except? -1:
        if self.watermark.metadata is not None:
            return self.watermark.offset
        if not self.health.read_only:
            return self.log_end_offset
        bound = self.options.high_watermark
        if bound is None:
            return self.log_end_offset
        return min(max(<int64_t>bound, self.log_start_offset), self.log_end_offset)

    @property
    def is_managed(self):
        """Has the high watermark been set? Until then it is the log end."""
        return self.watermark.metadata is not None

    @property
    def recovery_point(self):
        """The offset below which everything is on disk."""
        return self.flush_state.recovery_point

    @property
    def unflushed_bytes(self):
        """Bytes appended since the last flush that are in the active segment: a roll has synced the others."""
        cdef tuple segments = self.segments
        if not segments or self.flush_state.recovery_point >= self.log_end_offset:
            return 0
        return min(self.counters.appended() - self.flush_state.flushed_bytes, <int64_t>segments[len(segments) - 1].size)

    def check_held(self, offset):
        """Raise OffsetOutOfRange for an offset below the log start or above the log end."""
        if type(offset) is not int:
            offset = whole("offset", offset)
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset, self.name)

    def start_at(self, int64_t offset):
        """Raise the log start."""
        self.log_start_offset = min(offset, self.end_max)

    def end_at(self, int64_t offset):
        """Move the log end: bytes below it have been written, or the records above it removed."""
        self.advance(offset)

    cdef void advance(self, int64_t end) noexcept:
        """end_at() for the hot paths."""
        self.log_end_offset = min(end, self.end_max)

    def bound_end(self):
        """Take the bound of the log end from the options."""
        end_max = self.options.end_max
        self.end_max = INT64_MAX if end_max is None else end_max

    # Commits

    def begin_commit(self):
        """A commit begins: until it ends, appends move only written_end."""
        self.applied = []
        self.written_end = self.log_end_offset

    cdef void written_up_to(self, int64_t end) noexcept:
        """An append of the commit has written up to `end`."""
        self.written_end = end

    cdef void publish(self, int64_t end) noexcept:
        """The commit is on disk: the log ends here now."""
        self.advance(end)
        self.written_end = -1

    def leave_commit(self):
        """The commit is undone from here on."""
        self.written_end = -1

    def end_commit(self):
        """The commit has ended, successful or not."""
        self.written_end = -1
        self.applied = []

    # Changes of several parts

    def load(self, loaded):
        """Use the result of the first load."""
        self.segment_list.load(self.of_this_moment(loaded.segments))
        self.use(loaded)
        self.flush_state = FlushState(loaded.recovery_point, self.clock)
        self.recovery = loaded.recovery

    cdef of_this_moment(self, segments):
        """The segments, without those that begin after a snapshot's moment."""
        if self.end_max == INT64_MAX:
            return segments
        return [segment for segment in segments if segment.base_offset < self.end_max] or segments[:1]

    cdef int use(self, loaded) except -1:
        cdef tuple segments = self.segment_list.segments
        cdef int64_t start = min(<int64_t>loaded.log_start_offset, self.end_max)
        self.epochs, self.producers, self.log_start_offset = loaded.epochs, loaded.producers, start
        if loaded.shows_transactions:
            self.aborted_finder.show()
        self.log_end_offset = max(<int64_t>segments[len(segments) - 1].next_offset, start) if segments else start
        if self.is_snapshot:
            self.log_end_offset = min(self.log_end_offset, self.end_max)
            self.epochs.truncate_from_end(self.end_max)     # in memory: a reader writes no file
        return 0

    def reload(self, loaded):
        """Use the result of a load after the writer has truncated or replaced segments."""
        self.segment_list.reload(self.of_this_moment(loaded.segments))
        self.use(loaded)

    def follow(self, segments, bint oldest_gone):
        """A reader follows rolls and deletions of the writer in another process."""
        segments = self.of_this_moment(segments)
        self.segment_list.follow(segments, oldest_gone)
        if segments:
            self.start_at(max(self.log_start_offset, <int64_t>segments[0].base_offset))
            self.end_at(max(self.log_end_offset, <int64_t>segments[len(segments) - 1].next_offset))

    def cut(self, segments, int64_t log_start_offset, int64_t log_end_offset):
        """A truncation leaves these segments and offsets. Before the first byte is removed."""
        self.segment_list.cut(segments)
        self.log_start_offset, self.log_end_offset = log_start_offset, log_end_offset

    def use_producers(self, producers):
        """Replace the producer state by one that was computed from the batches."""
        self.producers = producers

    def use_epochs(self, epochs):
        """Replace the leader epochs by those that a reader has read again."""
        epochs.truncate_from_end(self.end_max)
        self.epochs = epochs

    def configure(self, config):
        """Use another configuration."""
        self.append_policy = policy_of(config)
        self.config = config
        self.options.configure(config)
        if self.directory.segment_dir is not None:
            self.directory.segment_dir.configure(config)

    def exchange(self, LogCore other not None):
        """Exchange the files of two logs, the last step of a move between log.dirs: users of this log then use what the
        other was. Lock, waiting commits, counters and listeners stay. Under both locks; no sync runs."""
        mine, others = self.unflushed_bytes, other.unflushed_bytes
        self.options, other.options = other.options, self.options
        self.clock, other.clock = other.clock, self.clock
        self.config, other.config = other.config, self.config
        self.append_policy, other.append_policy = other.append_policy, self.append_policy
        self.directory, other.directory = other.directory, self.directory
        self.health, other.health = other.health, self.health
        self.flush_state, other.flush_state = other.flush_state, self.flush_state
        self.epochs, other.epochs = other.epochs, self.epochs
        self.producers, other.producers = other.producers, self.producers
        self.recovery, other.recovery = other.recovery, self.recovery
        self.log_start_offset, other.log_start_offset = other.log_start_offset, self.log_start_offset
        self.log_end_offset, other.log_end_offset = other.log_end_offset, self.log_end_offset
        self.segment_list.exchange(other.segment_list)
        self.watermark.exchange(other.watermark)
        self.flush_state.recount(self.counters.appended() - others)
        other.flush_state.recount(other.counters.appended() - mine)
        self.aborted_finder.exchange(other.aborted_finder)
        self.fetch_positions.forget()
        other.fetch_positions.forget()

    # Calls and failures

    def check_open(self):
        """Raise LogClosed, StorageOffline or ForkedHandle unless the log can be read, UnknownTopicOrPartition if a reader
        has found no directory at its path."""
        if not self.health.takes_reads():
            self.health.check_open()
        if self.follower is not None and self.follower.is_gone:
            raise self.follower.gone(self)

    def check_writable(self):
        """Raise unless the log can be changed; see Health."""
        cdef CallLock lock = self.lock
        if not self.health.takes_appends():
            if self.health.undoing and not lock.is_mine():     # another thread's write: wait for the end of its undo
                lock.take()
                lock.give()
            self.health.check_writable(self.directory.path)

    def check_idle(self, what):
        """Begin a call that changes the log. Raises if another one is running or the log is not writable. Under the
        lock."""
        self.lock.begin(self, what)
        self.check_writable()

    def go_offline(self, reason, *, bint disk=True):
        """Take the log offline. disk: the disk has failed, so the owner takes the whole log.dir offline."""
        self.health.go_offline(reason)
        _log.error("event=offline log=%s reason=%s", self.name, reason)
        if disk and self.directory.owner is not None:
            self.directory.owner.failed(self, reason)

    def disk_failed(self, reason):
        """Take the log offline with its log.dir, unless it is offline. Takes the lock."""
        health = self.health
        with self.lock:
            if self.health is health and health.offline is None:  # else a move has exchanged its disk meanwhile
                self.go_offline(reason)

    def read_failed(self, error):
        """Count a failed read. Several in a row take the log offline (P6)."""
        reason = self.health.read_failed(error)
        if reason is not None:
            self.disk_failed(reason)

    cdef bint takes_time(self, int64_t now, int64_t least_ms) noexcept:
        """Have least_ms passed since an append checked for due tasks? If so, the caller checks now."""
        if self.looked_ms <= now < self.looked_ms + least_ms:
            return False
        self.looked_ms = now
        return True

    def expire_with(self, task):
        """Note the task that expires producers."""
        self.expiry = task

    def end_appends(self):
        """The log is being closed: cancel that task, and hold no file for the fast path."""
        self.segment_list.keep_tail(None)
        if self.expiry is not None:
            self.expiry.cancel()

    def _after_fork(self):
        self.lock = CallLock()
        self.notifier.renew()
        self.options.handles.renew()
        if self.commits is not None:
            self.commits.renew()
        self.cleaning.renew()
        self.health.in_child()
        if self.directory.segment_dir is not None:
            self.directory.segment_dir.renew()
        if self.follower is not None:
            self.follower.renew()
