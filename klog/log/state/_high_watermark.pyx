# cython: auto_pickle=False
"""The high watermark of one log, and its listener. high_watermark.py has the rules by which it moves."""

cimport cython


@cython.final
cdef class HighWatermark:
    """The sole writer of these fields. Changed under the log's lock; any thread may read.

    metadata: the OffsetMetadata of a managed log's high watermark. None: the log is a single copy, and its high watermark
    is its log end. offset: that of metadata. listener: called with each new high watermark, or None.
    """

    def __init__(self, listener):
        self.listener = listener

    def set(self, metadata):
        """Set the high watermark, or only its position."""
        self.metadata, self.offset = metadata, metadata.offset

    def listen(self, listener):
        """Call this listener from here on; None: no listener."""
        self.listener = listener

    def exchange(self, HighWatermark other not None):
        """Exchange the high watermarks of two logs, but not the listeners."""
        self.metadata, other.metadata = other.metadata, self.metadata
        self.offset, other.offset = other.offset, self.offset
