"""The names of the metrics: for each one of LogManager.metrics() and rates() the MBean in which Kafka has it, and its
meaning.

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
        BytesOutPerSec="bytes of batches that fetches and readers got",
        BytesRejectedPerSec="bytes of appends refused as too large",
        ReplicationBytesInPerSec="bytes of batches appended by replication",
        TotalProduceRequestsPerSec="appends, also failed ones",
        FailedProduceRequestsPerSec="appends that raised",
        TotalFetchRequestsPerSec="fetches, also failed ones",
        FailedFetchRequestsPerSec="fetches that raised",
        NoKeyCompactedTopicRecordsPerSec="records refused: no key in a compacted topic",
        InvalidMagicNumberRecordsPerSec="records refused: wrong format version",
        InvalidMessageCrcRecordsPerSec="records refused: wrong checksum",
        InvalidOffsetOrSequenceRecordsPerSec="records refused: wrong offset or sequence number",
    ),
    *_define(
        "kafka.log", "Log", "gauge", "log",
        Size="bytes of all .log files",
        NumLogSegments="segments",
        LogStartOffset="first offset that can be read",
        LogEndOffset="offset of the next record",
    ),
    *_define(
        "kafka.cluster", "Partition", "gauge", "log",
        LastStableOffsetLag="offsets between the last stable offset and the high watermark",
    ),
    *_define(
        "kafka.server", "ReplicaManager", "gauge", "all",
        PartitionCount="loaded logs",
        ProducerIdCount="producer ids with state, of loaded logs that are open for writing",
    ),
    *_define(
        "kafka.log", "LogFlushStats", "timer", "all",
        LogFlushRateAndTimeMs="flushes: number, rates and durations",
    ),
    *_define("kafka.log", "LogManager", "gauge", "all", OfflineLogDirectoryCount="log directories that are offline"),
    *_define(
        "kafka.log", "LogManager", "gauge", "directory",
        LogDirectoryOffline="1 if the directory is offline",
    ),
    *_define(
        "kafka.log", "LogManager", "gauge", "load",
        remainingLogsToRecover="logs that load_all() has yet to load",
    ),
    *_define(
        "kafka.log", "LogManager", "gauge", "thread",
        remainingSegmentsToRecover="segments that a thread of load_all() has yet to recover",
    ),
    *_define(
        "kafka.log", "LogCleaner", "gauge", "all",
        max__buffer__utilization__percent="use of the key map, the most of all threads' last cleanings",
        cleaner__recopy__percent="bytes written per bytes read in the last cleanings",
        max__clean__time__secs="seconds of the last cleanings, the most of all threads",
        max__compaction__delay__secs="how long the most overdue log has waited for its cleaning",
        DeadThreadCount="cleaner threads that ended unexpectedly",
    ),
    *_define(
        "kafka.log", "LogCleanerManager", "gauge", "all",
        max__dirty__percent="dirty ratio of the dirtiest log",
        time__since__last__run__ms="milliseconds since the cleaner last looked for dirty logs",
    ),
    *_define(
        "kafka.log", "LogCleanerManager", "gauge", "directory",
        uncleanable__partitions__count="logs that the cleaner skips after an error",
        uncleanable__bytes="cleanable bytes of those logs",
    ),
    *_define("klog.log", "LogCleaner", "timer", "all", CleanTimeMs="cleanings by the background cleaner"),
    *_define("klog.log", "LogRollStats", "timer", "all", LogRollRateAndTimeMs="rolls: number, rates and durations"),
    *_define(
        "klog.log", "LogAppendStats", "timer", "all",
        LogAppendTimeMs="appends of encoded batches, one in 16 is timed",
    ),
    *_define("klog.log", "LogFetchStats", "timer", "all", LogFetchTimeMs="fetches, one in 16 is timed"),
    *_define("klog.log", "LogManager", "gauge", "all", FlushQueueSize="logs that wait for a background flush"),
    *_define(
        "klog.log", "LogManager", "gauge", "directory",
        LogDirectorySize="bytes of the .log files of loaded logs",
    ),
    *_define(
        "klog.log", "Log", "gauge", "log",
        ActiveSegmentSize="bytes of the active segment",
        UnflushedBytes="bytes appended since the last flush",
        PageCacheBytes="bytes of the log in the page cache",
        PageCacheDirtyBytes="bytes in the page cache that are not on disk",
        PageCacheWritebackBytes="bytes that are being written to the disk",
    ),
    *_define(
        "klog.log", "Log", "counter", "log",
        FetchBytesSendfile="bytes sent by sendfile",
        FetchBytesSplice="bytes sent by splice",
        FetchBytesCopied="bytes sent through a buffer",
        PageCacheSampledReadBytes="bytes of sampled reads, one read in 16",
        PageCacheHitReadBytes="bytes of sampled reads that were in the page cache",
    ),
    *_define(
        "klog.disk", "LogDirectory", "gauge", "directory",
        TotalBytes="size of the file system",
        FreeBytes="free bytes of the file system for this user",
        TotalInodes="inodes of the file system",
        FreeInodes="free inodes",
    ),
    *_define(
        "klog.disk", "Device", "counter", "device",
        Reads="reads by the device, of all processes",
        ReadBytes="bytes read",
        Writes="writes by the device, of all processes",
        WrittenBytes="bytes written",
        BusyMs="milliseconds with a request under way: its rate / 1000 is the utilisation",
        QueueMs="milliseconds of waiting of all requests: its rate / 1000 is the queue length, the saturation",
    ),
    *_define("klog.disk", "Device", "gauge", "device", InFlight="requests under way"),
]  # fmt: skip
