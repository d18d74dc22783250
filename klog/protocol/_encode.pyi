from typing import Any

from klog.protocol._message import Message

def encode(message: Message, version: int) -> bytes: ...
def encode_frame(
    header: Message, header_version: int, message: Message, version: int, errors: list[int] | None = None
) -> list[Any]: ...
