"""The counters of a log. They start at 0 when it is opened. Kafka: BrokerTopicMetrics."""

from __future__ import annotations

from klog.errors import KlogError, RecordTooLarge
from klog.log.state._counters import Counters
from klog.log.state.histogram import Histogram

_REFUSALS = (
    "BytesRejectedPerSec",
    "InvalidMagicNumberRecordsPerSec",
    "InvalidMessageCrcRecordsPerSec",
    "InvalidOffsetOrSequenceRecordsPerSec",
    "NoKeyCompactedTopicRecordsPerSec",
)


class LogMetrics(Counters):
    """The counters of one log. Under the log's lock, except for refusals: for those the GIL is enough."""

    __slots__ = ("flush_times", "refusals")

    def __init__(self) -> None:
        self.flush_times = Histogram()
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
