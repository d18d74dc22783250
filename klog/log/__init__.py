"""One partition: a directory of ordered segments with the state that Kafka keeps for it.

Uses segment; gives manager, spark, inspect, cli and users a Log to append to and read from.
API: Log, LogReader; LogAsOf and LatestByKey; FetchedChunk, batches with what selects records of them; FetchData,
FetchRange and Outgoing, which send batches as they are stored; waiter_for, which sleeps until logs change.
"""

from klog import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from klog.log.load.loader import Recovery
    from klog.log.log import Log, waiter_for
    from klog.log.read._fetch import FetchData
    from klog.log.read.chunks import FetchedChunk
    from klog.log.read.fetch_range import FetchRange
    from klog.log.read.latest import LatestByKey, LogAsOf
    from klog.log.read.lookup import TimestampOffset
    from klog.log.read.reader import LogReader
    from klog.log.read.send import Outgoing
    from klog.log.state.producers import ProducerState
    from klog.log.write._append_info import AppendInfo

__all__ = [
    "AppendInfo",
    "FetchData",
    "FetchRange",
    "FetchedChunk",
    "LatestByKey",
    "Log",
    "LogAsOf",
    "LogReader",
    "Outgoing",
    "ProducerState",
    "Recovery",
    "TimestampOffset",
    "waiter_for",
]
_PLACES = {
    "AppendInfo": "write._append_info",
    "FetchData": "read._fetch",
    "FetchRange": "read.fetch_range",
    "FetchedChunk": "read.chunks",
    "LatestByKey": "read.latest",
    "Log": "log",
    "LogAsOf": "read.latest",
    "LogReader": "read.reader",
    "Outgoing": "read.send",
    "ProducerState": "state.producers",
    "Recovery": "load.loader",
    "TimestampOffset": "read.lookup",
    "waiter_for": "log",
}

__getattr__ = lazy.attributes(globals(), _PLACES)
