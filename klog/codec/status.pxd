from libc.stdint cimport int64_t

cdef str status_text(int status)

# The only function that raises a KL_E... code about record bytes, as CorruptBatch with its position. position: of the
# batch; offset: of the record or None; detail: additional text or None.
cdef int raise_status(int status, object path, int64_t position, object offset, str detail) except -1
