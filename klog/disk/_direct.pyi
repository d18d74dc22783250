from typing import Self, final

from klog.disk._io import LogFile

@final
class DirectFile(LogFile):
    @property
    def direct_bytes_written(self) -> int: ...
    @property
    def direct_bytes_read(self) -> int: ...
    def __new__(
        cls, fd: int, path: str, writable: bool = False, table: int = 0, *, direct: int = -1, **_: object
    ) -> Self: ...
