from typing import Self, final

from klog.log.state._producer_entry import ProducerEntry

@final
class Tail: ...

@final
class ReplacedEntries:
    def __new__(cls, known: dict[int, ProducerEntry], replaced: dict[int, ProducerEntry]) -> Self: ...
    def take_back(self) -> None: ...
