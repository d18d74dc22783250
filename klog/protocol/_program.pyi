from collections.abc import Callable
from typing import Self, final

from typing_extensions import disjoint_base

from klog.protocol._message import Message
from klog.protocol.layout import Code, Layout

@disjoint_base
class Program:
    name: str
    version: int
    def __new__(cls, code: Code, name: str, version: int) -> Self: ...

@final
class ObjectProgram(Program):
    def __new__(cls, code: Code, name: str, version: int, classes: dict[str, type[Message]]) -> Self: ...

@final
class Programs:
    def __new__(cls, layout: Layout, make: Callable[[Code, str, int], Program]) -> Self: ...
