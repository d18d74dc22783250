from typing import Never

from typing_extensions import Buffer, disjoint_base

BATCH_HEADER: int

@disjoint_base
class BatchTable(Buffer):
    def __init__(self, /, *args: Never, **kwargs: Never) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def n(self) -> int: ...
