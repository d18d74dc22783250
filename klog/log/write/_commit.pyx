# cython: auto_pickle=False
"""The commit queue: appends of durability="sync" share one write and one fdatasync.

  Q1  one appender at a time leads: it takes the log's lock, then all queued tickets as its group; the group is closed
  Q2  an append gets its outcome, and its thread continues, only after the fdatasync of its group has returned
  Q3  the leader hands on leadership before it notifies event loops, so no ticket is left without a leader, however a
      leader ends. A worker requested by a loop leads when it starts, unless another leader exists by then. Appenders
      that arrive earlier do not wait for the worker: they may occupy the whole executor
  Q4  Ctrl-C removes an append from the queue. If its group is being committed, it waits for the outcome first: the
      waiting thread owns the bytes that are being written

Nothing here takes a lock. The code relies on the GIL, which the build declares as needed: between two calls of Python
code no other thread runs and no Ctrl-C arrives. commit.py does the work of a group.

**Half groups.** While one group syncs, the appenders of the group before return with their next appends. A leader that
started at once would find half of them: N threads make N/2 appends per fdatasync. So a leader waits for the appenders
of the last group, from the moment they got their outcome, for a part of the last fdatasync's time. A lone appender
never waits. LevelDB: DBImpl::BuildBatchGroup; MySQL's and MariaDB's binlog_commit_wait_usec for the wait.
"""

cimport cython
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from klog.locks cimport CallLock, OwnLock
from klog.log.state._log_core cimport LogCore

from _thread import allocate_lock, get_ident
from functools import partial

from klog.errors import ReentrantCall, StorageOffline

cdef enum:
    QUEUED
    LEADS               # is to lead the next group; still in the queue
    TAKEN
    DONE

cdef enum:
    PATIENCE_MAX_NS = 20_000_000    # of waiting for a group, which takes at most as long as the last fdatasync
    PAUSE_SHARE = 2                 # of the patience: so long without an arrival ends it


cdef int64_t now_ns() noexcept:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <int64_t>at.tv_sec * 1_000_000_000 + at.tv_nsec


@cython.final
cdef class Ticket:
    """One queued append: an encoded group and its time, or an action to call under the log's lock.

    Its outcome is an info or an error.
    """

    cdef readonly object group
    cdef readonly int64_t now
    cdef readonly object action
    cdef public object info
    cdef public object error
    cdef object lock        # of the waiting thread, None for a task
    cdef object loop
    cdef object future
    cdef int state

    def __init__(self, group=None, int64_t now=0, action=None):
        self.group, self.now, self.action = group, now, action

    cdef outcome(self):
        if self.error is not None:
            error, self.error = self.error, None    # breaks the cycle of traceback and ticket
            raise error
        return self.info


