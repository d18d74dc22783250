"""The log directories of one process and the topics in them: loading, assignment, background work, stopping.

It uses logs; importing, spark, cli and users use its LogManager.
API: open_directory (klog.open), LogManager, NamedReader, partition_for; klog.manager.by_hand for a whole directory at
once.
"""

from __future__ import annotations

from klog import lazy
from klog.log import core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from klog.manager.manager import LogManager, open_directory
    from klog.manager.named_reader import NamedReader
    from klog.manager.partitioner import partition_for

__all__ = ["LogManager", "NamedReader", "open_directory", "partition_for"]
_PLACES = {
    "LogManager": "manager",
    "NamedReader": "named_reader",
    "open_directory": "manager",
    "partition_for": "partitioner",
}

__getattr__ = lazy.attributes(globals(), _PLACES, core.load)
