from libc.stdint cimport int64_t

from klog.locks cimport CallLock
from klog.log.state._fetch_positions cimport FetchPositions
from klog.log.state._flush_state cimport FlushState
from klog.log.write._append_policy cimport AppendPolicy


cdef class LogState:
    cdef public CallLock _lock
    cdef public object _segments
    cdef public object _config
    cdef public AppendPolicy _append_policy     # of _config
    cdef public object _epochs
    cdef public object _producers
    cdef public object _options
    cdef public object _home
    cdef public object _bell
    cdef public object _offline         # why it refuses appends; None while it takes them
    cdef public object _unreadable      # why it cannot even be read: its directory has failed
    cdef public object _offsets_listener
    cdef public object _metrics
    cdef public object _tail
    cdef public bint _closed
    cdef public bint _forked
    cdef public bint _marked_for_deletion
    cdef public int64_t _log_start_offset
    cdef public int64_t _log_end_offset
    cdef public int64_t _written_end    # during a commit: the end of what it has written; else -1
    cdef public object _high_watermark  # of a managed log: high_watermark W3
    cdef public object _commits         # the CommitQueue of durability="sync", else None
    cdef public list _applied           # effects of the running commit on producers, with a method take_back()
    cdef public FlushState _flush_state
    cdef public int64_t _looked_ms      # wall time of the last check for due tasks
    cdef public int64_t _generation     # counts changes other than appends
    cdef public int64_t _rewritten      # counts changes of bytes below the log end, also possible ones
    cdef public int64_t _taken_back     # counts removals of bytes beyond the log end, where a reader may have looked
    cdef public int64_t _reads_failed   # consecutive failures
    cdef public FetchPositions _fetch_positions

    cdef int64_t append_end(self) noexcept
