from klog._c.arrow cimport ArrowArray, ArrowSchema


cdef class Layout:
    """The columns of Arrow data: names in order, and the schema. Subclasses fill the schema."""
    cdef readonly tuple names
    cdef int fill_schema(self, ArrowSchema *out) except -1
    cdef object schema_capsule(self)


cdef class ArrowColumns:
    """Rows as one Arrow struct array. Subclasses fill the array."""
    cdef Layout columns_layout
    cdef int fill_array(self, ArrowArray *out) except -1


# Check names of columns in an argument, each of them known and given once, and return them as a tuple.
cdef tuple names_of(names, known, str argument=*)
