from collections.abc import Callable
from typing import Any, Self, final

from typing_extensions import disjoint_base

from klog.cleaner._keymap import KeyMap
from klog.cleaner._waste import Waste
from klog.cleaner.transactions import CleanedTransactions
from klog.disk import LogFile
from klog.segment import IndexPair

@disjoint_base
class SegmentPass:
    bytes_read: int
    records_read: int

@final
class KeySurvey(SegmentPass):
    def __new__(cls, map: KeyMap, start: int, transactions: CleanedTransactions) -> Self: ...
    def note(
        self,
        file: LogFile,
        position: int,
        end: int,
        base_offset: int,
        limit: int,
        tick: Callable[[int], None] | None = None,
    ) -> bool: ...

@final
class Rewriter(SegmentPass):
    size: int
    batches: int
    next_offset_out: int
    records_kept: int
    markers_kept: int
    records_dropped: int
    keyless: int
    def __new__(
        cls,
        map: KeyMap,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound: int,
        transactions: CleanedTransactions,
        last_offsets: dict[int, tuple[int | None, int]],
        *,
        purged: bytes | None = None,
        waste: Waste | None = None,
    ) -> Self: ...
    def begin(self, out: Any, index: IndexPair) -> None: ...
    def rewrite(
        self,
        file: LogFile,
        end: int,
        base_offset: int,
        limit: int,
        keep_legacy_tombstones: bool,
        tick: Callable[[int], None] | None = None,
    ) -> None: ...
