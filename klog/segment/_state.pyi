from typing import Any

from typing_extensions import disjoint_base

from klog.disk import LogFile, ReadSampler
from klog.disk._handles import Holder
from klog.record import BatchTable
from klog.segment._index import IndexPair

@disjoint_base
class ActiveState:
    file: LogFile
    index: IndexPair
    stop: int

@disjoint_base
class SegmentDirState:
    sampler: ReadSampler

@disjoint_base
class TxnIndexState:
    checked: bool
    _entries: Any

@disjoint_base
class SegmentState(Holder):
    base_offset: int
    next_offset: int
    size: int
    appended_ms: int | None
    _active: Any
    _txn_index: Any
    plain_from: int
    plain_to: int
    def append(self, group: BatchTable, first: int, stop: int, now: int) -> None: ...
