from libc.stdint cimport int64_t, uint8_t
from posix.stat cimport struct_stat


cdef class Reusable:
    cdef void *holder      # Holder, NULL: in no cache
    cdef void *cache       # Handles
    cdef void *newer       # neighbour in the ring of the same cache
    cdef void *older
    cdef int64_t weight
    cdef bint used         # since the hand passed it


cdef class Holder:
    cdef Reusable kept_file
    cdef Reusable kept_index


cdef inline Reusable found_file(Holder holder):
    """Return the open file of a holder, None if there is none."""
    if holder.kept_file is not None:
        holder.kept_file.used = True
    return holder.kept_file


cdef inline Reusable found_index(Holder holder):
    """Return the index of a holder, None if there is none."""
    if holder.kept_index is not None:
        holder.kept_index.used = True
    return holder.kept_index


cdef int open_regular(str path, int flags, struct_stat *found) except -1
