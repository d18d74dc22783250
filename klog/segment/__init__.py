"""segment: one base offset, four files. Takes encoded batches from record, returns byte ranges of .log and index
lookups. The package log combines segments to a log.

Its API: Segment, SegmentDir (what the segments of one log share) and AbortedTransaction; the names of files; Header,
HeaderIterator and the scans of a .log file, for code that loads, counts and inspects logs; read_headers, a scan that
returns Arrow columns; OFFSET_ENTRY and TIME_ENTRY, the bytes of an entry of each index.
"""

from klog.segment import names
from klog.segment._headers import HEADER_FIELDS, HeaderColumns, HeaderFields, read_headers
from klog.segment._index import OFFSET_ENTRY, TIME_ENTRY, IndexPair, base_offset
from klog.segment._opening import SettledEnd, read_heads, settled_end
from klog.segment._scan import (
    Header,
    HeaderIterator,
    Scan,
    count_records,
    find_offset,
    has_sound_batch,
    nul_page_within,
    producing,
    scan_checked,
    scan_headers,
    search_batch,
)
from klog.segment._span import span
from klog.segment.segment import FoundByTime, Segment, index_bytes_needed
from klog.segment.segment_dir import SegmentDir
from klog.segment.txn_index import AbortedTransaction, collect_aborted, parse_txn_index

__all__ = [
    "HEADER_FIELDS",
    "OFFSET_ENTRY",
    "TIME_ENTRY",
    "AbortedTransaction",
    "FoundByTime",
    "Header",
    "HeaderColumns",
    "HeaderFields",
    "HeaderIterator",
    "IndexPair",
    "Scan",
    "Segment",
    "SegmentDir",
    "SettledEnd",
    "base_offset",
    "collect_aborted",
    "count_records",
    "find_offset",
    "has_sound_batch",
    "index_bytes_needed",
    "names",
    "nul_page_within",
    "parse_txn_index",
    "producing",
    "read_headers",
    "read_heads",
    "scan_checked",
    "scan_headers",
    "search_batch",
    "settled_end",
    "span",
]
