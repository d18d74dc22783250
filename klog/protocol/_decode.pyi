from typing import TypeVar

from typing_extensions import Buffer

from klog.protocol._message import Message

_M = TypeVar("_M", bound=Message)

def decode(message: type[_M], version: int, buffer: Buffer, position: int = 0) -> _M: ...
def decode_from(message: type[_M], version: int, buffer: Buffer, position: int) -> tuple[_M, int]: ...
