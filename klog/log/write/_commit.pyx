# cython: auto_pickle=False
"""Who waits for which commit: appends of durability="sync" share one write and one fdatasync.

  Q1  one appender at a time leads: it takes the log's lock, then all that is queued, and no more is added to that group
  Q2  an append has its outcome, and its thread goes on, only after the fdatasync of its group has come back
  Q3  leading is handed on before anybody is told an outcome elsewhere than in a thread; nobody is left behind without
      a leader, whatever ends one. A worker that a loop has asked for leads once it has begun, if nobody does by then:
      who comes before it does not wait for it, the executor may be full of those who come
  Q4  Ctrl-C takes an append out of the queue; once its group is under way, it waits for the outcome first: the bytes
      that are being written belong to the thread that waits

Nothing here has a lock: between two calls of Python code nobody else runs, and no Ctrl-C arrives, as long as Python has
its own lock, which the build declares to need. The work of a group is commit.py's.

**The two halves.** While a group syncs, those of the last one are on their way back, and a leader that went at once
would find half of them: N threads make N/2 appends per fdatasync. So a leader waits for those who have just been
answered, counted from that moment, for a part of the time that the last fdatasync took; who is alone never waits.
LevelDB: DBImpl::BuildBatchGroup; MySQL's and MariaDB's binlog_commit_wait_usec for the wait.
"""

cimport cython
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from klog.locks cimport CallLock, OwnLock

from _thread import allocate_lock, get_ident
from functools import partial

from klog.errors import ReentrantCall, StorageOffline

cdef enum:
    QUEUED
    LEADS               # has been told to lead the next group; in the queue still
    TAKEN
    DONE

cdef enum:
    PATIENCE_SHARE = 4              # of the last fdatasync's time: a quarter
    PATIENCE_MAX_NS = 2_000_000

cdef object commit_locked = None    # of commit, which imports this module


cdef int64_t now_ns() noexcept:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <int64_t>at.tv_sec * 1_000_000_000 + at.tv_nsec


@cython.final
cdef class Ticket:
    """One append on its way: an encoded group and the time it was given, or what to call with the log, under its lock.
    At the end it has an info, or an error."""

    cdef readonly object group
    cdef readonly int64_t now
    cdef readonly object action
    cdef public object info
    cdef public object error
    cdef object lock        # of the thread that waits, None for a task
    cdef object loop
    cdef object future
    cdef int state

    def __init__(self, group=None, int64_t now=0, action=None):
        self.group, self.now, self.action = group, now, action

    cdef outcome(self):
        if self.error is not None:
            error, self.error = self.error, None    # or the traceback would keep the ticket, and the ticket it
            raise error
        return self.info


