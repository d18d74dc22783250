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


cdef class FinderFields:
    """Of AbortedFinder."""

    cdef bint knows_none(self, tuple segments, Py_ssize_t number, int64_t position, int64_t size) except -1:
        """Is it known that no segment from this number on has aborted transactions, or that these bytes of this one
        have no transactions?"""
        cdef Py_ssize_t last = len(segments) - 1
        cdef tuple known = self._known
        cdef TxnIndexState index
        cdef SegmentState segment
        if not self.shown:
            segment = segments[number]
            if position >= segment.plain_from or position + size <= segment.plain_to:
                return True
        if number < last and (known[0] is not segments or (<dict>known[1]).get(number) != last):
            return False
        index = (<SegmentState>segments[last])._txn_index
        return index is not None and index.checked and index._entries is not None and len(index._entries) == 0
