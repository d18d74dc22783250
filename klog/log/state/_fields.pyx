# cython: auto_pickle=False
"""The fields of an owner in Python that each append or fetch reads: struct members here, attributes for Python code.

Each of these is the base of one class, the only writer of its fields.
"""


cdef class ProducerFields:
    """Of Producers."""

    cdef int appended(self, int64_t end, dict entries) except -1:
        """An append up to end has been written. entries: those that replace entries of its producers, or None. It
        cannot fail if the producers have entries."""
        if entries is not None:
            for producer_id, entry in entries.items():
                self.entries[producer_id] = entry
        self.end_offset = end
        return 0


cdef class TransactionFields:
    """Of Transactions."""


cdef class EpochFields:
    """Of LeaderEpochCache."""


cdef class DirectoryFields:
    """Of PartitionDir."""
