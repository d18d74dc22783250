"""Any file of a log directory, read without leaving a trace: list, decode, verify.

Takes paths, gives plain values that become JSON as they are. Nothing is opened for writing, nothing is locked, so it
works beside a live broker and on a dead one's disk; the results are those of the moment of reading.

    verify(path)       every invariant, as a Report of problems
    dump(path)         the content of one file or of all files of a directory
    ls(path)           topics, partitions, offsets, sizes, time spans
    page_cache(path)   what of each log is in memory, and which ranges
"""

from klog.inspect.cached import page_cache
from klog.inspect.dump import DumpedFile, dump
from klog.inspect.listing import NO_SEGMENT, ls
from klog.inspect.report import Problem, Report
from klog.inspect.verify import verify

__all__ = ["NO_SEGMENT", "DumpedFile", "Problem", "Report", "dump", "ls", "page_cache", "verify"]
