"""The names of the metrics: for each metric of LogManager.metrics() and rates(), its MBean in Kafka and its meaning.

Metrics that Kafka does not have are in the domains klog.log and klog.disk. Metrics of networking and replication are
left out. Kafka: KafkaMetricsGroup, BrokerTopicMetrics, UnifiedLog, LogManager, LogCleaner.
"""

from __future__ import annotations

from typing import Literal

from klog.values import dataclass

Kind = Literal["gauge", "counter", "meter", "timer"]
Scope = Literal["all", "log", "topic", "directory", "device", "load", "thread"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. scope: what its tags name. A timer's values are milliseconds."""

    name: str
    domain: str
    type: str
    kind: Kind
    scope: Scope
    help: str


def _define(domain: str, type: str, kind: Kind, scope: Scope, **helps: str) -> list[Definition]:
    return [Definition(name.replace("__", "-"), domain, type, kind, scope, text) for name, text in helps.items()]


DEFINITIONS = [
    *_define(
        "kafka.server", "BrokerTopicMetrics", "meter", "topic",
        MessagesInPerSec="records appended by clients",
        BytesInPerSec="bytes of batches appended by clients",
        BytesOutPerSec="bytes of batches returned to fetches and readers",
        BytesRejectedPerSec="bytes of appends refused as too large",
        ReplicationBytesInPerSec="bytes of batches appended by replication",
        TotalProduceRequestsPerSec="appends, including failed ones",
        FailedProduceRequestsPerSec="appends that raised an error",
        TotalFetchRequestsPerSec="fetches, including failed ones",
        FailedFetchRequestsPerSec="fetches that raised an error",
        NoKeyCompactedTopicRecordsPerSec="records of compacted topics refused because they have no key",
        InvalidMagicNumberRecordsPerSec="records refused because of a wrong format version",
        InvalidMessageCrcRecordsPerSec="records refused because of a wrong checksum",
        InvalidOffsetOrSequenceRecordsPerSec="records refused because of a wrong offset or sequence number",
    ),
    *_define(
        "kafka.log", "Log", "gauge", "log",
        Size="bytes of all .log files of the log",
        NumLogSegments="number of segments",
        LogStartOffset="first offset that can be read",
        LogEndOffset="offset of the next record that is appended",
    ),
    *_define(
        "kafka.cluster", "Partition", "gauge", "log",
        LastStableOffsetLag="number of offsets from the last stable offset to the high watermark",
    ),
    *_define(
        "kafka.server", "ReplicaManager", "gauge", "all",
        PartitionCount="number of loaded logs",
        ProducerIdCount="number of producer ids with state, in loaded logs that are open for writing",
    ),
    *_define(
        "kafka.log", "LogFlushStats", "timer", "all",
        LogFlushRateAndTimeMs="number, rates and durations of flushes",
    ),
    *_define(
        "kafka.log", "LogManager", "gauge", "all",
        OfflineLogDirectoryCount="number of log directories that are offline",
    ),
    *_define(
        "kafka.log", "LogManager", "gauge", "directory",
        LogDirectoryOffline="1 if the log directory is offline, else 0",
    ),
    *_define(
        "kafka.log", "LogManager", "gauge", "load",
        remainingLogsToRecover="number of logs that load_all() has not loaded yet",
    ),
    *_define(
        "kafka.log", "LogManager", "gauge", "thread",
        remainingSegmentsToRecover="number of segments that a thread of load_all() has not recovered yet",
    ),
    *_define(
        "kafka.log", "LogCleaner", "gauge", "all",
        max__buffer__utilization__percent="highest use of the key map in the last cleanings of all threads, in percent",
        cleaner__recopy__percent="bytes written in the last cleanings of all threads, in percent of the bytes read",
        max__clean__time__secs="longest of the last cleanings of all threads, in seconds",
        max__compaction__delay__secs="seconds by which the most overdue log exceeds max.compaction.lag.ms",
        DeadThreadCount="number of cleaner threads that ended unexpectedly",
    ),
    *_define(
        "kafka.log", "LogCleanerManager", "gauge", "all",
        max__dirty__percent="dirty ratio of the dirtiest log, in percent",
        time__since__last__run__ms="milliseconds since the cleaner last searched for dirty logs",
    ),
    *_define(
        "kafka.log", "LogCleanerManager", "gauge", "directory",
        uncleanable__partitions__count="number of logs that the cleaner skips after an error",
        uncleanable__bytes="cleanable bytes of the logs that the cleaner skips after an error",
    ),
    *_define("klog.log", "LogCleaner", "timer", "all", CleanTimeMs="durations of cleanings by the background cleaner"),
    *_define("klog.log", "LogRollStats", "timer", "all", LogRollRateAndTimeMs="number, rates and durations of rolls"),
    *_define(
        "klog.log", "LogAppendStats", "timer", "all",
        LogAppendTimeMs="durations of appends of encoded batches; one append in 16 is timed",
    ),
    *_define(
        "klog.log", "LogFetchStats", "timer", "all",
        LogFetchTimeMs="durations of fetches; one fetch in 16 is timed",
    ),
    *_define(
        "klog.log", "LogManager", "gauge", "all",
        FlushQueueSize="number of logs that wait for a background flush",
    ),
    *_define(
        "klog.log", "LogManager", "gauge", "directory",
        LogDirectorySize="bytes of the .log files of loaded logs",
    ),
    *_define(
        "klog.log", "Log", "gauge", "log",
        ActiveSegmentSize="bytes of the active segment",
        UnflushedBytes="bytes appended since the last flush or roll",
        PageCacheBytes="bytes of the log in the page cache",
        PageCacheDirtyBytes="bytes of the log in the page cache that are not yet written to the disk",
        PageCacheWritebackBytes="bytes of the log that the kernel is writing to the disk",
    ),
    *_define(
        "klog.log", "Log", "counter", "log",
        FetchBytesSendfile="bytes sent by sendfile",
        FetchBytesSplice="bytes sent by splice",
        FetchBytesCopied="bytes sent through a buffer",
        PageCacheSampledReadBytes="bytes of sampled reads; one read in 16 is sampled",
        PageCacheHitReadBytes="bytes of sampled reads that were in the page cache",
    ),
    *_define(
        "klog.disk", "LogDirectory", "gauge", "directory",
        TotalBytes="bytes of the file system",
        FreeBytes="bytes of the file system that are free for this user",
        TotalInodes="inodes of the file system",
        FreeInodes="free inodes of the file system",
    ),
    *_define(
        "klog.disk", "Device", "counter", "device",
        Reads="reads from the device by all processes",
        ReadBytes="bytes read from the device by all processes",
        Writes="writes to the device by all processes",
        WrittenBytes="bytes written to the device by all processes",
        BusyMs="milliseconds with a request in progress; the rate divided by 1000 is the utilisation",
        QueueMs="sum of the times of all requests in milliseconds; the rate divided by 1000 is the mean queue length",
    ),
    *_define("klog.disk", "Device", "gauge", "device", InFlight="requests in progress"),
]  # fmt: skip
