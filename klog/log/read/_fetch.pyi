from typing import Any, TypeVar

from typing_extensions import disjoint_base

from klog.disk import HasFileno, LogFile
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.segment import AbortedTransaction

_Kind = TypeVar("_Kind", bound=FetchState)

@disjoint_base
class FetchState:
    size: int
    first_entry_incomplete: bool
    aborted_transactions: tuple[AbortedTransaction, ...]
    _file: LogFile | None
    _log: LogCore | None
    def __init__(
        self,
        offset: int,
        high_watermark: int,
        last_stable_offset: int | None,
        log_start_offset: int,
        log_end_offset: int,
        position: OffsetMetadata,
        size: int = 0,
        first_entry_incomplete: bool = False,
        aborted_transactions: tuple[AbortedTransaction, ...] = (),
        file: LogFile | None = None,
        log: LogCore | None = None,
    ) -> None: ...
    @property
    def _byte(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def position(self) -> OffsetMetadata: ...
    @position.setter
    def position(self, place: OffsetMetadata) -> None: ...
    def send_to(self, target: HasFileno, start: int = 0) -> int: ...
    def send_part(self, target: HasFileno, start: int, size: int) -> int: ...
    def _start_of(self, start: int) -> int: ...
    def _keep(self, file: LogFile | None) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...

def fetch_shortly(
    kind: type[_Kind], log: LogCore, offset: Any, max_bytes: Any, isolation: Any, min_one_message: Any
) -> _Kind | None: ...
