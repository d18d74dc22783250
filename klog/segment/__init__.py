"""segment: one base offset, four files. Takes encoded batches from record, gives byte ranges of .log and answers of the
indexes; on the right of it log strings segments together.

Its door: Segment, what those of a log share (Home), and AbortedTransaction; names of files; Header, HeaderWalk and the
walks over a .log file, for those who load, count and inspect logs.
"""

from klog.segment import names
from klog.segment._index import IndexPair, base_offset, next_offset
from klog.segment._scan import (
    Header,
    HeaderWalk,
    Scan,
    count_records,
    find_offset,
    nul_page_within,
    producing,
    scan_checked,
    scan_headers,
    search_batch,
)
from klog.segment._span import span
from klog.segment.home import Home
from klog.segment.segment import FoundByTime, Segment
from klog.segment.txn_index import AbortedTransaction, collect_aborted, parse_txn_index

__all__ = [
    "AbortedTransaction",
    "FoundByTime",
    "Header",
    "HeaderWalk",
    "Home",
    "IndexPair",
    "Scan",
    "Segment",
    "base_offset",
    "collect_aborted",
    "count_records",
    "find_offset",
    "names",
    "next_offset",
    "nul_page_within",
    "parse_txn_index",
    "producing",
    "scan_checked",
    "scan_headers",
    "search_batch",
    "span",
]