@cython.final
cdef class CommitQueue:
    """The queued appends of one log. Any thread."""

    cdef object commit          # commit_locked(log, tickets): does the work of a group
    cdef list queued
    cdef bint led
    cdef set ordered            # loops that have requested a worker that has not started
    cdef bint gathering
    cdef object wake            # the leader's, while it gathers
    cdef Py_ssize_t expected    # appends expected in the next group: as many as in the last one and after it
    cdef int64_t answered_ns    # when the last group got its outcomes
    cdef int64_t arrived_ns     # while it gathers: when the last append arrived
    cdef int64_t patience_ns
    cdef set inside             # threads in through(): an append of a signal handler there would wait for itself
    cdef readonly int64_t groups
    cdef readonly int64_t appends       # in all groups
    cdef readonly int64_t largest

    def __init__(self, commit):
        self.commit = commit
        self.renew()

    def __len__(self):
        return len(self.queued)

    def metrics(self):
        """How many appends shared an fdatasync."""
        return {
            "CommitGroupSizeCount": self.groups,
            "CommitGroupSizeMean": self.appends / <double>self.groups if self.groups else 0.0,
            "CommitGroupSizeMax": self.largest,
            "CommitQueueSize": len(self.queued),
        }

    def renew(self):
        """Reset in a forked child, where no thread waits."""
        self.queued = []
        self.ordered = set()
        self.inside = set()
        self.led = self.gathering = False
        self.wake = allocate_lock()
        self.wake.acquire()

    # Threads ---------------------------------------------------------------------------------------------------------

    def through(self, log, Ticket ticket):
        """Queue a ticket and wait for its outcome. Returns its info or raises its error."""
        cdef CallLock lock = log.lock
        lock.check(log, "an append")
        if lock.is_mine():              # for example in a listener: no other leader could take the lock
            lock.take()
            try:
                self.commit(log, [ticket])
            finally:
                lock.give()
            return ticket.outcome()
        me = get_ident()
        if me in self.inside:
            raise ReentrantCall(f"{log.name}: an append inside another append of the same thread: "
                                "a signal handler must not append; set a flag and append after it returns")
        self.inside.add(me)
        try:
            ticket.lock = allocate_lock()
            ticket.lock.acquire()
            if self.add(ticket) or self.wait(log, ticket):
                self.lead(log, ticket)
        finally:
            self.inside.discard(me)
        return ticket.outcome()

    cdef int add(self, Ticket ticket) except -1:
        """Queue a ticket. Is it to lead?"""
        self.queued.append(ticket)
        if not self.led:
            self.led = True
            return 1
        self.arrives()
        return 0

    cdef int arrives(self) except -1:
        """An append has been queued: wake the leader if it waits for no other."""
        if self.gathering:
            self.arrived_ns = now_ns()
            if len(self.queued) >= self.expected:
                self.gathering = False
                self.wake.release()
        return 0

    cdef int wait(self, log, Ticket ticket) except -1:
        """Wait until the ticket has its outcome (0) or is to lead (1)."""
        interrupted = None
        while ticket.state != DONE:
            if ticket.state == LEADS and interrupted is None:
                return 1
            try:
                if ticket.state != LEADS:
                    ticket.lock.acquire()
            except BaseException as error:
                interrupted = error
            if interrupted is not None and (ticket.state == QUEUED or ticket.state == LEADS):
                self.queued.remove(ticket)
                if ticket.state == LEADS:
                    self.hand_on(log)
                raise interrupted
        if interrupted is not None:
            raise interrupted
        return 0

    # The leader ------------------------------------------------------------------------------------------------------

    cdef int lead(self, log, Ticket mine) except -1:
        """Lead one group: gather, commit, deliver the outcomes. 1: the caller is to lead the next group, too."""
        cdef list taken = []
        cdef CallLock lock = log.lock
        cdef int goes_on
        interrupted = None
        try:
            self.gather()
            lock.take()
            try:
                taken = self.take()
                self.patience_ns = min(<int64_t>self.commit(log, taken), PATIENCE_MAX_NS)
            finally:
                lock.give()
        except BaseException as error:
            interrupted = error
        goes_on = self.settle(log, taken, mine, interrupted)
        if interrupted is not None:
            raise interrupted
        return goes_on

    cdef int gather(self) except -1:
        """Wait for the appenders of the last group: those that append again do so soon. An fdatasync without them costs
        more than the wait, which ends when no append arrives for half of the patience."""
        cdef int64_t left, now = now_ns()
        self.arrived_ns = now
        while len(self.queued) < self.expected:
            left = min(self.answered_ns + self.patience_ns, self.arrived_ns + self.patience_ns // PAUSE_SHARE) - now
            if left <= 0:
                break
            self.gathering = True
            try:
                self.wake.acquire(True, left / 1e9)
            finally:
                self.gathering = False
            now = now_ns()
        return 0

    cdef list take(self):
        cdef Ticket ticket
        cdef list taken = [], queued = self.queued
        self.queued = []
        for ticket in queued:
            if ticket.future is None or not ticket.future.cancelled():
                ticket.state = TAKEN
                taken.append(ticket)
        return taken

    cdef int settle(self, log, list taken, Ticket mine, interrupted) except -1:
        """Deliver the outcomes. Tickets without one, after an interrupted leader undid the group, go first in the next
        group. 1: the caller, a worker of a loop, is to lead the next group."""
        cdef Ticket ticket
        cdef list back = [], done = []
        for ticket in taken:
            if ticket.info is None and ticket.error is None and interrupted is not None and ticket is not mine:
                ended = isinstance(interrupted, Exception) and not isinstance(interrupted, ReentrantCall)
                if ended or log.health.offline is not None:
                    ticket.error = StorageOffline(f"{log.name} could not finish the commit: {interrupted!r}")
                else:
                    ticket.state = QUEUED
                    back.append(ticket)
                    continue
            ticket.state = DONE
            if ticket.lock is not None:
                ticket.lock.release()
            else:
                done.append(ticket)
        if interrupted is not None and mine is not None and mine.state != DONE:
            self.queued.remove(mine)
        self.queued = back + self.queued
        if taken:
            self.groups += 1
            self.appends += len(taken) - len(back)
            self.largest = max(self.largest, len(taken))
        self.expected = len(taken) + len(self.queued)
        self.answered_ns = now_ns()
        if mine is None and interrupted is None and self.queued and not self.threads_wait():
            if done:
                notify_loops(done)
            return 1
        try:
            self.hand_on(log)
        finally:
            if done:
                notify_loops(done)
        return 0

    cdef bint threads_wait(self):
        cdef Ticket ticket
        for ticket in self.queued:
            if ticket.lock is not None:
                return True
        return False

    cdef int hand_on(self, log) except -1:
        """Hand leadership to the first waiting thread. If only tasks wait, ask all their loops for a worker: one loop
        may have stopped without being closed. Until a worker starts, the next appender leads and takes them along."""
        cdef Ticket ticket
        interrupted = None
        for ticket in self.queued:
            if ticket.lock is not None:
                self.led = True
                ticket.state = LEADS
                ticket.lock.release()
                return 0
        self.led = False
        for loop in dict.fromkeys([ticket.loop for ticket in self.queued]):
            for _ in range(2):
                if self.led:
                    break
                try:
                    loop.call_soon_threadsafe(self.begin, log, loop)
                    break
                except RuntimeError:    # that loop is closed: no task waits there
                    self.leave_out(loop)
                    break
                except BaseException as error:      # Ctrl-C: do it once more, then raise
                    interrupted = error
        if interrupted is not None:
            raise interrupted
        return 0

    cdef list leave_out(self, loop):
        """Remove the tickets of a loop from the queue and return them."""
        cdef Ticket ticket
        cdef list removed = [ticket for ticket in self.queued if ticket.loop is loop]
        self.queued = [ticket for ticket in self.queued if ticket.loop is not loop]
        return removed

    # Tasks -----------------------------------------------------------------------------------------------------------

    def submit(self, log, Ticket ticket, loop):
        """Queue a ticket for a task of this loop, which runs in this thread. Returns a future of its outcome.

        If the future is cancelled while the ticket is queued, nothing is appended. Later the append completes, and its
        outcome is dropped.
        """
        ticket.loop, ticket.future = loop, loop.create_future()
        self.queued.append(ticket)
        if not self.led:
            try:
                self.begin(log, loop)
            except BaseException:
                if ticket in self.queued:
                    self.queued.remove(ticket)
                raise
        else:
            self.arrives()
        return ticket.future

    def begin(self, log, loop):
        """In the loop's thread: request a worker to lead, unless there is a leader or a requested worker."""
        cdef Ticket ticket
        if self.led or not self.queued or loop in self.ordered:
            return
        self.ordered.add(loop)
        try:
            loop.run_in_executor(None, self.lead_tasks, log, loop).add_done_callback(partial(self.ended, log, loop))
        except RuntimeError as error:   # the executor is shutting down
            self.ordered.discard(loop)
            removed = self.leave_out(loop)
            for ticket in removed:
                ticket.error = StorageOffline(f"{log.name}: nothing was appended: {error}")
            resolve(removed)
            if not self.led:
                self.hand_on(log)
        except BaseException:           # Ctrl-C: the worker may start or not
            self.ordered.discard(loop)
            if not self.led:
                self.hand_on(log)
            raise

    def ended(self, log, loop, future):
        """In the loop's thread: a worker has ended. If it was cancelled before it started, request another."""
        if future.cancelled():
            self.ordered.discard(loop)
            self.begin(log, loop)

    def lead_tasks(self, log, loop):
        """In a worker: lead group after group, until the queue is empty or has a thread, which then leads."""
        cdef int goes_on = 1
        self.ordered.discard(loop)
        if self.led or not self.queued:
            return      # another leader was faster
        self.led = True
        while goes_on:
            try:
                goes_on = self.lead(log, None)
            except Exception:       # each append has its outcome, and leadership is handed on
                return


@cython.final
cdef class SyncLock:
    """Lock of the sync that runs beside appends: one at a time, begun under the log's lock, ended without it.

    In Cython, so that no Ctrl-C comes between taking the lock and noting its owner.
    """

    cdef OwnLock lock
    cdef object whose

    def __cinit__(self):
        self.lock = OwnLock.__new__(OwnLock)

    def begin(self, whose):
        """Take the lock. Waits for the running sync."""
        self.lock.take()
        self.whose = whose

    def end(self, whose):
        """Release the lock if `whose` owns it; else do nothing."""
        if self.whose is whose:
            self.whose = None
            self.lock.give()

    def wait(self):
        """Wait for the running sync. The caller holds the log's lock, so that no other begins."""
        self.lock.take()
        self.lock.give()


def publish(LogCore log, list tickets, list infos, int64_t end):
    """Set the log end and the infos of all tickets in one step that Ctrl-C cannot interrupt."""
    cdef Ticket ticket
    log.publish(end)
    for ticket, info in zip(tickets, infos):
        ticket.info = info


cdef int notify_loops(list tickets) except -1:
    """Notify each loop of the outcomes of all its tasks with one call."""
    cdef Ticket ticket
    cdef dict loops = {}
    interrupted = None
    for ticket in tickets:
        loops.setdefault(ticket.loop, []).append(ticket)
    for loop, mine in loops.items():
        for _ in range(2):
            try:
                loop.call_soon_threadsafe(resolve, mine)
                break
            except RuntimeError:    # the loop is closed: no task waits there
                break
            except BaseException as error:      # Ctrl-C: do it once more, then raise
                interrupted = error
    if interrupted is not None:
        raise interrupted
    return 0


def resolve(list tickets):
    """In the loop's thread: wake the tasks."""
    cdef Ticket ticket
    for ticket in tickets:
        if not ticket.future.done():
            if ticket.error is not None:
                ticket.future.set_exception(ticket.error)
            else:
                ticket.future.set_result(ticket.info)
        ticket.error = None
