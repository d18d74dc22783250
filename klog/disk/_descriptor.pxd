cdef class Descriptor:
    cdef readonly int number    # -1: closed
