"""log: one partition, a directory of ordered segments, with all that Kafka knows about it.

Takes segments from the left; gives manager, spark, inspect, cli and users a Log to append to and read from.
Its door: Log, LogReader; FetchData, FetchRange and Outgoing, which are sent on as they are stored; waiter_for, to sleep
until logs have news.
"""

from klog.log._core import AppendInfo
from klog.log.load.loader import Recovery
from klog.log.log import Log
from klog.log.read.fetch import FetchData
from klog.log.read.fetch_range import FetchRange
from klog.log.read.lookup import TimestampOffset
from klog.log.read.reader import LogReader
from klog.log.read.send import Outgoing
from klog.log.read.tail import waiter_for
from klog.log.state.producers import ProducerState

__all__ = [
    "AppendInfo",
    "FetchData",
    "FetchRange",
    "Log",
    "LogReader",
    "Outgoing",
    "ProducerState",
    "Recovery",
    "TimestampOffset",
    "waiter_for",
]
