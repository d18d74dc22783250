from collections.abc import Callable
from typing import Protocol, Self, final

from klog.log.state._log_core import LogCore
from klog.log.state._producer_entry import ProducerEntry
from klog.log.write.undo import Savepoint
from klog.record import BatchGroup, BatchTable

class _Effects(Protocol):
    def apply(self) -> Exception | None: ...
    def take_back(self) -> None: ...

def write_at_end(
    log: LogCore,
    batches: BatchTable,
    next_offset: int,
    now: int,
    entries: dict[int, ProducerEntry] | None,
    effects: _Effects | None,
    savepoint: Savepoint | None,
    write_parts: Callable[[LogCore, BatchGroup, int], None] | None,
) -> int: ...

@final
class Tail: ...

@final
class ReplacedEntries:
    def __new__(cls, known: dict[int, ProducerEntry], replaced: dict[int, ProducerEntry]) -> Self: ...
    def take_back(self) -> None: ...
