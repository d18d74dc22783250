from libc.stdint cimport int64_t

from klog.disk._notified cimport NotifierFields
from klog.disk._send cimport SendCounts
from klog.disk._watched cimport Watched
from klog.locks cimport CallLock
from klog.log.state._counters cimport Counters
from klog.log.state._fetch_positions cimport FetchPositions
from klog.log.state._fields cimport DirectoryFields, FinderFields, ProducerFields
from klog.log.state._flush_state cimport FlushState
from klog.log.state._health cimport Health
from klog.log.state._high_watermark cimport HighWatermark
from klog.log.state._segment_list cimport SegmentList
from klog.log.state._append_policy cimport AppendPolicy


cdef class LogCore:
    cdef object __weakref__
    # Of the log as its users know it: these stay when a move exchanges its files.
    cdef readonly str name
    cdef readonly CallLock lock
    cdef readonly SegmentList segment_list
    cdef readonly FetchPositions fetch_positions
    cdef readonly Counters counters
    cdef readonly NotifierFields notifier
    cdef readonly SendCounts sends
    cdef readonly object commits
    cdef readonly object sync_lock
    cdef readonly object cleaning
    cdef readonly object reading
    cdef readonly object newest_before
    cdef readonly object follower
    cdef Watched watched
    cdef int64_t end_max
    cdef readonly object expiry
    cdef int64_t looked_ms
    # Of its files: a move exchanges these, but for what a running commit has written.
    cdef readonly object options
    cdef readonly object clock
    cdef readonly object config
    cdef readonly AppendPolicy append_policy
    cdef readonly DirectoryFields directory
    cdef readonly Health health
    cdef readonly HighWatermark watermark
    cdef readonly FlushState flush_state
    cdef readonly object epochs
    cdef readonly ProducerFields producers
    cdef readonly FinderFields aborted_finder
    cdef readonly object recovery
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t written_end
    cdef readonly list applied

    cdef int follow_writer(self) except -1
    cdef int64_t end_of_append(self) noexcept
    cdef int64_t high_watermark_now(self) except? -1
    cdef void advance(self, int64_t end) noexcept
    cdef void written_up_to(self, int64_t end) noexcept
    cdef bint takes_time(self, int64_t now, int64_t least_ms) noexcept
    cdef void publish(self, int64_t end) noexcept
    cdef of_this_moment(self, segments)
    cdef int use(self, loaded) except -1
