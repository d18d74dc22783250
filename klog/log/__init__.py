"""log: ordered segments, one partition each, and the directory that holds many of them.

Takes segments from the left; gives spark, inspect, cli and users a Log to append to and read from.
Its door: open_directory (klog.open), LogManager, Log, LogReader; waiter_for, to sleep until logs have news.
"""

from klog.log._append import AppendInfo
from klog.log.fetching import FetchData
from klog.log.load import Recovery
from klog.log.log import Log
from klog.log.manager import LogManager, open_directory
from klog.log.offset_lookup import TimestampOffset
from klog.log.positions import NamedReader
from klog.log.producers import ProducerState
from klog.log.reader import LogReader
from klog.log.tail import waiter_for

__all__ = [
    "AppendInfo",
    "FetchData",
    "Log",
    "LogManager",
    "LogReader",
    "NamedReader",
    "ProducerState",
    "Recovery",
    "TimestampOffset",
    "open_directory",
    "waiter_for",
]
