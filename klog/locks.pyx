# cython: auto_pickle=False
"""Locks that know their thread: it hears that it is in the middle of a call, where another lock would wait for ever.

Python runs the handler of a signal in the main thread, behind whatever that is about to do next: the handler that closes
a log may run in the middle of an append to it. To wait there for the thread's own call is to wait for ever, and to go
on is to change what is half changed.

  Y1  a thread never waits for itself: what would make it do so raises ReentrantCall, and has changed nothing
  Y2  taking and letting go, and noting who has it, are one step for handlers: none runs in between, and none is skipped

An OwnLock cannot be taken twice. A CallLock can, for what its own calls do and for whoever holds it to look at more than
one thing; but of the calls that change something only one is under way at a time: each says begin() first.

The build declares to need Python's own lock, under which the fields change.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals

from klog.errors import ReentrantCall

cdef extern from "pythread.h" nogil:
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock)
    int PyThread_acquire_lock(PyThread_type_lock, int)
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock, long long, int)
    void PyThread_release_lock(PyThread_type_lock)
    unsigned long PyThread_get_thread_ident()


cdef class OwnLock:
    """One thread at a time; ReentrantCall for the one that has it. Any thread."""

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.lock != NULL:
            if self.depth:
                PyThread_release_lock(self.lock)
            PyThread_free_lock(self.lock)

    cdef bint is_mine(self) noexcept:
        return self.depth != 0 and self.owner == PyThread_get_thread_ident()

    cdef int take(self) except -1:
        cdef PyLockStatus status
        if self.is_mine():
            raise ReentrantCall("this thread is in the middle of the same already: "
                                "a signal handler can only leave word of what is to be done behind it")
        if not PyThread_acquire_lock(self.lock, 0):
            while True:
                with nogil:
                    status = PyThread_acquire_lock_timed(self.lock, -1, 1)
                if status == PY_LOCK_ACQUIRED:
                    break
                PyErr_CheckSignals()        # whose handlers may take it, and let go again
        self.owner = PyThread_get_thread_ident()
        self.depth = 1
        return 0

    cdef int give(self) except -1:
        if not self.is_mine():
            raise RuntimeError("this thread does not hold the lock")
        self.depth -= 1
        if self.depth == 0:
            PyThread_release_lock(self.lock)
        return 0

    def acquire(self):
        """Wait for it."""
        self.take()
        return True

    def release(self):
        """Let go. RuntimeError for a thread that has not got it."""
        self.give()

    def __enter__(self):
        self.take()

    def __exit__(self, *error):
        self.give()

    def locked(self):
        """Whether any thread has it. threading.Condition asks every lock for this method from Python 3.14 on."""
        return self.depth != 0

    def _is_owned(self):
        """Has this thread got it?"""
        return self.is_mine()


@cython.final
cdef class CallLock(OwnLock):
    """One thread at a time, as often as it likes; of calls that begin() one at a time. Any thread.

    beside: a lock for a call that others go on beside, a flush: whoever has it is in the middle of a call too.
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
        """A call that changes something begins, and ends where this hold of the lock does. ReentrantCall inside
        another one. Under the lock. owner: whose call, by its `name` or `path`; what: say "an append"."""
        self.begin(owner, what)

    def check(self, owner, what):
        """ReentrantCall where this thread is in the middle of a call. Any thread."""
        if self.is_mine() and self.call is not None:
            refuse(owner, what, self.call)
        if self.beside.is_mine():
            refuse(owner, what, "a flush")

    def pause(self):
        """What is under way stands where others may begin: a listener's calls do. For resume(). Under the lock."""
        call, self.call = (self.call, self.call_depth), None
        return call

    def resume(self, call):
        """It goes on."""
        self.call, self.call_depth = call

    def _release_save(self):
        """For threading.Condition: let go of all of it, to wait."""
        state = self.depth, self.call, self.call_depth
        self.depth, self.call = 1, None
        OwnLock.give(self)
        return state

    def _acquire_restore(self, state):
        OwnLock.take(self)
        self.depth, self.call, self.call_depth = state


cdef int refuse(owner, what, call) except -1:
    name = getattr(owner, "name", None) or owner.path
    raise ReentrantCall(f"{name}: {what} inside {call}, which is under way in the same thread: "
                        "a signal handler can only leave word of what is to be done behind it")
