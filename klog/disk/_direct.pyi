from typing import final

from klog.disk._io import LogFile

@final
class DirectFile(LogFile):
    @property
    def direct_bytes_written(self) -> int: ...
    @property
    def direct_bytes_read(self) -> int: ...
    def __init__(self, fd: int, path: str, writable: bool = False, table: int = 0, *, direct: int = -1) -> None: ...
