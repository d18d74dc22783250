# cython: auto_pickle=False
"""The fields of an owner in Python that each append reads: struct members here, attributes for Python code.

Each of these is the base of one class, the only writer of its fields.
"""


cdef class ProducerFields:
    """Of Producers."""


cdef class TransactionFields:
    """Of Transactions."""


cdef class EpochFields:
    """Of LeaderEpochCache."""
