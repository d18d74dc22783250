cimport cython
from cpython.object cimport PyObject
from klog._c.wire cimport kl_wire_field_t, kl_wire_place_t, kl_wire_program_t, kl_wire_struct_t


# One version of one message: the program of csrc/wire.h, and the Python objects that belong to it.
@cython.final
cdef class Program:
    cdef kl_wire_program_t c
    cdef kl_wire_struct_t *structs
    cdef kl_wire_field_t *fields
    cdef Py_ssize_t *offsets            # of each field in its object
    cdef Py_ssize_t *numbers            # of each field in the shape of its struct
    cdef PyObject **shapes              # of each struct
    cdef list kept                      # owns the classes
    cdef tuple names                    # of the fields
    cdef readonly str name
    cdef readonly int version

    # topics[3].partitions[0].index
    cdef str path(self, const kl_wire_place_t *place)


@cython.final
cdef class Programs:
    cdef object layout
    cdef dict classes
    cdef dict made

    cdef Program program(self, object version)


# The programs of a class of messages. TypeError for another class.
cdef Programs programs_of(object owner)

cdef str text_of(int status)
