"""Lists, decodes and verifies any file of a log directory without changing it.

Takes paths and returns plain values that can be written as JSON. Nothing is opened for writing and nothing is locked,
so it works with a running broker and on a copied disk. The results show the files as they were when they were read.

    verify(path)       every invariant, as a Report of problems
    dump(path)         the content of one file or of all files of a directory
    ls(path)           topics, partitions, offsets, sizes, time spans
    page_cache(path)   how much of each log is in memory, and which ranges
    diff(a, b)         where two directories of the same partitions begin to differ
    groups(paths)      consumer groups: members, committed offsets, lag
    transactions(paths)     transactional ids, and the open transactions of partitions

The module activity watches a directory: rates, lags of readers, use of the disks.
"""

from klog.inspect.cached import page_cache
from klog.inspect.compare import diff
from klog.inspect.dump import DumpedFile, dump
from klog.inspect.groups import groups
from klog.inspect.listing import ls
from klog.inspect.open_transactions import transactions
from klog.inspect.verify import verify
from klog.report import Problem, Report

__all__ = [
    "DumpedFile",
    "Problem",
    "Report",
    "diff",
    "dump",
    "groups",
    "ls",
    "page_cache",
    "transactions",
    "verify",
]


def __dir__() -> list[str]:
    return sorted(__all__)
