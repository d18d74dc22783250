"""The counters of a log. They start at 0 when it is opened. Kafka: BrokerTopicMetrics."""

from __future__ import annotations

from klog.errors import KlogError, RecordTooLarge
from klog.histogram import Histogram
from klog.log.state._counters import Counters

_REFUSALS = (
    "BytesRejectedPerSec",
    "InvalidMagicNumberRecordsPerSec",
    "InvalidMessageCrcRecordsPerSec",
    "InvalidOffsetOrSequenceRecordsPerSec",
    "NoKeyCompactedTopicRecordsPerSec",
)


class LogMetrics(Counters):
    """The counters of one log. Under the log's lock, except for refusals and reads: for those the GIL is enough."""

    __slots__ = ("flush_times", "refusals", "roll_times")
    append_times: Histogram
    fetch_times: Histogram

    def __init__(self) -> None:
        self.append_times, self.fetch_times = Histogram(), Histogram()
        self.flush_times, self.roll_times = Histogram(), Histogram()
        self.refusals = dict.fromkeys(_REFUSALS, 0)

    @property
    def appended_bytes(self) -> int:
        """Bytes appended by clients and by replication."""
        return self.bytes_in + self.replicated_bytes_in

    def refused(self, error: KlogError, size: int) -> None:
        """Count a refused append of size bytes."""
        if isinstance(error, RecordTooLarge):
            self.refusals["BytesRejectedPerSec"] += size
        for name, count in error.meters.items():
            self.refusals[name] = self.refusals.get(name, 0) + count

    def reads(self) -> dict[str, int]:
        """What readers have done, under the names of Kafka's meters."""
        return {
            "BytesOutPerSec": self.bytes_out,
            "TotalFetchRequestsPerSec": self.fetches + self.failed_fetches,
            "FailedFetchRequestsPerSec": self.failed_fetches,
        }

    def writes(self) -> dict[str, int]:
        """What appenders have done, under the names of Kafka's meters."""
        return {
            "BytesInPerSec": self.bytes_in,
            "MessagesInPerSec": self.messages_in,
            "ReplicationBytesInPerSec": self.replicated_bytes_in,
            "TotalProduceRequestsPerSec": self.appends,
            "FailedProduceRequestsPerSec": self.failed_appends,
            **self.refusals,
        }

    def times(self) -> dict[str, Histogram]:
        """The histograms. Only LogFlushRateAndTimeMs is a name of Kafka's."""
        return {
            "LogFlushRateAndTimeMs": self.flush_times,
            "LogRollRateAndTimeMs": self.roll_times,
            "LogAppendTimeMs": self.append_times,
            "LogFetchTimeMs": self.fetch_times,
        }
