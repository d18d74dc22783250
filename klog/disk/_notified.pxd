cdef class NotifierFields:
    cdef public tuple _fds
