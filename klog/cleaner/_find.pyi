from collections.abc import Callable
from typing import Self, final

from klog.cleaner._clean import SegmentPass
from klog.disk import LogFile

@final
class KeySearch(SegmentPass):
    def __new__(cls, key: bytes) -> Self: ...
    def count(
        self, file: LogFile, end: int, base_offset: int, limit: int, tick: Callable[[int], None] | None = None
    ) -> tuple[int, int, int, int]: ...
