from typing import Never

from typing_extensions import Buffer

class BatchTable(Buffer):
    def __init__(self, /, *args: Never, **kwargs: Never) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def n(self) -> int: ...
