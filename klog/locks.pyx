# cython: auto_pickle=False
"""Locks that know their owner thread: they raise an error where another lock would deadlock with itself.

Python runs signal handlers in the main thread, between any two of its operations. So a handler that closes a log may
run in the middle of an append to it. Waiting for the interrupted call would deadlock; going on would use half-changed
state.

  Y1  a thread never waits for itself: a call that would do so raises ReentrantCall and has changed nothing
  Y2  taking or releasing a lock and noting its owner are one step: no handler runs in between

An OwnLock cannot be taken twice. A CallLock can, for nested calls and for callers that read several values under it.
But only one call that changes something runs at a time: each calls begin() first.

The fields change under the GIL, which the build declares as needed.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals

from klog.errors import ReentrantCall

cdef extern from "pythread.h" nogil:
    unsigned long PyThread_get_thread_ident()

# CPython's own locks use these, too, but read a clock whenever they are taken.
cdef extern from "<semaphore.h>" nogil:
    int sem_init(sem_t *, int shared, unsigned int value)
    int sem_destroy(sem_t *)
    int sem_trywait(sem_t *)
    int sem_wait(sem_t *)
    int sem_post(sem_t *)


cdef class OwnLock:
    """A lock that raises ReentrantCall if its owner takes it again. Any thread."""

    def __cinit__(self):
        sem_init(&self.lock, 0, 1)      # fails only for values above SEM_VALUE_MAX

    def __dealloc__(self):
        sem_destroy(&self.lock)

    cdef bint is_mine(self) noexcept:
        return self.depth != 0 and self.owner == PyThread_get_thread_ident()

    cdef int take(self) except -1:
        cdef int status
        if self.is_mine():
            raise ReentrantCall("this thread holds the lock already: "
                                "a signal handler must not make this call; set a flag and do it after the handler returns")
        if sem_trywait(&self.lock) != 0:
            while True:
                with nogil:
                    status = sem_wait(&self.lock)
                if status == 0:
                    break
                PyErr_CheckSignals()        # interrupted: signal handlers may take the lock and release it
        self.owner = PyThread_get_thread_ident()
        self.depth = 1
        return 0

    cdef int give(self) except -1:
        if not self.is_mine():
            raise RuntimeError("this thread does not hold the lock")
        self.depth -= 1
        if self.depth == 0:
            sem_post(&self.lock)
        return 0

    def acquire(self):
        """Wait for the lock and take it."""
        self.take()
        return True

    def release(self):
        """Release the lock. RuntimeError if this thread does not hold it."""
        self.give()

    def __enter__(self):
        self.take()

    def __exit__(self, *error):
        self.give()

    def locked(self):
        """Does any thread hold the lock? threading.Condition needs this method from Python 3.14 on."""
        return self.depth != 0

    def is_taken_elsewhere(self):
        """Does another thread hold the lock?"""
        return self.depth != 0 and not self.is_mine()

    def _is_owned(self):
        """Does this thread hold the lock?"""
        return self.is_mine()


@cython.final
cdef class CallLock(OwnLock):
    """A reentrant lock that allows one call that begin()s at a time. Any thread.

    beside: a lock for a call that runs beside others, a flush. Its owner counts as inside a call, too.
    """

    def __cinit__(self):
        self.beside = OwnLock.__new__(OwnLock)

    cdef int take(self) except -1:
        if self.is_mine():
            self.depth += 1
            return 0
        return OwnLock.take(self)

    cdef int give(self) except -1:
        if self.call is not None and self.depth <= self.call_depth and self.is_mine():
            self.call = None
        return OwnLock.give(self)

    cdef int begin(self, owner, what) except -1:
        if self.call is not None:
            refuse(owner, what, self.call)
        if self.beside.is_mine():
            refuse(owner, what, "a flush")
        self.call, self.call_depth = what, self.depth
        return 0

    def begins(self, owner, what):
        """Begin a call that changes something. It ends when this hold of the lock is released.

        ReentrantCall inside another such call. Under the lock. owner: has a `name` or `path` for the message; what:
        names the call, for example "an append".
        """
        self.begin(owner, what)

    def check(self, owner, what):
        """Raise ReentrantCall if this thread is inside a call. Any thread."""
        if self.is_mine() and self.call is not None:
            refuse(owner, what, self.call)
        if self.beside.is_mine():
            refuse(owner, what, "a flush")

    def pause(self):
        """Let other calls begin inside the current one, as a listener does. Returns the argument of resume(). Under the
        lock."""
        call, self.call = (self.call, self.call_depth), None
        return call

    def resume(self, call):
        """Continue the paused call."""
        self.call, self.call_depth = call

    def _release_save(self):
        """For threading.Condition: release all holds of the lock, to wait."""
        state = self.depth, self.call, self.call_depth
        self.depth, self.call = 1, None
        OwnLock.give(self)
        return state

    def _acquire_restore(self, state):
        OwnLock.take(self)
        self.depth, self.call, self.call_depth = state


cdef int refuse(owner, what, call) except -1:
    name = getattr(owner, "name", None) or owner.path
    raise ReentrantCall(f"{name}: {what} inside {call} of the same thread: "
                        "a signal handler must not make this call; set a flag and do it after the handler returns")
