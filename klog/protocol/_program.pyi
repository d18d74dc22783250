from typing import Self, final

from klog.protocol._message import Message
from klog.protocol.layout import Code, Layout

@final
class Program:
    name: str
    version: int
    def __new__(cls, code: Code, classes: dict[str, type[Message]], name: str, version: int) -> Self: ...

@final
class Programs:
    def __new__(cls, layout: Layout, classes: dict[str, type[Message]]) -> Self: ...
