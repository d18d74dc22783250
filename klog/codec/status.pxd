from libc.stdint cimport int64_t

cdef str status_text(int status)

# The one place where a KL_E... code about record bytes becomes an exception: CorruptBatch, with its place.
# position is that of the batch, offset the record offset or None, detail what else the message should say.
cdef int raise_status(int status, object path, int64_t position, object offset, str detail) except -1
