from collections.abc import Iterable
from typing import Final, Never, Self, final

from klog.disk._io import LogFile
from klog.record._columns import ArrowColumns, Layout
from klog.segment._scan import Header

HEADER_FIELDS: Final[tuple[str, ...]]
ROWS_MAX: Final[int]

@final
class HeaderFields(Layout):
    def __new__(cls, names: Iterable[str] | None = None) -> Self: ...

@final
class HeaderColumns(ArrowColumns):
    segment_base_offset: int
    end: int
    next_offset: int
    reason: str
    def __init__(self, /, *args: Never, **kwargs: Never) -> None: ...
    def __len__(self) -> int: ...
    @property
    def last(self) -> Header | None: ...

def read_headers(
    file: LogFile,
    position: int,
    end: int,
    start: int,
    stop: int,
    fields: HeaderFields,
    *,
    base_offset: int = -1,
    limit: int = ...,
    segment_base_offset: int = 0,
    rows_max: int = ...,
) -> HeaderColumns: ...
