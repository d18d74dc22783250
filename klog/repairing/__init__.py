"""Repairs damaged log directories, and rescues what can be read of them: takes paths, returns reports as plain values.

repair(path)          cuts and rebuilds what a broker's load would, after keeping a copy
rescue(path, to)      writes every readable batch of a directory into a new log.dir
"""

from klog.repairing.repair import repair
from klog.repairing.rescue import rescue

__all__ = ["repair", "rescue"]


def __dir__() -> list[str]:
    return sorted(__all__)
