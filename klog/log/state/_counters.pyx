# cython: auto_pickle=False
"""The counters that every append and fetch moves: struct members for the hot paths, attributes for Python code.

One call in TIMED_ONE_IN is timed, the first one included: two clock reads would be 1 to 3 % of a short append.
"""

cimport cython
from libc.stdint cimport int64_t

from klog.durations cimport monotonic_ns

from klog.errors import RecordTooLarge
from klog.histogram import Histogram

cdef enum:
    TIMED_ONE_IN = 16

cdef tuple REFUSALS = (
    "BytesRejectedPerSec",
    "InvalidMagicNumberRecordsPerSec",
    "InvalidMessageCrcRecordsPerSec",
    "InvalidOffsetOrSequenceRecordsPerSec",
    "NoKeyCompactedTopicRecordsPerSec",
)


@cython.final
cdef class Counters:
    """The counters of one log: of appends under its lock, of calls and refusals, for which the GIL is enough. They start
    at 0 when the log is opened. Kafka: BrokerTopicMetrics.

    What begins() returns goes to ends(): the time in ns, 0 if the call is not timed. clock: the log's.
    """

    def __cinit__(self):
        self.append_times, self.fetch_times = Histogram(), Histogram()
        self.flush_times, self.roll_times = Histogram(), Histogram()
        self.refusals = dict.fromkeys(REFUSALS, 0)

    cpdef int64_t appended(self) noexcept:
        """Bytes appended by clients and by replication."""
        return self.bytes_in + self.replicated_bytes_in

    cpdef int64_t append_begins(self, clock) except? -1:
        """Count an append."""
        self.appends += 1
        return monotonic_ns(clock) if self.appends & (TIMED_ONE_IN - 1) == 1 else 0

    cpdef int append_ends(self, int64_t began, clock) except -1:
        """An append has succeeded."""
        return self.append_times.note_ns(monotonic_ns(clock) - began) if began else 0

    cpdef int64_t fetch_begins(self, clock) except? -1:
        """A fetch begins. It counts when it ends or fails: the fast path may leave it to the full path."""
        return monotonic_ns(clock) if self.fetches & (TIMED_ONE_IN - 1) == 0 else 0

    cpdef int fetch_ends(self, int64_t began, int64_t size, clock) except -1:
        """Count a fetch that has found size bytes."""
        self.fetches += 1
        self.bytes_out += size
        return self.fetch_times.note_ns(monotonic_ns(clock) - began) if began else 0

    cdef void count_led(self, int64_t count, int64_t size) noexcept:
        """Count records, and their bytes, that a leader has appended."""
        self.messages_in += count
        self.bytes_in += size

    cpdef void count_replicated(self, int64_t size) noexcept:
        """Count bytes that a follower has appended."""
        self.replicated_bytes_in += size

    cpdef void count_failed_append(self) noexcept:
        self.failed_appends += 1

    cpdef void count_failed_fetch(self) noexcept:
        self.failed_fetches += 1

    @property
    def appended_counts(self):
        """What an append that is undone gives to take_back()."""
        return self.messages_in, self.bytes_in, self.replicated_bytes_in

    def take_back(self, counts):
        """Restore appended_counts."""
        self.messages_in, self.bytes_in, self.replicated_bytes_in = counts

    def read(self, int64_t size):
        """Count bytes that a reader has got without a fetch."""
        self.bytes_out += size

    def refused(self, error, int64_t size):
        """Count a refused append of size bytes."""
        if isinstance(error, RecordTooLarge):
            self.refusals["BytesRejectedPerSec"] += size
        for name, count in error.meters.items():
            self.refusals[name] = self.refusals.get(name, 0) + count

    def reads(self):
        """The metrics of reads, under Kafka's names."""
        return {
            "BytesOutPerSec": self.bytes_out,
            "TotalFetchRequestsPerSec": self.fetches + self.failed_fetches,
            "FailedFetchRequestsPerSec": self.failed_fetches,
        }

    def writes(self):
        """The metrics of appends, under Kafka's names."""
        return {
            "BytesInPerSec": self.bytes_in,
            "MessagesInPerSec": self.messages_in,
            "ReplicationBytesInPerSec": self.replicated_bytes_in,
            "TotalProduceRequestsPerSec": self.appends,
            "FailedProduceRequestsPerSec": self.failed_appends,
            **self.refusals,
        }

    def times(self):
        """The histograms. Only LogFlushRateAndTimeMs is one of Kafka's names."""
        return {
            "LogFlushRateAndTimeMs": self.flush_times,
            "LogRollRateAndTimeMs": self.roll_times,
            "LogAppendTimeMs": self.append_times,
            "LogFetchTimeMs": self.fetch_times,
        }
