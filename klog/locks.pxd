cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass


cdef class OwnLock:
    cdef sem_t lock             # 1 while it is free
    cdef unsigned long owner
    cdef int depth              # how often the owner has taken it; 0: it is free

    cdef bint is_mine(self) noexcept
    cdef int take(self) except -1
    cdef int give(self) except -1


cdef class CallLock(OwnLock):
    cdef readonly OwnLock beside
    cdef object call            # the call that its owner has begun, None if there is none
    cdef int call_depth

    cdef int begin(self, owner, what) except -1
