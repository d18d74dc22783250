from klog._c.batch cimport kl_batch_t
from libc.stdint cimport uint8_t


cdef class LegacyBatch:
    """A message of magic 0 or 1, with or without messages in it, as the batch of magic 2 that would hold the same."""
    cdef kl_batch_t header          # as a header of magic 2 would say it; position is the caller's to set
    cdef readonly bytes payload     # the records, as magic 2 writes them
    cdef bint verified
    cdef bint loose                 # it has bytes that readers pass by
    cdef int bad_crc                # number of the first message within whose checksum does not match, -1 for none

    # Check the message's own checksum (message: a memoryview of the bytes at data) and those within, unless it is done.
    cdef int verify(self, message, const uint8_t *data) except -1


# Read the message that these bytes (a memoryview) are, no byte more or less. CorruptBatch without a place on bad bytes.
cdef LegacyBatch read_legacy(message, bint verify_crc)
