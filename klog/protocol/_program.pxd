cimport cython
from cpython.object cimport PyObject
from klog._c.wire cimport kl_wire_field_t, kl_wire_location_t, kl_wire_program_t, kl_wire_struct_t


# One version of one message: the program of csrc/wire.h, and the names of its fields.
cdef class Program:
    cdef kl_wire_program_t c
    cdef kl_wire_struct_t *structs
    cdef kl_wire_field_t *fields
    cdef tuple names                    # of the fields
    cdef readonly str name
    cdef readonly int version

    # topics[3].partitions[0].index
    cdef str path(self, const kl_wire_location_t *location)


# The same for messages as objects.
@cython.final
cdef class ObjectProgram(Program):
    cdef Py_ssize_t *offsets            # of each field in its object
    cdef Py_ssize_t *numbers            # of each field in the shape of its struct
    cdef bint *errors                   # is each field an error code?
    cdef bint *texts                    # is each field the message of an error?
    cdef PyObject **shapes              # of each struct
    cdef list kept                      # owns the classes


# The programs of one message by version.
@cython.final
cdef class Programs:
    cdef object layout
    cdef object make
    cdef tuple range                    # the first and the last version
    cdef dict made

    cdef Program program(self, object version)


# The program of a class of messages. TypeError for another class.
cdef ObjectProgram program_of(object owner, object version)

cdef str text_of(int status)
