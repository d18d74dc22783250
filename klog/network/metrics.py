"""The metrics of a server. Kafka: RequestChannel, SocketServer, SimpleMemoryPool."""

from __future__ import annotations

from collections import Counter

from klog.network._loop import Loop
from klog.network._pool import MemoryPool
from klog.network._queue import RequestQueue
from klog.network.acceptor import Acceptor
from klog.network.handlers import Handlers

_NAMES = {
    "bytes_in": "NetworkBytesIn",
    "bytes_out": "NetworkBytesOut",
    "requests": "RequestsReceived",
    "responses": "ResponsesQueued",
    "expired": "ExpiredConnectionsKilledCount",
    "throttled": "RequestsThrottled",
    "refused": "FramesRefused",
    "failed_handshakes": "FailedHandshakes",
    "responses_to_closed": "ResponsesToClosedConnections",
    "bytes_by_sendfile": "BytesBySendfile",
}


def collect(
    loops: list[Loop], acceptor: Acceptor, handlers: Handlers, queue: RequestQueue, pool: MemoryPool
) -> dict[str, float]:
    """All values, by name; those of a listener end in its name, those of a network thread in its number."""
    totals: Counter[str] = Counter()
    for loop in loops:
        totals.update(loop.thread.counts())
    found: dict[str, float] = {_NAMES[name]: value for name, value in totals.items()}
    found["RequestQueueSize"] = queue.size
    found["ResponseQueueSize"] = 0
    for loop in loops:
        number = loop.thread.number
        found[f"ResponseQueueSize.{number}"] = loop.thread.mailbox.size
        found["ResponseQueueSize"] += loop.thread.mailbox.size
        found[f"IdlePercent.{number}"] = loop.idle_ratio
    found["NetworkProcessorAvgIdlePercent"] = sum(loop.idle_ratio for loop in loops) / len(loops)
    found["RequestHandlerAvgIdlePercent"] = handlers.idle_ratio
    found["ConnectionsAccepted"] = acceptor.accepted
    found["ConnectionsRejected"] = acceptor.rejected
    found["ConnectionCount"] = acceptor.quotas.count()
    for listener in acceptor.listeners:
        found[f"ConnectionCount.{listener.name}"] = acceptor.quotas.count(listener)
    return found | handlers.queue_times().metrics("RequestQueueTimeMs") | pool.metrics()
