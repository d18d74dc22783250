"""Repairs damaged log directories, and rescues their readable batches. Takes paths, returns reports as plain values.

repair(path)          cuts and rebuilds files as a broker's load does, and keeps the originals
rescue(path, to)      writes every readable batch of a directory into a new log.dir
"""

from klog.repairing.repair import repair
from klog.repairing.rescue import rescue

__all__ = ["repair", "rescue"]


def __dir__() -> list[str]:
    return sorted(__all__)
