from typing import NamedTuple, Never

from typing_extensions import Buffer, disjoint_base

BATCH_PREFIX: int
BATCH_HEADER: int
DELETE_HORIZON: int

class UncheckedHeader(NamedTuple):
    codec: int
    is_transactional: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int

def unchecked_header(buffer: Buffer) -> UncheckedHeader | None: ...

@disjoint_base
class BatchTable(Buffer):
    def __init__(self, /, *args: Never, **kwargs: Never) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def n(self) -> int: ...
