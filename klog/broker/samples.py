"""The metrics of a broker as samples, one for each MBean that Kafka would have, in addition to those of its logs.

Kafka: RequestMetrics, RequestChannel, SocketServer, KafkaRequestHandlerPool, FetchSessionCache,
DelayedOperationPurgatory. klog's own have the domain klog.network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from klog.broker.request_metrics import RequestMetrics

_TIMES = {
    "RequestQueueTimeMs": "time in the queue before a handler",
    "LocalTimeMs": "time in the handler",
    "RemoteTimeMs": "time of waiting after the handler, as a fetch does",
    "ThrottleTimeMs": "time that the client was told to wait",
    "ResponseQueueTimeMs": "time of waiting for the network thread",
    "ResponseSendTimeMs": "time of sending the response",
    "TotalTimeMs": "time from the request's arrival until its response has been sent",
}
_GAUGES = {
    "RequestQueueSize": ("kafka.network", "RequestChannel", "requests that wait for a handler"),
    "ResponseQueueSize": ("kafka.network", "RequestChannel", "responses that wait for a network thread"),
    "NetworkProcessorAvgIdlePercent": ("kafka.network", "SocketServer", "share of time that network threads wait"),
    "MemoryPoolAvailable": ("kafka.network", "SocketServer", "bytes left for requests"),
    "MemoryPoolUsed": ("kafka.network", "SocketServer", "bytes of requests"),
    "RequestHandlerAvgIdlePercent": (
        "kafka.server", "KafkaRequestHandlerPool", "share of time that handler threads wait"
    ),
    "NumIncrementalFetchSessions": ("kafka.server", "FetchSessionCache", "fetch sessions"),
    "NumIncrementalFetchPartitionsCached": ("kafka.server", "FetchSessionCache", "partitions of fetch sessions"),
    "ShareSessionsCount": ("kafka.server", "ShareSessionCache", "share sessions"),
    "SharePartitionsCount": ("kafka.server", "ShareSessionCache", "partitions of share sessions"),
}  # fmt: skip
_COUNTERS = {
    "ExpiredConnectionsKilledCount": ("kafka.network", "SocketServer", "connections closed because they were idle"),
    "ConnectionsAccepted": ("klog.network", "Server", "connections accepted"),
    "ConnectionsRejected": ("klog.network", "Server", "connections refused by a limit"),
    "NetworkBytesIn": ("klog.network", "Server", "bytes received"),
    "NetworkBytesOut": ("klog.network", "Server", "bytes sent"),
    "BytesBySendfile": ("klog.network", "Server", "bytes sent by sendfile"),
    "FramesRefused": ("klog.network", "Server", "frames refused: too large, or no request"),
    "FailedHandshakes": ("klog.network", "Server", "TLS handshakes that failed"),
}


def samples(values: Mapping[str, float], requests: RequestMetrics, seconds: float) -> Iterator[Sample]:
    """The samples of the values of Broker.metrics(), and of its requests. seconds: since the broker's start."""
    for names, kind, attribute in ((_GAUGES, "gauge", "Value"), (_COUNTERS, "counter", "Count")):
        for name, (domain, group, text) in names.items():
            if name in values:
                yield Sample(domain, group, name, {}, kind, text, {attribute: values[name]})  # type: ignore[arg-type]
    for name, value in values.items():
        kind, _, subject = name.partition(".")
        if kind == "ConnectionCount" and subject:
            text = "open connections"
            yield Sample("klog.network", "Server", kind, {"listener": subject}, "gauge", text, {"Value": value})
        elif kind == "PurgatorySize":
            tags = {"delayedOperation": subject}
            text = "requests that wait"
            yield Sample("kafka.server", "DelayedOperationPurgatory", kind, tags, "gauge", text, {"Value": value})
    for api, each in requests.all().items():
        tags = {"request": api.message}
        for version, count in list(each.requests.items()):
            yield _meter("RequestsPerSec", {**tags, "version": str(version)}, "requests", count, seconds)
        for error, count in list(each.errors.items()):
            yield _meter("ErrorsPerSec", {**tags, "error": error}, "errors in responses", count, seconds)
        for name, times in each.times().items():
            yield Sample("kafka.network", "RequestMetrics", name, tags, "timer", _TIMES[name], times.attributes())


def _meter(name: str, tags: dict[str, str], text: str, count: int, seconds: float) -> Sample:
    attributes = {"Count": float(count), "MeanRate": count / seconds if seconds > 0 else 0.0}
    return Sample("kafka.network", "RequestMetrics", name, tags, "meter", text, attributes)
