from klog._c.batch cimport kl_batch_t
from libc.stdint cimport uint8_t


cdef class LegacyBatch:
    """A message of magic 0 or 1, with or without inner messages, as the equivalent batch of magic 2."""
    cdef kl_batch_t header          # the equivalent header of magic 2; the caller sets position
    cdef readonly bytes payload     # the records, encoded as in magic 2
    cdef bint verified
    cdef bint ignored_bytes         # it has extra bytes that readers ignore
    cdef int bad_crc                # number of the first inner message with a wrong checksum, -1 for none

    # Check the checksums of the message (a memoryview of the bytes at data) and of inner ones, unless already done.
    cdef int verify(self, message, const uint8_t *data) except -1


# Read a message from exactly these bytes (a memoryview). Raises CorruptBatch without a position for invalid bytes.
cdef LegacyBatch read_legacy(message, bint verify_crc)
