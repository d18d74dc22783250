cdef extern from "pythread.h" nogil:
    ctypedef void *PyThread_type_lock


cdef class OwnLock:
    cdef PyThread_type_lock lock
    cdef unsigned long owner
    cdef int depth              # how often the owner has it; 0: nobody does

    cdef bint is_mine(self) noexcept
    cdef int take(self) except -1
    cdef int give(self) except -1


cdef class CallLock(OwnLock):
    cdef readonly OwnLock beside
    cdef object call            # what its owner is in the middle of, None where nothing that counts
    cdef int call_depth

    cdef int begin(self, owner, what) except -1
