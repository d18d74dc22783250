from typing import Self, final

from typing_extensions import Buffer

from klog.disk._io import LogFile
from klog.disk.send import HasFileno

@final
class SendCounts:
    sendfile: int
    splice: int
    copied: int

def check_target(target: object) -> int: ...

@final
class Target:
    def __new__(cls, target: HasFileno) -> Self: ...
    fd: int
    timeout: float | None

def send_slice(target: HasFileno, file: LogFile, position: int, size: int, counts: SendCounts | None) -> int: ...
def send_bytes(target: HasFileno, data: Buffer, more: bool) -> int: ...
