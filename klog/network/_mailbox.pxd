cdef class Mailbox:
    cdef object messages
    cdef readonly int fd
    cdef bint sleeping

    cdef int post(self, message) except -1
    cdef bint may_sleep(self) noexcept
