"""segment: one base offset, four files. Takes encoded batches from record, returns byte ranges of .log and index
lookups. The package log combines segments to a log.

Its API: Segment, SegmentDir (what the segments of one log share) and AbortedTransaction; find_by_time and its like, for
records by their timestamps; the names of files; Header, HeaderIterator and the scans of a .log file, for code that
loads, counts and inspects logs; read_headers, a scan that returns Arrow columns; OFFSET_ENTRY and TIME_ENTRY, the bytes
of an entry of each index.
"""

from klog import lazy
from klog.segment import names

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    from klog.segment.batches import sound_after
    from klog.segment.by_time import FoundByTime, find_by_time, may_reach, stamped_records, youngest_in
    from klog.segment.segment import Segment, index_bytes_needed
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
    "find_by_time",
    "find_offset",
    "has_sound_batch",
    "index_bytes_needed",
    "may_reach",
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
    "sound_after",
    "span",
    "stamped_records",
    "youngest_in",
]
_PLACES = {
    "AbortedTransaction": "txn_index",
    "FoundByTime": "by_time",
    "HEADER_FIELDS": "_headers",
    "Header": "_scan",
    "HeaderColumns": "_headers",
    "HeaderFields": "_headers",
    "HeaderIterator": "_scan",
    "IndexPair": "_index",
    "OFFSET_ENTRY": "_index",
    "Scan": "_scan",
    "Segment": "segment",
    "SegmentDir": "segment_dir",
    "SettledEnd": "_opening",
    "TIME_ENTRY": "_index",
    "base_offset": "_index",
    "collect_aborted": "txn_index",
    "count_records": "_scan",
    "find_by_time": "by_time",
    "find_offset": "_scan",
    "has_sound_batch": "_scan",
    "index_bytes_needed": "segment",
    "may_reach": "by_time",
    "nul_page_within": "_scan",
    "parse_txn_index": "txn_index",
    "producing": "_scan",
    "read_headers": "_headers",
    "read_heads": "_opening",
    "scan_checked": "_scan",
    "scan_headers": "_scan",
    "search_batch": "_scan",
    "settled_end": "_opening",
    "sound_after": "batches",
    "span": "_span",
    "stamped_records": "by_time",
    "youngest_in": "by_time",
}

__getattr__ = lazy.attributes(globals(), _PLACES)
