"""The log directories of one process and the topics in them: loading, assignment, background work, stopping.

It uses logs; importing, spark, cli and users use its LogManager.
API: open_directory (klog.open), LogManager, NamedReader, partition_for; klog.manager.by_hand for a whole directory at
once.
"""

from typing import TYPE_CHECKING, Any

from klog.manager.manager import LogManager, open_directory
from klog.manager.partitioner import partition_for

if TYPE_CHECKING:
    from klog.manager.named_reader import NamedReader

__all__ = ["LogManager", "NamedReader", "open_directory", "partition_for"]


def __getattr__(name: str) -> Any:
    if name != "NamedReader":
        raise AttributeError(f"module 'klog.manager' has no attribute {name!r}")
    from klog.manager.named_reader import NamedReader

    return NamedReader
