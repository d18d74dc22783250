# cython: auto_pickle=False
"""The field of a Notifier that each append reads: a struct member here, an attribute for Python code."""


cdef class NotifierFields:
    """Base of Notifier, its only writer."""
