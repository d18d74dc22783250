"""segment: one base offset, four files. Takes encoded batches from record, gives byte ranges of .log and answers of the
indexes; on the right of it log strings segments together.

Its door: Segment, AbortedTransaction, Header, HeaderWalk, names.
"""

from klog.segment import names
from klog.segment._scan import Header, HeaderWalk
from klog.segment.segment import Segment
from klog.segment.txn_index import AbortedTransaction, parse_txn_index

__all__ = ["AbortedTransaction", "Header", "HeaderWalk", "Segment", "names", "parse_txn_index"]
