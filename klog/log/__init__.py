"""log: one partition, a directory of ordered segments, with all that Kafka knows about it.

Takes segments from the left; gives manager, spark, inspect, cli and users a Log to append to and read from.
Its door: Log, LogReader; FetchData, FetchRange and Outgoing, which are sent on as they are stored; waiter_for, to sleep
until logs have news.
"""

from klog.log._append import AppendInfo
from klog.log.fetching import FetchData
from klog.log.load import Recovery
from klog.log.log import Log
from klog.log.offset_lookup import TimestampOffset
from klog.log.producers import ProducerState
from klog.log.ranges import FetchRange
from klog.log.reader import LogReader
from klog.log.sending import Outgoing
from klog.log.tail import waiter_for

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
