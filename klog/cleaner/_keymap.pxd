from klog._c.keymap cimport kl_keymap_t
from libc.stdint cimport int64_t


cdef class KeyMap:
    """The map in C, and its memory. A caller that uses `map` without the GIL keeps the object alive and is its only
    user."""
    cdef kl_keymap_t map
    cdef void *memory
    cdef size_t mapped
    cdef void *words            # of stale offsets, NULL while none are tracked
    cdef size_t words_mapped
    cdef readonly str kernel
    cdef public int64_t latest_offset
    cdef int track_stale(self, int64_t first) except -1