@cython.final
cdef class CommitQueue:
    """The appends of one log that wait. Any thread."""

    cdef list queued
    cdef bint led
    cdef set ordered            # loops that have asked for a worker, which has not begun
    cdef bint gathering
    cdef object wake            # the leader's, while it gathers
    cdef Py_ssize_t expected    # appends that the next group may have, going by the last one
    cdef int64_t answered_ns
    cdef int64_t patience_ns
    cdef set inside             # threads in through(): in one of them a handler's append would wait for its own
    cdef readonly int64_t groups
    cdef readonly int64_t appends       # in all groups
    cdef readonly int64_t largest

    def __cinit__(self):
        if commit_locked is None:
            find_work()
        self.queued = []
        self.renew()

    def __len__(self):
        return len(self.queued)

    def renew(self):
        """In a forked child: nobody waits here."""
        self.queued = []
        self.ordered = set()
        self.inside = set()
        self.led = self.gathering = False
        self.wake = allocate_lock()
        self.wake.acquire()

    # A thread's way --------------------------------------------------------------------------------------------------

    def through(self, log, Ticket ticket):
        """The ticket's info, or its error raised, once that is known."""
        cdef CallLock lock = log._lock
        lock.check(log, "an append")
        if lock.is_mine():              # in a listener say: no leader would ever get it
            lock.take()
            try:
                led(log, [ticket])
            finally:
                lock.give()
            return ticket.outcome()
        me = get_ident()
        if me in self.inside:
            raise ReentrantCall(f"{log.name}: an append inside an append, which waits in the same thread: "
                                "a signal handler can only leave word of what is to be done behind it")
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
        """Into the queue. Is it to lead?"""
        self.queued.append(ticket)
        if not self.led:
            self.led = True
            return 1
        if self.gathering and len(self.queued) >= self.expected:
            self.gathering = False
            self.wake.release()
        return 0

    cdef int wait(self, log, Ticket ticket) except -1:
        """Until it has its outcome, or is to lead."""
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
        """One group: gather, commit, tell. Then somebody else leads, or nobody needs to: 0; 1: whoever called goes on."""
        cdef list taken = []
        cdef CallLock lock = log._lock
        cdef int goes_on
        interrupted = None
        try:
            self.gather()
            lock.take()
            try:
                taken = self.take()
                self.patience_ns = min(led(log, taken) // PATIENCE_SHARE, PATIENCE_MAX_NS)
            finally:
                lock.give()
        except BaseException as error:
            interrupted = error
        goes_on = self.settle(log, taken, mine, interrupted)
        if interrupted is not None:
            raise interrupted
        return goes_on

    cdef int gather(self) except -1:
        """Wait for those who have just been answered: who comes back at all comes soon."""
        cdef int64_t left
        while len(self.queued) < self.expected:
            left = self.answered_ns + self.patience_ns - now_ns()
            if left <= 0:
                break
            self.gathering = True
            try:
                self.wake.acquire(True, left / 1e9)
            finally:
                self.gathering = False
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
        """Outcomes to everybody. Who has none, because the leader was interrupted and has taken back what it did, is
        first in the next group. 1: the caller, no appender itself, is to lead that."""
        cdef Ticket ticket
        cdef list back = [], told = []
        for ticket in taken:
            if ticket.info is None and ticket.error is None and interrupted is not None and ticket is not mine:
                ended = isinstance(interrupted, Exception) and not isinstance(interrupted, ReentrantCall)
                if ended or log._offline is not None:
                    ticket.error = StorageOffline(f"{log.name} could not finish the commit: {interrupted!r}")
                else:
                    ticket.state = QUEUED
                    back.append(ticket)
                    continue
            ticket.state = DONE
            if ticket.lock is not None:
                ticket.lock.release()
            else:
                told.append(ticket)
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
            if told:
                tell(told)
            return 1
        try:
            self.hand_on(log)
        finally:
            if told:
                tell(told)
        return 0

    cdef bint threads_wait(self):
        cdef Ticket ticket
        for ticket in self.queued:
            if ticket.lock is not None:
                return True
        return False

    cdef int hand_on(self, log) except -1:
        """To the first thread that waits. Where only tasks wait nobody leads until a loop has found a thread for it:
        whoever comes first takes them along. All their loops are asked: one may have stopped without being closed."""
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
                except RuntimeError:    # that loop is closed: nobody waits there any more
                    self.leave_out(loop)
                    break
                except BaseException as error:      # Ctrl-C: once more, and then it is raised
                    interrupted = error
        if interrupted is not None:
            raise interrupted
        return 0

    cdef list leave_out(self, loop):
        """The tickets of a loop, out of the queue."""
        cdef Ticket ticket
        cdef list gone = [ticket for ticket in self.queued if ticket.loop is loop]
        self.queued = [ticket for ticket in self.queued if ticket.loop is not loop]
        return gone

    # A task's way ----------------------------------------------------------------------------------------------------

    def submit(self, log, Ticket ticket, loop):
        """A future of the ticket's outcome, for a task of this loop, which is running in this thread. Cancelled while
        it is queued, nothing of it happens; later it goes on to its end, and nobody hears of it."""
        ticket.loop, ticket.future = loop, loop.create_future()
        self.queued.append(ticket)
        if not self.led:
            try:
                self.begin(log, loop)
            except BaseException:
                if ticket in self.queued:
                    self.queued.remove(ticket)
                raise
        elif self.gathering and len(self.queued) >= self.expected:
            self.gathering = False
            self.wake.release()
        return ticket.future

    def begin(self, log, loop):
        """In the loop's thread: ask for one of its workers to lead, unless somebody does, or will."""
        cdef Ticket ticket
        if self.led or not self.queued or loop in self.ordered:
            return
        self.ordered.add(loop)
        try:
            loop.run_in_executor(None, self.lead_tasks, log, loop).add_done_callback(partial(self.ended, log, loop))
        except RuntimeError as error:   # it is being shut down
            self.ordered.discard(loop)
            gone = self.leave_out(loop)
            for ticket in gone:
                ticket.error = StorageOffline(f"{log.name}: nothing was appended, {error}")
            resolve(gone)
            if not self.led:
                self.hand_on(log)
        except BaseException:           # Ctrl-C: the worker may come or not
            self.ordered.discard(loop)
            if not self.led:
                self.hand_on(log)
            raise

    def ended(self, log, loop, future):
        """In the loop's thread: a worker that was called off has left its turn to nobody."""
        if future.cancelled():
            self.ordered.discard(loop)
            self.begin(log, loop)

    def lead_tasks(self, log, loop):
        """A worker's: group after group, until nobody waits or a thread does, which leads then itself."""
        cdef int goes_on = 1
        self.ordered.discard(loop)
        if self.led or not self.queued:
            return      # somebody was faster
        self.led = True
        while goes_on:
            try:
                goes_on = self.lead(log, None)
            except Exception:       # each append of the group has been told, and leading handed on
                return


@cython.final
cdef class SyncLock:
    """The sync of a log's files that is under way beside its appends: one at a time, begun under the log's lock, ended
    without it. Here and not in Python, so that no Ctrl-C comes between taking the turn and noting whose it is."""

    cdef OwnLock lock
    cdef object whose

    def __cinit__(self):
        self.lock = OwnLock.__new__(OwnLock)

    def begin(self, whose):
        """Waits for the one under way."""
        self.lock.take()
        self.whose = whose

    def end(self, whose):
        """No error where it had not begun."""
        if self.whose is whose:
            self.whose = None
            self.lock.give()

    def wait(self):
        """None is under way behind this, as long as the caller holds the log's lock."""
        self.lock.take()
        self.lock.give()


cdef int64_t led(log, list taken) except -1:
    """The work of a group; nanoseconds that its fdatasync took."""
    return commit_locked(log, taken)


cdef int find_work() except -1:
    """Before the first append: the handler of a signal would find a module that is half there."""
    global commit_locked
    from klog.log.write import commit
    commit_locked = commit.commit_locked


def publish(log, list tickets, list infos, int64_t end):
    """The log ends there, and each append has its info, both or neither: no Ctrl-C comes in between."""
    cdef Ticket ticket
    log._log_end_offset = end
    log._written_end = -1
    for ticket, info in zip(tickets, infos):
        ticket.info = info


cdef int tell(list tickets) except -1:
    """Each loop hears of all its tasks at once."""
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
            except RuntimeError:    # closed: nobody waits there any more
                break
            except BaseException as error:      # Ctrl-C: once more, and then it is raised
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
