from klog._c.keymap cimport kl_keyhash_t
from klog._c.waste cimport kl_waste_t


cdef class Waste:
    cdef kl_waste_t waste
    cdef kl_keyhash_t hash
